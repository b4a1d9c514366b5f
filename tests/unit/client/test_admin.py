"""Topics that are created, and the configuration of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.witness_cluster import advertise, stop

from pyspark_kafka_direct.client.admin import create_topic, describe_broker_config, describe_topic_config
from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, BrokerUnreachableError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "flights"
CONFIGS = {"cleanup.policy": "compact", "retention.ms": "1000"}
BROKER_CONFIGS = {"log.retention.ms": "7", "transaction.max.timeout.ms": "900000"}


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Three brokers that are called in the order of their ids."""
    with UnitCluster({TOPIC: 2}, brokers=3, replication_factor=3, broker_configs=BROKER_CONFIGS) as cluster:
        cluster.pool.rotation = 0.0
        yield cluster


def factors(cluster: UnitCluster) -> list[int]:
    """Return the replication factors that were requested."""
    return [request.topics[0].replication_factor for request in cluster.received("CreateTopics")]


def reject(cluster: UnitCluster, code: int, times: int) -> None:
    """Let the next responses to CreateTopics have an error."""
    remaining = [code] * times

    def change(_: int, values: dict[str, Any]) -> dict[str, Any]:
        if not remaining:
            return values
        changed = {"error_code": remaining.pop(), "error_message": "a reason"}
        return {**values, "topics": [{**each, **changed} for each in values["topics"]]}

    cluster.change("CreateTopics", change)


@pytest.mark.parametrize("number", range(3))
def test_a_new_topic_has_a_leader_of_each_partition(cluster: UnitCluster, number: int) -> None:
    def lose_leader(_: int, values: dict[str, Any]) -> dict[str, Any]:
        cluster.event("lose_leader", topic="new", partition=number, seconds=3.0)
        return values

    cluster.change("CreateTopics", lose_leader)
    client, started = cluster.client(), cluster.now
    create_topic(client, "new", 3, CONFIGS)
    assert 3 <= cluster.now - started < 4
    partitions = [TopicPartition("new", each) for each in range(3)]
    assert client.known_leaders(partitions).keys() == set(partitions)
    (request,) = cluster.received("CreateTopics")
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, {each.name: each.value for each in topic.configs}) == ("new", 3, CONFIGS)
    assert 2_900 <= request.timeout_ms <= 3_000, "the first broker has a tenth of request.timeout.ms"


def test_an_existing_topic_is_not_changed(cluster: UnitCluster) -> None:
    create_topic(cluster.client(), TOPIC, 5, CONFIGS)
    assert len(cluster.cluster.topics[TOPIC].partitions) == 2


@pytest.mark.parametrize(("brokers", "default", "expected"), [(2, 3, [-1, 2]), (5, 9, [-1, 3]), (3, 3, [-1])])
def test_a_default_replication_factor_that_is_too_high(brokers: int, default: int, expected: list[int]) -> None:
    with UnitCluster({}, brokers=brokers, replication_factor=default) as cluster:
        create_topic(cluster.client(), "new", 2, {})
        assert factors(cluster) == expected


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_as_many_replicas_as_brokers_are_possible_when_these_are_back(cluster: UnitCluster, replicas: int) -> None:
    reject(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, 2)  # the controller has fenced brokers for a moment
    create_topic(cluster.client(), "new", 1, {}, replicas=replicas)
    assert factors(cluster) == [replicas] * 3


def test_more_replicas_than_brokers_are_an_error(cluster: UnitCluster) -> None:
    with pytest.raises(BrokerError, match=r"creating the topic: error 38") as caught:
        create_topic(cluster.client(), "new", 1, {}, replicas=4)
    assert not isinstance(caught.value, TransientBrokerError)
    assert (caught.value.topic, caught.value.broker) == ("new", "broker-1:9092")
    assert factors(cluster) == [4]


def test_more_replicas_than_brokers_that_are_left_are_an_error(cluster: UnitCluster) -> None:
    reject(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, 1000)
    cluster.before("CreateTopics", lambda: stop(cluster, 3))
    started = cluster.now
    with pytest.raises(BrokerError, match="creating the topic: a reason") as caught:
        create_topic(cluster.client(), "new", 1, {}, replicas=3)
    assert not isinstance(caught.value, TransientBrokerError)
    assert cluster.now - started < 30


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_errors_that_may_pass_are_retried(cluster: UnitCluster, code: int) -> None:
    reject(cluster, code, 7)
    create_topic(cluster.client(), "new", 1, {})
    assert cluster.sent("CreateTopics") == 8


def test_the_reason_of_a_broker_is_in_the_error(cluster: UnitCluster) -> None:
    reject(cluster, ErrorCode.POLICY_VIOLATION, 1)
    with pytest.raises(BrokerError, match=r"POLICY_VIOLATION while creating the topic: a reason\.") as caught:
        create_topic(cluster.client(), "new", 1, {})
    assert (caught.value.topic, caught.value.broker) == ("new", "broker-1:9092")


def test_the_configuration_of_a_topic(cluster: UnitCluster) -> None:
    client = cluster.client()
    create_topic(client, "new", 1, CONFIGS)
    assert describe_topic_config(client, "new", [*CONFIGS, "no.such.name"]) == CONFIGS
    cluster.event("deny_topic", topic="new", seconds=1000)
    with pytest.raises(AuthorizationError, match="fetching the configuration: error 29") as caught:
        describe_topic_config(client, "new", CONFIGS)
    assert (caught.value.topic, caught.value.broker) == ("new", "broker-1:9092")


@pytest.mark.parametrize("running", [1, 2, 3])
def test_the_configuration_of_any_broker_that_can_be_reached(cluster: UnitCluster, running: int) -> None:
    client = cluster.client()
    client.refresh_brokers()
    stop(cluster, *({1, 2, 3} - {running}))
    assert describe_broker_config(client, BROKER_CONFIGS) == BROKER_CONFIGS
    (request,) = cluster.received("DescribeConfigs")
    assert [(each.resource_type, each.resource_name) for each in request.resources] == [(4, str(running))]
    assert cluster.sent("Metadata") == 1, "the others are tried at once"


def test_brokers_are_found_again_for_their_configuration(cluster: UnitCluster) -> None:
    """All have other addresses since the last metadata."""
    client = cluster.client()
    advertise(cluster, 1)
    client.refresh_brokers()
    cluster.change("Metadata", None)
    assert describe_broker_config(client, BROKER_CONFIGS) == BROKER_CONFIGS


def test_an_error_about_a_broker_names_no_topic(cluster: UnitCluster) -> None:
    denied = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": "no"}
    cluster.change("DescribeConfigs", lambda _, values: {"results": [{**each, **denied} for each in values["results"]]})
    with pytest.raises(AuthorizationError) as caught:
        describe_broker_config(cluster.client(), BROKER_CONFIGS)
    assert (caught.value.topic, caught.value.broker) == (None, "broker-1:9092")


def test_each_try_leaves_brokers_more_time() -> None:
    with UnitCluster({TOPIC: 1}, brokers=2, connection={"connect_timeout_ms": 300_000}) as cluster:
        client = cluster.client(retry_backoff_ms=0, reconnect_backoff_ms=0)
        client.refresh_brokers()
        cluster.pool.clear()
        cluster.connect_limits.clear()
        cluster.connect_fault("refuse_connect", repeats=5)
        assert describe_topic_config(client, TOPIC, [], client.deadline(300)) is not None
        assert cluster.connect_limits == pytest.approx([3, 300, 6, 300, 12, 300], abs=0.6)
        stop(cluster, 1, 2)
        with pytest.raises(BrokerUnreachableError):
            describe_topic_config(client, TOPIC, [], client.deadline(2))
