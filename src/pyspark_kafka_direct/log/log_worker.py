"""The work of a log's thread: it reads the topic, delivers the records and completes pending reads.

The rules are those of Kafka Connect's ``KafkaBasedLog``. Reads to the end are activated before the end offsets are
fetched, and exactly these complete when the ends are reached. Transient errors are retried in the next iteration. Any
other error fails the active reads, and the thread continues.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.deadline import Backoff, Cancellation
from pyspark_kafka_direct.consumer.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.errors import (
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
    TruncatedError,
)
from pyspark_kafka_direct.log.log_clients import ResumePoint
from pyspark_kafka_direct.log.log_state import LogState
from pyspark_kafka_direct.log.log_topic import fetch_cleanup_policy
from pyspark_kafka_direct.log.pending_reads import PendingReads
from pyspark_kafka_direct.log.topic_observer import TopicObserver, is_recreated
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import (
    Presence,
    loss_cause,
    lower_end_offsets,
    reread_offset,
    resume_offset,
)
from pyspark_kafka_direct.planning.loss_errors import truncated_at_unknown_offset_error
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts
from pyspark_kafka_direct.planning.open_transactions import REPORT_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import WakeupSignal
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
    from pyspark_kafka_direct.log.log_state import Reading, SuspectedTruncation
    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.log.record_callbacks import LogCallbacks
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

_log = logging.getLogger("pyspark_kafka_direct.log")

# Timeout of a poll if nothing else is due. New reads wake the thread, so they are not delayed.
_MAX_POLL_SECONDS: Final = 30.0

# Timeout of the first request; each failure doubles it, up to default.api.timeout.ms, for slow clusters.
_REQUEST_SECONDS: Final = 5.0

# If pending reads make no progress for this long, the end offsets are fetched again: the log may have been truncated.
_STALL_SECONDS: Final = 2.0

# If the consumer has not found the truncation offset by then, the log is read from the beginning.
_TRUNCATION_CONFIRM_SECONDS: Final = 10.0

# How long a cluster may be unreachable that never was reached: longer waits do not repair a wrong address.
_FIRST_CONTACT_SECONDS: Final = 30.0

# How long a new topic may stay unknown (Kafka Connect waits as long for its partitions).
_NEW_TOPIC_SECONDS: Final = 30.0


class LogWorker:
    """The work of a log's thread, one iteration at a time."""

    def __init__(
        self,
        topic: str,
        cluster: ClusterClient,
        *,
        partition_filter: Callable[[int], bool] | None,
        open_consumer: Callable[[ResumePoint], PartitionConsumer],
        callbacks: LogCallbacks,
        count_loss: Callable[[DataLossCause, Mapping[TopicPartition, int]], None],
        read_committed: bool = False,
    ) -> None:
        self._topic = topic
        self._cluster = cluster
        self._system = cluster.pool.system
        self._observer = TopicObserver(cluster, topic, partition_filter)
        self._new_consumer = open_consumer
        self._callbacks = callbacks
        self.pending_reads = PendingReads(self._system)
        self._count_loss = count_loss
        self._read_committed = read_committed
        self._blocked_warnings = BlockedPartitionWarnings(cluster, partial(_log.warning, "%s"))
        self.producer: AsyncProducer | None = None  # whose completed records reads to the end wait for
        self._signal: WakeupSignal | None = None
        self._cancellation: Cancellation | None = None  # of requests; None: not running
        self._consumer: PartitionConsumer | None = None
        self._stopping = False
        self._request_backoff = _Attempts(cluster)
        self._poll_backoff = _Attempts(cluster)
        self._refresh_at = 0.0  # when to look for added partitions, if nothing else does
        self._written: dict[TopicPartition, int] = {}  # the generation of this log's last write
        self._reported_missing = False  # the topic; each of the two is reported once
        self._reported_unreachable = False  # the cluster
        self._started_at = self._progress_at = self._system.monotonic()
        self._pending_since = math.inf  # since when a read has been pending all the time, by the monotonic clock
        self._data_loss: DataLossError | None = None  # found by the last poll; the next requests resume after it
        self._suspected_truncations: dict[tuple[TopicPartition, Reading], SuspectedTruncation] = {}
        self._ends_requested_at = 0.0  # when the ends were requested that reads wait for, by wall time
        self.waits_for_transactions = True  # false: reads end before an open transaction
        self.state = LogState()

    def stop(self) -> None:
        """Let ``run`` return soon, also from a request without a response; callable from any thread."""
        self._stopping = True
        if self._cancellation is not None:
            self._cancellation.set()
        self.wake()

    def wake(self) -> None:
        """Start the next iteration at once; callable from any thread."""
        if self._signal is not None:
            self._signal.set()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offsets to deliver."""
        return self.state.positions

    def on_written(self, partition: TopicPartition, offset: int, before: LogState) -> None:
        """Report where a record of this log was written; callable from any thread.

        ``before`` is the state before the record was sent.
        """
        if partition not in before.positions:
            self._written[partition] = before.generation  # so that the partition is found, and read, too
        elif suspected := before.suspected_truncation(partition, offset, self._system.monotonic()):
            self._suspect(suspected)
            self.wake()

    @property
    def truncation_suspected(self) -> bool:
        """Whether the log may have been truncated or recreated; no read completes until that is resolved."""
        return bool(self._unresolved_truncations())

    def _suspect(self, suspected: SuspectedTruncation) -> None:
        """Note evidence; later evidence of the same truncation does not postpone its resolution."""
        self._suspected_truncations.setdefault((suspected.partition, suspected.reading), suspected)

    def _unresolved_truncations(self) -> list[SuspectedTruncation]:
        state = self.state
        suspected = list(self._suspected_truncations.values())  # a copy, because other threads add some
        return [each for each in suspected if each.reading == state.reading(each.partition)]

    def has_delivered(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether the callbacks have all records before these offsets; callable from any thread."""
        return not self.truncation_suspected and self.state.has_delivered(offsets)

    def not_read_error(self, partition: TopicPartition) -> ValueError:
        assigned = ", ".join(map(str, sorted(self.positions)))
        return ValueError(f"{partition} is not read by this log; it reads {assigned}")

    def run(self) -> None:
        """Run iterations until ``stop``."""
        self._signal, self._cancellation = self._system.wakeup_signal(), Cancellation(self._system)
        self._started_at = self._system.monotonic()
        try:
            while not self._stopping:
                self._signal.clear()
                self.run_once()
        finally:
            self._signal.close()
            self._cancellation.close()
            if self._consumer is not None:
                self._consumer.close()

    @property
    def last_error(self) -> BaseException | None:
        """The error that is being retried."""
        if self._request_backoff.last_error is not None or self._poll_backoff.last_error is not None:
            return self._request_backoff.last_error or self._poll_backoff.last_error
        consumer = self._consumer
        return None if consumer is None else next(iter(dict(consumer.transient_errors).values()), None)

    def run_once(self) -> None:
        """Run one iteration: requests that are due, then one poll."""
        if self._request_backoff.ready:
            self._attempt(self._send_due_requests, self._request_backoff)
        self._complete_reached_reads()
        has_pending, now = self.pending_reads.has_pending, self._system.monotonic()
        self._pending_since = min(self._pending_since, now) if has_pending else math.inf
        if self._stopping:
            return
        # Without a consumer, or after a loss that is not resolved yet, requests have to be tried again before a poll.
        if self._consumer is None or self._data_loss is not None or not self._poll_backoff.ready:
            self._system.wait_readable(self._wakeup_fds(), self._poll_timeout())
        else:
            self._attempt(self._poll, self._poll_backoff)
            self._complete_reached_reads()

    def _attempt(self, step: Callable[[], None], backoff: _Attempts) -> None:
        try:
            step()
        except (TransientBrokerError, TimeoutError) as error:
            backoff.failed(error)
            if not self._cluster.was_reached and not self._stopping:
                self._report_unreachable(error)
        except TopicNotFoundError as error:
            try:
                self._on_unknown_topic(error)
                backoff.failed(error)
            except BaseException as check_error:  # such as a missing permission
                self._fail_attempt(check_error, backoff)
        except BaseException as error:
            self._fail_attempt(error, backoff)
        else:
            backoff.succeeded()

    def _report_unreachable(self, error: BaseException) -> None:
        """Report once that no bootstrap server was reached, and fail the start if that lasts."""
        if not self._reported_unreachable:
            self._reported_unreachable = True
            self._callbacks.report_error(error)
        if self._system.monotonic() >= self._started_at + _FIRST_CONTACT_SECONDS:
            self.pending_reads.fail_active(error)

    def _fail_attempt(self, error: BaseException, backoff: _Attempts) -> None:
        self._callbacks.report_error(error)
        self.pending_reads.fail_active(error)
        backoff.failed(error)

    def _send_due_requests(self) -> None:
        needs_ends = self.pending_reads.activate(0 if self.producer is None else self.producer.completed_count)
        if self._data_loss is not None:
            self._resume_after_loss(self._data_loss)
        if self._consumer is None:
            self._open_consumer()
        if self.truncation_suspected:
            self._resolve_suspected_truncation()
        self._find_unknown_partitions()
        is_reload_without_end = self.state.is_reloading and self.pending_reads.ends is None
        needs_ends = needs_ends or is_reload_without_end
        if needs_ends or self._is_stalled():
            self._fetch_end_offsets(needs_ends=needs_ends)
            self._reported_missing = False  # the topic exists: if it is missing later, that is reported again
        elif self._system.monotonic() >= self._refresh_at:
            self._reopen_or_extend(self._fetch_topic(self._deadline()))

    def _open_consumer(self) -> None:
        """Start reading, or resume at the last positions if the topic id is unchanged."""
        deadline = self._deadline()
        topic = self._fetch_topic(deadline)
        if is_recreated(topic, self.state.topic_id, self.positions):
            self._on_topic_recreated(topic)
        self._callbacks.check_topic(topic, fetch_cleanup_policy(self._cluster, self._topic, deadline))
        starts = {**self.positions, **self._log_starts(topic, deadline)}
        # Those of partitions that are read again from their beginning do not apply.
        last_epochs = {tp: epoch for tp, epoch in self.state.last_epochs.items() if tp in self.positions}
        self._consumer = self._new_consumer(ResumePoint(starts, _topic_ids(topic, starts), last_epochs))
        self.state = replace(self.state, topic_id=topic.topic_id, positions=starts)
        self._progress_at = self._system.monotonic()

    def _log_starts(self, topic: LogTopic, deadline: Deadline) -> Mapping[TopicPartition, int]:
        """Return the log starts, as several brokers confirm them, of the partitions that are not read yet."""
        requested = {tp: EARLIEST for tp in topic.partitions if tp not in self.positions}
        if not requested:
            return {}
        return confirmed_starts(
            lambda: self._cluster.offsets(requested, deadline=deadline),
            lambda topics: self._cluster.raise_epoch_floors(topics, deadline=deadline),
        )

    def _fetch_topic(self, deadline: Deadline) -> LogTopic:
        topic = self._observer.fetch_topic(self.state.topic_id, self.positions, deadline)
        self._refresh_at = self._system.monotonic() + self._cluster.settings.metadata_max_age_ms / 1000
        return topic

    def _reopen_or_extend(self, topic: LogTopic) -> bool:
        """Read a recreated topic from its beginning, and added partitions, too; return whether it was recreated."""
        if is_recreated(topic, self.state.topic_id, self.positions):
            self._reopen()
            return True
        self._callbacks.check_partition_count(topic)
        starts = self._log_starts(topic, self._deadline())
        if starts:
            assert self._consumer is not None
            _log.info("topic %s has got more partitions: %s", self._topic, ", ".join(map(str, sorted(starts))))
            self._consumer.assign(starts, _topic_ids(topic, starts))
            self.state = self.state.with_positions(starts)
        return False

    def _reopen(self) -> None:
        self._close_consumer()
        self._open_consumer()

    def _find_unknown_partitions(self) -> None:
        """Read partitions that pending reads wait for or this log has written to; fail the reads of missing ones."""
        unknown = self.pending_reads.unreached_offsets(self.positions).keys() - self.positions.keys()
        unknown |= self._written_partitions()
        if not unknown:
            return
        deadline = self._deadline()
        if self._reopen_or_extend(self._fetch_topic(deadline)):
            return
        for tp in sorted(unknown - self.positions.keys()):
            if self._observer.check_presence(self.state.topic_id, deadline, tp.partition) is not Presence.ABSENT:
                raise TransientBrokerError(
                    "A broker reports that the topic has no such partition. Other brokers have not confirmed it yet.",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            self._written.pop(tp, None)
            self.pending_reads.fail_waiting_for(tp, self.not_read_error(tp))

    def _written_partitions(self) -> set[TopicPartition]:
        """Return the partitions that this log has written to in this generation, but does not read."""
        generation = self.state.generation
        written = list(self._written.items())  # a copy, because other threads add some
        return {tp for tp, written_in in written if written_in == generation and tp not in self.positions}

    def _on_topic_recreated(self, topic: LogTopic) -> None:
        error = TopicRecreatedError(
            "The topic was deleted and recreated; the log is read from its beginning.",
            topic=self._topic,
        )
        error.topic_id = topic.topic_id
        self.state = replace(self.state, topic_id=topic.topic_id)
        self._observer.on_recreated()
        self._callbacks.report_reset(error)
        self._begin_reload(error)

    def _fetch_end_offsets(self, *, needs_ends: bool) -> None:
        """Fetch the ends that active reads wait for; without ``needs_ends``, only check why reads make no progress."""
        deadline, requested_at = self._deadline(), self._system.wall_time()
        # With the high watermarks, reads of a `read_committed` log wait for open transactions to end.
        isolation: IsolationLevel = "read_uncommitted" if self.waits_for_transactions else "read_committed"
        while True:
            ends, added, recreated = self._observer.fetch_ends(self.state.topic_id, self.positions, deadline, isolation)
            if recreated:
                self._reopen()
                return
            if added is None:
                break
            if self._reopen_or_extend(added):
                return
        self._progress_at = self._system.monotonic()  # the next check of a stall begins now
        lower_ends = lower_end_offsets(self.state.end_offsets, ends)
        passed_ends = lower_end_offsets(self.positions, ends)
        for tp, end in passed_ends.items():  # the log may grow past the position before the consumer finds that out
            suspected = self.state.suspected_truncation(tp, end, self._system.monotonic())
            if suspected is not None and self._cluster.has_reliable_end(tp, deadline):
                self._suspect(suspected)
        self.state = replace(self.state, end_offsets={**self.state.end_offsets, **ends})
        if lower_ends:  # the consumer finds out whether records that were read are lost
            self.pending_reads.fail_active(_truncated_error(*next(iter(lower_ends.items()))))
        elif passed_ends:
            tp, end = next(iter(passed_ends.items()))
            raise TransientBrokerError(
                f"The log ends at {end}, below the next offset to read; the consumer checks for a truncation.",
                topic=tp.topic,
                partition=tp.partition,
                offset=self.positions[tp],
            )
        elif needs_ends:
            self.pending_reads.set_ends(ends)
            self._ends_requested_at = requested_at
        elif self._read_committed and self.waits_for_transactions:
            self._warn_of_open_transactions(ends, requested_at, deadline)

    def _warn_of_open_transactions(
        self, ends: Mapping[TopicPartition, int], requested_at: float, deadline: Deadline
    ) -> None:
        """Warn of transactions that have kept reads from their ends for long."""
        waits_for_long = self._system.monotonic() >= self._pending_since + REPORT_AFTER
        if waits_for_long and requested_at >= self._ends_requested_at + REPORT_AFTER:
            unreached = self.pending_reads.unreached_offsets(self.positions)
            self._blocked_warnings.check_unreached({tp: ends[tp] for tp in unreached if tp in ends}, deadline)

    def _is_stalled(self) -> bool:
        return self._system.monotonic() >= max(self._progress_at, self._pending_since) + _STALL_SECONDS

    def _resolve_suspected_truncation(self) -> None:
        """Find out whether the topic was recreated or the log truncated; the consumer detects the latter."""
        if self._reopen_or_extend(self._fetch_topic(self._deadline())):
            return
        suspected = min(self._unresolved_truncations(), key=lambda each: each.since)
        error = _truncated_error(suspected.partition, suspected.offset)
        if self._system.monotonic() < suspected.since + _TRUNCATION_CONFIRM_SECONDS:  # the consumer may still find it
            raise TransientBrokerError(error.message, topic=error.topic, partition=error.partition, offset=error.offset)
        self._resume_after_loss(error)
        if self._consumer is None:  # closed, to read the log again from its beginning
            self._open_consumer()

    def _complete_reached_reads(self) -> None:
        """Complete the reads whose ends are reached, and a reload before them."""
        if self.truncation_suspected:
            return
        ends_reached = self.pending_reads.are_ends_reached(self.positions)
        if self.state.is_reloading:
            if not ends_reached:
                return
            if self._callbacks.view is not None:
                self._callbacks.view.end_reload()
        if ends_reached:
            self.state = self.state.at_ends(self._ends_requested_at)
        self.pending_reads.complete_reached(self.state)

    def _poll(self) -> None:
        assert self._consumer is not None
        try:
            batches = self._consumer.poll(self._poll_timeout(), self._wakeup_fds())
        except TopicNotFoundError:
            self._close_consumer()  # the topic may have been recreated, or may be recreated later
            raise
        except DataLossError as error:
            self._data_loss = error
            return
        try:
            callback_error = self._deliver(batches)
            if callback_error is not None and self._callbacks.view is not None:
                # The view lacks these records, so it is built again, after a pause.
                self._close_consumer()
                self._begin_reload(callback_error)
                raise callback_error
        finally:  # after an error, the positions are those of the rows that were delivered
            if self._consumer is not None:
                self._note_positions(self._consumer)
        if callback_error is not None:
            self.pending_reads.fail_active(callback_error)

    def _note_positions(self, consumer: PartitionConsumer) -> None:
        positions = dict(consumer.positions)
        if positions != self.positions:
            self._progress_at = self._system.monotonic()
        self.state = replace(
            self.state,
            positions=positions,
            last_epochs=dict(consumer.last_epochs),
            confirmed_epochs=dict(consumer.confirmed_epochs),
        )

    def _deliver(self, batches: Sequence[tuple[TopicPartition, pa.RecordBatch]]) -> BaseException | None:
        """Pass rows to the callbacks; return the first error that a callback raised."""
        first_error: BaseException | None = None
        for index, (partition, rows) in enumerate(batches):
            try:
                error = self._callbacks.deliver(partition, rows)
                first_error = first_error or error
            except BaseException:  # these rows and the following ones are fetched again
                earliest_rows = dict(reversed(batches[index:]))  # of each partition: the last item of a key counts
                for tp, undelivered in earliest_rows.items():
                    assert self._consumer is not None
                    self._consumer.seek(tp, undelivered.column("offset")[0].as_py())
                raise
        return first_error

    def _deadline(self) -> Deadline:
        max_seconds = self._cluster.settings.default_api_timeout_ms / 1000
        seconds = Backoff(_REQUEST_SECONDS, max_seconds).without_jitter(self._request_backoff.attempts)
        return replace(self._cluster.deadline(seconds), cancellation=self._cancellation)

    def _wakeup_fds(self) -> list[int]:
        return [] if self._signal is None else [self._signal.fileno()]

    def _poll_timeout(self) -> float:
        waits = [backoff.remaining for backoff in (self._request_backoff, self._poll_backoff) if not backoff.ready]
        if self.pending_reads.has_pending:
            waits.append(_STALL_SECONDS)
        return min(waits, default=_MAX_POLL_SECONDS)

    def _resume_after_loss(self, loss: DataLossError) -> None:
        """Resume after the lost offsets, or where the records that were read may have been replaced."""
        assert self._consumer is not None
        assert loss.topic is not None
        assert loss.partition is not None
        partition = TopicPartition(loss.topic, loss.partition)
        position = self._consumer.positions[partition]
        deadline = self._deadline()
        start, end = self._cluster.log_bounds([partition], deadline)[partition]
        reread_from = reread_offset(loss, position, start, end, read_committed=self._read_committed)
        if reread_from is None:  # the records that were read are still those of the log
            offset = resume_offset(loss, position, start, end)
            _log.warning(
                "%s: %s Reading continues at offset %d instead of %d.", partition, loss.message, offset, position
            )
            self._seek(partition, offset)
            self.state = self.state.with_positions({partition: offset})
            if (cause := loss_cause(loss, position, start, end)) is not None:
                self._count_loss(cause, {partition: max(offset - position, 0)})
        elif isinstance(loss, TruncatedError) and _is_truncation_known(loss, reread_from, start):
            self._resume_after_truncation(loss, reread_from)
        else:
            self._resume_after_truncation(truncated_at_unknown_offset_error(partition, position), reread_from)

    def _resume_after_truncation(self, error: TruncatedError, offset: int) -> None:
        """Report that records were replaced; read them again, or the whole log if the callback requests that."""
        assert error.topic is not None
        assert error.partition is not None
        if self._callbacks.report_reset(error):
            self._close_consumer()
            self._begin_reload(error)
        else:
            partition = TopicPartition(error.topic, error.partition)
            self._seek(partition, offset)
            self.state = self.state.with_reread(partition, offset)
            self.pending_reads.fail_active(error)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        assert self._consumer is not None
        self._data_loss = None
        self._consumer.seek(partition, offset)

    def _close_consumer(self) -> None:
        self._data_loss = None
        if self._consumer is not None:
            self.state = replace(self.state, last_epochs=dict(self._consumer.last_epochs))
            self._consumer.close()
            self._consumer = None

    def _begin_reload(self, error: BaseException) -> None:
        """Let the next consumer read the log from its beginning."""
        if self._callbacks.view is not None:
            self._callbacks.view.begin_reload()
        self.state = self.state.of_next_generation(reloads=self._callbacks.view is not None)
        self.pending_reads.fail_active(error)

    def _on_unknown_topic(self, error: TopicNotFoundError) -> None:
        """Fail active reads once several brokers confirm that the topic does not exist."""
        # Brokers learn of a new topic, and of all topics after a restart, with a delay.
        may_be_new = self.state.topic_id is None and self._system.monotonic() < self._started_at + _NEW_TOPIC_SECONDS
        try:
            presence = self._observer.check_presence(self.state.topic_id, self._deadline())
        except (TransientBrokerError, TimeoutError):
            return  # the next iteration continues the check
        if presence is Presence.ABSENT and not may_be_new:
            if not self._reported_missing:
                self._reported_missing = True
                self._callbacks.report_error(error)
            self.pending_reads.fail_active(error)


class _Attempts:
    """Pauses between attempts, which double from ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._backoff = Backoff.of(cluster.settings)
        self._system = cluster.pool.system
        self.attempts = 0
        self._next_attempt_at = 0.0
        self.last_error: BaseException | None = None

    @property
    def ready(self) -> bool:
        return self.last_error is None or self._system.monotonic() >= self._next_attempt_at

    @property
    def remaining(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self._next_attempt_at - self._system.monotonic())

    def failed(self, error: BaseException) -> None:
        self._next_attempt_at = self._system.monotonic() + self._backoff.pause(self.attempts, self._system)
        self.last_error = error
        self.attempts += 1

    def succeeded(self) -> None:
        self.last_error = None
        self.attempts = 0


def _truncated_error(partition: TopicPartition, end: int) -> TruncatedError:
    return TruncatedError(
        f"The log was truncated to offset {end} by an unclean leader election; later records are lost or replaced.",
        topic=partition.topic,
        partition=partition.partition,
        offset=end,
    )


def _is_truncation_known(loss: TruncatedError, reread_from: int, log_start: int) -> bool:
    """Return whether the error is right as it is: it has no offset, or all records before its offset are the log's."""
    # The leader has no epochs of records that expired: before its log start, records that were read may be replaced.
    return loss.truncated_to in (None, 0) or log_start < reread_from == loss.truncated_to


def _topic_ids(topic: LogTopic, partitions: Collection[TopicPartition]) -> dict[TopicPartition, UUID]:
    return {} if topic.topic_id is None else dict.fromkeys(partitions, topic.topic_id)
