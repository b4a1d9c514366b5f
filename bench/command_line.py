"""``python -m bench.command_line``: how long the command kafka-direct takes, in ratios to Python's start and to kcat.

All commands of a case run in turn in each round. The result is the median of the ratios of these pairs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError
from pyspark_kafka_direct.broker import EmbeddedKafka

_TOPIC: Final = "bench-command-line"
_PROGRAM: Final = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"
_COMMAND: Final = (sys.executable, "-c", _PROGRAM)


class Case(NamedTuple):
    """Two commands, and how much longer ours may take."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    goal: float


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 bytes, for consume --json")
    arguments = parser.parse_args()
    kcat = shutil.which("kcat")
    if kcat is None:
        raise BenchError("kcat is missing; install it, such as with apt-get install kcat")
    with EmbeddedKafka() as kafka:
        _fill(kafka.bootstrap_servers, arguments.records)
        print("| case | ours, s | other, s | ratio | goal |\n|---|---|---|---|---|")
        for case in _cases(kcat, kafka.bootstrap_servers, arguments.records):
            _measure(case, arguments.rounds)


def _cases(kcat: str, servers: str, records: int) -> list[Case]:
    python = (sys.executable, "-c", "pass")
    consume = (*_COMMAND, "consume", _TOPIC, "-b", servers)
    kcat_consume = (kcat, "-q", "-C", "-t", _TOPIC, "-b", servers, "-o", "beginning")
    return [
        Case("--help, to python -c pass", (*_COMMAND, "--help"), python, 3),
        Case("consume -n 10, to kcat", (*consume, "-n", "10"), (*kcat_consume, "-c", "10"), 10),
        Case("python -c pass, to kcat", python, (*kcat_consume, "-c", "10"), 10),
        Case(f"consume --json of {records:,} records, to kcat -J", (*consume, "-e", "--json"),
             (*kcat_consume, "-e", "-J"), 1),
    ]  # fmt: skip


def _measure(case: Case, rounds: int) -> None:
    pairs = []
    for number in range(rounds + 1):
        runs = [partial(_seconds, case.ours), partial(_seconds, case.theirs)]
        if number % 2:  # neither one always runs behind the other
            theirs, ours = runs[1](), runs[0]()
        else:
            ours, theirs = runs[0](), runs[1]()
        if number:  # the first round warms caches
            pairs.append((ours, theirs))
    ours, theirs = (median(times) for times in zip(*pairs, strict=True))
    ratio = median(ours / theirs for ours, theirs in pairs)
    print(f"| {case.name} | {ours:.3f} | {theirs:.3f} | {ratio:.2f} | {case.goal:g} |", flush=True)


def _seconds(command: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    return time.perf_counter() - started


def _fill(servers: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(_TOPIC, 2, 1)])[_TOPIC].result(60)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2_000_000, "linger.ms": 50})
    for number in range(records):
        producer.produce(_TOPIC, b"%0100d" % number, partition=number % 2)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise BenchError("The broker did not acknowledge all records; run it again")


if __name__ == "__main__":
    main()
