"""The reads of a log that are pending: to its end, or past given offsets.

All reads to the end that were requested before the end offsets are fetched wait for these; later ones wait for the
next fetch. A read is not activated before all records that its log sent earlier are completed (acknowledged or
failed), so that the end offsets include them.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.log.log_state import LogState, all_reached
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

    Offsets: TypeAlias = Mapping[TopicPartition, int]
    """The next offset to read of each partition."""

_log = logging.getLogger("pyspark_kafka_direct.log")


class LogFuture(Future[None]):
    """The future of a pending read. Callbacks run in the log's thread. It cannot be cancelled.

    A read to the end is dropped if its future was garbage-collected and has no callback.
    """

    def __init__(self, is_own_thread: Callable[[], bool], system: System) -> None:
        super().__init__()
        self._system = system
        self._is_own_thread = is_own_thread
        self.retained: list[LogFuture] = []  # itself, if it has a callback: the pending read then keeps it alive
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> None:
        """Wait for the read; a callback of the same log must not."""
        self._check_not_own_thread()
        self._system.wait_for_future(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``result`` does and return the error, if any."""
        self._check_not_own_thread()
        self._system.wait_for_future(self, timeout)
        return super().exception(0)

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        if not self.done():
            self.retained.append(self)
        super().add_done_callback(fn)

    def complete(self, error: BaseException | None) -> None:
        """Set the outcome, unless it is set."""
        try:
            if error is None:
                self.set_result(None)
            else:
                self.set_exception(error)
        except InvalidStateError:
            return
        except BaseException:  # the future logs an Exception itself; sys.exit() in a callback must not end the log
            _log.exception("a callback of a future of the log raised an error")
        finally:
            self.retained.clear()

    def _check_not_own_thread(self) -> None:
        if not self.done() and self._is_own_thread():  # the thread that would complete it
            raise IllegalLogStateError(
                "A callback of a log waits for the same log, which cannot continue before the callback returns. Use "
                "add_done_callback, or wait in another thread."
            )


class _ReadToEnd:
    """A read to the end; it does not retain its future, which may be dropped."""

    __slots__ = ("_future", "_retained", "sent_count")

    def __init__(self, future: LogFuture, sent_count: int) -> None:
        self._future = weakref.ref(future)
        self._retained = future.retained
        self.sent_count = sent_count  # records that the log had sent when the read was requested

    @property
    def future(self) -> LogFuture | None:
        return self._future()


@dataclass(frozen=True, slots=True, eq=False)
class _ReadPastOffsets:
    future: LogFuture
    offsets: Offsets
    record: RecordMetadata | None  # whose leader, or a later one, has to confirm what was read

    def is_done(self, state: LogState) -> bool:
        record = self.record
        return all_reached(self.offsets, state.positions) and (
            record is None
            or state.is_confirmed(TopicPartition(record.topic, record.partition), record.topic_id, record.leader_epoch)
        )


class PendingReads:
    """The pending reads of a log: any thread adds them, and the log's thread activates and completes them."""

    def __init__(self, system: System) -> None:
        self._lock = system.lock()
        self._queued_reads: list[_ReadToEnd] = []
        self._active_reads: list[_ReadToEnd] = []
        self._reads_past_offsets: list[_ReadPastOffsets] = []
        self._completions: deque[tuple[LogFuture, BaseException | None]] = deque()
        self.ends: Offsets | None = None  # what active reads wait for; None: to be fetched

    def add_read_to_end(self, future: LogFuture, sent_count: int = 0) -> None:
        """Add a read that waits for the first ``sent_count`` records to complete, then for the end of the log."""
        with self._lock:
            self._drop_abandoned_reads()
            self._queued_reads.append(_ReadToEnd(future, sent_count))

    def add_read_past(self, future: LogFuture, offsets: Offsets, record: RecordMetadata | None = None) -> None:
        """Add a read that is done when the position of each partition has reached its offset.

        If the offsets are those of a record, its leader or a later one has to confirm that they are of the same log.
        """
        with self._lock:
            self._reads_past_offsets.append(_ReadPastOffsets(future, dict(offsets), record))

    def remove(self, future: LogFuture) -> None:
        """Remove the read of a caller that no longer waits, if it is still pending."""
        with self._lock:
            self._queued_reads = [read for read in self._queued_reads if read.future is not future]
            self._active_reads = [read for read in self._active_reads if read.future is not future]
            self._reads_past_offsets = [read for read in self._reads_past_offsets if read.future is not future]

    @property
    def has_pending(self) -> bool:
        reads = [*self._queued_reads, *self._active_reads]
        return bool(self._reads_past_offsets) or any(read.future is not None for read in reads)

    @property
    def has_unfinished(self) -> bool:
        """Whether a read is pending, or is about to complete."""
        return bool(self._completions) or self.has_pending

    @property
    def has_queued(self) -> bool:
        """Whether a read waits for its activation."""
        return bool(self._queued_reads)

    def can_activate(self, completed_count: int) -> bool:
        with self._lock:
            return any(read.sent_count <= completed_count for read in self._queued_reads)

    def activate(self, completed_count: int) -> bool:
        """Activate queued reads, unless active ones wait for known ends; return whether ends have to be fetched."""
        with self._lock:
            if self.ends is not None:
                return False
            self._drop_abandoned_reads()
            self._active_reads += [read for read in self._queued_reads if read.sent_count <= completed_count]
            self._queued_reads = [read for read in self._queued_reads if read.sent_count > completed_count]
            return bool(self._active_reads)

    def set_ends(self, ends: Offsets) -> None:
        """Let active reads wait for these offsets."""
        with self._lock:
            self.ends = ends

    def unreached_offsets(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Return the highest offset that pending reads wait for, of each partition that has not reached it.

        A thread whose ``start`` timed out calls it too, while the log's thread completes the reads.
        """
        with self._lock:
            targets = [read.offsets for read in self._reads_past_offsets]
            targets += [] if self.ends is None else [self.ends]
        unreached: dict[TopicPartition, int] = {}
        for offsets in targets:
            for partition, offset in offsets.items():
                if positions.get(partition, 0) < offset:
                    unreached[partition] = max(offset, unreached.get(partition, offset))
        return unreached

    def are_ends_reached(self, positions: Offsets) -> bool:
        return self.ends is not None and all_reached(self.ends, positions)

    def complete_reached(self, state: LogState) -> None:
        """Complete the reads that are done, in the order in which they were added."""
        with self._lock:
            futures: list[LogFuture] = []
            if self.are_ends_reached(state.positions):
                futures += _futures(self._active_reads)
                self._active_reads, self.ends = [], None
            futures += [read.future for read in self._reads_past_offsets if read.is_done(state)]
            self._reads_past_offsets = [read for read in self._reads_past_offsets if not read.is_done(state)]
        self._complete(futures, None)

    def fail_waiting_for(self, partition: TopicPartition, error: BaseException) -> None:
        """Fail the reads past an offset of a partition."""
        with self._lock:
            futures = [read.future for read in self._reads_past_offsets if partition in read.offsets]
            self._reads_past_offsets = [read for read in self._reads_past_offsets if partition not in read.offsets]
        self._complete(futures, error)

    def fail_active(self, error: BaseException) -> None:
        """Fail active reads, and those past offsets."""
        self._complete(self._pop_active(), error)

    def fail_all(self, error: BaseException) -> None:
        """Fail all reads; callable from any thread, also while a callback hangs."""
        futures = self._pop_active()
        with self._lock:
            futures += _futures(self._queued_reads)
            self._queued_reads = []
        self._complete(futures, error)

    def _pop_active(self) -> list[LogFuture]:
        """Remove active reads and those past offsets, and return their futures."""
        with self._lock:
            futures = _futures(self._active_reads)
            self._active_reads, self.ends = [], None
            futures += [read.future for read in self._reads_past_offsets]
            self._reads_past_offsets = []
            return futures

    def _complete(self, futures: Iterable[LogFuture], error: BaseException | None) -> None:
        # Callbacks may take long and may request more reads. If a callback hangs, another thread can complete
        # the remaining futures.
        self._completions.extend((future, error) for future in futures)
        while True:
            try:
                future, outcome = self._completions.popleft()
            except IndexError:
                return
            future.complete(outcome)

    def _drop_abandoned_reads(self) -> None:
        self._queued_reads = [read for read in self._queued_reads if read.future is not None]
        self._active_reads = [read for read in self._active_reads if read.future is not None]


def _futures(reads: Iterable[_ReadToEnd]) -> list[LogFuture]:
    return [future for read in reads if (future := read.future) is not None]
