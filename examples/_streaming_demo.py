"""The second part of the demo: a streaming query counts replayed flights by day and airport, stops, and restarts.

The query writes its windows to a topic with exactly-once delivery: a consumer that reads committed records gets each
window exactly once. A day here is a day of New York's winter time all year, because Spark's windows have no time zone,
and no flight departs in the hour that differs in summer.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import _flights
import _lag_chart
from _progress_table import ProgressTable
from _replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from _steps import Steps

RATE = 4_500  # flights per second, which is almost five days of flights
DAYS = 100
END = datetime(2013, 4, 11, 5, tzinfo=UTC)  # the end of the hundredth day
STOPPED_S = 4.0

_TIMEOUT_S = 180.0
# Closes all windows, because it is a month later than any flight. Its own window stays open and is never written.
_CLOSING_RECORD = _flights.Record(
    b"", json.dumps({"time_hour": "2013-05-11T05:00:00Z"}).encode(), int(END.timestamp() + 30 * 86400) * 1000
)

Window = tuple["date", str]
Counts = tuple[int, int, int]


def early_flights() -> list[_flights.Record]:
    """Return the flights of the replayed days, in the order of time."""
    end = END.timestamp() * 1000
    replayed = (record for record in _flights.flights() if record.timestamp < end)
    return sorted(replayed, key=lambda record: record.timestamp)


def run(steps: Steps, spark: SparkSession, servers: str, topics: _flights.Topics, records: Sequence[_flights.Record],
        flights: DataFrame, output: Path) -> bool:  # fmt: skip
    """Replay the records through a query, and compare its windows with a batch query.

    Args:
        steps: Prints the progress.
        spark: The session.
        servers: The brokers.
        topics: The topics to replay to and to write to; both are empty.
        records: The records to replay, in the order of time.
        flights: All flights, as read by the batch query.
        output: The folder for ``live.png``.

    Returns:
        Whether the windows are equal.
    """
    checkpoint = output / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    with steps.step(f"Replaying the {len(records):,} flights of the first {DAYS} days, {RATE:,} per second"):
        table = _replay(steps, spark, servers, topics, records, checkpoint)
    with steps.step("Comparing the windows of the streaming query with a batch query"):
        written, expected = stream_result(spark, servers, topics.windows), batch_result(flights)
        streamed = dict(written)
        same = streamed == expected and len(written) == len(streamed) and table.dropped == 0
        steps.say(
            f"{len(written):,} windows committed to topic {topics.windows}, "
            f"{len(written) - len(streamed):,} duplicates."
        )
        steps.say(
            f"{len(streamed):,} windows of the streaming query, {len(expected):,} days and airports of the batch "
            f"query; {sum(count for count, _, _ in streamed.values()):,} flights of {len(records):,}; "
            f"{table.dropped:,} dropped as late: {'all equal' if same else 'NOT EQUAL'}"
        )
        _lag_chart.draw(table.samples, table.batches, table.stops, output / "live.png")
    return same


def _replay(steps: Steps, spark: SparkSession, servers: str, topics: _flights.Topics,
            records: Sequence[_flights.Record], checkpoint: Path) -> ProgressTable:  # fmt: skip
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with Replay(servers, topics.replayed, records, RATE) as replay:
        table = ProgressTable(replay)

        def run_until(done: Callable[[], bool]) -> None:
            query = start_query(spark, servers, topics, checkpoint)
            try:
                table.show_until(query, done, _TIMEOUT_S)
            finally:
                table.mark_stopped()
                query.stop()
                table.add_batches(query)

        def finish() -> bool:
            if table.read == replay.written == replay.total:
                replay.write([_CLOSING_RECORD])
            return table.read == replay.written > replay.total and table.open_windows == 1

        steps.say("A window is a day at an airport. One more record, a month later, closes the last windows.")
        steps.say(table.header)
        replay.start()
        run_until(lambda: replay.written >= replay.total // 2 and table.read > 0)
        steps.say(f"Stopping the query in the middle of its work. It restarts in {STOPPED_S:.0f} s.")
        restart_time = time.monotonic() + STOPPED_S
        table.show_until(None, lambda: time.monotonic() >= restart_time, _TIMEOUT_S)
        table.mark_resumed()
        steps.say("Restarting the query from its checkpoint.")
        run_until(finish)
    return table


def start_query(spark: SparkSession, servers: str, topics: _flights.Topics, checkpoint: Path) -> StreamingQuery:
    """Count flights by day and airport; a window is written when it is a week older than the newest flight."""
    from pyspark.sql import functions as F  # noqa: N812 (the usual name)

    df = (
        spark.readStream.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics.replayed)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .schema(f"value struct<{_flights.JSON_SCHEMA}>")
        .load()
    )
    flights = _flights.with_time(df.select("value.*"))
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
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", topics.windows)
        .option("sinkStateTopic", topics.sink_state)
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
        .option("valueFormat", "json")
        .schema("value struct<day string, origin string, flights long, departed long, minutes long>")
        .load()
    )
    rows = df.select("value.*").withColumn("day", F.to_date("day")).collect()
    return [((row.day, row.origin), (row.flights, row.departed, row.minutes)) for row in rows]


def batch_result(flights: DataFrame) -> dict[Window, Counts]:
    """Return the same counts from a batch query, by the calendar days in the data instead of windows."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = (
        flights.where(F.col("time_hour") < F.lit(END))
        .groupBy(F.make_date("year", "month", "day").alias("date"), "origin")
        .agg(F.count("*").alias("flights"), F.count("dep_delay").alias("departed"), F.sum("dep_delay").alias("minutes"))
        .collect()
    )
    return {(row.date, row.origin): (row.flights, row.departed, row.minutes) for row in rows}
