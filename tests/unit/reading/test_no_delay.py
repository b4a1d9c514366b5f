"""The socket from a Python worker to Spark's JVM."""

from __future__ import annotations

import socket
import subprocess
import sys

from pyspark_kafka_direct.runtime._daemon import socket_to_jvm

# PySpark's daemon, in short: a module named so, and a function `worker` with the socket, under which all tasks run.
IN_WORKER = """
import gc, socket, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pyspark_kafka_direct.runtime._no_delay import send_at_once

def worker(sock):
    def task():
        send_at_once()
        send_at_once()
    task()

listener = socket.create_server(("127.0.0.1", 0))
tcp = socket.create_connection(listener.getsockname())
here, there = socket.socketpair()
if sys.argv[1] == "tcp":
    worker(tcp)
else:
    worker(here)  # a Unix socket has no such option
nodelay = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
before = len(gc.callbacks)
gc.collect()  # as the daemon does between two tasks; with the socket closed it must not fail either
tcp.close()
gc.collect()
print(nodelay, before)
"""


def run_in_worker(kind: str) -> str:
    run = subprocess.run([sys.executable, "-c", IN_WORKER, kind], capture_output=True, text=True, check=True)
    assert not run.stderr
    return run.stdout.strip()


def test_a_worker_waits_for_no_acknowledgement() -> None:
    assert run_in_worker("tcp") == f"True {int(hasattr(socket, 'TCP_QUICKACK'))}"


def test_unix_sockets_are_left_alone() -> None:
    assert run_in_worker("unix") == "False 0"


def test_elsewhere_there_is_no_such_socket() -> None:
    def worker(sock: socket.socket) -> socket.socket | None:
        assert sock
        return socket_to_jvm()

    here, there = socket.socketpair()
    with here, there:
        assert worker(here) is None
