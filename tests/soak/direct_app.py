"""The application that ``tests.soak.direct`` kills: two direct streams in one context, and three outputs in SQLite.

``numbers`` is of one topic and decodes values, ``texts`` is of a pattern and decodes keys, and ``transformed`` is the
first one again behind a ``transform`` that raises now and then, which fails the generation of the whole batch: of all
streams. It is the last output, so that the others have been generated when it raises.

Offsets are kept in one of two places. In the database: each batch moves its offsets in the transaction of its records,
and is refused if it begins elsewhere than the database is. Or in Spark's checkpoint: then each batch replaces what is
stored under its time, and the first start, ``create``, clears what a life without a checkpoint has left.
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
FAILING = "SOAK_FAILING"  # in the environment, as what Spark calls is pickled and has no other state of this process

TABLES = """
    CREATE TABLE IF NOT EXISTS records (output TEXT, time INTEGER, topic TEXT, part INTEGER, number INTEGER, key TEXT,
        value TEXT);
    CREATE INDEX IF NOT EXISTS by_time ON records (output, time);
    CREATE TABLE IF NOT EXISTS offsets (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));
    CREATE TABLE IF NOT EXISTS refused (batch TEXT);
"""


class Replacing:
    """Stores a batch in place of what is stored under its time."""

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


class Moving:
    """Stores a batch and moves the offsets, or neither; needs to be the only output of its stream."""

    def __init__(self, database: str, output: str) -> None:
        self._database = database
        self._output = output
        self._begins: dict[Any, int] = {}

    def __call__(self, time: datetime, rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        for each in ranges:
            self._begins.setdefault(each.topic_partition, each.fromOffset)
        rows = rdd.map(row).collect()
        with closing(connect(self._database)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for each in ranges:
                begin = (each.topic, each.partition, self._begins[each.topic_partition])
                connection.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, ?)", begin)
                move = "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next = ?"
                moved = connection.execute(move, (each.untilOffset, each.topic, each.partition, each.fromOffset))
                if moved.rowcount != 1:
                    connection.execute("ROLLBACK")
                    connection.execute("INSERT INTO refused VALUES (?)", (str(each),))
                    return
            insert(connection, self._output, round(time.timestamp() * 1000), rows)


def sometimes_failing(rdd: KafkaRDD) -> Any:
    """A function of the user's that raises."""
    if random.random() < float(os.environ.get(FAILING, "0")):
        raise RuntimeError("soak: this generation fails")
    return rdd.map(row)


def read_only(time: datetime, rdd: RDD[Any]) -> None:
    """An output that stores nothing."""
    rdd.count()


def row(record: KafkaRecord | tuple[Any, ...]) -> tuple[Any, ...]:
    """What is stored of a record; a row stays what it is."""
    if isinstance(record, tuple):
        return record
    key = record.key.decode() if isinstance(record.key, bytes) else record.key
    value = record.value.decode() if isinstance(record.value, bytes) else str(record.value)
    return record.topic, record.partition, record.offset, key, value


def insert(connection: sqlite3.Connection, output: str, time_ms: int, rows: list[Any]) -> None:
    """Add rows of an output."""
    values = [(output, time_ms, *each) for each in rows]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def connect(database: str) -> sqlite3.Connection:
    """A connection that begins no transactions by itself, and waits for others."""
    return sqlite3.connect(database, timeout=60, isolation_level=None)


def stored_offsets(database: str) -> dict[TopicPartition, int]:
    """Where to go on."""
    with closing(connect(database)) as connection:
        rows = connection.execute("SELECT topic, part, next FROM offsets").fetchall()
    return {TopicPartition(topic, part): offset for topic, part, offset in rows}


def create(told: dict[str, str]) -> StreamingContext:
    """The streams, from the database's offsets if that has them."""
    database, in_checkpoint = told["database"], told["offsets"] == "checkpoint"
    conf = SparkConf().setMaster("local[2,4]").setAppName("soak")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    conf.set("spark.streaming.kafka.maxRatePerPartition", "2000")
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_SECONDS)
    if in_checkpoint:
        with closing(connect(database)) as connection:
            connection.execute("DELETE FROM records")
    parameters = {"bootstrap.servers": told["servers"], "auto.offset.reset": "earliest"}
    begins = stored_offsets(database)
    one = {tp: offset for tp, offset in begins.items() if tp.topic == told["topic"]}
    rest = {tp: offset for tp, offset in begins.items() if tp.topic != told["topic"]}
    numbers = KafkaUtils.createDirectStream(
        ssc,
        LocationStrategies.PreferConsistent,
        ConsumerStrategies.Subscribe([told["topic"]], parameters, one),
        valueDecoder=int,
    )
    texts = KafkaUtils.createDirectStream(
        ssc,
        LocationStrategies.PreferConsistent,
        ConsumerStrategies.SubscribePattern(told["pattern"], parameters, rest),
        keyDecoder=bytes.decode,
    )
    output = Replacing if in_checkpoint else Moving
    numbers.foreachRDD(output(database, "numbers"))
    texts.foreachRDD(output(database, "texts"))
    # The offsets in the database are those of the output "numbers", so there this one is read and not stored.
    transformed = Replacing(database, "transformed") if in_checkpoint else read_only
    # A function, as PySpark's own streams take no other objects.
    numbers.transform(sometimes_failing).foreachRDD(lambda time, rdd: transformed(time, rdd))
    return ssc


def main() -> None:
    """Until it is killed; an error of a batch ends nothing, as the next one must go on."""
    given = json.loads(sys.argv[1])
    told = given["options"]
    with closing(connect(told["database"])) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(TABLES)
    if told["offsets"] == "checkpoint":
        ssc = StreamingContext.getOrCreate(str(Path(given["folder"]) / "checkpoint"), lambda: create(told))
    else:
        ssc = create(told)
    ssc.sparkContext.setLogLevel("ERROR")
    ssc.start()
    random.seed(told["seed"])
    os.environ[FAILING] = told["failing"]  # from now on: what is planned within start() would fail the start
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
