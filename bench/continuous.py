"""``python -m bench.continuous``: from topic to topic, by Spark's JVM connector and the continuous runner.

First latencies under a light load, by all ways in turn, then how fast a backlog is copied.
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
from bench.continuous_peers import Runner
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
class Found:
    """What was measured.

    Attributes:
        machine: On which.
        latencies: Of each way.
        throughput: Of each way.
        failures: Why one failed, by its name.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    latencies: list[LatencySeries] = field(default_factory=list)
    throughput: list[Series] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Bench:
    """The processes of a benchmark."""

    servers: str
    spark: Host[Runner]
    load: Host[Clients]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.continuous", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each way (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="measured of each run (%(default)s)")
    parser.add_argument("--rate", type=int, default=1000, help="records a second (%(default)s)")
    parser.add_argument("--records", type=int, default=3_000_000, help="of the backlog; 0: none (%(default)s)")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    pace = Pace(rate=chosen.rate, seconds=chosen.seconds)
    try:
        found = measure(chosen.ways, pace, chosen.rounds, chosen.records)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    text = render(found.latencies, found.throughput, chosen.rate, found.failures)
    publish(
        chosen.output,
        "continuous",
        "From topic to topic, record by record",
        text,
        asdict(found) | {"pace": asdict(pace)},
    )
    return 1 if found.failures else 0


def measure(ways: Sequence[str], pace: Pace, rounds: int, records: int) -> Found:
    """Run all ways; what fails is named and left out, the others go on.

    Raises:
        BenchError: The topics could not be loaded, or a process could not be started.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g", reuse_running=False) as kafka,
    ):
        servers, broker = kafka.bootstrap_servers, kafka.pids[1]
        make_runner = partial(
            continuous_peers.runner, SparkSettings(servers, connector, cores=PARTITIONS, broker_pid=broker)
        )
        make_load = partial(clients, Clients(servers, broker))
        with (
            Host(make_runner, Path(scratch) / "spark.log") as spark,
            Host(make_load, Path(scratch) / "load.log") as load,
        ):
            bench = _Bench(servers, spark, load)
            found = Found(machine.describe(java=spark.call(_java_version), kafka=KAFKA_VERSION, jars=CONNECTOR_JARS))
            _measure_latencies(bench, ways, pace, rounds, found)
            if records:
                _measure_throughput(bench, [way for way in THROUGHPUT_WAYS if way in ways], records, rounds, found)
    return found


def _measure_latencies(bench: _Bench, ways: Sequence[str], pace: Pace, rounds: int, found: Found) -> None:
    """Run the ways in turn, each round begun by another one; the first round is not counted."""
    taken: dict[str, list[Latencies]] = {way: [] for way in (NO_QUERY, *ways)}
    for number in range(rounds + 1):
        for way in turn(list(taken), number):
            try:
                run = _latencies(bench, way, pace)
            except BenchError as error:
                _name(found, way, error)
                del taken[way]
                continue
            say_to_stderr(f"    {way:32s} p50 {run.p50:8.1f}  p99 {run.p99:8.1f}  p99.9 {run.p999:8.1f} ms")
            if number:
                taken[way].append(run)
        say_to_stderr(f"Latencies: round {number} of {rounds}")
    found.latencies = [LatencySeries(way, tuple(runs)) for way, runs in taken.items() if runs]


def _latencies(bench: _Bench, way: str, pace: Pace) -> Latencies:
    with _topics(bench.servers, "source", "target") as (source, target):
        if way == NO_QUERY:
            return bench.load.call(continuous_load.measure, source, source, pace)
        try:
            bench.spark.call(Runner.begin, way, source, target)
            run = bench.load.call(continuous_load.measure, source, target, pace)
            bench.spark.call(Runner.check)
            return run
        finally:
            bench.spark.call(Runner.end)


def _measure_throughput(bench: _Bench, ways: Sequence[str], records: int, rounds: int, found: Found) -> None:
    topic = topics.Topic(100, "none", records, partitions=PARTITIONS, padding=0, purpose="backlog")
    say_to_stderr(f"Loading {topic.records:,} records of {topic.label}")
    topics.load([topic], bench.servers)
    taken: dict[str, list[Sample]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in turn(list(taken), number):
            try:
                with _topics(bench.servers, "copy") as (target,):
                    cost = bench.spark.call(continuous_peers.copy_backlog, way, topic.name, target, records)
            except BenchError as error:
                _name(found, f"{way}, backlog", error)
                del taken[way]
                continue
            say_to_stderr(f"    {way:32s} {records / cost.seconds / 1e6:6.3f} M records/s")
            if number:
                taken[way].append(cost)
        say_to_stderr(f"Backlog: round {number} of {rounds}")
    found.throughput = [
        Series(topic.label, "topic", way, records, topic.value_bytes, topic.codec, tuple(samples))
        for way, samples in taken.items()
        if samples
    ]


@contextmanager
def _topics(servers: str, *purposes: str) -> Iterator[list[str]]:
    """Topics that are there for one run."""
    names = [f"bench-{purpose}-{uuid.uuid4().hex[:8]}" for purpose in purposes]
    continuous_load.create_topics(servers, names)
    try:
        yield names
    finally:
        continuous_load.delete_topics(servers, names)


def _name(found: Found, what: str, error: BenchError) -> None:
    found.failures[what] = Failure("", "", what, str(error)).reason
    say_to_stderr(f"    {what} failed: {error}")


def _java_version(runner: Runner) -> str:
    return spark_peers.java_version(runner.spark)


if __name__ == "__main__":
    sys.exit(main())
