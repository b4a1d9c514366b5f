"""Streaming queries in tests: each batch is collected."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tests.shards.brokers import SHARED_SERVERS
from tests.soak.results import last_batch

from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE = 600  # seconds; a busy machine is slow, not wrong


@dataclass
class Stream:
    """A query that can be started, stopped and restarted from its checkpoint.

    Attributes:
        spark: The session.
        servers: Bootstrap servers.
        folder: Where its checkpoint is.
        options: Options of the source; ``_`` stands for a dot.
        format: Of the source.
        batches: Values of the records of each batch, by batch id; a batch that runs again replaces itself.
    """

    spark: SparkSession
    servers: str
    folder: Path
    options: dict[str, str]
    format: str = "kafka-direct"
    batches: dict[int, list[str]] = field(default_factory=dict)
    query: StreamingQuery | None = None

    def load(self, **more: str) -> DataFrame:
        """The streaming DataFrame."""
        reader = self.spark.readStream.format(self.format).option("kafka.bootstrap.servers", self.servers)
        options = {name.replace("_", "."): text for name, text in {**self.options, **more}.items()}
        return reader.options(**options).load()

    def start(self, df: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Start the query; with no trigger it runs until it is stopped."""
        writer = (df if df is not None else self.load()).writeStream.foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def run(self, df: DataFrame | None = None, **trigger: Any) -> list[int]:
        """Run to the end (``availableNow=True`` unless another trigger is given); returns the sizes of its batches.

        Before Spark 4.2 a run with ``availableNow`` is one batch, so it is run until nothing remains.
        """
        before, last = set(self.batches), -2
        while last != self.committed:
            last = self.committed
            query = self.start(df, **(trigger or {"availableNow": True}))
            assert query.awaitTermination(DEADLINE), "the query did not end"
            if trigger or self.format != "kafka-direct" or spark_features().has_read_limits:
                break
        return [len(self.batches[number]) for number in sorted(self.batches.keys() - before)]

    def stop(self) -> None:
        """Stop it, and raise what it failed with."""
        if self.query is not None:
            self.query.stop()
            failure = self.query.exception()
            if failure is not None:
                raise failure

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the query runs."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            failure = self.query.exception() if self.query is not None else None
            if failure is not None:
                raise failure
            assert time.monotonic() < deadline, f"{what}: not after {DEADLINE} s; got {self.batches}"
            time.sleep(0.02)

    def wait_for(self, values: Iterable[object]) -> None:
        """Wait until exactly these values have been read, each once."""
        expected = sorted(map(str, values))
        self.wait(lambda: len(self.values) >= len(expected), f"the values {expected}")
        assert self.values == expected

    @property
    def values(self) -> list[str]:
        """All values read so far, sorted."""
        collected = list(self.batches.values())  # in one step: Spark's thread adds batches concurrently
        return sorted(value for batch in collected for value in batch)

    @property
    def committed(self) -> int:
        """The last batch committed in the checkpoint."""
        return last_batch(self.folder, "commits")

    @property
    def planned(self) -> int:
        """The last batch planned in the checkpoint."""
        return last_batch(self.folder, "offsets")

    def undo_commit(self) -> None:
        """Restore the state as if the driver had died in its last batch."""
        folder, number = self.folder / "checkpoint" / "commits", self.committed
        for file in (folder / str(number), folder / f".{number}.crc"):
            file.unlink(missing_ok=True)

    def _collect(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = sorted(row.value.decode() for row in batch.select("value").collect())


def produce(servers: str, topic: str, values: Iterable[object], *, partition: int | None = None, **more: Any) -> None:
    """Write values, over the partitions in turn or to one of them."""
    producer = _shared_producer(servers) if servers in SHARED_SERVERS else _new_producer(servers)
    while (partitions := len(producer.list_topics(topic, timeout=600).topics[topic].partitions)) <= (partition or 0):
        time.sleep(0.05)  # a broker reports a new partition a moment after it was added
    for number, value in enumerate(values):
        target = number % partitions if partition is None else partition
        producer.produce(topic, str(value).encode(), partition=target, **more)
    assert producer.flush(300) == 0


def _new_producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "log_level": 0})


# The connections of a new client take a broker more CPU time than a few records.
_shared_producer = cache(_new_producer)
