"""The life of one application of direct streams: killed again and again, its topics changed, its outputs compared."""

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
_RATE = 200  # records a second, over all topics
_PATIENCE = 300.0  # seconds for anything to happen; starting Spark on a busy machine is the longest
_AT_ONCE = 0.25  # of the kills come whether or not the driver has stored anything yet
_START, _RUNNING = 15.0, 2.5  # seconds: the latest kill after a start, and after the first batch that a life has stored
_SETTLED = 3.0  # seconds for which the numbers of records must have been right at the end
_RAISED = r"(?m)^RuntimeError: soak: this generation fails$"  # the end of Python's traceback


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """What happens to one application; all of it follows from the seed.

    Attributes:
        seed: Of the moments of kills, and of the generations that fail.
        offsets: Where the application keeps its offsets.
        kills: How many there are.
        failing: Which part of all generations fails.
        grows: The life in which another topic of the pattern is created; ``None``: none is.
        deletes: The life in which one is deleted, which ends the stream, and created anew; ``None``: none is. Only with
            the offsets in the database, where they can be corrected.
    """

    seed: int
    offsets: Offsets
    kills: int
    failing: float
    grows: int | None = None
    deletes: int | None = None


@dataclass
class Outcome:
    """What was seen.

    Attributes:
        kills: How often the driver was killed before it had stored a batch in that life, and after.
        generations: How many generations have failed.
        changes: Topics that were created and deleted meanwhile.
        records: How many records each output has at the end, each once.
    """

    kills: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    records: int = 0

    def add(self, other: Outcome) -> None:
        """Both together."""
        self.kills += other.kills
        self.generations += other.generations
        self.changes += other.changes
        self.records += other.records


class DirectRun:
    """Carries out a plan.

    Args:
        plan: What to do.
        servers: Of the Kafka; the topics are made.
        folder: For the database, the checkpoint and the log.
        say: Is told what happens.
    """

    def __init__(self, plan: DirectPlan, servers: str, folder: Path, say: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._plan = plan
        self._servers = servers
        self._folder = folder
        self._database = folder / "records.sqlite"
        self._draw = random.Random(plan.seed)
        self._say = say
        prefix = f"direct-{uuid.uuid4().hex[:8]}"
        self._topic = f"{prefix}.one"
        self._pattern = re.escape(prefix) + r"\.many-\w+"
        self._many = [f"{prefix}.many-a", f"{prefix}.many-b"]
        self._late = f"{prefix}.many-late"
        self._deleted: list[Logged] = []
        self._created_anew = False
        self._lives = 0
        self._orphans: list[psutil.Process] = []

    def run(self) -> Outcome:
        """Kill so often, then read to the end and compare.

        Raises:
            AssertionError: Something is missing or there twice, a batch began elsewhere than the one before it had
                ended, or a driver ended by itself or stored nothing in time.
        """
        for topic in (self._topic, *self._many):
            create_topic(self._servers, topic, PARTITIONS)
        outcome = Outcome()
        try:
            with Writer(self._servers, [self._topic, *self._many], _RATE) as writer:
                for _ in range(self._plan.kills):
                    outcome.kills[self._life(writer, outcome.changes)] += 1
                written = writer.close()
            expected = self._expected()
            logged = sorted(int(record.value) for output in ("numbers", "texts") for record in expected[output])
            assert logged == list(range(written)), "the logs do not hold what was written: not the streams' fault"
            self._say(f"  {outcome.kills.total()} kills {dict(outcome.kills)}; {written} records; reading the rest")
            self._finish({output: len(records) for output, records in expected.items()})
            outcome.generations = len(re.findall(_RAISED, self._log()))
            found = [
                f"{output}: {fault}"
                for output, records in expected.items()
                for fault in faults(self._stored(output), records)
            ]
            refused = self._rows("SELECT batch FROM refused")
            found += [f"{len(refused)} batches began elsewhere than the database was: {refused[:5]}"] if refused else []
            assert not found, "; ".join(found)
        finally:
            left = wait_for_orphans(self._orphans)
        assert not left, f"they outlived the driver: {left}"
        outcome.records = written
        return outcome

    def _life(self, writer: Writer, changes: Counter[str]) -> str:
        """Start the driver, change topics if it is time, and kill it; tells whether it had stored something."""
        before = self._count()
        at_once = self._draw.random() < _AT_ONCE
        delay = self._draw.uniform(0, _START if at_once else _RUNNING)
        number = self._lives
        driver = self._start()
        try:
            if number == self._plan.grows:
                create_topic(self._servers, self._late, PARTITIONS)
                self._many.append(self._late)
                writer.add(self._late)
                changes["created"] += 1
                self._await(driver, lambda: self._count(self._late) > 0, f"records of {self._late}")
            if number == self._plan.deletes:
                self._delete(driver, writer, self._many[0])
                changes["deleted and created anew"] += 1
            else:
                if not at_once:
                    self._await(driver, lambda: self._count() > before, "a batch")
                time.sleep(delay)
                assert driver.alive, driver.last_words()
        finally:
            self._kill(driver)
        if number == self._plan.deletes:
            self._correct(writer, self._many[0])
        stored = self._count()
        self._say(f"  killed at {stored} rows stored, {before} before")
        return "running" if stored > before else "starting"

    def _delete(self, driver: Driver, writer: Writer, topic: str) -> None:
        """Delete a topic of which all is stored: the stream has to fail, and to say why."""
        writer.remove(topic)
        log = read_log(self._servers, topic, PARTITIONS)
        self._await(driver, lambda: self._count(topic) == len(log), f"all records of {topic}")
        self._deleted = log
        logged = len(self._log())
        delete_topic(self._servers, topic)
        gone = re.compile(rf"are gone[^\n]*{topic}-|{topic}-[^\n]*are gone")
        self._await(driver, lambda: gone.search(self._log(), logged) is not None, "the loss of a topic to be told")
        self._created_anew = self._draw.random() < 0.5
        if self._created_anew:
            create_topic(self._servers, topic, PARTITIONS)
            anew = re.compile(r"deleted and created (anew|again)")
            self._await(
                driver, lambda: anew.search(self._log(), logged) is not None, "a new topic told from the old one"
            )

    def _correct(self, writer: Writer, topic: str) -> None:
        """What a user has to do then: the offsets of the old topic are of no more use."""
        with closing(sqlite3.connect(self._database, timeout=60)) as connection, connection:
            connection.execute("DELETE FROM offsets WHERE topic = ?", (topic,))
        if not self._created_anew:
            create_topic(self._servers, topic, PARTITIONS)
        writer.add(topic)

    def _finish(self, counts: dict[str, int]) -> None:
        """Let it read the rest. Times that come again replace what they held one after the other, so numbers go up and
        down before they stay as they must be."""
        driver = self._start()
        right_since: float | None = None
        deadline = time.monotonic() + _PATIENCE
        try:
            while right_since is None or time.monotonic() < right_since + _SETTLED:
                assert driver.alive, f"the driver has ended: {driver.last_words()}"
                if {output: self._count(output=output) for output in counts} != counts:
                    right_since = None
                elif right_since is None:
                    right_since = time.monotonic()
                if time.monotonic() > deadline:
                    break  # the comparison says what is wrong
                time.sleep(0.2)
        finally:
            self._kill(driver)

    def _expected(self) -> dict[str, list[Logged]]:
        """What each output that stores must hold; see the application."""
        one = read_log(self._servers, self._topic, PARTITIONS)
        many = [each for topic in self._many for each in read_log(self._servers, topic, PARTITIONS)]
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
            if "no such table" in str(error):  # the driver is making them, or died before it could
                return []
            raise

    def _start(self) -> Driver:
        told = {
            "servers": self._servers,
            "topic": self._topic,
            "pattern": self._pattern,
            "database": str(self._database),
            "offsets": self._plan.offsets,
            "failing": str(self._plan.failing if self._lives < self._plan.kills else 0),
            "seed": f"{self._plan.seed}-{self._lives}",
        }
        self._lives += 1
        return Driver(self._folder, told, app=APP)

    def _kill(self, driver: Driver) -> None:
        driver.kill()
        self._orphans += driver.orphans

    def _await(self, driver: Driver, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not happened():
            assert driver.alive, f"waiting for {what}, the driver has ended: {driver.last_words()}"
            assert time.monotonic() < deadline, f"{what}: not after {_PATIENCE:.0f} s: {driver.last_words()}"
            time.sleep(0.1)

    def _log(self) -> str:
        file = self._folder / "driver.log"
        return file.read_text(errors="replace") if file.exists() else ""
