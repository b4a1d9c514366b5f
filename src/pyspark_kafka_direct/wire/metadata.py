"""What the cluster looks like: brokers, topics, partitions and their leaders, from one Metadata request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.wire._socket import address_text
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

_NO_TOPIC_ID = UUID(int=0)

# From here on (Kafka 2.4) the epochs of leaders can be relied on. Older brokers tell outdated ones while partitions are
# moved (KAFKA-9212), and the leader refuses every request that names one. Java's client does not name them either.
_EPOCHS_FROM = 9
_UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker.

    Attributes:
        id: Its number in the cluster.
        host: Name or address that the cluster advertises.
        port: Port that the cluster advertises.
        rack: Its rack, if it has one.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return address_text(self.host, self.port)


class PartitionLeader(NamedTuple):
    """Who led a partition when the cluster was asked.

    Attributes:
        node: The broker.
        epoch: Counts the leaders: with it, a broker that does not lead any more refuses (KIP-320).
    """

    node: Node
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and who serves it.

    Attributes:
        partition: Its number.
        leader: Broker id of the leader; ``None`` while there is none.
        leader_epoch: Counts the leaders; -1 if the broker does not say reliably (Kafka before 2.4).
        replicas: Broker ids of all replicas.
        in_sync: Broker ids of the replicas that have caught up.
        offline: Broker ids of the replicas that are down.
    """

    partition: int
    leader: int | None
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic.

    Attributes:
        name: Its name.
        topic_id: Its id, which a topic created anew under the same name does not share; ``None`` before Kafka 2.8.
        internal: Whether the broker says it belongs to Kafka itself, such as ``__consumer_offsets``.
        partitions: Its partitions by number.
    """

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: dict[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One answer to a Metadata request.

    Attributes:
        nodes: Brokers by id.
        topics: Topics by name, those that exist and may be seen.
        topic_errors: Error codes by topic, other than "does not exist".
        cluster_id: The cluster's id.
        error_code: Error of the whole answer, 0 if there is none.
    """

    nodes: dict[int, Node]
    topics: dict[str, TopicMetadata]
    topic_errors: dict[str, int]
    cluster_id: str | None
    error_code: int = ErrorCode.NONE


def ask_metadata(connection: Connection, names: Collection[str] | None, deadline: Deadline) -> ClusterMetadata:
    """Ask a broker about topics.

    Args:
        connection: Any broker will do.
        names: Topics; ``None`` for all of them.
        deadline: End of the wait.

    Raises:
        BrokerError: No answer, or one that cannot be understood.
    """
    wanted = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }
    response = connection.call(METADATA, wanted, deadline)
    if any(topic.name is None for topic in response.topics):
        connection.close()
        raise ProtocolError("The answer to Metadata has a topic without a name.", broker=connection.broker)
    return _read(response, epochs=connection.version(METADATA) >= _EPOCHS_FROM)


def newest(known: TopicMetadata | None, told: TopicMetadata) -> TopicMetadata:
    """Return what to believe about a topic: of each partition the leader with the highest epoch (KIP-320).

    A broker that lags behind may still tell of a leader that others have seen replaced; ``Metadata`` of the Java client
    decides the same way.

    Args:
        known: What was known before.
        told: What a broker has told now.
    """
    if known is None or known.topic_id != told.topic_id:
        return told
    partitions = {
        number: before
        if (before := known.partitions.get(number)) is not None and before.leader_epoch > partition.leader_epoch
        else partition
        for number, partition in told.partitions.items()
    }
    return replace(told, partitions=partitions)


def _read(response: Any, *, epochs: bool) -> ClusterMetadata:
    nodes = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in response.brokers}
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, int] = {}
    for topic in response.topics:
        if topic.error_code == ErrorCode.NONE:
            topic_id = topic.topic_id
            topics[topic.name] = TopicMetadata(
                topic.name,
                None if topic_id == _NO_TOPIC_ID else topic_id,
                topic.is_internal,
                {entry.partition_index: _read_partition(entry, epochs) for entry in topic.partitions},
            )
        elif topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            errors[topic.name] = topic.error_code
    return ClusterMetadata(nodes, topics, errors, response.cluster_id, response.error_code)


def _read_partition(entry: Any, epochs: bool) -> PartitionMetadata:
    # A partition error (no leader, no listener) comes with leader -1; a replica that is missing is no error for us.
    return PartitionMetadata(
        entry.partition_index,
        entry.leader_id if entry.leader_id >= 0 else None,
        entry.leader_epoch if epochs else _UNKNOWN_EPOCH,
        entry.replica_nodes,
        entry.isr_nodes,
        entry.offline_replicas,
    )
