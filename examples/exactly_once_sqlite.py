"""Exactly once: results and offsets of a direct stream in one transaction of SQLite. Any database with them will do.

    python examples/exactly_once_sqlite.py                           with a Kafka of its own, and flights in it
    python examples/exactly_once_sqlite.py SERVERS TOPIC DATABASE    until it is stopped; kill it whenever you like

There is no checkpoint. The stream starts where the database says, and a batch moves the offsets in the transaction that
adds its results; so both are there, or neither.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

import _flights
from _steps import Progress, Steps
from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.direct import KafkaRDD, KafkaRecord, OffsetRange

BATCH_SECONDS = 1
PARTITIONS = 6

Delays: TypeAlias = tuple[int, int, int]
"""Flights, how many of them departed, and their delay in minutes."""

TABLES = """
    CREATE TABLE IF NOT EXISTS offsets (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));
    CREATE TABLE IF NOT EXISTS delays (origin TEXT PRIMARY KEY, flights INTEGER, departed INTEGER, minutes INTEGER);
"""
FIRST_OFFSET = "INSERT OR IGNORE INTO offsets VALUES (?, ?, ?)"
MOVE_OFFSET = "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next = ?"
ADD_DELAYS = """
    INSERT INTO delays VALUES (?, ?, ?, ?) ON CONFLICT (origin) DO UPDATE SET
        flights = flights + excluded.flights,
        departed = departed + excluded.departed,
        minutes = minutes + excluded.minutes
"""


def run(servers: str, topic: str, database: Path, until: int | None = None) -> None:
    """Read the topic into the database.

    Args:
        servers: Of the Kafka.
        topic: Flights as JSON.
        database: A file, made where there is none.
        until: Stop when so many records are in it; ``None``: never.
    """
    create_tables(database)
    sc = start_spark()
    ssc = StreamingContext(sc, BATCH_SECONDS)
    parameters: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": "exactly-once",
        "auto.offset.reset": "earliest",  # for partitions that the database does not know
    }
    strategy = ConsumerStrategies.Subscribe([topic], parameters, stored_offsets(database))
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

    begins: dict[TopicPartition, int] = {}

    def handle(rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        for each in ranges:
            begins.setdefault(each.topic_partition, each.fromOffset)
        if any(each.count() for each in ranges):
            store(database, begins, ranges, rdd.map(by_origin).reduceByKeyLocally(both))

    stream.foreachRDD(handle)
    ssc.start()
    # It raises what a batch failed with. Without that, later batches would go on.
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[func-returns-value, arg-type]
        if until is not None and sum(stored_offsets(database).values()) >= until:
            break
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


def by_origin(record: KafkaRecord) -> tuple[str, Delays]:
    """Return the airport, and what its flight adds to the delays there."""
    flight = json.loads(record.value)
    minutes = flight["dep_delay"]
    return flight["origin"], (1, 0, 0) if minutes is None else (1, 1, minutes)


def both(some: Delays, more: Delays) -> Delays:
    """Add two counts."""
    return some[0] + more[0], some[1] + more[1], some[2] + more[2]


def store(
    database: Path,
    begins: Mapping[TopicPartition, int],
    ranges: Sequence[OffsetRange],
    results: Mapping[str, Delays],
) -> None:
    """Add the results of a batch and move the offsets to its end, or do nothing.

    Args:
        database: Where.
        begins: Where this stream has begun to read each partition, for those that the database does not know yet. That
            of the batch at hand would not do: an earlier batch, with the partition's first records, may have failed.
        ranges: The batch.
        results: What it adds.

    Raises:
        RuntimeError: An offset is not where the batch begins: an earlier batch failed, or another driver, thought dead,
            is still writing. Nothing is stored.
    """
    with closing(connect(database)) as connection, connection:  # the second: commit, or roll back
        connection.execute("BEGIN IMMEDIATE")
        for each in ranges:
            connection.execute(FIRST_OFFSET, (each.topic, each.partition, begins[each.topic_partition]))
            moved = connection.execute(MOVE_OFFSET, (each.untilOffset, each.topic, each.partition, each.fromOffset))
            if moved.rowcount != 1:
                raise RuntimeError(f"the batch begins at {each}, and the database is elsewhere")
        connection.executemany(ADD_DELAYS, [(origin, *sums) for origin, sums in results.items()])


def create_tables(database: Path) -> None:
    """Make the tables, where there are none."""
    with closing(connect(database)) as connection:
        connection.executescript(TABLES)


def stored_offsets(database: Path) -> dict[TopicPartition, int]:
    """Where to go on."""
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT topic, part, next FROM offsets").fetchall()
    return {TopicPartition(topic, part): offset for topic, part, offset in rows}


def stored_delays(database: Path) -> dict[str, Delays]:
    """Return the results so far."""
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT origin, flights, departed, minutes FROM delays ORDER BY origin").fetchall()
    return {origin: (flights, departed, minutes) for origin, flights, departed, minutes in rows}


def connect(database: Path) -> sqlite3.Connection:
    """Open a connection that begins no transactions by itself, and waits for others."""
    return sqlite3.connect(database, timeout=30, isolation_level=None)


def start_spark() -> SparkContext:
    """Start a local Spark that keeps quiet."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    conf = SparkConf().setMaster("local[2]").setAppName("exactly-once")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    # Batches of a size that can be looked at; without it the first one has all there is.
    conf.set("spark.streaming.kafka.maxRatePerPartition", "10000")
    return SparkContext(conf=conf)


def main() -> int:
    """All flights into a database; returns 1 if the sums are not those of the file."""
    steps, topic = Steps(3), "flights"
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(reuse_running=False) as kafka:
        expected: dict[str, Delays] = {}
        with steps.step(f"Writing {_flights.FLIGHTS:,} flights into a Kafka that was just started"):
            _flights.create(kafka.bootstrap_servers, topic, PARTITIONS)
            records = list(_flights.flights())
            _flights.load(kafka.bootstrap_servers, topic, records, Progress(_flights.FLIGHTS, "flights").at)
        with steps.step("Reading them into SQLite, with their offsets"):
            database = Path(folder) / "delays.sqlite"
            run(kafka.bootstrap_servers, topic, database, until=_flights.FLIGHTS)
            results = stored_delays(database)
        with steps.step("Comparing with the file"):
            for record in records:
                origin, sums = by_origin(record)  # type: ignore[arg-type] # it has a value, which is all that is asked of it
                expected[origin] = both(expected.get(origin, (0, 0, 0)), sums)
            for origin, (flights, departed, minutes) in results.items():
                steps.say(f"{origin}  {flights:>7,} flights, {minutes / departed:+5.1f} min")
            steps.say("The same as in the file." if results == expected else f"NOT as in the file: {expected}")
    return 0 if results == expected else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    _, servers_, topic_, database_ = sys.argv
    run(servers_, topic_, Path(database_))
