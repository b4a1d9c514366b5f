"""Queries from topic to topic as peers: those of Spark's JVM connector, and the continuous runner, in one session."""

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
_LOOK = 0.02
_WAIT = 30.0


class _Trigger(NamedTuple):
    """How a query of Spark's own is started."""

    mode: str
    options: dict[str, Any]


_TRIGGERS = {
    CONTINUOUS: _Trigger("append", {"continuous": "1 second"}),
    # It takes no shorter time, and no other output mode.
    REAL_TIME: _Trigger("update", {"realTime": "5 seconds"}),
    MICRO_BATCH: _Trigger("append", {"processingTime": "0 seconds"}),
}
_CATCH_UP = _Trigger("append", {"availableNow": True})


class Runner:
    """A session, and the one query that runs in it.

    Args:
        spark: The session.
    """

    def __init__(self, spark: Spark) -> None:
        self.spark = spark
        self._way = ""
        self._query: Any = None
        self._checkpoint = ""

    def begin(self, way: str, source: str, target: str) -> None:
        """Start a query that copies keys and values as they come."""
        collect_garbage(self.spark)  # so that no run pays for what another one left behind
        self._start(way, source, target, _TRIGGERS.get(way), {})

    def catch_up(self, way: str, source: str, target: str) -> None:
        """Start a query that copies a backlog, as fast as it can."""
        trigger = _CATCH_UP if way == MICRO_BATCH else None
        self._start(way, source, target, trigger, {"startingOffsets": "earliest"})

    def check(self) -> None:
        """Look whether the query still runs, or has ended as it should.

        Raises:
            BenchError: It failed.
        """
        if self._query is not None and (failure := self._query.exception()) is not None:
            raise BenchError(f"{self._way}: {failure}")

    def end(self) -> None:
        """Stop the query, if one runs.

        Raises:
            BenchError: It had failed.
        """
        try:
            self.check()
            if self._query is not None:
                self._query.stop()
        finally:
            self._query = None
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _start(self, way: str, source: str, target: str, trigger: _Trigger | None, reading: dict[str, str]) -> None:
        self._way = way
        self._checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
        if trigger is None:
            self._query = self._ours(way, source, target, reading)
        else:
            self._query = self._jvm(source, target, trigger, reading)

    def _jvm(self, source: str, target: str, trigger: _Trigger, reading: dict[str, str]) -> Any:
        session, servers = self.spark.session, self.spark.settings.bootstrap_servers
        frame = (
            session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .options(**reading)
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

    def _ours(self, way: str, source: str, target: str, reading: dict[str, str]) -> Any:
        from pyspark_kafka_direct.continuous import continuous_query

        # Nested, so that it is pickled as a whole: Spark's Python workers need not find this package.
        def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch

        once = way == EXACTLY_ONCE
        delivery = {"delivery": "exactly-once", "transactionalIdPrefix": target} if once else {}
        milliseconds = EXACTLY_ONCE_EPOCH_MS if once else EPOCH_MS
        return (
            continuous_query(self.spark.session)
            .read({"kafka.bootstrap.servers": self.spark.settings.bootstrap_servers, "subscribe": source, **reading})
            .select("key", "value")
            .map_batches(identity)
            .to_kafka(target, delivery)
            .start(checkpointLocation=self._checkpoint, epochInterval=f"{milliseconds:.0f} milliseconds")
        )


@contextmanager
def runner(settings: SparkSettings) -> Iterator[Runner]:
    """Start the session."""
    with spark(settings) as session:
        made = Runner(session)
        try:
            yield made
        finally:
            made.end()


def copy_backlog(runner: Runner, way: str, source: str, target: str, records: int) -> Sample:
    """Copy all that a topic holds, and say what it cost from the query's start until the other one has it.

    Raises:
        BenchError: It took too long, or the other topic holds more.
    """
    collect_garbage(runner.spark)
    ends = _Ends(runner.spark.settings.bootstrap_servers, target)
    try:
        _, cost = sample(lambda: _copy(runner, way, source, target, ends, records), runner.spark.settings.broker_pid)
        runner.end()
        if (found := ends.sum()) != records:
            raise BenchError(f"{way}: the topic holds {found} records, not {records}")
        return cost
    finally:
        runner.end()
        ends.close()


def _copy(runner: Runner, way: str, source: str, target: str, ends: _Ends, records: int) -> None:
    runner.catch_up(way, source, target)
    deadline = time.monotonic() + _DEADLINE
    while (found := ends.sum()) < records:
        runner.check()
        if time.monotonic() > deadline:
            raise BenchError(f"{way}: {found} of {records} records after {_DEADLINE:.0f} s")
        time.sleep(_LOOK)


class _Ends:
    """How many records a topic has taken."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench", "log_level": 0})
        self._places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def sum(self) -> int:
        """Return it."""
        return sum(self._consumer.get_watermark_offsets(place, timeout=_WAIT)[1] for place in self._places)

    def close(self) -> None:
        """Hang up."""
        self._consumer.close()
