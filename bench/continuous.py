"""``python -m bench.continuous``: copies records from topic to topic with Spark's JVM connector and with continuous
queries.

Measures latencies under a light load, then the throughput of a backlog.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import continuous_load, continuous_peers, machine, spark_peers, topics
from bench.client_peers import Clients, clients
from bench.continuous_load import PARTITIONS, Pace
from bench.continuous_peers import QueryRunner
from bench.continuous_summary import NO_QUERY, THROUGHPUT_WAYS, WAYS, Latencies, LatencySeries, render
from bench.errors import BenchError
from bench.host import Host
from bench.publish import RESULTS, publish
from bench.run import Failure, say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, SparkSettings
from bench.summary import Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.measure import Sample


@dataclass
class Measurements:
    machine: dict[str, Any] = field(default_factory=dict)
    latencies: list[LatencySeries] = field(default_factory=list)
    throughput: list[Series] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # reasons by way


@dataclass(frozen=True, slots=True)
class _Bench:
    """The processes of a benchmark."""

    servers: str
    spark: Host[QueryRunner]
    load: Host[Clients]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.continuous", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each way (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="measured seconds of each run (%(default)s)")
    parser.add_argument("--rate", type=int, default=1000, help="records per second (%(default)s)")
    parser.add_argument(
        "--records", type=int, default=3_000_000, help="records of the backlog; 0: no backlog (%(default)s)"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    args = parser.parse_args(arguments)
    pace = Pace(rate=args.rate, seconds=args.seconds)
    try:
        measurements = measure(args.ways, pace, args.rounds, args.records)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    text = render(measurements.latencies, measurements.throughput, args.rate, measurements.failures)
    publish(
        args.output,
        "continuous",
        "From topic to topic, record by record",
        text,
        asdict(measurements) | {"pace": asdict(pace)},
    )
    return 1 if measurements.failures else 0


def measure(ways: Sequence[str], pace: Pace, rounds: int, records: int) -> Measurements:
    """Measure all ways; a failed way is recorded and skipped."""
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        servers, broker = kafka.bootstrap_servers, kafka.pids[1]
        make_runner = partial(
            continuous_peers.query_runner, SparkSettings(servers, connector, cores=PARTITIONS, broker_pid=broker)
        )
        make_load = partial(clients, Clients(servers, broker))
        with (
            Host(make_runner, Path(scratch) / "spark.log") as spark,
            Host(make_load, Path(scratch) / "load.log") as load,
        ):
            bench = _Bench(servers, spark, load)
            measurements = Measurements(
                machine.describe(java=spark.call(_java_version), kafka=KAFKA_VERSION, jars=CONNECTOR_JARS)
            )
            _measure_latencies(bench, ways, pace, rounds, measurements)
            if records:
                _measure_throughput(
                    bench, [way for way in THROUGHPUT_WAYS if way in ways], records, rounds, measurements
                )
    return measurements


def _measure_latencies(bench: _Bench, ways: Sequence[str], pace: Pace, rounds: int, measurements: Measurements) -> None:
    """Run the ways alternately, with another first way in each round; the first round does not count."""
    runs_by_way: dict[str, list[Latencies]] = {way: [] for way in (NO_QUERY, *ways)}
    for number in range(rounds + 1):
        for way in turn(list(runs_by_way), number):
            try:
                run = _latencies(bench, way, pace)
            except BenchError as error:
                _record_failure(measurements, way, error)
                del runs_by_way[way]
                continue
            say_to_stderr(f"    {way:32s} p50 {run.p50:8.1f}  p99 {run.p99:8.1f}  p99.9 {run.p999:8.1f} ms")
            if number:
                runs_by_way[way].append(run)
        say_to_stderr(f"Latencies: round {number} of {rounds}")
    measurements.latencies = [LatencySeries(way, tuple(runs)) for way, runs in runs_by_way.items() if runs]


def _latencies(bench: _Bench, way: str, pace: Pace) -> Latencies:
    with _topics(bench.servers, "source", "target") as (source, target):
        if way == NO_QUERY:
            return bench.load.call(continuous_load.measure, source, source, pace)
        try:
            bench.spark.call(QueryRunner.start, way, source, target)
            run = bench.load.call(continuous_load.measure, source, target, pace)
            bench.spark.call(QueryRunner.raise_if_failed)
            return run
        finally:
            bench.spark.call(QueryRunner.stop)


def _measure_throughput(
    bench: _Bench, ways: Sequence[str], records: int, rounds: int, measurements: Measurements
) -> None:
    topic = topics.Topic(100, "none", records, partitions=PARTITIONS, padding=0, purpose="backlog")
    say_to_stderr(f"Loading {topic.records:,} records of {topic.label}")
    topics.load([topic], bench.servers)
    runs_by_way: dict[str, list[Sample]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in turn(list(runs_by_way), number):
            try:
                with _topics(bench.servers, "copy") as (target,):
                    cost = bench.spark.call(continuous_peers.copy_backlog, way, topic.name, target, records)
            except BenchError as error:
                _record_failure(measurements, f"{way}, backlog", error)
                del runs_by_way[way]
                continue
            say_to_stderr(f"    {way:32s} {records / cost.seconds / 1e6:6.3f} M records/s")
            if number:
                runs_by_way[way].append(cost)
        say_to_stderr(f"Backlog: round {number} of {rounds}")
    measurements.throughput = [
        Series(topic.label, "topic", way, records, topic.value_bytes, topic.codec, tuple(samples))
        for way, samples in runs_by_way.items()
        if samples
    ]


@contextmanager
def _topics(servers: str, *purposes: str) -> Iterator[list[str]]:
    """Create topics for one run."""
    names = [f"bench-{purpose}-{uuid.uuid4().hex[:8]}" for purpose in purposes]
    continuous_load.create_topics(servers, names)
    try:
        yield names
    finally:
        continuous_load.delete_topics(servers, names)


def _record_failure(measurements: Measurements, way: str, error: BenchError) -> None:
    measurements.failures[way] = Failure("", "", way, str(error)).reason
    say_to_stderr(f"    {way} failed: {error}")


def _java_version(runner: QueryRunner) -> str:
    return spark_peers.java_version(runner.spark)


if __name__ == "__main__":
    sys.exit(main())
