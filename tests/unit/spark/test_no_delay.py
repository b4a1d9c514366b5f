"""The socket between a Python worker and Spark's JVM, and what a task does when it begins."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.client import connection_pool
from pyspark_kafka_direct.spark import worker_lifecycle
from pyspark_kafka_direct.spark.worker_lifecycle import jvm_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

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


def test_a_worker_acknowledges_quickly_between_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel returns to delayed acknowledgements, and garbage is collected between two tasks."""
    worker_lifecycle.disable_tcp_delays.cache_clear()
    callbacks: list[Callable[[str, dict[str, int]], None]] = []
    monkeypatch.setattr(gc, "callbacks", callbacks)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY, raising=False)  # it can be read back

    def worker(sock: socket.socket) -> None:
        worker_lifecycle.disable_tcp_delays()
        worker_lifecycle.disable_tcp_delays()

    def has_no_delay() -> bool:
        return tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as tcp:
        worker(tcp)
        assert has_no_delay()
        (callback,) = callbacks
        for phase, generation, requested in (("start", 2, False), ("stop", 1, False), ("stop", 2, True)):
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            callback(phase, {"generation": generation})
            assert has_no_delay() is requested, (phase, generation)
    callback("stop", {"generation": 2})  # the socket is closed
    worker_lifecycle.disable_tcp_delays.cache_clear()


def test_a_retried_task_uses_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, cleared = 0, list[int]()
    monkeypatch.setattr(connection_pool, "POOL", SimpleNamespace(clear=lambda: cleared.append(attempt)))
    for attempt in range(3):
        context = SimpleNamespace(attemptNumber=lambda number=attempt: number)
        monkeypatch.setattr("pyspark.TaskContext.get", lambda found=context: found)
        worker_lifecycle.begin_task()
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: None)
    worker_lifecycle.begin_task()
    assert cleared == [1, 2]


def test_a_daemon_prints_no_trace_of_a_task_that_spark_ends_early(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main: Any = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setattr(main, "traceback", traceback, raising=False)
    worker_lifecycle.hide_broken_pipe_traces()
    replaced = main.traceback
    worker_lifecycle.hide_broken_pipe_traces()
    assert main.traceback is replaced
    for error, is_printed in ((BrokenPipeError(), False), (ConnectionResetError(), False), (OSError("disk"), True)):
        try:
            raise error
        except OSError:
            main.traceback.print_exc()
            assert ("OSError: disk" in capsys.readouterr().err) is is_printed
            assert type(error).__name__ in main.traceback.format_exc()


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
