"""A client of a cluster: topic metadata, partition leaders and offsets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_direct.client.broker_selection import call_any_broker
from pyspark_kafka_direct.client.connection import ANY_BROKER, BrokerIdentity
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Backoff, Deadline, LossConfirmation, Retry
from pyspark_kafka_direct.client.leader_requests import (
    EARLIEST_LOCAL,
    ListOffsetsRequest,
    call_leaders,
    has_reliable_end,
)
from pyspark_kafka_direct.client.metadata import (
    MetadataSnapshot,
    Node,
    PartitionLeader,
    PartitionMetadata,
    TopicMetadata,
    fetch_metadata,
)
from pyspark_kafka_direct.client.witnesses import AbsenceCheck, ReplicaWitnesses, Witnesses
from pyspark_kafka_direct.errors import (
    ProtocolError,
    TopicNotFoundError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    EpochFloors,
    Presence,
    confirmation_seconds,
    lost_epochs_seconds,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.metadata import ClusterMetadata
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.options.settings import ConnectionSettings, IsolationLevel
    from pyspark_kafka_direct.planning.data_loss import TopicReport
    from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

_T = TypeVar("_T")

_log = logging.getLogger("pyspark_kafka_direct.client")

_CONNECT_TIMEOUT = "kafka.socket.connection.setup.timeout.ms"

__all__ = ["ClusterClient", "Node", "PartitionLeader", "PartitionMetadata", "TopicMetadata"]


class ClusterClient:
    """Sends requests to a cluster, each within ``default.api.timeout.ms`` including retries; thread-safe.

    If the cluster was never reached, requests fail after ``socket.connection.setup.timeout.ms`` and one try of every
    bootstrap server, because waiting does not repair a wrong address.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        retries: int | None = None,
        retry_interval: float | None = None,  # seconds
        pool: ConnectionPool | None = None,  # None: that of the process
    ) -> None:
        self.settings = settings
        self.pool = pool = POOL if pool is None else pool
        self._retries = retries  # fetchOffset.numRetries; None: as many as fit before the deadline
        self._retry_interval = retry_interval  # seconds (fetchOffset.retryIntervalMs); None: exponential
        self._lock = pool.system.lock()
        self.cluster_id: str | None = None  # None before the first response
        self._snapshot = MetadataSnapshot()
        self._epoch_floors = EpochFloors()
        self._epoch_witnesses = Witnesses(self)  # confirm that the cluster has lost its epochs
        self._replica_witnesses = ReplicaWitnesses(self)  # find later leaders; see `_replica_witnesses_of`
        self._witnessed_topics: frozenset[str] = frozenset()  # of the last requests to the replica witnesses
        self._witnessed_at = 0.0  # the monotonic time of their last responses
        self._needs_bootstrap = False  # a broker required it (KIP-1102): the known ones no longer return metadata
        self._broker_shift = 0  # how many known brokers metadata requests skip at the start
        self._was_called = False  # whether a broker was called with this shift

    def deadline(self, seconds: float | None = None) -> Deadline:
        """Return the deadline of a wait that starts now, by default after ``default.api.timeout.ms``."""
        seconds = self.settings.default_api_timeout_ms / 1000 if seconds is None else seconds
        return Deadline.after(seconds, system=self.pool.system)

    @property
    def was_reached(self) -> bool:
        """Whether any broker has responded."""
        return self._snapshot.was_reached

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers by id, as of the last metadata; empty before the first request."""
        return dict(self._snapshot.nodes)

    @property
    def needs_bootstrap(self) -> bool:
        """Whether the next metadata has to come from a bootstrap server."""
        return self._needs_bootstrap

    def topics(
        self, names: Iterable[str], *, deadline: Deadline | None = None, retry: Retry | None = None
    ) -> dict[str, TopicMetadata]:
        """Fetch metadata of topics; missing topics are omitted."""
        unique_names = sorted(set(names))
        if not unique_names:
            return {}
        return self._refresh_topics(unique_names, deadline or self.deadline(), retry)

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None:
        """Refresh the list of brokers."""
        self._refresh_topics([], deadline or self.deadline())

    def all_topics(
        self, *, required: Callable[[str], bool] = lambda name: False, deadline: Deadline | None = None
    ) -> dict[str, TopicMetadata]:
        """Fetch metadata of all topics that the principal may describe, including internal ones.

        A topic with an error is omitted. If it is ``required`` and not internal, the error is retried or raised.
        """
        return self._refresh_topics(None, deadline or self.deadline(), required=required)

    def use_next_broker(self) -> None:
        """Send the next metadata requests to another broker than the last one, which may lag behind."""
        with self._lock:
            # Two calls in a row, such as after `confirm_missing`, would lead back to the same one of two brokers.
            self._broker_shift += self._was_called
            self._was_called = False

    def raise_epoch_floor(self, partition: TopicPartition, topic_id: UUID | None, epoch: int) -> None:
        """Accept no leader of a lower epoch than this one, which an earlier request or another process received."""
        with self._lock:
            self._raise_epoch_floor(partition, topic_id, epoch)

    def raise_epoch_floors(
        self,
        names: Collection[str],
        *,
        partitions: Collection[TopicPartition] = (),  # whose replicas get requests; by default all of the topics
        deadline: Deadline | None = None,
    ) -> None:
        """Accept no leader of an epoch lower than the highest that the replicas' brokers report: it was deposed."""
        if not names:
            return
        retry = self._retry(deadline)
        witnesses = self._replica_witnesses_of(names)
        while True:
            try:
                topics = self._snapshot.topics(names)
                replicated = partitions or [
                    TopicPartition(name, each) for name in topics for each in topics[name].partitions
                ]
                _, unresolved = witnesses.request_reports(dict.fromkeys(names), replicated, retry.deadline)
                self._witnessed_at = self.pool.system.monotonic()
                if unresolved is None:
                    return
                unresolved.add_note("Until this broker responds, it may be the leader, so no data loss is assumed.")
                raise unresolved
            except TransientBrokerError as error:
                retry.wait_or_raise(error)

    def raise_reported_epochs(self, name: str, reports: Iterable[TopicReport]) -> None:
        """Accept no leader of a lower epoch than brokers have reported."""
        with self._lock:
            for report in reports:
                for index, epoch in (report.leader_epochs or {}).items():
                    self._raise_epoch_floor(TopicPartition(name, index), report.topic_id, epoch)

    def note_later_epochs(self, epochs: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        """Raise the floors of partitions whose metadata has a lower epoch than one of these; -1 is unknown."""
        # These epochs come without a topic id, with committed offsets or in responses to Fetch (KIP-951). They may be
        # those of a topic that was deleted since, so they are no floors themselves.
        known_epochs = {tp: epoch for tp, epoch in epochs.items() if epoch >= 0}
        topics = self._fresh_topics(known_epochs, deadline)
        outdated = {
            tp
            for tp, epoch in known_epochs.items()
            if tp.topic in topics
            and (partition := topics[tp.topic].partitions.get(tp.partition)) is not None
            and 0 <= partition.leader_epoch < epoch
        }
        if outdated:
            self.raise_epoch_floors({tp.topic for tp in outdated}, partitions=outdated, deadline=deadline)

    def is_deposed(self, partition: TopicPartition, topic_id: UUID | None, epoch: int) -> bool:
        """Return whether a later leader epoch than this one is known."""
        with self._lock:
            return self._epoch_floors.is_stale(partition, topic_id, epoch)

    def check_leader(
        self,
        partition: TopicPartition,
        topic_id: UUID | None,
        epoch: int,
        *,
        broker: str | None = None,  # ``host:port``, for the error
        deadline: Deadline | None = None,
    ) -> None:
        """Raise a transient error if a broker reports a later leader than the one of this epoch."""
        self.raise_epoch_floors([partition.topic], partitions=[partition], deadline=deadline)
        if topic_id is None:  # as in a plan whose metadata lacked the topic
            topic = self.topics([partition.topic], deadline=deadline).get(partition.topic)
            topic_id = None if topic is None else topic.topic_id
        if self.is_deposed(partition, topic_id, epoch):
            code = ErrorCode.FENCED_LEADER_EPOCH
            raise error_for(code, "fetching", topic=partition.topic, partition=partition.partition, broker=broker)

    def confirmation_seconds(self, error: KafkaDirectError) -> float:
        """Return how long brokers need to confirm the loss of which an error is evidence; 0 if it is none."""
        seconds = confirmation_seconds(error)
        if error.topic is None or error.partition is None:
            return seconds
        with self._lock:
            has_lower_epoch = self._epoch_floors.has_only_stale(TopicPartition(error.topic, error.partition))
        if not has_lower_epoch:
            return seconds
        # The cluster may have lost its epochs, which takes longer to confirm.
        return max(seconds, lost_epochs_seconds(self.settings.default_api_timeout_ms / 1000))

    def check_metadata(self, metadata: ClusterMetadata, broker: str) -> None:
        """Raise the error of a response that has no metadata; it may require to start with the bootstrap servers."""
        if metadata.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._needs_bootstrap = True
        if metadata.error_code:
            raise error_for(metadata.error_code, "fetching metadata", broker=broker)

    def replica_witnesses(self) -> ReplicaWitnesses:
        """Return the witnesses that confirm the leaders of partitions."""
        return ReplicaWitnesses(self)

    def absence_check(self, suspects: Mapping[TopicPartition, UUID | None]) -> AbsenceCheck:
        """Return a check whether these partitions, with topic ids if known, are missing or recreated."""
        return AbsenceCheck(self, suspects)

    def confirm_missing(
        self, suspects: Mapping[TopicPartition, UUID | None], *, deadline: Deadline | None = None
    ) -> set[TopicPartition]:
        """Return which of these partitions, with topic ids if known, are missing or recreated; this takes 5 seconds.

        Raises:
            BrokerError: No broker responded, or brokers contradict each other until the deadline.
        """
        if deadline is None:
            presences = self.absence_check(suspects).wait(self.deadline(), LossConfirmation())
        else:
            presences = self.absence_check(suspects).wait(deadline)
        return {tp for tp, presence in presences.items() if presence is not Presence.PRESENT}

    def partition(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> PartitionMetadata:
        """Return metadata of a partition, at most ``metadata.max.age.ms`` old."""
        return self._partition_or_raise(partition, self._fresh_topics([partition], deadline or self.deadline()))

    def leader(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> Node:
        """Return the leader of a partition; wait for one if there is none."""
        retry = self._retry(deadline)
        leader = self.leaders([partition], retry.deadline)[partition]
        while leader is None:
            topic, index = partition
            operation = "finding its leader"
            retry.wait_or_raise(error_for(ErrorCode.LEADER_NOT_AVAILABLE, operation, topic=topic, partition=index))
            leader = self.leaders([partition], retry.deadline, refresh_retry=retry)[partition]
        return leader.node

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, refresh_retry: Retry | None = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        """Return leaders or None, from cached metadata; ``refresh_retry`` requests new metadata instead."""
        if refresh_retry is None:
            topics = self._fresh_topics(partitions, deadline)
        else:
            topics = self._refresh_topics(sorted({tp.topic for tp in partitions}), deadline, refresh_retry)
        nodes = self._snapshot.nodes
        leaders: dict[TopicPartition, PartitionLeader | None] = {}
        for partition in partitions:
            metadata = self._partition_or_raise(partition, topics)
            node = None if metadata.leader is None else nodes.get(metadata.leader)
            leaders[partition] = None if node is None else PartitionLeader(node, metadata.leader_epoch)
        return leaders

    def known_replicas(self, partitions: Collection[TopicPartition]) -> set[int]:
        """Return the ids of the partitions' replicas that the cached metadata has, without a request."""
        known = map(self._snapshot.partition, partitions)
        return {replica for partition in known if partition is not None for replica in partition.replicas}

    def known_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return the leaders that the cached metadata has, without a request."""
        return self._snapshot.leaders(partitions)

    def known_topic_ids(self, names: Iterable[str]) -> dict[str, UUID]:
        """Return the topic ids that the cached metadata has, without a request."""
        topics = self._snapshot.topics(names)
        return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id is not None}

    def offsets(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        deadline: Deadline | None = None,
    ) -> dict[TopicPartition, int]:
        """Return offsets by position: -2 (log start), -1 (end), or a timestamp in milliseconds."""
        # By timestamp: the first offset whose record has this timestamp or a later one, or -1 if there is none.
        request = ListOffsetsRequest(isolation_level, self.settings.request_timeout_ms)
        ordered_positions = dict(sorted(positions.items()))  # callers pass sets, whose order differs between processes
        offsets = call_leaders(self, request, ordered_positions, self._retry(deadline))
        return {partition: offsets[partition] for partition in positions}

    def log_bounds(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the starts and ends of logs, also those of uncommitted records: open transactions are no data loss.

        A leader that several brokers report to be deposed gets no request: it may lack records.
        """
        if not partitions:
            return {}
        self.raise_epoch_floors({tp.topic for tp in partitions}, partitions=partitions, deadline=deadline)
        starts = self.offsets(dict.fromkeys(partitions, EARLIEST), deadline=deadline)
        ends = self.offsets(dict.fromkeys(partitions, LATEST), deadline=deadline)
        return {tp: (starts[tp], ends[tp]) for tp in partitions}

    def has_reliable_end(self, partition: TopicPartition, deadline: Deadline) -> bool:
        """Return whether the leader is known, and its log end is right also after its election (KIP-207)."""
        leader = self.leaders([partition], deadline)[partition]
        if leader is None:
            return False
        connection = self.connect(leader.node, deadline)
        try:
            return has_reliable_end(connection)
        finally:
            self.release(connection)

    def local_log_start(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> int | None:
        """Return the first offset on the leader's own disk, not in tiered storage (KIP-405); None if it is unknown."""
        try:
            return self.offsets({partition: EARLIEST_LOCAL}, deadline=deadline)[partition]
        except (ProtocolError, UnsupportedBrokerError):
            return None

    def open_transactions(
        self, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions of partitions, without those that the principal may not describe.

        Raises:
            UnsupportedBrokerError: A leader does not support DescribeProducers (Kafka before 2.8).
        """
        from pyspark_kafka_direct.client.producer_states import DescribeProducersRequest  # tasks do not need it

        retry = self._retry(deadline or self.deadline())
        return call_leaders(self, DescribeProducersRequest(), dict.fromkeys(sorted(partitions)), retry)

    def call_any_broker(self, call: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        """Call known brokers and bootstrap servers, each once, until one responds."""
        known = {(node.host, node.port): self._identity(node) for node in self._snapshot.nodes.values()}
        return self._call_any_broker(known, call, deadline, tries)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        """Acquire a connection to a broker from the pool; ``release`` returns it."""
        try:
            return self.pool.acquire(self.settings, node.host, node.port, deadline, self._identity(node))
        except TransientBrokerError as error:
            if (node.host, node.port) not in self.settings.bootstrap_servers:
                error.message += (
                    f" Broker {node.id} advertises this address (advertised.listeners); it is not in "
                    "kafka.bootstrap.servers, but must be reachable from here too."
                )
            raise

    def release(self, connection: Connection) -> None:
        """Return a connection to the pool, which closes it if it is broken or has an outstanding response."""
        self.pool.release(connection)

    def _call_any_broker(
        self,
        known: Mapping[tuple[str, int], BrokerIdentity],
        call: Callable[[Connection, Deadline], _T],
        deadline: Deadline,
        tries: int,
    ) -> _T:
        self._was_called = True
        return call_any_broker(
            self.pool,
            self.settings,
            {} if self._needs_bootstrap else known,
            call,
            deadline,
            any_broker=self._identity(),
            tries=tries,
            shift=self._broker_shift,
        )

    def _identity(self, node: Node | None = None) -> BrokerIdentity:
        if not self.settings.metadata_cluster_check_enable:
            return ANY_BROKER
        if node is None:
            return BrokerIdentity(self.cluster_id)
        # In a task, the planned leader is the first node, and the plan has the cluster id.
        self.cluster_id = self.cluster_id or node.cluster_id
        return BrokerIdentity(self.cluster_id, node.id)

    def _fresh_topics(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[str, TopicMetadata]:
        """Return metadata of the partitions' topics, at most ``metadata.max.age.ms`` old; missing topics are omitted.

        If it lacks a partition, it is requested again: the broker that returned it may lag behind.
        """
        names = {tp.topic for tp in partitions}
        expired_at = self.pool.system.monotonic() - self.settings.metadata_max_age_ms / 1000
        fresh_topics = self._snapshot.topics(names, expired_at)
        if all(tp.topic in fresh_topics and tp.partition in fresh_topics[tp.topic].partitions for tp in partitions):
            return fresh_topics
        return self._refresh_topics(sorted(names), deadline)

    def _partition_or_raise(self, partition: TopicPartition, topics: Mapping[str, TopicMetadata]) -> PartitionMetadata:
        topic = topics.get(partition.topic)
        if topic is None:
            raise TopicNotFoundError("The topic does not exist.", topic=partition.topic)
        metadata = topic.partitions.get(partition.partition)
        if metadata is None:
            raise TopicNotFoundError(
                f"The topic has no such partition; it has {len(topic.partitions)}.",
                topic=partition.topic,
                partition=partition.partition,
            )
        return metadata

    def _refresh_topics(
        self,
        names: Collection[str] | None,
        deadline: Deadline,
        retry: Retry | None = None,
        *,
        required: Callable[[str], bool] | None = None,  # among all topics; None: each
    ) -> dict[str, TopicMetadata]:
        """Fetch metadata of topics (None: all), and retry until the deadline; missing topics are omitted."""
        is_own_retry = retry is None
        if retry is None:
            connect_timeout = self.settings.connect_timeout_ms / 1000
            first_deadline = deadline.limited_to(connect_timeout, _CONNECT_TIMEOUT)
            retry = self._retry(deadline if self.was_reached else first_deadline)
        rounds = 0
        while True:
            rounds += 1
            try:
                metadata = self._fetch_once(names, deadline, rounds)
            except TransientBrokerError as transient_error:
                retry.wait_or_raise(transient_error)
                continue
            if is_own_retry:
                retry.deadline = deadline  # the cluster was reached, so errors of topics are retried for longer
            topics = self._update_cache(metadata, names)
            if self._drop_lost_epochs(metadata.topics.values(), deadline):
                topics = self._update_cache(metadata, names)  # again, because it removed leaders of lower epochs
            for topic, error in metadata.topic_errors.items():
                if required is not None and (error.internal or not required(topic)):
                    continue
                failure = error_for(error.code, "fetching metadata", topic=topic)
                if not error_code_info(error.code).retriable:
                    raise failure
                retry.wait_or_raise(failure)
                break
            else:
                return topics

    def _raise_epoch_floor(self, tp: TopicPartition, topic_id: UUID | None, epoch: int) -> None:
        """Raise a floor, and remove cached metadata that is below it; requires the lock."""
        self._epoch_floors.raise_to(tp, topic_id, epoch)
        partition = self._snapshot.partition(tp)
        if partition is not None and self._epoch_floors.is_stale(tp, topic_id, partition.leader_epoch):
            self._snapshot = self._snapshot.without_topic(tp.topic)

    def _fetch_once(self, names: Collection[str] | None, deadline: Deadline, tries: int) -> ClusterMetadata:
        def call(connection: Connection, limit: Deadline) -> tuple[ClusterMetadata, str]:
            metadata = fetch_metadata(connection, names, limit)
            if self._needs_bootstrap:
                self.check_metadata(metadata, connection.broker)  # the next bootstrap server may return metadata
            return metadata, connection.broker

        # Metadata names the cluster, and each broker of it may respond.
        known = {(node.host, node.port): self._identity() for node in self._snapshot.nodes.values()}
        metadata, broker = self._call_any_broker(known, call, deadline, tries)
        if metadata.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._needs_bootstrap = True  # so that the second call ignores the known brokers
            metadata, broker = self._call_any_broker(known, call, deadline, tries)
        self.check_metadata(metadata, broker)
        return metadata

    def _update_cache(self, metadata: ClusterMetadata, names: Collection[str] | None) -> dict[str, TopicMetadata]:
        """Cache the response to a request for topics (None: all), and return its topics as they were cached."""
        now = self.pool.system.monotonic()
        with self._lock:
            snapshot = self._snapshot = self._snapshot.updated(metadata, names, self._epoch_floors, now)
            self._needs_bootstrap = False
            self.cluster_id = self.cluster_id or metadata.cluster_id
            if names is not None:  # a cluster may have more topics than floors are retained
                for name, topic in metadata.topics.items():
                    for index, partition in topic.partitions.items():
                        self._epoch_floors.raise_to(TopicPartition(name, index), topic.topic_id, partition.leader_epoch)
        return snapshot.topics(metadata.topics)

    def _drop_lost_epochs(self, received_topics: Iterable[TopicMetadata], deadline: Deadline) -> bool:
        """Use another broker if metadata is stale, or accept its epochs if all brokers report them for long enough."""
        now = self.pool.system.monotonic()
        stale_since = self._note_received_epochs(received_topics, now)
        if not stale_since:
            return False
        self.use_next_broker()
        confirmed_before = now - lost_epochs_seconds(self.settings.default_api_timeout_ms / 1000)
        suspects = [suspect for suspect, since in stale_since.items() if since <= confirmed_before]
        if not suspects:  # the broker may only lag behind: the next request goes to another one
            return False
        try:
            replicas = self.known_replicas([tp for tp, _ in suspects])
            names = {tp.topic for tp, _ in suspects}
            reports, unresolved = self._epoch_witnesses.request_reports(names, replicas, deadline)
        except TransientBrokerError:  # nothing is confirmed; the next metadata leads here again
            return False
        if self._epoch_witnesses.track_unresolved(unresolved) is not None:  # that broker may have the later epochs
            return False
        are_dropped = False
        with self._lock:
            for tp, topic_id in suspects:
                epoch = self._epoch_floors.highest_if_all_stale(
                    tp, topic_id, reports[tp.topic], len(self._snapshot.nodes)
                )
                if epoch is not None:
                    are_dropped = True
                    self._epoch_floors.drop(tp, topic_id)
                    self._snapshot = self._snapshot.without_topic(tp.topic)  # its epochs are higher, too
                    _log.warning(
                        "all brokers report an earlier leader epoch of %s than before (%s): the cluster has lost its "
                        "epochs, and possibly records",
                        tp,
                        epoch,
                    )
        return are_dropped

    def _note_received_epochs(
        self, received_topics: Iterable[TopicMetadata], now: float
    ) -> dict[tuple[TopicPartition, UUID], float]:
        """Return since when metadata of partitions has only had lower epochs than before."""
        stale_since: dict[tuple[TopicPartition, UUID], float] = {}
        with self._lock:
            for topic in received_topics:
                for index, partition in topic.partitions.items():
                    tp = TopicPartition(topic.name, index)
                    since = self._epoch_floors.track_stale(tp, topic.topic_id, partition.leader_epoch, now)
                    if since is not None and topic.topic_id is not None:
                        stale_since[tp, topic.topic_id] = since
        return stale_since

    def _replica_witnesses_of(self, names: Collection[str]) -> ReplicaWitnesses:
        """Return those of a call about these topics shortly before, which know since when a broker does not respond."""
        with self._lock:
            is_continued = self.pool.system.monotonic() <= self._witnessed_at + CONFIRMATION_SECONDS
            if not is_continued or self._witnessed_topics != set(names):
                self._witnessed_topics, self._replica_witnesses = frozenset(names), ReplicaWitnesses(self)
            return self._replica_witnesses

    def _retry(self, deadline: Deadline | None) -> Retry:
        """Return the retries until a caller's deadline, or until the own one, which does not end a confirmation."""
        interval = self._retry_interval
        backoff = Backoff.of(self.settings) if interval is None else Backoff(interval, interval)
        if deadline is not None:
            return Retry(deadline, self._retries, backoff)
        return Retry(self.deadline(), self._retries, backoff, confirmation_seconds=self.confirmation_seconds)
