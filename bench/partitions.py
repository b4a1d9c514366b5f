"""``python -m bench.partitions``: a batch query over few and many partitions, each read to the end of its log."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import machine, spark_peers, topics
from bench.errors import BenchError
from bench.host import Host
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, NOOP, SparkSettings, read, spark
from bench.summary import JVM, OURS, PEER_LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = (2, 100, 1000)
_RECORDS = 10  # of each partition
_CORES = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """How long a peer took for a whole topic.

    Attributes:
        seconds: Of each run that counts.
    """

    partitions: int
    peer: str
    seconds: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.partitions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        readings, environment = measure(chosen.rounds)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": environment, "readings": [asdict(each) for each in readings]}
    publish(chosen.output, "partitions", "Few partitions and many", render(readings), found)
    return 0


def measure(rounds: int) -> tuple[list[Reading], dict[str, Any]]:
    """Run both in turn, each round begun by the other one; the first round is not counted.

    Raises:
        BenchError: One of them failed.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    wanted = [
        topics.Topic(100, "none", _RECORDS * count, count, 0, purpose=f"partitions-{count}") for count in PARTITIONS
    ]
    seconds: dict[tuple[int, str], list[float]] = {(count, peer): [] for count in PARTITIONS for peer in (JVM, OURS)}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        say_to_stderr(f"Loading topics of {', '.join(map(str, PARTITIONS))} partitions")
        topics.load(wanted, kafka.bootstrap_servers)
        make_spark = partial(spark, SparkSettings(kafka.bootstrap_servers, connector, _CORES, kafka.pids[1]))
        with Host(make_spark, Path(scratch) / "spark.log") as host:
            environment = machine.describe(
                java=host.call(spark_peers.java_version), kafka=KAFKA_VERSION, jars=CONNECTOR_JARS
            )
            for topic in wanted:
                for number in range(rounds + 1):
                    for peer in turn([JVM, OURS], number):
                        took = host.call(read, peer, topic, NOOP).seconds
                        if number:
                            seconds[topic.partitions, peer].append(took)
                    say_to_stderr(f"{topic.partitions} partitions: round {number} of {rounds}")
    return [Reading(count, peer, tuple(taken)) for (count, peer), taken in seconds.items()], environment


def render(readings: Sequence[Reading]) -> str:
    """The table, as Markdown."""
    rounds = len(readings[0].seconds)
    took = {(each.partitions, each.peer): median(each.seconds) for each in readings}
    lines = [
        f"A batch query to noop over topics with {_RECORDS} records of 100 B in each partition, read to the end; "
        f"{_CORES} cores, " + (f"median of {rounds} runs." if rounds > 1 else "one run each after one to warm up."),
        "",
        f"| partitions | {PEER_LABELS[JVM]} | {PEER_LABELS[OURS]} | times as fast |",
        "|---|---|---|---|",
    ]
    for count in dict.fromkeys(each.partitions for each in readings):
        theirs, own = took[count, JVM], took[count, OURS]
        lines.append(f"| {count:,} | {theirs:.2f} s | {own:.2f} s | {theirs / own:.0f}x |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
