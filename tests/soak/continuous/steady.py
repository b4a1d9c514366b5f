"""A continuous query that nobody hurts: it must stay live, never start again by itself, and keep its memory flat."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
from tests.soak.continuous.run import APP, Copy, committed
from tests.soak.driver import Driver
from tests.soak.log.results import memory_faults
from tests.soak.processes import kill, task_workers
from tests.soak.query import SoakError
from tests.soak.results import last_batch
from tests.soak.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.sink.plan import Delivery

EPOCH_MS: dict[Delivery, int] = {"at-least-once": 1000, "exactly-once": 100}
_RATE = 150  # records a second
_STARTS_WITHIN = 120.0  # seconds
_NO_EPOCH_FOR = 20.0  # seconds after which a query is not live
_ENDS_WITHIN = 60.0
_LOOK = 1.0
_JUDGED = 240.0  # seconds after which memory has to be flat
_TOLD = 60.0


@dataclass
class SteadyOutcome:
    """How it went.

    Attributes:
        records: How many records were copied.
        epochs: In how many epochs.
        longest: Seconds that an epoch took at most, from one look to the next.
        memory: Resident bytes of each process, in the course of time.
    """

    records: int = 0
    epochs: int = 0
    longest: float = 0.0
    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def told(self) -> list[str]:
        """Tell the memory of each process by fifths of the time."""
        lines = []
        for name, samples in self.memory.items():
            fifth = max(1, len(samples) // 5)
            parts = [max(samples[at : at + fifth]) >> 20 for at in range(0, 5 * fifth, fifth) if samples[at:]]
            lines.append(f"{name}: {' '.join(map(str, parts))} MiB by fifths of the time")
        return lines


class SteadyRun:
    """Runs one query for some time.

    Args:
        delivery: What the query promises.
        servers: Bootstrap servers.
        folder: Checkpoint and log go here.
        say: Told what happens, a line at a time.
    """

    def __init__(self, delivery: Delivery, servers: str, folder: Path, say: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._say = say
        self._copy = Copy(delivery, servers, EPOCH_MS[delivery])
        self._driver: Driver | None = None
        self._outcome = SteadyOutcome()

    def run(self, seconds: float) -> SteadyOutcome:
        """Let it run for so long, and compare what it has written.

        Raises:
            SoakError: It stood still, started again, lost or doubled a record, or its memory has grown.
        """
        copy, outcome = self._copy, self._outcome
        copy.create_topics()
        try:
            with Writer(copy.servers, [copy.source], _RATE) as writer:
                self._driver = Driver(self._folder, copy.options("local[2]"), app=APP)
                self._await(lambda: self._done() >= 1, _STARTS_WITHIN, "the first epochs")
                self._watch(seconds)
                outcome.records = writer.close()
            self._finish()
            outcome.epochs = self._done() + 1
            copy.check(outcome.records, [])
        finally:
            if self._driver is not None:
                self._driver.kill()
                kill(self._driver.orphans)
        faults = [
            f"{name}: {fault}"
            for name, samples in outcome.memory.items()
            if "JVM" not in name  # a heap grows until it is collected: told, not judged
            for fault in memory_faults(samples)
        ]
        if seconds >= _JUDGED and faults:
            raise SoakError("; ".join(faults))
        return outcome

    def _watch(self, seconds: float) -> None:
        driver = self._driver
        assert driver is not None
        processes = self._processes(driver)
        began = last = time.monotonic()
        done, tell = self._done(), began + _TOLD
        while (now := time.monotonic()) - began < seconds:
            if not driver.alive:
                raise SoakError(f"the query ended by itself:\n{driver.last_words()}")
            if (new := self._done()) > done:
                self._outcome.longest = max(self._outcome.longest, now - last)
                done, last = new, now
            if now - last > _NO_EPOCH_FOR:
                raise SoakError(f"no epoch was committed for {_NO_EPOCH_FOR:.0f} s\n{driver.last_words()}")
            for name, process in processes.items():
                if not process.is_running():
                    raise SoakError(f"{name} has ended though nobody killed it\n{driver.last_words()}")
                self._outcome.memory[name].append(process.memory_info().rss)
            if now >= tell:
                tell += _TOLD
                sizes = ", ".join(f"{name} {sizes[-1] >> 20} MiB" for name, sizes in self._outcome.memory.items())
                self._say(f"  {now - began:.0f} s: epoch {done}; {sizes}")
            time.sleep(_LOOK)

    def _processes(self, driver: Driver) -> dict[str, psutil.Process]:
        python = psutil.Process(driver.pid)
        jvm = next(each for each in python.children() if "java" in each.name())
        workers = {f"worker {number}": each for number, each in enumerate(task_workers(driver.pid))}
        return {"driver's Python": python, "driver's JVM": jvm, **workers}

    def _finish(self) -> None:
        ends = self._copy.ends()
        self._await(lambda: committed(self._folder) == ends, _ENDS_WITHIN, "all to be committed")
        (self._folder / "stop").touch()
        driver = self._driver
        assert driver is not None
        try:
            code = driver.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not stop:\n{driver.last_words()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.last_words()}")

    def _done(self) -> int:
        return last_batch(self._folder, "commits")

    def _await(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        assert self._driver is not None
        deadline = time.monotonic() + seconds
        while not condition():
            if not self._driver.alive or time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {seconds:.0f} s\n{self._driver.last_words()}")
            time.sleep(0.05)
