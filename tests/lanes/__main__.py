"""Run targets of the Makefile side by side: each argument is a lane, the targets that run in it one after the other.

    python -m tests.lanes make lane-spark lane-apps "lint unit"
    python -m tests.lanes --at-once 2 make lane-spark lane-apps lint unit

Of more lanes than may run at once, the next one begins when one has ended.

The output of a lane goes to a file, and is shown as a whole when the lane has ended. What the lanes are at is told
every minute. Every lane runs to its end, whatever becomes of the others. The exit code is 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
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


def main(make: str, lanes: Sequence[str], at_once: int) -> int:
    """Run all lanes; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="lanes-"))
    _say(f"{len(lanes)} lanes, {min(at_once, len(lanes))} at once, their output in {folder}: {', '.join(lanes)}")
    lanes_to_come = deque((targets, folder / str(number)) for number, targets in enumerate(lanes))
    running: list[Lane] = []
    try:
        results = _run(make, lanes_to_come, running, at_once)
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


def _run(make: str, to_come: deque[tuple[str, Path]], running: list[Lane], at_once: int) -> list[Result]:
    results = []
    began = told = time.monotonic()
    while to_come or running:
        while to_come and len(running) < at_once:
            running.append(Lane(make, *to_come.popleft()))
        for lane in list(running):
            result = lane.ended()
            if result is not None:
                running.remove(lane)
                results.append(result)
                _title(lane.targets)
                _say(lane.output())
                _say(str(result))
        now = time.monotonic()
        if now - told >= _EVERY:
            told = now
            for lane in running:
                _say(f"{(now - began) / 60:4.0f} min  {lane.targets}: {_last_line(lane.output())}")
        time.sleep(0.2)
    return results


def _last_line(output: str) -> str:
    return next((line.strip()[:100] for line in reversed(output.splitlines()) if line.strip()), "")


def _title(text: str) -> None:
    _say(f"\n{f' {text} '.center(100, '#')}")


def _say(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description="Run targets side by side.")
    parser.add_argument("--at-once", type=int, metavar="N", help="so many lanes at most; by default all")
    parser.add_argument("make", help="the program make")
    parser.add_argument("lanes", nargs="+", metavar="LANE", help="targets, separated by blanks")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    sys.exit(main(given.make, given.lanes, given.at_once or len(given.lanes)))
