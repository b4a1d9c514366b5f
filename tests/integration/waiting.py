"""Waiting for what brokers and Spark do in their own time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(happened: Callable[[], bool], what: str = "it", seconds: float = 600) -> None:
    """Return when it has happened; the deadline is generous and only catches hangs."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def suspend(pid: int) -> None:
    """Stop a process, and wait until none of its threads runs; SIGCONT continues it."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():  # Linux
        wait_until(lambda: all(_is_suspended(task) for task in tasks.iterdir()), "a suspended process")


def _is_suspended(task: Path) -> bool:
    try:
        state = (task / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:  # the thread has ended
        return True
    return state in "TtZX"
