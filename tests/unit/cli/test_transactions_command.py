"""``kafka-direct transactions`` with two producers and two partitions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.simulated_commands import CommandCluster, Output

from pyspark_kafka_direct.cli.output import utc_time
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.messages import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster with hanging transactions of two producers in two partitions."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        for tp in (T0, T1):
            cluster.append(tp, 2)
            for producer_id in (7, 8):
                cluster.append(tp, 3, producer_id=producer_id)
        yield cluster


def with_producers(values: dict[str, Any], keeps: Callable[[int, int], bool]) -> dict[str, Any]:
    """Return a response of DescribeProducers with the producers that ``keeps(partition, producer id)`` keeps."""
    topics = [
        {**topic, "partitions": [
            {**each, "active_producers": [
                producer for producer in each["active_producers"]
                if keeps(each["partition_index"], producer["producer_id"])
            ]}
            for each in topic["partitions"]
        ]}
        for topic in values["topics"]
    ]  # fmt: skip
    return {**values, "topics": topics}


def test_each_transaction_of_each_partition_is_listed(cluster: CommandCluster) -> None:
    found = cluster.run("transactions", "list", "u", "t", "--json")
    assert found.code == 1
    shown = ("partition", "producer_id", "start_offset", "blocks", "state")
    assert [tuple(row[name] for name in shown) for row in found.rows] == [
        ("t-0", 7, 2, "yes", "hanging"),
        ("t-0", 8, 5, "no", "hanging"),
        ("t-1", 7, 2, "yes", "hanging"),
        ("t-1", 8, 5, "no", "hanging"),
    ]
    assert found.errors.startswith("t-0, t-0, t-1, t-1: a hanging transaction")
    assert cluster.run("transactions", "list", "--json").rows == found.rows
    missing = cluster.run("transactions", "list", "t", "no", "none")
    assert "The cluster has no topic 'no', 'none'" in missing.errors


@pytest.mark.parametrize("ended", [(), (7,), (8,), (7, 8)])
def test_a_transaction_that_ends_while_the_coordinators_are_asked_does_not_hang(
    cluster: CommandCluster, ended: tuple[int, ...]
) -> None:
    def without_ended(_: int, values: dict[str, Any]) -> dict[str, Any]:
        if not cluster.sent("ListTransactions"):
            return values
        return with_producers(values, lambda partition, producer_id: partition == 0 or producer_id not in ended)

    cluster.change("DescribeProducers", without_ended)
    found = cluster.run("transactions", "list", "--json")
    assert [(row["partition"], row["producer_id"]) for row in found.rows] == [
        *(("t-0", each) for each in (7, 8)),
        *(("t-1", each) for each in (7, 8) if each not in ended),
    ]
    assert ("t-1: records are not stable yet" in found.errors) == (len(ended) == 2)


def test_partitions_whose_transactions_are_not_shown(cluster: CommandCluster) -> None:
    cluster.change("DescribeProducers", lambda _, values: with_producers(values, lambda *_: False))
    found = cluster.run("transactions", "list", "t")
    assert found.errors.startswith("t-0, t-1: records are not stable yet")


@pytest.mark.parametrize("hidden", [T0, T1])
def test_the_transactions_of_one_partition_are_not_shown(cluster: CommandCluster, hidden: TopicPartition) -> None:
    def without_producers(_: int, values: dict[str, Any]) -> dict[str, Any]:
        return with_producers(values, lambda partition, _: partition != hidden.partition)

    cluster.change("DescribeProducers", without_producers)
    other = T1 if hidden == T0 else T0
    found = cluster.run("transactions", "list", "--json")
    unseen, hanging = found.errors.splitlines()
    assert (found.code, [row["partition"] for row in found.rows]) == (1, [str(other)] * 2)
    assert unseen.startswith(f"{hidden}: records are not stable yet")
    assert hanging.startswith(f"{other}, {other}: a hanging transaction")


def test_one_transaction_has_to_be_named(cluster: CommandCluster) -> None:
    TransactionCoordinatorClient(cluster.client(), "one").init_transactions(60_000)
    for arguments in ((), ("one", "--partition", "t-0"), ("--start-offset", "0"), ("one", "--start-offset", "0")):
        found = cluster.run("transactions", "abort", *arguments, "--execute", "--force")
        assert (found.code, found.text) == (2, ""), found
    assert cluster.sent("InitProducerId") == 1
    wrong = cluster.run("transactions", "abort", "one", "--start-offset", "0", "--execute")
    assert "--start-offset needs --partition" in wrong.errors


def test_markers_need_a_permission(cluster: CommandCluster) -> None:
    accept_markers(cluster, error_code=31)
    found = cluster.run("transactions", "abort", "--partition", "t-1", "--execute", "--force")
    assert (found.code, found.text) == (3, "")
    assert "To write markers, the principal needs ClusterAction on the cluster." in found.errors
    assert "partition 1" in found.errors


def test_the_second_transaction_of_a_partition_is_chosen_by_its_start(cluster: CommandCluster) -> None:
    dry = cluster.run("transactions", "abort", "--partition", "t-1", "--start-offset", "5", "--force")
    assert (dry.code, "producer id 8" in dry.text) == (0, True), dry
    assert "producer id 7" in cluster.run("transactions", "abort", "--partition", "t-1", "--force").text


@pytest.mark.parametrize("ended", [(), (7,), (8,), (7, 8), (8, 9), (7, 8, 9)])
def test_a_start_offset_chooses_only_the_transaction_that_begins_there(
    cluster: CommandCluster, ended: tuple[int, ...]
) -> None:
    """Without a start offset, it is the oldest one that is open."""
    starts = {0: 7, 3: 8, 6: 9}
    for producer_id in starts.values():
        cluster.append(U0, 3, producer_id=producer_id)
    for producer_id in ended:
        cluster.end_transaction(U0, producer_id, commit=True)
    open_starts = {start: producer_id for start, producer_id in starts.items() if producer_id not in ended}
    abort = ("transactions", "abort", "--partition", "u-0", "--force")

    def check(found: Output, producer_id: int | None) -> None:
        if producer_id is None:
            assert (found.code, found.text) == (1, ""), found
            assert "u-0 has no such open transaction" in found.errors
        else:
            assert (found.code, f"of producer id {producer_id}, " in found.text) == (0, True), found

    check(cluster.run(*abort), next(iter(open_starts.values()), None))
    for offset in range(10):
        check(cluster.run(*abort, "--start-offset", str(offset)), open_starts.get(offset))


def last_record_at(cluster: CommandCluster, ages_ms: dict[int, int]) -> dict[int, int]:
    """Let brokers return when producers have written their last records, in any order; return these times in ms."""
    now_ms = int(cluster.pool.system.wall_time() * 1000)
    times = {producer_id: now_ms - age for producer_id, age in ages_ms.items()}

    def change(_: int, values: dict[str, Any]) -> dict[str, Any]:
        topics = [
            {**topic, "partitions": [
                {**part, "active_producers": [
                    {**each, "last_timestamp": times[each["producer_id"]]} for each in part["active_producers"][::-1]
                ]}
                for part in topic["partitions"]
            ]}
            for topic in values["topics"]
        ]  # fmt: skip
        return {**values, "topics": topics}

    cluster.change("DescribeProducers", change)
    return times


def accept_markers(cluster: CommandCluster, error_code: int = 0) -> None:
    """Let brokers write the markers that are requested, or reject them."""

    def respond(_: int, __: dict[str, Any]) -> dict[str, Any]:
        request = cluster.received("WriteTxnMarkers")[-1]
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        if not error_code:
            tp = TopicPartition(topic.name, index)
            cluster.end_transaction(tp, marker.producer_id, commit=marker.transaction_result)
        topics = [{"name": topic.name, "partitions": [{"partition_index": index, "error_code": error_code}]}]
        return {"markers": [{"producer_id": marker.producer_id, "topics": topics}]}

    cluster.offer(WRITE_TXN_MARKERS)
    cluster.change("WriteTxnMarkers", respond)


@pytest.mark.parametrize(("config", "limit_ms"), [(None, 900_000), ("60000", 60_000), ("3600000", 3_600_000)])
def test_only_a_hanging_transaction_that_is_old_enough_is_aborted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], config: str | None, limit_ms: int
) -> None:
    """The dry run has the same result as the run, and the transaction of the other producer has another age."""
    configs = {} if config is None else {"transaction.max.timeout.ms": config}
    with CommandCluster(monkeypatch, capsys, broker_configs=configs) as cluster:
        for tp in (T0, T1, U0):
            for producer_id in (7, 8):
                cluster.append(tp, 2, producer_id=producer_id)
        accept_markers(cluster)
        last_record_at(cluster, {7: limit_ms - 30_000, 8: limit_ms + 1000})
        forced = (("--force",), ("--force", "--execute"))
        for tp, flags in zip((T1, T0), forced, strict=True):
            for start, more in (("0", ()), ("0", ("--execute",)), ("0", flags), ("2", ()), ("2", ("--execute",))):
                found = cluster.run("transactions", "abort", "--partition", str(tp), "--start-offset", start, *more)
                is_too_young = start == "0" and "--force" not in more
                assert found.code == int(is_too_young), found
                if is_too_young:
                    assert found.errors.startswith("Did not abort the hanging transaction of producer id 7, epoch 0")
                    assert f"younger than transaction.max.timeout.ms ({limit_ms} ms)" in found.errors
                else:
                    assert found.text.startswith("Aborted" if "--execute" in more else "Would abort"), found
        left = [(row["partition"], row["producer_id"]) for row in cluster.run("transactions", "list", "--json").rows]
        assert left == [("t-1", 7), ("u-0", 7), ("u-0", 8)]


def test_a_producer_may_have_a_hanging_transaction_beside_its_open_one(cluster: CommandCluster) -> None:
    accept_markers(cluster)
    coordinator = TransactionCoordinatorClient(cluster.client(), "one")
    producer = coordinator.init_transactions(60_000).producer
    cluster.sleep(100)
    coordinator.add_partitions(producer, [U0])
    for tp in (U0, T1):
        cluster.append(tp, 1, producer_id=producer.id)  # t-1 is not added, so the coordinator does not end it
    times = last_record_at(cluster, {7: 1_000_000, 8: 2_000_000, producer.id: 3_000_000})
    rows = {
        (row["partition"], row["producer_id"]): row
        for row in cluster.run("transactions", "list", "--json").rows
        if row["partition"] != "t-0"
    }
    assert [(key, row["state"], row["behind"], row["blocks"]) for key, row in rows.items()] == [
        (("t-1", 7), "hanging", 7, "yes"),
        (("t-1", 8), "hanging", 7, "no"),
        (("t-1", producer.id), "hanging", 7, "no"),
        (("u-0", producer.id), "Ongoing", 1, "yes"),
    ]
    assert {key[1]: row["since"] for key, row in rows.items() if row["state"] == "hanging"} == {
        producer_id: utc_time(time) for producer_id, time in times.items()
    }
    assert rows["t-1", producer.id]["transactional_id"] == rows["u-0", producer.id]["transactional_id"] == "one"
    started_at = datetime.fromisoformat(rows["u-0", producer.id]["since"]).timestamp()
    assert 0 <= cluster.pool.system.wall_time() - started_at < 60
    abort = ("transactions", "abort", "--partition")
    hanging = cluster.run(*abort, "t-1", "--start-offset", "8", "--execute")
    assert hanging.text.startswith(f"Aborted the hanging transaction of producer id {producer.id}, "), hanging
    assert f"is of {utc_time(times[producer.id])}." in hanging.text
    assert cluster.run(*abort, "u-0").text.startswith("Would abort the transaction of 'one' in u-0, open since ")
    assert [cluster.run("transactions", "list", topic).code for topic in ("t", "u")] == [1, 0]
    assert cluster.run("transactions", "list").code == 1
    left = cluster.run("transactions", "list", "--json").rows
    assert [(row["partition"], row["producer_id"]) for row in left[2:]] == [
        ("t-1", 7),
        ("t-1", 8),
        ("u-0", producer.id),
    ]


@pytest.mark.parametrize("state", ["Empty", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"])
def test_a_transaction_that_is_not_ongoing_is_not_aborted(cluster: CommandCluster, state: str) -> None:
    TransactionCoordinatorClient(cluster.client(), "one").init_transactions(60_000)
    sent = cluster.sent("InitProducerId")

    def change(_: int, values: dict[str, Any]) -> dict[str, Any]:
        states = [{**each, "transaction_state": state} for each in values["transaction_states"]]
        return {**values, "transaction_states": states}

    cluster.change("DescribeTransactions", change)
    found = cluster.run("transactions", "abort", "one", "--execute", "--force")
    reason = "its coordinator is ending it" if "Prepare" in state else "there is nothing to abort"
    assert (found.code, found.text, sent) == (1, "", cluster.sent("InitProducerId"))
    assert found.errors == f"The transaction of 'one' is in the state {state}, so {reason}.\n"


@pytest.mark.parametrize("topic", ["v-1", "v-1-0", "v.w_x-10", "1"])
def test_names_of_partitions(cluster: CommandCluster, topic: str) -> None:
    cluster.cluster.create_topic(topic, 12)
    cluster.sleep(60)  # until the broker knows them
    for number in (0, 1, 11):
        cluster.append(TopicPartition(topic, number), 1, producer_id=100 + number)
        found = cluster.run("transactions", "abort", "--partition", f"{topic}-{number}", "--force")
        assert f"of producer id {100 + number}, epoch 0, in {topic}-{number} from offset 0" in found.text
    for wrong in ("v", f"{topic}-", f"{topic}-x", "-1"):
        found = cluster.run("transactions", "abort", f"--partition={wrong}")
        assert found.code == 2, found


def test_each_id_is_described(cluster: CommandCluster) -> None:
    client = cluster.client()
    for name in ("one", "two"):
        coordinator = TransactionCoordinatorClient(client, name)
        producer = coordinator.init_transactions(60_000).producer
        coordinator.add_partitions(producer, [T0, U0])
        for tp in (T0, U0):
            cluster.append(tp, 1, producer_id=producer.id)
    for name, tp in (("three", T1), ("four", U0)):
        coordinator = TransactionCoordinatorClient(client, name)
        producer = coordinator.init_transactions(70_000).producer
        coordinator.add_partitions(producer, [tp])
        cluster.append(tp, 1, producer_id=producer.id)
    found = cluster.run("transactions", "describe", "one", "two", "--json")
    assert [(row["transactional_id"], row["partitions"]) for row in found.rows] == [
        ("one", "t-0 u-0"),
        ("two", "t-0 u-0"),
    ]
    listed = cluster.run("transactions", "list", "--json").rows
    assert [(row["partition"], row["transactional_id"]) for row in listed if row["state"] != "hanging"] == [
        ("t-0", "one"),
        ("t-0", "two"),
        ("t-1", "three"),
        ("u-0", "one"),
        ("u-0", "two"),
        ("u-0", "four"),
    ]
    assert [row["blocks"] for row in listed if row["partition"] == "u-0"] == ["yes", "no", "no"]


def test_the_chosen_transaction_of_several_is_aborted(cluster: CommandCluster) -> None:
    client = cluster.client()
    for number, name in enumerate(("one", "two", "three")):
        coordinator = TransactionCoordinatorClient(client, name)
        producer = coordinator.init_transactions(50_000 + number).producer
        coordinator.add_partitions(producer, [U0, T1])
        for tp in (U0, T1):
            cluster.append(tp, 1, producer_id=producer.id)

    def open_ids() -> list[str]:
        rows = cluster.run("transactions", "list", "u", "--json").rows
        return [row["transactional_id"] for row in rows]

    assert open_ids() == ["one", "two", "three"]
    dry = cluster.run("transactions", "abort", "two")
    assert dry.text.startswith("Would abort the transaction of 'two' in t-1, u-0, open since ")
    second = cluster.run("transactions", "abort", "--partition", "u-0", "--start-offset", "1", "--execute")
    assert second.text.startswith("Aborted the transaction of 'two' in t-1, u-0")
    assert open_ids() == ["one", "three"]
    assert cluster.run("transactions", "abort", "--partition", "u-0", "--execute").code == 0
    assert open_ids() == ["three"]
    rows = cluster.run("transactions", "describe", "three", "one", "two", "--json").rows
    assert [(row["transactional_id"], row["timeout_ms"]) for row in rows] == [
        ("three", 50_002),
        ("one", 50_000),
        ("two", 50_001),
    ]
    again = cluster.run("transactions", "abort", "two", "--execute")
    assert (again.code, "so there is nothing to abort" in again.errors) == (1, True)
