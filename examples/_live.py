"""The demo's second half: flights counted by day and airport while they come in, by a query that is stopped on the way.

It writes its windows to a topic, exactly once: whoever reads only what is committed finds each of them, and none twice.

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

Window = tuple["date", str]
Counts = tuple[int, int, int]


def early_flights() -> list[_flights.Record]:
    """Return the flights of the days that are replayed, in the order of time."""
    end = END.timestamp() * 1000
    early = (record for record in _flights.flights() if record.timestamp < end)
    return sorted(early, key=lambda record: record.timestamp)


def run(steps: Steps, spark: SparkSession, servers: str, topics: _flights.Topics, records: Sequence[_flights.Record],
        flights: DataFrame, output: Path) -> bool:  # fmt: skip
    """Replay the records through a query, and compare its windows with the batch's.

    Args:
        steps: Where to tell of it.
        spark: The session.
        servers: Of the Kafka.
        topics: To replay into and to write to; both are empty.
        records: What to replay, in the order of time.
        flights: All flights, as the batch read them.
        output: The folder for ``live.png``.
    """
    checkpoint = output / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    with steps.step(f"Replaying the {len(records):,} flights of the first {DAYS} days, {RATE:,} a second"):
        meter = _replay(steps, spark, servers, topics, records, checkpoint)
    with steps.step("Comparing the windows of the stream with the batch"):
        written, expected = stream_result(spark, servers, topics.windows), batch_result(flights)
        streamed = dict(written)
        same = streamed == expected and len(written) == len(streamed) and meter.dropped == 0
        steps.say(
            f"{len(written):,} windows in topic {topics.windows} for who reads what is committed, "
            f"{len(written) - len(streamed):,} of them twice."
        )
        steps.say(
            f"{len(streamed):,} windows of the stream, {len(expected):,} days and airports of the batch; "
            f"{sum(count for count, _, _ in streamed.values()):,} flights of {len(records):,}; "
            f"{meter.dropped:,} dropped as late: {'all equal' if same else 'NOT EQUAL'}"
        )
        _live_plot.draw(meter.samples, meter.batches, meter.stops, output / "live.png")
    return same


def _replay(steps: Steps, spark: SparkSession, servers: str, topics: _flights.Topics,
            records: Sequence[_flights.Record], checkpoint: Path) -> Meter:  # fmt: skip
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    monitor = enable(spark)
    with Replay(servers, topics.live, records, RATE) as replay:
        meter = Meter(replay, monitor)

        def run_until(done: Callable[[], bool]) -> None:
            query = start_query(spark, servers, topics, checkpoint)
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


def start_query(spark: SparkSession, servers: str, topics: _flights.Topics, checkpoint: Path) -> StreamingQuery:
    """Count flights by day and airport; a window is written once it is a week older than the newest flight."""
    from pyspark.sql import functions as F  # noqa: N812 (everyone's name for it)

    df = (
        spark.readStream.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics.live)
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
        counted.select(F.col("origin").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.queryName("flights-by-day")
        .format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topics.windows)
        .option("delivery", "exactly-once")
        .option("transactionalIdPrefix", topics.windows)
        .option("markerTopic", topics.markers)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(processingTime="1 second")
        .start()
    )


def stream_result(spark: SparkSession, servers: str, topic: str) -> list[tuple[Window, Counts]]:
    """Return every record that the query has written and committed."""
    from pyspark.sql import functions as F  # noqa: N812

    df = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    schema = "day date, origin string, flights long, departed long, minutes long"
    rows = df.select(F.from_json(F.col("value").cast("string"), schema).alias("window")).select("window.*").collect()
    return [((row.day, row.origin), (row.flights, row.departed, row.minutes)) for row in rows]


def batch_result(flights: DataFrame) -> dict[Window, Counts]:
    """Return the same figures from a batch, by the calendar in the data and not by windows."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = (
        flights.where(F.col("time_hour") < F.lit(END))
        .groupBy(F.make_date("year", "month", "day").alias("date"), "origin")
        .agg(F.count("*").alias("flights"), F.count("dep_delay").alias("departed"), F.sum("dep_delay").alias("minutes"))
        .collect()
    )
    return {(row.date, row.origin): (row.flights, row.departed, row.minutes) for row in rows}
