"""Topics are created and described by a real broker."""

from __future__ import annotations

import uuid

import pytest

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.topics import broker_config, create_topic, topic_config


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Cluster:
    return Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection)


def new_name() -> str:
    return f"created-{uuid.uuid4().hex[:8]}"


def test_a_topic_is_created_with_its_configuration(cluster: Cluster) -> None:
    name = new_name()
    create_topic(cluster, name, 3, {"cleanup.policy": "compact", "segment.ms": "600000"})
    assert sorted(cluster.topics([name])[name].partitions) == [0, 1, 2]
    assert cluster.leader(TopicPartition(name, 2)).id == 1
    assert topic_config(cluster, name, ["cleanup.policy", "segment.ms", "no.such.setting"]) == {
        "cleanup.policy": "compact",
        "segment.ms": "600000",
    }


def test_a_topic_that_is_there_is_left_as_it_is(cluster: Cluster) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {"cleanup.policy": "compact"})
    create_topic(cluster, name, 1, {"cleanup.policy": "delete"})
    assert topic_config(cluster, name, ["cleanup.policy"]) == {"cleanup.policy": "compact"}


def test_a_topic_that_is_there_may_have_fewer_partitions(cluster: Cluster) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {})
    create_topic(cluster, name, 3, {}, cluster.deadline(10))
    assert sorted(cluster.topics([name])[name].partitions) == [0]


def test_a_topic_has_as_many_replicas_as_were_asked_for(cluster: Cluster) -> None:
    with EmbeddedKafka(3, properties={"default.replication.factor": "1"}) as kafka:
        three = Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection)
        for replicas, count in ((2, 2), (None, 1)):
            name = new_name()
            create_topic(three, name, 1, {}, replicas=replicas)
            assert len(three.topics([name])[name].partitions[0].replicas) == count
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR while creating the topic"):
        create_topic(cluster, new_name(), 1, {}, replicas=9)


def test_defaults_of_the_cluster_are_told(cluster: Cluster) -> None:
    name = new_name()
    create_topic(cluster, name, 1, {})
    assert topic_config(cluster, name, ["cleanup.policy", "max.message.bytes"]) == {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
    }
    assert broker_config(cluster, ["transaction.max.timeout.ms"]) == {"transaction.max.timeout.ms": "900000"}


def test_what_cannot_be_created_is_an_error_at_once(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match=r"INVALID_CONFIG while creating the topic: .*no.such") as caught:
        create_topic(cluster, new_name(), 1, {"no.such.setting": "1"})
    assert caught.value.topic is not None
    with pytest.raises(TopicNotFoundError, match="INVALID_TOPIC_EXCEPTION"):
        create_topic(cluster, "no/topic", 1, {})
    with pytest.raises(TopicNotFoundError):
        topic_config(cluster, new_name(), ["cleanup.policy"])


def test_too_few_brokers_for_the_default_give_fewer_replicas() -> None:
    with EmbeddedKafka(properties={"default.replication.factor": "3"}) as kafka:
        cluster = Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection)
        name = new_name()
        create_topic(cluster, name, 1, {})
        assert cluster.topics([name])[name].partitions[0].replicas == (1,)


def test_a_principal_without_permission_is_told_so() -> None:
    with EmbeddedKafka(security=["SASL_PLAINTEXT"], authorizer=True) as kafka:
        create_topic(
            Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection), "theirs", 1, {}
        )
        user = kafka.users[0]
        settings = connection_settings(
            {
                "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user.username,
                "sasl.password": user.password,
            }
        )
        cluster = Cluster(settings.connection)
        with pytest.raises(AuthorizationError):
            create_topic(cluster, new_name(), 1, {})
        with pytest.raises(AuthorizationError):
            topic_config(cluster, "theirs", ["cleanup.policy"])
        with pytest.raises(AuthorizationError):
            broker_config(cluster, ["transaction.max.timeout.ms"])
