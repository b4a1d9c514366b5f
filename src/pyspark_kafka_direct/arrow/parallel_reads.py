"""Reads several offset ranges at the same time, each at most one batch ahead of the caller."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.system import System

_SECONDS_TO_STOP: Final = 2.0  # a thread ends after the response that it waits for, which may take longer
# With the signal handler of polars, Ctrl+C does not interrupt a wait without a timeout.
_SECONDS_OF_WAIT: Final = 1.0
_THREAD_NAME: Final = "pyspark-kafka-direct-read"


@dataclass(slots=True)
class RangeRead:
    """The read of one offset range; it opens nothing before its first batch is requested."""

    batches: Generator[pa.RecordBatch, None, None]
    offsets_before: int  # the number of offsets of the ranges before this one
    offsets: int
    batch: pa.RecordBatch | None = None  # that the caller has not taken yet
    rows: int = 0  # that were read
    is_busy: bool = False
    has_ended: bool = False


class ParallelReads:
    """The reads of several ranges, in threads, or in that of the caller if there is only one thread."""

    def __init__(
        self,
        reads: Sequence[RangeRead],
        threads: int,
        system: System,
        *,
        open_ranges: int,  # at most so many ranges, from the first one that has not ended, are read at the same time
        limit: int | None = None,  # no range is opened if those before it have so many records
    ) -> None:
        self._state = _SharedReads(reads, system, open_ranges, limit)
        self._threads = threads
        # The threads do not refer to this object, so they stop when the caller drops it, and before Python exits.
        self._finalizer = system.finalize(self, self._state.close)

    def next_batch(self, index: int) -> pa.RecordBatch | None:
        """Return the next batch of a range, or None after its last one; raise the first error of any range."""
        if self._threads == 1:
            return next(self._state.reads[index].batches, None)
        self._state.check_process()
        self._state.start(self._threads)
        return self._state.take(index)

    def close(self) -> None:
        """Stop all reads, and wait until the threads have released their connections, but not for long."""
        self._finalizer.detach()
        self._state.close()


class _SharedReads:
    """The state that the caller and the threads share."""

    def __init__(self, reads: Sequence[RangeRead], system: System, open_ranges: int, limit: int | None) -> None:
        self.reads = reads
        self._system = system
        self._open_ranges = open_ranges
        self._limit = limit
        self._process_id = os.getpid()
        self._changed = system.condition()
        self._first = 0  # no range before it is read any more
        self._offsets_without_records = 0  # of ranges that have ended
        self._was_started = False
        self._running = 0  # threads
        self._error: BaseException | None = None
        self._closed = False

    def check_process(self) -> None:
        """Raise an error in a forked process, where the threads do not run, and may have locked the state."""
        if self._process_id != os.getpid():
            raise RuntimeError("The slice is read by threads of the parent process; call read_arrow in this process.")

    def start(self, threads: int) -> None:
        """Start the threads, once."""
        with self._changed:
            if self._was_started or self._closed:
                return
            self._was_started = True
            self._running = threads
        for _ in range(threads):
            self._system.start_thread(self._run, _THREAD_NAME)

    def take(self, index: int) -> pa.RecordBatch | None:
        """Wait for a batch of a range."""
        read = self.reads[index]
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if read.batch is not None:
                    break
                if read.has_ended or self._closed:
                    return None
                self._system.wait(self._changed, _SECONDS_OF_WAIT)
            batch, read.batch = read.batch, None
            self._changed.notify_all()  # the range may be read further
            return batch

    def close(self) -> None:
        if self._process_id != os.getpid():
            return
        with self._changed:
            self._closed = True
            idle = [read for read in self.reads if not read.is_busy]
            self._changed.notify_all()
        for read in idle:
            read.batches.close()
        deadline = self._system.monotonic() + _SECONDS_TO_STOP
        with self._changed:
            while self._running and (seconds := deadline - self._system.monotonic()) > 0:
                self._system.wait(self._changed, seconds)

    def _run(self) -> None:
        """Read batches until the caller closes the reads, or until all have ended."""
        while (read := self._next_read()) is not None:
            self._read_batch(read)
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def _read_batch(self, read: RangeRead) -> None:
        batch, error = None, None
        try:
            batch = next(read.batches, None)
        except BaseException as caught:  # also a panic of the kernel
            error = caught
        with self._changed:
            read.is_busy = False
            if error is not None:
                self._error = self._error or error  # the caller raises it
                self._closed = True
            elif batch is None:
                read.has_ended = True
                self._offsets_without_records += read.offsets - read.rows
            else:
                read.rows += batch.num_rows
                read.batch = batch
            is_closed = self._closed
            self._changed.notify_all()
        if is_closed:  # `close` leaves a busy read to its thread
            read.batches.close()

    def _next_read(self) -> RangeRead | None:
        """Wait for a range that may be read further, and mark it as busy; None if there will be none."""
        with self._changed:
            while not self._closed:
                if self._first == len(self.reads):
                    return None
                read = self._first_idle()
                if read is not None:
                    read.is_busy = True
                    return read
                self._system.wait(self._changed, None)
        return None

    def _first_idle(self) -> RangeRead | None:
        """Return the first range that may be read now."""
        while self._first < len(self.reads) and self._is_done(self.reads[self._first]):
            self._first += 1
        for read in self.reads[self._first : self._first + self._open_ranges]:
            if self._limit is not None and read.offsets_before - self._offsets_without_records >= self._limit:
                break
            if not read.is_busy and not read.has_ended and read.batch is None:
                return read
        return None

    @staticmethod
    def _is_done(read: RangeRead) -> bool:
        return read.has_ended and read.batch is None
