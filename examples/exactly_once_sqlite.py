"""Exactly once: results and offsets of a direct stream in one transaction of SQLite, or of any other database.

    python examples/exactly_once_sqlite.py                           starts a local Kafka broker with flights
    python examples/exactly_once_sqlite.py SERVERS TOPIC DATABASE    runs until it is stopped or killed

There is no checkpoint. The stream starts at the offsets in the database. Each batch stores its results and its end
offsets in one transaction, so either both are stored or neither.
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

# Flights, departed flights, and the sum of their delays in minutes.
Delays: TypeAlias = tuple[int, int, int]

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
        servers: The brokers.
        topic: A topic of flights as JSON.
        database: The database file, which is created if it does not exist.
        until: Stop when this many records are stored; ``None``: never.
    """
    create_tables(database)
    sc = start_spark()
    ssc = StreamingContext(sc, BATCH_SECONDS)
    parameters: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": "exactly-once",
        "auto.offset.reset": "earliest",  # for partitions without an offset in the database
    }
    strategy = ConsumerStrategies.Subscribe([topic], parameters, stored_offsets(database))
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

    first_offsets: dict[TopicPartition, int] = {}

    def handle(rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        for each in ranges:
            first_offsets.setdefault(each.topic_partition, each.fromOffset)
        if any(each.count() for each in ranges):
            store(database, first_offsets, ranges, rdd.map(by_origin).reduceByKeyLocally(add_counts))

    stream.foreachRDD(handle)
    ssc.start()
    # It raises the error of a failed batch. Without the check, later batches would continue.
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[func-returns-value, arg-type]
        if until is not None and sum(stored_offsets(database).values()) >= until:
            break
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


def by_origin(record: KafkaRecord) -> tuple[str, Delays]:
    """Return the airport, and the counts of the flight."""
    flight = json.loads(record.value)
    minutes = flight["dep_delay"]
    return flight["origin"], (1, 0, 0) if minutes is None else (1, 1, minutes)


def add_counts(counts: Delays, more: Delays) -> Delays:
    """Add two counts."""
    return counts[0] + more[0], counts[1] + more[1], counts[2] + more[2]


def store(
    database: Path,
    first_offsets: Mapping[TopicPartition, int],
    ranges: Sequence[OffsetRange],
    results: Mapping[str, Delays],
) -> None:
    """Add the results of a batch and move the offsets to its end, or change nothing.

    Args:
        database: The database.
        first_offsets: The first offset that this stream has read of each partition, for partitions that are not in the
            database. The start of the current batch would be wrong, because an earlier batch with the first records of
            the partition may have failed.
        ranges: The offset ranges of the batch.
        results: The results of the batch.

    Raises:
        RuntimeError: A stored offset is not the start of the batch: an earlier batch failed, or a driver that was
            considered dead is still writing. Nothing is stored.
    """
    with closing(connect(database)) as connection, connection:  # the inner context commits or rolls back
        connection.execute("BEGIN IMMEDIATE")
        for each in ranges:
            connection.execute(FIRST_OFFSET, (each.topic, each.partition, first_offsets[each.topic_partition]))
            moved = connection.execute(MOVE_OFFSET, (each.untilOffset, each.topic, each.partition, each.fromOffset))
            if moved.rowcount != 1:
                raise RuntimeError(f"the batch starts at {each}, but the database contains another offset")
        connection.executemany(ADD_DELAYS, [(origin, *sums) for origin, sums in results.items()])


def create_tables(database: Path) -> None:
    """Create the tables that do not exist."""
    with closing(connect(database)) as connection:
        connection.executescript(TABLES)


def stored_offsets(database: Path) -> dict[TopicPartition, int]:
    """Return the offsets at which the stream resumes."""
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT topic, part, next FROM offsets").fetchall()
    return {TopicPartition(topic, part): offset for topic, part, offset in rows}


def stored_delays(database: Path) -> dict[str, Delays]:
    """Return the results so far."""
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT origin, flights, departed, minutes FROM delays ORDER BY origin").fetchall()
    return {origin: (flights, departed, minutes) for origin, flights, departed, minutes in rows}


def connect(database: Path) -> sqlite3.Connection:
    """Open a connection that starts no transactions implicitly, and waits for locks."""
    return sqlite3.connect(database, timeout=30, isolation_level=None)


def start_spark() -> SparkContext:
    """Start a local Spark without progress bars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    conf = SparkConf().setMaster("local[2]").setAppName("exactly-once")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    # Limits the batches; without it the first batch contains all records.
    conf.set("spark.streaming.kafka.maxRatePerPartition", "10000")
    return SparkContext(conf=conf)


def main() -> int:
    """Store all flights in a database; returns 1 if the results differ from the file."""
    steps, topic = Steps(3), "flights"
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        expected: dict[str, Delays] = {}
        with steps.step(f"Writing {_flights.FLIGHTS:,} flights to a new Kafka broker"):
            _flights.create(kafka.bootstrap_servers, topic, PARTITIONS)
            records = list(_flights.flights())
            _flights.load(kafka.bootstrap_servers, topic, records, Progress(_flights.FLIGHTS, "flights").at)
        with steps.step("Storing the flights in SQLite, with their offsets"):
            database = Path(folder) / "delays.sqlite"
            run(kafka.bootstrap_servers, topic, database, until=_flights.FLIGHTS)
            results = stored_delays(database)
        with steps.step("Comparing the results with the file"):
            for record in records:
                origin, counts = by_origin(record)  # type: ignore[arg-type]  # it has the only attribute used, value
                expected[origin] = add_counts(expected.get(origin, (0, 0, 0)), counts)
            for origin, (flights, departed, minutes) in results.items():
                steps.say(f"{origin}  {flights:>7,} flights, {minutes / departed:+5.1f} min")
            steps.say("Equal to the file." if results == expected else f"NOT EQUAL to the file: {expected}")
    return 0 if results == expected else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    _, servers_, topic_, database_ = sys.argv
    run(servers_, topic_, Path(database_))
