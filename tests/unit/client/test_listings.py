"""Groups and transactions that several coordinators list: those of each broker count, in each state; and markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.coordinators import GROUP, TRANSACTION, Coordinators
from tests.simulation.cluster.transactions import TransactionCoordinator, TransactionState
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup, list_group_ids
from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.client.leader_requests import call_leaders
from pyspark_kafka_direct.client.producer_states import AbortMarkerRequest
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.client.transaction_listing import (
    describe_producers_transactions,
    describe_transaction,
    list_transactions,
)
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    KafkaDirectError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.open_transactions import OpenTransaction
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for
from pyspark_kafka_direct.protocol.messages import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

PARTITIONS = [TopicPartition(topic, index) for topic in ("t", "u") for index in range(2)]
NAMES = [f"name-{number}" for number in range(8)]
LONG = 100.0  # seconds until a marker is written


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Broker 1 leads all partitions."""
    with UnitCluster({"t": 2, "u": 2}, brokers=3, replication_factor=3) as cluster:
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


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_each_broker_has_to_list_its_groups(cluster: UnitCluster, broker: int) -> None:
    client, codes = cluster.client(), [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    for name in NAMES:
        ConsumerGroup(client, name).commit({PARTITIONS[0]: 1})

    def fail(node: int, values: dict[str, Any]) -> dict[str, Any]:
        code = codes.pop() if codes and node == broker else ErrorCode.NONE
        return {**values, "error_code": code, "groups": [] if code else values["groups"]}

    cluster.change("ListGroups", fail)
    assert list_group_ids(client, client.deadline()) == NAMES
    assert codes == []
    cluster.fault("ListGroups", "lose_response", number=broker - 1)
    assert list_group_ids(client, client.deadline()) == NAMES
    codes += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    with pytest.raises(BrokerUnreachableError, match="COORDINATOR_LOAD_IN_PROGRESS while listing groups") as caught:
        list_group_ids(client, client.deadline(3))
    assert caught.value.broker == f"broker-{broker}:9092"


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
    for number, tp in enumerate(PARTITIONS[:3]):
        if records_before:
            cluster.append(tp, records_before)
        cluster.append(tp, 2, producer_id=7 + number)
    found = cluster.client().open_transactions(PARTITIONS)
    assert {tp: [(each.producer_id, each.start_offset) for each in opened] for tp, opened in found.items()} == {
        PARTITIONS[0]: [(7, records_before)],
        PARTITIONS[1]: [(8, records_before)],
        PARTITIONS[2]: [(9, records_before)],
        PARTITIONS[3]: [],
    }


@pytest.mark.parametrize("state", [*(each.value for each in TransactionState), "Dead", "PrepareEpochFence"])
def test_the_states_in_which_a_transaction_is_open(cluster: UnitCluster, state: str) -> None:
    """Until its markers are written, a transaction that ends is open in its partitions, and not hanging."""

    def in_state(_: int, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "transaction_states": [{**each, "transaction_state": state} for each in states(values)]}

    TransactionCoordinator.of(cluster.cluster).marker_seconds = (LONG, LONG)
    client = cluster.client()
    producer_id = begin(client, NAMES[0])
    cluster.change("ListTransactions", in_state)
    cluster.change("DescribeTransactions", in_state)
    is_open = state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
    found = describe_transaction(client, NAMES[0], client.deadline())
    assert found is not None
    assert (found.state, found.is_open_in(PARTITIONS[-1])) == (state, is_open)
    assert not any(found.is_open_in(tp) for tp in (TopicPartition("other", 0), TopicPartition("t", 7)))
    assert [*describe_producers_transactions(client, [producer_id], client.deadline())] == [producer_id] * is_open


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_only_one_error_code_means_that_a_transactional_id_is_unknown(cluster: UnitCluster, code: ErrorCode) -> None:
    client, remaining = cluster.client(), [code] * 2
    begin(client, NAMES[0])

    def fail(_: int, values: dict[str, Any]) -> dict[str, Any]:
        error_code = remaining.pop() if remaining else ErrorCode.NONE
        return {**values, "transaction_states": [{**each, "error_code": error_code} for each in states(values)]}

    cluster.change("DescribeTransactions", fail)
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        assert describe_transaction(client, NAMES[0], client.deadline()) is None
    elif error_code_info(code).retriable and not isinstance(error_for(code, ""), TopicNotFoundError):
        found = describe_transaction(client, NAMES[0], client.deadline())
        assert (found is not None, remaining) == (True, [])
    else:
        with pytest.raises(KafkaDirectError, match=f"{code.name} while describing the transactions of '{NAMES[0]}'"):
            describe_transaction(client, NAMES[0], client.deadline())


@pytest.mark.parametrize("count", [0, 2])
def test_a_description_has_one_transaction(cluster: UnitCluster, count: int) -> None:
    client = cluster.client()
    begin(client, NAMES[0])
    cluster.change("DescribeTransactions", lambda _, values: {**values, "transaction_states": states(values) * count})
    before = cluster.open_connections
    with pytest.raises(ProtocolError, match="lacks the id"):
        describe_transaction(client, NAMES[0], client.deadline())
    assert cluster.open_connections == before - 1


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_each_broker_has_to_list_its_transactions(cluster: UnitCluster, broker: int) -> None:
    client = cluster.client()
    for name in NAMES:
        begin(client, name)
    expected, codes = list_transactions(client, client.deadline()), [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2

    def fail(node: int, values: dict[str, Any]) -> dict[str, Any]:
        code = codes.pop() if codes and node == broker else ErrorCode.NONE
        return {**values, "error_code": code, "transaction_states": [] if code else states(values)}

    cluster.change("ListTransactions", fail)
    assert list_transactions(client, client.deadline()) == expected
    assert codes == []
    cluster.pool.clear()
    cluster.fault("ListTransactions", "lose_response", number=broker - 1)
    assert list_transactions(client, client.deadline()) == expected, "a broken connection hides no transactions"
    codes.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError) as caught:
        list_transactions(client, client.deadline())
    assert caught.value.broker == f"broker-{broker}:9092"


def states(values: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = values["transaction_states"]
    return found


# Markers that abort transactions.


class Markers:
    """A leader's responses to WriteTxnMarkers: like Kafka's, one for each producer, with all topics and partitions.

    Args:
        cluster: The cluster, whose brokers have no handler for the request.
        codes: Error codes of the next responses, by producer id and partition; others have none.
        omitted: What responses lack.
    """

    def __init__(
        self,
        cluster: UnitCluster,
        *codes: dict[tuple[int, TopicPartition], ErrorCode],
        omitted: tuple[int, TopicPartition] | None = None,
    ) -> None:
        self.requests: list[set[tuple[int, TopicPartition]]] = []
        self._cluster, self._codes, self._omitted = cluster, list(codes), omitted
        cluster.offer(WRITE_TXN_MARKERS)
        cluster.change("WriteTxnMarkers", lambda *_: self._respond())

    def _respond(self) -> dict[str, Any]:
        (*_, request) = self._cluster.received("WriteTxnMarkers")
        assert not any(each.transaction_result for each in request.markers)
        assert {each.coordinator_epoch for each in request.markers} <= {0, 5}
        written = [
            (marker.producer_id, TopicPartition(topic.name, index))
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        self.requests.append(set(written))
        codes = self._codes.pop(0) if self._codes else {}
        found: dict[int, dict[str, list[dict[str, int]]]] = {}
        for producer_id, tp in written:
            if (producer_id, tp) != self._omitted:
                entry = {"partition_index": tp.partition, "error_code": codes.get((producer_id, tp), ErrorCode.NONE)}
                found.setdefault(producer_id, {}).setdefault(tp.topic, []).append(entry)
        return {
            "markers": [
                {"producer_id": key, "topics": [{"name": name, "partitions": each} for name, each in topics.items()]}
                for key, topics in found.items()
            ]
        }


HANGING = {tp: 7 + (tp == PARTITIONS[-1]) for tp in PARTITIONS}
"""Producer ids by partition: one producer in three of them, and another one in the last."""


def abort(cluster: UnitCluster) -> None:
    client = cluster.client()
    transactions = {
        tp: OpenTransaction(producer_id, 3, 0, coordinator_epoch=5 if producer_id == 8 else -1)
        for tp, producer_id in HANGING.items()
    }
    call_leaders(
        client, AbortMarkerRequest(), transactions, Retry(client.deadline(), None, Backoff.of(client.settings))
    )


def test_markers_of_several_producers_and_partitions_are_written_at_once(cluster: UnitCluster) -> None:
    markers = Markers(cluster)
    abort(cluster)
    assert markers.requests == [{(producer_id, tp) for tp, producer_id in HANGING.items()}]


@pytest.mark.parametrize("tp", PARTITIONS, ids=str)
def test_the_error_of_any_marker_counts(cluster: UnitCluster, tp: TopicPartition) -> None:
    cluster.pool.rotation, key = 0.0, (HANGING[tp], tp)
    markers = Markers(cluster, {key: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    abort(cluster)
    assert markers.requests[1:] == [{key}], "only this one is written again"
    Markers(cluster, {key: ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
    with pytest.raises(AuthorizationError) as caught:
        abort(cluster)
    assert (caught.value.topic, caught.value.partition) == tp
    Markers(cluster, omitted=key)
    with pytest.raises(ProtocolError, match="lacks a partition"):
        abort(cluster)
    assert cluster.open_connections == 0, "requests and responses may no longer match"
