"""Brokers that respond with REBOOTSTRAP_REQUIRED (KIP-1102): the client starts again with the bootstrap servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import BrokerUnreachableError, ProtocolError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

PARTITION, OTHER = TopicPartition("flights", 0), TopicPartition("trains", 0)
TOPICS = {"flights": 1, "trains": 1}
SHORT = {"default_api_timeout_ms": 8_000}
NEW_CODES = [*(code for code in ErrorCode if code >= ErrorCode.REBOOTSTRAP_REQUIRED), 4711]

CALLS: dict[str, Callable[[ClusterClient], Collection[object]]] = {
    "offsets": lambda client: client.offsets({PARTITION: LATEST, OTHER: LATEST}),
    "topics": lambda client: client.topics(["flights", "trains"]),
    "all_topics": lambda client: client.all_topics(),
    "confirm_missing": lambda client: client.confirm_missing({PARTITION: None, OTHER: None}),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_one_broker_that_returns_metadata_is_enough(call: str, is_known: bool, others: bool) -> None:
    with UnitCluster(TOPICS, brokers=3, connection=SHORT | {"request_timeout_ms": 1_000}) as cluster:
        client = cluster.client()
        expected = CALLS[call](cluster.client())
        if is_known:
            client.topics(["flights", "trains"])
        cluster.event("require_rebootstrap", broker=2 if others else 0, seconds=1000, others=others)
        assert list(CALLS[call](client)) == list(expected)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("brokers", [1, 3])
def test_it_is_no_evidence(call: str, brokers: int) -> None:
    with UnitCluster(TOPICS, brokers=brokers, connection=SHORT) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        for each in range(brokers):
            cluster.event("require_rebootstrap", broker=each, seconds=1000)
        with pytest.raises(BrokerUnreachableError, match="REBOOTSTRAP_REQUIRED"):
            client.refresh_brokers()
        if call == "offsets":  # of the leaders that are known
            cluster.every("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(BrokerUnreachableError):
            CALLS[call](client)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("brokers", [1, 3])
def test_the_client_waits_for_metadata(call: str, brokers: int) -> None:
    with UnitCluster(TOPICS, brokers=brokers) as cluster:
        client = cluster.client()
        expected = CALLS[call](cluster.client())
        client.topics(["flights", "trains"])
        for each in range(brokers):
            cluster.event("require_rebootstrap", broker=each, seconds=9)
        assert list(CALLS[call](client)) == list(expected)
        assert client.cluster_id == "simulated-cluster"


def test_one_try_includes_all_bootstrap_servers() -> None:
    with UnitCluster(TOPICS, brokers=3) as cluster:
        cluster.event("require_rebootstrap", broker=2, seconds=1000, others=True)
        client = cluster.client(retries=1)
        assert set(client.topics(TOPICS)) == set(TOPICS)
        assert cluster.sent("Metadata") == 3


def test_one_try_includes_the_bootstrap_servers_after_the_known_brokers() -> None:
    with UnitCluster(TOPICS, brokers=2) as cluster:
        cluster.event("stop_broker", broker=1, seconds=5)
        cluster.sleep(1)
        client = cluster.client(retries=0)
        client.topics(TOPICS)
        assert set(client.nodes) == {1}
        cluster.sleep(10)
        cluster.event("require_rebootstrap", broker=0, seconds=1000)
        assert set(client.topics(TOPICS)) == set(TOPICS)
        assert set(client.nodes) == {1, 2}


def test_witnesses_are_found_from_the_bootstrap_servers() -> None:
    with UnitCluster(TOPICS, brokers=2) as cluster:
        cluster.event("stop_broker", broker=1, seconds=5)
        cluster.sleep(1)
        client = cluster.client()
        client.topics(["flights", "trains"])
        assert set(client.nodes) == {1}
        cluster.sleep(10)
        cluster.event("require_rebootstrap", broker=0, seconds=1000)
        assert client.confirm_missing({PARTITION: None, OTHER: None}) == set()


def test_no_loss_is_confirmed_while_a_witness_requires_a_rebootstrap() -> None:
    """The others may lag behind it, and it may be the only one that has the topic."""
    with UnitCluster(TOPICS, brokers=3) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        for each in (1, 2):
            cluster.event("stick_image", broker=each, seconds=20)
        cluster.event("create_topic", topic="ships")
        cluster.event("require_rebootstrap", broker=0, seconds=1000)
        assert client.confirm_missing({TopicPartition("ships", 0): None, PARTITION: None}) == set()


def test_a_loss_is_confirmed_although_a_witness_requires_a_rebootstrap_forever() -> None:
    with UnitCluster(TOPICS, brokers=3, connection={"request_timeout_ms": 20_000}) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        cluster.event("require_rebootstrap", broker=0, seconds=1000)
        missing = TopicPartition("ships", 0)
        started_at = cluster.now
        assert client.confirm_missing({missing: None, PARTITION: None}) == {missing}
        assert 20 <= cluster.now - started_at < 30


def test_the_leaders_stay_known_if_a_witness_requires_a_rebootstrap() -> None:
    with UnitCluster(TOPICS, brokers=3) as cluster:
        client = cluster.client()
        client.topics(["flights", "trains"])
        leaders = client.known_leaders([PARTITION, OTHER])
        cluster.event("require_rebootstrap", broker=2, seconds=1000, others=True)
        client.absence_check({PARTITION: None}).step(client.deadline())
        assert client.needs_bootstrap
        assert client.known_leaders([PARTITION, OTHER]) == leaders
        client.refresh_brokers()
        assert not client.needs_bootstrap


def test_witnesses_after_a_rebootstrap_are_those_of_the_bootstrap_server() -> None:
    """The known brokers lack a topic that another one has."""
    with UnitCluster(TOPICS, brokers=3) as cluster:
        cluster.event("stop_broker", broker=2, seconds=5)
        cluster.sleep(1)
        client = cluster.client()
        client.topics(["flights", "trains"])
        assert set(client.nodes) == {1, 2}
        cluster.sleep(10)
        for each in (0, 1):
            cluster.event("stick_image", broker=each, seconds=1000)
        cluster.event("create_topic", topic="ships")
        cluster.event("require_rebootstrap", broker=0, seconds=1000)
        assert client.confirm_missing({TopicPartition("ships", 0): None, PARTITION: None}) == set()


def _committed(client: ClusterClient) -> Collection[object]:
    return ConsumerGroup(client, "planes").committed([PARTITION])


REQUESTS: dict[str, Callable[[ClusterClient], Collection[object]]] = {
    "ListOffsets": CALLS["offsets"],
    "FindCoordinator": _committed,
    "OffsetFetch": _committed,
}


@pytest.mark.parametrize("code", NEW_CODES)
@pytest.mark.parametrize("api", REQUESTS)
def test_the_table_decides_in_each_response(api: str, code: int) -> None:
    with UnitCluster(TOPICS, connection=SHORT) as cluster:
        client = cluster.client()
        cluster.fault(api, "error", code=code)
        if error_code_info(code).retriable:
            REQUESTS[api](client)
        else:
            with pytest.raises(ProtocolError, match=error_code_info(code).name):
                REQUESTS[api](client)
        assert cluster.sent(api) == 1 + error_code_info(code).retriable
