"""``python -m bench.arrow``: a slice of a topic as Arrow without Spark, against other clients and a batch query.

kafkarrow is optional (``pip install kafkarrow``); without it, its lines are missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import client_peers, log_peers, machine, spark_peers, topics
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.log_writers import PRODUCE, produce_all
from bench.measure import Sample, sample
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.spark_peers import NOOP, SparkSettings, spark
from bench.summary import CONFLUENT, KAFKARROW, OURS, PEER_LABELS, READ_ARROW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.spark_peers import Spark
    from bench.topics import Topic

READ, WRITE, START, PARTITIONS = (
    "read 100 B, all columns",
    "write 100 B",
    "start to the first batch",
    "1,000 partitions",
)
WRITE_ARROW = "kafka-direct, write_arrow"
IMPORT = 'python -c "import pyarrow"'
FIRST_BATCH = "python -c, read_arrow"
BATCH_QUERY = f"{PEER_LABELS[OURS]}, batch query"
CASES = {
    READ: (READ_ARROW, KAFKARROW, CONFLUENT),
    WRITE: (WRITE_ARROW, PRODUCE),
    START: (FIRST_BATCH, IMPORT),
    PARTITIONS: (READ_ARROW, BATCH_QUERY),
}
"""The ways of each case; the first one is ours."""

# A case, the other way, what is compared (seconds or processor time per record), and the bound of ours to theirs.
GOALS = (
    (READ, KAFKARROW, "processor time per record", 0.2),
    (READ, KAFKARROW, "time", 1 / 10),
    (START, IMPORT, "time", 3.0),
    (WRITE, PRODUCE, "time", 1 / 5),
    (PARTITIONS, BATCH_QUERY, "time", 0.7),
)

_SHARE = {CONFLUENT: 0.25, PRODUCE: 0.25}  # of the records that the others read or write
_MANY, _EACH = 1000, 10  # partitions, and records of each
_CORES = 2
_DIFFERENT = 10_000  # values
_START_DEADLINE = 60.0

_FIRST_BATCH_CODE = """
from pyspark_kafka_direct import read_arrow
print(read_arrow({topic!r}, {{"bootstrap.servers": {servers!r}}}).read_next_batch().num_rows, flush=True)
"""
_IMPORT_CODE = "import pyarrow; print(1, flush=True)"

GoalResult = tuple[str, str, str, bool]


@dataclass(frozen=True, slots=True)
class Way:
    """All measured runs of one way in one case.

    Attributes:
        records: Of each run.
    """

    case: str
    name: str
    records: int
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        """Median time of a run."""
        return median(sample.seconds for sample in self.samples)

    def cost(self, what: str) -> float:
        """Return the median seconds or microseconds of processor time per record."""
        taken = (each.seconds if what == "time" else each.cpu_seconds for each in self.samples)
        return median(taken) / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Hosts:
    """The processes in which ways run, the broker, and the topics."""

    spark: Host[Spark]
    clients: Host[Clients]
    servers: str
    topic: Topic
    many: Topic


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.arrow", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="of the topic that is read (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each way (%(default)s)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="only these")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    topic = topics.Topic(100, "none", chosen.records, padding=0, purpose="arrow")
    try:
        ways, environment = measure(topic, {name: CASES[name] for name in chosen.cases}, chosen.rounds)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": environment, "ways": [asdict(each) for each in ways]}
    publish(chosen.output, "arrow", "A slice of a topic as Arrow", render(ways), found)
    return 0


def measure(topic: Topic, cases: Mapping[str, tuple[str, ...]], rounds: int) -> tuple[list[Way], dict[str, Any]]:
    """Run the ways of each case in turn, each round begun by another one; the first round is not counted.

    Raises:
        BenchError: One of them failed.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka

    if not client_peers.is_installed(KAFKARROW):
        say_to_stderr("kafkarrow is not installed in this environment, so its lines are missing: pip install kafkarrow")
    many = topics.Topic(100, "none", _MANY * _EACH, _MANY, 0, purpose="arrow-partitions")
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        say_to_stderr(f"Loading {topic.records:,} records, and {many.partitions:,} partitions")
        topics.load([topic, many], kafka.bootstrap_servers)
        make_spark = partial(spark, SparkSettings(kafka.bootstrap_servers, (), _CORES, kafka.pids[1]))
        make_clients = partial(clients, Clients(kafka.bootstrap_servers, kafka.pids[1]))
        with (
            Host(make_spark, Path(scratch) / "spark.log") as spark_host,
            Host(make_clients, Path(scratch) / "clients.log") as clients_host,
        ):
            environment = machine.describe(java=spark_host.call(spark_peers.java_version), kafka=KAFKA_VERSION, jars=())
            hosts = Hosts(spark_host, clients_host, kafka.bootstrap_servers, topic, many)
            for case, names in cases.items():
                found += _run_case(case, [name for name in names if client_peers.is_installed(name)], hosts, rounds)
    return found, environment


def _run_case(case: str, names: Sequence[str], hosts: Hosts, rounds: int) -> list[Way]:
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in turn(names, number):
            cost = _RUNS[case](hosts, name)
            if number:
                samples[name].append(cost)
        say_to_stderr(f"{case}: round {number} of {rounds}")
    return [Way(case, name, _records(case, name, hosts), tuple(taken)) for name, taken in samples.items()]


def _records(case: str, name: str, hosts: Hosts) -> int:
    if case == START:
        return 1
    if case == PARTITIONS:
        return hosts.many.records
    partitions = hosts.topic.partitions
    return int(hosts.topic.records * _SHARE.get(name, 1.0)) // partitions * partitions


def _read(hosts: Hosts, name: str) -> Sample:
    return hosts.clients.call(client_peers.read, name, hosts.topic, _records(READ, name, hosts))


def _write(hosts: Hosts, name: str) -> Sample:
    target = replace(hosts.topic, records=_records(WRITE, name, hosts), purpose=f"arrow-written-{time.monotonic_ns()}")
    log_peers.create(target, hosts.servers, cleanup_policy="delete")
    return hosts.clients.call(write, name, target)


def write(clients: Clients, way: str, topic: Topic) -> Sample:
    """Write as many records as the topic is to have, which are in memory, and say what it cost.

    Raises:
        BenchError: A broker did not take all records.
    """
    pool = topics.values(topic.value_bytes, min(topic.records, _DIFFERENT))
    keys = [log_peers.key_of(number) for number in range(topic.records)]
    values = [pool[number % len(pool)] for number in range(topic.records)]
    written, cost = sample(_WRITERS[way](clients.bootstrap_servers, topic, keys, values), clients.broker_pid)
    if written != topic.records:
        raise BenchError(f"{way} into {topic.name}: {written} records were acknowledged, not {topic.records}")
    return cost


def _produce(servers: str, topic: Topic, keys: list[bytes], values: list[bytes]) -> Callable[[], int]:
    return lambda: produce_all(servers, topic, zip(keys, values, strict=True))


def _write_arrow(servers: str, topic: Topic, keys: list[bytes], values: list[bytes]) -> Callable[[], int]:
    import pyarrow as pa

    from pyspark_kafka_direct import write_arrow

    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    return lambda: write_arrow(topic.name, table, {"bootstrap.servers": servers}).records


_WRITERS: dict[str, Callable[[str, Topic, list[bytes], list[bytes]], Callable[[], int]]] = {
    PRODUCE: _produce,
    WRITE_ARROW: _write_arrow,
}


def _start(hosts: Hosts, name: str) -> Sample:
    code = _FIRST_BATCH_CODE.format(topic=hosts.topic.name, servers=hosts.servers)
    return hosts.clients.call(_first_line, _IMPORT_CODE if name == IMPORT else code)


def _first_line(clients: Clients, code: str) -> Sample:
    """Run a program until its first line, which has a number above 0, and say how long it took."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        seconds = time.perf_counter() - started
        program.wait(_START_DEADLINE)
    if not line.strip().isdigit() or int(line) == 0:
        raise BenchError(f"The program printed {line!r}, not a number of records:\n{code}")
    return Sample(seconds, 0.0)


def _read_many(hosts: Hosts, name: str) -> Sample:
    if name == BATCH_QUERY:
        return hosts.spark.call(spark_peers.read, OURS, hosts.many, NOOP)
    return hosts.clients.call(client_peers.read, name, hosts.many, hosts.many.records)


_RUNS: dict[str, Callable[[Hosts, str], Sample]] = {READ: _read, WRITE: _write, START: _start, PARTITIONS: _read_many}


def render(ways: Sequence[Way]) -> str:
    """The tables, as Markdown."""
    lines = [f"{len(ways[0].samples)} runs each, in turn; medians.", ""]
    lines += ["| case | way | seconds | M records/s | core-us/record |", "|---|---|---|---|---|"]
    for each in ways:
        speed, cpu = f"{each.records / each.seconds / 1e6:.2f}", f"{each.cost('processor time per record'):.2f}"
        if each.case == START:
            speed = cpu = "-"
        lines.append(f"| {each.case} | {each.name} | {each.seconds:.2f} | {speed} | {cpu} |")
    lines += ["", "| goal | wanted | measured | reached |", "|---|---|---|---|"]
    for name, wanted, measured, reached in evaluate_goals(ways):
        lines.append(f"| {name} | {wanted} | {measured} | {'yes' if reached else 'no'} |")
    return "\n".join(lines)


def evaluate_goals(ways: Sequence[Way]) -> list[GoalResult]:
    """Hold what was measured against the goals: reported, never asserted."""
    by_name = {(each.case, each.name): each for each in ways}
    results = []
    for case, other, what, bound in GOALS:
        ours, theirs = by_name.get((case, CASES[case][0])), by_name.get((case, other))
        if ours is not None and theirs is not None:
            ratio = ours.cost(what) / theirs.cost(what)
            results.append((f"{case}: {what}, against {other}", f"<= {bound:g}x", f"{ratio:.2f}x", ratio <= bound))
    return results


if __name__ == "__main__":
    sys.exit(main())
