"""The life of one query: killed as planned, started again from its checkpoint, run to its end, and checked."""

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
_RATE = 60  # records a second
_PER_BATCH = 200
_PER_BATCH_AT_THE_END = 5_000
_BEFORE = 300  # records that are there before the query starts
_DEADLINE = 120.0  # seconds for anything to happen; starting Spark on a busy machine is the longest
_CATCHING_UP = 300.0  # seconds until all of a topic was read, while others are written to


class SoakError(AssertionError):
    """A query did what it must not do."""


@dataclass
class Outcome:
    """How it went.

    Attributes:
        changes: Topics that were created, and deleted and created anew, meanwhile.
        kills: Kills of the driver, by where in the work it was hit.
        extras: Other kills, by what was killed.
        records: Records that the output holds, each once.
        batches: Batches that they came in.
    """

    kills: Counter[str] = field(default_factory=Counter)
    extras: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    batches: int = 0


class SoakQuery:
    """Carries out a plan.

    Args:
        plan: What to do.
        servers: Bootstrap servers.
        folder: Checkpoint, output and logs go here.
        restart_broker: Kills the broker and starts it again, where that is possible.
        say: Told what happens, a line at a time.
    """

    def __init__(
        self,
        plan: Plan,
        servers: str,
        folder: Path,
        restart_broker: Callable[[], None] | None,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._servers = servers
        self._folder = folder
        self._restart_broker = restart_broker
        self._say = say
        prefix = f"soak-{plan.seed}-{time.time_ns():x}"
        self._pattern = f"^{prefix}-[a-z]+$"
        self._topics = [f"{prefix}-a", f"{prefix}-b"]
        self._late = f"{prefix}-late"
        self._deleted: list[Logged] = []
        self._first_end: dict[tuple[str, int], int] | None = None
        self._driver: Driver | None = None
        self._outcome = Outcome()
        self._orphans: list[psutil.Process] = []

    def run(self) -> Outcome:
        """Kill, restart, run to the end, check.

        Raises:
            SoakError: A record is missing, or there twice, or the query failed without having been hurt.
        """
        for topic in self._topics:
            create_topic(self._servers, topic, PARTITIONS)
        self._folder.mkdir(parents=True)
        try:
            with Writer(self._servers, self._topics, _RATE) as writer:
                _until(lambda: writer.acknowledged >= _BEFORE, "the first records")
                before = self._read(*self._topics)
                timestamp = sorted(record.timestamp for record in before)[len(before) // 2]
                options = self._options(timestamp)
                began = time.monotonic()
                for number, each in enumerate(self._plan.rounds):
                    killed = self._live(options, each, number, writer)
                    how = f"killed {self._where()}" if killed else "the query ended with its planner"
                    self._say(f"  {number + 1}: {how}, {time.monotonic() - began:.0f} s")
                written = writer.close()
            self._finish({**options, "maxOffsetsPerTrigger": str(_PER_BATCH_AT_THE_END)})
            keeps, changes = self._topics[:1], self._topics[1:]
            # Of each partition of batch 0 from its start on, of what came later everything.
            first = self._read(*keeps) + (self._deleted or self._read(*changes))
            later = self._read(
                *(changes if self._deleted else []), *([self._late] if self._outcome.changes["created"] else [])
            )
            logged = Counter(int(record.value) for record in first + later)
            missing, double = set(range(written)) - logged.keys(), [each for each, times in logged.items() if times > 1]
            if missing or double:
                raise SoakError(
                    f"the logs do not hold what was written, each record once: {len(missing)} are missing "
                    f"({sorted(missing)[:5]}), {len(double)} there twice ({sorted(double)[:5]}); not the query's fault"
                )
            start = {
                "earliest": {(topic, number): 0 for topic in self._topics for number in range(PARTITIONS)},
                "timestamp": offsets_at(first, timestamp),
                "latest": self._first_end or {},
            }[self._plan.start]
            self._check_start(start, before)
            rows = read_output(self._folder)
            found = faults(rows, later + [each for each in first if each.offset >= start[each.topic, each.partition]])
            if found:
                raise SoakError("; ".join(found))
            self._outcome.records, self._outcome.batches = len(rows), last_batch(self._folder, "commits") + 1
            return self._outcome
        finally:
            if self._driver is not None:
                self._driver.kill()
                self._orphans += self._driver.orphans
            left = wait_for_orphans(self._orphans)
            if left:
                self._say(f"  processes {left} outlived their driver and were killed")

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

    def _live(self, options: dict[str, str], planned: Round, number: int, writer: Writer) -> bool:
        """One life of the driver, from its start to its kill; tells whether it was killed, and did not die before."""
        done = last_batch(self._folder, "commits")
        self._driver = driver = Driver(self._folder, options)
        if planned.moment == "before batch 0":
            self._await(lambda: (self._folder / "checkpoint" / "metadata").exists(), "the start of the query")
        elif planned.moment == "in batch 0":
            self._await(lambda: last_batch(self._folder, "offsets") >= 0, "batch 0")
        else:
            self._await(lambda: last_batch(self._folder, "commits") > done + planned.batches, "batches")
        if number == self._plan.grows:
            create_topic(self._servers, self._late, PARTITIONS)
            writer.add(self._late)
            self._outcome.changes["created"] += 1
        if number == self._plan.deletes:
            self._delete(writer, self._topics[1])
        _wait(planned.delay)
        ended = planned.extra != "none" and self._hurt(driver, planned)
        if not driver.alive and not ended:
            raise SoakError(f"the query ended by itself:\n{driver.last_words()}")
        driver.kill()
        self._orphans += driver.orphans
        self._remember_first_end()
        return not ended

    def _delete(self, writer: Writer, topic: str) -> None:
        """Delete a topic of which all was read, create it anew, and wait until the query has noticed.

        Its id is not in the checkpoint, so a query that dies before it has noticed takes the one for the other.
        """
        writer.remove(topic)
        self._deleted = self._read(topic)
        ends = Counter(record.partition for record in self._deleted)
        self._await(lambda: self._has_read(topic) == ends, f"all records of {topic}", _CATCHING_UP)
        delete_topic(self._servers, topic)
        create_topic(self._servers, topic, PARTITIONS)
        writer.add(topic)
        self._await(lambda: self._has_read(topic) != ends, f"the new {topic}")
        self._outcome.changes["deleted and created anew"] += 1
        self._say(f"  deleted {topic} and created it anew")

    def _has_read(self, topic: str) -> dict[int, int]:
        """What the last batch that is done has as a topic's ends."""
        ends = ends_of(self._folder, last_batch(self._folder, "commits")) or {}
        return {partition: end for (name, partition), end in ends.items() if name == topic}

    def _hurt(self, driver: Driver, planned: Round) -> bool:
        """Kill something else, and see that the query lives on, or ends if it must; tells whether it ended."""
        if planned.extra == "broker":
            if self._restart_broker is None:
                return False
            self._restart_broker()
            hit = True
        else:
            kill = driver.kill_planner if planned.extra == "planner" else driver.kill_task_worker
            hit = _try(kill)
        if not hit:
            return False
        self._outcome.extras[planned.extra] += 1
        self._say(f"  killed the {planned.extra}")
        if planned.extra == "planner":  # Spark does not start another one: the query fails
            try:
                code = driver.wait(_DEADLINE)
            except subprocess.TimeoutExpired:
                raise SoakError("the query went on, or hung, without its planner") from None
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
            raise SoakError(f"the query does not come to its end:\n{driver.last_words()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.last_words()}")
        self._remember_first_end()

    def _where(self) -> str:
        """Where in the work the driver was hit; counted too."""
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
        """The end of batch 0 is where ``latest`` began: once in the checkpoint it stays."""
        end = ends_of(self._folder, 0)
        if self._first_end is None:
            self._first_end = end
        elif end not in (None, self._first_end):  # None: Spark keeps the last hundred
            raise SoakError(f"the end of batch 0 changed from {self._first_end} to {end}")

    def _check_start(self, start: dict[tuple[str, int], int], before: list[Logged]) -> None:
        if self._plan.start == "timestamp" and self._first_end != start:
            raise SoakError(f"the query began at {self._first_end}, its timestamp is at {start}")
        if self._plan.start == "latest" and any(start[each.topic, each.partition] <= each.offset for each in before):
            raise SoakError(f"the query began at {start}, but {len(before)} records were written before it")

    def _await(self, condition: Callable[[], bool], what: str, seconds: float = _DEADLINE) -> None:
        """Wait while the driver runs.

        Raises:
            SoakError: It ended, or it did not happen in time.
        """
        driver = self._driver
        deadline = time.monotonic() + seconds
        while not condition():
            if driver is not None and not driver.alive:
                raise SoakError(f"waiting for {what}: the query ended by itself:\n{driver.last_words()}")
            if time.monotonic() > deadline:
                words = driver.last_words() if driver is not None else ""
                raise SoakError(f"{what}: not within {seconds:.0f} s\n{words}")
            time.sleep(0.005)


def _try(kill: Callable[[], bool]) -> bool:
    """Between tasks there may be no worker for a moment."""
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
    """Let a random time pass: here the moment is the point."""
    time.sleep(seconds)
