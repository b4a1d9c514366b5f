"""What tests of exactly-once delivery from Spark share: a query over numbers, its checkpoint, and what readers see."""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.integration.deliveries import committed
from tests.integration.stream_queries import DEADLINE, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2


@dataclass
class Pipe:
    """A streaming query that copies the values of one topic to another, exactly once.

    Attributes:
        spark: The session.
        servers: Bootstrap servers.
        source: Topic that is read.
        target: Topic that is written.
        checkpoint: Its checkpoint.
        options: Options of the sink; ``_`` stands for a dot.
        prefix: Its ``transactionalIdPrefix``.
    """

    spark: SparkSession
    servers: str
    source: str
    target: str
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"prefix-{uuid.uuid4().hex[:8]}")
    markers: str = field(default_factory=lambda: f"markers-{uuid.uuid4().hex[:8]}")

    def put(self, *numbers: object) -> None:
        """Write to the source."""
        produce(self.servers, self.source, numbers)

    def frame(self) -> DataFrame:
        """What is read, as a stream of the column ``value``."""
        reader = self.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        loaded = reader.option("subscribe", self.source).option("startingOffsets", "earliest").load()
        return loaded.selectExpr("cast(value as string) value")

    def sink_options(self, **more: str) -> dict[str, str]:
        """Options of an exactly-once write to the target."""
        given = {
            "kafka_bootstrap_servers": self.servers,
            "topic": self.target,
            "delivery": "exactly-once",
            "transactionalIdPrefix": self.prefix,
            "markerTopic": self.markers,
            **self.options,
            **more,
        }
        return {name.replace("_", "."): text for name, text in given.items()}

    def start(self, frame: DataFrame | None = None, /, *, mode: str = "append", **more: str) -> StreamingQuery:
        """Start the query, over all there is."""
        writer = (self.frame() if frame is None else frame).writeStream.format("kafka-direct").outputMode(mode)
        writer = writer.options(**self.sink_options(**more)).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, frame: DataFrame | None = None, /, *, mode: str = "append", **more: str) -> None:
        """Write all there is."""
        wait_for(self.start(frame, mode=mode, **more))

    def run_foreach(self, function: Callable[[DataFrame, int], None], **more: Any) -> None:
        """Hand all there is to a function."""
        frame = more.pop("frame", None)
        writer = (self.frame() if frame is None else frame).writeStream.foreachBatch(function)
        writer = writer.outputMode(more.pop("mode", "append")).option("checkpointLocation", str(self.checkpoint))
        wait_for(writer.trigger(availableNow=True).start())

    def seen(self) -> list[str]:
        """What a reader of committed records finds in the target."""
        return [value.decode() for value in committed(self.servers, self.target, PARTITIONS)]

    def check(self, wanted: Iterable[object]) -> None:
        """Check that each is there once, and nothing else."""
        assert sorted(self.seen()) == sorted(map(str, wanted))

    def undo_commit(self) -> None:
        """As if the driver had died after the sink's commit and before Spark's."""
        folder = self.checkpoint / "commits"
        number = max(int(file.name) for file in folder.glob("[0-9]*"))
        for file in (folder / str(number), folder / f".{number}.crc"):
            file.unlink(missing_ok=True)

    def copy_checkpoint(self, to: Path) -> Path:
        """Copy the checkpoint as it is now."""
        shutil.copytree(self.checkpoint, to)
        return to


def wait_for(query: StreamingQuery) -> None:
    """Wait until a query has ended."""
    assert query.awaitTermination(DEADLINE), "the query did not end"


def told(error: BaseException) -> str:
    """Return the line of our own error in Spark's."""
    return str(error).rpartition("pyspark_kafka_direct.errors.")[2].splitlines()[0]


def token_in(refusal: str) -> str:
    """Return the token that a refusal printed."""
    found = re.search(r"set resetDelivery to (\w+)", refusal)
    assert found is not None, refusal
    return found[1]
