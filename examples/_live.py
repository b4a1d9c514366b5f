"""The demo's second half: flights counted by day and airport while they come in, by a query that is stopped on the way.

A day here is one of New York's winter time, all year: Spark's windows know no time zone, and nobody leaves at the
hour that differs in summer.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import _flights
import _live_plot
from _meter import Meter
from _replay import Replay
from pyspark_kafka_direct import enable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from _steps import Steps

RATE = 3_000  # flights per second: more than three days of them
DAYS = 100
END = datetime(2013, 4, 11, 5, tzinfo=UTC)  # of the hundredth day
STOPPED_S = 4.0

_PATIENCE_S = 180.0
# Closes the windows, as it is a month later than any flight; its own stays open and is never written.
_CLOSING = _flights.Record(
    b"", json.dumps({"time_hour": "2013-05-11T05:00:00Z"}).encode(), int(END.timestamp() + 30 * 86400) * 1000
)

Windows = dict[tuple["date", str], tuple[int, int, int]]


def is_early(record: _flights.Record) -> bool:
    """Whether the flight is one of the days that are replayed."""
    return record.timestamp < END.timestamp() * 1000


def run(steps: Steps, spark: SparkSession, servers: str, topic: str, records: Sequence[_flights.Record],
        flights: DataFrame, output: Path) -> bool:  # fmt: skip
    """Replay the records through a query, and compare its windows with the batch's.

    Args:
        steps: Where to tell of it.
        spark: The session.
        servers: Of the Kafka.
        topic: An empty one.
        records: What to replay, in the order of time.
        flights: All flights, as the batch read them.
        output: The folder for ``windows.parquet`` and ``live.png``.
    """
    windows, checkpoint = output / "windows.parquet", output / "checkpoint"
    for old in (windows, checkpoint):
        shutil.rmtree(old, ignore_errors=True)
    with steps.step(f"Replaying the {len(records):,} flights of the first {DAYS} days, {RATE:,} a second"):
        meter = _replay(steps, spark, servers, topic, records, windows, checkpoint)
    with steps.step("Comparing the windows of the stream with the batch"):
        streamed, expected = stream_result(spark, windows), batch_result(flights)
        same = streamed == expected and meter.dropped == 0
        steps.say(
            f"{len(streamed):,} windows of the stream, {len(expected):,} days and airports of the batch; "
            f"{sum(count for count, _, _ in streamed.values()):,} flights of {len(records):,}; "
            f"{meter.dropped:,} dropped as late: {'all equal' if same else 'NOT EQUAL'}"
        )
        _live_plot.draw(meter.samples, meter.batches, meter.stops, output / "live.png")
    return same


def _replay(steps: Steps, spark: SparkSession, servers: str, topic: str, records: Sequence[_flights.Record],
            windows: Path, checkpoint: Path) -> Meter:  # fmt: skip
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    monitor = enable(spark)
    with Replay(servers, topic, records, RATE) as replay:
        meter = Meter(replay, monitor)

        def run_until(done: Callable[[], bool]) -> None:
            query = start_query(spark, servers, topic, windows, checkpoint)
            try:
                meter.watch(query, done, _PATIENCE_S)
            finally:
                meter.stopped()
                query.stop()
                meter.keep(query)

        def finish() -> bool:
            if meter.read == replay.written == replay.total:
                replay.write([_CLOSING])
            return meter.read == replay.written > replay.total and meter.open_windows == 1

        steps.say(meter.header)
        replay.start()
        run_until(lambda: replay.written >= replay.total // 2 and meter.read > 0)
        steps.say(f"The query is stopped, whatever it was doing. It starts again in {STOPPED_S:.0f} s.")
        resumed = time.monotonic() + STOPPED_S
        meter.watch(None, lambda: time.monotonic() >= resumed, _PATIENCE_S)
        meter.resumed()
        steps.say("It goes on from its checkpoint.")
        run_until(finish)
    return meter


def start_query(spark: SparkSession, servers: str, topic: str, windows: Path, checkpoint: Path) -> StreamingQuery:
    """Count flights by day and airport; a window is written once it is a week older than the newest flight."""
    from pyspark.sql import functions as F  # noqa: N812 (everyone's name for it)

    df = (
        spark.readStream.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    flights = df.select(F.from_json(F.col("value").cast("string"), _flights.SCHEMA).alias("flight")).select("flight.*")
    counted = (
        flights.withWatermark("time_hour", "7 days")
        .groupBy(F.window("time_hour", "1 day", startTime="5 hours"), "origin")
        .agg(F.count("*").alias("flights"), F.count("dep_delay").alias("departed"), F.sum("dep_delay").alias("minutes"))
        .select(F.to_date("window.start").alias("day"), "origin", "flights", "departed", "minutes")
    )
    return (
        counted.writeStream.queryName("flights-by-day")
        .format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(processingTime="1 second")
        .start(str(windows))
    )


def stream_result(spark: SparkSession, windows: Path) -> Windows:
    """Return what the query has written.

    Raises:
        AssertionError: It wrote a window twice.
    """
    rows = spark.read.parquet(str(windows)).collect()
    result = {(row.day, row.origin): (row.flights, row.departed, row.minutes) for row in rows}
    assert len(result) == len(rows), "a window was written twice"
    return result


def batch_result(flights: DataFrame) -> Windows:
    """Return the same figures from a batch, by the calendar in the data and not by windows."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = (
        flights.where(F.col("time_hour") < F.lit(END))
        .groupBy(F.make_date("year", "month", "day").alias("date"), "origin")
        .agg(F.count("*").alias("flights"), F.count("dep_delay").alias("departed"), F.sum("dep_delay").alias("minutes"))
        .collect()
    )
    return {(row.date, row.origin): (row.flights, row.departed, row.minutes) for row in rows}
