"""``kafka-direct transactions`` with two producers and two partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.simulated_commands import CommandCluster, Output

from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_partitions_whose_transactions_are_not_shown(cluster: CommandCluster) -> None:
    def without_producers(_: int, values: dict[str, Any]) -> dict[str, Any]:
        topics = [
            {**topic, "partitions": [{**each, "active_producers": []} for each in topic["partitions"]]}
            for topic in values["topics"]
        ]
        return {**values, "topics": topics}

    cluster.change("DescribeProducers", without_producers)
    found = cluster.run("transactions", "list", "t")
    assert found.errors.startswith("t-0, t-1: records are not stable yet")


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
    for name in ("one", "two", "three"):
        coordinator = TransactionCoordinatorClient(client, name)
        producer = coordinator.init_transactions(60_000).producer
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
    again = cluster.run("transactions", "abort", "two", "--execute")
    assert (again.code, "so there is nothing to abort" in again.errors) == (1, True)
