"""Groups and transactions that several coordinators list: those of each broker count, in each state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation.cluster.coordinators import GROUP, TRANSACTION, Coordinators
from tests.simulation.cluster.transactions import TransactionCoordinator, TransactionState
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup, list_group_ids
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.client.transaction_listing import (
    describe_producers_transactions,
    describe_transaction,
    list_transactions,
)
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

PARTITIONS = [TopicPartition(topic, index) for topic in ("t", "u") for index in range(2)]
NAMES = [f"name-{number}" for number in range(8)]
LONG = 100.0  # seconds until a marker is written


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 2, "u": 2}, brokers=3) as cluster:
        yield cluster


def coordinators(cluster: UnitCluster, kind: str) -> set[int | None]:
    found = Coordinators.of(cluster.cluster)
    return {found.leader(GROUP if kind == "group" else TRANSACTION, name) for name in NAMES}


def begin(client: ClusterClient, transactional_id: str) -> int:
    """Begin a transaction in two topics; return the producer id."""
    transactions = TransactionCoordinatorClient(client, transactional_id)
    producer = transactions.init_transactions(60_000).producer
    transactions.add_partitions(producer, PARTITIONS)
    return producer.id


def test_groups_of_all_brokers_are_listed(cluster: UnitCluster) -> None:
    assert coordinators(cluster, "group") == {1, 2, 3}
    client = cluster.client()
    for name in NAMES:
        ConsumerGroup(client, name).commit({PARTITIONS[0]: 1})
    assert list_group_ids(client, client.deadline()) == NAMES


def test_transactions_of_all_brokers_are_listed_and_described(cluster: UnitCluster) -> None:
    assert coordinators(cluster, "transaction") == {1, 2, 3}
    client = cluster.client()
    producer_ids = {name: begin(client, name) for name in NAMES}
    listed = list_transactions(client, client.deadline())
    assert [(each.transactional_id, each.producer_id, each.state) for each in listed] == [
        (name, producer_ids[name], "Ongoing") for name in NAMES
    ]
    chosen = {producer_ids[name] for name in NAMES[::2]}
    described = describe_producers_transactions(client, chosen, client.deadline())
    assert {each.transactional_id for each in described.values()} == {*NAMES[::2]}
    assert all(each.partitions == tuple(PARTITIONS) and each.timeout_ms == 60_000 for each in described.values())


@pytest.mark.parametrize("records_before", [0, 1, 3])
def test_the_start_of_an_open_transaction_may_be_any_offset(cluster: UnitCluster, records_before: int) -> None:
    for tp in PARTITIONS[:2]:
        if records_before:
            cluster.append(tp, records_before)
        cluster.append(tp, 2, producer_id=7 + tp.partition)
    found = cluster.client().open_transactions(PARTITIONS)
    assert {tp: [(each.producer_id, each.start_offset) for each in opened] for tp, opened in found.items()} == {
        PARTITIONS[0]: [(7, records_before)],
        PARTITIONS[1]: [(8, records_before)],
        PARTITIONS[2]: [],
        PARTITIONS[3]: [],
    }


@pytest.mark.parametrize("state", TransactionState)
def test_the_states_in_which_a_transaction_is_open(cluster: UnitCluster, state: TransactionState) -> None:
    """Until its markers are written, a transaction that ends is open in its partitions, and not hanging."""
    coordinator = TransactionCoordinator.of(cluster.cluster)
    coordinator.marker_seconds = (LONG, LONG)
    client = cluster.client()
    producer_id = begin(client, NAMES[0])
    coordinator.transactions[NAMES[0]].state = state
    is_open = state.value in ("Ongoing", "PrepareCommit", "PrepareAbort")
    found = describe_transaction(client, NAMES[0], client.deadline())
    assert found is not None
    assert (found.state, found.is_open_in(PARTITIONS[-1])) == (state.value, is_open)
    assert not found.is_open_in(TopicPartition("other", 0))
    assert [*describe_producers_transactions(client, [producer_id], client.deadline())] == [producer_id] * is_open
