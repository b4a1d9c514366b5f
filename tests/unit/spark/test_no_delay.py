"""The socket between a Python worker and Spark's JVM."""

from __future__ import annotations

import socket
import subprocess
import sys

from pyspark_kafka_direct.spark.worker_lifecycle import jvm_socket

# Like PySpark's daemon: a module of its name, and a function `worker` with the socket that calls all tasks.
IN_WORKER = """
import gc, socket, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pyspark_kafka_direct.spark.worker_lifecycle import disable_tcp_delays

def worker(sock):
    def task():
        disable_tcp_delays()
        disable_tcp_delays()
    task()

listener = socket.create_server(("127.0.0.1", 0))
tcp = socket.create_connection(listener.getsockname())
ours, peer = socket.socketpair()
if sys.argv[1] == "tcp":
    worker(tcp)
else:
    worker(ours)  # a Unix socket has no such option
nodelay = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
before = len(gc.callbacks)
gc.collect()  # as the daemon does between two tasks; must not fail with a closed socket either
tcp.close()
gc.collect()
print(nodelay, before)
"""


def run_in_worker(kind: str) -> str:
    run = subprocess.run([sys.executable, "-c", IN_WORKER, kind], capture_output=True, text=True, check=True)
    assert not run.stderr
    return run.stdout.strip()


def test_a_worker_disables_tcp_delays() -> None:
    assert run_in_worker("tcp") == f"True {int(hasattr(socket, 'TCP_QUICKACK'))}"


def test_unix_sockets_are_not_changed() -> None:
    assert run_in_worker("unix") == "False 0"


def test_other_processes_have_no_such_socket() -> None:
    def worker(sock: socket.socket) -> socket.socket | None:
        assert sock
        return jvm_socket()

    ours, peer = socket.socketpair()
    with ours, peer:
        assert worker(ours) is None
