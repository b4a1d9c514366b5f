"""Operations whose requests and result follow from the state of a healthy cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tests.simulation.cluster.coordinators import coordinator_partition
from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.cluster.read_requests import APIS
from tests.simulation.cluster.topics import NO_LEADER
from tests.simulation.errors import ViolationError

from pyspark_kafka_direct.client.admin import create_topic, describe_broker_config, describe_topic_config
from pyspark_kafka_direct.client.consumer_group import list_group_ids
from pyspark_kafka_direct.client.metadata import Node, PartitionMetadata, TopicMetadata
from pyspark_kafka_direct.errors import BrokerError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.simulation.environment import Environment

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup

KINDS: Final = (
    "metadata",
    "all_topics",
    "nodes",
    "leaders",
    "leader",
    "ends",
    "stable_ends",
    "starts",
    "bounds",
    "timestamps",
    "local_start",
    "confirm",
    "check_leader",
    "open_transactions",
    "commit",
    "committed",
    "all_committed",
    "groups",
    "describe_topic",
    "describe_broker",
    "create_topic",
    "create_existing",
    "too_many_replicas",
    "next_broker",
    "expired",
    "missing_topic",
    "missing_partition",
    "required_topics",
    "deleted",
    "recreated",
    "confirm_lost",
    "large_config",
    "large_config",
)
"""Operations; most are those of ``ClusterClient`` and ``ConsumerGroup``."""


BROKER_CONFIGS: Final = {"log.retention.hours": "168", "auto.create.topics.enable": "false"}
_FIRST_VERSION_WITH_RELIABLE_EPOCHS: Final = 9
_FIRST_VERSION_WITH_COMMITTED_EPOCHS: Final = 6
_FIRST_FETCH_WITH_COMMITTED_EPOCHS: Final = 5
_FIRST_VERSION_WITH_EARLIEST_LOCAL: Final = 8
METADATA_SECONDS: Final = 2.0
"""After which all brokers have the newest metadata."""


class HealthyCluster:
    """The operations, with the requests that each needs, and the truth."""

    def __init__(self, environment: Environment, names: Sequence[str]) -> None:
        self._environment = environment
        self._cluster = environment.cluster
        self._names = names
        self._created = 0
        self._next_offset = 1_000_000
        self._open: dict[TopicPartition, list[tuple[int, int]]] = {}  # producer ids and start offsets

    def expected_requests(self, kind: str, partitions: Sequence[TopicPartition]) -> Counter[str]:
        """Return how many requests of each API a kind of operation needs, with connections and metadata."""
        leaders = len({self._cluster.partition(tp).leader for tp in partitions})  # type: ignore[union-attr]
        brokers = len(self._cluster.brokers)
        requests: dict[str, dict[str, int]] = {
            "metadata": {"Metadata": 1},
            "all_topics": {"Metadata": 1},
            "nodes": {"Metadata": 1},
            "leaders": {},
            "leader": {},
            "ends": {"ListOffsets": leaders},
            "stable_ends": {"ListOffsets": leaders},
            "starts": {"ListOffsets": leaders},
            "bounds": {"Metadata": brokers, "ListOffsets": 2 * leaders},
            "timestamps": {"ListOffsets": leaders},
            "local_start": {"ListOffsets": 1} if self.version("ListOffsets") >= 8 else {},
            "confirm": {"Metadata": brokers},
            "check_leader": {"Metadata": brokers},
            "open_transactions": {"DescribeProducers": leaders},
            "commit": {"OffsetCommit": 1},
            "committed": {"OffsetFetch": 1},
            "all_committed": {"OffsetFetch": 1},
            "groups": {"Metadata": 1, "ListGroups": brokers},
            "describe_topic": {"DescribeConfigs": 1},
            "describe_broker": {"DescribeConfigs": 1},
            "create_topic": {"Metadata": 2, "CreateTopics": 1},
            "create_existing": {"Metadata": 1, "CreateTopics": 1},
            "too_many_replicas": {"Metadata": 1, "CreateTopics": 1},
            "next_broker": {"Metadata": brokers},
            "expired": {"Metadata": 1},
            "missing_topic": {"Metadata": 1},
            "missing_partition": {"Metadata": 1},
            "required_topics": {"Metadata": 1},
            "confirm_lost": {"Metadata": brokers},
            "deleted": {"Metadata": 2},
            "recreated": {"Metadata": 2},
            "large_config": {"DescribeConfigs": 1},
        }
        expected = Counter(requests[kind])
        if kind == "check_leader" and self.topic_id(partitions[0]) is None:
            expected["Metadata"] += 1
        if kind == "create_topic" and self._default_factor() > brokers:
            expected["CreateTopics"] += 1
        return expected

    def call(
        self,
        client: ClusterClient,
        group: ConsumerGroup,
        kind: str,
        partitions: Sequence[TopicPartition],
        *,
        check: bool = True,
    ) -> None:
        """Make a call, and check its result."""
        found, expected = self._result(client, group, kind, partitions)
        if check and found != expected:
            raise ViolationError(f"{kind} of {partitions} is {found}, and not {expected}")

    def _result(
        self, client: ClusterClient, group: ConsumerGroup, kind: str, partitions: Sequence[TopicPartition]
    ) -> tuple[Any, Any]:
        """Return the result of a call, and the truth."""
        cluster = self._cluster
        deadline = client.deadline()
        found: Any
        match kind:
            case "metadata":
                return client.topics(self._names), self._metadata(
                    name for name in self._names if name in cluster.topics
                )
            case "all_topics":
                return client.all_topics(), self._metadata(cluster.topics)
            case "required_topics":
                return client.all_topics(required=lambda _: True), self._metadata(cluster.topics)
            case "missing_topic":
                found = client.topics([*self._names, "nowhere"])
                return found, self._metadata(name for name in self._names if name in cluster.topics)
            case "missing_partition":
                count = len(cluster.topics[partitions[0].topic].partitions)
                try:
                    client.partition(TopicPartition(partitions[0].topic, count))
                except TopicNotFoundError as error:
                    return (error.topic, error.partition, str(count) in error.message), (
                        partitions[0].topic,
                        count,
                        True,
                    )
                return "a partition", "an error"
            case "deleted":
                return self._delete(client)
            case "recreated":
                return self._recreate(client)
            case "confirm_lost":
                suspects = {TopicPartition("nowhere", 0): None, partitions[0]: UUID(int=1)}
                if self.topic_id(partitions[0]) is None:
                    del suspects[partitions[0]]
                return client.confirm_missing(suspects), set(suspects)
            case "next_broker":
                for _ in cluster.brokers:
                    client.use_next_broker()
                    client.topics([partitions[0].topic])
                return None, None
            case "expired":
                self._environment.world.block("expired metadata", client.settings.metadata_max_age_ms / 1000 + 1.0)
                for _ in range(3):
                    leader = client.partition(partitions[0]).leader
                return leader, self.leader(partitions[0])
            case "nodes":
                client.refresh_brokers()
                nodes = {
                    each.id: Node(each.id, each.host, each.port, each.rack, cluster.cluster_id)
                    for each in cluster.brokers.values()
                }
                return client.nodes, nodes
            case "leaders":
                leaders = client.leaders(partitions, deadline)
                found = {tp: None if each is None else (each.node.id, each.epoch) for tp, each in leaders.items()}
                return found, {tp: (self.leader(tp), self.epoch(tp)) for tp in partitions}
            case "leader":
                return client.leader(partitions[0]).id, self.leader(partitions[0])
            case "ends":
                ends = client.offsets(dict.fromkeys(partitions, LATEST), deadline=deadline)
                return ends, self._each(partitions, lambda log: log.high_watermark)
            case "stable_ends":
                ends = client.offsets(dict.fromkeys(partitions, LATEST), isolation_level="read_committed")
                return ends, self._each(partitions, lambda log: log.last_stable_offset)
            case "starts":
                starts = client.offsets(dict.fromkeys(partitions, EARLIEST))
                return starts, self._each(partitions, lambda log: log.start)
            case "bounds":
                bounds = client.log_bounds(partitions, deadline)
                return bounds, self._each(partitions, lambda log: (log.start, log.high_watermark))
            case "timestamps":
                return client.offsets(dict.fromkeys(partitions, 1)), self._each(partitions, _first_offset)
            case "local_start":
                has_local = self.version("ListOffsets") >= _FIRST_VERSION_WITH_EARLIEST_LOCAL
                local_start = client.local_log_start(partitions[0])
                return local_start, self._log(partitions[0]).local_start if has_local else None
            case "confirm":
                return client.confirm_missing(dict.fromkeys(partitions)), set()
            case "check_leader":
                client.check_leader(partitions[0], self.topic_id(partitions[0]), self.epoch(partitions[0]))
                return client.is_deposed(partitions[0], self.topic_id(partitions[0]), self.epoch(partitions[0])), False
            case "open_transactions":
                transactions = client.open_transactions(partitions, deadline=deadline)
                found = {tp: [(each.producer_id, each.start_offset) for each in transactions[tp]] for tp in partitions}
                return found, {tp: self._open.get(tp, []) for tp in partitions}
        return self._result_of_any_broker(client, group, kind, partitions)

    def _result_of_any_broker(
        self, client: ClusterClient, group: ConsumerGroup, kind: str, partitions: Sequence[TopicPartition]
    ) -> tuple[Any, Any]:
        cluster, brokers = self._cluster, len(self._cluster.brokers)
        groups = GroupCoordinator.of(cluster)
        found: Any
        match kind:
            case "commit":
                offsets = {tp: self._next_offset + number for number, tp in enumerate(partitions)}
                self._next_offset += len(offsets)
                group.commit(offsets)
                has_epochs = self.version("OffsetCommit") >= _FIRST_VERSION_WITH_COMMITTED_EPOCHS
                stored = groups.committed(group.group_id)
                found = {tp: (stored[tp].offset, stored[tp].leader_epoch) for tp in partitions}
                return found, {tp: (offsets[tp], self.epoch(tp) if has_epochs else -1) for tp in partitions}
            case "committed":
                found = group.committed(partitions)
                stored = groups.committed(group.group_id)
                return found, {tp: stored[tp].offset for tp in partitions if tp in stored}
            case "all_committed":
                found = group.committed_with_metadata()
                stored = groups.committed(group.group_id)
                has_epochs = self.version("OffsetFetch") >= _FIRST_FETCH_WITH_COMMITTED_EPOCHS
                return (
                    {tp: (each.offset, each.metadata, each.leader_epoch) for tp, each in found.items()},
                    {
                        tp: (each.offset, each.metadata, each.leader_epoch if has_epochs else -1)
                        for tp, each in stored.items()
                    },
                )
            case "groups":
                return list_group_ids(client, client.deadline()), sorted(groups.group_ids)
            case "describe_topic":
                topic = cluster.topics[partitions[0].topic]
                found = describe_topic_config(client, topic.name, ["retention.ms", "unknown", "segment.bytes"])
                retention = topic.configs.get("retention.ms", "604800000")
                return found, {"retention.ms": retention, "segment.bytes": "1073741824"}
            case "large_config":
                return self._describe_large(client, partitions[0].topic)
            case "describe_broker":
                configs = cluster.settings.broker_configs
                return describe_broker_config(client, list(configs)), dict(configs)
            case "create_topic":
                self._created += 1
                name = f"calm-{self._created}"
                create_topic(client, name, 3, {"retention.ms": "5"})
                created = cluster.topics[name]
                factor = self._default_factor()
                replicas = min(3, brokers) if factor > brokers else factor
                found = [len(each.replicas) for each in created.partitions], created.configs.get("retention.ms")
                return found, ([replicas] * 3, "5")
            case "create_existing":
                create_topic(client, partitions[0].topic, 9, {})
                return None, None
            case "too_many_replicas":
                self._created += 1
                try:
                    create_topic(client, f"calm-{self._created}", 1, {}, replicas=brokers + 1)
                except BrokerError as error:
                    return "INVALID_REPLICATION_FACTOR" in str(error), True
                return "a topic with too many replicas", "an error"
        raise ValueError(kind)

    def commit_elsewhere(self, group: ConsumerGroup, partitions: Sequence[TopicPartition]) -> None:
        """Commit offsets as another process does that knows the newest leaders."""
        groups = GroupCoordinator.of(self._cluster)
        groups.validate(group.group_id, -1, "", None)
        for number, tp in enumerate(partitions):
            topic_id = self._cluster.topics[tp.topic].topic_id
            self._next_offset += 1
            offset = CommittedOffset(self._next_offset, self.epoch(tp), "", topic_id, self._next_offset + number)
            groups.commit(group.group_id, tp, offset)

    def commit_later(self, group: ConsumerGroup, tp: TopicPartition, seconds: float) -> None:
        """Commit an offset in a transaction that ends some seconds later."""
        groups = GroupCoordinator.of(self._cluster)
        groups.validate(group.group_id, -1, "", None)
        self._next_offset += 1
        topic_id = self._cluster.topics[tp.topic].topic_id
        offset = CommittedOffset(self._next_offset, -1, "", topic_id, self._next_offset)
        producer = (8_000 + self._next_offset, 0)
        groups.commit_in_transaction(group.group_id, producer, {tp: offset})
        partition = coordinator_partition(group.group_id)
        self._environment.world.after(seconds, groups.complete, partition, producer, True)

    def check_later_epochs(self, client: ClusterClient, partitions: Sequence[TopicPartition]) -> None:
        """Check that a client takes note of the leader epochs of committed offsets."""
        if self.version("OffsetFetch") < _FIRST_FETCH_WITH_COMMITTED_EPOCHS:
            return
        for tp in partitions:
            topic_id, epoch = self.topic_id(tp), self.epoch(tp)
            if topic_id is not None and epoch > 0 and not client.is_deposed(tp, topic_id, epoch - 1):
                raise ViolationError(f"an offset of {tp} was committed in epoch {epoch}, and the client ignores that")

    def _new_topic(self, partitions: int) -> str:
        self._created += 1
        name = f"calm-{self._created}"
        self._cluster.create_topic(name, partitions)
        self._environment.world.block("the metadata of all brokers", METADATA_SECONDS)
        return name

    def _delete(self, client: ClusterClient) -> tuple[Any, Any]:
        """Delete a topic that the client knows."""
        name = self._new_topic(2)
        known = client.topics([name])
        self._cluster.delete_topic(name)
        self._environment.world.block("the metadata of all brokers", METADATA_SECONDS)
        remaining = client.topics([name])
        tp = TopicPartition(name, 0)
        found = (len(known), remaining, client.known_leaders([tp]), client.known_topic_ids([name]))
        return (*found, client.known_replicas([tp])), (1, {}, {}, {}, set())

    def _recreate(self, client: ClusterClient) -> tuple[Any, Any]:
        """Create a topic again, with fewer partitions and lower leader epochs."""
        name = self._new_topic(2)
        tp = TopicPartition(name, 0)
        for _ in range(2):
            target = self._cluster.partition(tp)
            assert target is not None
            self._cluster.elect(target, target.leader)
        self._environment.world.block("the metadata of all brokers", METADATA_SECONDS)
        known = client.topics([name])
        self._cluster.delete_topic(name)
        self._cluster.create_topic(name, 1)
        self._environment.world.block("the metadata of all brokers", METADATA_SECONDS)
        found = client.topics([name])
        leaders = {each: leader.node.id for each, leader in client.known_leaders([tp]).items()}
        truth = self._metadata([name])
        return (len(known[name].partitions), found, leaders), (2, truth, {tp: self.leader(tp)})

    def _describe_large(self, client: ClusterClient, topic: str) -> tuple[Any, Any]:
        """Fetch values that are larger than most responses."""
        names = [f"large-{number}" for number in range(10)]
        configs = self._cluster.topics[topic].configs
        configs.update({name: f"{name} " * 3_000 for name in names})
        return describe_topic_config(client, topic, names), {name: configs[name] for name in names}

    # The truth.

    def open_transaction(self, tp: TopicPartition) -> None:
        """Begin a transaction that remains open, so that the last stable offset stays behind."""
        if tp in self._open:
            return
        producer_id = 7_000 + len(self._open)
        start = self._cluster.append(tp, [b"open"], producer=(producer_id, 0, 0), transactional=True)
        if start is not None:
            self._open[tp] = [(producer_id, start)]

    def is_healthy(self) -> bool:
        cluster, now = self._cluster, self._environment.world.now
        return all(
            broker.is_up and broker.rebootstrap_until <= now and broker.image.version == cluster.image.version
            for broker in cluster.brokers.values()
        )

    def partitions(self, places: Sequence[int]) -> list[TopicPartition]:
        """Return some of the partitions that exist and have a leader whose end is known."""
        existing = [
            TopicPartition(name, index)
            for name in self._names
            if name in self._cluster.topics
            for index, target in enumerate(self._cluster.topics[name].partitions)
            if target.leader != NO_LEADER
            and target.leader_log is not None
            and not (
                target.leader_log.epoch_starts
                and target.leader_log.epoch_starts[-1][1] > target.leader_log.high_watermark
            )
        ]
        return list(dict.fromkeys(existing[place % len(existing)] for place in places)) if existing else []

    def _metadata(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        cluster = self._cluster
        found = {}
        for name in names:
            topic = cluster.topics[name]
            partitions = {
                index: PartitionMetadata(
                    index,
                    None if each.leader == NO_LEADER else each.leader,
                    self.epoch(TopicPartition(name, index)),
                    tuple(each.replicas),
                    tuple(each.in_sync_replicas),
                )
                for index, each in enumerate(topic.partitions)
            }
            found[name] = TopicMetadata(name, self.topic_id(TopicPartition(name, 0)), topic.is_internal, partitions)
        return found

    def _each(self, partitions: Sequence[TopicPartition], value: Callable[[Any], Any]) -> dict[TopicPartition, Any]:
        return {tp: value(self._log(tp)) for tp in partitions}

    def _log(self, tp: TopicPartition) -> Any:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.leader_log

    def leader(self, tp: TopicPartition) -> int:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.leader

    def epoch(self, tp: TopicPartition) -> int:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.epoch if self.version("Metadata") >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS else -1

    def topic_id(self, tp: TopicPartition) -> Any:
        has_ids = self.version("Metadata") >= 10
        return self._cluster.topics[tp.topic].topic_id if has_ids else None

    def _default_factor(self) -> int:
        return self._cluster.settings.replication_factor

    def version(self, api: str) -> int:
        """Return the newest version of an API that the brokers support."""
        settings = self._cluster.settings
        limits = [settings.newest_versions.get(api, APIS[api][2])]
        if not settings.topic_ids:
            limits += [{"Metadata": 9}.get(api, 99)]
        if not settings.leader_epochs:
            limits += [{"Metadata": 6, "ListOffsets": 3, "OffsetCommit": 5, "OffsetFetch": 4}.get(api, 99)]
        if not settings.earliest_local:
            limits += [{"ListOffsets": 7}.get(api, 99)]
        return min(limits)


def _first_offset(log: Any) -> int:
    """Return the offset of the first record that has a timestamp of at least 1 ms, or -1."""
    found = log.offset_for_timestamp(1)
    return -1 if found is None or found[1] >= log.high_watermark else int(found[1])
