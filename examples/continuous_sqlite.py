"""Exactly once into a database: a continuous query stores late flights in SQLite, with its positions.

    python examples/continuous_sqlite.py                                starts a local Kafka broker with flights
    python examples/continuous_sqlite.py SERVERS TOPIC DATABASE FOLDER  runs until it is stopped or killed

Each task stores its rows and its positions in one transaction at the end of an epoch, so either both are stored or
neither. After a failure, the tasks resume at the positions in the database, which may be ahead of the checkpoint. Any
database with transactions can be used instead of SQLite.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _flights
from _steps import Progress, Steps
from pyspark_kafka_direct import TopicPartition
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous import ContinuousQuery, TaskInfo

PARTITIONS = 4
TASKS = 2
LATE_MINUTES = 60
COLUMNS = ("origin", "carrier", "flight", "minutes")

TABLES = """
    CREATE TABLE IF NOT EXISTS positions (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));
    CREATE TABLE IF NOT EXISTS late_flights (origin TEXT, carrier TEXT, flight INTEGER, minutes INTEGER);
"""


class SqliteSink:
    """Stores the rows of a task and its positions in one transaction.

    Args:
        database: The database file, with the tables.
        table: The table of the rows, which has the columns of the batches.
    """

    def __init__(self, database: str, table: str) -> None:
        self._database = database
        self._table = table
        self._rows: list[dict[str, Any]] = []
        self._stored: dict[TopicPartition, int] = {}

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        """Return the offsets at which the task resumes. Partitions that are missing here resume from the checkpoint."""
        with closing(connect(self._database)) as connection:
            rows = connection.execute("SELECT topic, part, next FROM positions").fetchall()
        self._stored = {TopicPartition(topic, part): offset for topic, part, offset in rows}
        return self._stored

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows until the end of the epoch."""
        self._rows += batch.to_pylist()

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        """Store the rows since the last flush, and the positions after them.

        Raises:
            RuntimeError: Another task has stored a partition: this task was considered dead, and is still writing.
                Nothing is stored.
        """
        moved = {tp: offset for tp, offset in positions.items() if self._stored.get(tp) != offset}
        if not moved:
            return
        with closing(connect(self._database)) as connection, connection:  # the inner context commits or rolls back
            connection.execute("BEGIN IMMEDIATE")
            for tp, offset in moved.items():
                row = connection.execute("SELECT next FROM positions WHERE topic = ? AND part = ?", tp).fetchone()
                if (None if row is None else row[0]) != self._stored.get(tp):
                    raise RuntimeError(f"another task has stored {tp} until offset {row and row[0]}")
                connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (*tp, offset))
            if self._rows:
                columns = ", ".join(self._rows[0])
                values = ", ".join(f":{name}" for name in self._rows[0])
                connection.executemany(f"INSERT INTO {self._table} ({columns}) VALUES ({values})", self._rows)
        self._stored.update(moved)
        self._rows = []

    def close(self) -> None:
        """Do nothing: no connection stays open between two epochs."""


def start_query(spark: SparkSession, servers: str, topic: str, database: Path, checkpoint: Path) -> ContinuousQuery:
    """Start the query."""
    from pyspark_kafka_direct.continuous import continuous_query

    def sink(task: TaskInfo) -> SqliteSink:
        return SqliteSink(str(database), "late_flights")

    return (
        continuous_query(spark)
        .read({"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"})
        .select("value")
        .map_batches(late_flights)
        .to(sink)
        .start(checkpointLocation=str(checkpoint), tasksMax=TASKS, epochInterval="500 milliseconds")
    )


def late_flights(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return the late flights of a batch; ``None`` if there are none."""
    import pyarrow as pa

    flights = [row for row in map(late_flight, batch["value"].to_pylist()) if row is not None]
    return pa.record_batch(list(map(list, zip(*flights, strict=True))), list(COLUMNS)) if flights else None


def late_flight(value: bytes) -> tuple[str, str, int, int] | None:
    """Return the row of a late flight; ``None`` for others."""
    flight = json.loads(value)
    minutes = flight["dep_delay"] or 0
    return (flight["origin"], flight["carrier"], flight["flight"], minutes) if minutes >= LATE_MINUTES else None


def create_tables(database: Path) -> None:
    """Create the tables that do not exist."""
    with closing(connect(database)) as connection:
        connection.executescript(TABLES)


def stored_flights(database: Path) -> list[tuple[str, str, int, int]]:
    """Return all rows, sorted."""
    with closing(connect(database)) as connection:
        return sorted(connection.execute(f"SELECT {', '.join(COLUMNS)} FROM late_flights").fetchall())


def connect(database: str | Path) -> sqlite3.Connection:
    """Open a connection that starts no transactions implicitly, and waits for locks."""
    return sqlite3.connect(database, timeout=30, isolation_level=None)


def start_spark() -> SparkSession:
    """Start a local Spark with a core for each task of the query."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.appName("late flights")
        .master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def run(servers: str, topic: str, database: Path, folder: Path) -> None:
    """Run the query until it ends."""
    create_tables(database)
    start_query(start_spark(), servers, topic, database, folder).awaitTermination()


def main(count: int) -> int:
    """Store the late ones of some flights; return 1 if the table differs from the file."""
    steps, topic = Steps(3), "flights"
    records: Sequence[_flights.Record] = list(islice(_flights.flights(), count))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, EmbeddedKafka() as kafka:
        database = Path(folder, "flights.sqlite")
        with steps.step(f"Writing {count:,} flights to a new Kafka broker"):
            _flights.create(kafka.bootstrap_servers, topic, PARTITIONS)
            _flights.load(kafka.bootstrap_servers, topic, records, Progress(count, "flights").at)
        with steps.step("Storing the late flights in SQLite, with the positions"):
            create_tables(database)
            spark = start_spark()
            query = start_query(spark, kafka.bootstrap_servers, topic, database, Path(folder, "checkpoint"))
            query.processAllAvailable()
            query.stop()
            spark.stop()
        with steps.step("Comparing the table with the file"):
            found = stored_flights(database)
            expected = sorted(row for row in (late_flight(each.value) for each in records) if row is not None)
            result = "all equal" if found == expected else "NOT EQUAL"
            steps.say(f"{len(expected):,} flights were late, {len(found):,} are in the table: {result}")
    return 0 if found == expected else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arguments", nargs="*", metavar="SERVERS TOPIC DATABASE FOLDER")
    parser.add_argument("--flights", type=int, default=50_000, help="number of flights (default 50,000)")
    parsed = parser.parse_args()
    if not parsed.arguments:
        sys.exit(main(parsed.flights))
    if len(parsed.arguments) != 4:
        parser.error("give four arguments, or none")
    servers_, topic_, database_, folder_ = parsed.arguments
    run(servers_, topic_, Path(database_), Path(folder_))
