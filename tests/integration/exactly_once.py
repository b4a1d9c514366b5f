"""Helpers for tests of exactly-once writes from Spark: a query over numbers, its checkpoint and its output."""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.integration.stream_queries import DEADLINE, produce
from tests.integration.transactional_batches import committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2


@dataclass
class Pipe:
    """A streaming query that copies the values of one topic to another, exactly once.

    ``options`` are options of the sink, with ``_`` for a dot.
    """

    spark: SparkSession
    servers: str
    source: str
    target: str
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"prefix-{uuid.uuid4().hex[:8]}")
    sink_state_topic: str = field(default_factory=lambda: f"sink-state-{uuid.uuid4().hex[:8]}")

    def produce_numbers(self, *numbers: object) -> None:
        """Write to the source."""
        produce(self.servers, self.source, numbers)

    def frame(self) -> DataFrame:
        """Return a stream of the source with the column ``value``."""
        reader = self.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        loaded = reader.option("subscribe", self.source).option("startingOffsets", "earliest").load()
        return loaded.selectExpr("cast(value as string) value")

    def sink_options(self, **more: str) -> dict[str, str]:
        """Return the options of an exactly-once write to the target."""
        given = {
            "kafka_bootstrap_servers": self.servers,
            "topic": self.target,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": self.prefix,
            "sinkStateTopic": self.sink_state_topic,
            **self.options,
            **more,
        }
        return {name.replace("_", "."): text for name, text in given.items()}

    def start(self, frame: DataFrame | None = None, /, *, mode: str = "append", **more: str) -> StreamingQuery:
        """Start the query with ``availableNow``."""
        writer = (self.frame() if frame is None else frame).writeStream.format("kafka-direct").outputMode(mode)
        writer = writer.options(**self.sink_options(**more)).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, frame: DataFrame | None = None, /, *, mode: str = "append", **more: str) -> None:
        """Run the query until everything is written."""
        wait_for(self.start(frame, mode=mode, **more))

    def run_foreach(self, function: Callable[[DataFrame, int], None], **more: Any) -> None:
        """Run the query with ``foreachBatch``."""
        frame = more.pop("frame", None)
        writer = (self.frame() if frame is None else frame).writeStream.foreachBatch(function)
        writer = writer.outputMode(more.pop("mode", "append")).option("checkpointLocation", str(self.checkpoint))
        wait_for(writer.trigger(availableNow=True).start())

    def committed_values(self) -> list[str]:
        """Return the values of the target, read with read_committed."""
        return [value.decode() for value in committed(self.servers, self.target, PARTITIONS)]

    def check(self, wanted: Iterable[object]) -> None:
        """Check that the target has exactly these values."""
        assert sorted(self.committed_values()) == sorted(map(str, wanted))

    def undo_commit(self) -> None:
        """Simulate a driver that was killed after the sink's commit and before Spark's."""
        folder = self.checkpoint / "commits"
        number = max(int(file.name) for file in folder.glob("[0-9]*"))
        for file in (folder / str(number), folder / f".{number}.crc"):
            file.unlink(missing_ok=True)

    def copy_checkpoint(self, to: Path) -> Path:
        """Copy the checkpoint."""
        shutil.copytree(self.checkpoint, to)
        return to


def wait_for(query: StreamingQuery) -> None:
    """Wait for the end of a query."""
    assert query.awaitTermination(DEADLINE), "the query did not end"


def package_error_line(error: BaseException) -> str:
    """Return the line with this package's error in an error of Spark."""
    return str(error).rpartition("pyspark_kafka_direct.errors.")[2].splitlines()[0]


def reset_token_in(message: str) -> str:
    """Return the token in an error message."""
    found = re.search(r"set resetTransactionState to (\w+)", message)
    assert found is not None, message
    return found[1]
