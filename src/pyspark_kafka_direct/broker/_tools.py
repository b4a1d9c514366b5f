"""Java's small tools, several at a time: each takes about a second, mostly to start."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_together(commands: Sequence[Sequence[str]], seconds: float) -> list[tuple[int, str]]:
    """Run programs side by side and return the exit code and the output of each.

    Raises:
        ToolError: One could not be started, or took longer than ``seconds``; all are killed.
    """
    deadline = time.monotonic() + seconds
    program = Path(commands[0][0])
    children: list[subprocess.Popen[str]] = []
    try:
        children.extend(_start(command) for command in commands)
        said = [child.communicate(timeout=max(0.0, deadline - time.monotonic()))[0] for child in children]
    except OSError as error:
        raise ToolError(f"{program} cannot be run: {error.strerror}. Let JAVA_HOME name a whole Java.") from error
    except subprocess.TimeoutExpired:
        raise ToolError(f"{program} took longer than {seconds:g} s. Is this machine overloaded?") from None
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()
            if child.stdout is not None:
                child.stdout.close()  # of one that has ended and was not read yet
    return [(child.returncode, text) for child, text in zip(children, said, strict=True)]


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
