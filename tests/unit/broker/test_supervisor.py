"""The program between a broker and the process that started it, with a harmless child instead of the broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pyspark_kafka_direct.broker import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(supervisor.__file__))
# It blocks the signal: one that arrives just before a sleep would not end the sleep.
CHILD = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("up")
sys.exit(7 if signal.sigtimedwait({signal.SIGTERM}, 60) else 1)
"""


class Supervised:
    def __init__(self, folder: Path, log: Path) -> None:
        command = [sys.executable, "-I", "-S", PROGRAM, str(folder), sys.executable, "-u", "-c", CHILD]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, bufsize=0
            )
        assert self.process.stdout is not None
        self.child = psutil.Process(int(self.process.stdout.readline()))
        deadline = time.monotonic() + 120
        while log.read_bytes() != b"up\n":
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def send(self, command: bytes) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(command)
        return self.process.wait(120)

    def child_has_exited(self) -> bool:
        try:
            return not self.child.is_running() or self.child.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # it exited between the two calls
            return True


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    (tmp_path / "cluster").mkdir()
    supervised = Supervised(tmp_path / "cluster", tmp_path / "log")
    yield supervised
    supervised.process.kill()
    supervised.process.wait(120)
    for stream in (supervised.process.stdin, supervised.process.stdout):
        assert stream is not None
        stream.close()


def test_stop_terminates_and_returns_the_exit_code(supervised: Supervised) -> None:
    assert supervised.send(b"stop\n") == 7
    assert supervised.child_has_exited()


def test_kill_kills_the_child(supervised: Supervised) -> None:
    assert supervised.send(b"kill\n") == 128 + signal.SIGKILL
    assert supervised.child_has_exited()


def test_the_supervisor_exits_with_its_child(supervised: Supervised) -> None:
    supervised.child.terminate()
    assert supervised.process.wait(120) == 7


def test_closing_the_pipe_kills_the_child_and_removes_the_folder(supervised: Supervised, tmp_path: Path) -> None:
    assert supervised.process.stdin is not None
    supervised.process.stdin.close()
    supervised.process.wait(120)
    assert supervised.child_has_exited()
    assert not (tmp_path / "cluster").exists()


def test_the_child_dies_with_a_killed_supervisor(supervised: Supervised) -> None:
    supervised.process.kill()
    supervised.process.wait(120)
    deadline = time.monotonic() + 120
    while not supervised.child_has_exited():
        assert time.monotonic() < deadline
        time.sleep(0.01)
