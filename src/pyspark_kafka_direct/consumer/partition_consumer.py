"""Reads several partitions beyond the current ends of their logs, for as long as it is polled.

One fetch request to each leader contains all its partitions, and waits at the broker for the first record. The response
is handled once all rows of the previous one were returned. The next request is sent before the records are decoded.

Everything runs in the caller's thread except blocking calls (metadata, connecting, ListOffsets), which are background
tasks. So the caller's thread waits for descriptors only, and ``wakeup_fds`` can interrupt it at any time.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.client.metadata import topic_report
from pyspark_kafka_direct.consumer.background import BackgroundTasks
from pyspark_kafka_direct.consumer.fetcher_manager import FetcherManager
from pyspark_kafka_direct.consumer.partition_reader import (
    CheckGap,
    CheckLeaderLog,
    FetchContext,
    LogTruncated,
    RetryFetch,
)
from pyspark_kafka_direct.consumer.partition_state import DecodeOptions, TopicPartitionState
from pyspark_kafka_direct.errors import KafkaDirectError, TopicRecreatedError
from pyspark_kafka_direct.offsets import MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.options.settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.planning.data_loss import (
    GapDecision,
    LeaderLogState,
    evaluate_gap,
    out_of_range_error,
    topic_error,
)
from pyspark_kafka_direct.planning.loss_errors import truncated_error, unproven_gap_error
from pyspark_kafka_direct.records import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, TopicMetadata
    from pyspark_kafka_direct.consumer.broker_fetcher import BrokerFetcher
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.options.settings import FetchSettings

__all__ = ["PartitionConsumer", "PolledBatch"]


class PolledBatch(NamedTuple):
    """The rows that ``poll`` returns of one partition: at least one, in offset order."""

    partition: TopicPartition
    rows: pa.RecordBatch


class _RejectedFetch(NamedTuple):
    """A fetch whose offset the leader rejected."""

    error: KafkaDirectError
    end_may_be_stale: bool  # the broker is older than Kafka 2.2


class _LogStates(NamedTuple):
    topics: dict[str, TopicMetadata]
    logs: dict[TopicPartition, LeaderLogState]  # without partitions that do not exist or were recreated


class PartitionConsumer:
    """Reads partitions from given offsets on, without an end; one thread uses it.

    Transient errors (a moved leader, a broken connection, a restarted broker, a quota) are retried as long as they
    last, and are visible in ``transient_errors``. ``poll`` raises all others, once each time they are found; the next
    call returns the batches of the other partitions. Unless the owner then calls ``seek``, the fetch is retried
    and fails again.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        fetch: FetchSettings,
        starts: Mapping[TopicPartition, int],
        *,
        columns: Sequence[str] = COLUMNS,
        max_rows: int = 32_768,  # of an Arrow batch
        max_bytes: int = 4 << 20,  # of an Arrow batch, and about that of one ``poll``
        max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,  # of a decompressed record batch, and of a record
        topic_ids: Mapping[TopicPartition, UUID] | None = None,  # of the offsets' topics; without one, any is accepted
        last_epochs: Mapping[TopicPartition, int] | None = None,  # leader epochs of the batches before the offsets
    ) -> None:
        self._cluster = cluster
        self._system = cluster.pool.system
        self._process_id = os.getpid()  # a child process does not use the consumer
        self._read_committed = fetch.read_committed
        self._max_bytes = max_bytes
        # All decoders together retain about fetch.max.bytes.
        max_retained_bytes = max(fetch.fetch_max_bytes // max(len(starts), 1), 1 << 16)
        self._decode_options = DecodeOptions(
            columns=tuple(columns),
            check_crcs=fetch.check_crcs,
            max_rows=max_rows,
            max_bytes=max_bytes,
            max_batch_bytes=max_batch_bytes,
            max_retained_bytes=max_retained_bytes,
        )
        self._partitions: dict[TopicPartition, TopicPartitionState] = {}
        self.assign(starts, topic_ids)
        for tp, epoch in (last_epochs or {}).items():
            self._partitions[tp].set_last_epoch(epoch)
        self._background = BackgroundTasks(self._system)
        self._fetcher_manager = FetcherManager(
            cluster, fetch, self._background, self._partitions.values(), self._on_fatal_error
        )
        self._rejected_fetches: dict[TopicPartitionState, _RejectedFetch] = {}  # until the end of the iteration
        self._ready: deque[TopicPartitionState] = deque()  # with fetched records to decode
        # For `poll` to raise, one each time; None: an error that does not concern a single partition.
        self._pending_errors: dict[TopicPartitionState | None, Exception] = {}
        self._position_moved = False  # whether a gap was skipped since the last rows were collected
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset after those returned or skipped by ``poll``, of each partition."""
        return {tp: state.position for tp, state in self._partitions.items()}

    @property
    def last_epochs(self) -> Mapping[TopicPartition, int]:
        """The leader epochs of the batches before the positions, for a consumer that resumes there."""
        return {tp: state.last_returned_epoch for tp, state in self._partitions.items()}

    @property
    def confirmed_epochs(self) -> Mapping[TopicPartition, int]:
        """The epochs of the last leaders whose logs have the records before the positions, if they are known."""
        return {tp: state.confirmed_epoch for tp, state in self._partitions.items()}

    @property
    def transient_errors(self) -> Mapping[TopicPartition, KafkaDirectError]:
        """The errors that are being retried, by partition."""
        return {
            tp: state.transient_error
            for tp, state in list(self._partitions.items())  # other threads read this while partitions are assigned
            if state.transient_error is not None
        }

    def poll(self, seconds: float, wakeup_fds: Collection[int] = ()) -> list[PolledBatch]:
        """Return new rows; wait up to ``seconds`` for them.

        Returns no rows when the time is over, when a descriptor of ``wakeup_fds`` is readable, and when a position
        moved over control records, aborted records or gaps.
        """
        self._check_open()
        self._raise_pending_error()
        deadline = self._system.monotonic() + seconds
        while True:
            self._run_once()
            polled, moved = self._collect_batches()
            if polled or moved:
                return polled
            self._raise_pending_error()
            if self._system.monotonic() >= deadline or any(self._system.readable(fd) for fd in wakeup_fds):
                return []
            self._fetcher_manager.wait(deadline, wakeup_fds)

    def assign(
        self, starts: Mapping[TopicPartition, int], topic_ids: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Read more partitions, from these offsets."""
        for tp, offset in starts.items():
            self._partitions[tp] = TopicPartitionState(
                tp,
                _checked_offset(tp, offset),
                self._decode_options,
                read_committed=self._read_committed,
                topic_id=(topic_ids or {}).get(tp),
            )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Resume at another offset; after ``TopicRecreatedError`` it is an offset of the new topic."""
        state = self._partitions.get(partition)
        if state is None:
            raise ValueError(f"{partition} is not assigned to this consumer")
        offset = _checked_offset(partition, offset)
        if isinstance(self._pending_errors.pop(state, None), TopicRecreatedError):
            state.new_topic_id = None  # the caller does not know it yet, so the offset is one of the old topic
        state.seek(offset)

    def close(self) -> None:
        """Release the connections, without waiting."""
        if not self._closed:
            self._closed = True
            if self._process_id == os.getpid():
                self._background.close()
                self._fetcher_manager.close()
            else:
                self._background.close_after_fork()
                self._fetcher_manager.close_after_fork()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the consumer is closed")
        if self._process_id != os.getpid():
            raise RuntimeError("the consumer belongs to the parent process")

    def _raise_pending_error(self) -> None:
        if self._pending_errors:
            oldest = next(iter(self._pending_errors))
            raise self._pending_errors.pop(oldest)

    def _on_fatal_error(self, partition: TopicPartitionState | None, error: Exception) -> None:
        """Store an error for ``poll`` to raise; records of the partition that were not returned are fetched again."""
        if partition is not None:
            partition.discard_fetched()
            self._fetcher_manager.retry_later(partition)
        self._pending_errors[partition] = error

    def _run_once(self) -> None:
        self._background.run_callbacks()
        for fetcher in self._fetcher_manager.completed():
            self._handle_response(fetcher)
        self._check_leader_logs()
        self._fetcher_manager.send_fetches()

    def _collect_batches(self) -> tuple[list[PolledBatch], bool]:
        """Return about ``max_bytes`` of rows, from the partitions in turn, and whether any position moved forward."""
        polled: list[PolledBatch] = []
        total_bytes = 0
        moved, self._position_moved = self._position_moved, False
        while self._ready and total_bytes < self._max_bytes:
            partition = self._ready.popleft()
            if partition.drained:
                continue  # its fetched records were discarded
            previous_position = partition.position
            try:
                rows = partition.read()
            except Exception as error:  # a lack of memory, too: rows of other partitions must not be lost with it
                self._on_fatal_error(partition, error)
                continue
            moved = moved or partition.position > previous_position
            if rows is not None:
                polled.append(PolledBatch(partition.tp, rows))
                total_bytes += rows.get_total_buffer_size()
                self._ready.append(partition)  # last, so that all partitions get their turn
        return polled, moved

    def _handle_response(self, fetcher: BrokerFetcher) -> None:
        try:
            in_flight, response = fetcher.collect_response()
        except KafkaDirectError as error:
            self._fetcher_manager.remove_fetcher(fetcher, error)
            return
        # A broker returns at least one batch of the first partition with records (KIP-74). Batches of later partitions
        # are in the response only if they fit, so an empty partition after that one may still have records.
        has_space, broker = True, str(fetcher.node)
        for sent in in_flight:
            partition = sent.partition
            fetched = response.partition(partition.tp)
            had_space = has_space
            has_space = had_space and not fetched.records
            if sent.is_stale or partition not in fetcher.partitions:
                continue
            try:
                if fetched.records and not fetched.error_code and partition.feed(fetched):
                    fetcher.move_to_end(partition)
                    self._ready.append(partition)
                else:
                    context = FetchContext(
                        broker,
                        sent_at=sent.sent_at,
                        received_at=fetcher.received_at,
                        sent_last_epoch=sent.sent_last_epoch,
                        had_space=had_space,
                    )
                    self._apply(fetcher, partition, context, fetched)
            except Exception as error:
                self._on_fatal_error(partition, error)

    def _apply(
        self,
        fetcher: BrokerFetcher,
        partition: TopicPartitionState,
        context: FetchContext,
        fetched: FetchResponsePartition,
    ) -> None:
        """Act on the response for one partition if it contains an error or no complete record batch."""
        match partition.reader.decide(context, fetched):
            case None:
                partition.on_fetch_success()
            case RetryFetch(error, throttled=True):
                partition.transient_error = error  # without a backoff, because the broker delays its next response
            case RetryFetch(error, refresh_metadata=True):
                self._fetcher_manager.on_leader_moved(partition, error, fetched.current_leader)
            case RetryFetch(error):
                self._fetcher_manager.retry_later(partition, error)
            case CheckLeaderLog(error):
                self._rejected_fetches[partition] = _RejectedFetch(error, fetcher.end_may_be_stale)
            case CheckGap() as gap:
                self._check_gap(partition, gap)
            case LogTruncated(offset, epoch):
                # Records before the offset that are of later epochs differ, too: an earlier log came back.
                self._check_truncation(partition, partition.epochs.diverges_at(epoch, offset))

    def _check_leader_logs(self) -> None:
        """Request the log states of all partitions with a rejected fetch offset, in one background task."""
        rejected_fetches, self._rejected_fetches = self._rejected_fetches, {}
        if not rejected_fetches:
            return

        def decide(partition: TopicPartitionState, states: _LogStates) -> None:
            error, end_may_be_stale = rejected_fetches[partition]
            log = states.logs.get(partition.tp)
            if log is None:  # missing or recreated, which `assign_to_leader` starts to check
                self._fetcher_manager.assign_to_leader(partition, states.topics.get(partition.tp.topic))
            elif partition.reader.should_fetch_again(log, end_may_be_stale=end_may_be_stale):
                self._fetcher_manager.retry_later(partition, error)
            else:
                position, served_by_leader = partition.reader.fetch_offset, partition.served_by_leader
                self._on_fatal_error(
                    partition, out_of_range_error(partition.tp, position, log, served_by_leader=served_by_leader)
                )

        reasons = {partition: rejected.error for partition, rejected in rejected_fetches.items()}
        self._fetcher_manager.check_in_background(reasons, lambda: self._fetch_log_states(reasons), decide)

    def _fetch_log_states(self, partitions: Collection[TopicPartitionState]) -> _LogStates:
        deadline = self._cluster.deadline()
        names = {partition.tp.topic for partition in partitions}
        topics = self._cluster.topics(names, deadline=deadline, retry=Retry(deadline, 0))
        existing = [
            partition.tp
            for partition in partitions
            if topic_error(partition.tp, partition.topic_id, topic_report(topics.get(partition.tp.topic))) is None
        ]
        bounds = self._cluster.log_bounds(existing, deadline)
        return _LogStates(topics, {tp: LeaderLogState(start, end) for tp, (start, end) in bounds.items()})

    def _check_truncation(self, partition: TopicPartitionState, truncated_to: int) -> None:
        """Raise a truncation that the leader reported, unless other brokers report a later leader."""
        tp, topic_id, epoch = partition.tp, partition.topic_id, partition.leader_epoch

        def on_confirmed(_: TopicPartitionState, __: object) -> None:
            partition.truncated_to = truncated_to
            self._on_fatal_error(partition, truncated_error(tp, partition.position, truncated_to))

        self._fetcher_manager.check_in_background(
            {partition: truncated_error(tp, partition.position, truncated_to)},
            lambda: self._cluster.check_leader(tp, topic_id, epoch),
            on_confirmed,
        )

    def _check_gap(self, partition: TopicPartitionState, gap: CheckGap) -> None:
        """Skip offsets without records, or raise that their records may be missing; else fetch again."""
        position = partition.reader.fetch_offset
        tp, topic_id, epoch = partition.tp, partition.topic_id, partition.leader_epoch

        def request() -> GapDecision:
            decision = evaluate_gap(position, self._cluster.local_log_start(tp), gap.no_data_seconds)
            if decision is not GapDecision.RETRY:
                self._cluster.check_leader(tp, topic_id, epoch)  # raises if only a deposed leader lacks the records
            return decision

        def decide(_: TopicPartitionState, decision: GapDecision) -> None:
            match decision:
                case GapDecision.RETRY:
                    self._fetcher_manager.retry_later(partition, gap.error)
                case GapDecision.GAP:
                    partition.skip_to(gap.end)
                    self._position_moved = True
                case GapDecision.UNKNOWN:
                    self._on_fatal_error(partition, unproven_gap_error(tp, position, gap.end, gap.no_data_seconds))

        self._fetcher_manager.check_in_background({partition: gap.error}, request, decide)


def _checked_offset(partition: TopicPartition, offset: int) -> int:
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"{partition} cannot be read from offset {offset}: offsets are from 0 to {MAX_OFFSET}")
    return offset
