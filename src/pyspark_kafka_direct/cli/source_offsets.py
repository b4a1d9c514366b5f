"""Comparison of the records of partitions with the rows of an output, by offset.

The memory is one byte per record, and 24 bytes per run of offsets without a gap: a bitmap over all offsets would be as
large as the offsets of a compacted topic that has few records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_SHOWN: Final = 10
"""The number of offsets that are shown of each kind."""

_NO_ROW: Final = b"\0"
_ROWS: Final = b"\2"  # several
_AFTER_ROW: Final = bytes([1, 2, 2, *range(3, 256)])  # the state of a record after one more row
_NUMBER: Final = r"^([0-9]{1,18}|[1-8][0-9]{18})$"  # less than 2^63
_MIN_RUN: Final = 8  # offsets; rows with shorter runs are added one by one, which is then faster


class OffsetRun(NamedTuple):
    """Consecutive offsets of a partition, each once."""

    partition: int
    start: int
    stop: int


class PartitionComparison:
    """The records of a partition in a range of offsets, and the rows that stand for them.

    First all records are added, and then the rows.
    """

    def __init__(self, from_offset: int, until_offset: int, log_end: int) -> None:
        self.from_offset = from_offset
        self.until_offset = until_offset
        self.unknown = 0  # rows
        self.log_start = 0  # offsets before it have expired, so their rows are not judged
        self._log_end = log_end  # when the rows were written; there are no records behind it
        self._starts, self._stops, self._ranks = array("q"), array("q"), array("q")  # of runs; ranks count records
        self._states = bytearray()  # of records, by rank
        self._first_unknown: list[int] = []

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self._states)

    @property
    def missing(self) -> int:
        """The number of records without a row."""
        return self._states.count(_NO_ROW)

    @property
    def duplicates(self) -> int:
        """The number of records with several rows."""
        return self._states.count(_ROWS)

    @property
    def missing_stretches(self) -> int:
        """The number of runs of records without a row, between records that have one."""
        starts_with_one = self._states[:1] == _NO_ROW
        return starts_with_one + self._states.count(b"\1\0") + self._states.count(b"\2\0")

    def first_missing(self) -> list[int]:
        """Return the first offsets of records without a row."""
        return self._first(_NO_ROW)

    def first_duplicates(self) -> list[int]:
        """Return the first offsets of records with several rows."""
        return self._first(_ROWS)

    def first_unknown(self) -> list[int]:
        """Return the first offsets of rows without a record."""
        return self._first_unknown

    def add_records(self, start: int, stop: int) -> None:
        """Add records at these offsets, which are behind those added before."""
        if self._stops and self._stops[-1] == start:
            self._stops[-1] = stop
        else:
            self._starts.append(start)
            self._stops.append(stop)
            self._ranks.append(len(self._states))
        self._states += _NO_ROW * (stop - start)

    def add_rows(self, start: int, stop: int) -> None:
        """Add one row for each of these offsets."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while start < stop:
            if index == len(self._starts):
                self._add_rows_without_record(start, stop)
                return
            if start < self._starts[index]:
                end = min(stop, self._starts[index])
                self._add_rows_without_record(start, end)
                start = end
            elif start < self._stops[index]:
                end = min(stop, self._stops[index])
                rank = self._ranks[index] + start - self._starts[index]
                last = rank + end - start
                self._states[rank:last] = self._states[rank:last].translate(_AFTER_ROW)
                start = end
            else:
                index += 1

    def add_scattered_rows(self, offsets: Iterable[int]) -> None:
        """Add a row for each of these offsets, which may be in any order."""
        states, starts, stops = self._states, self._starts, self._stops
        start = stop = shift = 0  # of the run that has the offset before
        for offset in offsets:
            if not start <= offset < stop:
                index = bisect_right(starts, offset) - 1
                if index < 0 or offset >= stops[index]:
                    self._add_rows_without_record(offset, offset + 1)
                    continue
                start, stop, shift = starts[index], stops[index], self._ranks[index] - starts[index]
            rank = offset + shift
            states[rank] = _AFTER_ROW[states[rank]]

    def _add_rows_without_record(self, start: int, stop: int) -> None:
        in_range = max(start, self.from_offset, self.log_start), min(stop, self.until_offset)
        behind_log = max(start, self.until_offset, self._log_end), stop
        for first, end in (in_range, behind_log):
            if first < end:
                self.unknown += end - first
                shown = self._first_unknown
                if len(shown) < MAX_SHOWN or first < shown[-1]:
                    more = range(first, min(end, first + MAX_SHOWN))
                    self._first_unknown = sorted({*shown, *more})[:MAX_SHOWN]

    def _first(self, state: bytes) -> list[int]:
        offsets: list[int] = []
        rank = self._states.find(state)
        while rank >= 0 and len(offsets) < MAX_SHOWN:
            run = bisect_right(self._ranks, rank) - 1
            offsets.append(self._starts[run] + rank - self._ranks[run])
            rank = self._states.find(state, rank + 1)
        return offsets


class RowCounts(NamedTuple):
    """Numbers of rows of an output."""

    rows: int
    unreadable: int  # without a partition and an offset that can be read
    other_topics: int
    other_partitions: int  # that the topic, or the slice, does not have


class RowComparison:
    """Adds rows to the comparisons of the partitions of a topic."""

    def __init__(self, topic: str, partitions: dict[int, PartitionComparison]) -> None:
        self._topic = topic
        self._partitions = partitions
        self.counts = RowCounts(0, 0, 0, 0)

    def add(self, columns: Iterable[pa.Array]) -> None:
        """Add rows by the columns topic (which may be left out), partition and offset."""
        *topics, partitions, offsets = columns
        partitions, offsets = readable_numbers(partitions), readable_numbers(offsets)
        is_readable = pc.and_(partitions.is_valid(), offsets.is_valid())
        others = 0
        if topics:
            names = _as_bytes(topics[0])
            is_readable = pc.and_(is_readable, names.is_valid())
            is_of_topic = pc.fill_null(pc.equal(names, pa.scalar(self._topic.encode(), names.type)), False)
            others = _true_count(pc.and_not(is_readable, is_of_topic))
            chosen = pc.and_(is_readable, is_of_topic)
        else:
            chosen = is_readable
        if _true_count(chosen) < len(offsets):
            partitions, offsets = partitions.filter(chosen), offsets.filter(chosen)
        other_partitions = self._add_offsets(partitions, offsets)
        rows = len(is_readable)
        more = RowCounts(rows, rows - _true_count(is_readable), others, other_partitions)
        self.counts = RowCounts(*map(sum, zip(self.counts, more, strict=True)))

    def _add_offsets(self, partitions: pa.Array, offsets: pa.Array) -> int:
        """Add rows of the topic, and return the number of those in other partitions."""
        others = 0
        starts = _run_starts(partitions, offsets)
        if len(starts) * _MIN_RUN > len(offsets):
            for number in pc.unique(partitions).to_pylist():
                of_partition = offsets.filter(pc.equal(partitions, number))
                first = of_partition.offset
                values = memoryview(of_partition.buffers()[1]).cast("q")[first : first + len(of_partition)]
                comparison = self._partitions.get(number)
                if comparison is None:
                    others += len(of_partition)
                else:
                    comparison.add_scattered_rows(values)
            return others
        for run in _runs(partitions, offsets, starts):
            comparison = self._partitions.get(run.partition)
            if comparison is None:
                others += run.stop - run.start
            else:
                comparison.add_rows(run.start, run.stop)
        return others


def offset_runs(partitions: pa.Array, offsets: pa.Array) -> Iterator[OffsetRun]:
    """Yield the runs of offsets in rows; an offset that occurs twice is in two of them."""
    yield from _runs(partitions, offsets, _run_starts(partitions, offsets))


def readable_numbers(values: pa.Array) -> pa.Array:
    """Return numbers, or decimal digits, as integers of 64 bits; null if they are negative or cannot be read."""
    values = _without_dictionary(values)
    if pa.types.is_null(values.type):
        return values.cast(pa.int64())
    if pa.types.is_integer(values.type):
        if pa.types.is_uint64(values.type):
            values = pc.if_else(pc.less(values, pa.scalar(1 << 63, values.type)), values, pa.scalar(None, values.type))
        return pc.if_else(pc.greater_equal(values, 0), values, pa.scalar(None, values.type)).cast(pa.int64())
    values = _as_bytes(values)
    digits = pc.if_else(pc.match_substring_regex(values, _NUMBER), values, pa.scalar(None, values.type))
    return digits.cast(pa.string()).cast(pa.int64())


def is_number_or_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type may have topics, partitions or offsets."""
    if pa.types.is_dictionary(kind):
        return is_number_or_text(kind.value_type)
    kinds = (pa.types.is_integer, pa.types.is_null, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(is_kind(kind) for is_kind in (*kinds, pa.types.is_large_binary))


def _without_dictionary(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _as_bytes(values: pa.Array) -> pa.Array:
    """Return a column as bytes, which need not be valid UTF-8."""
    values = _without_dictionary(values)
    return (values.cast(pa.string()) if pa.types.is_integer(values.type) else values).cast(pa.binary())


def _runs(partitions: pa.Array, offsets: pa.Array, starts: pa.Array) -> Iterator[OffsetRun]:
    if not len(offsets):
        return
    firsts = starts.to_pylist()
    lengths = (stop - start for start, stop in zip(firsts, [*firsts[1:], len(offsets)], strict=True))
    values = zip(partitions.take(starts).to_pylist(), offsets.take(starts).to_pylist(), lengths, strict=True)
    for partition, offset, length in values:
        yield OffsetRun(partition, offset, offset + length)


def _run_starts(partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the rows that do not follow on the row before."""
    follows = pc.and_(pc.equal(pc.pairwise_diff(offsets), 1), pc.equal(pc.pairwise_diff(partitions), 0))
    return pc.indices_nonzero(pc.invert(pc.fill_null(follows, False)))


def _true_count(values: pa.Array) -> int:
    return int(pc.sum(values).as_py() or 0)
