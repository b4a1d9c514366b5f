"""Single records with receipts, from any thread.

What is promised:

- Each record's future is done once: with a ``Receipt`` when the record is acknowledged, or with an error. Errors of the
  cluster are a ``KafkaDirectError`` whose message ends with whether the record may have been written, or was not.
- Records of one partition are written in the order in which each thread sent them. One that fails is left out; those
  behind it are written all the same, and in their order.
- A record fails alone where it alone is wrong: it is too large, or the broker refuses it. The broker's verdict is on a
  record batch, so with a record that it refuses all fail that share its batch; it takes none of them. Where a partition
  or a topic is gone, or may not be written to, the records of that one fail. After any other error all fail that a
  producer has; those that still wait for their turn, and all that come later, go to another one.
- A record is settled ``delivery.timeout.ms`` after it was sent, or when the request that it is in then has its answer,
  or has waited ``request.timeout.ms`` for it.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError
from pyspark_kafka_direct.writing._dispatch import Dispatcher, Outgoing, Receipt
from pyspark_kafka_direct.writing._verdicts import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.system import Signal
    from pyspark_kafka_direct.writing._dispatch import Settled

__all__ = ["Outbox", "Receipt"]

_log = logging.getLogger("pyspark_kafka_direct.writing")

# What a record takes at most beside its contents, in a record batch: as Java's client counts before it sends
# (AbstractRecords.estimateSizeInBytesUpperBound).
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 21
_LENGTH: Final = 5

# What a record takes in this process while it waits: its future above all.
_IN_MEMORY: Final = 2048

_LARGEST_TIME: Final = (1 << 63) - 1

_LAST_WORDS: Final = 0.2  # seconds that callbacks of records that a close gives up may take after its time


class Outbox:
    """Takes single records from any thread; a thread of its own sends them.

    Close it: the thread does not keep the process alive, and what waits when that ends is lost.

    Args:
        cluster: Where to.
        settings: How. What waits takes ``buffer.memory`` at most; each record counts 2 KiB more than its contents.
        linger: For how many seconds records wait for company; with 0 they do so only while others are under way.
    """

    def __init__(self, cluster: Cluster, settings: ProduceSettings, *, linger: float = 0.0) -> None:
        self._cluster = cluster
        self._settings = settings
        self._linger = linger
        self._system = cluster.pool.system
        self._process = os.getpid()
        self._changed = threading.Condition()  # guards what follows
        self._new: list[Outgoing] = []
        self._unsettled: set[Outgoing] = set()
        self._held = 0
        self._hurried = 0  # how many wait for what was sent
        self._closed = False
        self._abandoned = False
        self._signal: Signal | None = None
        self._thread: int | None = None

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_receipt: Callable[[Receipt], None] | None = None,
    ) -> Future[Receipt]:
        """Send a record; wait only while what waits takes more than ``buffer.memory``.

        Callbacks of the future run in the outbox' thread, so they should be quick; they may send. What one raises is
        logged. There, ``result`` of a future that is not done raises ``RuntimeError`` instead of waiting for itself.
        The future cannot be cancelled.

        Args:
            topic: Its topic.
            key: Its key.
            value: Its value; ``None`` is a tombstone.
            headers: Its headers.
            partition: Its partition; ``None`` leaves the choice to the key, as Java's client does. Without a key
                records go where the one before went until a record batch is full.
            timestamp: Its timestamp, in milliseconds since 1970; ``None``: now.
            on_receipt: Is given the receipt, in the outbox' thread, before anybody else has it.

        Raises:
            TypeError: An argument has another type.
            ValueError: The topic has no name, or a number is out of its range.
            RuntimeError: The outbox is closed, or belongs to the parent process.
        """
        self._check_process()
        future = _Promise(self, on_receipt)
        record = self._record(topic, key, value, headers, partition, timestamp, future)
        if record.size > self._settings.max_request_bytes:
            error = RecordTooLargeError(
                f"The record takes up to {record.size} bytes, more than the {self._settings.max_request_bytes} of "
                "max.request.size. If such records are meant to be written, raise it, and max.message.bytes of the "
                "topic.",
                topic=topic,
                partition=partition,
            )
            future.set_exception(outcome(error, in_doubt=False))
            return future
        with self._changed:
            error_of_waiting = self._wait_for_room(record)
            if self._closed:
                raise RuntimeError("the outbox is closed")
            if error_of_waiting is None:
                signal = self._start()
                self._unsettled.add(record)
                self._held += _cost(record)
                self._new.append(record)
                if len(self._new) == 1:
                    signal.give()
        if error_of_waiting is not None:
            future.set_exception(error_of_waiting)
        return future

    def flush(self, seconds: float | None = None) -> None:
        """Wait until all that was sent before is settled, well or not, and the callbacks have run.

        Args:
            seconds: How long at most; ``None``: until it is, which ``delivery.timeout.ms`` limits.

        Raises:
            BrokerTimeoutError: It took longer. The records are still on their way.
            RuntimeError: A callback of a record waits for itself, or the outbox belongs to the parent process.
        """
        self._check_process()
        with self._changed:
            self._check_thread("flush")
            end = None if seconds is None else self._system.monotonic() + seconds
            pending = set(self._unsettled)
            self._hurry()
            try:
                while pending:
                    left = None if end is None else end - self._system.monotonic()
                    if left is not None and left <= 0:
                        raise BrokerTimeoutError(
                            f"{len(pending)} records were not acknowledged within {seconds:g} s; they are still on "
                            "their way."
                        )
                    self._system.wait(self._changed, left)
                    pending &= self._unsettled
            finally:
                self._hurried -= 1

    def close(self, seconds: float) -> None:
        """Take no more records, and wait until all are settled; what is not by then fails, and the thread ends.

        Args:
            seconds: How long at most, whatever callbacks do.

        Raises:
            RuntimeError: A callback of a record waits for itself (``finish`` does not), or the outbox belongs to the
                parent process.
        """
        self._check_process()
        with self._changed:
            self._check_thread("close")
            self._closed = True
            end = self._system.monotonic() + seconds
            self._hurry()
            while self._signal is not None and (wait := end - self._system.monotonic()) > 0:
                self._system.wait(self._changed, wait)
            self._abandoned = True
            self._hurry()
            left = any(not each.claimed for each in self._unsettled)
        if left:  # by a thread of its own, as their callbacks may hang
            why = f"The outbox was closed, and the record was not acknowledged within {seconds:g} s."
            patience = max(end - self._system.monotonic(), _LAST_WORDS)
            self._system.run(lambda: self._fail_all(why), "pyspark-kafka-direct-outbox-end", patience)

    def finish(self) -> None:
        """Take no more records, and wait for nothing: the thread ends when all are settled.

        Raises:
            RuntimeError: The outbox belongs to the parent process.
        """
        self._check_process()
        with self._changed:
            self._closed = True
            self._hurry()

    @property
    def in_callback(self) -> bool:
        """Whether the caller is the outbox' thread, as callbacks of futures are."""
        return self._thread == threading.get_ident()

    def _record(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp: int | None,
        future: Future[Receipt],
    ) -> Outgoing:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a text, got {type(topic).__name__}")
        if not topic:
            raise ValueError("topic must not be empty")
        size = _BATCH_OVERHEAD + _RECORD_OVERHEAD
        if key is not None:
            if not isinstance(key, bytes):
                raise TypeError(f"key must be bytes or None, got {type(key).__name__}")
            size += len(key)
        if value is not None:
            if not isinstance(value, bytes):
                raise TypeError(f"value must be bytes or None, got {type(value).__name__}")
            size += len(value)
        if headers:
            headers = tuple(headers)
            for name, content in headers:
                if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
                    raise TypeError("headers must be pairs of a text and bytes or None")
                size += 2 * _LENGTH + len(name.encode()) + len(content or b"")
        if partition is not None and not 0 <= partition < 1 << 31:
            raise ValueError(f"partition must be from 0 to 2147483647, got {partition}")
        if timestamp is None:
            timestamp = int(self._system.wall_time() * 1000)
        elif not 0 <= timestamp <= _LARGEST_TIME:
            raise ValueError(f"timestamp must be from 0 to {_LARGEST_TIME}, got {timestamp}")
        now = self._system.monotonic()
        return Outgoing(topic, key, value, headers, partition, timestamp, now, size, future)

    def _wait_for_room(self, record: Outgoing) -> BaseException | None:
        """Wait until there is room for a record; return the error if there is none in time."""
        room = self._settings.buffer_bytes - _cost(record)
        if self._held <= max(room, 0) or self.in_callback:
            return None  # a larger one goes alone; a callback cannot wait for its own thread
        end = self._system.monotonic() + self._settings.delivery_timeout_ms / 1000
        self._hurry()
        try:
            while self._held > max(room, 0) and not self._closed:
                left = end - self._system.monotonic()
                if left <= 0:
                    error = BrokerTimeoutError(
                        f"What waits took more than the {self._settings.buffer_bytes} bytes of buffer.memory for "
                        f"{self._settings.delivery_timeout_ms / 1000:g} s (delivery.timeout.ms).",
                        topic=record.topic,
                        partition=record.partition,
                    )
                    return outcome(error, in_doubt=False)
                self._system.wait(self._changed, left)
        finally:
            self._hurried -= 1
        return None

    def _start(self) -> Signal:
        if self._signal is None:
            signal = self._system.signal()
            try:
                self._system.start(lambda: self._run(signal), "pyspark-kafka-direct-outbox")
            except BaseException:
                signal.close()
                raise
            self._signal = signal
        return self._signal

    def _run(self, signal: Signal) -> None:
        self._thread = threading.get_ident()
        dispatcher = Dispatcher(self._cluster, self._settings, self._settle, self._claim, self._linger)
        try:
            while True:
                signal.take()
                with self._changed:
                    if self._abandoned or (self._closed and not self._unsettled):
                        break
                    new, self._new = self._new, []
                    hurry = self._hurried > 0 or self._closed
                dispatcher.take(new, hurry=hurry)
                dispatcher.work([signal.fileno()])
        except BaseException:
            _log.exception("The thread that sends records has ended; nothing more can be sent.")
        finally:
            dispatcher.close()
            with self._changed:
                self._closed = True
                self._signal = None
                self._changed.notify_all()
            self._fail_all("The outbox has ended.")
            self._thread = None  # another thread may get the same number
            signal.close()

    def _claim(self, records: Sequence[Outgoing]) -> list[Outgoing]:
        """Return the records that nobody has given up, as they are handed to a producer."""
        with self._changed:
            wanted = [each for each in records if not each.claimed]
            for each in wanted:
                each.handed_over = True
        return wanted

    def _settle(self, settled: Settled) -> None:
        """Give futures their outcome."""
        told = []
        for place, record in enumerate(settled.records):
            if not self._take(record):
                continue
            told.append(record)
            if settled.error is not None:
                self._fail(record, settled.error)
                continue
            assert record.partition is not None
            offset = -1 if settled.offset == -1 else settled.offset + place
            timestamp = record.timestamp if settled.append_time == -1 else settled.append_time
            try:
                record.future.set_result(Receipt(record.topic, record.partition, offset, timestamp))
            except BaseException:  # the future itself logs an Exception
                _log.exception("A callback of a record's future has failed.")
        self._done(told)

    def _fail(self, record: Outgoing, error: BaseException) -> None:
        if isinstance(error, KafkaDirectError):
            # Each has its own, as what is raised several times gathers tracebacks.
            cause, error = error.__cause__, copy.copy(error)
            error.__cause__ = cause
        try:
            record.future.set_exception(error)
        except BaseException:
            _log.exception("A callback of a record's future has failed.")

    def _fail_all(self, why: str) -> None:
        """Fail all that nobody settles any more."""
        with self._changed:
            left = sorted(self._unsettled, key=lambda each: each.since)
        for record in left:
            if self._take(record):
                error = BrokerTimeoutError(why, topic=record.topic, partition=record.partition)
                self._fail(record, outcome(error, in_doubt=record.handed_over))
                self._done([record])

    def _take(self, record: Outgoing) -> bool:
        """Tell whether the caller is to settle a record: one at a time, as a callback may hang, and others go on."""
        with self._changed:
            mine, record.claimed = not record.claimed, True
            return mine

    def _done(self, records: Iterable[Outgoing]) -> None:
        with self._changed:
            for each in records:
                self._unsettled.discard(each)
                self._held -= _cost(each)
            self._changed.notify_all()

    def _hurry(self) -> None:
        self._hurried += 1
        if self._signal is not None:
            self._signal.give()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("the outbox belongs to the parent process")

    def _check_thread(self, what: str) -> None:
        if self.in_callback:
            raise RuntimeError(f"{what} within a callback of a record would wait for itself")


class _Promise(Future[Receipt]):
    """A future that is not cancelled, as what is sent is sent, and not waited for by the thread that settles it."""

    def __init__(self, outbox: Outbox, on_receipt: Callable[[Receipt], None] | None) -> None:
        super().__init__()
        self._outbox = outbox
        self._on_receipt = on_receipt

    def set_result(self, result: Receipt) -> None:
        if self._on_receipt is not None:
            self._on_receipt(result)
        super().set_result(result)

    def cancel(self) -> bool:
        """Return that it cannot be."""
        return False

    def result(self, timeout: float | None = None) -> Receipt:
        self._refuse_own_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._refuse_own_thread()
        return super().exception(timeout)

    def _refuse_own_thread(self) -> None:
        if not self.done() and self._outbox.in_callback:
            raise RuntimeError("a callback of a record waits for another record of the same outbox, and so for itself")


def _cost(record: Outgoing) -> int:
    return record.size + _IN_MEMORY
