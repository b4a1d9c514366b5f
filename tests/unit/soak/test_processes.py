"""Waiting for processes of a driver that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
from tests.soak.driver import wait_for_orphans
from tests.soak.processes import wait_until_gone

if TYPE_CHECKING:
    import pytest


def gone_already(pid: int, flags: int = 0) -> int:
    """What a system may say of a process that has just ended; psutil tries its own first."""
    if pid != os.getpid():
        raise FileNotFoundError(2, "No such file or directory")
    return os.open(os.devnull, flags)


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_process_that_runs_is_left() -> None:
    with sleeping() as process:
        known = psutil.Process(process.pid)
        assert wait_until_gone([known], 0.1) == [known]
        process.kill()


def test_a_process_that_has_ended_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(os, "pidfd_open"):
        monkeypatch.setattr(os, "pidfd_open", gone_already)
    with sleeping() as process:
        known = psutil.Process(process.pid)
        process.kill()
        assert wait_for_orphans([known]) == [], "it has ended, though its parent has not asked yet"
        process.wait()
        assert wait_for_orphans([known]) == []
