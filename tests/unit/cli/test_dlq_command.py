"""``kafka-direct dlq`` with dead letters of two topics in two partitions."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.cli.simulated_commands import CommandCluster

from pyspark_kafka_direct.cli import dead_letter_replay
from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.simulated_commands import Header

U0 = TopicPartition("u", 0)


def letter(topic: str, number: int, error: str = "a.Bad", *, partition: int = 0, replays: int = 0) -> list[Header]:
    """Return the headers of the dead letter of a record; its message has its number, too."""
    origin = {"topic": topic, "partition": partition, "offset": number, "exception.class.name": error}
    origin["exception.message"] = f"m{number}"
    headers: list[Header] = [("trace", b"1")]
    headers += ((f"__connect.errors.{name}", str(each).encode()) for name, each in origin.items())
    return [*headers, ("kafka-direct.replays", b"%d" % replays)] if replays else headers


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
    table = [line.split() for line in cluster.run("dlq", "show", "dlq").text.splitlines()]
    assert [[line[0], line[2], *line[-2:]] for line in table] == [
        ["LETTER", "ORIGINAL", "ERROR", "MESSAGE"],
        *([f"dlq-{partition}@{n}", f"{'tu'[n % 2]}-0@{n}", f"Bad{n % 2}", f"m{n}"]
          for partition in (0, 1) for n in range(3)),
    ]  # fmt: skip
    counted = cluster.run("dlq", "show", "dlq", "--count", "--json")
    assert [(row["topic"], row["error"], row["letters"]) for row in counted.rows] == [
        ("t", "Bad0", 4),
        ("u", "Bad1", 2),
    ]
    chosen = cluster.run("dlq", "show", "dlq", "--error", "bad1", "--json")
    assert [row["partition"] for row in chosen.rows] == [0, 1]
    for text, offsets in (("M2", [2, 2]), ("a.bad0", [0, 2, 0, 2]), ("", [0, 1, 2] * 2), ("none", [])):
        chosen = cluster.run("dlq", "show", "dlq", "--error", text, "--json")
        assert (chosen.code, [row["offset"] for row in chosen.rows]) == (0, offsets)


def test_counts_have_the_first_and_the_last_time_of_all_partitions(cluster: CommandCluster) -> None:
    cluster.cluster.create_topic("times", 2)
    bad, worse = letter("t", 1, "a.Bad"), letter("t", 2, "b.Worse")
    cluster.write_headers("times", [bad, worse, bad], 0, times_ms=[5_000, 6_000, 9_000])
    cluster.write_headers("times", [letter("t", 3, "c.Bad"), letter("u", 4)], 1, times_ms=[7_000, 3_000])
    cluster.write_headers("times", [bad, worse, worse, worse], 1, times_ms=[1_000, 8_000, 2_000, 4_000])
    counted = cluster.run("dlq", "show", "times", "--count", "--json")
    assert [tuple(row.values()) for row in counted.rows] == [
        ("t", "Bad", 4, "1970-01-01T00:00:01Z", "1970-01-01T00:00:09Z", "m1"),
        ("t", "Worse", 4, "1970-01-01T00:00:02Z", "1970-01-01T00:00:08Z", "m2"),
        ("u", "Bad", 1, "1970-01-01T00:00:03Z", "1970-01-01T00:00:03Z", "m4"),
    ]
    limited = cluster.run("dlq", "show", "times", "--error", "worse", "-n", "2", "--json").rows
    assert [(row["partition"], row["offset"], row["message"]) for row in limited] == [(0, 1, "m2"), (1, 3, "m2")]


def test_each_message_is_shortened_to_the_terminal(cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest cells are in different rows, titles of columns are wider than cells, and escapes than characters."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for number, error, message in ((10, "a.Long", "\x1b" * 200), (1_000_000, "a.X", "x" * 300), (11, "a.X", "short")):
        headers = dict(letter("t", number, error)) | {"__connect.errors.exception.message": message.encode()}
        cluster.write_headers("dlq", [list(headers.items())], number % 2)
    for arguments, count in (((), 10), (("--count",), 5)):
        lines = cluster.run("dlq", "show", "dlq", *arguments).text.splitlines()
        assert (len(lines), max(map(len, lines)) < 100) == (count, True), lines
        shortened = [line.rpartition(" ")[2][:4] for line in lines if line.endswith("...")]
        assert sorted(shortened) == ["\\x1b", "xxxx"]
    assert any(line.endswith(" short") for line in cluster.run("dlq", "show", "dlq").text.splitlines())
    for row in (
        *cluster.run("dlq", "show", "dlq", "--count", "--json").rows,
        *cluster.run("dlq", "show", "dlq", "--json").rows,
    ):
        assert row["message"] in ("m0", "m1", "m2", "\x1b" * 200, "x" * 300, "short")


def test_each_is_replayed_once_to_its_topic(cluster: CommandCluster) -> None:
    for group in ("readers", "others"):
        cluster.commit(group, {TopicPartition("t", 0): 0, U0: 0})
    dry = cluster.run("dlq", "replay", "dlq")
    assert dry.code == 0, dry
    assert [line.split()[:3] for line in dry.text.splitlines()[1:]] == [["t", "4", "2"], ["u", "2", "2"]]
    readers = [line for line in dry.errors.splitlines() if "is also read by others, readers:" in line]
    assert [line[0] for line in readers] == ["t", "u"]
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


def test_the_summary_has_the_first_and_the_last_letter_of_each_topic(cluster: CommandCluster) -> None:
    for partition in (0, 1):
        rows = [letter("ut"[number % 2], number, replays=number) for number in range(5)]
        cluster.write_headers("dlq", rows, partition)
    dry = cluster.run("dlq", "replay", "dlq", "--json")
    assert [tuple(row.values()) for row in dry.rows] == [
        ("t", 6, 2, "dlq-0@0", "dlq-1@4"),
        ("u", 6, 2, "dlq-0@1", "dlq-1@5"),
    ]
    assert (dry.code, "4 dead letters were replayed 3 times before" in dry.errors) == (1, True)
    limited = cluster.run("dlq", "replay", "dlq", "--json", "-n", "7", "--max-attempts", "2")
    assert [tuple(row.values()) for row in limited.rows] == [
        ("t", 3, 1, "dlq-0@0", "dlq-0@4"),
        ("u", 2, 1, "dlq-0@1", "dlq-0@3"),
    ]
    assert "2 dead letters were replayed 2 times before" in limited.errors
    done = cluster.run("dlq", "replay", "dlq", "--execute", "--transaction-size", "2")
    assert "12 dead letters were written" in done.errors
    assert (len(cluster.values("t")), len(cluster.values("u"))) == (6, 6)
    found = cluster.read(["t", "u"], columns=["headers"]).read_all().to_pylist()
    counters = Counter(each["value"] for row in found for each in row["headers"] if each["key"] != "trace")
    assert counters == {b"1": 8, b"2": 2, b"3": 2}


def test_a_replay_from_an_offset_continues_from_it_in_each_partition(cluster: CommandCluster) -> None:
    cluster.cluster.create_topic("three", 3)
    for partition in range(3):
        cluster.write_headers("three", [letter("t", number) for number in range(3)], partition)
    of_three = ("dlq", "replay", "three", "--to", "u")
    assert cluster.run(*of_three, "-o", "2", "-n", "1", "--execute").code == 0
    left = cluster.run(*of_three, "--json").rows
    assert [tuple(row.values()) for row in left] == [("u", 2, 2, "three-1@2", "three-2@2")]

    cluster.delete_records(U0, cluster.log(U0).end)
    first = cluster.run("dlq", "replay", "dlq", "-o", "1", "-n", "1", "--execute")
    assert (first.code, cluster.values(["t", "u"])) == (0, ["u-0@2"])  # of dlq-0@1
    refused = cluster.run("dlq", "replay", "dlq", "-o", "1", "--execute")
    assert "has the progress of an earlier replay" in refused.errors
    dry = cluster.run("dlq", "replay", "dlq", "--json")
    assert [tuple(row.values()) for row in dry.rows] == [
        ("t", 2, 2, "dlq-0@2", "dlq-1@2"),
        ("u", 1, 1, "dlq-1@1", "dlq-1@1"),
    ]
    assert cluster.run("dlq", "replay", "dlq", "--execute").code == 0
    assert cluster.values(["t", "u"]) == ["t-0@0", "t-0@1", "u-0@2", "u-0@4"]  # a marker is between


@pytest.mark.parametrize("kept_bytes", [1 << 20, 3000, 0])
def test_a_replay_that_fails_continues_after_its_last_transaction(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Letters that are too large to be kept are read again."""
    monkeypatch.setattr(dead_letter_replay, "_KEPT_BYTES", kept_bytes)
    for partition in (0, 1):
        rows = [letter("t", number, partition=1 - partition) for number in range(3, 6)]
        cluster.write_headers("dlq", rows, partition)
    commit, left = TransactionalProducer.commit, [2]

    def failing(producer: TransactionalProducer, *arguments: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KafkaDirectError("no more")
        commit(producer, *arguments)

    monkeypatch.setattr(TransactionalProducer, "commit", failing)
    arguments = ("dlq", "replay", "dlq", "--execute", "--transaction-size", "4")  # the second one is of both partitions
    counts = []
    for allowed in (2, 1, 9):
        left[0] = allowed
        counts.append((cluster.run(*arguments).code, len(committed(cluster))))
        assert cluster.run("transactions", "list", "--json").rows == []  # what failed was aborted
    assert counts == [(3, 8), (3, 12), (0, 12)]
    places = Counter((row["topic"], row["partition"]) for row in committed(cluster))
    assert places == {("t", 0): 7, ("t", 1): 3, ("u", 0): 2}


def test_times_and_partitions_of_records_that_are_replayed(cluster: CommandCluster) -> None:
    """A record goes to its partition if the topic still has it, and to any other one otherwise."""
    cluster.cluster.create_topic("times", 2)
    letters = [letter("t", number, partition=partition) for number, partition in enumerate((1, 0, 2, 1, -1, 10**10))]
    times_ms = [0, 1, 5000, 999, 0, 10**12]
    cluster.write_headers("times", letters[:3], 0, times_ms=times_ms[:3])
    cluster.write_headers("times", letters[3:], 1, times_ms=times_ms[3:])
    done = cluster.run("dlq", "replay", "times", "--execute", "--transaction-size", "4")
    assert (done.code, done.errors) == (0, "6 dead letters were written.\n")
    found = cluster.read("t", columns=["partition", "timestamp"]).read_all().to_pylist()
    placed = {(row["partition"], round(row["timestamp"].timestamp() * 1000)) for row in found}
    assert placed >= {(1, 0), (0, 1), (1, 999)}
    assert sorted(round(row["timestamp"].timestamp() * 1000) for row in found) == sorted(times_ms)


def test_letters_that_were_replayed_too_often_are_skipped_once(cluster: CommandCluster) -> None:
    cluster.cluster.create_topic("capped", 2)
    for partition in (0, 1):
        cluster.write_headers("capped", [letter("t", number, replays=3) for number in range(2)], partition)
    for more, code, skipped in (((), 1, True), (("--execute",), 1, True), (("--execute",), 0, False), ((), 0, False)):
        done = cluster.run("dlq", "replay", "capped", *more)
        assert (done.code, "4 dead letters were replayed 3 times before" in done.errors) == (code, skipped), done
    assert cluster.values(["t", "u"]) == []
    assert cluster.run("dlq", "replay", "capped", "--to", "capped").code == 2


def commit_replayed(cluster: CommandCluster, offsets: dict[TopicPartition, CommittedOffset]) -> None:
    """Commit the progress of another replay of ``dlq``."""
    client = cluster.client()
    coordinator = TransactionCoordinatorClient(client, "another")
    producer = coordinator.init_transactions(60_000).producer
    group = "kafka-direct-replay.dlq"
    coordinator.add_offsets(producer, group)
    ConsumerGroup(client, group).commit_in_transaction("another", producer, offsets, transaction_v2=False)
    coordinator.end_transaction(producer, commit=True, transaction_v2=False)
    cluster.sleep(5)  # until the transaction has ended


def test_only_the_progress_in_this_topic_counts(cluster: CommandCluster) -> None:
    """The topic was recreated since the replay of before, so its offsets are others."""
    dlq_0, dlq_1 = (TopicPartition("dlq", number) for number in (0, 1))
    known = str(cluster.topic_id("dlq"))
    commit_replayed(cluster, {dlq_0: CommittedOffset(2, str(UUID(int=7))), dlq_1: CommittedOffset(2, known)})
    dry = cluster.run("dlq", "replay", "dlq", "--json")
    assert [tuple(row.values()) for row in dry.rows] == [
        ("t", 3, 2, "dlq-0@0", "dlq-1@2"),
        ("u", 1, 1, "dlq-0@1", "dlq-0@1"),
    ]


def test_a_replay_does_not_take_back_the_progress_of_another_one(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one progresses in the partition that this one does not reach."""
    init = TransactionalProducer.init_transactions

    def init_late(producer: TransactionalProducer, *arguments: Any) -> None:
        cluster.commit("kafka-direct-replay.dlq", {TopicPartition("dlq", 1): 2})
        init(producer, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalProducer, "init_transactions", init_late)
        assert cluster.run("dlq", "replay", "dlq", "-o", "1", "-n", "1", "--execute").code == 0
    cluster.sleep(5)  # until the transaction has ended
    lag = cluster.run("lag", "kafka-direct-replay.dlq", "--json").rows
    assert [(row["partition"], row["offset"]) for row in lag] == [("dlq-0", 2), ("dlq-1", 2)]


def committed(cluster: CommandCluster) -> list[dict[str, Any]]:
    """Return the records of committed transactions."""
    params = {"isolation.level": "read_committed"}
    found: list[dict[str, Any]] = (
        cluster.read(["t", "u"], params=params, columns=["topic", "partition"]).read_all().to_pylist()
    )
    return found


def test_aborted_records_at_the_end_of_each_partition_are_done(cluster: CommandCluster) -> None:
    for partition in (0, 1):
        cluster.append(TopicPartition("dlq", partition), 2, producer_id=7)
        cluster.end_transaction(TopicPartition("dlq", partition), 7, commit=False)
    settings = ("-X", "client.id=x", "-X", "compression.type=gzip", "-X", "linger.ms=0")
    uncommitted = ("-X", "isolation.level=read_uncommitted")
    assert len(cluster.run("dlq", "show", "dlq", "--json", *uncommitted).rows) == 6  # aborted letters are none
    assert cluster.run("dlq", "replay", "dlq", "--execute", "--group", "g", *settings, *uncommitted).code == 0
    assert cluster.received("InitProducerId")[-1].transactional_id == "g.dlq"  # of this group and topic only
    cluster.sleep(5)  # until the last transaction has ended
    lag = cluster.run("lag", "g", "--json").rows
    assert [(row["partition"], row["offset"], row["lag"]) for row in lag] == [("dlq-0", 6, 0), ("dlq-1", 6, 0)]


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
    cluster.cluster.create_topic("internal", 1, is_internal=True)
    nameless: list[list[Header]] = [[("trace", b"1")]] * 2
    letters = [letter(name, number) for number, name in enumerate(("a/b", "missing", "dlq", "internal", "a/c"))]
    cluster.write_headers("dlq", [*letters, *nameless])
    assert cluster.run("dlq", "replay", "dlq").code == 1
    refused = cluster.run("dlq", "replay", "dlq", "--execute")
    assert refused.code == 1
    errors = refused.errors.splitlines()
    assert errors[-7].startswith("2 dead letters do not name their topic, the first one at dlq-0@8")
    assert errors[-5].startswith("the dead letter dlq-0@7 names a topic that cannot exist, 'a/c'")
    assert errors[-3].startswith("internal is an internal topic of Kafka")
    assert errors[-6].startswith("the dead letter dlq-0@3 names a topic that cannot exist, 'a/b'")
    assert errors[-4].startswith("dlq is the topic of the dead letters itself")
    assert errors[-2].startswith("the topic missing does not exist")
    assert errors[-1] == "Nothing was written."
    assert cluster.values(["t", "u"]) == []


def test_losses_of_each_partition_are_reported(cluster: CommandCluster) -> None:
    def expire() -> None:
        for partition in (0, 1):
            cluster.delete_records(TopicPartition("dlq", partition), 2)

    cluster.before("Fetch", expire)
    assert cluster.run("dlq", "replay", "dlq", "-X", "failOnDataLoss=true").code == 3
    cluster.write_headers("dlq", [letter("t", number) for number in range(3)], 0)
    cluster.write_headers("dlq", [letter("t", number) for number in range(3)], 1)

    def expire_more() -> None:
        for partition in (0, 1):
            cluster.delete_records(TopicPartition("dlq", partition), 4)

    cluster.before("Fetch", expire_more)
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
