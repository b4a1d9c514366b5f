"""Waiting for the processes of a killed driver."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
from tests.soak.driver import wait_for_orphans
from tests.soak.processes import wait_until_ended

if TYPE_CHECKING:
    import pytest


def pidfd_open_after_exit(pid: int, flags: int = 0) -> int:
    """``pidfd_open`` of a process that has just ended; psutil opens its own process first."""
    if pid != os.getpid():
        raise FileNotFoundError(2, "No such file or directory")
    return os.open(os.devnull, flags)


def start_sleeping_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_running_process_is_returned() -> None:
    with start_sleeping_process() as process:
        handle = psutil.Process(process.pid)
        assert wait_until_ended([handle], 0.1) == [handle]
        process.kill()


def test_an_ended_process_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(os, "pidfd_open"):
        monkeypatch.setattr(os, "pidfd_open", pidfd_open_after_exit)
    with start_sleeping_process() as process:
        handle = psutil.Process(process.pid)
        process.kill()
        assert wait_for_orphans([handle]) == [], "it has ended, but its parent has not reaped it yet"
        process.wait()
        assert wait_for_orphans([handle]) == []
