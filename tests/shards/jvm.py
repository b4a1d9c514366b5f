"""Shortens the start of the JVMs of the tests: dozens of brokers and Sparks, which run for seconds or minutes.

A single JIT compiler and the serial garbage collector save half of the CPU time of a start. Class archives save another
quarter: a JVM writes its loaded classes to a file when it exits, and later JVMs map that file. The archives are in the
virtual environment; ``make`` creates them with:

    python -m tests.shards.jvm

A JVM with another class path or another Java version ignores an archive. The tests also run without archives.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.prefix) / "java-classes"

_ONE_COMPILER = "-XX:TieredStopAtLevel=1"
# Without native Hadoop, Spark runs chmod and readlink for each checkpoint file; VFORK starts them without a helper.
_PLAIN = f"{_ONE_COMPILER} -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
_QUIET = "-Xlog:disable"  # otherwise an ignored archive causes a warning on standard output
_KAFKA, _SPARK = FOLDER / "kafka.jsa", FOLDER / "spark.jsa"
# The JVMs that read each variable: all JVMs; Spark's drivers; its masters and workers, whose command line overrides it.
_ALL, _DRIVERS, _DAEMONS = "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"


def start_quickly() -> None:
    """Set the environment for JVMs that this process and its children start."""
    _add(_ALL, _PLAIN)
    for variable, archive in ((_ALL, _KAFKA), (_DRIVERS, _SPARK), (_DAEMONS, _SPARK)):
        if archive.exists():
            _add(variable, _use(archive))


def executor_options() -> str:
    """Return the options for the JVMs of Spark's executors, which have no such variable."""
    return _use(_SPARK) if _SPARK.exists() else ""


def for_long_work(options: str) -> str:
    """Return the options of ``start_quickly`` for long computations, which need the optimizing compiler."""
    return options.replace(_ONE_COMPILER, "")


def main() -> None:
    """Create the archives; a JVM writes its archive when it exits normally."""
    FOLDER.mkdir(exist_ok=True)
    for archive in (_KAFKA, _SPARK):
        archive.unlink(missing_ok=True)
    start_quickly()
    plain = os.environ[_ALL]
    _add(_ALL, f"-XX:ArchiveClassesAtExit={_KAFKA} {_QUIET}")
    _run_kafka()
    os.environ[_ALL] = plain
    _add(_DRIVERS, f"-XX:ArchiveClassesAtExit={_SPARK} {_QUIET}")
    _run_spark()


def _run_kafka() -> None:
    from confluent_kafka import Producer
    from tests.conftest import NewTopics

    from pyspark_kafka_direct.broker import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        topic = NewTopics(kafka.bootstrap_servers)()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce(topic, b"value")
        producer.flush(60)
        kafka.stop_broker(1)


def _run_spark() -> None:
    from tests.integration.sessions import SparkSessions

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        sessions = SparkSessions(Path(folder))
        spark = sessions()
        spark.sparkContext.parallelize(range(10), 2).map(str).collect()
        spark.range(10).groupBy("id").count().write.parquet(f"{folder}/written")
        stream = spark.readStream.schema("id long, count long").parquet(f"{folder}/written")
        writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination(120)
        sessions.stop_jvm()


def _use(archive: Path) -> str:
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def _add(variable: str, options: str) -> None:
    os.environ[variable] = f"{os.environ.get(variable, '')} {options}".strip()


if __name__ == "__main__":
    main()
