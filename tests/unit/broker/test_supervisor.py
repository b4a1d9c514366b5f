"""The program between a broker and the process that wants it, with a harmless child in the broker's place."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pyspark_kafka_direct.broker import _supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(_supervisor.__file__))
CHILD = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('up')\ntime.sleep(60)"


class Supervised:
    def __init__(self, folder: Path, log: Path) -> None:
        command = [sys.executable, "-I", "-S", PROGRAM, str(folder), sys.executable, "-u", "-c", CHILD]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, bufsize=0
            )
        assert self.process.stdout is not None
        self.child = psutil.Process(int(self.process.stdout.readline()))
        deadline = time.monotonic() + 20
        while log.read_bytes() != b"up\n":
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def tell(self, what: bytes) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(what)
        return self.process.wait(20)

    def child_is_gone(self) -> bool:
        try:
            return not self.child.is_running() or self.child.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # it went between the two questions
            return True


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    (tmp_path / "cluster").mkdir()
    made = Supervised(tmp_path / "cluster", tmp_path / "log")
    yield made
    made.process.kill()
    made.process.wait(20)
    for stream in (made.process.stdin, made.process.stdout):
        assert stream is not None
        stream.close()


def test_stop_asks_politely_and_hands_on_the_exit_code(supervised: Supervised) -> None:
    assert supervised.tell(b"stop\n") == 7
    assert supervised.child_is_gone()


def test_kill_kills(supervised: Supervised) -> None:
    assert supervised.tell(b"kill\n") == 128 + signal.SIGKILL
    assert supervised.child_is_gone()


def test_a_child_that_ends_by_itself_ends_the_supervisor(supervised: Supervised) -> None:
    supervised.child.terminate()
    assert supervised.process.wait(20) == 7


def test_the_end_of_the_pipe_kills_the_child_and_removes_the_folder(supervised: Supervised, tmp_path: Path) -> None:
    assert supervised.process.stdin is not None
    supervised.process.stdin.close()
    supervised.process.wait(20)
    assert supervised.child_is_gone()
    assert not (tmp_path / "cluster").exists()


def test_the_child_dies_with_a_killed_supervisor(supervised: Supervised) -> None:
    supervised.process.kill()
    supervised.process.wait(20)
    deadline = time.monotonic() + 20
    while not supervised.child_is_gone():
        assert time.monotonic() < deadline
        time.sleep(0.01)
