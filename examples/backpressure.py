"""Backpressure: the sink of a query becomes slow and fast again, and the size of the micro-batches follows.

    python examples/backpressure.py [PICTURE]

It takes five minutes and draws ``docs/backpressure.png``, or the given file.
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
SINK_RATES = [2000] * 8 + [500] * 8 + [2000] * 8  # records per second of the sink, by batch
INTERVAL = 10  # seconds; long enough that the sink dominates also on a busy machine
RECORDS = 500_000
TIMEOUT_S = 600

_ROWS, _TIME, _INK, _PALE = "#0072B2", "#D55E00", "#222222", "#8a8a8a"


class Batch(NamedTuple):
    """A batch: its start, its records, its duration in seconds, and the rate of the sink."""

    started: float
    records: int
    seconds: float
    sink_rate: int


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
        print(f"{batch.started:6.1f} s  {batch.records:6} records  {batch.seconds:5.2f} s  sink {batch.sink_rate}/s")
    draw(batches, picture)
    print(f"Picture: {picture}")


def write(servers: str) -> None:
    """Fill a topic with two partitions, one of which gets three quarters of the records."""
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
    """Read the topic into a sink with known rates, one batch for each of ``SINK_RATES``."""
    pyspark_kafka_direct.enable(spark)
    # The first job of a session takes seconds, which would be added to the first batch.
    spark.range(1).rdd.map(str).collect()

    def sink(batch: DataFrame, number: int) -> None:
        time.sleep(batch.count() / SINK_RATES[min(number, len(SINK_RATES) - 1)])

    source = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    source = source.option("subscribe", "readings").option("startingOffsets", "earliest")
    source = source.option("backpressure", "true").option("backpressureInitialRate", "1000")
    writer = source.load().writeStream.foreachBatch(sink).trigger(processingTime=f"{INTERVAL} seconds")
    query = writer.option("checkpointLocation", checkpoint).start()
    deadline = time.monotonic() + TIMEOUT_S
    while query.isActive and len(query.recentProgress) < len(SINK_RATES) and time.monotonic() < deadline:
        time.sleep(0.5)
    progress = query.recentProgress[: len(SINK_RATES)]
    query.stop()
    started = [datetime.fromisoformat(each.timestamp.replace("Z", "+00:00")).timestamp() for each in progress]
    return [
        Batch(
            start - started[0], each.numInputRows, each.durationMs["triggerExecution"] / 1000, SINK_RATES[each.batchId]
        )
        for start, each in zip(started, progress, strict=True)
    ]


def draw(batches: Sequence[Batch], picture: Path) -> None:
    """Draw the records of each batch in the upper panel and its duration in the lower one, over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK}):
        figure, (records, durations) = plt.subplots(2, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
        started = [batch.started for batch in batches]
        widths = [batch.seconds for batch in batches]
        capacities = [batch.sink_rate * INTERVAL for batch in batches]
        bars = {"align": "edge", "edgecolor": "white", "linewidth": 0.6}
        records.bar(started, [batch.records for batch in batches], widths, color=_ROWS, **bars)
        records.step(started, capacities, where="post", color=_PALE, linestyle="--", linewidth=1.2)
        records.set_title(f"Records of each micro-batch; dashed: capacity of the sink in {INTERVAL} s", loc="left")
        records.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        durations.bar(started, widths, widths, color=_TIME, **bars)
        durations.axhline(INTERVAL, color=_PALE, linestyle="--", linewidth=1.2)
        durations.set_title("Duration in seconds; dashed: trigger interval", loc="left")
        durations.set_xlabel("Seconds since the start of the first batch")
        for axes in (records, durations):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_xlim(left=0)
            axes.tick_params(length=0)
        figure.savefig(picture, dpi=90, facecolor="white", metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
