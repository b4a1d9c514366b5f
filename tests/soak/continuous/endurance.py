"""A continuous query without faults: it must make progress, never restart, and use constant memory."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
from tests.soak.continuous.run import APP, CopyQuery, committed
from tests.soak.driver import Driver
from tests.soak.log.results import memory_faults
from tests.soak.processes import jvm_of, kill, task_workers
from tests.soak.results import last_batch
from tests.soak.stream_run import SoakError
from tests.soak.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.continuous.plan import Delivery

EPOCH_MS: dict[Delivery, int] = {"at-least-once": 1000, "exactly-once": 100, "database": 1000}
_RATE = 150  # records per second
_START_TIMEOUT = 120.0  # seconds
_EPOCH_STALL_TIMEOUT = 20.0  # seconds
_STOP_TIMEOUT = 60.0
_POLL_SECONDS = 1.0
_MEMORY_CHECK_AFTER = 240.0  # seconds: shorter runs are not checked
_REPORT_INTERVAL = 60.0


@dataclass
class EnduranceOutcome:
    records: int = 0
    epochs: int = 0
    longest: float = 0.0  # seconds of the longest epoch
    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def summary(self) -> list[str]:
        """Return the memory of each process by fifths of the time."""
        lines = []
        for name, samples in self.memory.items():
            fifth = max(1, len(samples) // 5)
            parts = [
                max(samples[first : first + fifth]) >> 20 for first in range(0, 5 * fifth, fifth) if samples[first:]
            ]
            lines.append(f"{name}: {' '.join(map(str, parts))} MiB by fifths of the time")
        return lines


class EnduranceRun:
    def __init__(self, delivery: Delivery, servers: str, folder: Path, report: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._report = report
        self._copy_query = CopyQuery(delivery, servers, EPOCH_MS[delivery], folder)
        self._driver: Driver | None = None
        self._outcome = EnduranceOutcome()

    def run(self, seconds: float) -> EnduranceOutcome:
        """Run for some time, and compare the output with the input."""
        query, outcome = self._copy_query, self._outcome
        query.create_topics()
        try:
            with Writer(query.servers, [query.source], _RATE) as writer:
                self._driver = Driver(self._folder, query.options("local[2]"), app=APP)
                self._await(lambda: self._last_epoch() >= 1, _START_TIMEOUT, "the first epochs")
                self._monitor(seconds)
                outcome.records = writer.close()
            self._finish()
            outcome.epochs = self._last_epoch() + 1
            query.check(outcome.records, [])
        finally:
            if self._driver is not None:
                self._driver.kill()
                kill(self._driver.orphans)
        faults = [
            f"{name}: {fault}"
            for name, samples in outcome.memory.items()
            if "JVM" not in name  # a heap grows until it is collected: reported, but not checked
            for fault in memory_faults(samples)
        ]
        if seconds >= _MEMORY_CHECK_AFTER and faults:
            raise SoakError("; ".join(faults))
        return outcome

    def _monitor(self, seconds: float) -> None:
        driver = self._driver
        assert driver is not None
        processes = self._processes(driver)
        started_at = last_epoch_at = time.monotonic()
        done, next_report_at = self._last_epoch(), started_at + _REPORT_INTERVAL
        while (now := time.monotonic()) - started_at < seconds:
            if not driver.alive:
                raise SoakError(f"the query ended unexpectedly:\n{driver.log_tail()}")
            if (new := self._last_epoch()) > done:
                self._outcome.longest = max(self._outcome.longest, now - last_epoch_at)
                done, last_epoch_at = new, now
            if now - last_epoch_at > _EPOCH_STALL_TIMEOUT:
                raise SoakError(f"no epoch was committed for {_EPOCH_STALL_TIMEOUT:.0f} s\n{driver.log_tail()}")
            for name, process in processes.items():
                if not process.is_running():
                    raise SoakError(f"{name} ended although it was not killed\n{driver.log_tail()}")
                self._outcome.memory[name].append(process.memory_info().rss)
            if now >= next_report_at:
                next_report_at += _REPORT_INTERVAL
                sizes = ", ".join(f"{name} {sizes[-1] >> 20} MiB" for name, sizes in self._outcome.memory.items())
                self._report(f"  {now - started_at:.0f} s: epoch {done}; {sizes}")
            time.sleep(_POLL_SECONDS)

    def _processes(self, driver: Driver) -> dict[str, psutil.Process]:
        python = psutil.Process(driver.pid)
        jvm = jvm_of(driver.pid)
        workers = {f"worker {number}": each for number, each in enumerate(task_workers(driver.pid))}
        return {"driver's Python": python, "driver's JVM": jvm, **workers}

    def _finish(self) -> None:
        ends = self._copy_query.end_offsets()
        self._await(lambda: committed(self._folder) == ends, _STOP_TIMEOUT, "all offsets are committed")
        (self._folder / "stop").touch()
        driver = self._driver
        assert driver is not None
        try:
            code = driver.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not stop:\n{driver.log_tail()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.log_tail()}")

    def _last_epoch(self) -> int:
        return last_batch(self._folder, "commits")

    def _await(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        assert self._driver is not None
        deadline = time.monotonic() + seconds
        while not condition():
            if not self._driver.alive or time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {seconds:.0f} s\n{self._driver.log_tail()}")
            time.sleep(0.05)
