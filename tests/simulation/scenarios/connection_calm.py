"""Operations on a healthy cluster: exactly the requests that are needed, at once, and the truth as result.

Then one fault happens to one request: the operation succeeds after a short pause, and the next one is as before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinators import GROUP, Coordinators
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.read_requests import APIS
from tests.simulation.cluster.topics import NO_LEADER
from tests.simulation.errors import ViolationError
from tests.simulation.faults import RETRIABLE_ERRORS, RequestFault, draw_fault

from pyspark_kafka_direct.client.admin import create_topic, describe_broker_config, describe_topic_config
from pyspark_kafka_direct.client.consumer_group import list_group_ids
from pyspark_kafka_direct.client.metadata import Node, PartitionMetadata, TopicMetadata
from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.connection_operations import Operations

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
)
_FAULTS: Final = (
    "lose_request",
    "lose_response",
    "truncate_response",
    "stall_request",
    "stall_response",
    "delay_response",
    "split_response",
    "error",
)
_CHANGES: Final = ("reset_connections", "move_coordinators", "elect_leaders")
_STALLS: Final = ("stall_request", "stall_response", "delay_response", "split_response")
_SECONDS_PER_REQUEST: Final = 0.008  # two latencies, and a margin
_SECONDS_OF_RETRIES: Final = 1.0  # the pauses of one or two, and of a reconnect
_EXTRA_REQUESTS: Final = 24  # after a fault: metadata, a coordinator, connects
_FIRST_VERSION_WITH_RELIABLE_EPOCHS: Final = 9
_FIRST_VERSION_WITH_COMMITTED_EPOCHS: Final = 6
_FIRST_VERSION_WITH_EARLIEST_LOCAL: Final = 8
BROKER_CONFIGS: Final = {"log.retention.hours": "168", "auto.create.topics.enable": "false"}


def draw_calm(rng: random.Random) -> list[dict[str, Any]]:
    """Draw the operations after the faults, each with a fault of one of its requests."""
    calm = []
    for _ in range(rng.choice((0, 1, 1, 2))):
        fault = draw_fault(rng, (*_FAULTS, "error"))
        incident = {"kind": fault.kind, "args": dict(fault.arguments), "api": rng.randrange(3)}
        if rng.random() < 0.25:
            incident = {"kind": rng.choice(_CHANGES), "args": {}, "api": 0}
        calm.append(
            {
                "kind": rng.choice(KINDS),
                "client": rng.randrange(8),
                "partitions": [rng.randrange(9) for _ in range(rng.choice((1, 2, 3)))],
                "incident": incident if rng.random() < 0.6 else None,
            }
        )
    return calm


class Calm:
    """The operations on a healthy cluster."""

    def __init__(self, environment: Environment, operations: Operations, names: Sequence[str], driver: Any) -> None:
        self._environment = environment
        self._cluster = environment.cluster
        self._operations = operations
        self._names = names
        self._driver = driver
        self._created = 0
        self._next_offset = 1_000_000

    def run(self, users: Sequence[tuple[ClusterClient, ConsumerGroup]]) -> None:
        """Run what was drawn, with these clients and their groups."""
        drawn = self._environment.plan.parameters.get("calm", ())
        if not drawn or not users:
            return
        self._driver.sleep(2.0)  # until all brokers have the newest metadata
        for each in drawn:
            client, group = users[each["client"] % len(users)]
            partitions = self._partitions(each["partitions"])
            if not partitions or not self._is_healthy():
                continue
            if "committed" in each["kind"] and self._environment.oracle.deleted_at:
                continue  # the group may have offsets with leader epochs of deleted topics
            self._settle(client, group, each["kind"], partitions)
            self._check_exact(client, group, each["kind"], partitions)
            if each["incident"] is not None:
                self._run_incident(client, group, each["kind"], partitions, each["incident"])

    # The phases.

    def _settle(
        self, client: ClusterClient, group: ConsumerGroup, kind: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """Let the client learn of the healthy cluster, and have connections to all brokers."""
        client.topics(self._names)
        client.confirm_missing(dict.fromkeys(partitions))
        self._call(client, group, kind, partitions)

    def _check_exact(
        self, client: ClusterClient, group: ConsumerGroup, kind: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """Check the requests and the result of an operation, which needs no retry and no connect."""
        expected = self._expected_requests(client, kind, partitions)
        with self._operations.operation() as operation:
            self._call(client, group, kind, partitions)
        seconds = self._environment.world.now - operation.started_at
        if kind == "create_topic" and self._cluster.settings.metadata_lag > 0:
            return  # other brokers lack the topic at first
        if operation.requests != expected or operation.connects:
            raise ViolationError(
                f"{kind} needs {dict(expected)}, and sends {dict(operation.requests)}, {operation.connects} connects"
            )
        if seconds > _SECONDS_PER_REQUEST * (1 + expected.total()):
            raise ViolationError(f"{kind} takes {seconds:.3f} s for {expected.total()} requests of a healthy cluster")
        if operation.warnings:
            raise ViolationError(f"{kind} warns without a fault: {operation.warnings[0][1].getMessage()}")

    def _run_incident(
        self,
        client: ClusterClient,
        group: ConsumerGroup,
        kind: str,
        partitions: Sequence[TopicPartition],
        incident: Mapping[str, Any],
    ) -> None:
        """Check that an operation succeeds soon after one fault, and that the next one is as before it."""
        expected = self._expected_requests(client, kind, partitions)
        apis = sorted(expected)
        if not apis or kind == "too_many_replicas":
            return
        api = apis[incident["api"] % len(apis)]
        request_timeout = client.settings.request_timeout_ms / 1000
        limit = _SECONDS_OF_RETRIES
        fault = incident["kind"]
        if fault in _STALLS:
            limit += request_timeout + 1.0
            if api == "Metadata" and len(self._cluster.brokers) == 1:  # the only witness has half of the time
                limit += client.settings.default_api_timeout_ms / 2000
        if self._environment.network.silent_addresses:
            limit += 2 * client.settings.connect_timeout_ms / 1000
        if limit + 2.0 > client.settings.default_api_timeout_ms / 1000:
            return
        self._plan_fault(api, incident, partitions)
        has_result = not (fault == "error" and api == "Metadata")
        with self._operations.operation() as operation:
            self._call(client, group, kind, partitions, check=has_result)
        seconds = self._environment.world.now - operation.started_at
        if seconds > limit:
            raise ViolationError(f"{kind} takes {seconds:.2f} s after one {fault} of {api}")
        count = operation.requests.total() + operation.connects
        if count > expected.total() + _EXTRA_REQUESTS:
            raise ViolationError(f"{kind} sends {count} requests after one {fault} of {api}: {operation.requests}")
        self._environment.network.aimed_faults.clear()
        self._driver.sleep(2.0)
        self._settle(client, group, kind, partitions)
        self._check_exact(client, group, kind, partitions)

    def _plan_fault(self, api: str, incident: Mapping[str, Any], partitions: Sequence[TopicPartition]) -> None:
        cluster, network = self._cluster, self._environment.network
        match incident["kind"]:
            case "reset_connections":
                for broker in cluster.brokers.values():
                    network.reset_broker(broker)
            case "move_coordinators":
                coordinators = Coordinators.of(cluster)
                for number in range(4):
                    brokers = list(cluster.brokers)
                    leader = coordinators._leaders[GROUP, number]
                    coordinators.move(GROUP, number, brokers[(brokers.index(leader) + 1) % len(brokers)])
                coordinators.heal()
            case "elect_leaders":
                for tp in partitions:
                    target = cluster.partition(tp)
                    assert target is not None
                    others = [each for each in target.in_sync_replicas if each != target.leader]
                    cluster.elect(target, others[0] if others else target.leader)
                self._driver.sleep(2.0)
            case "error" if api not in RETRIABLE_ERRORS:
                return
            case kind:
                network.aim_at_next(api, 0, RequestFault(kind, incident["args"]))

    # The operations.

    def _expected_requests(
        self, client: ClusterClient, kind: str, partitions: Sequence[TopicPartition]
    ) -> Counter[str]:
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
            "local_start": {"ListOffsets": 1} if self._version("ListOffsets") >= 8 else {},
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
        }
        expected = Counter(requests[kind])
        if kind == "check_leader" and self._topic_id(partitions[0]) is None:
            expected["Metadata"] += 1
        if kind == "create_topic" and self._default_factor() > brokers:
            expected["CreateTopics"] += 1
        return expected

    def _call(
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
        match kind:
            case "metadata":
                return client.topics(self._names), self._metadata(
                    name for name in self._names if name in cluster.topics
                )
            case "all_topics":
                return client.all_topics(), self._metadata(cluster.topics)
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
                return found, {tp: (self._leader(tp), self._epoch(tp)) for tp in partitions}
            case "leader":
                return client.leader(partitions[0]).id, self._leader(partitions[0])
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
                has_local = self._version("ListOffsets") >= _FIRST_VERSION_WITH_EARLIEST_LOCAL
                expected = self._log(partitions[0]).local_start if has_local else None
                return client.local_log_start(partitions[0]), expected
            case "confirm":
                return client.confirm_missing(dict.fromkeys(partitions)), set()
            case "check_leader":
                client.check_leader(partitions[0], self._topic_id(partitions[0]), self._epoch(partitions[0]))
                return client.is_deposed(
                    partitions[0], self._topic_id(partitions[0]), self._epoch(partitions[0])
                ), False
            case "open_transactions":
                return client.open_transactions(partitions, deadline=deadline), dict.fromkeys(partitions, ())
        return self._result_of_any_broker(client, group, kind, partitions)

    def _result_of_any_broker(
        self, client: ClusterClient, group: ConsumerGroup, kind: str, partitions: Sequence[TopicPartition]
    ) -> tuple[Any, Any]:
        cluster, brokers = self._cluster, len(self._cluster.brokers)
        groups = GroupCoordinator.of(cluster)
        match kind:
            case "commit":
                offsets = {tp: self._next_offset + number for number, tp in enumerate(partitions)}
                self._next_offset += len(offsets)
                group.commit(offsets)
                has_epochs = self._version("OffsetCommit") >= _FIRST_VERSION_WITH_COMMITTED_EPOCHS
                stored = groups.committed(group.group_id)
                found = {tp: (stored[tp].offset, stored[tp].leader_epoch) for tp in partitions}
                return found, {tp: (offsets[tp], self._epoch(tp) if has_epochs else -1) for tp in partitions}
            case "committed":
                found = group.committed(partitions)
                stored = groups.committed(group.group_id)
                return found, {tp: stored[tp].offset for tp in partitions if tp in stored}
            case "all_committed":
                found = group.committed_with_metadata()
                stored = groups.committed(group.group_id)
                has_epochs = self._version("OffsetFetch") >= 5
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

    # The truth.

    def _is_healthy(self) -> bool:
        cluster, now = self._cluster, self._environment.world.now
        return all(
            broker.is_up and broker.rebootstrap_until <= now and broker.image.version == cluster.image.version
            for broker in cluster.brokers.values()
        )

    def _partitions(self, places: Sequence[int]) -> list[TopicPartition]:
        """Return some of the partitions that exist and have a leader that has settled."""
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

    def _metadata(self, names: Any) -> dict[str, TopicMetadata]:
        cluster = self._cluster
        found = {}
        for name in names:
            topic = cluster.topics[name]
            partitions = {
                index: PartitionMetadata(
                    index,
                    None if each.leader == NO_LEADER else each.leader,
                    self._epoch(TopicPartition(name, index)),
                    tuple(each.replicas),
                    tuple(each.in_sync_replicas),
                )
                for index, each in enumerate(topic.partitions)
            }
            found[name] = TopicMetadata(name, self._topic_id(TopicPartition(name, 0)), topic.is_internal, partitions)
        return found

    def _each(self, partitions: Sequence[TopicPartition], value: Callable[[Any], Any]) -> dict[TopicPartition, Any]:
        return {tp: value(self._log(tp)) for tp in partitions}

    def _log(self, tp: TopicPartition) -> Any:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.leader_log

    def _leader(self, tp: TopicPartition) -> int:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.leader

    def _epoch(self, tp: TopicPartition) -> int:
        target = self._cluster.partition(tp)
        assert target is not None
        return target.epoch if self._version("Metadata") >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS else -1

    def _topic_id(self, tp: TopicPartition) -> Any:
        has_ids = self._version("Metadata") >= 10
        return self._cluster.topics[tp.topic].topic_id if has_ids else None

    def _default_factor(self) -> int:
        return self._cluster.settings.replication_factor

    def _version(self, api: str) -> int:
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
