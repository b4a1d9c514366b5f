"""Looking at other processes: their memory, and what they say on the console."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
from bench.latency import trace_lines, wait_until_quiet
from bench.memory import WorkerWatch, peak_rss

if TYPE_CHECKING:
    from pathlib import Path

TAKE_AND_GIVE_BACK = "block = bytearray(b'x' * 80_000_000); del block; print(flush=True); input()"


def test_the_peak_outlives_the_memory() -> None:
    child = subprocess.Popen([sys.executable, "-c", TAKE_AND_GIVE_BACK, "pyspark.daemon"], stdin=-1, stdout=-1)
    try:
        with WorkerWatch() as watch:
            assert child.stdout is not None
            child.stdout.readline()
        assert peak_rss(psutil.Process(child.pid)) > 80_000_000
        assert watch.peak_bytes > 80_000_000
    finally:
        child.communicate(b"\n", timeout=300)


def test_only_python_workers_are_watched() -> None:
    child = subprocess.Popen([sys.executable, "-c", TAKE_AND_GIVE_BACK], stdin=-1, stdout=-1)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with WorkerWatch() as watch:
            deadline = time.monotonic() + 0.2
            while time.monotonic() < deadline:
                watch.look()
        assert watch.peak_bytes == 0
    finally:
        child.communicate(b"\n", timeout=300)


def test_wait_until_quiet_waits_for_what_is_said_late(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with log.open("ab") as file:
        late = "import sys, time\nfor _ in range(3): time.sleep(0.1); print('x', flush=True)"
        child = subprocess.Popen([sys.executable, "-c", late], stdout=file)
    try:
        deadline = time.monotonic() + 120
        while not log.read_text():  # a busy machine may take longer than the quiet to start it
            assert time.monotonic() < deadline
            time.sleep(0.01)
        wait_until_quiet(log, quiet=2, deadline=600)
        assert log.read_text() == "x\n" * 3
    finally:
        child.wait(timeout=120)


def test_wait_until_quiet_gives_up_at_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    started = time.monotonic()
    wait_until_quiet(tmp_path / "log", quiet=60, deadline=0.1)
    assert time.monotonic() - started < 30


def test_lines_that_look_like_a_stack_trace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = "Traceback (most recent call last):\n"
    after = "WARN all is well\njava.net.SocketException: gone\n\tat java.base/Socket.java\nat the end\n"
    log.write_text(before + after)
    assert trace_lines(log, len(before)) == 2
    assert trace_lines(log, 0) == 3
