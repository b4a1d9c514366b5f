"""Connections, logins and schemas in a forked child: sockets are those of the parent, whose threads do not run."""

from __future__ import annotations

import os
import subprocess
import sys

START = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from fake_servers import *
from pyspark_kafka_direct.client.connection_pool import POOL, ConnectionPool
from pyspark_kafka_direct.errors import BrokerUnreachableError

def echo_frames(server_side):
    server_side.respond_to_api_versions()
    while True:
        server_side.respond(server_side.request()[2], b"body")

server = FakeServer(echo_frames)
server.__enter__()

def acquire(pool=POOL):
    return pool.acquire(SETTINGS, "127.0.0.1", server.port, Deadline.after(120))

def fetch(connection):
    connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(120))
    return bytes(connection.receive(Deadline.after(120)))

def in_child(check):
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

mine = acquire()
"""


def run_forking_process(code: str) -> str:
    """Run code in a process that may fork, whose connection ``mine`` is acquired from the pool; return its output."""
    return run(START + code)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    return done.stdout.strip() or done.stderr


def test_a_child_cannot_use_a_connection_of_its_parent() -> None:
    code = """
def fails():
    try:
        fetch(mine)
    except BrokerUnreachableError as error:
        return "parent process" in str(error)

print(in_child(fails), fetch(mine))
"""
    assert run_forking_process(code) == "0 b'body'"


def test_a_child_starts_with_an_empty_pool() -> None:
    code = """
other = acquire()
POOL.release(other)
POOL.release(mine)
POOL._lock.acquire()  # as if another thread of the parent held it during the fork
status = in_child(lambda: acquire() is not mine and mine.closed and other.closed)
POOL._lock.release()
print(status, acquire() is mine, fetch(mine))
"""
    assert run_forking_process(code) == "0 True b'body'"


def test_a_child_shares_no_connection_of_any_pool() -> None:
    code = """
other = ConnectionPool()
idle = acquire(other)
other.release(idle)
print(in_child(lambda: acquire(other) is not idle and idle.closed), acquire(other) is idle)
"""
    assert run_forking_process(code) == "0 True"


def test_a_child_does_not_reuse_a_connection_that_its_parent_has_acquired() -> None:
    """A child that closes what it inherited releases connections of its parent."""
    code = """
def release():
    POOL.release(mine)
    return acquire() is not mine and mine.closed

status = in_child(release)
POOL.release(mine)
print(status, acquire() is mine)
"""
    assert run_forking_process(code) == "0 True"


CALLS = f"""
import os, sys, threading, types
sys.path.insert(0, {os.getcwd()!r})
from pyspark_kafka_direct.client.deadline import Deadline

parent = os.getpid()
is_called, is_forked = threading.Event(), threading.Event()

def source(value):
    if os.getpid() == parent:
        is_called.set()
        is_forked.wait(120)
    return value

def fork_during(call):
    thread = threading.Thread(target=call)
    thread.start()
    is_called.wait(120)
    child = os.fork()
    if child == 0:
        os._exit(0 if call() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    is_forked.set()
    thread.join(120)
"""


def test_a_child_requests_a_token_that_its_parent_was_requesting() -> None:
    code = """
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.options.security_settings import OAuthSettings, ProviderTokens

sys.modules["tokens"] = types.ModuleType("tokens")
sys.modules["tokens"].make = lambda: lambda: source("abc")
oauth = OAuthSettings(ProviderTokens("tokens:make"))
fork_during(lambda: retrieve_token(oauth, Deadline.after(5), "broker:9092").value.reveal() == "abc")
"""
    assert run(CALLS + code) == "0"


def test_a_child_logs_in_with_kerberos_while_its_parent_does() -> None:
    code = """
import time
import pyspark_kafka_direct.client.security.kerberos_login as kerberos_login
from pyspark_kafka_direct.options.security_settings import KerberosSettings

credentials = kerberos_login.KerberosCredentials(None, "me@EXAMPLE.COM", time.time() + 3600)
kerberos_login._log_in = lambda *_: source(credentials)
kerberos = KerberosSettings(principal="me", keytab="/keytab")
fork_during(lambda: kerberos_login.kerberos_credentials(kerberos, Deadline.after(5), "b:1") == credentials)
"""
    assert run(CALLS + code) == "0"


def test_a_child_requests_a_schema_that_its_parent_was_requesting() -> None:
    code = """
from tests.unit.client.http_services import HttpService
from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

def respond(_):
    if len(service.requests) == 1:  # that of the parent
        source("")
    return 200, '{"schema": "\\\\"string\\\\""}'

hours = 10**7
with HttpService(respond) as service:
    settings = RegistrySettings(urls=(service.url,), read_timeout_ms=hours, api_timeout_ms=hours)
    fork_during(lambda: registry_client(settings).schema_by_id(1).text == '"string"')
"""
    assert run(CALLS + code) == "0"
