"""A simulated Kafka cluster: the controller's state, replication, and the snapshots that brokers act on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tests.simulation.cluster.broker import SimulatedBroker
from tests.simulation.cluster.stored_batch import BASE_TIMESTAMP, encode_batch, encode_marker
from tests.simulation.cluster.topics import NO_LEADER, ClusterImage, SimulatedPartition, SimulatedTopic
from tests.simulation.oracle import Oracle

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.stored_batch import Headers, StoredBatch
    from tests.simulation.cluster.topics import TopicImage

TopicAndIndex = tuple[str, int]
"""Equal to the package's TopicPartition, which is a tuple too."""


class World(Protocol):
    """What a cluster needs of the simulated world."""

    now: float

    def rng(self, name: str) -> random.Random: ...
    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None: ...
    def at(self, time: float, callback: Callable[..., object], *args: Any) -> None: ...
    def trace(self, kind: str, *facts: Any) -> None: ...


@dataclass(frozen=True)
class ClusterSettings:
    """The version and the configuration of a cluster."""

    topic_ids: bool = True  # otherwise Fetch up to 12 and Metadata up to 9 (Kafka before 2.8)
    rejects_unknown_producers: bool = False  # UNKNOWN_PRODUCER_ID (Kafka before 2.4)
    leader_epochs: bool = True  # otherwise Fetch up to 8, ListOffsets up to 3, Metadata up to 6 (Kafka before 2.1)
    transaction_version: int = 2  # 2: KIP-890; 0: before it
    first_epoch: int = 0  # of transactional ids; a high one is that of an id with many transactions
    newest_versions: Mapping[str, int] = field(default_factory=dict)  # by API name, below Kafka's; -1: not supported
    broker_configs: Mapping[str, str] = field(default_factory=dict)  # that DescribeConfigs returns of brokers
    earliest_local: bool = True  # ListOffsets supports -4 (earliest local) and -5 (latest tiered)
    replication_factor: int = 2
    min_in_sync_replicas: int = 1
    metadata_lag: float = 0.0  # brokers apply a change after up to as many seconds
    replication_delay: float = 0.0  # followers replicate after up to as many seconds
    failure_detection: float = 0.5  # seconds after which the controller fences a broker that is down or isolated
    remote_read_delay: float = 0.05  # seconds that a read from tiered storage takes
    offsets_delay: float = 0.0  # until groups have the offsets of ended transactions (before Kafka 4.0)
    rolls_segments: bool = False  # read_committed beyond the last stable offset does not wait (DelayedFetch, case F)
    read_from_followers: bool = False  # KIP-392; racks are "rack-0" and "rack-1"


class SimulatedCluster:
    """Brokers, topics and the controller's decisions about them."""

    def __init__(self, world: World, *, brokers: int, settings: ClusterSettings | None = None) -> None:
        self.world = world
        self.settings = settings = ClusterSettings() if settings is None else settings
        self.oracle = Oracle()
        self.rng = world.rng("cluster")
        self.cluster_id = "simulated-cluster"
        self.controller_id = 1
        self.brokers = {broker_id: SimulatedBroker(self, broker_id) for broker_id in range(1, brokers + 1)}
        self.topics: dict[str, SimulatedTopic] = {}  # that exist now
        self.absent_topics: dict[str, int] = {}  # deleted ones that are created again later, with numbers of partitions
        self.deleted_configs: dict[str, dict[str, str]] = {}  # of deleted topics, which are created again with them
        self.unauthorized: dict[str, tuple[float, int]] = {}  # by topic: until when, and the error code
        self.image = ClusterImage(0, {}, {}, tuple(self.brokers))
        self.generations_by_id: dict[UUID, int] = {}  # of all topics that ever existed
        self._generations: dict[str, int] = {}
        self._topic_numbers = 0
        # The network's: what happens to connections when a broker goes down, and when it is no longer paused.
        self.on_broker_down: Callable[[SimulatedBroker], None] = _ignore
        self.on_broker_resumed: Callable[[SimulatedBroker], None] = _ignore
        self._callbacks: list[Callable[[], None]] = []
        self._state: dict[str, object] = {}
        for broker in self.brokers.values():
            broker.image = self.image

    # Changes.

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback that polls delayed responses again."""
        self._callbacks.append(callback)

    def notify(self) -> None:
        """Report a change: an append, a high watermark, an election, a deletion, the end of a transaction."""
        for callback in self._callbacks:
            callback()

    def state(self, name: str, create: Callable[[], Any]) -> Any:
        """Return state that a part of the cluster keeps here, such as the coordinators."""
        if name not in self._state:
            self._state[name] = create()
        return self._state[name]

    @property
    def timestamp(self) -> int:
        """The brokers' clock in ms; the same as a simulated process's wall clock."""
        return BASE_TIMESTAMP + int(self.world.now * 1000)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        is_internal: bool = False,
        replicas: int | None = None,  # None: the cluster's default
    ) -> SimulatedTopic | None:
        """Create a topic; None if it exists."""
        if name in self.topics:
            return None
        self._topic_numbers += 1
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        topic_id = UUID(int=(0xA000_0000 + self._topic_numbers) << 64 | self.rng.getrandbits(63))
        topic = SimulatedTopic(name, topic_id, generation, is_internal=is_internal)
        topic.configs.update(configs or {})
        self.topics[name] = topic
        self.generations_by_id[topic_id] = generation
        self.oracle.topic_created(name, generation, partitions, self.world.now)
        self._add_partitions(topic, partitions, replicas)
        self.world.trace("topic created", name, generation, partitions)
        self.publish()
        return topic

    def delete_topic(self, name: str) -> bool:
        """Delete a topic; brokers serve it until they apply the deletion."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return False
        topic.deleted = True
        self.deleted_configs[name] = topic.configs
        self.oracle.topic_deleted(name, topic.generation, self.world.now)
        self.world.trace("topic deleted", name, topic.generation)
        self.publish()
        return True

    def expand_topic(self, name: str, partitions: int) -> bool:
        """Raise the number of partitions of a topic."""
        topic = self.topics.get(name)
        if topic is None or partitions <= len(topic.partitions):
            return False
        self.oracle.partitions_added(name, topic.generation, partitions, self.world.now)
        self._add_partitions(topic, partitions - len(topic.partitions))
        self.world.trace("partitions added", name, topic.generation, partitions)
        self.publish()
        return True

    def partition(self, partition: TopicAndIndex) -> SimulatedPartition | None:
        """Return the truth about a partition; None if it does not exist."""
        topic = self.topics.get(partition[0])
        if topic is None or not 0 <= partition[1] < len(topic.partitions):
            return None
        return topic.partitions[partition[1]]

    def all_partitions(self) -> list[SimulatedPartition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def authorization_error(self, topic: str) -> int:
        """Return the error code while the principal may not describe a topic, else 0."""
        until, error_code = self.unauthorized.get(topic, (0.0, 0))
        return error_code if until > self.world.now else 0

    # Appends.

    def append(
        self,
        partition: TopicAndIndex,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamp: int | None = None,
        producer: tuple[int, int, int] | None = None,
        transactional: bool = False,
        codec: str = "none",
    ) -> int | None:
        """Append a batch at the current leader, without a request; return its base offset, or None without a leader.

        ``producer`` is a producer id, its epoch and the first sequence number.
        """
        target = self.partition(partition)
        if target is None or target.leader == NO_LEADER or not self.brokers[target.leader].is_up:
            return None
        producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
        batch = encode_batch(
            values,
            keys=keys,
            headers=headers,
            timestamp=self.timestamp if timestamp is None else timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
            codec=codec,
        )
        return self._append(target, target.replicas[target.leader], target.epoch, batch).base_offset

    def append_batch(self, broker: SimulatedBroker, partition: TopicAndIndex, batch: StoredBatch) -> StoredBatch | None:
        """Append a batch of a Produce request at a broker that leads the partition in its own image."""
        local = broker.led_partition(partition)
        if local is None:
            return None
        # A leader that was elected again starts the new epoch before it appends, even if its image lags. It stays in
        # that epoch when it is deposed.
        is_leader = local.partition.leader == broker.id
        epoch = local.partition.epoch if is_leader else max(local.image.epoch, local.log.latest_epoch)
        return self._append(local.partition, local.log, epoch, batch)

    def append_marker(
        self, partition: TopicAndIndex, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> int | None:
        """Append the marker that ends a transaction, at the current leader; None without a leader."""
        target = self.partition(partition)
        if target is None or target.leader == NO_LEADER or not self.brokers[target.leader].is_up:
            return None
        marker = encode_marker(producer_id, producer_epoch, commit=commit, timestamp=self.timestamp)
        return self._append(target, target.replicas[target.leader], target.epoch, marker).base_offset

    def _append(self, target: SimulatedPartition, log: ReplicaLog, epoch: int, batch: StoredBatch) -> StoredBatch:
        stored = log.append(batch, epoch)
        topic = target.topic
        self.oracle.appended(topic.name, topic.generation, target.index, stored, self.world.now)
        self.world.trace("appended", topic.name, target.index, stored.base_offset, len(stored.values), epoch)
        if epoch == target.epoch:
            self.replicate_later(target)
        else:
            self._advance_deposed(target, log, epoch)
        self.notify()
        return stored

    def _advance_deposed(self, target: SimulatedPartition, log: ReplicaLog, epoch: int) -> None:
        """Raise the high watermark of a deposed leader that is the only in-sync replica in its image.

        Leaders add in-sync replicas themselves, so they know of those that their image lacks (AlterPartition).
        """
        if epoch in target.expanded_epochs:
            return
        for broker_id, replica in target.replicas.items():
            if replica is log:
                image = self.brokers[broker_id].image.partition(target.topic.name, target.index)
                if image is not None and image.epoch == epoch and image.in_sync_replicas == (broker_id,):
                    self._advance(target, log, epoch, log.end)

    # Replication.

    def replicate_later(self, target: SimulatedPartition) -> None:
        """Replicate now, or after a drawn delay."""
        if self.settings.replication_delay <= 0:
            self.replicate(target)
        elif not target.replication_due:
            target.replication_due = True
            self.world.after(self.rng.uniform(0, self.settings.replication_delay), self._replicate_due, target)

    def replicate(self, target: SimulatedPartition) -> None:
        """Let followers fetch from the leader, and raise the high watermark."""
        log = target.leader_log
        if log is None or target.topic.deleted or not self.is_connected(target.leader):
            return
        lagging_watermark = log.high_watermark
        joined = False
        for broker_id, follower in target.replicas.items():
            if broker_id == target.leader or not self._follows(target, broker_id):
                continue
            follower.follow(log)
            target.fetched.add(broker_id)
            if broker_id not in target.in_sync_replicas and follower.end >= log.high_watermark:
                target.in_sync_replicas.append(broker_id)
                target.expanded_epochs.add(target.epoch)
                joined = True
        # A leader knows nothing of a follower before its first fetch: its log may have diverged.
        if all(each == target.leader or each in target.fetched for each in target.in_sync_replicas):
            ends = [target.replicas[each].end for each in target.in_sync_replicas]
            self._advance(target, log, target.epoch, min(ends, default=0))
        is_immediate = self.settings.replication_delay <= 0
        behind = False
        for broker_id, follower in target.replicas.items():
            if broker_id != target.leader and self._follows(target, broker_id):
                # A follower receives the high watermark with its next fetch.
                follower.advance_high_watermark(log.high_watermark if is_immediate else lagging_watermark)
                behind = behind or follower.high_watermark < log.high_watermark
        if behind:
            self.replicate_later(target)
        if joined:
            self.publish()

    def _replicate_due(self, target: SimulatedPartition) -> None:
        target.replication_due = False
        self.replicate(target)

    def _advance(self, target: SimulatedPartition, log: ReplicaLog, epoch: int, offset: int) -> None:
        if log.advance_high_watermark(offset):
            topic = target.topic
            self.oracle.high_watermark(
                topic.name, topic.generation, target.index, epoch, log.high_watermark, self.world.now
            )
            self.notify()

    def is_connected(self, broker_id: int) -> bool:
        """Whether the other brokers reach a broker."""
        broker = self.brokers[broker_id]
        return broker.is_up and broker.isolated_until <= self.world.now

    def _follows(self, target: SimulatedPartition, broker_id: int) -> bool:
        if not self.is_connected(broker_id) or target.stuck.get(broker_id, 0.0) > self.world.now:
            return False
        image = self.brokers[broker_id].image.partition(target.topic.name, target.index)
        return image is not None and image.epoch == target.epoch

    def advance_log_start(self, target: SimulatedPartition, offset: int, reason: str) -> None:
        """Raise the log start offset of the leader; followers adopt it when they replicate."""
        log = target.leader_log
        if log is not None and log.advance_start(min(offset, log.high_watermark)):
            topic = target.topic
            self.oracle.log_start(topic.name, topic.generation, target.index, log.start, reason, self.world.now)
            self.world.trace("log start", topic.name, target.index, log.start, reason)
            self.replicate_later(target)

    # Elections.

    def elect(self, target: SimulatedPartition, leader: int, *, unclean: bool = False) -> bool:
        """Make a replica the leader with the next epoch; -1 means none. Return whether it was possible."""
        if target.topic.deleted or (leader != NO_LEADER and leader not in target.replicas):
            return False
        if leader != NO_LEADER and not self.is_connected(leader):
            return False
        if leader != NO_LEADER and leader not in target.in_sync_replicas and not unclean:
            return False
        target.leader = leader
        target.epoch += 1
        target.fetched.clear()
        topic = target.topic
        if leader != NO_LEADER:
            log = target.replicas[leader]
            if leader not in target.in_sync_replicas:
                target.in_sync_replicas = [leader]
            parent = log.latest_epoch
            log.assign_epoch_start(target.epoch)
            self.oracle.epoch_started(
                topic.name,
                topic.generation,
                target.index,
                target.epoch,
                log.end,
                log.high_watermark,
                self.world.now,
                parent=parent,
            )
        self.world.trace("elected", topic.name, target.index, leader, target.epoch, unclean)
        self.publish()
        if leader != NO_LEADER:
            self.replicate_later(target)
            self.world.after(self.settings.failure_detection, self._shrink_in_sync_replicas, target, target.epoch)
        return True

    def _shrink_in_sync_replicas(self, target: SimulatedPartition, epoch: int) -> None:
        """Remove replicas that do not know the new leader by now, so that it no longer waits for them."""
        if target.epoch != epoch or target.topic.deleted:
            return
        lagging = [
            each
            for each in target.in_sync_replicas
            if each != target.leader and each not in target.stuck and not self._follows(target, each)
        ]
        if lagging:
            target.in_sync_replicas = [each for each in target.in_sync_replicas if each not in lagging]
            self.publish()
            self.replicate_later(target)

    def fence(self, broker_id: int) -> None:
        """Remove a broker that is down or isolated from in-sync replicas, and move its leaderships."""
        broker = self.brokers[broker_id]
        if self.is_connected(broker_id) or broker.is_fenced:
            return
        broker.is_fenced = True
        for target in self.all_partitions():
            in_sync = target.in_sync_replicas
            if broker_id in in_sync and len(in_sync) > 1:
                in_sync.remove(broker_id)
                if target.leader != broker_id:
                    self.replicate_later(target)  # the high watermark no longer waits for it
            if target.leader == broker_id:
                candidates = [each for each in target.in_sync_replicas if self.is_connected(each)]
                self.elect(target, candidates[0] if candidates else NO_LEADER)
        self.publish()

    def unfenced_brokers(self) -> tuple[int, ...]:
        """Return the brokers that the controller believes to be up, and gives replicas of new topics."""
        return tuple(each for each, broker in self.brokers.items() if not broker.is_fenced)

    def unfence(self, broker_id: int) -> None:
        """Let a broker rejoin that is up and connected again."""
        if not self.is_connected(broker_id):
            return
        broker = self.brokers[broker_id]
        broker.is_fenced = False
        self.publish()
        for target in self.all_partitions():
            if broker_id in target.replicas:
                if target.leader == NO_LEADER and broker_id in target.in_sync_replicas:
                    self.elect(target, broker_id)
                else:
                    self.replicate_later(target)

    # Metadata images.

    def publish(self) -> None:
        """Snapshot the controller's state; each broker applies it after its lag."""
        topics: dict[str, TopicImage] = {name: topic.image() for name, topic in self.topics.items()}
        live = self.unfenced_brokers()
        ids = {image.topic.topic_id: image for image in topics.values()}
        self.image = ClusterImage(self.image.version + 1, topics, ids, live)
        lag = self.settings.metadata_lag
        for broker in self.brokers.values():
            if lag > 0:
                self.world.after(self.rng.uniform(0, lag), broker.apply_image, self.image)
            else:
                broker.apply_image(self.image)
        self.notify()

    def _add_partitions(self, topic: SimulatedTopic, count: int, replicas: int | None = None) -> None:
        broker_ids = list(self.brokers)
        replicas = min(replicas or self.settings.replication_factor, len(broker_ids))
        for _ in range(count):
            index = len(topic.partitions)
            first = (self._topic_numbers + index) % len(broker_ids)
            assigned = [broker_ids[(first + each) % len(broker_ids)] for each in range(replicas)]
            target = SimulatedPartition(topic, index, assigned)
            connected = [each for each in assigned if self.is_connected(each)]
            target.in_sync_replicas = connected or assigned[:1]
            target.leader = connected[0] if connected else NO_LEADER
            topic.partitions.append(target)
            if connected:
                target.replicas[target.leader].assign_epoch_start(0)
            self.oracle.epoch_started(topic.name, topic.generation, index, 0, 0, 0, self.world.now)
            for broker_id in assigned:
                self.oracle.epoch_applied(topic.name, topic.generation, index, broker_id, -1, self.world.now)


def _ignore(broker: SimulatedBroker) -> None:
    """Do nothing: no network is attached."""
