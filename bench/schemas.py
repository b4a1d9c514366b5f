"""``python -m bench.schemas``: flights as Avro and Protobuf with a schema registry, read and written.

The other peer is Spark's JVM connector with ``from_avro`` and ``to_avro``, which add and remove no headers with schema
ids: the queries do. Protobuf has no other peer, because Spark's jar for it could not be downloaded here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.fake_registry import FakeRegistry

from bench import machine, spark_peers
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.measure import Sample, sample
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr
from bench.schema_decoders import measure_decoders
from bench.schema_flights import (
    FEW_FIELDS,
    FIELDS,
    PREFIX,
    avro_datums,
    avro_schema,
    damaged,
    ddl,
    flights,
    proto_schema,
    protobuf_messages,
)
from bench.schema_report import ALL_FIELDS, ALL_MALFORMED, GROUPED, JOBS, PROTOBUF, SOME_MALFORMED, WRITTEN, render
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, FORMATS, Spark, SparkSettings, collect_garbage, spark
from bench.summary import JVM, OURS, Series
from bench.typed import COPIES, FlightsTopic, in_turn, load_flights
from bench.writers import TASKS, check, new_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

AVRO_JAR = "org.apache.spark:spark-avro_2.13:4.0.1"  # 4.2.0's is not published

_SHARES_MALFORMED = {SOME_MALFORMED: 0.01, ALL_MALFORMED: 1.0}
_CORES = 2
_WRITTEN_ROWS = 2_000_000
_POOL = 2000  # different rows that are written
_SUBJECT = "flights"
_PROTOBUF_SUBJECT = "flights-protobuf"
_FIRST_MESSAGE = b"\0"  # the message indexes


class Job(NamedTuple):
    """What a run needs to know. Pickled into the process with Spark."""

    name: str
    registry: str
    topic: FlightsTopic | None = None  # to read


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.schemas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each job (%(default)s)")
    parser.add_argument("--copies", type=int, default=COPIES, help="of all flights (%(default)s)")
    jobs = ", ".join(JOBS).replace("%", "%%")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS, metavar="JOB", help=jobs)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        series, environment = measure(chosen.jobs, chosen.rounds, chosen.copies)
        decoders = measure_decoders()
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": environment, "series": [asdict(each) for each in series], "decoders": decoders}
    publish(chosen.output, "schemas", "Avro and Protobuf", render(series, decoders), found)
    return 0


def measure(jobs: Sequence[str], rounds: int, copies: int) -> tuple[list[Series], dict[str, Any]]:
    """Run each job with its peers in turn."""
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    used_jars = (*CONNECTOR_JARS, AVRO_JAR)
    paths = tuple(str(jar) for jar in jars(used_jars, transitive=False))
    series: list[Series] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
        FakeRegistry() as registry,
    ):
        servers = kafka.bootstrap_servers
        if registry.add(_SUBJECT, avro_schema()).to_bytes(4, "big") != PREFIX[1:]:
            raise BenchError("the first schema has another id")
        protobuf_id = registry.add(_PROTOBUF_SUBJECT, proto_schema(), schemaType="PROTOBUF")
        values = {job: _values(job, protobuf_id) for job in jobs if job != WRITTEN}
        topics: dict[str, FlightsTopic] = {}
        with Host(partial(clients, Clients(servers, kafka.pids[1])), Path(scratch) / "load.log") as load:
            for number, job in enumerate(values):
                if job == ALL_FIELDS and GROUPED in topics:
                    topics[job] = topics[GROUPED]
                    continue
                say_to_stderr(f"Loading {len(values[job]) * copies:,} flights for {job}")
                topics[job] = load.call(load_flights, f"flights-{number}", values[job], copies)
        make_spark = partial(spark, SparkSettings(servers, paths, _CORES, kafka.pids[1]))
        with Host(make_spark, Path(scratch) / "spark.log") as host:
            environment = machine.describe(
                java=host.call(spark_peers.java_version), kafka=KAFKA_VERSION, jars=used_jars
            )
            for job in jobs:
                work = Job(job, registry.url, topics.get(job))
                samples = in_turn(host, (OURS,) if job == PROTOBUF else (JVM, OURS), rounds, _run, work)
                records = _WRITTEN_ROWS if job == WRITTEN else sum(topics[job].ends)
                written = values.get(job) or [PREFIX + datum for datum in avro_datums(flights(_POOL), avro_schema())]
                for peer, taken in samples.items():
                    mean = sum(map(len, written)) // len(written)
                    series.append(Series(job, job, peer, records, mean, "lz4", taken))
                    say_to_stderr(f"    {job}, {peer}: {series[-1].records_per_second / 1e6:.2f} M/s")
    return series, environment


def _values(job: str, protobuf_id: int) -> list[bytes]:
    """Return the values that a job reads, with Confluent's header."""
    if job == PROTOBUF:
        header = b"\0" + protobuf_id.to_bytes(4, "big") + _FIRST_MESSAGE
        return [header + message for message in protobuf_messages(flights())]
    share = _SHARES_MALFORMED.get(job, 0.0)
    datums = avro_datums(flights(), avro_schema())
    return [damaged(PREFIX + datum, number, share) for number, datum in enumerate(datums)]


def _run(spark: Spark, peer: str, job: Job) -> Sample:
    collect_garbage(spark)
    if job.topic is None:
        return _write(spark, peer, job)
    frame = _read(spark, peer, job, job.topic)
    _, cost = sample(lambda: _finish(frame, job.name), spark.settings.broker_pid)
    return cost


def _read(spark: Spark, peer: str, job: Job, topic: FlightsTopic) -> DataFrame:
    """Return the decoded column ``value``."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    reader = (
        spark.session.read.format(FORMATS[peer])
        .option("kafka.bootstrap.servers", spark.settings.bootstrap_servers)
        .option("subscribe", topic.name)
        .option("endingOffsets", json.dumps({topic.name: dict(enumerate(topic.ends))}))
    )
    mode = "PERMISSIVE" if job.name in _SHARES_MALFORMED else "FAILFAST"
    if peer == JVM:
        datum = expr("substring(value, 6)")  # after Confluent's header
        return reader.load().select(from_avro(datum, avro_schema(), {"mode": mode}).alias("value"))
    value = ddl(FEW_FIELDS if job.name == GROUPED else tuple(FIELDS))
    options = {
        "valueFormat": "protobuf" if job.name == PROTOBUF else "avro",
        "valueSubject": _PROTOBUF_SUBJECT if job.name == PROTOBUF else _SUBJECT,
        "schema.registry.url": job.registry,
        "mode": mode,
    }
    return reader.options(**options).schema(f"value {value}").load()


def _finish(frame: DataFrame, job: str) -> None:
    if job != GROUPED:
        frame.write.format("noop").mode("overwrite").save()
        return
    rows = frame.groupBy("value.origin", "value.carrier").avg("value.dep_delay").collect()
    if len(rows) < 30:
        raise BenchError(f"{len(rows)} groups, which is too few: the flights were not decoded")


def _write(spark: Spark, peer: str, job: Job) -> Sample:
    """Write structs as Avro with Confluent's header."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import concat, lit

    rows = _rows(spark)
    options = {"kafka.bootstrap.servers": spark.settings.bootstrap_servers, "kafka.compression.type": "lz4"}
    if peer == JVM:
        rows = rows.select(concat(lit(PREFIX), to_avro("value", avro_schema())).alias("value"))
    else:
        options |= {"valueFormat": "avro", "schema.registry.url": job.registry, "valueSubject": _SUBJECT}
    with new_topic(spark, TASKS) as topic:
        writer = rows.write.format(FORMATS[peer]).options(**options, topic=topic).mode("append")
        _, cost = sample(writer.save, spark.settings.broker_pid)
        check(spark, f"{peer} to {topic}", topic, TASKS, _WRITTEN_ROWS)
    return cost


def _rows(spark: Spark) -> DataFrame:
    """Return rows with the struct ``value``, which Spark picks from a list that it makes once."""
    from pyspark.sql.functions import col, element_at, from_json, lit

    pool = list(flights(_POOL))
    listed = from_json(lit(json.dumps(pool)), f"array<{ddl(FIELDS)}>")
    numbers = spark.session.range(0, _WRITTEN_ROWS, 1, TASKS)
    return numbers.select(element_at(listed, (col("id") % len(pool) + 1).cast("int")).alias("value"))


if __name__ == "__main__":
    sys.exit(main())
