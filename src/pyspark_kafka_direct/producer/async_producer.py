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
import weakref
from collections import deque
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError
from pyspark_kafka_direct.producer.accumulator import PendingRecord, RecordAccumulator
from pyspark_kafka_direct.producer.produce_errors import with_outcome
from pyspark_kafka_direct.producer.record_future import FutureGroup, RecordFuture, RecordMetadata, WrittenBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.system import WakeupSignal
    from pyspark_kafka_direct.options.settings import ProducerSettings
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

_EXIT_SECONDS: Final = 2.0  # that the exit of the process waits at most for the background thread

_CALLBACK_GRACE_SECONDS: Final = 0.2  # seconds after the timeout of `close` for callbacks of records that it fails


class AsyncProducer:
    """Sends single records from any thread in a background thread.

    Close it: the background thread is a daemon, so incomplete records are lost when the process exits, with a warning.
    """

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings, *, linger: float = 0.0) -> None:
        self._cluster = cluster
        self._settings = settings
        self._linger = linger
        self._system = cluster.pool.system
        self._pid = os.getpid()
        self._monotonic, self._wall_time = self._system.monotonic, self._system.wall_time
        self._lock = self._system.reentrant_lock()  # guards the attributes below; faster than the condition
        self._changed = self._system.condition(self._lock)
        self._new_records: list[PendingRecord] = []
        self._incomplete: dict[int, PendingRecord] = {}  # by sequence, in the order of their sends
        self._buffered_bytes = 0
        self._sent_count = 0
        self._completed_count = 0  # see `completed_count`
        self._flushes_in_progress = 0  # calls that wait, so that records do not linger
        self._closed = False
        self._aborted = False
        self._signal: WakeupSignal | None = None  # wakes the background thread; None: it is not running
        self._thread_id: int | None = None  # of the background thread
        self._futures = FutureGroup(self._system, lambda: self.in_callback)
        self._callbacks: deque[tuple[Callable[[], None], _Completion]] = deque()  # in the order of the calls
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
        future = RecordFuture(self._futures)
        self._add(
            self._new_record(
                topic,
                key=key,
                value=value,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                future=future,
                listener=listener,
                context=context,
            )
        )
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
        self._add(self._new_record(topic, key=key, value=value, callback=callback, listener=listener, context=context))

    @property
    def sent_count(self) -> int:
        """The number of records that were accepted."""
        return self._sent_count

    @property
    def completed_count(self) -> int:
        """The number of records before the first one that is not acknowledged or failed, with its callbacks run."""
        return self._completed_count

    def flush(self, seconds: float | None = None) -> None:
        """Wait until the futures of all records sent before are completed, and their callbacks have run."""
        self._check_process()
        with self._changed:
            self._check_thread("flush")
            ends_at = None if seconds is None else self._system.monotonic() + seconds
            sent_count = self._sent_count
            self._request_flush()
            try:
                while self._completed_count < sent_count:
                    remaining = None if ends_at is None else ends_at - self._system.monotonic()
                    if remaining is not None and remaining <= 0:
                        pending_count = sum(sequence < sent_count for sequence in self._incomplete)
                        raise BrokerTimeoutError(
                            f"{pending_count} records were not acknowledged within {seconds:g} s. They are still being "
                            "sent."
                        )
                    self._system.wait(self._changed, remaining)
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
            self._wait_for_thread(ends_at)
            self._aborted = True
            self._request_flush()  # wakes the thread, which ends although records are incomplete
            has_incomplete_records = any(not record.completion_claimed for record in self._incomplete.values())
        if has_incomplete_records or self._callbacks:  # callbacks remain if one of them hangs
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
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        future: RecordFuture | None = None,
        callback: Callable[[RecordMetadata | None, BaseException | None], None] | None = None,
        listener: DeliveryListener | None,
        context: object,
    ) -> PendingRecord:
        """Validate the arguments, and return the record with an upper bound of its encoded size."""
        if self._pid != os.getpid():  # `_check_process` raises the error; to call it for each record would take longer
            self._check_process()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, got {type(topic).__name__}")
        if not topic:
            raise ValueError("topic must not be empty")
        size_bound = _BATCH_OVERHEAD + _RECORD_OVERHEAD
        if key is not None:
            if not isinstance(key, bytes):
                raise TypeError(_not_bytes("key", key))
            size_bound += len(key)
        if value is not None:
            if not isinstance(value, bytes):
                raise TypeError(_not_bytes("value", value))
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
            timestamp = int(self._wall_time() * 1000)
        elif not 0 <= timestamp <= _MAX_TIMESTAMP:
            raise ValueError(f"timestamp must be from 0 to {_MAX_TIMESTAMP}, got {timestamp}")
        return PendingRecord(
            topic,
            key,
            value,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            created_at=0.0,  # `_add` sets it
            size_bound=size_bound,
            future=future,
            callback=callback,
            listener=listener,
            context=context,
        )

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
            size = record.size_bound + _MEMORY_OVERHEAD
            with self._lock:
                # A record larger than the buffer waits until it is empty.
                is_full = self._buffered_bytes + size > self._settings.buffer_bytes and self._buffered_bytes > 0
                error = self._wait_for_memory(record) if is_full else None
                if self._closed:
                    raise RuntimeError("The producer is closed.")
                if error is None:
                    signal = self._signal or self._start_thread()
                    # The wait for memory does not count, and so the records of a partition expire in their order.
                    record.created_at = self._monotonic()
                    record.sequence = self._sent_count
                    self._incomplete[self._sent_count] = record
                    self._sent_count += 1
                    self._buffered_bytes += size
                    self._new_records.append(record)
                    if len(self._new_records) == 1:  # otherwise the thread was woken, and has not taken them yet
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
        if self.in_callback:
            return None  # it may exceed the memory, because it cannot wait for its own thread
        limit = max(self._settings.buffer_bytes - record.size_bound - _MEMORY_OVERHEAD, 0)
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
        # The thread refers to the producer, so this is called at the exit of the process.
        self._system.finalize(self, _end_at_exit, weakref.ref(self))
        return signal

    def _run(self, signal: WakeupSignal) -> None:
        self._thread_id = self._system.thread_id()
        accumulator = RecordAccumulator(
            self._cluster, self._settings, self._on_delivery, self._mark_incomplete_as_sent, self._linger
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

    def _mark_incomplete_as_sent(self, records: Sequence[PendingRecord]) -> list[PendingRecord]:
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
            callbacks = self._fail(claimed_records, repeat(error))
        elif len(claimed_records) == len(records):
            callbacks = self._acknowledge(report, report.with_offsets())
        else:  # `close` has failed the others
            claimed = set(claimed_records)
            callbacks = self._acknowledge(report, (pair for pair in report.with_offsets() if pair[1] in claimed))
        self._add_callbacks(claimed_records, callbacks)
        self._run_callbacks()

    def _acknowledge(
        self, report: DeliveryReport, offsets: Iterable[tuple[int, PendingRecord]]
    ) -> list[Callable[[], None]]:
        """Complete records with their metadata, and return the callbacks to be called."""
        first = report.records[0]
        batch = WrittenBatch(first.topic, first.partition, report.topic_id, report.leader_epoch)
        append_time = report.append_time
        callbacks: list[Callable[[], None]] = []
        with self._futures.condition:
            for offset, record in offsets:
                future, callback = record.future, record.callback
                timestamp = record.timestamp if append_time == -1 else append_time
                if future is not None:
                    future.acknowledge(batch, offset, timestamp)
                    if future.is_observed:
                        callbacks.append(future.call_callbacks)
                elif callback is not None:
                    callbacks.append(partial(callback, batch.metadata(offset, timestamp), None))
            self._futures.condition.notify_all()
        return callbacks

    def _fail(self, records: Sequence[PendingRecord], errors: Iterable[BaseException]) -> list[Callable[[], None]]:
        """Complete records with errors, and return the callbacks to be called."""
        callbacks: list[Callable[[], None]] = []
        for record, error in zip(records, errors, strict=False):
            if isinstance(error, KafkaDirectError):
                # Each record gets a copy, because an exception that is raised repeatedly accumulates tracebacks.
                cause, error = error.__cause__, copy.copy(error)
                error.__cause__ = cause
            if record.future is not None:
                record.future.set_exception(error)
                callbacks.append(record.future.call_callbacks)
            if record.callback is not None:
                callbacks.append(partial(record.callback, None, error))
        return callbacks

    def _add_callbacks(self, records: Sequence[PendingRecord], callbacks: Sequence[Callable[[], None]]) -> None:
        """Let ``_run_callbacks`` call the callbacks of completed records, and then count the records as completed."""
        completion = _Completion(records, list(range(len(callbacks) + 1)))
        self._callbacks.extend([(each, completion) for each in (*callbacks, _nothing)])

    def _run_callbacks(self) -> None:
        """Call the callbacks of completed records; if one hangs, another thread calls those after it."""
        while self._callbacks:
            try:
                callback, completion = self._callbacks.popleft()
            except IndexError:
                return
            _call(callback)
            if completion.uncalled.pop() == 0:  # the last one, also if several threads call them
                self._forget_completed(completion.records)
                for listener in {record.listener for record in completion.records if record.listener is not None}:
                    _call(listener.on_completed)

    @contextmanager
    def _calls_callbacks(self) -> Iterator[None]:
        """Let ``in_callback`` be true in this thread."""
        self._callback_threads.append(self._system.thread_id())
        try:
            yield
        finally:
            self._callback_threads.remove(self._system.thread_id())

    def _fail_all(self, message: str) -> None:
        """Fail all incomplete records."""
        with self._changed:
            incomplete_records = list(self._incomplete.values())
        claimed_records = self._claim(incomplete_records)
        errors = [
            with_outcome(
                BrokerTimeoutError(message, topic=record.topic, partition=record.partition),
                outcome_unknown=record.sent_to_producer,
            )
            for record in claimed_records
        ]
        self._add_callbacks(claimed_records, self._fail(claimed_records, errors))
        with self._calls_callbacks():
            self._run_callbacks()

    def _claim(self, records: Sequence[PendingRecord]) -> list[PendingRecord]:
        """Return the records that the caller has to complete: ``close`` may fail records in another thread."""
        with self._changed:
            claimed_records = [record for record in records if not record.completion_claimed]
            for record in claimed_records:
                record.completion_claimed = True
        return claimed_records

    def _forget_completed(self, records: Collection[PendingRecord]) -> None:
        """Count records as completed, and release the memory that they occupy in the buffer."""
        size = sum(record.size_bound for record in records) + len(records) * _MEMORY_OVERHEAD
        with self._changed:
            for record in records:
                del self._incomplete[record.sequence]
            while self._completed_count < self._sent_count and self._completed_count not in self._incomplete:
                self._completed_count += 1
            self._buffered_bytes -= size
            self._changed.notify_all()

    def _request_flush(self) -> None:
        """Send records without lingering until the caller decrements ``_flushes_in_progress``; ``close`` never does."""
        self._flushes_in_progress += 1
        if self._signal is not None:
            self._signal.set()

    def _wait_for_thread(self, ends_at: float) -> None:
        """Wait with the lock until the background thread has ended, or until a time."""
        while self._signal is not None and (remaining := ends_at - self._system.monotonic()) > 0:
            self._system.wait(self._changed, remaining)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("The producer belongs to the parent process; create another one after the fork.")

    def _check_thread(self, method: str) -> None:
        if self.in_callback:
            raise RuntimeError(f"{method} cannot be called in a callback of a record: it would wait for itself.")


class _Completion(NamedTuple):
    records: Sequence[PendingRecord]  # which count as completed once all callbacks have returned
    uncalled: list[int]  # of n callbacks, from 0 to n - 1; its ``pop`` is atomic


def _nothing() -> None:
    """Stand for the callback after the last one, so that records without callbacks are counted, too."""


def _end_at_exit(reference: weakref.ref[AsyncProducer]) -> None:
    """Warn at the exit of the process of records that may be lost, and end the thread.

    Before version 3.14, Python ends threads at the exit by unwinding their stack, at any place in their code.
    """
    producer = reference()
    if producer is None or producer._pid != os.getpid():
        return
    with producer._changed:
        topics = {record.topic for record in producer._incomplete.values()}
        count = len(producer._incomplete)
        if not producer.in_callback:
            producer._aborted = True
            producer._request_flush()
            producer._wait_for_thread(producer._monotonic() + _EXIT_SECONDS)
    if count:
        _log.warning(
            "The process ends although the brokers have not acknowledged %d records of %s, which may be lost. Call "
            "flush() or stop() before, or wait for the futures.",
            count,
            ", ".join(sorted(topics)),
        )


def _not_bytes(name: str, given: object) -> str:
    return f"{name} must be bytes or None, got {type(given).__name__}: encode it, or set {name}_serde of a KafkaTable"


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except BaseException:  # an Exception of a future's callback is logged by the future itself
        _log.exception("A callback or a listener of a record failed.")
