"""Fetches one offset range, from the leader or from the replica that it prefers for the client's rack (KIP-392).

The next fetch is sent before the last response is decoded, so that the broker works meanwhile. Transient errors (a
broken connection, a moved leader, stale metadata) are retried with backoff until ``poll_timeout_ms`` has passed without
progress. ``planning.data_loss`` decides what is data loss, and ``fail_on_data_loss`` what follows. All other errors are
raised at once, as in Java's consumer. That includes a wrong checksum: TCP and TLS have their own, so the broker's disk
is damaged.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Backoff, ConfirmedDeadline, Deadline, LossConfirmation
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH, ReadReplica
from pyspark_kafka_direct.consumer.partition_reader import (
    CheckGap,
    CheckLeaderLog,
    FetchContext,
    LogTruncated,
    PartitionReader,
    RetryFetch,
    UsePreferredReplica,
)
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import BrokerTimeoutError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    UNPROVEN_GAP_SECONDS,
    GapDecision,
    LeaderLogState,
    Presence,
    confirmation_seconds,
    evaluate_gap,
    evaluate_loss,
    evaluate_truncation,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause, unproven_gap_error
from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder, scan_leader_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.consumer.partition_reader import FetchAction
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.planning.data_loss import LossDecision

_POLL_TIMEOUT_OPTION = "kafkaConsumer.pollTimeoutMs"

_log = logging.getLogger("pyspark_kafka_direct.consumer")

# The first fetch of a range is smaller than the others: a query may need only the first rows (``show``, ``limit``), and
# Spark passes none of them on before the Arrow batch is complete.
_FIRST_FETCH_BYTES = 256 << 10


def read_range(
    connection: ConnectionSettings,
    fetch: FetchSettings,
    task: RangeTask,
    columns: tuple[str, ...],  # some of ``records.COLUMNS``, in the wanted order
    counts: ReadCounts | None = None,
    *,
    max_rows: int = 32_768,  # of an Arrow batch
    max_bytes: int = 4 << 20,  # of keys, values and headers in an Arrow batch
    limit: int | None = None,  # the caller may stop after so many records
    pool: ConnectionPool = POOL,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield non-empty Arrow batches with exactly the records of the range, in offset order."""
    counts = counts if counts is not None else ReadCounts()
    offsets = task.offsets
    replica = ReadReplica(
        connection, fetch, offsets.topic_partition, task.topic_id, planned_leader=task.leader, pool=pool
    )
    new_decoder = functools.partial(
        RecordDecoder,
        topic=offsets.topic,
        partition=offsets.partition,
        until_offset=offsets.until_offset,
        columns=columns,
        check_crcs=fetch.check_crcs,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_batch_bytes=fetch.max_record_batch_bytes,
    )
    handler = _DecodingHandler(new_decoder, offsets.from_offset, counts)
    started = pool.system.monotonic()
    try:
        for _ in Fetcher(task, replica, handler, counts, limit=limit, system=pool.system).run():
            while (batch := handler.read()) is not None:
                if batch.num_rows:
                    yield batch
    finally:
        replica.release()
        handler.count_decoded()
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d): %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)


class RecordHandler(Protocol):
    """Consumes the record batches of a range: a decoder or a counter."""

    @property
    def next_offset(self) -> int:
        """The offset after the last complete record batch that was fed."""

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction]) -> None:
        """Add the record bytes of one fetch response, and update ``next_offset``; decoding may happen later."""

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset; there is nothing to read before it."""


class FetchRetry(ConfirmedDeadline):
    """Backs off between the fetches of one range, and fails after ``kafkaConsumer.pollTimeoutMs`` without progress.

    Brokers have a separate time to confirm or refute a data loss. It starts with the first evidence, and a shorter
    timeout of the user does not end it: otherwise the read could neither skip lost records nor report them.
    """

    def __init__(
        self, connection: ConnectionSettings, fetch: FetchSettings, partition: TopicPartition, system: System = SYSTEM
    ) -> None:
        self._system = system
        self._backoff = Backoff.of(connection)
        self._timeout = fetch.poll_timeout_ms / 1000
        self._partition = partition
        self.reset()  # sets the deadline, the confirmation, the tries and the last error

    def reset(self) -> None:
        """Restart the timeout and the backoff, because records arrived or were passed to the caller."""
        self._user_deadline = Deadline.after(self._timeout, _POLL_TIMEOUT_OPTION, system=self._system)
        self._confirmation = LossConfirmation()
        self._tries = 0
        self._last_error: KafkaDirectError | None = None
        self._begin_wait(self._system.monotonic())

    def reserve_confirmation_time(self, seconds: float) -> None:
        """Extend the deadline if brokers need so much time to confirm a loss; 0: there is no evidence of one."""
        self._confirmation.reserve(seconds, self._system.monotonic())

    def end_confirmation(self) -> None:
        """Return to the user's deadline, because nothing is lost."""
        self._confirmation = LossConfirmation()

    def raise_if_expired(self, broker: str | None) -> None:
        """Raise BrokerTimeoutError, caused by the last error, if the timeout has passed."""
        if not self.deadline.expired:
            return
        last_error = self._last_error
        raise BrokerTimeoutError(
            f"No records arrived for {self._timeout:g} s (option {_POLL_TIMEOUT_OPTION})"
            + ("." if last_error is None else f"; the last error: {last_error.message}")
            + (f" {self._confirmation.note}" if self._confirmation.is_running else ""),
            topic=self._partition.topic,
            partition=self._partition.partition,
            offset=None if last_error is None else last_error.offset,
            broker=broker if last_error is None else last_error.broker or broker,
        ) from last_error

    def set_last_error(self, error: KafkaDirectError) -> None:
        # After the deadline, an earlier error is the reason; this one may only be a consequence of the deadline.
        if self._last_error is None or not self.deadline.expired:
            self._last_error = error
        self.reserve_confirmation_time(confirmation_seconds(error))

    def back_off(self) -> None:
        """Sleep before the next fetch; the delay doubles with each call until ``reset``."""
        if self._last_error is not None:
            self._warn_of_long_wait(self._last_error)
        pause = self._backoff.pause(self._tries, self._system)
        self._tries += 1
        self._system.sleep(min(self._confirmation.limit_pause(pause), self.deadline.remaining()))


class Fetcher:
    """Fetches one range and feeds it to a handler."""

    def __init__(
        self,
        task: RangeTask,
        replica: ReadReplica,
        handler: RecordHandler,
        counts: ReadCounts,
        *,
        limit: int | None = None,  # the caller may stop after so many records
        system: System = SYSTEM,
    ) -> None:
        self._system = system
        self._task = task
        self._settings = fetch = replica.fetch_settings
        # Of the first fetch; later ones are larger. Not below fetch.min.bytes: the leader counts at most this size
        # towards them, and would otherwise wait for fetch.max.wait.ms although it has enough records.
        self._max_bytes = min(fetch.max_partition_fetch_bytes, max(_FIRST_FETCH_BYTES, fetch.fetch_min_bytes))
        self._replica = replica
        self._handler = handler
        self._counts = counts
        # Once the fetched offsets may contain the limit, the next fetch is often not needed, and not sent in advance.
        until = task.offsets.until_offset
        self._prefetch_until = until if limit is None else min(until, task.offsets.from_offset + limit)
        self._retry = FetchRetry(replica.connection_settings, fetch, task.offsets.topic_partition, system)
        self._reader = PartitionReader(
            task.offsets.topic_partition,
            task.offsets.from_offset,
            read_committed=fetch.read_committed,
            in_planned_range=True,
        )

    def run(self) -> Iterator[None]:
        """Yield each time the handler was fed, with the next fetch in flight, until the end of the range."""
        while self._reader.fetch_offset < self._task.offsets.until_offset:
            self._retry.raise_if_expired(self._replica.broker)
            try:
                context, fetched = self._fetch()
                has_records = self._feed(fetched)
                if not has_records:
                    self._apply(self._decide(context, fetched))
            except TransientBrokerError as error:
                self._retry_fetch(RetryFetch(error, refresh_metadata=True))
                continue
            except TopicNotFoundError as error:
                self._handle_unknown_topic(error)
                continue
            if has_records:
                if self._reader.fetch_offset >= self._task.offsets.until_offset:
                    self._replica.release()  # another read may use the connection before the caller has all records
                yield
                self._retry.reset()  # time spent in the caller does not count against the timeout

    def _fetch(self) -> tuple[FetchContext, FetchResponsePartition]:
        """Wait for the response for the fetch offset; ``_feed`` has usually sent the request already."""
        reader, deadline = self._reader, self._retry.deadline
        last_epoch = reader.last_fetched_epoch
        started = self._system.monotonic()
        try:
            self._replica.send_fetch(reader.fetch_offset, self._max_bytes, deadline, last_fetched_epoch=last_epoch)
            reader.absence_check = None  # no error: metadata has the partition, so nothing is missing
            fetched = self._replica.receive_fetch(deadline)
        finally:
            ended = self._system.monotonic()
            self._counts.wait_seconds += ended - started
        self._counts.add_fetch(self._replica.broker, len(fetched.records))
        context = FetchContext(
            self._replica.broker,
            sent_at=started,
            received_at=ended,
            on_leader=self._replica.on_leader,
            sent_last_epoch=last_epoch != UNKNOWN_EPOCH,
        )
        return context, fetched

    def _feed(self, fetched: FetchResponsePartition) -> bool:
        """Feed the handler and prefetch; return whether the response contained records."""
        if fetched.error_code:
            return False
        self._handler.feed(fetched.records, [AbortedTransaction(*entry) for entry in fetched.aborted])
        next_offset = self._handler.next_offset
        if next_offset <= self._reader.fetch_offset:  # no complete record batch
            return False
        self._reader.resume_at(next_offset, scan_leader_epoch(fetched.records))
        self._retry.reset()
        self._max_bytes = self._settings.max_partition_fetch_bytes
        if next_offset < self._prefetch_until:
            # Without the last fetched epoch: the broker rejects a request with another leader epoch, and a log is never
            # truncated within one epoch.
            try:
                self._replica.send_fetch(next_offset, self._max_bytes, self._retry.deadline)
            except (TopicNotFoundError, TransientBrokerError):
                self._replica.release()  # return the fetched records first; the next fetch handles the error
        return True

    def _decide(self, context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
        if fetched.error_code and fetched.current_leader is not None:
            # A retry must not go to an earlier leader, which outdated metadata may name.
            self._replica.note_later_epoch(fetched.current_leader.leader_epoch, self._retry.deadline)
        return self._reader.decide(context, fetched)

    def _apply(self, action: FetchAction | None) -> None:
        match action:
            case UsePreferredReplica(broker_id):
                self._replica.switch_to_replica(broker_id)
            case RetryFetch():
                self._retry_fetch(action)
            case CheckLeaderLog(error):
                self._check_leader_log(error)
            case CheckGap():
                self._check_gap(action)
            case LogTruncated(offset):
                self._retry.reserve_confirmation_time(CONFIRMATION_SECONDS)
                self._replica.check_leader(self._retry.deadline)  # raises if only a deposed leader lacks the records
                self._resume_after_truncation(offset)

    def _check_leader_log(self, error: KafkaDirectError) -> None:
        """Fetch again after a backoff if the leader's log has the offset; else skip the lost offsets, or fail."""
        self._retry.reserve_confirmation_time(confirmation_seconds(error))
        log = self._replica.fetch_log_state(self._retry.deadline)
        if self._reader.should_fetch_again(log, end_may_be_stale=self._replica.end_may_be_stale):
            self._back_off(error)
        else:
            self._skip_lost(log)

    def _retry_fetch(self, retry: RetryFetch) -> None:
        if retry.throttled:
            self._counts.throttled += 1
        if retry.refresh_metadata:
            self._reader.forget_empty_responses()
            if self._replica.on_leader:
                self._replica.release()
            else:
                self._replica.switch_to_leader()
        if retry.without_backoff:
            self._retry.set_last_error(retry.error)
        else:
            self._back_off(retry.error)

    def _handle_unknown_topic(self, error: KafkaDirectError) -> None:
        """Retry after a missing topic or partition or another topic id; once confirmed, handle it as data loss."""
        self._replica.release()  # so that the next fetch requests metadata, which may have the partition again
        self._reader.forget_empty_responses()
        check = self._reader.absence_check = self._reader.absence_check or self._replica.absence_check()
        self._retry.reserve_confirmation_time(check.confirmation_seconds)  # the deadline is not before its end
        tp = self._task.offsets.topic_partition
        try:
            presence = check.step(self._retry.deadline)[tp]
        except TransientBrokerError as witness_error:  # no broker responded, so nothing is confirmed
            self._back_off(witness_error)
            return
        match presence:
            case Presence.ABSENT:
                self._skip_lost(None)
            case Presence.RECREATED:
                self._skip_lost(LeaderLogState(0, 0, check.new_topic_id(tp)))  # only its id counts
            case Presence.PRESENT | Presence.UNCONFIRMED:
                self._back_off(error)

    def _check_gap(self, gap: CheckGap) -> None:
        """Skip offsets below the high watermark without records, once that is proven or has lasted long enough."""
        local_log_start = self._replica.local_log_start(self._retry.deadline)
        decision = evaluate_gap(self._reader.fetch_offset, local_log_start, gap.no_data_seconds)
        if decision is GapDecision.RETRY:
            if local_log_start is None:  # only time can show that the records are not on slow storage
                self._retry.reserve_confirmation_time(UNPROVEN_GAP_SECONDS)
            else:  # the records are in tiered storage: only the user's timeout limits the wait for them
                self._retry.end_confirmation()
            self._back_off(gap.error)
            return
        self._replica.check_leader(self._retry.deadline)  # raises if only a deposed leader lacks the records
        next_offset = min(gap.end, self._task.offsets.until_offset)
        if decision is GapDecision.UNKNOWN:
            self._fail_or_count_unproven_gap(gap, next_offset)
        self._counts.gaps += next_offset - self._reader.fetch_offset
        self._resume_at(next_offset)

    def _fail_or_count_unproven_gap(self, gap: CheckGap, next_offset: int) -> None:
        position = self._reader.fetch_offset
        tp = self._task.offsets.topic_partition
        loss = unproven_gap_error(tp, position, gap.end, gap.no_data_seconds, self._replica.broker)
        if self._settings.fail_on_data_loss:
            raise loss
        _log.warning("%s Offsets [%d, %d) are skipped (failOnDataLoss=false).", loss, position, next_offset)
        self._counts.unproven_gaps += next_offset - position
        self._counts.add_skipped(DataLossCause.UNPROVEN_GAP, next_offset - position)

    def _resume_after_truncation(self, truncated_to: int) -> None:
        """Fail, or continue at the same offset: each one is returned once, so none is read again."""
        offset = self._reader.fetch_offset
        decision = evaluate_truncation(
            self._task.offsets, offset, truncated_to, fail_on_data_loss=self._settings.fail_on_data_loss
        )
        self._count_loss(decision)
        self._resume_at(offset)  # with a new decoder: the batch that has the offset now may start before it

    def _skip_lost(self, log: LeaderLogState | None) -> None:
        """Skip offsets that the log lacks, or fail."""
        task = self._task
        decision = evaluate_loss(
            task.offsets,
            self._reader.fetch_offset,
            log,
            planned_topic_id=task.topic_id,
            from_earliest=task.from_earliest,
            fail_on_data_loss=self._settings.fail_on_data_loss,
        )
        self._count_loss(decision)
        self._resume_at(decision.next_offset)

    def _count_loss(self, decision: LossDecision) -> None:
        if decision.cause is None:
            return
        _log.warning("%s", decision.message)
        self._counts.lost += decision.lost
        # Truncated records were read before they were lost, so none of them was skipped.
        self._counts.add_skipped(decision.cause, 0 if decision.cause is DataLossCause.TRUNCATED else decision.lost)

    def _resume_at(self, offset: int) -> None:
        self._handler.skip_to(offset)
        self._reader.resume_at(offset)
        self._retry.reset()

    def _back_off(self, error: KafkaDirectError) -> None:
        self._counts.retries += 1
        self._retry.set_last_error(error)
        self._retry.back_off()


class _DecodingHandler:
    """Decodes the fetched record batches; a new decoder is created wherever offsets are skipped."""

    def __init__(self, new_decoder: Callable[..., RecordDecoder], from_offset: int, counts: ReadCounts) -> None:
        self._new_decoder = new_decoder
        self._counts = counts
        self._decoder = new_decoder(from_offset=from_offset)

    @property
    def next_offset(self) -> int:
        return self._decoder.next_offset

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction]) -> None:
        self._decoder.feed(records, aborted)

    def skip_to(self, offset: int) -> None:
        # A new decoder starts exactly at the offset. The batch there may begin with earlier records: DeleteRecords
        # moves the log start, but does not change batches.
        self.count_decoded()
        self._decoder = self._new_decoder(from_offset=offset)

    def read(self) -> pa.RecordBatch | None:
        return self._decoder.read()

    def count_decoded(self) -> None:
        """Add what the current decoder has counted to the counts of the range."""
        self._counts.add_decoded(self._decoder.counts)
