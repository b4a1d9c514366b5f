"""The application that ``tests.soak.direct`` kills: two direct streams in one context, and three outputs in SQLite.

``numbers`` reads one topic and decodes values. ``texts`` reads a pattern and decodes keys. ``transformed`` is the
first stream behind a ``transform`` that sometimes raises, which fails the generation of the entire batch, of all
streams. It is the last output, so the others have been generated when it raises.

Offsets are stored in one of two places. In the database, each batch updates its offsets in the transaction of its
records, and is rejected if its start differs from the stored offsets. With Spark's checkpoint, each batch replaces the
rows of its time, and the first start (``create``) deletes the rows of a run that ended without a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, TopicPartition

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD

    from pyspark_kafka_direct.direct import KafkaRDD, KafkaRecord

BATCH_SECONDS = 1
FAILING = "SOAK_FAILING"  # an environment variable, because the pickled functions see no other state of this process

TABLES = """
    CREATE TABLE IF NOT EXISTS records (output TEXT, time INTEGER, topic TEXT, part INTEGER, number INTEGER, key TEXT,
        value TEXT);
    CREATE INDEX IF NOT EXISTS by_time ON records (output, time);
    CREATE TABLE IF NOT EXISTS offsets (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));
    CREATE TABLE IF NOT EXISTS rejected (batch TEXT);
"""


class ReplacingOutput:
    """Replaces the stored rows of the batch's time."""

    def __init__(self, database: str, output: str) -> None:
        self._database = database
        self._output = output

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        time_ms = round(time.timestamp() * 1000)
        rows = rdd.map(row).collect()
        with closing(connect(self._database)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM records WHERE output = ? AND time = ?", (self._output, time_ms))
            insert(connection, self._output, time_ms, rows)


class OffsetStoringOutput:
    """Stores a batch and its offsets in one transaction; must be the only output of its stream."""

    def __init__(self, database: str, output: str) -> None:
        self._database = database
        self._output = output
        self._start_offsets: dict[Any, int] = {}

    def __call__(self, time: datetime, rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        for each in ranges:
            self._start_offsets.setdefault(each.topic_partition, each.fromOffset)
        rows = rdd.map(row).collect()
        with closing(connect(self._database)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for each in ranges:
                begin = (each.topic, each.partition, self._start_offsets[each.topic_partition])
                connection.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, ?)", begin)
                move = "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next = ?"
                moved = connection.execute(move, (each.untilOffset, each.topic, each.partition, each.fromOffset))
                if moved.rowcount != 1:
                    connection.execute("ROLLBACK")
                    connection.execute("INSERT INTO rejected VALUES (?)", (str(each),))
                    return
            insert(connection, self._output, round(time.timestamp() * 1000), rows)


def sometimes_failing(rdd: KafkaRDD) -> Any:
    """A user function that sometimes raises."""
    if random.random() < float(os.environ.get(FAILING, "0")):
        raise RuntimeError("soak: this generation fails")
    return rdd.map(row)


def read_only(time: datetime, rdd: RDD[Any]) -> None:
    rdd.count()


def row(record: KafkaRecord | tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row of a record; a row is returned unchanged."""
    if isinstance(record, tuple):
        return record
    key = record.key.decode() if isinstance(record.key, bytes) else record.key
    value = record.value.decode() if isinstance(record.value, bytes) else str(record.value)
    return record.topic, record.partition, record.offset, key, value


def insert(connection: sqlite3.Connection, output: str, time_ms: int, rows: list[Any]) -> None:
    values = [(output, time_ms, *each) for each in rows]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def connect(database: str) -> sqlite3.Connection:
    """Return a connection without implicit transactions, which waits for locks."""
    return sqlite3.connect(database, timeout=60, isolation_level=None)


def stored_offsets(database: str) -> dict[TopicPartition, int]:
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT topic, part, next FROM offsets").fetchall()
    return {TopicPartition(topic, part): offset for topic, part, offset in rows}


def create(arguments: dict[str, str]) -> StreamingContext:
    """Create the streams, from the offsets in the database if there are any."""
    database, in_checkpoint = arguments["database"], arguments["offsets"] == "checkpoint"
    conf = SparkConf().setMaster("local[2,4]").setAppName("soak")
    conf.set("spark.streaming.kafka.maxRatePerPartition", "2000")
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_SECONDS)
    if in_checkpoint:
        with closing(connect(database)) as connection:
            connection.execute("DELETE FROM records")
    parameters = {"bootstrap.servers": arguments["servers"], "auto.offset.reset": "earliest"}
    start_offsets = stored_offsets(database)
    one = {tp: offset for tp, offset in start_offsets.items() if tp.topic == arguments["topic"]}
    rest = {tp: offset for tp, offset in start_offsets.items() if tp.topic != arguments["topic"]}
    numbers = KafkaUtils.createDirectStream(
        ssc,
        LocationStrategies.PreferConsistent,
        ConsumerStrategies.Subscribe([arguments["topic"]], parameters, one),
        valueDecoder=int,
    )
    texts = KafkaUtils.createDirectStream(
        ssc,
        LocationStrategies.PreferConsistent,
        ConsumerStrategies.SubscribePattern(arguments["pattern"], parameters, rest),
        keyDecoder=bytes.decode,
    )
    output = ReplacingOutput if in_checkpoint else OffsetStoringOutput
    numbers.foreachRDD(output(database, "numbers"))
    texts.foreachRDD(output(database, "texts"))
    # The offsets in the database belong to the output "numbers", so this output only reads in that mode.
    transformed = ReplacingOutput(database, "transformed") if in_checkpoint else read_only
    # PySpark's own streams accept only functions.
    numbers.transform(sometimes_failing).foreachRDD(lambda time, rdd: transformed(time, rdd))
    return ssc


def main() -> None:
    """Run until killed; failed batches do not end the application."""
    given = json.loads(sys.argv[1])
    arguments = given["options"]
    with closing(connect(arguments["database"])) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(TABLES)
    if arguments["offsets"] == "checkpoint":
        ssc = StreamingContext.getOrCreate(str(Path(given["folder"]) / "checkpoint"), lambda: create(arguments))
    else:
        ssc = create(arguments)
    ssc.sparkContext.setLogLevel("ERROR")
    ssc.start()
    random.seed(arguments["seed"])
    os.environ[FAILING] = arguments["failing"]  # only now, because a failure within start() would fail the start
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
