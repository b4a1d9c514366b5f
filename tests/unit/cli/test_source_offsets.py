"""The comparison of records and rows by offset, against sets and counters of Python."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.cli.source_offsets import (
    MAX_SHOWN,
    PartitionComparison,
    RowComparison,
    RowCounts,
    offset_runs,
    readable_numbers,
)

OFFSETS = st.integers(0, 60)
ROWS = st.lists(st.tuples(st.sampled_from(["flights", "other"]), st.integers(0, 2), OFFSETS))


@given(
    st.lists(st.sets(OFFSETS), min_size=2, max_size=2),
    st.lists(ROWS, max_size=3),
    st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS).map(sorted),
)
def test_comparison(records: list[set[int]], batches: list[list[tuple[str, int, int]]], bounds: list[int]) -> None:
    start, log_start, until, log_end = bounds
    partitions = {number: PartitionComparison(start, until, log_end) for number in (0, 1)}
    expected = [{offset for offset in each if start <= offset < until} for each in records]
    for number, offsets in enumerate(expected):
        for run in offset_runs(pa.array([number] * len(offsets)), pa.array(sorted(offsets), pa.int64())):
            partitions[number].add_records(run.start, run.stop)
        partitions[number].log_start = log_start
    rows = RowComparison("flights", partitions)
    for batch in batches:
        rows.add(
            [
                pa.array([row[index] for row in batch], [pa.string(), pa.int32(), pa.int64()][index])
                for index in range(3)
            ]
        )

    found = Counter(row for batch in batches for row in batch)
    for number, comparison in partitions.items():
        missing = [each for each in sorted(expected[number]) if not found["flights", number, each]]
        duplicates = [each for each in sorted(expected[number]) if found["flights", number, each] > 1]
        unknown = {
            offset: count
            for (topic, partition, offset), count in found.items()
            if (topic, partition) == ("flights", number)
            and offset not in expected[number]
            and (offset >= log_end or max(start, log_start) <= offset < until)
        }
        assert comparison.records == len(expected[number])
        assert (comparison.missing, comparison.first_missing()) == (len(missing), missing[:MAX_SHOWN])
        assert (comparison.duplicates, comparison.first_duplicates()) == (len(duplicates), duplicates[:MAX_SHOWN])
        assert (comparison.unknown, comparison.first_unknown()) == (sum(unknown.values()), sorted(unknown)[:MAX_SHOWN])
        has_row = [found["flights", number, each] > 0 for each in sorted(expected[number])]
        assert comparison.missing_stretches == sum(not each for each, _ in groupby(has_row))
    assert rows.counts == RowCounts(
        found.total(),
        0,
        sum(count for (topic, _, _), count in found.items() if topic == "other"),
        sum(count for (topic, number, _), count in found.items() if (topic, number) == ("flights", 2)),
    )


@given(st.lists(st.integers(0, 3), max_size=12))
def test_records_with_several_rows_are_between_those_without_one(counts: list[int]) -> None:
    comparison = PartitionComparison(0, len(counts), len(counts))
    comparison.add_records(0, len(counts))
    for offset, count in enumerate(counts):
        for _ in range(count):
            comparison.add_rows(offset, offset + 1)
    assert comparison.missing_stretches == sum(not has_row for has_row, _ in groupby(map(bool, counts)))
    assert (comparison.missing, comparison.duplicates) == (counts.count(0), sum(count > 1 for count in counts))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40))
def test_runs_are_the_rows(rows: list[tuple[int, int]]) -> None:
    runs = list(offset_runs(pa.array([p for p, _ in rows], pa.int64()), pa.array([o for _, o in rows], pa.int64())))
    assert Counter((run.partition, each) for run in runs for each in range(run.start, run.stop)) == Counter(rows)


@pytest.mark.parametrize("length", [1, 3, 50])
def test_rows_in_runs_and_scattered_ones_are_the_same(length: int) -> None:
    """Long runs are compared as such, and short ones offset by offset."""
    partition = PartitionComparison(10, 200, 200)
    for start in range(10, 200, 20):  # 10 records and 10 offsets without one
        partition.add_records(start, start + 10)
    starts = range(0, 240, 60) if length > 1 else range(239, -1, -60)
    offsets = [offset for start in starts for offset in range(start, start + length)]
    rows = RowComparison("flights", {0: partition})
    rows.add([pa.array([0] * len(offsets)), pa.array(offsets)])
    records = {offset for start in range(10, 200, 20) for offset in range(start, start + 10)}
    unknown = [each for each in offsets if (10 <= each < 200 and each not in records) or each >= 200]
    assert partition.missing == len(records - {*offsets})
    assert (partition.unknown, partition.first_unknown()) == (len(unknown), sorted(unknown)[:MAX_SHOWN])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -1, None, 2**63 - 1], pa.int64()), [1, None, None, 2**63 - 1]),
        (pa.array([0, 2**64 - 1], pa.uint64()), [0, None]),
        (pa.array([0, 127], pa.uint8()), [0, 127]),
        (pa.array(["12", "", " 1", "-1", "1e3", "1\n", "9" * 18, "9" * 19, None, "007", "\u0664"]),
         [12, None, None, None, None, None, 10**18 - 1, None, None, 7, None]),
        (pa.array([b"12", b"\xff", b"\0\0\0\0\0\0\0\x05"], pa.binary()), [12, None, None]),
        (pa.array(["3", None, "3"]).dictionary_encode(), [3, None, 3]),
        (pa.nulls(2), [None, None]),
    ],
)  # fmt: skip
def test_hostile_numbers(values: pa.Array, expected: list[int | None]) -> None:
    assert readable_numbers(values).to_pylist() == expected


def test_hostile_rows_are_counted() -> None:
    partition = PartitionComparison(0, 2, 2)
    partition.add_records(0, 2)
    rows = RowComparison("flights", {0: partition})
    topics = pa.array([b"flights", b"\xff", b"flights", b"flights", None, b"flights"], pa.binary())
    rows.add([topics, pa.array([0, 0, 2**40, None, 0, 0]), pa.array([2**63 - 1, 1, 1, 1, 1, -1])])
    assert rows.counts == RowCounts(6, 3, 1, 1)
    assert (partition.missing, partition.unknown, partition.first_unknown()) == (2, 1, [2**63 - 1])


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (pa.nulls(2), RowCounts(2, 2, 0, 0)),
        (pa.array([7, 8]), RowCounts(2, 0, 1, 0)),
        (pa.array(["7", None]).dictionary_encode(), RowCounts(2, 1, 0, 0)),
        (pa.array(["7", "7"], pa.large_string()), RowCounts(2, 0, 0, 0)),
    ],
)
def test_types_of_the_topic(topics: pa.Array, expected: RowCounts) -> None:
    partition = PartitionComparison(0, 2, 2)
    partition.add_records(0, 2)
    rows = RowComparison("7", {0: partition})
    rows.add([topics, pa.array([0, 0]), pa.array([0, 1])])
    assert rows.counts == expected
    assert partition.missing == 2 - (expected.rows - expected.unreadable - expected.other_topics)


def test_the_first_unknown_rows_of_several_runs_are_shown() -> None:
    partition = PartitionComparison(0, 100, 100)
    for start, stop in ((0, 5), (40, 45), (45, 50), (60, 65)):
        partition.add_records(start, stop)
    rows = RowComparison("flights", {0: partition})
    runs = [(0, 50, 62), (1, 0, 20), (2, 0, 20), (0, 30, 45), (3, 0, 9), (0, 6, 15), (0, 45, 50)]
    numbers = [number for number, start, stop in runs for _ in range(start, stop)]
    offsets = [offset for _, start, stop in runs for offset in range(start, stop)]
    rows.add([pa.array(numbers), pa.array(offsets)])
    assert rows.counts == RowCounts(len(offsets), 0, 0, 49)
    assert (partition.records, partition.missing, partition.first_missing()) == (20, 8, [0, 1, 2, 3, 4, 62, 63, 64])
    assert (partition.unknown, partition.first_unknown()) == (29, [6, 7, 8, 9, 10, 11, 12, 13, 14, 30])
    rows.add([pa.array([1, 2, 0, 1]), pa.array([9, 3, 20, 1])])
    assert (partition.unknown, partition.first_unknown()[-2:]) == (30, [14, 20])
    assert rows.counts.other_partitions == 52


def test_a_record_may_have_any_number_of_rows() -> None:
    partition = PartitionComparison(0, 1, 1)
    partition.add_records(0, 1)
    rows = RowComparison("flights", {0: partition})
    rows.add([pa.array([0] * 1000), pa.array([0] * 1000)])
    assert (partition.missing, partition.duplicates, partition.unknown) == (0, 1, 0)


def test_offsets_at_the_end_of_64_bits_with_large_gaps() -> None:
    partition = PartitionComparison(0, 2**63 - 1, 2**63 - 1)
    for start in range(0, 2**62, 2**52):
        partition.add_records(start, start + 1)
    partition.add_rows(2**52, 2**52 + 1)
    assert (partition.records, partition.missing, partition.first_missing()[:2]) == (1024, 1023, [0, 2**53])
