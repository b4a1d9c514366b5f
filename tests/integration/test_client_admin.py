"""Topics and configurations, created and described by a real broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.admin import create_topic, describe_broker_config, describe_topic_config
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> ClusterClient:
    return ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection)


def new_name() -> str:
    return f"created-{uuid.uuid4().hex[:8]}"


def test_a_topic_is_created_with_its_configuration(cluster: ClusterClient) -> None:
    name = new_name()
    create_topic(cluster, name, 3, {"cleanup.policy": "compact", "segment.ms": "600000"})
    assert sorted(cluster.topics([name])[name].partitions) == [0, 1, 2]
    assert cluster.leader(TopicPartition(name, 2)).id == 1
    assert describe_topic_config(cluster, name, ["cleanup.policy", "segment.ms", "no.such.setting"]) == {
        "cleanup.policy": "compact",
        "segment.ms": "600000",
    }


def test_existing_topic_is_left_unchanged(cluster: ClusterClient) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {"cleanup.policy": "compact"})
    create_topic(cluster, name, 1, {"cleanup.policy": "delete"})
    assert describe_topic_config(cluster, name, ["cleanup.policy"]) == {"cleanup.policy": "compact"}


def test_existing_topic_may_have_fewer_partitions(cluster: ClusterClient) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {})
    create_topic(cluster, name, 3, {}, cluster.deadline(600))
    assert sorted(cluster.topics([name])[name].partitions) == [0]


def test_topic_has_requested_replication_factor(three_brokers: EmbeddedKafka) -> None:
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": three_brokers.bootstrap_servers}).connection)
    for replicas, count in ((2, 2), (None, 3)):
        name = new_name()
        create_topic(cluster, name, 1, {}, replicas=replicas)
        assert len(cluster.topics([name])[name].partitions[0].replicas) == count
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR while creating the topic"):
        create_topic(cluster, new_name(), 1, {}, replicas=9)


def test_defaults_of_the_cluster_are_returned(cluster: ClusterClient) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {})
    assert describe_topic_config(cluster, name, ["cleanup.policy", "max.message.bytes"]) == {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
    }
    assert describe_broker_config(cluster, ["transaction.max.timeout.ms"]) == {"transaction.max.timeout.ms": "900000"}


def test_invalid_topics_raise_at_once(cluster: ClusterClient) -> None:
    with pytest.raises(BrokerError, match=r"INVALID_CONFIG while creating the topic: .*no.such") as caught:
        create_topic(cluster, new_name(), 1, {"no.such.setting": "1"})
    assert caught.value.topic is not None
    with pytest.raises(TopicNotFoundError, match="INVALID_TOPIC_EXCEPTION"):
        create_topic(cluster, "no/topic", 1, {})
    with pytest.raises(TopicNotFoundError):
        describe_topic_config(cluster, new_name(), ["cleanup.policy"])


def test_replication_factor_is_limited_by_brokers(kafka39: EmbeddedKafka) -> None:
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": kafka39.bootstrap_servers}).connection)
    assert describe_broker_config(cluster, ["default.replication.factor"]) == {"default.replication.factor": "3"}
    name = new_name()
    create_topic(cluster, name, 1, {})
    assert cluster.topics([name])[name].partitions[0].replicas == (1,)


def test_principal_without_permission_gets_authorization_error(stoppable_kafka: EmbeddedKafka) -> None:
    kafka = stoppable_kafka
    create_topic(
        ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection),
        "theirs",
        1,
        {},
    )
    user = kafka.users[0]
    settings = parse_client_params(
        {
            "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user.username,
            "sasl.password": user.password,
        }
    )
    cluster = ClusterClient(settings.connection)
    with pytest.raises(AuthorizationError):
        create_topic(cluster, new_name(), 1, {})
    with pytest.raises(AuthorizationError):
        describe_topic_config(cluster, "theirs", ["cleanup.policy"])
    with pytest.raises(AuthorizationError):
        describe_broker_config(cluster, ["transaction.max.timeout.ms"])
