"""``python -m bench.log``: loading a million keys, and writing some, by this package, Python's clients and Java."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import log_peers, machine, topics
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.log_java import start_java
from bench.log_peers import LOG, TABLE, WAYS
from bench.log_writers import PRODUCE, PUT, SEND, WRITE_WAYS, write
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.summary import KAFKA_PYTHON, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Sample

GOAL = 10.0
"""Times kafka-python's records/s, of a load."""

WRITE_GOAL = 130_000
"""Records/s that are written: five times those of the first version."""

_WRITE_SHARE = 4  # a quarter of the records is written in each way

GoalResult = tuple[str, str, str, bool]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of the topic, one of each key (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each way (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    topic = topics.Topic(100, "none", chosen.records, padding=0, purpose="log")
    try:
        loads, writes, environment = measure(topic, chosen.rounds)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {
        "machine": environment,
        "series": [asdict(each) for each in loads],
        "writes": [asdict(each) for each in writes],
    }
    publish(chosen.output, "log", "Loading and writing a log", render(loads, writes), found)
    return 0


def measure(topic: topics.Topic, rounds: int) -> tuple[list[Series], list[Series], dict[str, Any]]:
    """Run all ways in turn, each round begun by another one; the first round is not counted.

    Raises:
        BenchError: One of them failed.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka

    environment = machine.describe(
        java="of the broker, and of Kafka Connect's KafkaBasedLog", kafka=KAFKA_VERSION, jars=()
    )
    written = replace(topic, records=topic.records // _WRITE_SHARE, purpose="log-writes")
    samples: dict[str, list[Sample]] = {way: [] for way in (*WAYS, *WRITE_WAYS)}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        say_to_stderr(f"Loading {topic.records:,} records of {topic.label}")
        log_peers.fill(topic, kafka.bootstrap_servers)
        make = partial(clients, Clients(kafka.bootstrap_servers, kafka.pids[1]))
        with Host(make, Path(scratch) / "clients.log") as host:
            host.call(_start_java)
            for number in range(rounds + 1):
                for way in turn(WAYS, number):
                    cost = host.call(log_peers.load, way, topic)
                    if number:
                        samples[way].append(cost)
                for way in turn(WRITE_WAYS, number):
                    target = replace(written, purpose=f"log-writes-{number}-{WRITE_WAYS.index(way)}")
                    log_peers.create(target, kafka.bootstrap_servers)
                    cost = host.call(write, way, target)
                    if number:
                        samples[way].append(cost)
                say_to_stderr(f"Round {number} of {rounds}")

    def series(way: str, measured: topics.Topic) -> Series:
        taken = tuple(samples[way])
        return Series(measured.label, "log", way, measured.records, measured.value_bytes, measured.codec, taken)

    loads, writes = [series(way, topic) for way in WAYS], [series(way, written) for way in WRITE_WAYS]
    return loads, writes, environment


def _start_java(_: Clients) -> None:
    start_java()


def render(loads: Sequence[Series], writes: Sequence[Series]) -> str:
    """The tables, as Markdown."""
    by_way = {each.peer: each for each in (*loads, *writes)}
    first = loads[0]
    lines = [
        f"{first.records:,} keys, {first.topic}, {len(first.samples)} runs each",
        "",
        "| way | seconds | M records/s | core-us/record | vs kafka-python |",
        "|---|---|---|---|---|",
    ]
    for each in loads:
        speed, times = each.records_per_second, _times(by_way, each.peer)
        lines.append(
            f"| {each.peer} | {each.seconds:.2f} | {speed / 1e6:.2f} | {each.core_us_per_record:.2f} | {times:.1f}x |"
        )
    lines += [
        "",
        f"{writes[0].records:,} records, one by one, until all are acknowledged",
        "",
        "| way | seconds | records/s | core-us/record | vs confluent-kafka |",
        "|---|---|---|---|---|",
    ]
    for each in writes:
        speed = each.records_per_second
        times = speed / by_way[PRODUCE].records_per_second
        lines.append(
            f"| {each.peer} | {each.seconds:.2f} | {speed:,.0f} | {each.core_us_per_record:.2f} | {times:.2f}x |"
        )
    lines += ["", "| goal | wanted | measured | reached |", "|---|---|---|---|"]
    for name, wanted, measured, reached in evaluate_goals(by_way):
        lines.append(f"| {name} | {wanted} | {measured} | {'yes' if reached else 'no'} |")
    return "\n".join(lines)


def evaluate_goals(by_way: dict[str, Series]) -> list[GoalResult]:
    """Hold what was measured against the goals: reported, never asserted."""
    goal_results = []
    for way in (TABLE, LOG):
        times = _times(by_way, way)
        goal_results.append((f"{way} against kafka-python", f">= {GOAL:.0f}x", f"{times:.1f}x", times >= GOAL))
    for way in (PUT, SEND):
        speed = by_way[way].records_per_second
        goal_results.append((way, f">= {WRITE_GOAL:,} records/s", f"{speed:,.0f}", speed >= WRITE_GOAL))
    return goal_results


def _times(by_way: dict[str, Series], way: str) -> float:
    return by_way[way].records_per_second / by_way[KAFKA_PYTHON].records_per_second


if __name__ == "__main__":
    sys.exit(main())
