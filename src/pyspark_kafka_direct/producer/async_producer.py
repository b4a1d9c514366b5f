"""Sends single records from any thread, and completes a future for each.

Guarantees:

- Each future is completed once: with ``RecordMetadata`` when the record is acknowledged, or with an error. Errors of
  the cluster are ``KafkaDirectError``; their message ends with whether the record may have been written.
- Records of one partition are written in the order in which each thread sent them. Records after a failed one are
  still written, in order.
- A record that is too large fails alone. If a broker rejects a record, all records of its batch fail. If a partition or
  topic does not exist or may not be written to, its records fail. Any other error fails all records that the current
  ``BatchProducer`` has; queued and later records are sent by another one.
- A future is completed at most ``delivery.timeout.ms`` after ``send`` has returned. If its record, or an earlier one of
  its partition, is in flight then, it is completed after the response, or after ``request.timeout.ms`` without one.
"""

from __future__ import annotations

import copy
import logging
import os
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError
from pyspark_kafka_direct.producer.accumulator import PendingRecord, RecordAccumulator, RecordMetadata
from pyspark_kafka_direct.producer.produce_errors import with_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.system import Condition, System, WakeupSignal
    from pyspark_kafka_direct.config.client_settings import ProducerSettings
    from pyspark_kafka_direct.producer.accumulator import DeliveryListener, DeliveryReport

__all__ = ["AsyncProducer", "RecordMetadata"]

_log = logging.getLogger("pyspark_kafka_direct.producer")

# Upper bounds of a record's overhead in a record batch, as in Java's client
# (AbstractRecords.estimateSizeInBytesUpperBound).
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 21
_MAX_VARINT_BYTES: Final = 5

# Memory of an incomplete record beside its contents, mostly for its future.
_MEMORY_OVERHEAD: Final = 1024

_MAX_TIMESTAMP: Final = (1 << 63) - 1

# The class's own __new__ is a Python function, which takes twice as long.
_new_metadata: Callable[[tuple[Any, ...]], RecordMetadata] = partial(tuple.__new__, RecordMetadata)

_FUTURE_ATTRIBUTES: Final = vars(Future())
_FUTURE_LISTS: Final = [name for name, value in _FUTURE_ATTRIBUTES.items() if isinstance(value, list)]
_FUTURE_VALUES: Final = {name: value for name, value in _FUTURE_ATTRIBUTES.items() if not isinstance(value, list)}

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
        self._sent_count = 0
        self._flushes_in_progress = 0  # calls that wait, so that records do not linger
        self._closed = False
        self._aborted = False
        self._signal: WakeupSignal | None = None  # wakes the background thread; None: it is not running
        self._thread_id: int | None = None  # of the background thread
        self._future_condition = self._system.condition()  # of all futures: one for each would take most time of a send
        self._callbacks: deque[Callable[[], None]] = deque()  # of completed records, to be called in this order
        self._callback_threads: list[int] = []  # other threads that call them

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        listener: DeliveryListener | None = None,
        context: object = None,  # the listener's
    ) -> Future[RecordMetadata]:
        """Send a record; wait only while incomplete records exceed ``buffer.memory``.

        Callbacks of the future run in the background thread, so they should be quick; they may send. Their exceptions
        are logged. In a callback, ``result`` of an incomplete future raises ``RuntimeError`` to prevent a deadlock. The
        future cannot be cancelled.
        """
        record = self._new_record(topic, key, value, headers, partition, timestamp)
        record.listener, record.context = listener, context
        future = record.future = _RecordFuture(self, self._system, self._future_condition)
        self._add(record)
        return future

    def send_with_callback(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        callback: Callable[[RecordMetadata | None, BaseException | None], None] | None,
        *,
        listener: DeliveryListener | None = None,
        context: object = None,  # the listener's
    ) -> None:
        """Send a record as ``send`` does; a callback with the metadata or the error costs less than a future."""
        record = self._new_record(topic, key, value)
        record.callback, record.listener, record.context = callback, listener, context
        self._add(record)

    @property
    def sent_count(self) -> int:
        """The number of records that were accepted."""
        return self._sent_count

    @property
    def completed_count(self) -> int:
        """The number of records before the first one that is not acknowledged or failed, with its callbacks run."""
        with self._changed:
            first = next(iter(self._incomplete), None)
            return self._sent_count if first is None else first.sequence

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
        if has_incomplete_records or self._callbacks:
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
        """Whether the caller is in a thread that runs callbacks of records."""
        thread_id = self._system.thread_id()
        return thread_id == self._thread_id or thread_id in self._callback_threads

    def _new_record(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> PendingRecord:
        """Validate the arguments, and return the record with an upper bound of its encoded size."""
        self._check_process()
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
        return PendingRecord(topic, key, value, headers, partition, timestamp, now, size_bound)

    def _add(self, record: PendingRecord) -> None:
        """Pass a record to the background thread, or fail it at once."""
        if record.size_bound > self._settings.max_request_bytes:
            error: KafkaDirectError | None
            error = RecordTooLargeError(
                f"The record has up to {record.size_bound} bytes, more than max.request.size "
                f"({self._settings.max_request_bytes}). To write such records, raise max.request.size, and "
                "max.message.bytes of the topic.",
                topic=record.topic,
                partition=record.partition,
            )
        else:
            with self._changed:
                error = self._wait_for_memory(record)
                if self._closed:
                    raise RuntimeError("The producer is closed.")
                if error is None:
                    signal = self._signal or self._start_thread()
                    # The wait for memory does not count, and so the records of a partition expire in their order.
                    record.created_at = self._system.monotonic()
                    record.sequence = self._sent_count
                    self._sent_count += 1
                    self._incomplete[record] = None
                    self._buffered_bytes += record.size_bound + _MEMORY_OVERHEAD
                    self._new_records.append(record)
                    if len(self._new_records) == 1:
                        signal.set()
                    return
        failure = with_outcome(error, outcome_unknown=False)
        if record.future is not None:
            record.future.set_exception(failure)
        if record.callback is not None:
            with self._calls_callbacks():
                _call(partial(record.callback, None, failure))

    def _wait_for_memory(self, record: PendingRecord) -> KafkaDirectError | None:
        """Wait until ``buffer.memory`` has space for a record; return a timeout error if it stays full."""
        # A record larger than the buffer waits until it is empty.
        limit = max(self._settings.buffer_bytes - record.size_bound - _MEMORY_OVERHEAD, 0)
        if self._buffered_bytes <= limit or self.in_callback:
            return None  # a callback cannot wait for its own thread
        ends_at = self._system.monotonic() + self._settings.delivery_timeout_ms / 1000
        self._request_flush()
        try:
            while self._buffered_bytes > limit and not self._closed:
                remaining = ends_at - self._system.monotonic()
                if remaining <= 0:
                    return BrokerTimeoutError(
                        f"Unacknowledged records exceeded buffer.memory ({self._settings.buffer_bytes} bytes) for "
                        f"{self._settings.delivery_timeout_ms / 1000:g} s (delivery.timeout.ms). Raise buffer.memory, "
                        "or send more slowly.",
                        topic=record.topic,
                        partition=record.partition,
                    )
                self._system.wait(self._changed, remaining)
        finally:
            self._flushes_in_progress -= 1
        return None

    def _start_thread(self) -> WakeupSignal:
        signal = self._system.wakeup_signal()
        try:
            self._system.start_thread(lambda: self._run(signal), "pyspark-kafka-direct-producer")
        except BaseException:
            signal.close()
            raise
        self._signal = signal
        return signal

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
        """Complete a report's records."""
        records, error = report.records, report.error
        listeners = {record.listener for record in records if record.listener is not None}
        if error is None:
            for listener in listeners:
                _call(partial(listener.on_acknowledged, report))
        claimed_records = self._claim(records)
        if error is not None:
            for record in claimed_records:
                self._complete(record, None, error)
        else:
            claimed = set(claimed_records)
            topic, partition = records[0].topic, records[0].partition
            for offset, record in report.with_offsets():
                if record in claimed and (record.future is not None or record.callback is not None):
                    timestamp = record.timestamp if report.append_time == -1 else report.append_time
                    metadata = (topic, partition, offset, timestamp, report.topic_id, report.leader_epoch)
                    self._complete(record, _new_metadata(metadata), None)
        self._run_callbacks()
        self._remove_incomplete(claimed_records)
        for listener in listeners:
            _call(listener.on_completed)

    def _complete(self, record: PendingRecord, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Complete a record's future; ``_run_callbacks`` then calls the callbacks."""
        future, callback = record.future, record.callback
        if isinstance(error, KafkaDirectError):
            # Each record gets a copy, because an exception that is raised repeatedly accumulates tracebacks.
            cause, error = error.__cause__, copy.copy(error)
            error.__cause__ = cause
        if future is not None:
            if metadata is not None:
                future.set_result(metadata)
            else:
                future.set_exception(error)
        if callback is not None:
            self._callbacks.append(partial(callback, metadata, error))

    def _run_callbacks(self) -> None:
        """Call the callbacks of completed records; if one hangs, another thread calls those after it."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            _call(callback)

    @contextmanager
    def _calls_callbacks(self) -> Iterator[None]:
        """Let ``in_callback`` be true in this thread."""
        self._callback_threads.append(self._system.thread_id())
        try:
            yield
        finally:
            self._callback_threads.remove(self._system.thread_id())

    def defer_callbacks(self, call: Callable[[], None]) -> None:
        """Let ``_run_callbacks`` call the callbacks of a future."""
        self._callbacks.append(call)

    def _fail_all(self, message: str) -> None:
        """Fail all incomplete records."""
        with self._changed:
            incomplete_records = list(self._incomplete)
        claimed_records = self._claim(incomplete_records)
        for record in claimed_records:
            error = BrokerTimeoutError(message, topic=record.topic, partition=record.partition)
            self._complete(record, None, with_outcome(error, outcome_unknown=record.sent_to_producer))
        with self._calls_callbacks():
            self._run_callbacks()
        self._remove_incomplete(claimed_records)
        for listener in {record.listener for record in claimed_records if record.listener is not None}:
            _call(listener.on_completed)

    def _claim(self, records: Sequence[PendingRecord]) -> list[PendingRecord]:
        """Return the records that the caller has to complete: ``close`` may fail records in another thread."""
        with self._changed:
            claimed_records = [record for record in records if not record.completion_claimed]
            for record in claimed_records:
                record.completion_claimed = True
        return claimed_records

    def _remove_incomplete(self, records: Collection[PendingRecord]) -> None:
        with self._changed:
            for record in records:
                self._incomplete.pop(record, None)
                self._buffered_bytes -= record.size_bound + _MEMORY_OVERHEAD
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

    _done_callbacks: list[Callable[[Future[RecordMetadata]], object]]

    def __init__(self, async_producer: AsyncProducer, system: System, condition: Condition) -> None:
        # The constructor of the base class makes a condition, which costs more than all the rest of a send.
        attributes = self.__dict__
        attributes.update(_FUTURE_VALUES)
        for name in _FUTURE_LISTS:
            attributes[name] = []
        self._condition = condition  # type: ignore[assignment]
        self._async_producer = async_producer
        self._system = system

    def _invoke_callbacks(self) -> None:  # the base class calls it when the result is set
        if self._done_callbacks:
            self._async_producer.defer_callbacks(super()._invoke_callbacks)  # type: ignore[misc]

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


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except BaseException:  # an Exception of a future's callback is logged by the future itself
        _log.exception("A callback or a listener of a record failed.")
