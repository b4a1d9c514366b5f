"""``python -m bench``: measure, print the tables, write JSON, Markdown and a plot."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import latency, machine, memory, planning, results, spark_peers, topics
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.plot import draw
from bench.profiles import PROFILES, Profile, narrowed
from bench.report import render
from bench.results import Results
from bench.run import Hosts, run_cases, say_to_stderr
from bench.spark_peers import CONNECTOR_JARS, SparkSettings, spark
from bench.summary import OURS, PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
_KAFKA_VERSION = "4.3.0"
_CORES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 when a peer failed."""
    chosen = _parse(arguments)
    if chosen.render:
        found = results.read(chosen.render)
        return _publish(found, chosen.render.parent)
    peers = chosen.peers.split(",")
    profile = PROFILES[chosen.profile]()
    tried = (chosen.peers, chosen.scale, chosen.rounds) != (",".join(PEERS), 1.0, None)
    if tried:
        profile = narrowed(profile, peers=peers, scale=chosen.scale, rounds=chosen.rounds)
    folder = chosen.output or (Path(tempfile.gettempdir()) / "pyspark-kafka-direct-bench" if tried else RESULTS)
    try:
        found = measure(profile, peers)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    results.write(found, folder / f"{found.profile}.json")
    return _publish(found, folder)


def measure(profile: Profile, peers: list[str]) -> Results:
    """Run a profile.

    Raises:
        BenchError: The topics could not be loaded, or a process could not be started.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    started = time.monotonic()
    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=_KAFKA_VERSION, heap="1g", reuse_running=False) as kafka,
    ):
        broker_pid = kafka.pids[1]
        settings = SparkSettings(kafka.bootstrap_servers, connector, _CORES, broker_pid)
        make_spark = partial(spark, settings)
        make_clients = partial(clients, Clients(kafka.bootstrap_servers, broker_pid))
        with (
            Host(make_spark, Path(scratch) / "spark.log") as spark_host,
            Host(make_clients, Path(scratch) / "clients.log") as clients_host,
        ):
            java = spark_host.call(spark_peers.java_version)
            found = Results(
                profile=profile.name,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                machine=machine.describe(java=java, kafka=_KAFKA_VERSION, jars=CONNECTOR_JARS),
                rounds=profile.rounds,
            )
            for topic in profile.topics:
                say_to_stderr(f"Loading {topic.records:,} records of {topic.label}")
                found.load_seconds |= topics.load([topic], kafka.bootstrap_servers)
            found.series, found.failures = run_cases(profile, Hosts(spark_host, clients_host), say_to_stderr)
            say_to_stderr("First rows: show() and limit(10)")
            found.latencies = latency.measure(
                spark_host, clients_host, profile.latency_topic, profile.latency_rounds, peers
            )
            if profile.planning_partitions:
                say_to_stderr(f"Planning a topic of {profile.planning_partitions} partitions")
                planned = planning.planned_topic(profile.planning_partitions)
                topics.load([planned], kafka.bootstrap_servers)
                found.planning = planning.measure(spark_host, clients_host, planned, peers)
        if profile.memory_topic is not None and OURS in peers:
            say_to_stderr("Memory of a worker")
            with Host(make_spark, Path(scratch) / "memory.log") as fresh:
                found.memory = fresh.call(memory.measure, profile.memory_topic)
    found.minutes = (time.monotonic() - started) / 60
    return found


def _publish(found: Results, folder: Path) -> int:
    print(render(found))
    (folder / f"{found.profile}.md").write_text(render(found, markdown=True))
    draw(found, folder / f"{found.profile}.png")
    say_to_stderr(f"Written: {folder / found.profile}.json, .md and .png")
    return 1 if found.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare ways to read Kafka from Python.")
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="quick: minutes; full: an hour or two")
    parser.add_argument("--full", action="store_const", dest="profile", const="full", help="the same as --profile full")
    parser.add_argument("--output", type=Path, help="folder for the results (default: bench/results)")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only print and draw earlier results again")
    trying = parser.add_argument_group("for trying things out; results then go to a temporary folder")
    trying.add_argument("--peers", default=",".join(PEERS), help="only these, separated by commas (%(default)s)")
    trying.add_argument("--scale", type=float, default=1.0, help="of every number of records")
    trying.add_argument("--rounds", type=int, help="measured runs of each peer and case")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
