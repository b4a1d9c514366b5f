"""Threads that read ranges ahead of the caller, without brokers."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyspark_kafka_direct.arrow.parallel_reads import ParallelReads, RangeRead
from pyspark_kafka_direct.client.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

BATCH = pa.record_batch([[1]], names=["offset"])


class Ranges:
    """Ranges with one batch per offset; the reads are closed when the test ends."""

    def __init__(self, *counts: int, wait: Callable[[], object] = lambda: None) -> None:
        self.wait = wait
        self.read = [0] * len(counts)  # batches by range
        self.closed = [False] * len(counts)
        self.reads = [
            RangeRead(self._batches(index, count), sum(counts[:index]), count) for index, count in enumerate(counts)
        ]

    def _batches(self, index: int, count: int) -> Generator[pa.RecordBatch, None, None]:
        try:
            for _ in range(count):
                self.wait()
                self.read[index] += 1
                yield BATCH
        finally:
            self.closed[index] = True


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pyspark-kafka-direct-read"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not running())


def test_ranges_are_read_at_most_one_batch_ahead_of_the_caller() -> None:
    ranges = Ranges(9, 1, 9, 9)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    assert reads.next_batch(0) is BATCH
    wait_until(lambda: ranges.read == [2, 1, 0, 0])
    assert all(thread.daemon for thread in running())
    for _ in range(8):
        assert reads.next_batch(0) is BATCH
        assert len(running()) == 2
    assert reads.next_batch(0) is None
    wait_until(lambda: ranges.read == [9, 1, 1, 0])
    reads.close()
    assert ranges.closed[:3] == [True, True, True]
    assert not running()


def test_a_range_is_not_opened_if_those_before_it_may_have_enough_records() -> None:
    ranges = Ranges(3, 2, 1)
    reads = ParallelReads(ranges.reads, 3, SYSTEM, open_ranges=3, limit=5)
    for index, count in enumerate((3, 2)):
        assert [reads.next_batch(index) for _ in range(count)] == [BATCH] * count
    assert ranges.read == [3, 2, 0]
    reads.close()


def test_a_range_is_opened_if_those_before_it_have_fewer_records_than_offsets() -> None:
    ranges = Ranges(3, 2, 1)
    ranges.reads[0].offsets = 4
    ranges.reads[1].offsets_before, ranges.reads[1].offsets = 4, 3
    ranges.reads[2].offsets_before = 7
    reads = ParallelReads(ranges.reads, 3, SYSTEM, open_ranges=3, limit=6)
    for index, count in enumerate((3, 2, 1)):
        assert [reads.next_batch(index) for _ in range(count)] == [BATCH] * count
    reads.close()


def test_a_forked_process_does_not_wait_for_threads_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = Ranges(9, 9)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    assert reads.next_batch(0) is BATCH
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="call read_arrow in this process"):
            reads.next_batch(0)
        reads.close()
    assert running()
    reads.close()
    assert not running()


def test_an_error_ends_all_reads_and_is_raised_in_the_caller() -> None:
    def fail() -> None:
        raise MemoryError("no more")

    ranges = Ranges(5, 5)
    ranges.reads[1] = Ranges(5, wait=fail).reads[0]
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    with pytest.raises(MemoryError, match="no more"):
        list(iter(partial(reads.next_batch, 0), None))
    wait_until(lambda: not running())
    reads.close()
    assert ranges.closed[0]


def test_the_first_of_several_errors_is_raised() -> None:
    others_may_fail = threading.Event()

    def fail(index: int) -> None:
        if index != 1:
            others_may_fail.wait()
        raise MemoryError(f"of range {index}")

    failing = [Ranges(5, wait=partial(fail, index)).reads[0] for index in range(3)]
    reads = ParallelReads(failing, 3, SYSTEM, open_ranges=3)
    with pytest.raises(MemoryError, match="of range 1"):
        reads.next_batch(0)
    others_may_fail.set()
    wait_until(lambda: not running())
    for index in range(3):
        with pytest.raises(MemoryError, match="of range 1"):
            reads.next_batch(index)
    reads.close()


def test_reads_that_are_dropped_stop() -> None:
    ranges = Ranges(9, 9)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    assert reads.next_batch(0) is BATCH
    del reads
    gc.collect()
    wait_until(lambda: not running())
    assert ranges.closed == [True, True]


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python handles Ctrl+C as in a terminal: a shell ignores it in its background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_caller_leaves_no_thread() -> None:
    import polars  # noqa: F401  # its handler of SIGINT restarts waits without a timeout

    released = threading.Event()
    ranges = Ranges(9, 9, wait=released.wait)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        reads.next_batch(0)
    threading.Timer(0.2, released.set).start()
    reads.close()
    assert ranges.closed == [True, True]
    assert not running()


def test_a_thread_that_waits_does_not_delay_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.arrow.parallel_reads._SECONDS_TO_STOP", 0.01)
    released = threading.Event()
    ranges = Ranges(9, 0, wait=released.wait)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    assert reads.next_batch(1) is None
    reads.close()
    assert not ranges.closed[0]
    released.set()
    wait_until(lambda: ranges.closed[0])


@pytest.mark.parametrize("counts", [(9, 9), (1, 1)])  # threads that wait for the caller, and that have ended
def test_the_close_does_not_wait_longer_than_for_the_threads(
    counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.arrow.parallel_reads._SECONDS_TO_STOP", 60)
    ranges = Ranges(*counts)
    reads = ParallelReads(ranges.reads, 2, SYSTEM, open_ranges=2)
    assert reads.next_batch(0) is BATCH
    wait_until(lambda: sum(ranges.read) == min(sum(counts), 3))
    started = time.monotonic()
    reads.close()
    assert time.monotonic() - started < 30
    assert ranges.closed == [True, True]


def test_one_thread_is_that_of_the_caller() -> None:
    ranges = Ranges(2, 1)
    reads = ParallelReads(ranges.reads, 1, SYSTEM, open_ranges=1)
    assert [reads.next_batch(0) for _ in range(3)] == [BATCH, BATCH, None]
    assert (ranges.read, running()) == ([2, 0], [])
    assert reads.next_batch(1) is BATCH
    reads.close()
    assert ranges.closed == [True, True]
