"""The numbers of Spark's KafkaOffsetRangeCalculatorSuite, and properties that hold for all numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.offset_range_calculator import split_ranges

Spans = list[tuple[int, int, int]]
"""Ranges as (topic number, from, until)."""


def ranges(*spans: tuple[int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(f"t{topic}", 1, start, end) for topic, start, end in spans]


@pytest.mark.parametrize(
    ("name", "given_spans", "least", "most", "expected"),
    [
        ("one for one", [(1, 1, 2)], None, None, [(1, 1, 2)]),
        ("empty ranges are dropped", [(1, 1, 2), (2, 1, 1)], None, None, [(1, 1, 2)]),
        ("enough", [(1, 1, 2), (2, 1, 2), (3, 1, 2)], 3, None, [(1, 1, 2), (2, 1, 2), (3, 1, 2)]),
        ("one split", [(1, 1, 5)], 4, None, [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]),
        ("skewed", [(1, 1, 5), (2, 1, 21)], 4, None, [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]),
        (
            "SPARK-30656: empty ranges do not count",
            [(1, 1, 1), (2, 1, 21)],
            4,
            None,
            [(2, 1, 6), (2, 6, 11), (2, 11, 16), (2, 16, 21)],
        ),
        (
            "SPARK-30656: very skewed",
            [(1, 1, 2), (2, 1, 1001)],
            4,
            None,
            [(1, 1, 2), (2, 1, 334), (2, 334, 667), (2, 667, 1001)],
        ),
        ("fewer than there are", [(1, 1, 5), (2, 1, 21)], 1, None, [(1, 1, 5), (2, 1, 21)]),
        ("inexact", [(1, 1, 11)], 3, None, [(1, 1, 4), (1, 4, 7), (1, 7, 11)]),
        (
            "empty and skewed",
            [(1, 1, 5), (2, 1, 21), (3, 1, 1)],
            4,
            None,
            [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)],
        ),
        (
            "SPARK-28489: never drop offsets",
            [(1, 0, 10), (2, 0, 10), (3, 0, 1)],
            6,
            None,
            [(1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 3), (2, 3, 6), (2, 6, 10), (3, 0, 1)],
        ),
        (
            "SPARK-36576: three large",
            [(1, 0, 10000), (2, 0, 15000), (3, 0, 20000)],
            9,
            None,
            [
                *[(1, 0, 5000), (1, 5000, 10000)],
                *[(2, 0, 5000), (2, 5000, 10000), (2, 10000, 15000)],
                *[(3, 0, 5000), (3, 5000, 10000), (3, 10000, 15000), (3, 15000, 20000)],
            ],
        ),
        (
            "SPARK-36576: one small, two large",
            [(1, 0, 500), (2, 0, 12000), (3, 0, 15001)],
            6,
            None,
            [(1, 0, 500), (2, 0, 6000), (2, 6000, 12000), (3, 0, 5000), (3, 5000, 10000), (3, 10000, 15001)],
        ),
        (
            "SPARK-36576: two small, one large",
            [(1, 0, 1), (2, 0, 1), (3, 0, 10000)],
            6,
            None,
            [(1, 0, 1), (2, 0, 1), (3, 0, 2500), (3, 2500, 5000), (3, 5000, 7500), (3, 7500, 10000)],
        ),
        ("SPARK-49259: at most 4", [(1, 1, 5), (2, 1, 6)], None, 4, [(1, 1, 5), (2, 1, 3), (2, 3, 6)]),
        (
            "SPARK-49259: at most 20",
            [(1, 1, 40), (2, 1, 50), (3, 1, 60)],
            None,
            20,
            [(1, 1, 20), (1, 20, 40), (2, 1, 17), (2, 17, 33), (2, 33, 50), (3, 1, 20), (3, 20, 40), (3, 40, 60)],
        ),
        ("SPARK-49259: at least 1, at most 20", [(1, 1, 40)], 1, 20, [(1, 1, 20), (1, 20, 40)]),
        (
            "SPARK-49259: at least 4, at most 20",
            [(1, 0, 40)],
            4,
            20,
            [(1, 0, 10), (1, 10, 20), (1, 20, 30), (1, 30, 40)],
        ),
        ("more tasks than offsets", [(1, 0, 3)], 100, None, [(1, 0, 1), (1, 1, 2), (1, 2, 3)]),
        ("nothing to read", [], 4, 4, []),
    ],
)
def test_sparks_numbers(name: str, given_spans: Spans, least: int | None, most: int | None, expected: Spans) -> None:
    assert split_ranges(ranges(*given_spans), least, most) == ranges(*expected), name


@st.composite
def some_ranges(draw: st.DrawFn) -> list[OffsetRange]:
    result = []
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, 2**62))
        size = draw(st.one_of(st.integers(0, 40), st.integers(0, 2**40)))
        result.append(OffsetRange(f"t{draw(st.integers(0, 2))}", draw(st.integers(0, 2)), start, start + size))
    return result


def joined(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """Merge adjacent ranges."""
    merged: list[OffsetRange] = []
    for piece in pieces:
        if (
            merged
            and merged[-1].topic_partition == piece.topic_partition
            and merged[-1].until_offset == piece.from_offset
        ):
            last = merged.pop()
            piece = OffsetRange(last.topic, last.partition, last.from_offset, piece.until_offset)
        merged.append(piece)
    return merged


@given(some_ranges(), st.none() | st.integers(1, 60), st.none() | st.integers(2**36, 2**42))
def test_no_offset_is_lost_or_repeated(wanted: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = split_ranges(wanted, least, most)
    assert joined(pieces) == joined([r for r in wanted if r.count()])
    assert all(piece.count() > 0 for piece in pieces)
    if most is not None:
        assert all(piece.count() <= most for piece in pieces)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.integers(1, 100))
def test_the_number_of_ranges_is_close_to_the_target(sizes: list[int], least: int) -> None:
    pieces = split_ranges([OffsetRange("t", i, 0, size) for i, size in enumerate(sizes)], least)
    if sum(sizes) > 100 * least:
        assert max(least, len(sizes)) - len(sizes) <= len(pieces) <= max(least, len(sizes)) + len(sizes)


def test_ranges_of_one_partition_are_split_separately() -> None:
    """Spark makes 8 pieces here, as one of them rounds to a share of 1 (see the docstring of the module)."""
    assert len(split_ranges(ranges((1, 861, 27518)), 12, 3712)) == 12
