"""Sends single records from any thread, and completes a future for each.

Guarantees:

- Each future is completed once: with ``RecordMetadata`` when the record is acknowledged, or with an error. Errors of
  the cluster are ``KafkaDirectError``; their message ends with whether the record may have been written.
- Records of one partition are written in the order in which each thread sent them. Records after a failed one are
  still written, in order.
- A record that is too large fails alone. If a broker rejects a record, all records of its batch fail. If a partition or
  topic does not exist or may not be written to, its records fail. Any other error fails all records that the current
  ``BatchProducer`` has; queued and later records are sent by another one.
- A future is completed at most ``delivery.timeout.ms`` after ``send``. If its record is in flight then, it is completed
  by the response, or after ``request.timeout.ms`` without one.
"""

from __future__ import annotations

import copy
import logging
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError
from pyspark_kafka_direct.producer.accumulator import PendingRecord, RecordAccumulator, RecordMetadata
from pyspark_kafka_direct.producer.produce_errors import with_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.system import System, WakeupSignal
    from pyspark_kafka_direct.config.client_settings import ProducerSettings
    from pyspark_kafka_direct.producer.accumulator import DeliveryReport

__all__ = ["AsyncProducer", "RecordMetadata"]

_log = logging.getLogger("pyspark_kafka_direct.producer")

# Upper bounds of a record's overhead in a record batch, as in Java's client
# (AbstractRecords.estimateSizeInBytesUpperBound).
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 21
_MAX_VARINT_BYTES: Final = 5

# Memory of an incomplete record beside its contents, mostly for its future.
_MEMORY_OVERHEAD: Final = 2048

_MAX_TIMESTAMP: Final = (1 << 63) - 1

_CALLBACK_GRACE_SECONDS: Final = 0.2  # seconds after the timeout of `close` for callbacks of records that it fails


class AsyncProducer:
    """Sends single records from any thread in a background thread.

    Close it: the background thread is a daemon, so incomplete records are lost when the process exits.
    """

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings, *, linger: float = 0.0) -> None:
        self._cluster = cluster
        self._settings = settings
        self._linger = linger
        self._system = cluster.pool.system
        self._pid = os.getpid()
        self._changed = self._system.condition()  # guards the attributes below
        self._new_records: list[PendingRecord] = []
        self._incomplete: dict[PendingRecord, None] = {}  # in the order of their sends
        self._buffered_bytes = 0
        self._flushes_in_progress = 0  # calls that wait, so that records do not linger
        self._closed = False
        self._aborted = False
        self._signal: WakeupSignal | None = None  # wakes the background thread; None: it is not running
        self._thread_id: int | None = None  # of the background thread

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_acknowledged: Callable[[RecordMetadata], None] | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record; wait only while incomplete records exceed ``buffer.memory``.

        Callbacks of the future run in the background thread, so they should be quick; they may send. Their exceptions
        are logged. In a callback, ``result`` of an incomplete future raises ``RuntimeError`` to prevent a deadlock. The
        future cannot be cancelled. ``on_acknowledged`` runs in the background thread before the future is completed.
        """
        self._check_process()
        future = _RecordFuture(self, self._system, on_acknowledged)
        record = self._validated_record(topic, key, value, headers, partition, timestamp, future)
        if record.size_bound > self._settings.max_request_bytes:
            error = RecordTooLargeError(
                f"The record has up to {record.size_bound} bytes, more than max.request.size "
                f"({self._settings.max_request_bytes}). To write such records, raise max.request.size, and "
                "max.message.bytes of the topic.",
                topic=topic,
                partition=partition,
            )
            future.set_exception(with_outcome(error, outcome_unknown=False))
            return future
        with self._changed:
            memory_error = self._wait_for_memory(record)
            if self._closed:
                raise RuntimeError("The producer is closed.")
            if memory_error is None:
                signal = self._ensure_thread_started()
                self._incomplete[record] = None
                self._buffered_bytes += _memory_bytes(record)
                self._new_records.append(record)
                if len(self._new_records) == 1:
                    signal.set()
        if memory_error is not None:
            future.set_exception(memory_error)
        return future

    def flush(self, seconds: float | None = None) -> None:
        """Wait until the futures of all records sent before are completed, and their callbacks have run."""
        self._check_process()
        with self._changed:
            self._check_thread("flush")
            ends_at = None if seconds is None else self._system.monotonic() + seconds
            pending_records = set(self._incomplete)
            self._request_flush()
            try:
                while pending_records:
                    remaining = None if ends_at is None else ends_at - self._system.monotonic()
                    if remaining is not None and remaining <= 0:
                        raise BrokerTimeoutError(
                            f"{len(pending_records)} records were not acknowledged within {seconds:g} s. They are "
                            "still being sent."
                        )
                    self._system.wait(self._changed, remaining)
                    pending_records &= self._incomplete.keys()
            finally:
                self._flushes_in_progress -= 1

    def close(self, seconds: float) -> None:
        """Reject new records, wait for the incomplete records, then fail those that remain and end the thread."""
        self._check_process()
        with self._changed:
            self._check_thread("close")
            self._closed = True
            ends_at = self._system.monotonic() + seconds
            self._request_flush()
            while self._signal is not None and (remaining := ends_at - self._system.monotonic()) > 0:
                self._system.wait(self._changed, remaining)
            self._aborted = True
            self._request_flush()
            has_incomplete_records = any(not record.completion_claimed for record in self._incomplete)
        if has_incomplete_records:
            message = f"The producer was closed, and the record was not acknowledged within {seconds:g} s."
            timeout = max(ends_at - self._system.monotonic(), _CALLBACK_GRACE_SECONDS)
            # In another thread, because the callbacks of these records may hang.
            self._system.run_with_timeout(
                lambda: self._fail_all(message), "pyspark-kafka-direct-producer-close", timeout
            )

    def close_without_waiting(self) -> None:
        """Reject new records; the thread ends when all futures are completed."""
        self._check_process()
        with self._changed:
            self._closed = True
            self._request_flush()

    @property
    def in_callback(self) -> bool:
        """Whether the caller is in the background thread, which runs the callbacks of futures."""
        return self._thread_id == self._system.thread_id()

    def _validated_record(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp: int | None,
        future: Future[RecordMetadata],
    ) -> PendingRecord:
        """Validate the arguments, and return the record with an upper bound of its encoded size."""
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, got {type(topic).__name__}")
        if not topic:
            raise ValueError("topic must not be empty")
        size_bound = _BATCH_OVERHEAD + _RECORD_OVERHEAD
        if key is not None:
            if not isinstance(key, bytes):
                raise TypeError(f"key must be bytes or None, got {type(key).__name__}")
            size_bound += len(key)
        if value is not None:
            if not isinstance(value, bytes):
                raise TypeError(f"value must be bytes or None, got {type(value).__name__}")
            size_bound += len(value)
        if headers:
            headers = tuple(headers)
            for name, content in headers:
                if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
                    raise TypeError("headers must be pairs of a str and bytes or None")
                size_bound += 2 * _MAX_VARINT_BYTES + len(name.encode()) + len(content or b"")
        if partition is not None and not 0 <= partition < 1 << 31:
            raise ValueError(f"partition must be from 0 to 2147483647, got {partition}")
        if timestamp is None:
            timestamp = int(self._system.wall_time() * 1000)
        elif not 0 <= timestamp <= _MAX_TIMESTAMP:
            raise ValueError(f"timestamp must be from 0 to {_MAX_TIMESTAMP}, got {timestamp}")
        now = self._system.monotonic()
        return PendingRecord(topic, key, value, headers, partition, timestamp, now, size_bound, future)

    def _wait_for_memory(self, record: PendingRecord) -> BaseException | None:
        """Wait until ``buffer.memory`` has space for a record; return a timeout error if it stays full."""
        limit = max(self._settings.buffer_bytes - _memory_bytes(record), 0)  # a larger record waits for an empty buffer
        if self._buffered_bytes <= limit or self.in_callback:
            return None  # a callback cannot wait for its own thread
        ends_at = self._system.monotonic() + self._settings.delivery_timeout_ms / 1000
        self._request_flush()
        try:
            while self._buffered_bytes > limit and not self._closed:
                remaining = ends_at - self._system.monotonic()
                if remaining <= 0:
                    error = BrokerTimeoutError(
                        f"Unacknowledged records exceeded buffer.memory ({self._settings.buffer_bytes} bytes) for "
                        f"{self._settings.delivery_timeout_ms / 1000:g} s (delivery.timeout.ms). Raise buffer.memory, "
                        "or send more slowly.",
                        topic=record.topic,
                        partition=record.partition,
                    )
                    return with_outcome(error, outcome_unknown=False)
                self._system.wait(self._changed, remaining)
        finally:
            self._flushes_in_progress -= 1
        return None

    def _ensure_thread_started(self) -> WakeupSignal:
        if self._signal is None:
            signal = self._system.wakeup_signal()
            try:
                self._system.start_thread(lambda: self._run(signal), "pyspark-kafka-direct-producer")
            except BaseException:
                signal.close()
                raise
            self._signal = signal
        return self._signal

    def _run(self, signal: WakeupSignal) -> None:
        self._thread_id = self._system.thread_id()
        accumulator = RecordAccumulator(
            self._cluster, self._settings, self._on_delivery, self._mark_as_sent, self._linger
        )
        try:
            while True:
                signal.clear()
                with self._changed:
                    if self._aborted or (self._closed and not self._incomplete):
                        break
                    new_records, self._new_records = self._new_records, []
                    flush_now = self._flushes_in_progress > 0 or self._closed
                accumulator.append(new_records, flush_now=flush_now)
                accumulator.poll([signal.fileno()])
        except BaseException:
            _log.exception("The thread that sends records failed. The producer can send nothing more; create another.")
        finally:
            accumulator.close()
            with self._changed:
                self._closed = True
                self._signal = None
                self._changed.notify_all()
            self._fail_all("The producer is closed.")
            self._thread_id = None  # another thread may get the same id
            signal.close()

    def _mark_as_sent(self, records: Sequence[PendingRecord]) -> list[PendingRecord]:
        """Mark the incomplete ones of the records as sent, and return these."""
        with self._changed:
            incomplete_records = [record for record in records if not record.completion_claimed]
            for record in incomplete_records:
                record.sent_to_producer = True
        return incomplete_records

    def _on_delivery(self, report: DeliveryReport) -> None:
        """Complete the futures of a report's records."""
        completed_records = []
        for index, record in enumerate(report.records):
            if not self._claim_completion(record):
                continue
            completed_records.append(record)
            if report.error is not None:
                self._fail(record, report.error)
                continue
            assert record.partition is not None
            offset = -1 if report.base_offset == -1 else report.base_offset + index
            timestamp = record.timestamp if report.append_time == -1 else report.append_time
            try:
                record.future.set_result(RecordMetadata(record.topic, record.partition, offset, timestamp))
            except BaseException:  # an Exception is logged by the future itself
                _log.exception("A callback of a record's future failed.")
        self._remove_incomplete(completed_records)

    def _fail(self, record: PendingRecord, error: BaseException) -> None:
        if isinstance(error, KafkaDirectError):
            # Each future gets a copy, because an exception that is raised repeatedly accumulates tracebacks.
            cause, error = error.__cause__, copy.copy(error)
            error.__cause__ = cause
        try:
            record.future.set_exception(error)
        except BaseException:
            _log.exception("A callback of a record's future failed.")

    def _fail_all(self, message: str) -> None:
        """Fail all incomplete records."""
        with self._changed:
            incomplete_records = sorted(self._incomplete, key=lambda record: record.created_at)
        for record in incomplete_records:
            if self._claim_completion(record):
                error = BrokerTimeoutError(message, topic=record.topic, partition=record.partition)
                self._fail(record, with_outcome(error, outcome_unknown=record.sent_to_producer))
                self._remove_incomplete([record])

    def _claim_completion(self, record: PendingRecord) -> bool:
        """Return whether the caller has to complete the future.

        If a callback hangs, ``close`` completes the other futures in another thread.
        """
        with self._changed:
            is_first_claim, record.completion_claimed = not record.completion_claimed, True
            return is_first_claim

    def _remove_incomplete(self, records: Iterable[PendingRecord]) -> None:
        with self._changed:
            for record in records:
                self._incomplete.pop(record, None)
                self._buffered_bytes -= _memory_bytes(record)
            self._changed.notify_all()

    def _request_flush(self) -> None:
        """Send records without lingering until ``_flushes_in_progress`` is decremented again."""
        self._flushes_in_progress += 1
        if self._signal is not None:
            self._signal.set()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("The producer belongs to the parent process; create another one after the fork.")

    def _check_thread(self, method: str) -> None:
        if self.in_callback:
            raise RuntimeError(f"{method} cannot be called in a callback of a record: it would wait for itself.")


class _RecordFuture(Future[RecordMetadata]):
    """A future that cannot be cancelled, and cannot be waited for by the thread that completes it."""

    def __init__(
        self,
        async_producer: AsyncProducer,
        system: System,
        on_acknowledged: Callable[[RecordMetadata], None] | None,
    ) -> None:
        super().__init__()
        self._async_producer = async_producer
        self._system = system
        self._on_acknowledged = on_acknowledged

    def set_result(self, result: RecordMetadata) -> None:
        if self._on_acknowledged is not None:
            self._on_acknowledged(result)
        super().set_result(result)

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        self._check_not_own_thread()
        self._system.wait_for_future(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_not_own_thread()
        self._system.wait_for_future(self, timeout)
        return super().exception(0)

    def _check_not_own_thread(self) -> None:
        if not self.done() and self._async_producer.in_callback:
            raise RuntimeError(
                "A callback of a record cannot wait for another record of the same producer: it would wait for itself."
            )


def _memory_bytes(record: PendingRecord) -> int:
    return record.size_bound + _MEMORY_OVERHEAD
