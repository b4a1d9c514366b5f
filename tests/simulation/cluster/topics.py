"""Topics of a simulated cluster, and the snapshots of them that brokers act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.cluster.partition_log import ReplicaLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

NO_LEADER = -1


class PartitionImage(NamedTuple):
    """A partition as of a metadata version."""

    leader: int  # NO_LEADER: none
    epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class TopicImage(NamedTuple):
    """A topic as of a metadata version."""

    topic: SimulatedTopic
    partitions: tuple[PartitionImage, ...]


class ClusterImage(NamedTuple):
    """The controller's state as of a metadata version; never changes."""

    version: int
    topics: Mapping[str, TopicImage]
    ids: Mapping[UUID, TopicImage]
    live_brokers: tuple[int, ...]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return image.partitions[index] if image is not None and 0 <= index < len(image.partitions) else None


class SimulatedPartition:
    """The truth about a partition: the controller's state and the replicas' logs."""

    __slots__ = (
        "epoch",
        "expanded_epochs",
        "fetched",
        "in_sync_replicas",
        "index",
        "leader",
        "replicas",
        "replication_due",
        "stuck",
        "topic",
    )

    def __init__(self, topic: SimulatedTopic, index: int, broker_ids: Sequence[int]) -> None:
        self.topic = topic
        self.index = index
        self.leader = broker_ids[0]
        self.epoch = 0
        self.in_sync_replicas = list(broker_ids)
        self.expanded_epochs: set[int] = set()  # in which the leader has added an in-sync replica
        self.fetched: set[int] = set()  # followers that have fetched in this epoch
        self.replicas = {broker_id: ReplicaLog() for broker_id in broker_ids}  # the preferred leader first
        self.replication_due = False  # an event that replicates is scheduled
        self.stuck: dict[int, float] = {}  # followers that don't replicate until a time

    @property
    def name(self) -> tuple[str, int]:
        return self.topic.name, self.index

    @property
    def leader_log(self) -> ReplicaLog | None:
        """The log of the leader that the controller has elected; None without one."""
        return self.replicas.get(self.leader)

    def image(self) -> PartitionImage:
        return PartitionImage(self.leader, self.epoch, tuple(self.replicas), tuple(self.in_sync_replicas))


class SimulatedTopic:
    """One generation of a topic."""

    __slots__ = ("configs", "deleted", "generation", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, generation: int, *, is_internal: bool = False) -> None:
        self.name = name
        self.topic_id = topic_id
        self.generation = generation  # 1 for the first topic of this name
        self.is_internal = is_internal
        self.partitions: list[SimulatedPartition] = []
        self.configs: dict[str, str] = {}
        self.deleted = False

    def image(self) -> TopicImage:
        return TopicImage(self, tuple(partition.image() for partition in self.partitions))
