"""Runs the queries of docs/lakehouse.md: kills their driver around MERGE, and compares the tables with the topics."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyspark
from confluent_kafka import Producer
from tests.documentation import text_of
from tests.soak.driver import Driver, wait_for_orphans
from tests.soak.results import Row
from tests.soak.writer import create_topic, quiet, read_log

from pyspark_kafka_direct.broker.maven import jars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psutil

Format = Literal["delta", "iceberg"]
Moment = Literal["in the MERGE", "after the MERGE"]

PARTITIONS = 2  # of each topic
_APP = Path(__file__).with_name("app.py")
RECORDS = 4_000
_KEYS = 60
_PER_BATCH = 200
_DEADLINE = 180.0  # seconds for each wait; starting Spark on a busy machine takes longest


@dataclass(frozen=True, slots=True)
class Kill:
    """One run of the driver, which ends with ``kill -9``."""

    moment: Moment
    batches: int  # batches that are merged before
    delay: float = 0.0  # seconds from the beginning of the MERGE


@dataclass
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)  # by the state of the batch
    records: int = 0
    keys: int = 0
    batches: int = 0


def plan_kills(seed: int, rounds: int) -> list[Kill]:
    """Draw the kills of a run; both moments occur."""
    draw = random.Random(seed)
    moments: tuple[Moment, Moment] = ("in the MERGE", "after the MERGE")
    return [Kill(moments[number % 2], draw.randint(0, 2), draw.uniform(0, 1.5)) for number in range(rounds)]


def fits(table_format: Format) -> bool:
    """Return whether the page has a jar of the format for this version of PySpark."""
    return _coordinate(table_format) is not None


class LakehouseRun:
    def __init__(
        self, table_format: Format, kills: Sequence[Kill], servers: str, folder: Path, report: Callable[[str], None]
    ) -> None:
        self._format, self._kills, self._servers, self._folder = table_format, kills, servers, folder
        self._report = report
        prefix = f"lakehouse-{time.time_ns():x}"
        self._topics = [f"{prefix}-a", f"{prefix}-b"]
        self._jars = jars(_needed(table_format), transitive=False)
        self._orphans: list[psutil.Process] = []
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Kill and restart as planned, run to the end, and check both tables."""
        self._folder.mkdir(parents=True)
        self._produce()
        started_at = time.monotonic()
        for number, kill in enumerate(self._kills):
            self._run_until_kill(kill)
            self._report(f"  {number + 1}: planned {kill.moment}, {time.monotonic() - started_at:.0f} s")
        driver = self._start(to_the_end=True, per_batch=RECORDS)
        try:
            assert driver.wait(2 * _DEADLINE) == 0, driver.log_tail()
        finally:
            driver.kill()
            wait_for_orphans([*self._orphans, *driver.orphans])
        self._check()
        return self._outcome

    def _produce(self) -> None:
        draw = random.Random(0)
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True}, logger=quiet())
        for topic in self._topics:
            create_topic(self._servers, topic, PARTITIONS)
        for number in range(RECORDS):
            key = None if number % 97 == 0 else f"key {draw.randrange(_KEYS)}"
            producer.produce(self._topics[number % 2], None if draw.random() < 0.1 else f"{number}", key)
            producer.poll(0)
        assert producer.flush(_DEADLINE) == 0

    def _start(self, *, to_the_end: bool = False, hang_after: int | None = None, per_batch: int = _PER_BATCH) -> Driver:
        for mark in ("begun", "merged"):
            (self._folder / mark).unlink(missing_ok=True)
        options = {
            "format": self._format,
            "by_location": self._format == "delta",
            "servers": self._servers,
            "topics": ",".join(self._topics),
            "per_batch": per_batch,
            "hang_after": hang_after,
            "jars": ",".join(map(str, self._jars)),
        }
        return Driver(self._folder, options, to_the_end=to_the_end, app=_APP)

    def _run_until_kill(self, kill: Kill) -> None:
        batch = self._committed() + 1 + kill.batches
        after = kill.moment == "after the MERGE"
        driver = self._start(hang_after=batch if after else None)
        try:
            self._await(driver, "merged" if after else "begun", batch)
            if not after:
                time.sleep(kill.delay)
            assert driver.alive, driver.log_tail()
        finally:
            driver.kill()
            self._orphans += driver.orphans
        begun, merged, committed = self._mark("begun"), self._mark("merged"), self._committed()
        state = "in the MERGE" if begun > merged else "after the MERGE" if merged > committed else "between batches"
        self._outcome.kills[state] += 1

    def _await(self, driver: Driver, mark: str, batch: int) -> None:
        deadline = time.monotonic() + _DEADLINE
        while self._mark(mark) < batch:
            assert driver.alive, driver.log_tail()
            assert time.monotonic() < deadline, f"batch {batch} not {mark}: {driver.log_tail()}"
            time.sleep(0.01)

    def _mark(self, name: str) -> int:
        file = self._folder / name
        return int(file.read_text() or -1) if file.exists() else -1

    def _committed(self) -> int:
        commits = self._folder / "checkpoints" / "orders" / "commits"
        return max((int(file.name) for file in commits.glob("[0-9]*")), default=-1)

    def _check(self) -> None:
        records = [record for topic in self._topics for record in read_log(self._servers, topic, PARTITIONS)]
        assert len(records) == RECORDS
        newest = {(each.topic, each.key): each for each in sorted(records, key=lambda each: each.offset) if each.key}
        present = [Row(*each[:5]) for each in newest.values() if each.value is not None]
        assert 0 < len(present) < len(newest), "the topics have to contain deleted keys"
        _compare("order_log", self._rows("order_log"), [Row(*each[:5]) for each in records])
        _compare("orders", self._rows("orders"), present)
        if self._format == "delta":
            for table in ("order_log", "orders"):
                _compare_batches(self._folder / "lake" / table / "_delta_log")
        self._outcome.records, self._outcome.keys = len(records), len(present)
        self._outcome.batches = self._committed() + 1

    def _rows(self, table: str) -> list[Row]:
        def unhex(text: str | None) -> bytes | None:
            return None if text is None else bytes.fromhex(text)

        rows = json.loads((self._folder / f"{table}.json").read_text())
        return [Row._make([*row[:3], unhex(row[3]), unhex(row[4])]) for row in rows]


def _compare(table: str, rows: Sequence[Row], expected: Sequence[Row]) -> None:
    """Fail unless the table has each expected row once, and no others."""
    found, wanted = Counter(rows), Counter(expected)
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    assert not missing, f"{table}: {len(missing)} rows are missing, such as {missing[:3]}"
    assert not extra, f"{table}: {len(extra)} rows are wrong or repeated, such as {extra[:3]}"


def _compare_batches(log: Path) -> None:
    """Fail unless each batch is in at most one commit of a Delta table."""
    actions = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    batches = Counter((action["txn"]["appId"], action["txn"]["version"]) for action in actions if "txn" in action)
    assert batches, f"no commit of {log} has a batch id"
    assert set(batches.values()) == {1}, f"{log}: batches in several commits: {batches}"


def _coordinate(table_format: Format) -> str | None:
    """Return the jar that the page names for this version of PySpark."""
    line = ".".join(pyspark.__version__.split(".")[:2])
    artifact = "delta-spark" if table_format == "delta" else "iceberg-spark-runtime"
    row = next(row for row in text_of("docs/lakehouse.md").splitlines() if row.startswith(f"| {line} |"))
    return next((cell for cell in row.split("`") if f":{artifact}" in cell), None)


def _needed(table_format: Format) -> list[str]:
    """Return the jars that PySpark does not contain."""
    coordinate = _coordinate(table_format)
    assert coordinate is not None, f"{table_format} has no jar for PySpark {pyspark.__version__}"
    if table_format == "iceberg":
        return [coordinate]
    version = coordinate.rsplit(":", 1)[1]
    others = [f"io.delta:{name}:{version}" for name in ("delta-storage", "delta-kernel-api", "delta-kernel-defaults")]
    return [coordinate, *others, "io.unitycatalog:unitycatalog-client:0.6.0"]
