"""The calls of the threads that share a pool, and what each of them may return."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.events import stop_broker
from tests.simulation.cluster.foreign_broker import ForeignBroker
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import TRANSIENT_ERRORS, ViolationError
from tests.simulation.scenarios.several_topics import all_places, partition_at, partition_counts

from pyspark_kafka_direct.client.admin import create_topic, describe_broker_config, describe_topic_config
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup, list_group_ids
from pyspark_kafka_direct.client.coordinator_client import RetriableCoordinatorError
from pyspark_kafka_direct.errors import (
    DataLossError,
    KafkaDirectError,
    ProtocolError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS, confirmation_timeout, lost_epochs_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.connection_operations import Operations
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.client.metadata import PartitionLeader, TopicMetadata

TOPICS: Final = ("flights", "trains", "ships")
GROUP: Final = "planes"
READS: Final = ("metadata", "offsets", "offsets", "local_start", "leaders")
FROM_ANY_BROKER: Final = ("metadata", "all_topics", "leaders", "describe_topic")
"""Calls that any broker serves."""

_FROM_REPLICAS = ("bounds", "check_leader")  # calls of which each replica has to return metadata
_SLACK = 1.0  # seconds
_DOWN_SECONDS = 400.0  # of a broker, after the faults
_FAILOVER_SECONDS = 10.0  # until another broker is the coordinator
_MAX_FAILOVERS = 4  # clients


class Calls:
    """The calls of all threads, and what they have committed."""

    def __init__(self, environment: Environment, operations: Operations) -> None:
        self._environment = environment
        self._operations = operations
        self.counts = partition_counts(TOPICS, environment.plan.parameters)
        self._clients: dict[tuple[int, int], ClusterClient] = {}
        self._groups: dict[tuple[int, int], ConsumerGroup] = {}  # each retains its coordinator, as a query's does
        self._next_offset = 1
        # Offsets by group and partition, in order, and the acknowledged ones.
        self._received_commits: defaultdict[tuple[str, TopicPartition], list[int]] = defaultdict(list)
        self._acknowledged: dict[tuple[str, TopicPartition], int] = {}
        self.violations: list[str] = []

    def run(self, driver: Any, number: int) -> None:
        environment, parameters = self._environment, self._environment.plan.parameters
        calls = parameters["call_list"][number][: parameters["calls"]]
        for call in calls:
            driver.sleep(call["pause"])
            self._try(driver, number, call)
        # Liveness: after the faults have stopped, each call succeeds.
        driver.sleep(max(0.0, environment.quiet_at - environment.world.now) + 60.0)
        for call in calls[:2]:
            error = self._try(driver, number, call)
            if error is not None and not self._may_fail(call):
                raise ViolationError(f"{call['kind']} fails though no fault is left: {error!r}") from error

    def _may_fail(self, call: dict[str, Any]) -> bool:
        """Return whether a call may fail without a fault: a topic was deleted, or a client retries seldom."""
        if "retries" in self._environment.plan.parameters:
            return True
        brokers = self._environment.cluster.brokers.values()
        if call["kind"] in _FROM_REPLICAS and any(
            each.rebootstrap_until > self._environment.world.now for each in brokers
        ):
            return True  # such a replica may be a later leader
        topics = self._environment.cluster.topics
        exist = all(name in topics and len(topics[name].partitions) >= count for name, count in self.counts.items())
        return bool(self._environment.oracle.deleted_at) and not (exist and call["kind"] in READS)

    def check_failover(self, driver: Any) -> None:
        """Check that groups find their next coordinators while one broker after the other is down."""
        environment = self._environment
        users = self.users()[:_MAX_FAILOVERS]
        for number, broker in enumerate(environment.cluster.brokers):
            for client, _ in users:
                client.topics(self.counts)  # from a bootstrap server, if a broker has required that
            stop_broker(environment.cluster, number, _DOWN_SECONDS)
            driver.sleep(_FAILOVER_SECONDS)
            for client, group in users:
                try:
                    client.refresh_brokers()
                    self._check_nodes(client)
                    group.committed([partition_at(self.counts, place) for place in all_places(self.counts)])
                except TopicNotFoundError:
                    continue
                except TRANSIENT_ERRORS as error:
                    message = f"{group.group_id} has no coordinator while broker {broker} is down: {error!r}"
                    raise ViolationError(message) from error
            driver.sleep(_DOWN_SECONDS)

    def _check_nodes(self, client: ClusterClient) -> None:
        """Check that new metadata replaces the brokers, but for those that the controller has fenced just now."""
        live = {each for each, broker in self._environment.cluster.brokers.items() if broker.is_up}
        for topic in client.topics(self.counts).values():
            for each in topic.partitions.values():
                if each.offline_replicas and set(each.offline_replicas) != set(each.replicas) - live:
                    raise ViolationError(f"the brokers {sorted(live)} are up, and metadata of {topic.name} has {each}")
        if set(client.nodes) != live:
            raise ViolationError(f"the brokers {sorted(live)} are up, and the client knows {sorted(client.nodes)}")

    def users(self) -> list[tuple[ClusterClient, ConsumerGroup]]:
        """Return the clients of the cluster, not those of another one, with their groups."""
        return [
            (self._clients[key], group)
            for key, group in self._groups.items()
            if self._clients[key].cluster_id != ForeignBroker.cluster_id
        ]

    def call_at_the_end(self, driver: Any) -> None:
        """Send requests, while another thread closes the pool."""
        with suppress(*TRANSIENT_ERRORS, TopicNotFoundError):
            self._environment.client(driver, default_api_timeout_ms=3_000).topics(self.counts)

    def check_request(self, request: ReceivedRequest) -> None:
        """Check that a user's requests are sent with the user's client id, and note commits that arrive late."""
        self._operations.note(request)
        group = getattr(request.values, "group_id", "")
        if group and not group.endswith(f" of {request.client_id}"):
            self.violations.append(f"a request for the group {group!r} is sent as {request.client_id}")
        if request.api != "OffsetCommit":
            return
        for topic in request.values.topics:
            for each in topic.partitions:
                # A request that the client has given up replaces the offset of a later commit.
                key = (group, TopicPartition(topic.name, each.partition_index))
                self._received_commits[key].append(each.committed_offset)
                self._check_epoch(key[1], each.committed_leader_epoch)
                if key in self._acknowledged:
                    self._acknowledged[key] = min(self._acknowledged[key], each.committed_offset)

    def _check_epoch(self, partition: TopicPartition, epoch: int) -> None:
        """Check that a commit does not name a later leader epoch, unless that may be of a deleted topic."""
        found = self._environment.cluster.partition(partition)
        if found is not None and found.topic.generation == 1 and epoch > found.epoch:
            self.violations.append(
                f"a commit of {partition} has the leader epoch {epoch}, and the newest is {found.epoch}"
            )

    def _try(self, driver: Any, number: int, call: dict[str, Any]) -> KafkaDirectError | None:
        environment = self._environment
        started = environment.world.now
        client = self._client(driver, number, call)
        known = self._known_counts()
        error: KafkaDirectError | None = None
        with self._operations.operation() as operation:
            try:
                self._call(client, number, call)
            except (*TRANSIENT_ERRORS, TopicNotFoundError, DataLossError) as raised:
                error = raised
            except ProtocolError as raised:
                if not self._has_garbled_responses():
                    raise
                error = raised
        self._operations.check(
            operation,
            client,
            error,
            name=call["kind"],
            retries=environment.plan.parameters.get("retries"),
            min_seconds=self._min_seconds(client, call),
            topics={*self.counts, f"created-{number}"},
        )
        self._check_missing(client, call, known, error)
        self._check_frozen(call, error)
        passed = environment.world.now - started
        limit = environment.plan.parameters["api_timeout_ms"] / 1000
        # A broker that accepts connections may respond late.
        request_timeout = environment.plan.parameters["request_timeout_ms"] / 1000
        confirmation = max(2 * CONFIRMATION_SECONDS, 2 * request_timeout + CONFIRMATION_SECONDS)
        if call["kind"] == "confirm":  # a shorter timeout does not end a confirmation
            limit = max(limit, confirmation)
        elif call["kind"] == "commit" and _lacked_topic(error):
            limit += confirmation  # it begins with the first evidence
        elif call["kind"] == "local_start":
            # An isolated broker returns lower leader epochs, which is evidence that the cluster has lost its epochs. To
            # confirm or refute that takes longer than that a topic is missing, and may begin just before the deadline.
            limit += confirmation_timeout(lost_epochs_seconds(limit))
        if passed > limit + _SLACK:
            raise ViolationError(f"{call['kind']} took {passed:.2f} s, and its deadline is {limit:.2f} s: {error!r}")
        return error

    def _min_seconds(self, client: ClusterClient, call: dict[str, Any]) -> float:
        """Return the seconds for which a call is retried at least."""
        if call["kind"] == "confirm":  # it may end a step earlier
            return 0.0
        seconds = client.settings.default_api_timeout_ms
        return (seconds if client.was_reached else min(seconds, client.settings.connect_timeout_ms)) / 1000

    def _has_garbled_responses(self) -> bool:
        return any(event.kind == "garble_response" for event in self._environment.plan.events)

    def _check_frozen(self, call: dict[str, Any], error: KafkaDirectError | None) -> None:
        """Check that a call that any broker serves succeeds within its deadline while another broker responds."""
        plan = self._environment.plan
        frozen = {event.args.get("broker") for event in plan.events}
        if not plan.events or {event.kind for event in plan.events} != {"pause_broker"}:
            return
        may_lag = self._environment.cluster.settings.metadata_lag > 0
        if len(frozen) >= plan.parameters["brokers"] or may_lag or call["kind"] not in FROM_ANY_BROKER:
            return
        if isinstance(error, TRANSIENT_ERRORS):
            message = f"{call['kind']} fails, although only {len(frozen)} brokers do not respond: {error!r}"
            raise ViolationError(message) from error

    def _check_missing(
        self, client: ClusterClient, call: dict[str, Any], known: Mapping[str, int], error: KafkaDirectError | None
    ) -> None:
        """Check that no partition is reported as missing that all brokers knew before the call."""
        if not isinstance(error, TopicNotFoundError) or error.partition is None or call["kind"] != "leaders":
            return
        is_foreign = client.cluster_id == ForeignBroker.cluster_id
        if (
            error.partition < known.get(error.topic or "", 0)
            and not is_foreign
            and not self._environment.oracle.deleted_at
        ):
            raise ViolationError(f"all brokers know the partition, but: {error!r}") from error

    def _client(self, driver: Any, number: int, call: dict[str, Any]) -> ClusterClient:
        parameters = self._environment.plan.parameters
        key = (number, call["user"])
        # A client whose first broker was one of another cluster stays in that cluster.
        is_foreign = key in self._clients and self._clients[key].cluster_id == ForeignBroker.cluster_id
        if call["fresh_client"] or is_foreign or key not in self._clients:
            environment = self._environment
            settings = environment.settings(
                client_id=f"user-{call['user']}",
                default_api_timeout_ms=parameters["api_timeout_ms"],
                request_timeout_ms=parameters["request_timeout_ms"],
                connections_max_idle_ms=parameters["max_idle_ms"],
                reconnect_backoff_max_ms=parameters.get("reconnect_max_ms", 1_000),
                **parameters.get("settings", {}),
            )
            servers = settings.bootstrap_servers[: parameters.get("bootstrap_servers", 3)]
            self._clients[key] = ClusterClient(
                replace(settings, bootstrap_servers=servers),
                retries=parameters.get("retries"),
                retry_interval=parameters.get("retry_interval"),
                pool=environment.pool(driver),
            )
            self._groups[key] = ConsumerGroup(self._clients[key], f"{GROUP}-{number} of user-{call['user']}")
        return self._clients[key]

    def _call(self, client: ClusterClient, number: int, call: dict[str, Any]) -> None:
        partitions = dict.fromkeys(partition_at(self.counts, place) for place in call["places"])
        if call.get("newest"):
            partitions |= {
                TopicPartition(name, count - 1): None for name, count in self._known_counts().items() if count
            }
        partition = next(iter(partitions))
        group = self._groups[number, call["user"]]
        match call["kind"]:
            case "metadata":
                counts = self._known_counts()
                self._check_topics(client, client.topics(self.counts), counts)
            case "all_topics":
                self._check_topics(client, client.all_topics(), {})
            case "offsets":
                deadline = client.deadline()
                for tp, offset in client.offsets(dict.fromkeys(partitions, LATEST), deadline=deadline).items():
                    self._check_offset("the end", offset, tp)
                for tp, offset in client.offsets(dict.fromkeys(partitions, EARLIEST), deadline=deadline).items():
                    self._check_offset("the start", offset, tp)
            case "timestamps":
                client.offsets(dict.fromkeys(partitions, 1), deadline=client.deadline())
            case "bounds":
                for tp, bounds in client.log_bounds(partitions, client.deadline()).items():
                    self._check_offset("the start", bounds[0], tp)
                    self._check_offset("the end", bounds[1], tp)
            case "leader":
                client.leader(partition, deadline=client.deadline())
            case "check_leader":
                epoch = client.partition(partition, deadline=client.deadline()).leader_epoch
                with suppress(TransientBrokerError):
                    client.check_leader(partition, None, epoch, deadline=client.deadline(1.0))
            case "open_transactions":
                client.open_transactions(partitions, deadline=client.deadline())
            case "groups":
                list_group_ids(client, client.deadline())
            case "describe_broker":
                described = describe_broker_config(client, ["log.retention.hours"])
                if described != {"log.retention.hours": "168"} and client.cluster_id != ForeignBroker.cluster_id:
                    raise ViolationError(f"a broker is described as {described}")
            case "leaders":
                self._check_leaders(client, partitions, client.leaders(partitions, client.deadline()))
            case "local_start":
                self._check_local_start(client.local_log_start(partition), partition)
            case "confirm":
                missing = client.confirm_missing(dict.fromkeys(partitions))
                is_foreign = client.cluster_id == ForeignBroker.cluster_id
                for tp in missing:
                    if not is_foreign and not self._environment.oracle.deleted_at and self._is_known(tp):
                        raise ViolationError(f"{tp} exists, but it counts as missing")
            case "create_topic":
                create_topic(client, f"created-{number}", 1, {})
                if client.cluster_id != ForeignBroker.cluster_id:
                    created = self._environment.cluster.topics.get(f"created-{number}")
                    if created is None or len(created.partitions) != 1:
                        raise ViolationError(f"a topic was created, and it is {created}")
            case "describe_topic":
                described = describe_topic_config(client, partition.topic, ["retention.ms"])
                is_foreign = client.cluster_id == ForeignBroker.cluster_id
                if not is_foreign and not self._environment.oracle.deleted_at:
                    expected = {
                        "retention.ms": self._environment.cluster.topics[partition.topic].configs["retention.ms"]
                    }
                    if described != expected:
                        raise ViolationError(f"{partition.topic} is described as {described}, and it has {expected}")
            case "commit":
                # Each thread has its own group, so that the order of its commits is defined.
                offsets = {tp: self._next_offset + each for each, tp in enumerate(partitions)}
                self._next_offset += len(offsets)
                group.commit(offsets)
                for tp, offset in offsets.items():
                    # A late request may have arrived behind this commit, and before its response.
                    received = self._received_commits[group.group_id, tp]
                    if offset not in received:
                        raise ViolationError(f"the commit of offset {offset} of {tp} was not sent, but it succeeds")
                    since_commit = received[len(received) - 1 - received[::-1].index(offset) :]
                    self._acknowledged[group.group_id, tp] = min(since_commit)
                    self._check_committed(group.group_id, tp, since_commit)
            case "committed":
                is_outdated = self._has_outdated_coordinator(group.group_id)  # no client can see that
                found = group.committed(partitions)
                self._check_found(client, group.group_id, partitions, found)
                for tp in partitions:
                    # Only now, because a late request may have arrived meanwhile.
                    acknowledged = self._acknowledged.get((group.group_id, tp), -1)
                    # Brokers delete the committed offsets of a deleted topic.
                    is_deleted = bool(self._environment.oracle.deleted_at)
                    if found.get(tp, -1) < acknowledged and not is_outdated and not is_deleted:
                        raise ViolationError(f"offset {acknowledged} of {tp} was committed, but {found} is returned")

    def _check_found(
        self,
        client: ClusterClient,
        group: str,
        partitions: Collection[TopicPartition],
        found: Mapping[TopicPartition, int],
    ) -> None:
        """Check that the committed offsets of the requested partitions are some that the group has committed."""
        if client.cluster_id == ForeignBroker.cluster_id:
            return
        for tp, offset in found.items():
            if tp not in partitions or offset not in self._received_commits[group, tp]:
                raise ViolationError(f"offset {offset} of {tp} was never committed, but {found} is returned")

    def _check_local_start(self, offset: int | None, partition: TopicPartition) -> None:
        """Check that the log never began elsewhere, unless a part of it is in tiered storage."""
        environment = self._environment
        if offset is not None and not environment.cluster.settings.earliest_local:
            raise ViolationError(f"no broker reports where a local log begins, but that of {partition} is {offset}")
        if offset is not None and all(event.kind != "tier_log" for event in environment.plan.events):
            self._check_offset("the start", offset, partition)

    def _check_committed(self, group: str, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Check that a commit that was acknowledged just now has taken effect."""
        committed = GroupCoordinator.of(self._environment.cluster).committed(group).get(partition)
        is_deleted = bool(self._environment.oracle.deleted_at)
        if (committed is None or committed.offset not in offsets) and not is_deleted:
            raise ViolationError(f"one of the offsets {offsets} of {partition} was committed, but it is {committed}")

    def _known_counts(self) -> dict[str, int]:
        """Return how many partitions of each topic all brokers have in their metadata."""
        images = [broker.image.topics for broker in self._environment.cluster.brokers.values()]
        known = {name: [image.get(name) for image in images] for name in self.counts}
        return {name: min(0 if each is None else len(each.partitions) for each in known[name]) for name in known}

    def _check_topics(
        self, client: ClusterClient, topics: Mapping[str, TopicMetadata], known: Mapping[str, int]
    ) -> None:
        """Check that metadata has the topics that all brokers knew, with their partitions and ids."""
        environment = self._environment
        if client.cluster_id == ForeignBroker.cluster_id or environment.oracle.deleted_at:
            return
        for name in self.counts:
            topic, found = environment.cluster.topics[name], topics.get(name)
            count = 0 if found is None else len(found.partitions)
            if not known.get(name, 0) <= count <= len(topic.partitions):
                raise ViolationError(f"the metadata of {name} has {count} partitions")
            if found is not None and (found.name != name or found.topic_id not in (None, topic.topic_id)):
                raise ViolationError(f"the metadata of {name} is that of another topic: {found}")

    def _check_leaders(
        self,
        client: ClusterClient,
        partitions: Collection[TopicPartition],
        leaders: Mapping[TopicPartition, PartitionLeader | None],
    ) -> None:
        """Check that each partition has a leader of its past, and the newest one if the epoch is the newest."""
        if client.cluster_id == ForeignBroker.cluster_id or self._environment.oracle.deleted_at:
            return
        if leaders.keys() != set(partitions):
            raise ViolationError(f"the leaders of {sorted(partitions)} were requested, and not {sorted(leaders)}")
        for tp, leader in leaders.items():
            current = self._environment.cluster.partition(tp)
            if leader is None or current is None or leader.epoch < current.epoch:
                continue
            if leader.epoch > current.epoch or leader.node.id != current.leader:
                raise ViolationError(f"the leader of {tp} is {current.leader} in epoch {current.epoch}, not {leader}")

    def _is_known(self, partition: TopicPartition) -> bool:
        """Return whether a broker has a partition in its metadata, and could say so."""
        now = self._environment.world.now
        return any(
            broker.is_up and broker.rebootstrap_until <= now and broker.image.partition(*partition) is not None
            for broker in self._environment.cluster.brokers.values()
        )

    def _has_outdated_coordinator(self, group: str) -> bool:
        """Return whether an isolated broker still returns the offsets that a group had before."""
        cluster = self._environment.cluster
        coordinator = GroupCoordinator.of(cluster)
        return any(coordinator.is_outdated_coordinator(group, broker) for broker in cluster.brokers.values())

    def _check_offset(self, name: str, offset: int, partition: TopicPartition) -> None:
        """Check that an offset was reported by some leader at some time."""
        oracle = self._environment.oracle
        for generation in range(1, oracle.generations[partition.topic] + 1):
            if (*partition[:1], generation, partition.partition) not in oracle.truths:
                continue
            truth = oracle.truth(partition, generation)
            starts = {0, *(each.offset for each in truth.starts)}
            ends = {each for _, each in truth.high_watermarks}
            if offset in (starts if name == "the start" else ends | starts):
                return
        raise ViolationError(f"{name} of {partition} is {offset}, which it never was")


def _lacked_topic(error: BaseException | None) -> bool:
    """Return whether a broker responded that a topic does not exist; to confirm that may have failed, too."""
    while error is not None:
        response = error.error if isinstance(error, RetriableCoordinatorError) else error
        if isinstance(response, TopicNotFoundError):
            return True
        error = error.__cause__ or error.__context__
    return False
