"""Python processes of the driver are forked from one with the imports, and end with the processes that they replace."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest
from tests.shards import source_runners
from tests.shards.python import path_of_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.skipif(not source_runners.supported(), reason="requires signals of sockets")

SECRET = b"given"


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The variables that name the server."""
    server = source_runners.SourceRunners()
    yield server.environment
    server.stop()
    assert not Path(server.address).exists()


@contextmanager
def started_by_spark(server: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO, int]]:
    """The process, its connection with Spark, and the number of the process that has connected."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(120)
        environment = {
            **os.environ,
            "PYTHONPATH": path_of_workers(os.environ.get("PYTHONPATH", "")),
            "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
            **server,
        }
        command = [sys.executable, "-m", source_runners.MODULE]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            connection, _ = listener.accept()
            with connection, cast("BinaryIO", connection.makefile("rwb")) as file:
                connection.settimeout(120)
                assert file.read(4 + len(SECRET)) == struct.pack("!i", len(SECRET)) + SECRET
                file.write(struct.pack("!i", 2) + b"ok")
                file.flush()
                yield process, file, struct.unpack("!i", file.read(4))[0]


def test_another_process_does_the_work_with_the_same_streams(server: dict[str, str]) -> None:
    with started_by_spark(server) as (process, connection, number):
        assert number != process.pid
        for stream in (1, 2):
            assert os.readlink(f"/proc/{number}/fd/{stream}") == os.readlink(f"/proc/{process.pid}/fd/1")
        connection.write(struct.pack("!i", 3) + b"0.0")  # not this version of Python
        connection.flush()
        assert b"PYTHON_VERSION_MISMATCH" in connection.read()
        assert process.wait(120) == 0


def test_the_forked_process_ends_if_spark_ends_the_replaced_one(server: dict[str, str]) -> None:
    with started_by_spark(server) as (process, connection, number):
        process.terminate()
        assert connection.read() == b"", "the process still has the connection"
        assert number != process.pid


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(source_runners.VARIABLE, id="without-the-server"),
        pytest.param(source_runners.PYTHON_VARIABLE, id="of-another-python"),
    ],
)
def test_a_process_does_the_work_itself(server: dict[str, str], variable: str) -> None:
    with started_by_spark(server | {variable: f"{server[variable]}-2"}) as (process, _, number):
        assert number == process.pid
        process.terminate()


def test_workers_of_planners_are_forked_from_a_process_with_the_imports(server: dict[str, str]) -> None:
    planner = "pyspark.sql.worker.plan_data_source_read"
    command = [sys.executable, "-m", "pyspark.daemon", planner]
    environment = {
        **os.environ,
        "PYTHONPATH": path_of_workers(os.environ.get("PYTHONPATH", "")),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        **server,
    }
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            worker = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))[0]
            connection.sendall(struct.pack("!i", len(SECRET)) + SECRET)  # until then, the worker ignores SIGHUP
            assert connection.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"
            assert "pyarrow" in Path(f"/proc/{worker}/maps").read_text(), "the worker has to import PyArrow"
            parent = Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1]
            assert int(parent) != daemon.pid
            daemon.stdin.close()
            assert connection.recv(1) == b"", "the worker still has the connection"
        assert daemon.wait(120) == 0
