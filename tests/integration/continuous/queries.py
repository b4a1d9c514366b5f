"""Continuous queries of tests: all of them are stopped at the end, and leave no task behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.integration.read_back import values
from tests.integration.stream_queries import produce
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.continuous import continuous_query

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous import ContinuousQuery, ContinuousQueryBuilder
    from pyspark_kafka_direct.errors import KafkaDirectError

PATIENCE = 120.0  # seconds; only catches hangs
QUICK = {"epochInterval": 0.1, "discoveryInterval": 0.2}


class Queries:
    """Makes and starts queries at one cluster.

    Attributes:
        folder: Where checkpoints are, unless a test names another place.
    """

    def __init__(self, spark: SparkSession, bench: Workbench, folder: Path) -> None:
        self.spark = spark
        self.bench = bench
        self.folder = folder
        self._started: list[ContinuousQuery] = []

    def read(self, **options: object) -> ContinuousQueryBuilder:
        """A query that reads; ``_`` stands for a dot in the names of options, and ``earliest`` is where it starts."""
        names = {name.replace("_", "."): value for name, value in options.items()}
        if not any(name.startswith("starting") for name in names):
            names["startingOffsets"] = "earliest"
        return continuous_query(self.spark).read({"kafka.bootstrap.servers": self.bench.bootstrap_servers, **names})

    def start(self, query: ContinuousQueryBuilder, checkpoint: str = "checkpoint", **settings: Any) -> ContinuousQuery:
        """Start a query with short epochs."""
        given = {"checkpointLocation": str(self.folder / checkpoint), **QUICK, **settings}
        self._started.append(query.start(**given))
        return self._started[-1]

    def copy(self, source: str, output: str, checkpoint: str = "checkpoint", **settings: Any) -> ContinuousQuery:
        """Start a query that copies the values of a topic to another one."""
        return self.start(self.read(subscribe=source).select("value").to_kafka(output), checkpoint, **settings)

    def put(self, topic: str, values: Iterable[object], partition: int | None = None) -> None:
        """Write values."""
        produce(self.bench.bootstrap_servers, topic, values, partition=partition)

    def expect(self, topic: str, wanted: Iterable[object], query: ContinuousQuery | None = None) -> None:
        """Wait until a topic has these values, and nothing else."""
        texts = sorted(map(str, wanted))
        found: list[str] = []

        def there() -> bool:
            if query is not None and (error := query.exception()) is not None:
                raise error
            found[:] = values(self.bench.bootstrap_servers, topic)
            return len(found) >= len(texts)

        try:
            wait_until(there, "the output", PATIENCE)
        finally:
            if len(found) < 50:
                print(f"{topic} has {found}")
        assert found == texts

    def expect_all(self, topic: str, wanted: Iterable[object], once: Iterable[object], query: ContinuousQuery) -> None:
        """Wait until a topic has all these values, some perhaps twice, but not those that were committed before."""
        texts = set(map(str, wanted))
        found: list[str] = []

        def there() -> bool:
            if (error := query.exception()) is not None:
                raise error
            found[:] = values(self.bench.bootstrap_servers, topic)
            return texts <= set(found)

        wait_until(there, "the output", PATIENCE)
        assert set(found) == texts
        assert [found.count(text) for text in map(str, once)] == [1] * len(list(once)), found

    def entries(self, log: str, checkpoint: str = "checkpoint") -> list[int]:
        """The epochs in a log."""
        return sorted(int(file.name) for file in (self.folder / checkpoint / log).glob("[0-9]*"))

    def logged(self, epoch: int, checkpoint: str = "checkpoint") -> Any:
        """The offsets of an epoch."""
        return json.loads((self.folder / checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2])

    def close(self) -> None:
        """Stop all queries, and wait until Spark has nothing more to do."""
        for query in self._started:
            query.stop()
        context: Any = self.spark.sparkContext
        if context._jsc is not None:
            tracker = context.statusTracker()
            wait_until(lambda: not tracker.getActiveJobsIds(), "all tasks have ended")


def failure_of(query: ContinuousQuery) -> KafkaDirectError:
    """Wait until a query has ended by an error, and return it."""
    wait_until(lambda: not query.isActive, "the query has ended", PATIENCE)
    error = query.exception()
    assert error is not None
    return error
