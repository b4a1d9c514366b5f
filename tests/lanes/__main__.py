"""Run targets of the Makefile side by side: each argument is a lane, the targets that run in it one after the other.

    python -m tests.lanes make spark apps "lint unit"

The output of a lane goes to a file, and is shown as a whole when the lane has ended. What the lanes are at is told
every minute. Every lane runs to its end, whatever becomes of the others. The exit code is 1 if one of them failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Result:
    """How a lane ended.

    Attributes:
        targets: What ran in it.
        code: Its exit code.
        minutes: How long it took.
        cpu_minutes: What it used, its processes and theirs among it.
    """

    targets: str
    code: int
    minutes: float
    cpu_minutes: float

    def __str__(self) -> str:
        """One line for the end."""
        outcome = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{outcome:<12} {self.minutes:5.1f} min {self.cpu_minutes:5.1f} CPU min   {self.targets}"


class Lane:
    """One lane that runs."""

    def __init__(self, make: str, targets: str, log: Path) -> None:
        self.targets = targets
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as output:
            # Without -k the lane would end with the first target that fails.
            command = [make, "--no-print-directory", "-k", *targets.split()]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def ended(self) -> Result | None:
        """Return how it ended, once it has."""
        ended, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if ended == 0:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        minutes, cpu_minutes = (time.monotonic() - self._began) / 60, (used.ru_utime + used.ru_stime) / 60
        return Result(self.targets, self._process.returncode, minutes, cpu_minutes)

    def output(self) -> str:
        """Return what it has printed so far."""
        return self._log.read_text("utf-8", errors="replace")

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process.returncode is None:
            self._process.terminate()
            self._process.wait()


def main(make: str, lanes: Sequence[str]) -> int:
    """Run all lanes; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="lanes-"))
    running = [Lane(make, targets, folder / str(number)) for number, targets in enumerate(lanes)]
    _say(f"{len(running)} lanes side by side, their output in {folder}: {', '.join(lanes)}")
    try:
        results = _run(running)
    finally:
        for lane in running:
            lane.stop()
    _title("lanes")
    for result in results:
        _say(str(result))
    if any(result.code != 0 for result in results):
        return 1
    shutil.rmtree(folder)
    return 0


def _run(running: Sequence[Lane]) -> list[Result]:
    waiting, results = list(running), []
    began = told = time.monotonic()
    while waiting:
        for lane in list(waiting):
            result = lane.ended()
            if result is not None:
                waiting.remove(lane)
                results.append(result)
                _title(lane.targets)
                _say(lane.output())
                _say(str(result))
        now = time.monotonic()
        if waiting and now - told >= _EVERY:
            told = now
            for lane in waiting:
                _say(f"{(now - began) / 60:4.0f} min  {lane.targets}: {_last_line(lane.output())}")
        time.sleep(0.2)
    return results


def _last_line(output: str) -> str:
    return next((line.strip()[:100] for line in reversed(output.splitlines()) if line.strip()), "")


def _title(text: str) -> None:
    _say(f"\n{f' {text} '.center(100, '#')}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
