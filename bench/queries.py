"""``python -m bench.queries``: what many streaming queries on one driver cost.

The peers are Spark's JVM connector, and a Python source that does nothing, which is the least that one costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import psutil

from bench import machine, spark_peers
from bench.errors import BenchError
from bench.measure import tree_cpu_seconds
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, SparkSettings
from bench.summary import JVM, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Producer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EMPTY, OURS_FROM_PIP = "empty Python source", f"{OURS}, no pyspark.zip"
PEERS = (JVM, EMPTY, OURS, OURS_FROM_PIP)

_FORMATS = {JVM: "kafka", EMPTY: "empty", OURS: "kafka-direct", OURS_FROM_PIP: "kafka-direct"}
_MEASURED_SECONDS: Final = 20.0  # without records, and again with them
_PAUSE_SECONDS: Final = 5.0
_START_DEADLINE: Final = 300.0
_PEER_DEADLINE: Final = 900.0
_RECORDS_PER_SECOND: Final = 10  # of each query
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What the queries of one peer cost.

    Attributes:
        processes: Of Python on the driver, the program excluded.
        memory_mib: Proportional set size of all processes, the program and Spark's JVM included.
        python_mib: Proportional set size of these Python processes.
        start_cpu_seconds: Of one query, until its first batch has ended.
        start_seconds: The same by the clock.
        idle_cores: Processors that are busy while no record arrives.
        busy_cores: The same with records.
        batch_ms: Median duration of a batch with records.
    """

    processes: int
    memory_mib: float
    python_mib: float
    start_cpu_seconds: float
    start_seconds: float
    idle_cores: float
    busy_cores: float
    batch_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.queries", description=__doc__)
    parser.add_argument("--queries", type=int, default=8, help="at once (%(default)s)")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    parser.add_argument("--measure", nargs=2, metavar=("PEER", "SERVERS"), help=argparse.SUPPRESS)  # in a new process
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        peer, servers = chosen.measure
        java, cost = measure(peer, servers, chosen.queries)
        print(json.dumps([java, asdict(cost)]))
        return 0
    costs: dict[str, Cost] = {}
    from pyspark_kafka_direct.broker import EmbeddedKafka

    try:
        with EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka:
            for peer in chosen.peers:
                say_to_stderr(f"{chosen.queries} queries: {peer}")
                java, costs[peer] = _in_new_process(peer, kafka.bootstrap_servers, chosen.queries)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {
        "machine": machine.describe(java=java, kafka=KAFKA_VERSION, jars=CONNECTOR_JARS),
        "queries": chosen.queries,
        "costs": {peer: asdict(cost) for peer, cost in costs.items()},
    }
    publish(chosen.output, "queries", "Many queries on one driver", render(costs, chosen.queries), found)
    return 0


def render(costs: dict[str, Cost], queries: int) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| {queries} queries | Python processes | memory | of which Python | CPU to start one | time to start one "
        "| CPU idle | CPU with 10 records/s each | batch |",
        "|" + " --- |" * 9,
    ]
    lines += [
        f"| {peer} | {cost.processes} | {cost.memory_mib:,.0f} MiB | {cost.python_mib:,.0f} MiB "
        f"| {cost.start_cpu_seconds:.2f} s | {cost.start_seconds:.1f} s "
        f"| {cost.idle_cores:.0%} | {cost.busy_cores:.0%} | {cost.batch_ms:.0f} ms |"
        for peer, cost in costs.items()
    ]
    return "\n".join(lines) + "\n"


def measure(peer: str, servers: str, queries: int) -> tuple[str, Cost]:
    """Start the queries one after the other, and measure them without and with records; also return Java's version."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from pyspark_kafka_direct.broker import jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False)) if peer == JVM else ()
    with (
        spark_peers.spark(SparkSettings(servers, connector)) as spark,
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
    ):
        topics = [f"queries-{os.getpid()}-{number}" for number in range(queries)]
        records_file = Path(scratch) / "records"  # exists while the empty source has records
        if peer == EMPTY:
            _register_empty_source(spark.session)
        admin = AdminClient({"bootstrap.servers": servers})
        for done in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            done.result()
        producer = Producer({"bootstrap.servers": servers, "linger.ms": "0"})
        _produce(producer, topics)
        spark.session.range(1).collect()
        cpu, started = tree_cpu_seconds(), time.monotonic()
        running = [_start(spark.session, peer, topic, servers, records_file, scratch) for topic in topics]
        start_cpu, start_seconds = tree_cpu_seconds() - cpu, time.monotonic() - started
        time.sleep(_PAUSE_SECONDS)
        idle_cores = _busy_cores()
        with _records(producer, topics, records_file):
            time.sleep(_PAUSE_SECONDS)
            busy_cores = _busy_cores()
            durations = [
                progress.durationMs["triggerExecution"]
                for query in running
                for progress in query.recentProgress
                if progress.numInputRows
            ]
        memory = _memory()
        for query in running:
            query.stop()
        java = spark_peers.java_version(spark)
    python = [size for name, size in memory if name.startswith("python")]
    return java, Cost(
        len(python),
        (sum(size for _, size in memory) + psutil.Process().memory_full_info().pss) / _MIB,
        sum(python) / _MIB,
        start_cpu / queries,
        start_seconds / queries,
        idle_cores,
        busy_cores,
        median(durations),
    )


def _in_new_process(peer: str, servers: str, queries: int) -> tuple[str, Cost]:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        environment = dict(os.environ)
        if peer == OURS_FROM_PIP:
            environment["SPARK_HOME"] = _spark_without_archive(Path(scratch) / "spark")
        command = [sys.executable, "-m", "bench.queries", f"--queries={queries}", "--measure", peer, servers]
        ended = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, timeout=_PEER_DEADLINE, check=False, text=True
        )
    if ended.returncode:
        raise BenchError(f"The process of {peer} ended with exit code {ended.returncode}")
    java, cost = json.loads(ended.stdout.splitlines()[-1])
    return java, Cost(**cost)


def _spark_without_archive(folder: Path) -> str:
    """Copy PySpark by links, without the archive of its Python files."""
    import pyspark

    source = Path(pyspark.__file__).parent
    try:
        shutil.copytree(source, folder, copy_function=os.link, ignore=shutil.ignore_patterns("pyspark.zip"))
    except (OSError, shutil.Error):  # another file system
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("pyspark.zip"))
    return str(folder)


def _start(
    session: SparkSession, peer: str, topic: str, servers: str, records_file: Path, scratch: str
) -> StreamingQuery:
    """Start a query, and wait for its first batch."""
    reader = session.readStream.format(_FORMATS[peer]).option("startingOffsets", "earliest")
    reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = reader.option("file", str(records_file)).load() if peer == EMPTY else reader.load()
    query = stream.writeStream.format("noop").option("checkpointLocation", f"{scratch}/{topic}").start()
    deadline = time.monotonic() + _START_DEADLINE
    while query.lastProgress is None or not query.lastProgress.numInputRows:
        if time.monotonic() > deadline:
            raise BenchError(f"A query of {peer} had no batch in {_START_DEADLINE:g} s")
        if (error := query.exception()) is not None:
            raise BenchError(f"A query of {peer} failed: {error}")
        time.sleep(0.02)
    return query


def _memory() -> list[tuple[str, int]]:
    """Return the names of the processes below this one with their proportional set sizes."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Spark's JVM starts many for a moment
            found.append((process.name(), process.memory_full_info().pss))
    return found


def _busy_cores() -> float:
    """Measure how many processors this program and its processes use."""
    cpu, started = tree_cpu_seconds(), time.monotonic()
    time.sleep(_MEASURED_SECONDS)
    return (tree_cpu_seconds() - cpu) / (time.monotonic() - started)


def _produce(producer: Producer, topics: Sequence[str]) -> None:
    for topic in topics:
        producer.produce(topic, b"value")
    if producer.flush(60):
        raise BenchError("the broker did not accept a record in 60 s")


@contextmanager
def _records(producer: Producer, topics: Sequence[str], records_file: Path) -> Iterator[None]:
    """Write records to each topic at a constant rate."""
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(1 / _RECORDS_PER_SECOND):
            _produce(producer, topics)

    records_file.touch()
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        records_file.unlink()


def _register_empty_source(session: SparkSession) -> None:
    """Register a Python source whose batches have one row each; defined here, so that it is pickled by value."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def __init__(self, file: str) -> None:
            self.file = file

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
            return {"offset": 0}

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802 - PySpark's name
            if start["offset"] == 0 or os.path.exists(self.file):
                return {"offset": start["offset"] + 1}
            return start

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"value": pa.array([b"value"], pa.binary())})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "empty"

        def schema(self) -> str:
            return "value binary"

        def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
            return Reader(self.options["file"])

    session.dataSource.register(Source)


if __name__ == "__main__":
    sys.exit(main())
