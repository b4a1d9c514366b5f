"""Waiting for what brokers and Spark do in their own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(happened: Callable[[], bool], what: str = "it", seconds: float = 60) -> None:
    """Return when it has happened; the deadline is generous and only catches hangs."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
