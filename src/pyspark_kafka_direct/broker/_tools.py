"""Java's small tools, several at a time: each takes about a second, mostly to start."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_together(commands: Sequence[Sequence[str]], seconds: float) -> list[tuple[int, str]]:
    """Run programs side by side and return the exit code and the output of each.

    Raises:
        subprocess.TimeoutExpired: One took longer than ``seconds``; all are killed.
    """
    deadline = time.monotonic() + seconds
    children = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    try:
        said = [child.communicate(timeout=max(0.0, deadline - time.monotonic()))[0] for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()
    return [(child.returncode, text) for child, text in zip(children, said, strict=True)]
