"""Creating a topic, and asking how one, or a broker, is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pyspark_kafka_direct.errors import BrokerError, ProtocolError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire.messages import CREATE_TOPICS, DESCRIBE_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

_T = TypeVar("_T")

_TOPIC, _BROKER = 2, 4  # resource types of DescribeConfigs
_CLUSTERS_CHOICE: Final = -1  # as many replicas as default.replication.factor says (KIP-464)
_MOST_REPLICAS = 3


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    deadline: Deadline | None = None,
    *,
    replicas: int | None = None,
) -> None:
    """Create a topic and wait until its partitions have leaders; fine if there is one of that name already.

    One that is there is left as it is, however many partitions and replicas it has.

    Args:
        cluster: The cluster.
        name: The topic's name.
        partitions: How many.
        configs: Its configuration.
        deadline: End of the wait instead of ``default.api.timeout.ms``.
        replicas: How many; ``None``: as the cluster's default says, and where that cannot be three, or as many as there
            are brokers.

    Raises:
        AuthorizationError: The principal may not create it.
        BrokerError: It could not be created.
    """
    deadline = deadline or cluster.deadline()
    cluster.reach(deadline=deadline)
    try:
        is_new = _create(cluster, name, partitions, replicas or _CLUSTERS_CHOICE, configs, deadline)
    except _BadReplicationError:
        is_new = _create(cluster, name, partitions, min(_MOST_REPLICAS, len(cluster.nodes)), configs, deadline)
    retry = _retry(cluster, deadline)
    for number in range(partitions if is_new else 1):
        while True:  # brokers hear of a new topic a moment later than the controller
            try:
                cluster.leader(TopicPartition(name, number), deadline=deadline)
                break
            except TopicNotFoundError as error:
                retry.after(error)


def topic_config(
    cluster: Cluster, topic: str, names: Collection[str], deadline: Deadline | None = None
) -> dict[str, str | None]:
    """Return some settings of a topic, defaults of the cluster included; what the broker does not know is absent.

    Args:
        cluster: The cluster.
        topic: The topic.
        names: Names of settings.
        deadline: End of the wait instead of ``default.api.timeout.ms``.

    Raises:
        AuthorizationError: The principal may not ask for them (DESCRIBE_CONFIGS on the topic).
        TopicNotFoundError: There is no such topic.
        BrokerError: No broker could be asked.
    """

    def ask(connection: Connection, limit: Deadline) -> dict[str, str | None]:
        return _describe(connection, _TOPIC, topic, names, limit)

    return _ask(cluster, ask, deadline or cluster.deadline())


def broker_config(cluster: Cluster, names: Collection[str], deadline: Deadline | None = None) -> dict[str, str | None]:
    """Return some settings of one of the brokers, whichever answers; what it does not know is absent.

    Args:
        cluster: The cluster.
        names: Names of settings.
        deadline: End of the wait instead of ``default.api.timeout.ms``.

    Raises:
        AuthorizationError: The principal may not ask for them (DESCRIBE_CONFIGS on the cluster).
        BrokerError: No broker could be asked.
    """
    deadline = deadline or cluster.deadline()
    if not cluster.nodes:
        cluster.reach(deadline=deadline)
    retry = _retry(cluster, deadline)
    while True:
        for node in cluster.nodes.values():  # each answers for itself only
            try:
                connection = cluster.connect(node, deadline)
                try:
                    return _describe(connection, _BROKER, str(node.id), names, deadline)
                finally:
                    cluster.give_back(connection)
            except TransientBrokerError as error:
                failure = error
        retry.after(failure)
        cluster.reach(deadline=deadline)


class _BadReplicationError(Exception):
    """As many replicas cannot be."""


def _create(
    cluster: Cluster, name: str, partitions: int, replicas: int, configs: Mapping[str, str], deadline: Deadline
) -> bool:
    """Return whether there was no such topic yet."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }

    def ask(connection: Connection, limit: Deadline) -> bool:
        wait_ms = min(cluster.settings.request_timeout_ms, int(limit.remaining() * 1000))
        response = connection.call(CREATE_TOPICS, {"topics": [topic], "timeout_ms": wait_ms}, limit)
        if [each.name for each in response.topics] != [name]:
            connection.close()
            raise ProtocolError("The answer to CreateTopics lacks the topic.", topic=name, broker=connection.broker)
        code, detail = response.topics[0].error_code, response.topics[0].error_message
        if code == ErrorCode.NONE:
            return True
        if code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if code == ErrorCode.INVALID_REPLICATION_FACTOR and replicas == _CLUSTERS_CHOICE:
            raise _BadReplicationError
        raise _judged(code, "creating the topic", name, connection.broker, detail)

    return _ask(cluster, ask, deadline)


def _describe(
    connection: Connection, kind: int, resource: str, names: Collection[str], deadline: Deadline
) -> dict[str, str | None]:
    wanted = {"resource_type": kind, "resource_name": resource, "configuration_keys": sorted(names)}
    response = connection.call(DESCRIBE_CONFIGS, {"resources": [wanted]}, deadline)
    if [each.resource_name for each in response.results] != [resource]:
        connection.close()
        raise ProtocolError("The answer to DescribeConfigs lacks what it was asked for.", broker=connection.broker)
    (result,) = response.results
    if result.error_code:
        topic = resource if kind == _TOPIC else None
        raise _judged(result.error_code, "asking for the configuration", topic, connection.broker, result.error_message)
    return {each.name: each.value for each in result.configs}


def _judged(code: int, doing: str, topic: str | None, broker: str, detail: str | None) -> KafkaDirectError:
    """Return the error for a code: a transient one where another broker, or another try, may do better."""
    error = error_for(code, doing, topic=topic, broker=broker, detail=detail)
    if isinstance(error, ProtocolError):
        # Before Kafka 2.8 only the controller creates topics (NOT_CONTROLLER): the next broker may be it.
        kind = TransientBrokerError if lookup(code).retriable else BrokerError
        return kind(error.message, topic=topic, broker=broker)
    return error


def _ask(cluster: Cluster, ask: Callable[[Connection, Deadline], _T], deadline: Deadline) -> _T:
    retry = _retry(cluster, deadline)
    if not cluster.nodes:
        cluster.reach(deadline=deadline)
    while True:
        try:
            return cluster.ask_any(ask, deadline, retry.tries)
        except TransientBrokerError as error:
            retry.after(error)


def _retry(cluster: Cluster, deadline: Deadline) -> Retry:
    settings = cluster.settings
    return Retry(deadline, None, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
