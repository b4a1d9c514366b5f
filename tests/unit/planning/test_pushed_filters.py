"""Filters narrow the ranges and never change the result: examples, and a brute-force model."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from pyspark_kafka_direct.offsets import MAX_OFFSET, OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.offset_resolution import NO_RECORD
from pyspark_kafka_direct.planning.pushed_filters import (
    Comparison,
    Filter,
    NotNull,
    Operator,
    UnsupportedFilter,
    push_filters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 20), OffsetRange("t", 0, 30, 40)]


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def narrowed(*filters: Filter) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in push_filters(filters).narrow(RANGES)]


ALL_RANGES = [(0, 0, 10), (1, 5, 20), (0, 30, 40)]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Comparison("partition", "=", 1), [(1, 5, 20)]),
        (Comparison("partition", "<=>", 1), [(1, 5, 20)]),
        (Comparison("partition", "<", 1), [(0, 0, 10), (0, 30, 40)]),
        (Comparison("partition", "<=", 0), [(0, 0, 10), (0, 30, 40)]),
        (Comparison("partition", ">", 0), [(1, 5, 20)]),
        (Comparison("partition", ">=", 2), []),
        (Comparison("partition", "in", (1, None, 7)), [(1, 5, 20)]),
        (Comparison("partition", "in", (None,)), []),
        (Comparison("partition", "in", ()), []),
        (Comparison("partition", "=", None), []),
        (Comparison("partition", "<=>", None), []),
        (Comparison("partition", ">", -5), ALL_RANGES),
        (Comparison("partition", "<", 2**70), ALL_RANGES),
        (Comparison("offset", "=", 7), [(0, 7, 8), (1, 7, 8)]),
        (Comparison("offset", "<", 7), [(0, 0, 7), (1, 5, 7)]),
        (Comparison("offset", "<=", 7), [(0, 0, 8), (1, 5, 8)]),
        (Comparison("offset", ">", 7), [(0, 8, 10), (1, 8, 20), (0, 30, 40)]),
        (Comparison("offset", ">=", 7), [(0, 7, 10), (1, 7, 20), (0, 30, 40)]),
        (Comparison("offset", "in", (6, 7, 8)), [(0, 6, 9), (1, 6, 9)]),
        (Comparison("offset", "<", -(2**70)), []),
        (Comparison("offset", ">=", 2**70), []),
        (Comparison("offset", "<=", MAX_OFFSET), ALL_RANGES),
        (NotNull("partition"), ALL_RANGES),
        (NotNull("offset"), ALL_RANGES),
    ],
)
def test_partition_and_offset_are_exact(item: Filter, expected: list[tuple[int, int, int]]) -> None:
    assert narrowed(item) == expected
    assert push_filters([item]).enforced == (True,)


def test_offsets_with_gaps_narrow_but_spark_evaluates_them() -> None:
    item = Comparison("offset", "in", (6, 8))
    assert narrowed(item) == [(0, 6, 9), (1, 6, 9)]
    assert push_filters([item]).enforced == (False,)


@pytest.mark.parametrize(
    "item",
    [
        UnsupportedFilter(),
        NotNull("timestamp"),
        NotNull("key"),
        Comparison("topic", "=", "t"),
        Comparison("value", "=", b"x"),
        Comparison("partition", "=", 1.0),
        Comparison("partition", "=", True),
        Comparison("offset", "in", (1, 1.5)),
        Comparison("offset", "in", 1),
        Comparison("timestamp", "<", at(5)),
        Comparison("timestamp", "<=", at(5)),
        Comparison("timestamp", ">", datetime(2020, 1, 1)),  # Spark's timestamps have a time zone
        Comparison("timestamp", ">", 5),
        Comparison("timestamp", ">", None),
        Comparison("timestamp", "in", (at(5), "x")),
        Comparison("timestamp", "<=>", None),
        Comparison("timestamp", "=", (at(5),)),
        Comparison("timestamp", "in", at(5).isoformat()),
    ],
)
def test_unsupported_filters_are_left_to_spark(item: Filter) -> None:
    pushed = push_filters([item])
    assert pushed.enforced == (False,)
    assert pushed.narrow(RANGES) == RANGES
    assert pushed.required_timestamps(RANGES) == {}


def test_filters_are_a_conjunction() -> None:
    filters: list[Filter] = [Comparison("offset", ">=", 7), Comparison("partition", "=", 0), UnsupportedFilter()]
    filters.append(Comparison("offset", "<", 35))
    assert narrowed(*filters) == [(0, 7, 10), (0, 30, 35)]
    assert push_filters(filters).enforced == (True, True, False, True)
    assert narrowed(Comparison("offset", ">", 7), Comparison("offset", "<", 7)) == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([Comparison("partition", "in", (0, 1)), Comparison("partition", "in", (1, 2))], [(1, 5, 20)]),
        ([Comparison("partition", ">", 0), Comparison("partition", "<", 5)], [(1, 5, 20)]),
        ([Comparison("partition", "=", 1), Comparison("partition", "=", 0)], []),
        ([Comparison("offset", ">=", 7), Comparison("offset", ">=", 3)], [(0, 7, 10), (1, 7, 20), (0, 30, 40)]),
    ],
)
def test_the_order_of_filters_does_not_matter(filters: list[Filter], expected: list[tuple[int, int, int]]) -> None:
    assert narrowed(*filters) == narrowed(*reversed(filters)) == expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        (">=", at(5), 5),
        (">=", at(5.001), 6),
        (">", at(5), 6),
        (">", at(5.999), 6),
        ("=", at(5), 5),
        ("=", at(123_456), 123_456),
        ("<=>", at(5), 5),
        ("in", (at(9), None, at(7), at(6.5)), 7),
        (">=", at(5).astimezone(timezone(timedelta(hours=7))), 5),
    ],
)
def test_a_lower_time_bound_is_looked_up_in_whole_milliseconds(
    operator: Operator, value: object, expected: int
) -> None:
    pushed = push_filters([Comparison("timestamp", operator, value)])
    assert pushed.enforced == (False,)
    assert pushed.required_timestamps(RANGES) == {TopicPartition("t", 0): expected, TopicPartition("t", 1): expected}


@pytest.mark.parametrize(
    "item", [Comparison("timestamp", "=", at(5.5)), Comparison("timestamp", "in", (at(5.5), None))]
)
def test_no_record_has_a_fraction_of_a_millisecond(item: Filter) -> None:
    pushed = push_filters([item])
    assert pushed.enforced == (False,)
    assert pushed.narrow(RANGES) == []


def test_the_latest_of_several_lower_bounds_applies() -> None:
    pushed = push_filters([Comparison("timestamp", ">", at(7)), Comparison("timestamp", ">=", at(5))])
    assert pushed.from_timestamp == 8


def test_timestamps_before_1970_are_not_looked_up() -> None:
    assert push_filters([Comparison("timestamp", ">=", at(-2))]).required_timestamps(RANGES) == {}


def test_lookups_narrow_only_the_start() -> None:
    pushed = push_filters([Comparison("timestamp", ">=", at(5))])
    found = {TopicPartition("t", 0): 33, TopicPartition("t", 1): NO_RECORD}
    assert pushed.narrow_by_timestamp(RANGES, found) == [OffsetRange("t", 0, 33, 40)]
    assert pushed.narrow_by_timestamp(RANGES, {TopicPartition("t", 0): 0, TopicPartition("t", 1): 3}) == RANGES


# A model: small logs with timestamps in any order; every filter is evaluated record by record as in SQL.


class Record(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    """Milliseconds."""


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(item: Filter, record: Record) -> bool:
    """SQL: true, or else the row is dropped."""
    if not isinstance(item, Comparison):
        return True
    actual: Any = at(record.timestamp) if item.column == "timestamp" else getattr(record, item.column)
    if item.operator == "in":
        assert isinstance(item.value, tuple)
        return any(value is not None and value == actual for value in item.value)
    return item.value is not None and COMPARE[item.operator](actual, item.value)


operators = st.sampled_from(["=", "<=>", "<", "<=", ">", ">="])
numbers = st.one_of(st.none(), st.integers(-3, 12), st.sampled_from([-(2**70), 2**63 - 1, 2**63, 2**70]))
partitions = st.integers(-1, 3) | numbers  # mostly near those that exist, so that several filters matter
moments = st.one_of(st.none(), st.integers(-4_000, 12_000).map(lambda micros: at(micros / 1000)))


def comparisons(columns: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    plain = st.builds(Comparison, st.sampled_from(columns), operators, values)
    among = st.builds(Comparison, st.sampled_from(columns), st.just("in"), st.lists(values, max_size=4).map(tuple))
    return plain | among


filters = st.lists(
    comparisons(["partition"], partitions)
    | comparisons(["offset"], numbers)
    | comparisons(["timestamp"], moments)
    | st.sampled_from([UnsupportedFilter(), NotNull("offset"), NotNull("timestamp")]),
    max_size=4,
)


@examples(100)
@given(filters, st.lists(st.lists(st.integers(-1, 10), max_size=12), min_size=1, max_size=3), st.data())
def test_the_result_never_differs_from_the_unpushed_one(
    pushed_filters: list[Filter], logs: list[list[int]], data: st.DataObject
) -> None:
    ranges = []
    for partition, log in enumerate(logs):
        start = data.draw(st.integers(0, len(log)))
        ranges.append(OffsetRange("t", partition, start, data.draw(st.integers(start, len(log)))))

    pushed = push_filters(pushed_filters)
    narrowed = pushed.narrow(ranges)
    wanted = pushed.required_timestamps(narrowed)
    found = {
        tp: next((offset for offset, time in enumerate(logs[tp.partition]) if time >= wanted[tp]), NO_RECORD)
        for tp in wanted
    }
    narrowed = pushed.narrow_by_timestamp(narrowed, found)

    def records(of: list[OffsetRange]) -> list[Record]:
        return [Record(r.partition, o, logs[r.partition][o]) for r in of for o in range(r.from_offset, r.until_offset)]

    left_to_spark = [f for f, enforced in zip(pushed_filters, pushed.enforced, strict=True) if not enforced]
    with_pushdown = [r for r in records(narrowed) if all(holds(f, r) for f in left_to_spark)]
    without = [r for r in records(ranges) if all(holds(f, r) for f in pushed_filters)]
    assert with_pushdown == without
