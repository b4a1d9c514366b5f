"""The brokers of all replicas confirm the leader that has reported the end of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.client.witness_cluster import (
    PARTITION,
    TOPIC,
    cluster_of,
    depose,
    epoch_of,
    metadata_requests,
    pause,
    respond,
    stop,
)

from pyspark_kafka_direct.errors import AuthorizationError, BrokerUnreachableError
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.witnesses import ReplicaWitnesses


def ask(
    client: ClusterClient, witnesses: ReplicaWitnesses, topic_id: UUID, seconds: float = 2
) -> tuple[set[int], bool]:
    """Return which brokers have reported, and whether their reports suffice."""
    reports, unresolved = witnesses.request_reports({TOPIC: topic_id}, [PARTITION], client.deadline(seconds))
    return {report.node_id for report in reports[TOPIC]}, unresolved is None


def test_the_brokers_of_all_replicas_report_the_leader() -> None:
    with cluster_of(6, replicas=4) as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])
        replicas = client.known_replicas([PARTITION])
        assert len(replicas) == 4
        depose(cluster, 4, *({1, 2, 3, 5, 6}))
        assert ask(client, client.replica_witnesses(), topic_id) == (replicas, True)
        assert client.is_deposed(PARTITION, topic_id, epoch_of(cluster) - 1)
        assert client.known_leaders([PARTITION]) == {}, "the metadata names the leader that was deposed"


def test_fewer_replicas_are_not_the_only_witnesses() -> None:
    """A replica may have moved while its broker was paused."""
    with cluster_of(5, replicas=1) as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        reporting, _ = ask(client, client.replica_witnesses(), cluster.topic_id(TOPIC))
        assert client.known_replicas([PARTITION]) < reporting
        assert len(reporting) == 3


def test_an_unresponsive_replica_counts_until_the_request_timeout() -> None:
    with cluster_of(request_timeout_ms=3_000) as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])
        witnesses = client.replica_witnesses()
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)
        pause(cluster, 2, seconds=20)
        started = cluster.now
        assert ask(client, witnesses, topic_id, 1) == ({1, 3}, False)
        while ask(client, witnesses, topic_id, 1) != ({1, 3}, True):
            assert cluster.now < started + 5
        assert cluster.now >= started + 3
        cluster.sleep(20)
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)


@pytest.mark.parametrize("responding", [1, 2, 3])
def test_unresponsive_replicas_delay_a_response_by_a_tenth_of_the_request_timeout(responding: int) -> None:
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])
        witnesses = client.replica_witnesses()
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)
        pause(cluster, *({1, 2, 3} - {responding}))
        started = cluster.now
        assert ask(client, witnesses, topic_id, 60) == ({responding}, False)
        assert 2.9 < cluster.now - started < 3.2


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_brokers_that_failed_recently_are_asked_last(failed: int) -> None:
    with cluster_of(5, replicas=1) as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        pause(cluster, failed)
        for seconds in (3, 0):
            started, before = cluster.now, metadata_requests(cluster)
            found, _ = client.replica_witnesses().request_reports({TOPIC: None}, (), client.deadline(60))
            assert len(found[TOPIC]) == 3
            assert failed not in {each.node_id for each in found[TOPIC]}
            assert seconds <= cluster.now - started < seconds + 0.5
        assert sum(metadata_requests(cluster, before)) == 3


def test_an_unreachable_replica_does_not_count() -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        stop(cluster, 2)
        assert ask(client, client.replica_witnesses(), cluster.topic_id(TOPIC), 20) == ({1, 3}, True)


def test_a_replica_that_knows_another_topic_has_to_be_asked_again() -> None:
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])

        def rename(*brokers: int) -> None:
            def change(broker: int, values: dict[str, Any]) -> dict[str, Any]:
                other = [{**topic, "topic_id": UUID(int=9)} for topic in values["topics"]]
                return {**values, "topics": other} if broker in brokers else values

            cluster.change("Metadata", change)

        rename(2)
        witnesses = client.replica_witnesses()
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, False)
        cluster.sleep(31)
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)
        rename()
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)
        rename(2)
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, False)


def test_a_replica_without_topic_ids_reports_the_leader() -> None:
    """It may be a broker before Kafka 2.8, during an upgrade."""
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])

        def without_id(broker: int, values: dict[str, Any]) -> dict[str, Any]:
            topics = [{**topic, "topic_id": UUID(int=0)} for topic in values["topics"]]
            return {**values, "topics": topics} if broker == 2 else values

        cluster.change("Metadata", without_id)
        assert ask(client, client.replica_witnesses(), topic_id) == ({1, 2, 3}, True)


def test_a_replica_that_reports_an_error_of_the_topic_has_to_be_asked_again() -> None:
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.topics([TOPIC])
        witnesses = client.replica_witnesses()
        respond(cluster, ErrorCode.LEADER_NOT_AVAILABLE, 2)
        assert ask(client, witnesses, topic_id) == ({1, 3}, False)
        respond(cluster, ErrorCode.LEADER_NOT_AVAILABLE)
        assert ask(client, witnesses, topic_id) == ({1, 2, 3}, True)
        respond(cluster, ErrorCode.LEADER_NOT_AVAILABLE, 1, 2, 3)
        with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE"):
            ask(client, witnesses, topic_id)
        respond(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 2)
        with pytest.raises(AuthorizationError):
            ask(client, witnesses, topic_id)


def test_the_replicas_of_a_partition_are_asked_first() -> None:
    """Its leader is one of them; the others of a large cluster may lag behind."""
    with cluster_of(6, replicas=2) as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        assert client.known_replicas([PARTITION]) == {2, 3}
        before = metadata_requests(cluster)
        client.check_leader(PARTITION, cluster.topic_id(TOPIC), epoch_of(cluster))
        assert metadata_requests(cluster, before) == [1, 1, 1, 0, 0, 0]
        before = metadata_requests(cluster)
        check = client.absence_check({PARTITION: None})
        for _ in range(3):
            check.step(client.deadline())
        assert metadata_requests(cluster, before) == [1, 2, 3, 2, 1, 0], "later steps begin with others"
