"""``python -m bench.rdd``: KafkaRDD against the other ways to records in Python functions, and planning its batches."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import machine, rdd_peers, rdd_planning, spark_peers, topics
from bench.errors import BenchError
from bench.host import Host
from bench.publish import RESULTS, publish
from bench.rdd_peers import ARROW, ARROW_VALUE, JVM_ARROW, JVM_ROWS, KAFKA_PYTHON, RECORDS, WAYS
from bench.run import say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, SparkSettings, spark
from bench.summary import Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.rdd_planning import BatchPlanning

PLANNED_PARTITIONS = 100
_CORES = 2

GoalResult = tuple[str, str, str, bool]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.rdd", description=__doc__)
    parser.add_argument("--records", type=int, default=6_000_000, help="of the topic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each way (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    topic = topics.Topic(100, "none", chosen.records, purpose="rdd")
    try:
        series, planning, environment = measure(topic, chosen.rounds)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": environment, "series": [asdict(each) for each in series], "planning": asdict(planning)}
    publish(chosen.output, "rdd", "KafkaRDD", render(series, planning), found)
    return 0


def measure(topic: topics.Topic, rounds: int) -> tuple[list[Series], BatchPlanning, dict[str, Any]]:
    """Run all ways in turn, each round begun by another one; the first round is not counted.

    Raises:
        BenchError: One of them failed.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    planned = topics.Topic(100, "none", PLANNED_PARTITIONS, PLANNED_PARTITIONS, padding=0, purpose="rdd-planning")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        servers = kafka.bootstrap_servers
        say_to_stderr(f"Loading {topic.records:,} records of {topic.label}")
        topics.load([topic, planned], servers)
        with Host(rdd_planning.local_cluster, Path(scratch) / "planning.log") as host:
            planning = host.call(rdd_planning.plan, planned, servers)
        make_spark = partial(spark, SparkSettings(servers, connector, _CORES, kafka.pids[1]))
        with Host(make_spark, Path(scratch) / "spark.log") as host:
            environment = machine.describe(
                java=host.call(spark_peers.java_version), kafka=KAFKA_VERSION, jars=CONNECTOR_JARS
            )
            samples: dict[str, list[Any]] = {way: [] for way in WAYS}
            for number in range(rounds + 1):
                for way in turn(WAYS, number):
                    cost = host.call(rdd_peers.read, way, topic)
                    if number:
                        samples[way].append(cost)
                say_to_stderr(f"Round {number} of {rounds}")
    series = [
        Series(topic.label, "rdd", way, rdd_peers.records(way, topic), topic.value_bytes, topic.codec, tuple(taken))
        for way, taken in samples.items()
    ]
    return series, planning, environment


def render(series: Sequence[Series], planning: BatchPlanning) -> str:
    """The tables, as Markdown."""
    by_way = {each.peer: each for each in series}
    lines = [
        f"{series[0].topic}, {_CORES} cores, {len(series[0].samples)} runs each",
        "",
        "| way | M records/s | core-us/record | vs JVM, df.rdd | vs kafka-python |",
        "|---|---|---|---|---|",
    ]
    for each in series:
        speed = each.records_per_second
        against = [speed / by_way[other].records_per_second for other in (JVM_ROWS, KAFKA_PYTHON)]
        cost = each.core_us_per_record
        lines.append(
            f"| {each.peer} | {speed / 1e6:.2f} | {cost:.2f} | "
            + " | ".join(f"{times:.1f}x" for times in against)
            + " |"
        )
    lines += [
        "",
        f"Planning a batch of {planning.partitions} partitions on {rdd_planning.MASTER}: ends of the logs "
        f"{planning.ends * 1000:.0f} ms, preferred hosts and RDD {planning.rdd * 1000:.0f} ms.",
        "",
        "| goal | wanted | measured | reached |",
        "|---|---|---|---|",
    ]
    for name, wanted, measured, reached in evaluate_goals(by_way, planning):
        lines.append(f"| {name} | {wanted} | {measured} | {'yes' if reached else 'no'} |")
    return "\n".join(lines)


def evaluate_goals(by_way: dict[str, Series], planning: BatchPlanning) -> list[GoalResult]:
    """Hold what was measured against the goals: reported, never asserted."""
    fast = max(by_way[way].records_per_second for way in (ARROW, ARROW_VALUE))
    times = by_way[RECORDS].records_per_second / by_way[KAFKA_PYTHON].records_per_second
    against_jvm = fast / by_way[JVM_ARROW].records_per_second
    return [
        ("Arrow batches, 100 B", ">= 4 M records/s", f"{fast / 1e6:.2f} M", fast >= 4e6),
        ("Arrow batches against the JVM source and mapInArrow", ">= 2x", f"{against_jvm:.1f}x", against_jvm >= 2),
        ("record objects against kafka-python", ">= 2x", f"{times:.1f}x", times >= 2),
        (
            f"planning {planning.partitions} partitions, preferred hosts included",
            "< 60 ms",
            f"{planning.seconds * 1000:.0f} ms",
            planning.seconds < 0.06,
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
