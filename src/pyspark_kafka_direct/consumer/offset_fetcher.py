"""Sends ListOffsets requests in the background after a rejected fetch offset or an empty response below the log end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.client.metadata import topic_report
from pyspark_kafka_direct.consumer.background import as_kafka_error
from pyspark_kafka_direct.planning.data_loss import (
    GapDecision,
    LeaderLogState,
    evaluate_gap,
    out_of_range_error,
    topic_error,
)
from pyspark_kafka_direct.planning.loss_errors import truncated_error, unproven_gap_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, TopicMetadata
    from pyspark_kafka_direct.consumer.background import BackgroundTasks
    from pyspark_kafka_direct.consumer.fetcher_manager import FetcherManager
    from pyspark_kafka_direct.consumer.partition_reader import CheckGap
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition


class _RejectedFetch(NamedTuple):
    """A fetch whose offset the leader rejected."""

    partition: TopicPartitionState
    seek_count: int  # when the fetch was rejected
    error: KafkaDirectError
    end_may_be_stale: bool  # the broker is older than Kafka 2.2


class _LogStates(NamedTuple):
    topics: dict[str, TopicMetadata]
    logs: dict[TopicPartition, LeaderLogState]  # without partitions that do not exist or were recreated


class OffsetFetcher:
    """Requests log starts and ends of a consumer's partitions in the background, and decides on data loss."""

    def __init__(
        self,
        cluster: ClusterClient,
        background: BackgroundTasks,
        fetcher_manager: FetcherManager,
        on_fatal_error: Callable[[TopicPartitionState, KafkaDirectError], None],
    ) -> None:
        self._cluster = cluster
        self._background = background
        self._fetcher_manager = fetcher_manager
        self._on_fatal_error = on_fatal_error
        self._pending: list[_RejectedFetch] = []  # until the next ListOffsets requests
        self._in_flight = False  # whether a background task sends ListOffsets requests

    def check_out_of_range(
        self, partition: TopicPartitionState, error: KafkaDirectError, *, end_may_be_stale: bool
    ) -> None:
        """Handle a rejected fetch offset: ``send_list_offsets`` requests the start and end of the leader's log."""
        self._fetcher_manager.unassign(partition)
        partition.transient_error = error
        partition.check_in_flight = True
        self._pending.append(_RejectedFetch(partition, partition.seek_count, error, end_may_be_stale))

    def send_list_offsets(self) -> None:
        """Request the log states of all partitions with a rejected fetch offset, in one background task."""
        if self._in_flight or not self._pending:
            return
        rejected_fetches, self._pending = self._pending, []
        self._in_flight = True

        def on_success(states: _LogStates) -> None:
            self._in_flight = False
            for rejected_fetch in _end_checks(rejected_fetches):
                self._decide(rejected_fetch, states)

        def on_error(error: Exception) -> None:
            self._in_flight = False
            kafka_error = as_kafka_error(error)
            for rejected_fetch in _end_checks(rejected_fetches):
                self._fetcher_manager.on_check_failed(rejected_fetch.partition, kafka_error)

        self._background.start(lambda: self._fetch_log_states(rejected_fetches), on_success, on_error)

    def check_truncation(self, partition: TopicPartitionState, truncated_to: int) -> None:
        """Raise a truncation that the leader reported, unless other brokers report a later leader."""
        tp, topic_id, epoch = partition.tp, partition.topic_id, partition.leader_epoch

        def on_confirmed(_: object) -> None:
            partition.truncated_to = truncated_to
            self._on_fatal_error(partition, truncated_error(tp, partition.position, truncated_to))

        self._fetcher_manager.check_in_background(
            partition,
            truncated_error(tp, partition.position, truncated_to),
            lambda: self._cluster.check_leader(tp, topic_id, epoch),
            on_confirmed,
        )

    def check_gap(self, partition: TopicPartitionState, gap: CheckGap, on_confirmed: Callable[[], None]) -> None:
        """Call ``on_confirmed`` if there are no records, or raise that they may be missing; else fetch again."""
        position = partition.reader.fetch_offset
        tp, topic_id, epoch = partition.tp, partition.topic_id, partition.leader_epoch

        def request() -> GapDecision:
            decision = evaluate_gap(position, self._cluster.local_log_start(tp), gap.no_data_seconds)
            if decision is not GapDecision.RETRY:
                self._cluster.check_leader(tp, topic_id, epoch)  # raises if only a deposed leader lacks the records
            return decision

        def decide(decision: GapDecision) -> None:
            match decision:
                case GapDecision.RETRY:
                    self._fetcher_manager.retry_later(partition, gap.error)
                case GapDecision.GAP:
                    on_confirmed()
                case GapDecision.UNKNOWN:
                    self._on_fatal_error(partition, unproven_gap_error(tp, position, gap.end, gap.no_data_seconds))

        self._fetcher_manager.check_in_background(partition, gap.error, request, decide)

    def _fetch_log_states(self, rejected_fetches: Sequence[_RejectedFetch]) -> _LogStates:
        deadline = self._cluster.deadline()
        partitions = [rejected_fetch.partition for rejected_fetch in rejected_fetches]
        names = {partition.tp.topic for partition in partitions}
        topics = self._cluster.topics(names, deadline=deadline, retry=Retry(deadline, 0))
        existing = [
            partition.tp
            for partition in partitions
            if topic_error(partition.tp, partition.topic_id, topic_report(topics.get(partition.tp.topic))) is None
        ]
        bounds = self._cluster.log_bounds(existing, deadline)
        return _LogStates(topics, {tp: LeaderLogState(start, end) for tp, (start, end) in bounds.items()})

    def _decide(self, rejected_fetch: _RejectedFetch, states: _LogStates) -> None:
        """Raise a loss, or fetch again if the log contains the offset."""
        partition = rejected_fetch.partition
        log = states.logs.get(partition.tp)
        if log is None:  # missing or recreated, which `assign_to_leader` starts to check
            self._fetcher_manager.assign_to_leader(partition, states.topics.get(partition.tp.topic))
            return
        if partition.reader.should_fetch_again(log, end_may_be_stale=rejected_fetch.end_may_be_stale):
            self._fetcher_manager.retry_later(partition, rejected_fetch.error)
            return
        self._on_fatal_error(
            partition,
            out_of_range_error(
                partition.tp, partition.reader.fetch_offset, log, served_by_leader=partition.served_by_leader
            ),
        )


def _end_checks(rejected_fetches: Sequence[_RejectedFetch]) -> Iterator[_RejectedFetch]:
    """End the checks of the partitions, and yield those without a ``seek`` since, which made the others obsolete."""
    for rejected_fetch in rejected_fetches:
        if rejected_fetch.partition.seek_count == rejected_fetch.seek_count:
            rejected_fetch.partition.check_in_flight = False
            yield rejected_fetch
