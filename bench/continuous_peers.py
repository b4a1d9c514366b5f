"""Queries that copy topics, in one session: with Spark's JVM connector, and continuous queries."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.continuous_load import PARTITIONS
from bench.continuous_summary import (
    CONTINUOUS,
    EPOCH_MS,
    EXACTLY_ONCE,
    EXACTLY_ONCE_EPOCH_MS,
    MICRO_BATCH,
    REAL_TIME,
)
from bench.errors import BenchError
from bench.measure import sample
from bench.spark_peers import collect_garbage, spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from bench.measure import Sample
    from bench.spark_peers import Spark, SparkSettings

_DEADLINE = 300.0  # seconds for a backlog
_POLL_INTERVAL = 0.02
_WAIT = 30.0


class _Trigger(NamedTuple):
    """How a query with the JVM connector is started."""

    mode: str
    options: dict[str, Any]


_TRIGGERS = {
    CONTINUOUS: _Trigger("append", {"continuous": "1 second"}),
    # The shortest interval and the only output mode that it accepts.
    REAL_TIME: _Trigger("update", {"realTime": "5 seconds"}),
    MICRO_BATCH: _Trigger("append", {"processingTime": "0 seconds"}),
}
_CATCH_UP = _Trigger("append", {"availableNow": True})


class QueryRunner:
    """A session with one query at a time."""

    def __init__(self, spark: Spark) -> None:
        self.spark = spark
        self._way = ""
        self._query: Any = None
        self._checkpoint = ""

    def start(self, way: str, source: str, target: str) -> None:
        """Start a query that copies keys and values as they arrive."""
        collect_garbage(self.spark)  # so that a run does not include the garbage of an earlier one
        self._start(way, source, target, _TRIGGERS.get(way), {})

    def catch_up(self, way: str, source: str, target: str) -> None:
        """Start a query that copies a backlog as fast as it can."""
        trigger = _CATCH_UP if way == MICRO_BATCH else None
        self._start(way, source, target, trigger, {"startingOffsets": "earliest"})

    def raise_if_failed(self) -> None:
        if self._query is not None and (failure := self._query.exception()) is not None:
            raise BenchError(f"{self._way}: {failure}")

    def stop(self) -> None:
        """Stop the query, if one is running."""
        try:
            self.raise_if_failed()
            if self._query is not None:
                self._query.stop()
        finally:
            self._query = None
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _start(
        self, way: str, source: str, target: str, trigger: _Trigger | None, read_options: dict[str, str]
    ) -> None:
        self._way = way
        self._checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
        if trigger is None:
            self._query = self._start_continuous(way, source, target, read_options)
        else:
            self._query = self._start_jvm(source, target, trigger, read_options)

    def _start_jvm(self, source: str, target: str, trigger: _Trigger, read_options: dict[str, str]) -> Any:
        session, servers = self.spark.session, self.spark.settings.bootstrap_servers
        frame = (
            session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .options(**read_options)
            .load()
            .select("key", "value")
        )
        writer = (
            frame.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", target)
            .option("checkpointLocation", self._checkpoint)
            .outputMode(trigger.mode)
        )
        return writer.trigger(**trigger.options).start()

    def _start_continuous(self, way: str, source: str, target: str, read_options: dict[str, str]) -> Any:
        from pyspark_kafka_direct.continuous import continuous_query

        # A nested function is pickled by value, so Spark's Python workers need not import this package.
        def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch

        once = way == EXACTLY_ONCE
        delivery = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": target} if once else {}
        milliseconds = EXACTLY_ONCE_EPOCH_MS if once else EPOCH_MS
        return (
            continuous_query(self.spark.session)
            .read(
                {"kafka.bootstrap.servers": self.spark.settings.bootstrap_servers, "subscribe": source, **read_options}
            )
            .select("key", "value")
            .map_batches(identity)
            .to_kafka(target, delivery)
            .start(checkpointLocation=self._checkpoint, epochInterval=f"{milliseconds:.0f} milliseconds")
        )


@contextmanager
def query_runner(settings: SparkSettings) -> Iterator[QueryRunner]:
    """Start the session."""
    with spark(settings) as session:
        runner = QueryRunner(session)
        try:
            yield runner
        finally:
            runner.stop()


def copy_backlog(runner: QueryRunner, way: str, source: str, target: str, records: int) -> Sample:
    """Copy a topic, and return the cost from the start of the query until the target is complete."""
    collect_garbage(runner.spark)
    ends = _Ends(runner.spark.settings.bootstrap_servers, target)
    try:
        _, cost = sample(lambda: _copy(runner, way, source, target, ends, records), runner.spark.settings.broker_pid)
        runner.stop()
        if (found := ends.sum()) != records:
            raise BenchError(f"{way}: the topic has {found} records, not {records}")
        return cost
    finally:
        runner.stop()
        ends.close()


def _copy(runner: QueryRunner, way: str, source: str, target: str, ends: _Ends, records: int) -> None:
    runner.catch_up(way, source, target)
    deadline = time.monotonic() + _DEADLINE
    while (found := ends.sum()) < records:
        runner.raise_if_failed()
        if time.monotonic() > deadline:
            raise BenchError(f"{way}: {found} of {records} records after {_DEADLINE:.0f} s")
        time.sleep(_POLL_INTERVAL)


class _Ends:
    """Counts the records of a topic by its end offsets."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench", "log_level": 0})
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def sum(self) -> int:
        return sum(self._consumer.get_watermark_offsets(partition, timeout=_WAIT)[1] for partition in self._partitions)

    def close(self) -> None:
        self._consumer.close()
