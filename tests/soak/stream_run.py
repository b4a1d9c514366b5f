"""Runs one streaming query: kills it as planned, restarts it from its checkpoint, runs it to its end, and checks it."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.soak.driver import Driver, wait_for_orphans
from tests.soak.results import ends_of, faults, last_batch, offsets_at, read_output
from tests.soak.writer import Logged, Writer, create_topic, delete_topic, read_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil
    from tests.soak.plan import Plan, Round

PARTITIONS = 2  # of each topic
_RATE = 60  # records per second
_PER_BATCH = 1_000  # so that a query keeps up whose batches take 15 s on a busy machine
_PER_BATCH_AT_THE_END = 5_000
_RECORDS_BEFORE_START = 300
_DEADLINE = 120.0  # seconds for each wait; starting Spark on a busy machine takes longest
_CATCH_UP_TIMEOUT = 300.0  # seconds to read all records of a topic while others are written


class SoakError(AssertionError):
    """A query has violated its guarantees."""


@dataclass
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)  # of the driver, by its state
    extras: Counter[str] = field(default_factory=Counter)  # kills of other processes
    changes: Counter[str] = field(default_factory=Counter)  # of topics
    records: int = 0
    batches: int = 0


class SoakQuery:
    def __init__(
        self,
        plan: Plan,
        servers: str,
        folder: Path,
        restart_broker: Callable[[], None] | None,
        report: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._servers = servers
        self._folder = folder
        self._restart_broker = restart_broker
        self._report = report
        prefix = f"soak-{plan.seed}-{time.time_ns():x}"
        self._pattern = f"^{prefix}-[a-z]+$"
        self._topics = [f"{prefix}-a", f"{prefix}-b"]
        self._late_topic = f"{prefix}-late"
        self._deleted: list[Logged] = []
        self._first_end: dict[tuple[str, int], int] | None = None
        self._driver: Driver | None = None
        self._outcome = Outcome()
        self._orphans: list[psutil.Process] = []

    def run(self) -> Outcome:
        """Kill and restart as planned, run to the end, and check the output."""
        for topic in self._topics:
            create_topic(self._servers, topic, PARTITIONS)
        self._folder.mkdir(parents=True)
        try:
            with Writer(self._servers, self._topics, _RATE) as writer:
                _until(lambda: writer.acknowledged >= _RECORDS_BEFORE_START, "the first records")
                before = self._read(*self._topics)
                timestamp = sorted(record.timestamp for record in before)[len(before) // 2]
                options = self._options(timestamp)
                started_at = time.monotonic()
                for number, each in enumerate(self._plan.rounds):
                    killed = self._run_until_kill(options, each, number, writer)
                    how = f"killed {self._state_at_kill()}" if killed else "the query ended with its planner"
                    self._report(f"  {number + 1}: {how}, {time.monotonic() - started_at:.0f} s")
                written = writer.close()
            self._finish({**options, "maxOffsetsPerTrigger": str(_PER_BATCH_AT_THE_END)})
            unchanged, changed = self._topics[:1], self._topics[1:]
            # Topics of batch 0 are expected from their start offsets, later topics completely.
            first = self._read(*unchanged) + (self._deleted or self._read(*changed))
            later = self._read(
                *(changed if self._deleted else []), *([self._late_topic] if self._outcome.changes["created"] else [])
            )
            logged = Counter(int(record.value) for record in first + later)
            missing = set(range(written)) - logged.keys()
            repeated = [number for number, times in logged.items() if times > 1]
            if missing or repeated:
                raise SoakError(
                    f"the topics do not have each written record once: {len(missing)} missing "
                    f"({', '.join(f'{number}: {writer.place(number)}' for number in sorted(missing)[:5])}), "
                    f"{len(repeated)} repeated ({sorted(repeated)[:5]}); this is not an error of the query"
                )
            start = {
                "earliest": {(topic, number): 0 for topic in self._topics for number in range(PARTITIONS)},
                "timestamp": offsets_at(first, timestamp),
                "latest": self._first_end or {},
            }[self._plan.start]
            self._check_start(start, before)
            rows = read_output(self._folder)
            problems = faults(
                rows, later + [each for each in first if each.offset >= start[each.topic, each.partition]]
            )
            if problems:
                raise SoakError("; ".join(problems))
            self._outcome.records, self._outcome.batches = len(rows), last_batch(self._folder, "commits") + 1
            return self._outcome
        finally:
            if self._driver is not None:
                self._driver.kill()
                self._orphans += self._driver.orphans
            left = wait_for_orphans(self._orphans)
            if left:
                self._report(f"  processes {left} outlived their driver and were killed")

    def _options(self, timestamp: int) -> dict[str, str]:
        start = {
            "latest": {"startingOffsets": "latest"},
            "earliest": {"startingOffsets": "earliest"},
            "timestamp": {"startingTimestamp": str(timestamp)},
        }[self._plan.start]
        return {
            "kafka.bootstrap.servers": self._servers,
            "subscribePattern": self._pattern,
            "maxOffsetsPerTrigger": str(_PER_BATCH),
            "failOnDataLoss": "true" if self._plan.deletes is None else "false",
            **start,
        }

    def _read(self, *topics: str) -> list[Logged]:
        return [record for topic in topics for record in read_log(self._servers, topic, PARTITIONS)]

    def _run_until_kill(self, options: dict[str, str], planned: Round, number: int, writer: Writer) -> bool:
        """Run the driver until its kill; return ``False`` if it ended before."""
        done = last_batch(self._folder, "commits")
        self._driver = driver = Driver(self._folder, options)
        if planned.moment == "before batch 0":
            self._await(lambda: (self._folder / "checkpoint" / "metadata").exists(), "the start of the query")
        elif planned.moment == "in batch 0":
            self._await(lambda: last_batch(self._folder, "offsets") >= 0, "batch 0")
        else:
            self._await(lambda: last_batch(self._folder, "commits") > done + planned.batches, "batches")
        if number == self._plan.grows:
            create_topic(self._servers, self._late_topic, PARTITIONS)
            writer.add(self._late_topic)
            self._outcome.changes["created"] += 1
        if number == self._plan.deletes:
            self._delete(writer, self._topics[1])
        _wait(planned.delay)
        ended = planned.extra != "none" and self._inject_fault(driver, planned)
        if not driver.alive and not ended:
            raise SoakError(f"the query ended unexpectedly:\n{driver.log_tail()}")
        driver.kill()
        self._orphans += driver.orphans
        self._remember_first_end()
        return not ended

    def _delete(self, writer: Writer, topic: str) -> None:
        """Delete and recreate a topic whose records were all read, and wait until the query has noticed.

        The topic id is not in the checkpoint, so a query that is killed earlier cannot detect the new topic.
        """
        writer.remove(topic)
        self._deleted = self._read(topic)
        ends = Counter(record.partition for record in self._deleted)
        self._await(lambda: self._committed_ends(topic) == ends, f"all records of {topic}", _CATCH_UP_TIMEOUT)
        delete_topic(self._servers, topic)
        create_topic(self._servers, topic, PARTITIONS)
        writer.add(topic)
        self._await(lambda: self._committed_ends(topic) != ends, f"the new {topic}")
        self._outcome.changes["deleted and recreated"] += 1
        self._report(f"  deleted and recreated {topic}")

    def _committed_ends(self, topic: str) -> dict[int, int]:
        """Return the topic's end offsets of the last committed batch, by partition."""
        ends = ends_of(self._folder, last_batch(self._folder, "commits")) or {}
        return {partition: end for (name, partition), end in ends.items() if name == topic}

    def _inject_fault(self, driver: Driver, planned: Round) -> bool:
        """Kill another process, and check that the query continues, or ends if it must; return whether it ended."""
        if planned.extra == "broker":
            if self._restart_broker is None:
                return False
            self._restart_broker()
            was_killed = True
        else:
            kill = driver.kill_planner if planned.extra == "planner" else driver.kill_task_worker
            was_killed = _try(kill)
        if not was_killed:
            return False
        self._outcome.extras[planned.extra] += 1
        self._report(f"  killed the {planned.extra}")
        if planned.extra == "planner":  # Spark does not restart it, so the query fails
            try:
                code = driver.wait(_DEADLINE)
            except subprocess.TimeoutExpired:
                raise SoakError("the query continued or hung without its planner") from None
            if code == 0:
                raise SoakError("the query ended without an error when its planner died")
            return True
        offsets = last_batch(self._folder, "offsets")
        self._await(lambda: last_batch(self._folder, "commits") > offsets, f"a batch after the {planned.extra} died")
        _wait(planned.extra_delay)
        return False

    def _finish(self, options: dict[str, str]) -> None:
        self._driver = driver = Driver(self._folder, options, to_the_end=True)
        try:
            code = driver.wait(2 * _DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not end:\n{driver.log_tail()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.log_tail()}")
        self._remember_first_end()

    def _state_at_kill(self) -> str:
        """Return and count the state in which the driver was killed."""
        planned, done = last_batch(self._folder, "offsets"), last_batch(self._folder, "commits")
        if planned < 0:
            where = "before batch 0"
        elif planned == done:
            where = "between batches"
        else:
            where = "in batch 0" if planned == 0 else "in a batch"
        self._outcome.kills[where] += 1
        return f"{where} ({planned})" if planned > 0 else where

    def _remember_first_end(self) -> None:
        """Remember the end of batch 0, where ``latest`` started; it must not change."""
        end = ends_of(self._folder, 0)
        if self._first_end is None:
            self._first_end = end
        elif end not in (None, self._first_end):  # None: Spark retains a hundred batches
            raise SoakError(f"the end of batch 0 changed from {self._first_end} to {end}")

    def _check_start(self, start: dict[tuple[str, int], int], before: list[Logged]) -> None:
        if self._plan.start == "timestamp" and self._first_end != start:
            raise SoakError(f"the query started at {self._first_end}, but its timestamp is at {start}")
        if self._plan.start == "latest" and any(start[each.topic, each.partition] <= each.offset for each in before):
            raise SoakError(f"the query started at {start}, but {len(before)} records were written before")

    def _await(self, condition: Callable[[], bool], what: str, seconds: float = _DEADLINE) -> None:
        """Wait for a condition while the driver runs."""
        driver = self._driver
        deadline = time.monotonic() + seconds
        while not condition():
            if driver is not None and not driver.alive:
                raise SoakError(f"waiting for {what}: the query ended unexpectedly:\n{driver.log_tail()}")
            if time.monotonic() > deadline:
                log_tail = driver.log_tail() if driver is not None else ""
                raise SoakError(f"{what}: not within {seconds:.0f} s\n{log_tail}")
            time.sleep(0.005)


def _try(kill: Callable[[], bool]) -> bool:
    """Retry, because between tasks there may be no worker."""
    deadline = time.monotonic() + 10
    while not kill():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {_DEADLINE:.0f} s"
        time.sleep(0.02)


def _wait(seconds: float) -> None:
    """Let a random time pass."""
    time.sleep(seconds)
