"""The work of a log's thread: it reads the topic, delivers the records and completes pending reads.

The rules are those of Kafka Connect's ``KafkaBasedLog``. Reads to the end are activated before the end offsets are
fetched, and exactly these complete when the ends are reached. Transient errors are retried in the next iteration. Any
other error fails the active reads, and the thread continues.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.client.deadline import exponential_backoff
from pyspark_kafka_direct.client.system import with_jitter
from pyspark_kafka_direct.errors import (
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
    TruncatedError,
)
from pyspark_kafka_direct.log.log_topic import describe_log_topic
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import (
    Presence,
    has_later_leader,
    loss_cause,
    lower_end_offsets,
    reread_offset,
    resume_offset,
)
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import WakeupSignal
    from pyspark_kafka_direct.client.witnesses import AbsenceCheck
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log.log_clients import LogConsumer
    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.log.pending_reads import LogFuture, PendingReads
    from pyspark_kafka_direct.log.record_callbacks import LogCallbacks
    from pyspark_kafka_direct.planning.data_loss import TopicReport
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

_log = logging.getLogger("pyspark_kafka_direct.log")

# Timeout of a poll if nothing else is due. New reads wake the thread, so they are not delayed.
_MAX_POLL_SECONDS: Final = 30.0

# Timeout of the first request; each failure doubles it, up to default.api.timeout.ms, for slow clusters.
_REQUEST_SECONDS: Final = 5.0

# If pending reads make no progress for this long, the end offsets are fetched again: the log may have been truncated.
_STALL_SECONDS: Final = 2.0

# If the consumer has not found the truncation offset by then, the log is read from the beginning.
_TRUNCATION_CONFIRM_SECONDS: Final = 10.0

# How long a new topic may stay unknown (Kafka Connect waits as long for its partitions).
_NEW_TOPIC_SECONDS: Final = 30.0


class LogWorker:
    """The work of a log's thread, one iteration at a time."""

    def __init__(
        self,
        topic: str,
        cluster: ClusterClient,
        partition_filter: Callable[[int], bool] | None,
        open_consumer: Callable[[Mapping[TopicPartition, int]], LogConsumer],
        callbacks: LogCallbacks,
        pending_reads: PendingReads,
        count_completed_sends: Callable[[], int],
        count_loss: Callable[[DataLossCause, Mapping[TopicPartition, int]], None],
    ) -> None:
        self._topic = topic
        self._cluster = cluster
        self._system = cluster.pool.system
        self._partition_filter = partition_filter
        self._new_consumer = open_consumer
        self._callbacks = callbacks
        self._pending_reads = pending_reads
        self._count_completed_sends = count_completed_sends
        self._count_loss = count_loss
        self._witnesses = cluster.replica_witnesses(topic)
        self._signal: WakeupSignal | None = None
        self._consumer: LogConsumer | None = None
        self._topic_id: UUID | None = None
        self._end_offsets: dict[TopicPartition, int] = {}  # of the last response; lower ones mean a truncation
        self._stopping = False
        self._request_backoff = _Backoff(cluster)
        self._poll_backoff = _Backoff(cluster)
        self._absence_check: AbsenceCheck | None = None  # while brokers do not know the topic, or have another id
        self._checked_partition: TopicPartition | None = None  # by ``_absence_check``
        self._reported_missing = False
        self._started_at = self._progress_at = self._system.monotonic()
        self._data_loss: DataLossError | None = None
        self._suspected_truncation: _SuspectedTruncation | None = None
        self.log_generation = 0  # grows with each truncation and recreation
        self._completions: deque[tuple[LogFuture, BaseException | None]] = deque()
        self.positions: Mapping[TopicPartition, int] = {}  # next offsets to deliver; replaced, never changed

    def stop(self) -> None:
        """Let ``run`` return soon; callable from any thread."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Start the next iteration at once; callable from any thread."""
        if self._signal is not None:
            self._signal.set()

    def suspect_truncation(self, partition: TopicPartition, offset: int, log_generation: int) -> None:
        """Report that a record of this log was written at an offset already read; callable from any thread."""
        # ``log_generation`` is the value from before the record was sent.
        self._suspected_truncation = _SuspectedTruncation(partition, offset, log_generation, self._system.monotonic())
        self.wake()

    @property
    def truncation_suspected(self) -> bool:
        """Whether the log may have been truncated or recreated; no read completes until that is resolved."""
        suspected = self._suspected_truncation
        return suspected is not None and suspected.log_generation == self.log_generation

    def run(self) -> None:
        """Run iterations until ``stop``."""
        self._signal = self._system.wakeup_signal()
        try:
            while not self._stopping:
                self._signal.clear()
                self.run_once()
        finally:
            self._signal.close()
            if self._consumer is not None:
                self._consumer.close()

    def fail_all(self, error: BaseException) -> None:
        """Fail all pending reads; callable from any thread, also while a callback hangs."""
        self._complete(self._pending_reads.pop_all(), error)

    @property
    def has_unfinished_reads(self) -> bool:
        return bool(self._completions) or self._pending_reads.has_pending

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
        if self._stopping:
            return
        if self._consumer is None or self._data_loss is not None or not self._poll_backoff.ready:
            self._system.wait_readable(self._wakeup_fds(), self._poll_timeout())
        else:
            self._attempt(self._poll, self._poll_backoff)
            self._complete_reached_reads()

    def _attempt(self, step: Callable[[], None], backoff: _Backoff) -> None:
        try:
            step()
        except (TransientBrokerError, TimeoutError) as error:
            backoff.failed(error)
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

    def _fail_attempt(self, error: BaseException, backoff: _Backoff) -> None:
        self._callbacks.report_error(error)
        self._complete(self._pending_reads.pop_active(), error)
        backoff.failed(error)

    def _send_due_requests(self) -> None:
        has_active = self._pending_reads.activate(self._count_completed_sends())
        if self._data_loss is not None:
            self._resume_after_loss(self._data_loss)
        if self._consumer is None:
            self._open_consumer()
        if self.truncation_suspected:
            self._resolve_suspected_truncation()
        if has_active or self._is_stalled():
            self._fetch_end_offsets(has_active=has_active)
            self._reported_missing = False

    def _open_consumer(self) -> None:
        """Start reading, or resume at the last positions if the topic id is unchanged."""
        deadline = self._deadline()
        topic = self._describe_topic(deadline)
        if self._is_recreated(topic):
            self._on_topic_recreated(topic)
        starts = dict(self.positions)
        if not starts:
            requested = dict.fromkeys(topic.partitions, EARLIEST)
            starts = dict(
                confirmed_starts(
                    lambda: self._cluster.offsets(requested, deadline=deadline),
                    lambda topics: self._cluster.raise_epoch_floors(topics, deadline=deadline),
                )
            )
        self._consumer = self._new_consumer(starts)
        self._topic_id = topic.topic_id
        self.positions = starts
        self._progress_at = self._system.monotonic()

    def _describe_topic(self, deadline: Deadline) -> LogTopic:
        """Return the topic; another id or fewer partitions than before are accepted once several brokers confirm it."""
        topic = describe_log_topic(self._cluster, self._topic, self._partition_filter, deadline)
        if self._topic_id not in (None, topic.topic_id):
            if self._check_presence(deadline) is not Presence.RECREATED:
                raise TransientBrokerError(
                    f"A broker reports that the topic was recreated: its id is {topic.topic_id}, not {self._topic_id}. "
                    "Other brokers are asked.",
                    topic=self._topic,
                )
        elif missing := self._missing_partition(topic):
            if self._check_presence(deadline, missing.partition) is not Presence.ABSENT:
                raise TransientBrokerError(
                    "A broker reports that the topic has no such partition. Other brokers are asked.",
                    topic=self._topic,
                    partition=missing.partition,
                )
        else:
            self._absence_check = None
        return topic

    def _missing_partition(self, topic: LogTopic) -> TopicPartition | None:
        return next((partition for partition in self.positions if partition not in topic.partitions), None)

    def _is_recreated(self, topic: LogTopic) -> bool:
        """Return whether this is another topic: it has another id, or without ids, it lacks a partition."""
        return self._topic_id not in (None, topic.topic_id) or self._missing_partition(topic) is not None

    def _on_topic_recreated(self, topic: LogTopic) -> None:
        error = TopicRecreatedError(
            "The topic was deleted and recreated; the log is read from its beginning.",
            topic=self._topic,
        )
        error.topic_id = self._topic_id = topic.topic_id
        self._absence_check = None
        self._callbacks.report_reset(error)
        self.positions = {}
        self._start_new_generation(error)

    def _fetch_end_offsets(self, *, has_active: bool) -> None:
        """Fetch high watermarks, so that a ``read_committed`` log waits for open transactions to end."""
        ends = self._confirmed_ends(self._deadline())
        if ends is None:
            return
        self._progress_at = self._system.monotonic()
        lower_ends = lower_end_offsets(self._end_offsets, ends)
        self._end_offsets = {**self._end_offsets, **ends}
        if lower_ends:  # the consumer finds out whether records that were read are lost
            self._complete(self._pending_reads.pop_active(), _truncated_error(*next(iter(lower_ends.items()))))
        elif passed_ends := lower_end_offsets(self.positions, ends):
            tp, end = next(iter(passed_ends.items()))
            raise TransientBrokerError(
                f"The log ends at {end}, below the next offset to read; the consumer checks for a truncation.",
                topic=tp.topic,
                partition=tp.partition,
                offset=self.positions[tp],
            )
        elif has_active:
            self._pending_reads.ends = ends

    def _confirmed_ends(self, deadline: Deadline) -> dict[TopicPartition, int] | None:
        """Return the ends that the current leaders report; None if the topic was recreated."""
        requested = dict.fromkeys(self.positions, LATEST)
        while True:
            leaders = self._cluster.known_leaders(requested)  # those that respond have these epochs, or later ones
            ends = self._cluster.offsets(requested, isolation_level="read_uncommitted", deadline=deadline)
            reports, unsettled = self._witnesses.ask(requested, self._topic_id, deadline)
            epochs = {tp: leader.epoch for tp, leader in leaders.items()}
            is_current = leaders.keys() == requested.keys() and not has_later_leader(epochs, self._topic_id, reports)
            if is_current:
                break
            self._cluster.use_next_broker()
            self._cluster.topics([self._topic], deadline=deadline)
        # ListOffsets has no topic id: if no broker reports another id, these are the offsets of the same topic.
        if unsettled is None and self._has_partitions(reports):
            self._absence_check = None
            return ends
        if self._is_recreated(self._describe_topic(deadline)):
            self._close_consumer()
            self._open_consumer()
            return None
        if unsettled is not None:
            raise unsettled
        return ends

    def _has_partitions(self, reports: Iterable[TopicReport]) -> bool:
        """Return whether brokers know the topic and, if it has no id, all partitions that are read."""
        known = [report.leader_epochs for report in reports if report.leader_epochs is not None]
        if self._topic_id is not None:
            return bool(known)
        return bool(known) and all(tp.partition in epochs for epochs in known for tp in self.positions)

    def _is_stalled(self) -> bool:
        return self._pending_reads.has_pending and self._system.monotonic() >= self._progress_at + _STALL_SECONDS

    def _resolve_suspected_truncation(self) -> None:
        """Find out whether the topic was recreated or the log truncated; the consumer detects the latter."""
        suspected = self._suspected_truncation
        assert suspected is not None
        deadline = self._deadline()
        if self._is_recreated(self._describe_topic(deadline)):
            self._close_consumer()
            self._open_consumer()
            return
        error = _truncated_error(suspected.partition, suspected.offset)
        if self._system.monotonic() < suspected.since + _TRUNCATION_CONFIRM_SECONDS:
            raise TransientBrokerError(error.message, topic=error.topic, partition=error.partition, offset=error.offset)
        self._resume_after_loss(error)

    def _complete_reached_reads(self) -> None:
        if self.truncation_suspected:
            return
        self._complete(self._pending_reads.pop_reached(self.positions), None)

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
        callback_errors = [self._callbacks.deliver(partition, rows) for partition, rows in batches]
        positions = dict(self._consumer.positions)
        if positions != self.positions:
            self.positions = positions
            self._progress_at = self._system.monotonic()
        for callback_error in callback_errors:
            if callback_error is not None:
                self._complete(self._pending_reads.pop_active(), callback_error)

    def _deadline(self) -> Deadline:
        max_seconds = self._cluster.settings.default_api_timeout_ms / 1000
        return self._cluster.deadline(
            exponential_backoff(_REQUEST_SECONDS, self._request_backoff.attempts, max_seconds)
        )

    def _wakeup_fds(self) -> list[int]:
        return [] if self._signal is None else [self._signal.fileno()]

    def _poll_timeout(self) -> float:
        waits = [backoff.remaining for backoff in (self._request_backoff, self._poll_backoff) if not backoff.ready]
        if self._pending_reads.has_pending:
            waits.append(_STALL_SECONDS)
        return min(waits, default=_MAX_POLL_SECONDS)

    def _resume_after_loss(self, loss: DataLossError) -> None:
        """Continue after the lost offsets, or at those whose records may have been replaced."""
        assert self._consumer is not None
        assert loss.topic is not None
        assert loss.partition is not None
        partition = TopicPartition(loss.topic, loss.partition)
        position = self._consumer.positions[partition]
        deadline = self._deadline()
        start = self._cluster.offsets({partition: EARLIEST}, deadline=deadline)[partition]
        end = self._cluster.offsets({partition: LATEST}, deadline=deadline)[partition]
        reread_from = reread_offset(loss, position, start, end)
        if reread_from is None:
            offset = resume_offset(loss, position, start, end)
            _log.warning(
                "%s: %s Reading continues at offset %d instead of %d.", partition, loss.message, offset, position
            )
            self._seek(partition, offset)
            if (cause := loss_cause(loss, position, start, end)) is not None:
                self._count_loss(cause, {partition: max(offset - position, 0)})
        elif isinstance(loss, TruncatedError) and loss.truncated_to in (None, reread_from):
            self._resume_after_truncation(loss, reread_from)
        else:
            self._resume_after_truncation(_truncated_error(partition, end), reread_from)

    def _resume_after_truncation(self, error: TruncatedError, offset: int) -> None:
        assert error.topic is not None
        assert error.partition is not None
        if self._callbacks.report_reset(error):
            self._close_consumer()
            self.positions = {}
        else:
            self._seek(TopicPartition(error.topic, error.partition), offset)
        self._start_new_generation(error)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        assert self._consumer is not None
        self._data_loss = None
        self._consumer.seek(partition, offset)
        self.positions = {**self.positions, partition: offset}

    def _close_consumer(self) -> None:
        self._data_loss = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _start_new_generation(self, error: KafkaDirectError) -> None:
        """Fail active reads; the positions have to be changed before."""
        self._end_offsets = {}
        self.log_generation += 1
        self._complete(self._pending_reads.pop_active(), error)

    def _on_unknown_topic(self, error: TopicNotFoundError) -> None:
        """Fail active reads once several brokers confirm that the topic does not exist."""
        # Brokers learn of a new topic, and of all topics after a restart, with a delay.
        may_be_new = self._topic_id is None and self._system.monotonic() < self._started_at + _NEW_TOPIC_SECONDS
        try:
            presence = self._check_presence(self._deadline())
        except (TransientBrokerError, TimeoutError):
            return
        if presence is Presence.ABSENT and not may_be_new:
            if not self._reported_missing:
                self._reported_missing = True
                self._callbacks.report_error(error)
            self._complete(self._pending_reads.pop_active(), error)

    def _check_presence(self, deadline: Deadline, number: int = 0) -> Presence:
        partition = TopicPartition(self._topic, number)
        if self._absence_check is None or self._checked_partition != partition:
            self._absence_check = self._cluster.absence_check({partition: self._topic_id})
            self._checked_partition = partition
        return self._absence_check.step(deadline)[partition]

    def _complete(self, futures: Sequence[LogFuture], error: BaseException | None) -> None:
        # Callbacks may take long and may request more reads. If a callback hangs, another thread can complete
        # the remaining futures.
        self._completions.extend((future, error) for future in futures)
        for future, outcome in self._pop_completions():
            future.complete(outcome)

    def _pop_completions(self) -> Iterator[tuple[LogFuture, BaseException | None]]:
        with suppress(IndexError):
            while True:
                yield self._completions.popleft()


class _SuspectedTruncation(NamedTuple):
    partition: TopicPartition
    offset: int
    log_generation: int
    since: float  # monotonic


class _Backoff:
    """Pauses between attempts, which double from ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._settings = cluster.settings
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
        pause = exponential_backoff(self._settings.retry_backoff_ms, self.attempts, self._settings.retry_backoff_max_ms)
        self.last_error = error
        self.attempts += 1
        self._next_attempt_at = self._system.monotonic() + with_jitter(pause / 1000, self._system)

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
