"""Runs one application of direct streams: kills it repeatedly, changes its topics, and compares its outputs."""

from __future__ import annotations

import random
import re
import sqlite3
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tests.soak.driver import Driver, wait_for_orphans
from tests.soak.results import Row, faults
from tests.soak.writer import Logged, Writer, create_topic, delete_topic, read_log

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

APP = Path(__file__).with_name("direct_app.py")

Offsets: TypeAlias = Literal["database", "checkpoint"]

PARTITIONS = 3
_RATE = 200  # records per second, over all topics
_DEADLINE = 300.0  # seconds for each wait; starting Spark on a busy machine takes longest
_EARLY_KILLS = 0.25  # the fraction of kills that do not wait until the driver has stored a batch
_MAX_START_DELAY, _MAX_RUNNING_DELAY = 15.0, 2.5  # seconds from the start, or from the first stored batch, to the kill
_STABLE_SECONDS = 3.0  # for which the final counts must be right
_FAILED_GENERATION = r"(?m)^RuntimeError: soak: this generation fails$"  # the end of Python's traceback


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """The plan for one application; all of it follows from the seed."""

    seed: int
    offsets: Offsets  # where the application stores its offsets
    kills: int
    failing: float  # the fraction of generations that fail
    grows: int | None = None  # the run in which another topic of the pattern is created
    deletes: int | None = None  # the run in which a topic is deleted and recreated; only with offsets in the database


@dataclass
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)  # "starting": before the run had stored a batch, or "running"
    generations: int = 0  # failed ones
    changes: Counter[str] = field(default_factory=Counter)  # of topics
    records: int = 0  # in each output

    def add(self, other: Outcome) -> None:
        self.kills += other.kills
        self.generations += other.generations
        self.changes += other.changes
        self.records += other.records


class DirectRun:
    def __init__(self, plan: DirectPlan, servers: str, folder: Path, report: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._plan = plan
        self._servers = servers
        self._folder = folder
        self._database = folder / "records.sqlite"
        self._draw = random.Random(plan.seed)
        self._report = report
        prefix = f"direct-{uuid.uuid4().hex[:8]}"
        self._topic = f"{prefix}.one"
        self._pattern = re.escape(prefix) + r"\.many-\w+"
        self._pattern_topics = [f"{prefix}.many-a", f"{prefix}.many-b"]
        self._late_topic = f"{prefix}.many-late"
        self._deleted: list[Logged] = []
        self._is_recreated = False
        self._runs = 0
        self._orphans: list[psutil.Process] = []

    def run(self) -> Outcome:
        """Kill the application as planned, then read to the end and compare."""
        for topic in (self._topic, *self._pattern_topics):
            create_topic(self._servers, topic, PARTITIONS)
        outcome = Outcome()
        try:
            with Writer(self._servers, [self._topic, *self._pattern_topics], _RATE) as writer:
                for _ in range(self._plan.kills):
                    outcome.kills[self._run_once(writer, outcome.changes)] += 1
                written = writer.close()
            expected = self._expected()
            logged = sorted(int(record.value) for output in ("numbers", "texts") for record in expected[output])
            assert logged == list(range(written)), (
                "the topics do not have the written records; this is not an error of the streams"
            )
            self._report(
                f"  {outcome.kills.total()} kills {dict(outcome.kills)}; {written} records; reading the remaining ones"
            )
            self._finish({output: len(records) for output, records in expected.items()})
            outcome.generations = len(re.findall(_FAILED_GENERATION, self._log()))
            problems = [
                f"{output}: {fault}"
                for output, records in expected.items()
                for fault in faults(self._stored(output), records)
            ]
            rejected = self._rows("SELECT batch FROM rejected")
            problems += (
                [f"{len(rejected)} batches did not start at the stored offsets: {rejected[:5]}"] if rejected else []
            )
            assert not problems, "; ".join(problems)
        finally:
            left = wait_for_orphans(self._orphans)
        assert not left, f"processes that outlived the driver: {left}"
        outcome.records = written
        return outcome

    def _run_once(self, writer: Writer, changes: Counter[str]) -> str:
        """Start the driver, change topics if planned, and kill it; return whether it had stored a batch."""
        before = self._count()
        kills_early = self._draw.random() < _EARLY_KILLS
        delay = self._draw.uniform(0, _MAX_START_DELAY if kills_early else _MAX_RUNNING_DELAY)
        number = self._runs
        driver = self._start()
        try:
            if number == self._plan.grows:
                create_topic(self._servers, self._late_topic, PARTITIONS)
                self._pattern_topics.append(self._late_topic)
                writer.add(self._late_topic)
                changes["created"] += 1
                self._await(driver, lambda: self._count(self._late_topic) > 0, f"records of {self._late_topic}")
            if number == self._plan.deletes:
                self._delete(driver, writer, self._pattern_topics[0])
                changes["deleted and recreated"] += 1
            else:
                if not kills_early:
                    self._await(driver, lambda: self._count() > before, "a batch")
                time.sleep(delay)
                assert driver.alive, driver.log_tail()
        finally:
            self._kill(driver)
        if number == self._plan.deletes:
            self._correct(writer, self._pattern_topics[0])
        stored = self._count()
        self._report(f"  killed at {stored} rows stored, {before} before")
        return "running" if stored > before else "starting"

    def _delete(self, driver: Driver, writer: Writer, topic: str) -> None:
        """Delete a topic whose records are all stored: the stream has to fail with an error about it."""
        writer.remove(topic)
        log = read_log(self._servers, topic, PARTITIONS)
        self._await(driver, lambda: self._count(topic) == len(log), f"all records of {topic}")
        self._deleted = log
        logged = len(self._log())
        delete_topic(self._servers, topic)
        missing = re.compile(rf"do not exist any more[^\n]*{topic}-|{topic}-[^\n]*do not exist any more")
        self._await(
            driver, lambda: missing.search(self._log(), logged) is not None, "the error about the deleted topic"
        )
        self._is_recreated = self._draw.random() < 0.5
        if self._is_recreated:
            create_topic(self._servers, topic, PARTITIONS)
            recreated = re.compile("deleted and recreated")
            self._await(
                driver, lambda: recreated.search(self._log(), logged) is not None, "the error about the recreated topic"
            )

    def _correct(self, writer: Writer, topic: str) -> None:
        """Delete the stored offsets of the old topic, as a user has to."""
        with closing(sqlite3.connect(self._database, timeout=60)) as connection, connection:
            connection.execute("DELETE FROM offsets WHERE topic = ?", (topic,))
        if not self._is_recreated:
            create_topic(self._servers, topic, PARTITIONS)
        writer.add(topic)

    def _finish(self, counts: dict[str, int]) -> None:
        """Read the remaining records. Repeated batches replace rows one after the other, so the counts have to remain
        stable.
        """
        driver = self._start()
        right_since: float | None = None
        deadline = time.monotonic() + _DEADLINE
        try:
            while right_since is None or time.monotonic() < right_since + _STABLE_SECONDS:
                assert driver.alive, f"the driver ended: {driver.log_tail()}"
                if {output: self._count(output=output) for output in counts} != counts:
                    right_since = None
                elif right_since is None:
                    right_since = time.monotonic()
                if time.monotonic() > deadline:
                    break  # the comparison reports the difference
                time.sleep(0.2)
        finally:
            self._kill(driver)

    def _expected(self) -> dict[str, list[Logged]]:
        """Return the expected records of each output."""
        one = read_log(self._servers, self._topic, PARTITIONS)
        many = [each for topic in self._pattern_topics for each in read_log(self._servers, topic, PARTITIONS)]
        stored = {"numbers": one, "texts": self._deleted + many}
        return {**stored, "transformed": one} if self._plan.offsets == "checkpoint" else stored

    def _stored(self, output: str) -> list[Row]:
        rows = self._rows("SELECT topic, part, number, key, value FROM records WHERE output = ?", output)
        return [Row(topic, part, number, key.encode(), value.encode()) for topic, part, number, key, value in rows]

    def _count(self, topic: str = "%", output: str = "%") -> int:
        found = self._rows("SELECT count(*) FROM records WHERE topic LIKE ? AND output LIKE ?", topic, output)
        return found[0][0] if found else 0

    def _rows(self, query: str, *values: str) -> list[Any]:
        if not self._database.exists():
            return []
        try:
            with closing(sqlite3.connect(self._database, timeout=60)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # the driver has not created them yet
                return []
            raise

    def _start(self) -> Driver:
        arguments = {
            "servers": self._servers,
            "topic": self._topic,
            "pattern": self._pattern,
            "database": str(self._database),
            "offsets": self._plan.offsets,
            "failing": str(self._plan.failing if self._runs < self._plan.kills else 0),
            "seed": f"{self._plan.seed}-{self._runs}",
        }
        self._runs += 1
        return Driver(self._folder, arguments, app=APP)

    def _kill(self, driver: Driver) -> None:
        driver.kill()
        self._orphans += driver.orphans

    def _await(self, driver: Driver, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            assert driver.alive, f"waiting for {what}, the driver ended: {driver.log_tail()}"
            assert time.monotonic() < deadline, f"{what}: not after {_DEADLINE:.0f} s: {driver.log_tail()}"
            time.sleep(0.1)

    def _log(self) -> str:
        file = self._folder / "driver.log"
        return file.read_text(errors="replace") if file.exists() else ""
