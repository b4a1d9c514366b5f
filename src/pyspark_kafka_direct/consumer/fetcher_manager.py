"""Finds the leaders of a consumer's partitions, and keeps a fetcher for each leader.

A partition has no fetcher while its leader is unknown: at the start, and after errors. Background tasks find leaders
and connect; their results are applied in the owner's thread, unless ``seek`` was called meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.client.metadata import topic_report
from pyspark_kafka_direct.client.system import with_jitter
from pyspark_kafka_direct.consumer.background import as_kafka_error
from pyspark_kafka_direct.consumer.broker_fetcher import BrokerFetcher
from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH
from pyspark_kafka_direct.errors import (
    KafkaDirectError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
)
from pyspark_kafka_direct.planning.data_loss import Presence, topic_error
from pyspark_kafka_direct.planning.loss_errors import missing_error, recreated_error
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, Node, TopicMetadata
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.consumer.background import BackgroundTasks
    from pyspark_kafka_direct.consumer.fetch_channel import LeaderIdAndEpoch
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import FetchSettings

_T = TypeVar("_T")


class FetcherManager:
    """The fetchers of a consumer, one for each leader."""

    def __init__(
        self,
        cluster: ClusterClient,
        fetch: FetchSettings,
        background: BackgroundTasks,
        partitions: Collection[TopicPartitionState],
        on_fatal_error: Callable[[TopicPartitionState | None, KafkaDirectError], None],
    ) -> None:
        self._cluster = cluster
        self._system = cluster.pool.system
        self._fetch = fetch
        self._partitions = partitions  # a live view: the consumer may add partitions
        self._on_fatal_error = on_fatal_error  # without a partition if the error does not concern a single one
        self._background = background
        self._backoff = Backoff.of(cluster.settings)
        # The same for all partitions: partitions that back off together are then in one fetch, not in consecutive ones.
        self._jitter = with_jitter(1.0, self._system)
        self._fetchers: dict[Node, BrokerFetcher] = {}
        self._assigned: dict[TopicPartitionState, BrokerFetcher] = {}  # without partitions whose leader is unknown
        self._metadata_in_flight = False
        # As in Java's client, requests for metadata are at least retry.backoff.ms apart.
        self._metadata_max_age = max(cluster.settings.metadata_max_age_ms, cluster.settings.retry_backoff_ms) / 1000
        self._checked_at = self._system.monotonic()  # when `send_fetches` last looked which fetches are due
        self._refresh_at = self._checked_at + self._metadata_max_age

    def completed(self) -> Iterator[BrokerFetcher]:
        """Yield the fetchers whose responses can be handled now."""
        for fetcher in list(self._fetchers.values()):  # a copy, because errors remove fetchers, here and in the caller
            if fetcher.idle:
                continue
            if fetcher.has_undelivered_rows:  # a decoder has space for the records of one response
                continue
            try:
                complete = fetcher.read_available()
            except KafkaDirectError as error:
                self.remove_fetcher(fetcher, error)
                continue
            if complete:
                yield fetcher

    def send_fetches(self) -> None:
        """Send due fetches, close fetchers without partitions, and start to find leaders and to connect."""
        now = self._checked_at = self._system.monotonic()
        # One metadata request is in flight at a time: partitions without a leader come first.
        self._assign_to_leaders(now)
        self._refresh_leaders(now)
        for fetcher in list(self._fetchers.values()):
            if not fetcher.idle or fetcher.connecting or fetcher.next_fetch_at > now:
                continue
            if not fetcher.partitions:
                fetcher.release()
                del self._fetchers[fetcher.node]
                continue
            due_partitions = [partition for partition in fetcher.partitions if partition.next_fetch_at <= now]
            if due_partitions:
                self._connect_or_send(fetcher, due_partitions)

    def wait(self, until: float, wakeup_fds: Collection[int]) -> None:
        """Wait for a response, a completed background task, a due fetch, ``until`` or a readable ``wakeup_fds``."""
        now = self._system.monotonic()
        waiting = [fetcher for fetcher in self._fetchers.values() if not fetcher.idle]
        # ``send_fetches`` has handled pauses that ended before ``_checked_at``. If one has ended since, do not wait.
        wakeup_times = [until, *(fetcher.response_deadline for fetcher in waiting)]
        wakeup_times += [
            partition.next_fetch_at for partition in self._partitions if partition.next_fetch_at > self._checked_at
        ]
        wakeup_times += [
            fetcher.next_fetch_at for fetcher in self._fetchers.values() if fetcher.next_fetch_at > self._checked_at
        ]
        if not self._metadata_in_flight:  # else the completed task makes ``self._background`` readable
            wakeup_times.append(self._refresh_at)
        descriptors = [self._background.fileno(), *wakeup_fds, *(fetcher.connection.fileno() for fetcher in waiting)]
        self._system.wait_readable(descriptors, max(min(wakeup_times) - now, 0.0))

    def retry_later(
        self,
        partition: TopicPartitionState,
        error: KafkaDirectError | None = None,  # a transient one, which the consumer then shows as being retried
    ) -> None:
        """Retry a partition after a backoff that grows with its failed attempts."""
        pause = self._backoff.without_jitter(partition.failed_attempts) * self._jitter
        partition.failed_attempts += 1
        partition.next_fetch_at = self._system.monotonic() + pause
        if error is not None:
            partition.transient_error = error

    def on_leader_moved(
        self, partition: TopicPartitionState, error: KafkaDirectError, current_leader: LeaderIdAndEpoch | None = None
    ) -> None:
        """Assign a partition to the leader that a response named (KIP-951), else find it after a backoff."""
        self.unassign(partition)
        partition.reader.forget_empty_responses()  # of the last leader
        node = None if current_leader is None else self._cluster.nodes.get(current_leader.leader_id)
        if current_leader is None or node is None:  # the response or the metadata does not have the leader
            self.retry_later(partition, error)
            return
        # If the epoch of the last leader is unknown, the broker may have named an older leader.
        is_newer = partition.leader_epoch != UNKNOWN_EPOCH and current_leader.leader_epoch > partition.leader_epoch
        if not is_newer:
            self.retry_later(partition, error)
            return
        partition.transient_error = error
        self._assign(partition, node, current_leader.leader_epoch)
        self._refresh_at = 0.0  # metadata has to confirm the epoch, which then becomes the floor

    def remove_fetcher(self, fetcher: BrokerFetcher, error: KafkaDirectError) -> None:
        """Close a fetcher after an error; the leaders of its partitions are searched again."""
        fetcher.release()
        self._fetchers.pop(fetcher.node, None)
        transient = isinstance(error, TransientBrokerError)
        for partition in fetcher.partitions:
            del self._assigned[partition]
            partition.reader.forget_empty_responses()  # of the last leader
            self.retry_later(partition, error if transient else None)
        fetcher.partitions.clear()
        if not transient:  # such as a broker that is too old, for `poll` to raise
            self._on_fatal_error(None, error)

    def unassign(self, partition: TopicPartitionState) -> None:
        """Remove a partition from its broker; its leader is searched again once no ListOffsets is in flight."""
        fetcher = self._assigned.pop(partition, None)
        if fetcher is not None:
            del fetcher.partitions[partition]

    def assign_to_leader(self, partition: TopicPartitionState, topic: TopicMetadata | None) -> None:
        """Assign a partition to the leader in its topic's metadata; ``None`` is an unknown topic."""
        error = topic_error(partition.tp, partition.topic_id, topic_report(topic))
        if error is not None:
            self._check_absence(partition, error)
            return
        assert topic is not None
        partition.reader.absence_check = None
        partition.topic_id = topic.topic_id
        metadata = topic.partitions[partition.tp.partition]
        node = None if metadata.leader is None else self._cluster.nodes.get(metadata.leader)
        if node is None:
            topic_name, partition_id = partition.tp
            code = ErrorCode.LEADER_NOT_AVAILABLE
            self.retry_later(partition, error_for(code, "finding the leader", topic=topic_name, partition=partition_id))
        else:
            self._assign(partition, node, metadata.leader_epoch)

    def check_in_background(
        self,
        reasons: Mapping[TopicPartitionState, KafkaDirectError],
        request: Callable[[], _T],
        decide: Callable[[TopicPartitionState, _T], None],
    ) -> None:
        """Send requests about partitions, and fetch nothing of them meanwhile; a ``seek`` makes responses obsolete."""
        seek_counts = {partition: partition.seek_count for partition in reasons}
        for partition, reason in reasons.items():
            self.unassign(partition)
            partition.transient_error = reason
            partition.check_in_flight = True

        def end_checks() -> Iterator[TopicPartitionState]:
            for partition, seek_count in seek_counts.items():
                if partition.seek_count == seek_count:
                    partition.check_in_flight = False
                    yield partition

        def on_success(response: _T) -> None:
            for partition in end_checks():
                decide(partition, response)

        def on_error(error: Exception) -> None:
            kafka_error = as_kafka_error(error)
            for partition in end_checks():
                if isinstance(kafka_error, TransientBrokerError | TopicNotFoundError):
                    self.retry_later(partition, kafka_error)
                else:
                    self._on_fatal_error(partition, kafka_error)

        self._background.start(request, on_success, on_error)

    def close_after_fork(self) -> None:
        """Close the child's copies of the parent's connections."""
        for fetcher in self._fetchers.values():
            fetcher.close_after_fork()

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.release()
        self._fetchers.clear()

    def _assign(self, partition: TopicPartitionState, node: Node, epoch: int) -> None:
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            fetcher = self._fetchers[node] = BrokerFetcher(self._cluster, node, self._fetch)
        fetcher.partitions[partition] = None
        self._assigned[partition] = fetcher
        if epoch != partition.leader_epoch:
            partition.reader.forget_empty_responses()  # of the last leader
        partition.leader_epoch = epoch
        partition.needs_validation = True

    def _connect_or_send(self, fetcher: BrokerFetcher, due_partitions: Sequence[TopicPartitionState]) -> None:
        """Send a fetch request; without a connection, start to connect, and send it once that has succeeded."""
        if fetcher.connected and fetcher.connection.certificates_changed:
            fetcher.release()
        if not fetcher.connected:
            self._connect(fetcher)
            return
        try:
            fetcher.send_fetches(due_partitions)
        except KafkaDirectError as error:
            self.remove_fetcher(fetcher, error)

    def _connect(self, fetcher: BrokerFetcher) -> None:
        fetcher.connecting = True
        deadline = self._cluster.deadline()

        def on_success(connection: Connection) -> None:
            fetcher.connecting = False
            if self._fetchers.get(fetcher.node) is not fetcher:  # it was removed meanwhile
                self._cluster.release(connection)
                return
            try:
                fetcher.attach(connection)
            except KafkaDirectError as error:
                self._cluster.release(connection)
                self.remove_fetcher(fetcher, error)

        def on_error(error: Exception) -> None:
            fetcher.connecting = False
            self.remove_fetcher(fetcher, as_kafka_error(error))

        self._background.start(
            lambda: self._cluster.connect(fetcher.node, deadline), on_success, on_error, self._cluster.release
        )

    def _assign_to_leaders(self, now: float) -> None:
        """Fetch metadata in the background for partitions without a fetcher, then assign them."""
        if self._metadata_in_flight:
            return
        # A seek clears errors and backoff, so results from before it are ignored.
        due_with_seek_counts = [
            (partition, partition.seek_count)
            for partition in self._partitions
            if partition not in self._assigned and not partition.check_in_flight and partition.next_fetch_at <= now
        ]
        topic_names = {partition.tp.topic for partition, _ in due_with_seek_counts}
        if not topic_names:
            return
        self._metadata_in_flight = True

        def on_success(topics: Mapping[str, TopicMetadata]) -> None:
            self._metadata_in_flight = False
            for partition, seek_count in due_with_seek_counts:
                if partition.seek_count == seek_count and partition not in self._assigned:
                    self.assign_to_leader(partition, topics.get(partition.tp.topic))

        def on_error(error: Exception) -> None:
            self._metadata_in_flight = False
            still_due = [
                partition for partition, seek_count in due_with_seek_counts if partition.seek_count == seek_count
            ]
            self._handle_metadata_error(as_kafka_error(error), still_due)

        self._background.start(lambda: self._fetch_metadata(topic_names), on_success, on_error)

    def _refresh_leaders(self, now: float) -> None:
        """Check the leaders periodically: one that is cut off from the cluster may still respond, without records."""
        if now < self._refresh_at or self._metadata_in_flight:
            return
        self._refresh_at = now + self._metadata_max_age
        assigned = dict(self._assigned)
        topic_names = {partition.tp.topic for partition in assigned}
        if not topic_names:
            return
        self._metadata_in_flight = True

        def on_success(topics: Mapping[str, TopicMetadata]) -> None:
            self._metadata_in_flight = False
            for partition, fetcher in assigned.items():
                topic = topics.get(partition.tp.topic)
                if partition in fetcher.partitions and self._has_moved(partition, fetcher, topic):
                    self.unassign(partition)

        def on_error(error: Exception) -> None:
            self._metadata_in_flight = False
            as_kafka_error(error)  # only raises bugs: if a leader fails, its fetches report the error

        self._background.start(lambda: self._fetch_metadata(topic_names), on_success, on_error)

    def _has_moved(self, partition: TopicPartitionState, fetcher: BrokerFetcher, topic: TopicMetadata | None) -> bool:
        if topic is None or topic_error(partition.tp, partition.topic_id, topic_report(topic)) is not None:
            return True  # so that the search for its leader finds out whether it is missing or recreated
        metadata = topic.partitions[partition.tp.partition]
        is_another_leader = metadata.leader not in (None, fetcher.node.id)
        is_outdated = metadata.leader_epoch < partition.leader_epoch  # the broker that responded lags behind
        return is_another_leader and not is_outdated

    def _fetch_metadata(self, topic_names: Collection[str]) -> dict[str, TopicMetadata]:
        """Fetch metadata without retries: the partitions back off themselves."""
        deadline = self._cluster.deadline()
        return self._cluster.topics(topic_names, deadline=deadline, retry=Retry(deadline, 0))

    def _check_absence(self, partition: TopicPartitionState, error: TopicNotFoundError) -> None:
        """Make one step of the check whether a partition is missing or recreated; if so, ``poll`` raises that."""
        tp, topic_id = partition.tp, partition.topic_id
        reader = partition.reader
        check = reader.absence_check = reader.absence_check or self._cluster.absence_check({tp: topic_id})

        def decide(_: TopicPartitionState, presences: Mapping[TopicPartition, Presence]) -> None:
            match presences[tp]:
                case Presence.PRESENT | Presence.UNCONFIRMED:
                    self.retry_later(partition, error)
                case Presence.ABSENT:
                    reader.absence_check = None
                    # The first response may have had another topic id, but that topic is missing by now, too.
                    self._on_fatal_error(
                        partition, missing_error(tp) if isinstance(error, TopicRecreatedError) else error
                    )
                case Presence.RECREATED:
                    reader.absence_check = None
                    partition.new_topic_id = check.new_topic_id(tp)
                    self._on_fatal_error(partition, recreated_error(tp, topic_id, partition.new_topic_id))

        self.check_in_background({partition: error}, lambda: check.step(self._cluster.deadline()), decide)

    def _handle_metadata_error(self, error: KafkaDirectError, due_partitions: Collection[TopicPartitionState]) -> None:
        # An error with a topic concerns only that topic; the other partitions are retried without a backoff.
        affected = [partition for partition in due_partitions if _concerns_partition(error, partition.tp)]
        transient = isinstance(error, TransientBrokerError)
        for partition in affected:
            self.retry_later(partition, error if transient else None)
        if not transient:  # one error for all affected partitions: those of the topic, or of the whole request
            self._on_fatal_error(affected[0] if affected and error.topic is not None else None, error)


def _concerns_partition(error: KafkaDirectError, tp: TopicPartition) -> bool:
    """Return whether an error concerns the partition; an error without a topic concerns all partitions."""
    return error.topic in (None, tp.topic) and error.partition in (None, tp.partition)
