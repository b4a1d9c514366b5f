"""Creates topics, and fetches the configuration of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for
from pyspark_kafka_direct.protocol.messages import CREATE_TOPICS, DESCRIBE_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.errors import KafkaDirectError

_T = TypeVar("_T")

_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4  # resource types of DescribeConfigs
_DEFAULT_REPLICATION_FACTOR: Final = -1  # as many replicas as default.replication.factor (KIP-464)
_MAX_REPLICATION_FACTOR = 3


def create_topic(
    cluster: ClusterClient,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    deadline: Deadline | None = None,
    *,
    replicas: int | None = None,  # None: the cluster's default, or else 3, or else the number of brokers
) -> None:
    """Create a topic and wait until its partitions have leaders; an existing topic is left unchanged."""
    deadline = deadline or cluster.deadline()
    cluster.refresh_brokers(deadline=deadline)
    retry = _retry(cluster, deadline)
    factor = replicas or _DEFAULT_REPLICATION_FACTOR
    while True:
        try:
            is_new = _create_topic(
                cluster, name, partitions=partitions, replicas=factor, configs=configs, deadline=deadline
            )
            break
        except _InvalidReplicationFactorError as error:
            if factor > max(1, len(cluster.nodes)):  # the cluster has too few brokers, which no retry changes
                raise
            if factor != _DEFAULT_REPLICATION_FACTOR:  # the controller has fenced a broker, for a moment or longer
                retry.wait_or_raise(TransientBrokerError(error.message, topic=name, broker=error.broker))
                cluster.refresh_brokers(deadline=deadline)
            # Without `replicas`, the cluster's default is too high for its brokers: use as many as there are, up to 3.
            factor = replicas or max(1, min(_MAX_REPLICATION_FACTOR, len(cluster.nodes)))
    # An existing topic may have fewer partitions, so only its first one is checked.
    _wait_for_leaders(cluster, name, partitions if is_new else 1, deadline)


def describe_topic_config(
    cluster: ClusterClient, topic: str, names: Collection[str], deadline: Deadline | None = None
) -> dict[str, str | None]:
    """Return configuration values of a topic, including cluster defaults; unknown names are omitted."""

    def call(connection: Connection, limit: Deadline) -> dict[str, str | None]:
        return _describe_configs(connection, _TOPIC_RESOURCE, topic, names, limit)

    return _call_any_broker(cluster, call, deadline or cluster.deadline())


def describe_broker_config(
    cluster: ClusterClient, names: Collection[str], deadline: Deadline | None = None
) -> dict[str, str | None]:
    """Return configuration values of any one broker; unknown names are omitted."""
    deadline = deadline or cluster.deadline()
    if not cluster.nodes:
        cluster.refresh_brokers(deadline=deadline)
    retry = _retry(cluster, deadline)
    while True:
        failure: TransientBrokerError = BrokerUnreachableError("The metadata has no brokers.")
        for node in cluster.nodes.values():  # a broker returns only its own configuration
            try:
                connection = cluster.connect(node, deadline)
                try:
                    return _describe_configs(connection, _BROKER_RESOURCE, str(node.id), names, deadline)
                finally:
                    cluster.release(connection)
            except TransientBrokerError as error:
                failure = error
        retry.wait_or_raise(failure)
        cluster.refresh_brokers(deadline=deadline)


class _InvalidReplicationFactorError(BrokerError):
    """The controller has fewer usable brokers than a topic needs."""


def _wait_for_leaders(cluster: ClusterClient, topic: str, partitions: int, deadline: Deadline) -> None:
    retry = _retry(cluster, deadline)
    for index in range(partitions):
        while True:  # the metadata of other brokers lags behind the controller
            try:
                cluster.leader(TopicPartition(topic, index), deadline=deadline)
                break
            except TopicNotFoundError as error:
                retry.wait_or_raise(error)


def _create_topic(
    cluster: ClusterClient, name: str, *, partitions: int, replicas: int, configs: Mapping[str, str], deadline: Deadline
) -> bool:
    """Create the topic; return False if it exists already."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }

    def call(connection: Connection, limit: Deadline) -> bool:
        wait_ms = min(cluster.settings.request_timeout_ms, int(limit.remaining() * 1000))
        response = connection.call(CREATE_TOPICS, {"topics": [topic], "timeout_ms": wait_ms}, limit)
        if [topic.name for topic in response.topics] != [name]:
            connection.close()
            raise ProtocolError("The response to CreateTopics lacks the topic.", topic=name, broker=connection.broker)
        code, detail = response.topics[0].error_code, response.topics[0].error_message
        if code == ErrorCode.NONE:
            return True
        if code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        error = _response_error(code, "creating the topic", name, connection.broker, detail)
        if code == ErrorCode.INVALID_REPLICATION_FACTOR:
            raise _InvalidReplicationFactorError(error.message, topic=name, broker=connection.broker)
        raise error

    return _call_any_broker(cluster, call, deadline)


def _describe_configs(
    connection: Connection, resource_type: int, resource: str, names: Collection[str], deadline: Deadline
) -> dict[str, str | None]:
    request = {"resource_type": resource_type, "resource_name": resource, "configuration_keys": sorted(names)}
    response = connection.call(DESCRIBE_CONFIGS, {"resources": [request]}, deadline)
    if [result.resource_name for result in response.results] != [resource]:
        connection.close()
        raise ProtocolError("The response to DescribeConfigs lacks the requested resource.", broker=connection.broker)
    (result,) = response.results
    if result.error_code:
        topic = resource if resource_type == _TOPIC_RESOURCE else None  # for the error's location
        raise _response_error(
            result.error_code, "fetching the configuration", topic, connection.broker, result.error_message
        )
    return {config.name: config.value for config in result.configs}


def _response_error(code: int, operation: str, topic: str | None, broker: str, detail: str | None) -> KafkaDirectError:
    """Return the error for a code: a transient one if a retry or another broker may succeed."""
    error = error_for(code, operation, topic=topic, broker=broker, detail=detail)
    return BrokerError(error.message, topic=topic, broker=broker) if isinstance(error, ProtocolError) else error


def _call_any_broker(cluster: ClusterClient, call: Callable[[Connection, Deadline], _T], deadline: Deadline) -> _T:
    retry = _retry(cluster, deadline)
    if not cluster.nodes:
        cluster.refresh_brokers(deadline=deadline)
    while True:
        try:
            return cluster.call_any_broker(call, deadline, retry.tries)
        except TransientBrokerError as error:
            retry.wait_or_raise(error)


def _retry(cluster: ClusterClient, deadline: Deadline) -> Retry:
    return Retry(deadline, None, Backoff.of(cluster.settings))
