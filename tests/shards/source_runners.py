"""Forks Python processes of Spark's driver from one that has already imported PySpark.

Spark starts a new interpreter for the source of each streaming query, which imports PySpark, PyArrow and this package
in a second of CPU time. The same applies to the daemons whose forks plan reads and writes (``pyspark.daemon`` with a
module of ``pyspark.sql.worker``): each fork repeats the imports, and Spark ends it after an idle minute. The tests
start hundreds of queries. Here, these interpreters are replaced before their imports:
``sitecustomize`` (in ``workers``) sends its environment and standard streams to a server, and waits. The server forks a
process that does the work in 0.3 seconds. If either process ends, the other one does, too.

``SparkSessions`` starts the server for the sessions of pytest's process in a shard. Applications do without.

    python -m tests.shards.source_runners SOCKET   # ends with its standard input
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from tests.shards.durations import ROOT
from tests.shards.workers.sitecustomize import this_python

VARIABLE = "TESTS_SOURCE_RUNNERS"  # the path of the server's socket
PYTHON_VARIABLE = "TESTS_SOURCE_RUNNERS_PYTHON"  # the server's Python; processes of others do their work themselves
MODULE = "pyspark.sql.streaming.python_streaming_source_runner"

_STREAMS = (0, 1, 2)
_ALSO_IMPORTED = (
    MODULE,
    "pandas",  # Arrow imports it with its first array from a list
    "pyarrow.fs",
    "pyspark.daemon",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark_kafka_direct.client.coordinator_client",
    "pyspark_kafka_direct.consumer.record_size",
    "pyspark_kafka_direct.datasource.exactly_once_committer",
    "pyspark_kafka_direct.datasource.micro_batch_stream",
    "pyspark_kafka_direct.datasource.stream_listener_files",
    "pyspark_kafka_direct.datasource.micro_batch_planner",
    "pyspark_kafka_direct.producer.sink_state_store",
    "pyspark_kafka_direct.producer.transactional_producer",
    "pyspark_kafka_direct.spark.commit_offer",
    "pyspark_kafka_direct.spark.kafka_offset_reader",
    "pyspark_kafka_direct.spark.offset_committer",
)


class SourceRunners:
    """The server as a child process.

    Attributes:
        address: The path of its socket.
        environment: The variables that name it to processes.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="source-runners-")
        self.address = f"{self._folder.name}/socket"
        self.environment = {VARIABLE: self.address, PYTHON_VARIABLE: this_python()}
        command = [sys.executable, "-m", "tests.shards.source_runners", self.address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout is not None
        with self._process.stdout as output:
            assert output.readline() == b"listening\n"

    def stop(self) -> None:
        """Stop the server. Processes that it has forked continue."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._folder.cleanup()


def supported() -> bool:
    """Return whether a process can get a signal when a socket is closed, as on Linux."""
    return hasattr(fcntl, "F_SETSIG")


def serve(address: str) -> dict[str, Any] | None:
    """Fork a process for each connection; return the request in the forked process, and ``None`` at the end."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [], 1)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            if sys.stdin in ready:
                return None
            if listener in ready:
                connection, _ = listener.accept()
                if os.fork() == 0:
                    return _receive(connection)
                connection.close()


def _receive(connection: socket.socket) -> dict[str, Any]:
    """Receive a request, and let the end of the process that sent it end this process."""
    _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
    with connection.makefile("r", encoding="utf-8") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    for stream, target in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, target)
        os.close(stream)
    number = connection.detach()  # it stays open until this process ends
    fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([number], [], [], 0)[0]:
        sys.exit(1)  # the other process has ended before there was a signal
    return request


def _main(address: str) -> None:
    from importlib import import_module

    from pyspark_kafka_direct.daemon import preload_modules, reseed_numpy

    preload_modules()
    for name in _ALSO_IMPORTED:
        import_module(name)
    os.register_at_fork(after_in_child=reseed_numpy)
    gc.collect()
    gc.freeze()
    request = serve(address)
    if request is not None:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = request["path"]
        module = request["command"][0]
        sys.argv[:] = request["command"]
        del sys.modules[module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(sys.argv[1])
