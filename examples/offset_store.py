"""A query that knows its place by a topic: killed in one directory, it goes on in another, with nothing shared.

    python examples/offset_store.py                                     about a minute; --flights 3000 for less
    python examples/offset_store.py SERVERS TOPIC DIRECTORY DATABASE    the query alone, until it is killed

The first starts a Kafka of its own, and the second twice. The checkpoint is in DIRECTORY, which is removed after the
kill, as when a machine is lost. The offsets are in the topic "offsets". A batch whose results were written and whose
offsets were not saved comes again; so a flight is stored under its partition and offset, and is there once.
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
PATIENCE_S = 240.0

TABLE = "CREATE TABLE IF NOT EXISTS flights (part INTEGER, place INTEGER, flight TEXT, PRIMARY KEY (part, place))"
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


class Life:
    """One life of the query."""

    def __init__(self, servers: str, directory: Path, database: Path) -> None:
        self._directory = directory
        directory.mkdir()
        self._log = directory.with_suffix(".log")
        with self._log.open("ab") as log:
            # A group of its own, so that Python and the JVM die at the same moment.
            self._process = subprocess.Popen(
                [sys.executable, __file__, servers, TOPIC, str(directory), str(database)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def watch(self, done: Callable[[], bool]) -> None:
        """Wait until something has come true.

        Raises:
            RuntimeError: The query has ended, or it takes too long.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the query has ended, or does not go on:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def end(self) -> None:
        """``kill -9`` it, and remove its directory."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        shutil.rmtree(self._directory, ignore_errors=True)


def main(flights: int) -> int:
    """Run it; returns 1 if what is in the database is not what was written."""
    steps = Steps(4)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        database = folder / "flights.sqlite"
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(TABLE)
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka(reuse_running=False).start()
        try:
            _flights.create(kafka.bootstrap_servers, TOPIC, PARTITIONS)
            with Replay(kafka.bootstrap_servers, TOPIC, records, RATE) as replay:
                right = _run(steps, kafka.bootstrap_servers, folder, database, replay)
            with steps.step("Comparing what is in the database with what was written"):
                stored = sorted(flight for _, _, flight in _rows(database))
                right &= stored == sorted(record.value.decode() for record in records)
                steps.say(
                    f"{len(stored):,} flights stored of {len(records):,}: {'all equal' if right else 'NOT EQUAL'}"
                )
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if right else 1


def _run(steps: Steps, servers: str, folder: Path, database: Path, replay: Replay) -> bool:
    lives = []
    try:
        with steps.step(f"Storing {replay.total:,} flights while they are written, {RATE:,} a second"):
            lives.append(Life(servers, folder / "first", database))
            replay.start()
            lives[-1].watch(lambda: len(_rows(database)) >= replay.total // 4)
            lives[-1].end()
            before = _rows(database)
            steps.say(f"{len(before):,} are stored: the query is killed (kill -9), and its checkpoint is lost.")
        with steps.step("Starting it in another directory; it goes on where the topic says"):
            lives.append(Life(servers, folder / "second", database))
            lives[-1].watch(lambda: len(_rows(database)) >= replay.total)
            after = {(part, place): flight for part, place, flight in _rows(database)}
            same = all(after[part, place] == flight for part, place, flight in before)
            steps.say(f"{len(after) - len(before):,} more.")
            return same
    finally:
        for life in lives:
            life.end()


def _rows(database: Path) -> list[tuple[int, int, str]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT part, place, flight FROM flights").fetchall()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [servers, topic, directory, database]:
            query(servers, topic, Path(directory), Path(database))
        case ["--flights", count]:
            sys.exit(main(int(count)))
        case _:
            sys.exit(main(20_000))
