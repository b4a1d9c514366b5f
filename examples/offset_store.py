"""A query whose offsets are in a topic: it is killed in one directory and resumes in another, without shared files.

    python examples/offset_store.py                                     takes about a minute; --flights 3000 takes less
    python examples/offset_store.py SERVERS TOPIC DIRECTORY DATABASE    runs only the query, until it is killed

The first form starts a local Kafka broker, and runs the second form twice. The checkpoint is in DIRECTORY, which is
deleted after the kill, as if the machine was lost. The offsets are in the topic "offsets". If the results of a batch
were written but its offsets were not, the batch runs again. Each flight is stored under its partition and offset, so it
is stored once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import _flights
from _replay import Replay
from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.log import KafkaOffsetStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

TOPIC, STORE, QUERY = "flights", "offsets", "flights-to-sqlite"
PARTITIONS = 4
RATE = 1_000  # flights per second
TIMEOUT_S = 240.0

TABLE = """
    CREATE TABLE IF NOT EXISTS flights (
        part INTEGER, kafka_offset INTEGER, flight TEXT, PRIMARY KEY (part, kafka_offset)
    )
"""
WRITE = "INSERT OR REPLACE INTO flights VALUES (?, ?, ?)"


def query(servers: str, topic: str, directory: Path, database: Path) -> None:
    """Write the flights of the topic to the database."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def write(batch: DataFrame, _: int) -> None:
        rows = [(row.partition, row.offset, row.value.decode()) for row in batch.toLocalIterator()]
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.executemany(WRITE, rows)

    with KafkaOffsetStore(STORE, QUERY, {"bootstrap.servers": servers}) as store:
        flights = (
            spark.readStream.format("kafka-direct")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", store.starting_offsets_json(topic))
            .option("maxOffsetsPerTrigger", "500")
            .load()
        )
        checkpoint = str(directory / "checkpoint")
        writer = flights.writeStream.foreachBatch(store.foreach_batch(write, checkpoint))
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


class QueryProcess:
    """A process of the query."""

    def __init__(self, servers: str, directory: Path, database: Path) -> None:
        self._directory = directory
        directory.mkdir()
        self._log = directory.with_suffix(".log")
        with self._log.open("ab") as log:
            # Its own process group, so that Python and the JVM are killed at the same time.
            self._process = subprocess.Popen(
                [sys.executable, __file__, servers, TOPIC, str(directory), str(database)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until a condition is true.

        Raises:
            RuntimeError: The query ended, or the wait timed out.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the query ended or made no progress:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it with ``kill -9``, and delete its directory."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        shutil.rmtree(self._directory, ignore_errors=True)


def main(flights: int) -> int:
    """Run the example; returns 1 if the database differs from the records written."""
    steps = Steps(4)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        database = folder / "flights.sqlite"
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(TABLE)
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka().start()
        try:
            _flights.create(kafka.bootstrap_servers, TOPIC, PARTITIONS)
            with Replay(kafka.bootstrap_servers, TOPIC, records, RATE) as replay:
                correct = _run(steps, kafka.bootstrap_servers, folder, database, replay)
            with steps.step("Comparing the database with the records written"):
                stored = sorted(flight for _, _, flight in _rows(database))
                correct &= stored == sorted(record.value.decode() for record in records)
                steps.say(
                    f"{len(stored):,} flights stored of {len(records):,}: {'all equal' if correct else 'NOT EQUAL'}"
                )
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if correct else 1


def _run(steps: Steps, servers: str, folder: Path, database: Path, replay: Replay) -> bool:
    processes = []
    try:
        with steps.step(f"Storing {replay.total:,} flights while they are written, {RATE:,} per second"):
            processes.append(QueryProcess(servers, folder / "first", database))
            replay.start()
            processes[-1].wait_until(lambda: len(_rows(database)) >= replay.total // 4)
            processes[-1].kill()
            before = _rows(database)
            steps.say(f"{len(before):,} are stored: the query is killed (kill -9), and its checkpoint is lost.")
        with steps.step("Restarting the query in another directory, from the offsets in the topic"):
            processes.append(QueryProcess(servers, folder / "second", database))
            processes[-1].wait_until(lambda: len(_rows(database)) >= replay.total)
            after = {(part, offset): flight for part, offset, flight in _rows(database)}
            same = all(after[part, offset] == flight for part, offset, flight in before)
            steps.say(f"{len(after) - len(before):,} more.")
            return same
    finally:
        for process in processes:
            process.kill()


def _rows(database: Path) -> list[tuple[int, int, str]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT part, kafka_offset, flight FROM flights").fetchall()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [servers, topic, directory, database]:
            query(servers, topic, Path(directory), Path(database))
        case ["--flights", count]:
            sys.exit(main(int(count)))
        case _:
            sys.exit(main(20_000))
