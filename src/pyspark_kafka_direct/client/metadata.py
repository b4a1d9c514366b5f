"""Cluster metadata: brokers, topics, partitions and their leaders, from one Metadata request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.client.socket_connect import format_address
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import TopicReport
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.planning.data_loss import EpochFloors

_NO_TOPIC_ID = UUID(int=0)

# Leader epochs are reliable from this version on (Kafka 2.4). Older brokers return outdated ones while partitions are
# moved (KAFKA-9212), and the leader rejects every request with one. Java's client does not send them either.
_FIRST_VERSION_WITH_RELIABLE_EPOCHS = 9
_UNKNOWN_EPOCH = -1
_UNKNOWN_NODE = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, as advertised by the cluster."""

    id: int
    host: str
    port: int
    rack: str | None = None
    cluster_id: str | None = None  # None if it is not known

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class PartitionLeader(NamedTuple):
    """The leader of a partition; brokers with another leader epoch reject requests (KIP-320)."""

    node: Node
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition, its leader and its replicas, by broker id."""

    partition: int
    leader: int | None  # None if there is no leader
    leader_epoch: int = -1  # -1 if not reliable (Kafka before 2.4)
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic and its partitions by index."""

    name: str
    topic_id: UUID | None  # None before Kafka 2.8
    internal: bool  # such as __consumer_offsets
    partitions: dict[int, PartitionMetadata]


class TopicError(NamedTuple):
    code: int
    internal: bool  # such as __consumer_offsets


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The contents of one Metadata response."""

    nodes: dict[int, Node]
    topics: dict[str, TopicMetadata]  # those that exist and are visible to the principal
    topic_errors: dict[str, TopicError]  # except UNKNOWN_TOPIC_OR_PARTITION
    cluster_id: str | None
    error_code: int = ErrorCode.NONE


class CachedTopic(NamedTuple):
    metadata: TopicMetadata
    received_at: float  # monotonic time of the response


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The brokers of the last response, and the topics of all. It is replaced as a whole, so any thread may read it."""

    was_reached: bool = False  # whether any broker has responded
    nodes: Mapping[int, Node] = field(default_factory=dict)
    cached_topics: Mapping[str, CachedTopic] = field(default_factory=dict)  # by name

    def topics(self, names: Iterable[str], received_since: float = -math.inf) -> dict[str, TopicMetadata]:
        """Return the topics that are known since this monotonic time or later."""
        return {
            name: cached.metadata
            for name in names
            if (cached := self.cached_topics.get(name)) is not None and cached.received_at >= received_since
        }

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        cached = self.cached_topics.get(partition.topic)
        return None if cached is None else cached.metadata.partitions.get(partition.partition)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return the leaders that are known."""
        leaders = {}
        for partition in partitions:
            metadata = self.partition(partition)
            node = None if metadata is None or metadata.leader is None else self.nodes.get(metadata.leader)
            if metadata is not None and node is not None:
                leaders[partition] = PartitionLeader(node, metadata.leader_epoch)
        return leaders

    def updated(
        self,
        response: ClusterMetadata,
        names: Collection[str] | None,  # that were requested; None: all
        floors: EpochFloors,
        now: float,
    ) -> MetadataSnapshot:
        """Return the snapshot with a response; requested topics that it lacks are removed."""
        requested_names = self.cached_topics.keys() if names is None else set(names)
        others = {name: topic for name, topic in self.cached_topics.items() if name not in requested_names}
        known = self.topics(response.topics)
        received = {
            name: CachedTopic(merge_by_leader_epoch(known.get(name), topic, floors), now)
            for name, topic in response.topics.items()
        }
        return MetadataSnapshot(was_reached=True, nodes=response.nodes, cached_topics={**others, **received})

    def without_topic(self, name: str) -> MetadataSnapshot:
        return replace(self, cached_topics={each: topic for each, topic in self.cached_topics.items() if each != name})


def fetch_metadata(connection: Connection, names: Collection[str] | None, deadline: Deadline) -> ClusterMetadata:
    """Fetch metadata of topics from any broker; ``None`` means all topics."""
    submit_metadata(connection, names, deadline)
    return complete_metadata(connection, deadline)


def submit_metadata(connection: Connection, names: Collection[str] | None, deadline: Deadline) -> None:
    """Send the request of ``fetch_metadata``, whose response ``complete_metadata`` returns."""
    request = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }
    connection.submit(METADATA, request, deadline)


def complete_metadata(connection: Connection, deadline: Deadline) -> ClusterMetadata:
    response = connection.complete(METADATA, deadline)
    connection.check_cluster(response.cluster_id)
    # The error itself remains in the result: `ClusterClient.check_metadata` raises it.
    connection.close_if_rebootstrap_required(response.error_code)
    if any(topic.name is None for topic in response.topics):
        connection.close()
        raise ProtocolError("The response to Metadata has a topic without a name.", broker=connection.broker)
    return _parse_metadata(
        response, has_reliable_epochs=connection.version(METADATA) >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS
    )


def merge_by_leader_epoch(
    known_topic: TopicMetadata | None, received_topic: TopicMetadata, floors: EpochFloors
) -> TopicMetadata:
    """Return new metadata, but for each partition the leader with the highest epoch (KIP-320), if it is known."""
    # A broker that lags behind may still return a leader that was replaced; Java's Metadata class decides the same way.
    topic_id = received_topic.topic_id
    # Without topic ids a lower epoch may be that of a recreated topic, and the higher one would be kept forever.
    known_partitions: Mapping[int, PartitionMetadata] = {}
    if known_topic is not None and topic_id is not None and known_topic.topic_id == topic_id:
        known_partitions = known_topic.partitions
    partitions = {}
    for index, received in received_topic.partitions.items():
        known = known_partitions.get(index)
        newest = known if known is not None and known.leader_epoch > received.leader_epoch else received
        was_deposed = floors.is_stale(TopicPartition(received_topic.name, index), topic_id, newest.leader_epoch)
        # Without a leader, the partition is retried until metadata has the later one.
        partitions[index] = replace(newest, leader=None) if was_deposed else newest
    return replace(received_topic, partitions=partitions)


def topic_report(
    topic: TopicMetadata | None,  # None if the broker lacks the topic, or returned an error
    *,
    node_id: int = _UNKNOWN_NODE,  # only needed to compare the reports of several brokers
    error_code: int = ErrorCode.NONE,
) -> TopicReport:
    """Return what a broker's metadata says about a topic, as evidence of data loss."""
    if topic is None:
        return TopicReport(node_id, error_code=error_code)
    return TopicReport(
        node_id, topic.topic_id, {index: partition.leader_epoch for index, partition in topic.partitions.items()}
    )


def _parse_metadata(response: Any, *, has_reliable_epochs: bool) -> ClusterMetadata:
    nodes = {
        node.node_id: Node(node.node_id, node.host, node.port, node.rack, response.cluster_id)
        for node in response.brokers
    }
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, TopicError] = {}
    for topic in response.topics:
        if topic.error_code == ErrorCode.NONE:
            topic_id = topic.topic_id
            topics[topic.name] = TopicMetadata(
                name=topic.name,
                topic_id=None if topic_id == _NO_TOPIC_ID else topic_id,
                internal=topic.is_internal,
                partitions={
                    entry.partition_index: _parse_partition(entry, has_reliable_epochs) for entry in topic.partitions
                },
            )
        elif topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            errors[topic.name] = TopicError(topic.error_code, topic.is_internal)
    return ClusterMetadata(nodes, topics, errors, response.cluster_id, response.error_code)


def _parse_partition(entry: Any, has_reliable_epochs: bool) -> PartitionMetadata:
    # A partition error (no leader, no listener) comes with leader -1; a missing replica is no error for a client.
    return PartitionMetadata(
        partition=entry.partition_index,
        leader=entry.leader_id if entry.leader_id >= 0 else None,
        leader_epoch=entry.leader_epoch if has_reliable_epochs else _UNKNOWN_EPOCH,
        replicas=entry.replica_nodes,
        in_sync_replicas=entry.isr_nodes,
        offline_replicas=entry.offline_replicas,
    )
