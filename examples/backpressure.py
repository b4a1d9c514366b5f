"""Backpressure on a real query: a sink becomes slow and fast again, and the micro-batches follow.

    python examples/backpressure.py [PICTURE]

Takes five minutes and draws ``docs/backpressure.png``, or the picture that is named.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyspark_kafka_direct
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "backpressure.png"
SPEEDS = [2000] * 8 + [500] * 8 + [2000] * 8  # records per second of the sink, batch by batch
INTERVAL = 10  # seconds; also a busy machine spends few of them on anything but the sink
RECORDS = 500_000
PATIENCE = 600  # seconds

_ROWS, _TIME, _INK, _PALE = "#0072B2", "#D55E00", "#222222", "#8a8a8a"


class Batch(NamedTuple):
    """When a batch began, its records, how long it took in seconds, and the sink's speed."""

    began: float
    records: int
    seconds: float
    speed: int


def main(picture: Path) -> None:
    """Run the query, print its batches and draw them."""
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as checkpoint:
        write(kafka.bootstrap_servers)
        spark = start_spark()
        try:
            batches = run(spark, kafka.bootstrap_servers, checkpoint)
        finally:
            spark.stop()
    for batch in batches:
        print(f"{batch.began:6.1f} s  {batch.records:6} records  {batch.seconds:5.2f} s  sink {batch.speed}/s")
    draw(batches, picture)
    print(f"Picture: {picture}")


def write(servers: str) -> None:
    """Fill a topic of two partitions, one of them with three times as much."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("readings", 2, 1)])["readings"].result(30)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": RECORDS, "log_level": 0})
    for number in range(RECORDS):
        producer.produce("readings", str(number), partition=int(number % 4 == 0))
    producer.flush(60)


def start_spark() -> SparkSession:
    """Start a local session."""
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def run(spark: SparkSession, servers: str, checkpoint: str) -> list[Batch]:
    """Read the topic into a sink of known speed, one batch for each of ``SPEEDS``."""
    pyspark_kafka_direct.enable(spark)
    spark.range(1).rdd.map(str).collect()  # the first job of a session takes seconds that are not the sink's

    def sink(batch: DataFrame, number: int) -> None:
        time.sleep(batch.count() / SPEEDS[min(number, len(SPEEDS) - 1)])

    source = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    source = source.option("subscribe", "readings").option("startingOffsets", "earliest")
    source = source.option("backpressure", "true").option("backpressureInitialRate", "1000")
    writer = source.load().writeStream.foreachBatch(sink).trigger(processingTime=f"{INTERVAL} seconds")
    query = writer.option("checkpointLocation", checkpoint).start()
    deadline = time.monotonic() + PATIENCE
    while query.isActive and len(query.recentProgress) < len(SPEEDS) and time.monotonic() < deadline:
        time.sleep(0.5)
    progress = query.recentProgress[: len(SPEEDS)]
    query.stop()
    began = [datetime.fromisoformat(each.timestamp.replace("Z", "+00:00")).timestamp() for each in progress]
    return [
        Batch(at - began[0], each.numInputRows, each.durationMs["triggerExecution"] / 1000, SPEEDS[each.batchId])
        for at, each in zip(began, progress, strict=True)
    ]


def draw(batches: Sequence[Batch], picture: Path) -> None:
    """Draw the records of each batch above and its seconds below, over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK}):
        figure, (rows, took) = plt.subplots(2, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
        began = [batch.began for batch in batches]
        widths = [batch.seconds for batch in batches]
        fits = [batch.speed * INTERVAL for batch in batches]
        bars = {"align": "edge", "edgecolor": "white", "linewidth": 0.6}
        rows.bar(began, [batch.records for batch in batches], widths, color=_ROWS, **bars)
        rows.step(began, fits, where="post", color=_PALE, linestyle="--", linewidth=1.2)
        rows.set_title(f"Records of each micro-batch; dashed: what the sink takes in {INTERVAL} s", loc="left")
        rows.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        took.bar(began, widths, widths, color=_TIME, **bars)
        took.axhline(INTERVAL, color=_PALE, linestyle="--", linewidth=1.2)
        took.set_title("Seconds that it took; dashed: the trigger's interval", loc="left")
        took.set_xlabel("Seconds since the first batch")
        for axes in (rows, took):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_xlim(left=0)
            axes.tick_params(length=0)
        figure.savefig(picture, dpi=90, facecolor="white", metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
