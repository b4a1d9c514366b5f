"""``kafka-direct dlq``: dead letters of two topics are shown, and replayed once, also by processes that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.cli.program import run
from tests.integration.read_back import Consumed, consume
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct import read_arrow, write_arrow
from pyspark_kafka_direct.cli import dead_letter_replay
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.offsets import TopicPartition as Partition
from pyspark_kafka_direct.payloads.write_rows import HEADERS
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records import partition_for_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

# Runs the command once for each kill, one after the other, in copies of a process with all imports. A copy ends itself
# at the n-th call of a method of the producer, before or after it. The last line has the exit codes.
KILLED = """
import json, os, signal, sys
from pyspark_kafka_direct.cli import dead_letter_replay
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
def replay(when, name, number):
    method, calls = getattr(TransactionalProducer, name), 0
    def killing(*arguments, **options):
        nonlocal calls
        calls += 1
        if when == "before" and calls == number: os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **options)
        if when == "after" and calls == number: os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(TransactionalProducer, name, killing)
    sys.exit(main(sys.argv[2:]))
codes = []
for kill in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        replay(*kill)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""
KILLS = [
    ("after", "init_transactions", 1),
    ("after", "flush", 2),  # the records of a transaction are written
    ("after", "send_offsets_to_transaction", 1),
    ("before", "commit", 3),
    ("after", "commit", 2),
]
TRACE = [("trace", b"\xff"), ("trace", None)]
TIME = 1_700_000_000_000


class Letters:
    """Topics of flights and trains, and one of their dead letters."""

    def __init__(self, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic = make_topic(2, prefix="dlq")
        self.flights, self.trains = make_topic(3, prefix="flights"), make_topic(prefix="trains")
        self.written: Counter[Any] = Counter()

    def write(self, count: int, first: int = 0, replays: int = 0) -> None:
        """Write dead letters with keys, values and timestamps of which some are null."""
        rows = [self._row(number, replays) for number in range(first, first + count)]
        types = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "partition": pa.int32()}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        columns["timestamp"] = pa.array([row["timestamp"] * 1000 for row in rows], pa.timestamp("us", "UTC"))
        write_arrow(self.topic, pa.table(columns), {"bootstrap.servers": self.servers})

    def write_one(
        self,
        topic: bytes,
        value: bytes = b"",
        partition: int = 0,
        time_ms: int = TIME,
        *,
        count: int = 1,
        header_count: int = 0,
    ) -> None:
        """Write the same dead letter ``count`` times, with empty headers, too."""
        headers = [{"key": "__connect.errors.topic", "value": topic}, *[{"key": "", "value": b""}] * header_count]
        columns = {"value": pa.array([value] * count), "headers": pa.array([headers] * count, HEADERS)}
        columns["partition"] = pa.array([partition] * count, pa.int32())
        columns["timestamp"] = pa.array([time_ms * 1000] * count, pa.timestamp("us", "UTC"))
        write_arrow(self.topic, pa.table(columns), {"bootstrap.servers": self.servers})

    def _row(self, number: int, replays: int) -> dict[str, Any]:
        topic, partition = (self.flights, number % 3) if number % 2 else (self.trains, 0)
        key, value = None if number % 5 == 0 else b"\xfe%d" % number, None if number % 7 == 0 else b"%d" % number
        origin = {"topic": topic, "partition": partition, "offset": number, "exception.message": "no \x1b[31mJSON"}
        headers = [*TRACE, *((f"__connect.errors.{name}", str(each).encode()) for name, each in origin.items())]
        headers += [("kafka-direct.replays", b"%d" % replays)] if replays else []
        self.written[topic, partition, key, value, TIME + number] += 1
        return {
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": each} for name, each in headers],
            "partition": number % 2,
            "timestamp": TIME + number,
        }

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run the command; return its exit code, output and messages."""
        done = run("dlq", *arguments, "-b", self.servers)
        return done.returncode, done.stdout, done.stderr

    def committed(self, topic: str) -> list[Consumed]:
        """Read a topic after the control records, which the broker may write a moment after a commit returns."""
        client = ClusterClient(parse_client_params({"bootstrap.servers": self.servers}).connection)
        latest = {Partition(topic, number): LATEST for number in client.topics([topic])[topic].partitions}
        wait_until(
            lambda: client.offsets(latest, isolation_level="read_committed") == client.offsets(latest),
            f"the end of the transactions in {topic}",
        )
        return consume(self.servers, topic, "read_committed")

    def replayed(self) -> Counter[Any]:
        """Return what other clients read of the replayed records."""
        found: Counter[Any] = Counter()
        for topic in (self.flights, self.trains):
            for each in self.committed(topic):
                assert list(each.headers or ()) == [*TRACE, ("kafka-direct.replays", b"1")]
                found[topic, each.partition, each.key, each.value, each.timestamp] += 1
        return found


@pytest.fixture
def letters(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Letters:
    return Letters(kafka, make_topic)


def test_a_replay_that_is_killed_five_times_writes_each_dead_letter_once(letters: Letters) -> None:
    letters.write(60)
    arguments = ["dlq", "replay", letters.topic, "--execute", "--transaction-size", "4", "-b", letters.servers]
    command = [sys.executable, "-c", KILLED, json.dumps(KILLS), *arguments]
    killed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    assert json.loads(killed.stdout.splitlines()[-1]) == [-signal.SIGKILL] * len(KILLS), killed.stderr
    assert 0 < sum(letters.replayed().values()) < 60  # the transactions that were committed
    assert letters.run("replay", letters.topic, "--execute")[0] == 0
    assert letters.replayed() == letters.written
    code, output, _ = letters.run("replay", letters.topic, "--execute")
    assert (code, output) == (0, "There are no dead letters to replay.\n")
    letters.write(10, first=60)
    assert "10 dead letters were written." in letters.run("replay", letters.topic, "--execute")[2]
    assert letters.replayed() == letters.written


def test_without_execute_nothing_is_written(letters: Letters) -> None:
    letters.write(6)
    consumer = Consumer({"bootstrap.servers": letters.servers, "group.id": f"{letters.trains}-query"})
    consumer.commit(offsets=[TopicPartition(letters.trains, 0, 0)], asynchronous=False)
    consumer.close()
    code, output, messages = letters.run("replay", letters.topic)
    assert (code, "--execute" in messages) == (0, True)
    assert f"{letters.trains} is also read by {letters.trains}-query" in messages
    assert f"{letters.flights} is also read" not in messages
    assert [line.split()[:2] for line in output.splitlines()[1:]] == [[letters.flights, "3"], [letters.trains, "3"]]
    assert not letters.replayed()
    assert letters.run("replay", letters.topic, "-n", "2", "--execute")[0] == 0
    assert sum(letters.replayed().values()) == 2


def test_another_topic_gets_the_records_by_their_keys(letters: Letters, make_topic: MakeTopic) -> None:
    letters.write(8)
    other = make_topic(5)
    assert letters.run("replay", letters.topic, "--to", other, "--execute")[0] == 0
    found = letters.committed(other)
    by_key = {each.key: each.partition for each in found if each.key is not None}
    assert (len(found), by_key) == (8, {key: partition_for_key(key, 5) for key in by_key})
    assert not letters.replayed()


def test_dead_letters_that_were_replayed_too_often_are_skipped(letters: Letters) -> None:
    letters.write(4)
    expected = letters.written.copy()
    letters.write(3, first=10, replays=3)
    code, _, messages = letters.run("replay", letters.topic, "--execute")
    assert (code, "3 dead letters were replayed 3 times before" in messages) == (1, True)
    assert letters.replayed() == expected


def test_what_cannot_be_replayed_is_named_before_anything_is_written(letters: Letters, make_topic: MakeTopic) -> None:
    letters.write(2)
    write_arrow(letters.topic, pa.table({"value": [b"no headers"]}), {"bootstrap.servers": letters.servers})
    code, _, messages = letters.run("replay", letters.topic, "--execute")
    assert (code, "1 dead letters do not name their topic" in messages) == (1, True)
    code, _, messages = letters.run("replay", letters.topic, "--to", f"{letters.flights}x", "--execute")
    assert (code, f"did you mean '{letters.flights}'" in messages) == (1, True)
    assert letters.run("replay", letters.topic, "--to", letters.topic)[0] == 2
    assert not letters.replayed()


@pytest.mark.parametrize("name", [b"x" * 40_000, b"a/b", b"\x1b[31m", b"__consumer_offsets"])
def test_a_topic_that_nobody_may_write_is_a_problem(letters: Letters, name: bytes) -> None:
    Consumer({"bootstrap.servers": letters.servers, "group.id": "any"}).committed([TopicPartition("any", 0)])
    letters.write_one(name)
    code, _, messages = letters.run("replay", letters.topic, "--execute")
    assert (code, "set --to TOPIC\nNothing was written." in messages, "\x1b" in messages) == (1, True, False)


def test_a_partition_without_new_dead_letters_keeps_the_start(letters: Letters) -> None:
    for partition in (0, 1):
        letters.write_one(letters.trains.encode(), b"old", partition, TIME - 100_000)
    letters.write_one(letters.trains.encode(), b"new", 0, TIME)
    assert letters.run("replay", letters.topic, "-o", f"@{TIME - 50_000}", "--execute")[0] == 0
    assert letters.run("replay", letters.topic, "--execute")[1] == "There are no dead letters to replay.\n"
    assert [each.value for each in letters.committed(letters.trains)] == [b"new"]


def test_large_dead_letters_are_written_in_smaller_transactions(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write_one(letters.trains.encode(), bytes(900_000), count=40)
    commit, commits = TransactionalProducer.commit, []

    def ending(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        commits.append(arguments)
        if len(commits) == 2:
            sys.exit(9)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "commit", ending)
        assert letters.run("replay", letters.topic, "--execute")[0] == 9
    assert len(letters.committed(letters.trains)) == 38
    assert letters.run("replay", letters.topic, "--execute")[0] == 0
    assert len(letters.committed(letters.trains)) == 40


@pytest.mark.parametrize(
    ("size", "header_count", "reads"),
    [(1, 0, 1), (900_000, 0, 2), (1, 10_000, 2)],  # an empty header needs far more memory than bytes of a record
    ids=["kept in memory", "too large to keep", "too many headers to keep"],
)
def test_a_replay_reads_dead_letters_once_if_they_are_small(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, size: int, header_count: int, reads: int
) -> None:
    calls = []

    def counting(*arguments: Any, **options: Any) -> Any:
        calls.append(options)
        return read_arrow(*arguments, **options)

    monkeypatch.setattr(dead_letter_replay, "read_arrow", counting)
    for partition in range(2):
        letters.write_one(letters.trains.encode(), bytes(size), partition, count=20, header_count=header_count)
    code, _, messages = letters.run("replay", letters.topic, "-n", "30", "--execute")
    assert (code, messages.splitlines()[-1], len(calls)) == (0, "30 dead letters were written.", reads)
    code, _, messages = letters.run("replay", letters.topic, "--execute")
    assert (code, messages.splitlines()[-1], len(calls)) == (0, "10 dead letters were written.", reads + 1)
    assert len(letters.committed(letters.trains)) == 40


def test_a_topic_that_is_deleted_during_the_replay(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.write(4)
    init_transactions = TransactionalProducer.init_transactions

    def deleting(*arguments: Any, **options: Any) -> Any:
        Admin(letters.servers).delete(letters.trains)
        return init_transactions(*arguments, **options)

    monkeypatch.setattr(TransactionalProducer, "init_transactions", deleting)
    code, _, messages = letters.run("replay", letters.topic, "--execute")
    assert code == 3, messages
    assert f"{letters.trains} was deleted during the replay" in messages
    assert not letters.committed(letters.flights)


def test_times_after_the_year_9999_are_shown(letters: Letters, make_topic: MakeTopic) -> None:
    letters.topic = make_topic(message_timestamp_after_max_ms=2**63 - 1)
    letters.write_one(letters.trains.encode(), time_ms=400_000_000_000_000)
    assert "400000000000000 ms" in letters.run("show", letters.topic)[1]
    assert "400000000000000 ms" in letters.run("show", letters.topic, "--count")[1]


def test_show_and_count(letters: Letters) -> None:
    letters.write(10)
    code, output, _ = letters.run("show", letters.topic, "--json", "-n", "3")
    rows = [json.loads(line) for line in output.splitlines()]
    assert (code, len(rows)) == (0, 3)
    assert {row["original_topic"] for row in rows} <= {letters.flights, letters.trains}
    assert {row["message"] for row in rows} == {"no \x1b[31mJSON"}
    shown = letters.run("show", letters.topic)[1]
    assert "\x1b" not in shown
    assert shown.count(f"{letters.flights}-") == 5
    counted = letters.run("show", letters.topic, "--count", "--json")[1]
    counts = {row["topic"]: row["letters"] for row in map(json.loads, counted.splitlines())}
    assert counts == {letters.flights: 5, letters.trains: 5}
    assert letters.run("show", letters.topic, "--error", "no such text")[1] == (
        f"{letters.topic} has no such dead letters.\n"
    )


def test_dead_letters_of_a_query_are_read_after_the_replay(
    letters: Letters, spark: SparkSession, make_topic: MakeTopic
) -> None:
    from pyspark_kafka_direct import dead_letters  # imports PySpark

    values = pa.table({"value": [b'{"delay": 1.5}', b'{"delay": "late"}']})
    write_arrow(letters.trains, values, {"bootstrap.servers": letters.servers})
    options = {"kafka.bootstrap.servers": letters.servers, "subscribe": letters.trains, "valueFormat": "json"}
    options |= {"includeHeaders": "true", "valueSchema": "delay double, _corrupt_record binary"}
    records = spark.read.format("kafka-direct").options(**options).load()
    rows = dead_letters(records, topic=letters.topic)
    to_kafka = rows.write.format("kafka-direct").option("kafka.bootstrap.servers", letters.servers)
    to_kafka.mode("append").save()
    assert letters.run("replay", letters.topic, "--execute")[0] == 0
    assert len(letters.committed(letters.trains)) == 3
    mended = spark.read.format("kafka-direct").options(**options | {"valueSchema": "delay string"}).load()
    assert [row.value.delay for row in mended.orderBy("offset").collect()] == ["1.5", "late", "late"]
