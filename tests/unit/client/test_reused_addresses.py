"""A broker of another cluster, which lacks the topics, uses the address of a broker for a while."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.connection import BrokerIdentity
from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.errors import BrokerUnreachableError, ProtocolError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection

PARTITION, OTHER = TopicPartition("flights", 0), TopicPartition("trains", 0)
TOPICS = {"flights": 1, "trains": 1}
SHORT = {"default_api_timeout_ms": 8_000}
BEFORE_KAFKA_4_4: dict[str, Any] = {"newest_versions": {"ApiVersions": 4}}

CALLS: dict[str, Callable[[ClusterClient], Collection[object]]] = {
    "offsets": lambda client: client.offsets({PARTITION: LATEST, OTHER: LATEST}),
    "topics": lambda client: client.topics(["flights", "trains"]),
    "all_topics": lambda client: client.all_topics(),
    "confirm_missing": lambda client: client.confirm_missing({PARTITION: None, OTHER: None}),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("settings", [{}, BEFORE_KAFKA_4_4])
def test_another_cluster_is_named_and_is_no_evidence(call: str, settings: dict[str, Any]) -> None:
    with UnitCluster(TOPICS, connection=SHORT, **settings) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        cluster.event("reuse_address", broker=0, seconds=1000)
        with pytest.raises(BrokerUnreachableError) as caught:
            CALLS[call](client)
        assert re.search(
            "belongs to the cluster another-cluster, and this client to simulated-cluster", str(caught.value)
        )
        assert client.cluster_id == "simulated-cluster"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("settings", [{}, BEFORE_KAFKA_4_4])
def test_the_client_waits_until_the_broker_returns(call: str, settings: dict[str, Any]) -> None:
    with UnitCluster(TOPICS, **settings) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        expected = CALLS[call](client)
        cluster.event("reuse_address", broker=0, seconds=9)
        assert list(CALLS[call](client)) == list(expected)


def test_a_broker_of_kafka_4_4_gets_no_request_for_another_one() -> None:
    with UnitCluster(TOPICS, connection=SHORT) as cluster:
        client = cluster.client()
        node = client.leader(PARTITION)
        cluster.event("reuse_address", broker=0, seconds=1000)
        cluster.requests.clear()
        with pytest.raises(BrokerUnreachableError, match="REBOOTSTRAP_REQUIRED while connecting to broker 1"):
            client.connect(node, client.deadline())
        assert {request.api for request in cluster.requests} == {"ApiVersions"}
        assert [request.values.node_id for request in cluster.requests if request.version == 5] == [1]


@pytest.mark.parametrize("broker", [1, 2])
def test_a_broker_of_another_cluster_gets_no_request_that_any_broker_can_serve(broker: int) -> None:
    with UnitCluster(TOPICS, brokers=2) as cluster:
        client = cluster.client()
        client.topics(TOPICS)
        cluster.event("reuse_address", broker=broker - 1, seconds=1000)
        cluster.pool.clear()
        cluster.pool.rotation = (broker - 1) / 2  # that broker is the first one
        assert request_producer_id(client, client.deadline()).id == 0
        assert cluster.sent("InitProducerId") == 1


def acquire(cluster: UnitCluster) -> Connection:
    client = cluster.client()
    connection = cluster.pool.acquire(client.settings, "broker-1", 9092, client.deadline())
    connection.expect(BrokerIdentity("simulated-cluster", 1), client.deadline())
    return connection


def test_a_connection_to_another_cluster_is_closed_at_once() -> None:
    with UnitCluster(TOPICS) as cluster:
        connection = acquire(cluster)
        for cluster_id in (None, "simulated-cluster"):
            connection.check_cluster(cluster_id)
        assert (connection.closed, connection.is_foreign) == (False, False)
        with pytest.raises(BrokerUnreachableError, match="belongs to the cluster other"):
            connection.check_cluster("other")
        assert (connection.closed, connection.is_foreign) == (True, True)


@pytest.mark.parametrize("other", [BrokerIdentity("simulated-cluster", 2), BrokerIdentity("another", 1)])
def test_a_connection_is_verified_again_for_another_identity(other: BrokerIdentity) -> None:
    """A broker may move to the address of another one, whose idle connections lead to it."""
    with UnitCluster(TOPICS, brokers=2) as cluster:
        client = cluster.client()
        connection = acquire(cluster)
        connection.expect(BrokerIdentity("simulated-cluster", 1), client.deadline())
        with pytest.raises(BrokerUnreachableError, match=f"while connecting to broker {other.node_id}") as caught:
            connection.expect(other, client.deadline())
        assert not caught.value.connected, "witnesses do not wait for it"
        assert connection.closed


def test_only_one_error_code_requires_a_rebootstrap() -> None:
    with UnitCluster(TOPICS) as cluster:
        connection = acquire(cluster)
        for code in set(ErrorCode) - {ErrorCode.REBOOTSTRAP_REQUIRED}:
            connection.close_if_rebootstrap_required(code)
        assert (connection.closed, connection.is_foreign) == (False, False)
        connection.close_if_rebootstrap_required(ErrorCode.REBOOTSTRAP_REQUIRED)
        assert (connection.closed, connection.is_foreign) == (True, True)


def test_a_connection_whose_broker_rejects_its_identity_is_not_reused() -> None:
    with UnitCluster(TOPICS) as cluster:
        client = cluster.client()
        node = client.leader(PARTITION)
        cluster.pool.clear()

        def reject(_: int, values: dict[str, Any]) -> dict[str, Any]:
            is_check = cluster.received("ApiVersions")[-1].node_id >= 0
            return {**values, "error_code": ErrorCode.INVALID_REQUEST} if is_check else values

        cluster.change("ApiVersions", reject)
        with pytest.raises(ProtocolError, match="INVALID_REQUEST while connecting to broker 1"):
            client.connect(node, client.deadline())
        assert cluster.open_connections == 0


def test_a_connection_is_verified_once() -> None:
    with UnitCluster(TOPICS) as cluster:
        client = cluster.client()
        for _ in range(3):
            client.offsets({PARTITION: LATEST})
            client.topics(["trains"])
        assert [request.version for request in cluster.requests if request.api == "ApiVersions"] == [3, 5]


def test_before_kafka_4_4_connections_need_one_request_for_versions() -> None:
    with UnitCluster(TOPICS, **BEFORE_KAFKA_4_4) as cluster:
        client = cluster.client()
        client.offsets({PARTITION: LATEST})
        assert [request.version for request in cluster.requests if request.api == "ApiVersions"] == [3]


def test_the_check_can_be_disabled() -> None:
    with UnitCluster(TOPICS, connection=SHORT) as cluster:
        client = cluster.client(metadata_cluster_check_enable=False)
        client.topics(["flights", "trains"])
        cluster.event("reuse_address", broker=0, seconds=1000)
        with pytest.raises(TopicNotFoundError):
            client.partition(PARTITION) if client.topics(["flights"]) else client.leader(PARTITION)
        assert {request.version for request in cluster.requests if request.api == "ApiVersions"} == {3}


def test_a_planned_leader_brings_the_cluster_id() -> None:
    with UnitCluster(TOPICS, connection=SHORT) as cluster:
        planner, task = cluster.client(), cluster.client()
        node = planner.leader(PARTITION)
        task.release(task.connect(node, task.deadline()))
        assert task.cluster_id == "simulated-cluster"
