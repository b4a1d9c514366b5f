"""``kafka-direct dlq`` with dead letters of two topics in two partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.simulated_commands import CommandCluster

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.simulated_commands import Header

U0 = TopicPartition("u", 0)


def letter(topic: str, number: int, error: str = "a.Bad") -> list[Header]:
    """Return the headers of the dead letter of the record ``topic-0@number``."""
    origin = {"topic": topic, "partition": 0, "offset": number, "exception.class.name": error, "exception.message": "m"}
    return [("trace", b"1"), *((f"__connect.errors.{name}", str(each).encode()) for name, each in origin.items())]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster with three dead letters of ``t`` and ``u`` in each partition of ``dlq``."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        cluster.cluster.create_topic("dlq", 2)
        for partition in (0, 1):
            rows = [letter("tu"[number % 2], number, f"a.Bad{number % 2}") for number in range(3)]
            cluster.write_headers("dlq", rows, partition)
        yield cluster


def test_all_are_shown_and_counted(cluster: CommandCluster) -> None:
    shown = cluster.run("dlq", "show", "dlq", "--json")
    assert [(row["partition"], row["offset"], row["original_topic"], row["original_offset"]) for row in shown.rows] == [
        (partition, number, "tu"[number % 2], number) for partition in (0, 1) for number in range(3)
    ]
    assert len(cluster.run("dlq", "show", "dlq").text.splitlines()) == 7
    counted = cluster.run("dlq", "show", "dlq", "--count", "--json")
    assert [(row["topic"], row["error"], row["letters"]) for row in counted.rows] == [
        ("t", "Bad0", 4),
        ("u", "Bad1", 2),
    ]
    chosen = cluster.run("dlq", "show", "dlq", "--error", "bad1", "--json")
    assert [row["partition"] for row in chosen.rows] == [0, 1]


def test_each_is_replayed_once_to_its_topic(cluster: CommandCluster) -> None:
    for group in ("readers", "others"):
        cluster.commit(group, {TopicPartition("t", 0): 0, U0: 0})
    dry = cluster.run("dlq", "replay", "dlq")
    assert dry.code == 0, dry
    assert [line.split()[:3] for line in dry.text.splitlines()[1:]] == [["t", "4", "2"], ["u", "2", "2"]]
    for topic in ("t", "u"):
        assert f"{topic} is also read by others, readers:" in dry.errors
    assert cluster.values(["t", "u"]) == []
    for limit in ("4", "9"):
        done = cluster.run("dlq", "replay", "dlq", "-n", limit, "--execute", "--transaction-size", "3")
        assert done.code == 0, done
    assert cluster.sent("EndTxn") == 5  # of 3 and 1, then of 2, and the ends of both replays
    found = cluster.read(["t", "u"], columns=["topic", "partition", "headers"]).read_all().to_pylist()
    assert [(row["topic"], row["partition"]) for row in found] == [("t", 0)] * 4 + [("u", 0)] * 2
    assert {tuple((each["key"], each["value"]) for each in row["headers"]) for row in found} == {
        (("trace", b"1"), ("kafka-direct.replays", b"1"))
    }
    assert cluster.run("dlq", "replay", "dlq", "--execute").text == "There are no dead letters to replay.\n"


def test_what_another_replay_has_written_meanwhile_is_not_written_again(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.run("dlq", "replay", "dlq", "-n", "1", "--execute").code == 0
    written = cluster.values(["t", "u"])
    init = TransactionalProducer.init_transactions

    def init_late(producer: TransactionalProducer, *arguments: Any) -> None:
        cluster.commit("kafka-direct-replay.dlq", {TopicPartition("dlq", number): 3 for number in (0, 1)})
        init(producer, *arguments)

    monkeypatch.setattr(TransactionalProducer, "init_transactions", init_late)
    done = cluster.run("dlq", "replay", "dlq", "--execute")
    assert (done.code, done.errors) == (0, "0 dead letters were written.\n")
    assert cluster.values(["t", "u"]) == written


def test_each_reason_against_a_replay_is_named(cluster: CommandCluster) -> None:
    cluster.write_headers("dlq", [letter("a/b", 1), letter("missing", 2), letter("dlq", 3)])
    refused = cluster.run("dlq", "replay", "dlq", "--execute")
    assert refused.code == 1
    errors = refused.errors.splitlines()
    assert errors[-4].startswith("the dead letter dlq-0@3 names a topic that cannot exist, 'a/b'")
    assert errors[-3].startswith("dlq is the topic of the dead letters itself")
    assert errors[-2].startswith("the topic missing does not exist")
    assert errors[-1] == "Nothing was written."
    assert cluster.values(["t", "u"]) == []


def test_losses_of_each_partition_are_reported(cluster: CommandCluster) -> None:
    def expire() -> None:
        for partition in (0, 1):
            cluster.delete_records(TopicPartition("dlq", partition), 2)

    cluster.before("Fetch", expire)
    found = cluster.run("dlq", "replay", "dlq")
    assert [line for line in found.errors.splitlines() if "skipped" in line] == [
        f"dlq-{partition}: 2 offsets were skipped (aged_out)" for partition in (0, 1)
    ]


def test_dead_letters_of_each_topic_are_written_with_the_times_of_brokers(cluster: CommandCluster) -> None:
    for topic in ("t", "u"):
        cluster.cluster.topics[topic].configs["message.timestamp.type"] = "LogAppendTime"
    errors = cluster.run("dlq", "replay", "dlq").errors
    for topic in ("t", "u"):
        assert f"{topic} has message.timestamp.type=LogAppendTime" in errors
