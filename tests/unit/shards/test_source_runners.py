"""The process of a streaming source is forked from one with the imports, and ends with the process that it replaces."""

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
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not source_runners.supported(), reason="requires signals of sockets")

SECRET = b"given"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = source_runners.SourceRunners()
    yield server.address
    server.stop()
    assert not Path(server.address).exists()


@contextmanager
def started_by_spark(address: str) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO, int]]:
    """The process, its connection with Spark, and the number of the process that has connected."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        environment = {
            **os.environ,
            "PYTHONPATH": path_of_workers(os.environ.get("PYTHONPATH", "")),
            "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
            source_runners.VARIABLE: address,
        }
        command = [sys.executable, "-m", source_runners.MODULE]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            connection, _ = listener.accept()
            with connection, cast("BinaryIO", connection.makefile("rwb")) as file:
                connection.settimeout(60)
                assert file.read(4 + len(SECRET)) == struct.pack("!i", len(SECRET)) + SECRET
                file.write(struct.pack("!i", 2) + b"ok")
                file.flush()
                yield process, file, struct.unpack("!i", file.read(4))[0]


def test_another_process_does_the_work_with_the_same_streams(address: str) -> None:
    with started_by_spark(address) as (process, connection, number):
        assert number != process.pid
        for stream in (1, 2):
            assert os.readlink(f"/proc/{number}/fd/{stream}") == os.readlink(f"/proc/{process.pid}/fd/1")
        connection.write(struct.pack("!i", 3) + b"0.0")  # not this version of Python
        connection.flush()
        assert b"PYTHON_VERSION_MISMATCH" in connection.read()
        assert process.wait(60) == 0


def test_the_forked_process_ends_if_spark_ends_the_replaced_one(address: str) -> None:
    with started_by_spark(address) as (process, connection, number):
        process.terminate()
        assert connection.read() == b"", "the process still has the connection"
        assert number != process.pid


def test_without_the_server_the_process_does_the_work(tmp_path: Path) -> None:
    with started_by_spark(str(tmp_path / "absent")) as (process, _, number):
        assert number == process.pid
        process.terminate()
