"""Spark as a peer: its JVM connector and this package's data source, in one session, into the same sinks."""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import Sample, sample
from bench.summary import EXACTLY_ONCE, JVM, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from bench.topics import Topic

CONNECTOR_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # 4.2.0's is not published
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)

NOOP = "noop"
VALUE = "value"
AGGREGATE = "aggregate"
MAP_IN_ARROW = "mapInArrow"
SINKS = (NOOP, VALUE, AGGREGATE, MAP_IN_ARROW)
TLS = "tls"  # no sink of its own, but what NOOP is over another listener
SINK_LABELS = {
    NOOP: "all columns to noop",
    VALUE: "value to noop",
    AGGREGATE: "sum(length(value)), max(offset)",
    MAP_IN_ARROW: "mapInArrow on value",
    TLS: "all columns to noop, over TLS",
}

FORMATS = {JVM: "kafka", OURS: "kafka-direct", EXACTLY_ONCE: "kafka-direct"}
# The columns a sink needs, as a user of kafka-direct asks for them: with .schema(...). None: all of them.
_COLUMNS = {
    NOOP: None,
    VALUE: "value binary",
    AGGREGATE: "value binary, offset long",
    MAP_IN_ARROW: "value binary",
    TLS: None,
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to start the session.

    Attributes:
        jars: Paths of the JVM connector's jars.
        broker_pid: Whose processor time is told apart.
        staging: Folder for what an exactly-once sink stages, as a URI.
        tls_servers: The broker's listener with TLS.
        truststore: File of the authority that signed the broker's certificate, as PEM.
        daemon: Module of the daemon that forks Python workers, if not PySpark's.
    """

    bootstrap_servers: str
    jars: tuple[str, ...]
    cores: int = 2
    broker_pid: int | None = None
    staging: str = ""
    tls_servers: str = ""
    truststore: str = ""
    daemon: str = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Spark:
    """A running session and the broker it reads from."""

    session: SparkSession
    settings: SparkSettings


@contextmanager
def spark(settings: SparkSettings) -> Iterator[Spark]:
    """Start a Spark session with Spark's own defaults but for the jars, a 2 GB driver and no UI."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.captureWarnings(True)
    session = (
        SparkSession.builder.master(f"local[{settings.cores}]")
        .appName("pyspark-kafka-direct benchmark")
        .config("spark.jars", ",".join(settings.jars))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.daemon.module", settings.daemon)
        .getOrCreate()
    )
    try:
        yield Spark(session, settings)
    finally:
        session.stop()


def read(spark: Spark, peer: str, topic: Topic, sink: str) -> Sample:
    """Read a topic into a sink and say what it cost.

    Raises:
        BenchError: The sink saw something else than what was loaded.
    """
    collect_garbage(spark)  # so that no run pays for what another one left behind
    seen, cost = sample(lambda: _SINKS[sink](frame(spark, peer, topic, sink)), spark.settings.broker_pid)
    expected = {
        AGGREGATE: (topic.total_bytes, topic.until_offset - 1),
        MAP_IN_ARROW: (topic.records, topic.total_bytes),
    }
    if sink in expected and seen != expected[sink]:
        raise BenchError(f"{peer} into {sink} from {topic.name}: got {seen}, not {expected[sink]}")
    return cost


def frame(spark: Spark, peer: str, topic: Topic, sink: str = NOOP) -> DataFrame:
    """Return the data frame of what is to be read of a topic, with the columns that a sink needs."""
    ends = {topic.name: dict.fromkeys(map(str, range(topic.partitions)), topic.until_offset)}
    columns = _COLUMNS[sink]
    reader = (
        spark.session.read.format(FORMATS[peer])
        .options(**_way_in(spark.settings, sink))
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps(ends) if topic.padding else "latest")
    )
    if columns is None:
        return reader.load()
    if peer == OURS:
        return reader.schema(columns).load()
    return reader.load().select(*[column.split()[0] for column in columns.split(", ")])


def collect_garbage(spark: Spark) -> None:
    """Have Spark's JVM collect its garbage now."""
    jvm: Any = spark.session.sparkContext._jvm
    jvm.System.gc()


def java_version(spark: Spark) -> str:
    """Return the version of the Java that runs Spark."""
    jvm: Any = spark.session.sparkContext._jvm
    return f"{jvm.System.getProperty('java.vm.vendor')} {jvm.System.getProperty('java.version')}"


def _way_in(settings: SparkSettings, sink: str) -> dict[str, str]:
    if sink != TLS:
        return {"kafka.bootstrap.servers": settings.bootstrap_servers}
    return {
        "kafka.bootstrap.servers": settings.tls_servers,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": settings.truststore,
    }


def _to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregate(frame: DataFrame) -> tuple[int, int]:
    row = frame.selectExpr("sum(length(value))", "max(offset)").collect()[0]
    return row[0], row[1]


def _map_in_arrow(frame: DataFrame) -> tuple[int, int]:
    # Nested, so that it is pickled as a whole: Spark's Python workers need not find this package.
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = length = 0
        for batch in batches:
            rows += batch.num_rows
            length += pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
        yield pa.RecordBatch.from_pydict({"rows": [rows], "length": [length]})

    row = frame.mapInArrow(count, "rows long, length long").selectExpr("sum(rows)", "sum(length)").collect()[0]
    return row[0], row[1]


_SINKS: dict[str, Callable[[DataFrame], tuple[int, int] | None]] = {
    NOOP: _to_noop,
    VALUE: _to_noop,
    AGGREGATE: _aggregate,
    MAP_IN_ARROW: _map_in_arrow,
    TLS: _to_noop,
}
