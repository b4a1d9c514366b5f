"""Run targets of the Makefile in parallel: each argument is a shard, a list of targets that run one after the other.

    python -m tests.shards make shard-spark shard-apps "lint unit"
    python -m tests.shards --at-once 2 make shard-spark shard-apps lint unit

If there are more shards than may run at once, the next one starts when one has ended.

The output of a shard goes to a file, and is printed as a whole when the shard has ended. The last line of each running
shard is printed every minute. Every shard runs to its end, even if another one fails. The exit code is 1 if a shard
failed.

Shards share the brokers of ``tests/shards/brokers.py``. If a broker exits, the end of its log is printed. If a shard
fails, the logs of the brokers are kept beside the output of the shards.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.shards import jvm
from tests.shards.brokers import ADDRESS, SharedBrokers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EVERY = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a shard.

    Attributes:
        targets: Its targets.
        code: Its exit code.
        minutes: Its duration.
        cpu_minutes: The CPU time of the shard and all its child processes.
    """

    targets: str
    code: int
    minutes: float
    cpu_minutes: float

    def __str__(self) -> str:
        """Return the line of the summary."""
        outcome = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{outcome:<12} {self.minutes:5.1f} min {self.cpu_minutes:5.1f} CPU min   {self.targets}"


class Shard:
    """A running shard."""

    def __init__(self, make: str, targets: str, log: Path, environment: Mapping[str, str]) -> None:
        self.targets = targets
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as output:
            # Without -k the shard ends at the first target that fails.
            command = [make, "--no-print-directory", "-k", *targets.split()]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )

    def ended(self) -> Result | None:
        """Return the result if the shard has ended."""
        ended, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if ended == 0:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        minutes, cpu_minutes = (time.monotonic() - self._began) / 60, (used.ru_utime + used.ru_stime) / 60
        return Result(self.targets, self._process.returncode, minutes, cpu_minutes)

    def output(self) -> str:
        """Return its output so far."""
        return self._log.read_text("utf-8", errors="replace")

    def stop(self) -> None:
        """Terminate it if it is running."""
        if self._process.returncode is None:
            self._process.terminate()
            self._process.wait()


def main(make: str, shards: Sequence[str], at_once: int) -> int:
    """Run all shards and return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="shards-"))
    _say(f"{len(shards)} shards, {min(at_once, len(shards))} at once, their output in {folder}: {', '.join(shards)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stops the shards and brokers
    brokers = SharedBrokers()
    running: list[Shard] = []
    try:
        results = _run(make, shards, at_once, folder, running, brokers)
        failed = any(result.code != 0 for result in results)
        if failed:
            brokers.copy_logs(folder)
    finally:
        for shard in running:
            shard.stop()
        brokers.close()
    _title("shards")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    broker_minutes = (used.ru_utime + used.ru_stime) / 60 - sum(result.cpu_minutes for result in results)
    _say(f"{'':<22} {broker_minutes:5.1f} CPU min   shared brokers")
    for result in results:
        _say(str(result))
    if failed:
        return 1
    shutil.rmtree(folder)
    return 0


def _run(
    make: str, shards: Sequence[str], at_once: int, folder: Path, running: list[Shard], brokers: SharedBrokers
) -> list[Result]:
    environment = {**os.environ, ADDRESS: brokers.address}
    jvm.start_quickly()  # the brokers; shards set their own options
    to_come = deque((targets, folder / str(number)) for number, targets in enumerate(shards))
    results = []
    began = told = time.monotonic()
    while to_come or running:
        while to_come and len(running) < at_once:
            running.append(Shard(make, *to_come.popleft(), environment))
        for shard in list(running):
            result = shard.ended()
            if result is not None:
                running.remove(shard)
                results.append(result)
                _title(shard.targets)
                _say(shard.output())
                _say(str(result))
        for kind, log_end in brokers.newly_exited():
            _title(f"the broker {kind!r} of all shards has exited")
            _say(log_end)
        now = time.monotonic()
        if now - told >= _EVERY:
            told = now
            for shard in running:
                _say(f"{(now - began) / 60:4.0f} min  {shard.targets}: {_last_line(shard.output())}")
        time.sleep(0.2)
    return results


def _last_line(output: str) -> str:
    return next((line.strip()[:100] for line in reversed(output.splitlines()) if line.strip()), "")


def _title(text: str) -> None:
    _say(f"\n{f' {text} '.center(100, '#')}")


def _say(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.shards", description="Run targets in parallel.")
    parser.add_argument("--at-once", type=int, metavar="N", help="how many shards run at once (default: all)")
    parser.add_argument("make", help="the make program")
    parser.add_argument("shards", nargs="+", metavar="SHARD", help="targets, separated by spaces")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    sys.exit(main(given.make, given.shards, given.at_once or len(given.shards)))
