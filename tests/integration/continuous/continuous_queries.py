"""Continuous queries for tests; all of them are stopped at the end, and leave no task behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.integration.read_back import TopicReader, values_of
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

TIMEOUT = 600.0  # seconds; only a limit for hangs
STOP_TIMEOUT = 120.0  # seconds; for a query that is stopped and must not wait for the leases of its tasks
LONG_LEASE = 600.0  # seconds; longer than STOP_TIMEOUT
SHORT_INTERVALS = {"epochInterval": 0.1, "discoveryInterval": 0.2}
LONG_TIMEOUTS = {"taskStartTimeout": 600, "heartbeatTimeout": 60}  # on a busy machine, tasks start and respond slowly
SHORT_LEASE = 10.0  # seconds; for a query whose workers are killed: the next run waits until the leases are over


class Queries:
    """Creates and starts queries on one cluster."""

    def __init__(self, spark: SparkSession, bench: Workbench, folder: Path) -> None:
        self.spark = spark
        self.bench = bench
        self.folder = folder
        self._started: list[ContinuousQuery] = []

    def read(self, **options: object) -> ContinuousQueryBuilder:
        """Return a query that reads from ``earliest``; underscores in the names of options stand for dots."""
        names = {name.replace("_", "."): value for name, value in options.items()}
        if not any(name.startswith("starting") for name in names):
            names["startingOffsets"] = "earliest"
        return continuous_query(self.spark).read({"kafka.bootstrap.servers": self.bench.bootstrap_servers, **names})

    def start(self, query: ContinuousQueryBuilder, checkpoint: str = "checkpoint", **settings: Any) -> ContinuousQuery:
        """Start a query with short epochs."""
        options = {"checkpointLocation": str(self.folder / checkpoint), **SHORT_INTERVALS, **LONG_TIMEOUTS, **settings}
        self._started.append(query.start(**options))
        return self._started[-1]

    def copy(self, source: str, output: str, checkpoint: str = "checkpoint", **settings: Any) -> ContinuousQuery:
        """Start a query that copies the values of a topic."""
        return self.start(self.read(subscribe=source).select("value").to_kafka(output), checkpoint, **settings)

    def put(self, topic: str, values: Iterable[object], partition: int | None = None) -> None:
        produce(self.bench.bootstrap_servers, topic, values, partition=partition)

    def expect(self, topic: str, expected: Iterable[object], query: ContinuousQuery | None = None) -> None:
        """Wait until a topic has these values and no others."""
        expected_values = sorted(map(str, expected))
        with TopicReader(self.bench.bootstrap_servers, topic) as reader:

            def has_arrived() -> bool:
                if query is not None and (error := query.exception()) is not None:
                    raise error
                return len(reader.read()) >= len(expected_values)

            try:
                wait_until(has_arrived, "the output", TIMEOUT)
            except AssertionError:
                print(f"{topic} has {values_of(reader.read())[:50]}")
                raise
            found = values_of(reader.read_to_end())
        assert found == expected_values

    def expect_all(
        self, topic: str, expected: Iterable[object], once: Iterable[object], query: ContinuousQuery
    ) -> None:
        """Wait until a topic has all these values, possibly repeated, but committed ones (``once``) only once."""
        expected_values = set(map(str, expected))
        with TopicReader(self.bench.bootstrap_servers, topic) as reader:

            def has_arrived() -> bool:
                if (error := query.exception()) is not None:
                    raise error
                return expected_values <= set(values_of(reader.read()))

            wait_until(has_arrived, "the output", TIMEOUT)
            found = values_of(reader.read_to_end())
        assert set(found) == expected_values
        assert [found.count(value) for value in map(str, once)] == [1] * len(list(once)), found

    def epochs(self, log: str, checkpoint: str = "checkpoint") -> list[int]:
        """Return the epochs in a log."""
        return sorted(int(file.name) for file in (self.folder / checkpoint / log).glob("[0-9]*"))

    def end_offsets(self, epoch: int, checkpoint: str = "checkpoint") -> Any:
        """Return the end offsets of an epoch."""
        return json.loads((self.folder / checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2])

    def close(self) -> None:
        """Stop all queries, and wait until their jobs have ended."""
        for query in self._started:
            query.stop()
        context: Any = self.spark.sparkContext
        if context._jsc is not None:
            tracker = context.statusTracker()
            wait_until(lambda: not tracker.getActiveJobsIds(), "the end of all tasks")


def await_failure(query: ContinuousQuery) -> KafkaDirectError:
    """Wait until a query has failed, and return the error."""
    wait_until(lambda: not query.isActive, "the end of the query", TIMEOUT)
    error = query.exception()
    assert error is not None
    return error
