"""Filters on partition, offset and timestamp that narrow offset ranges before anything is read.

Filters on ``partition`` and ``offset`` are exact, so Spark need not evaluate them again. A filter on ``timestamp``
gives a lower bound only, and Spark evaluates it again: all records before the first one with the timestamp or a later
one are older and can be skipped, but producers set timestamps, so older records can follow (CreateTime). Kafka's
timestamps are milliseconds, Spark's literals are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.planning.offset_resolution import NO_RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

Operator: TypeAlias = Literal["=", "<=>", "<", "<=", ">", ">=", "in"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator value``; the value is a tuple for ``in``. As in SQL, null equals null only with ``<=>``."""

    column: str
    operator: Operator
    value: object


@dataclass(frozen=True, slots=True)
class NotNull:
    """``column IS NOT NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class UnsupportedFilter:
    """A filter that cannot be pushed down."""


Filter: TypeAlias = Comparison | NotNull | UnsupportedFilter


@dataclass(frozen=True, slots=True)
class IntegerSet:
    """The integers from ``minimum`` to ``maximum``, restricted to ``members`` if these are given."""

    minimum: int = 0
    maximum: int = MAX_OFFSET
    members: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.minimum <= number <= self.maximum and (self.members is None or number in self.members)

    def __and__(self, other: IntegerSet) -> IntegerSet:
        if self.members is None or other.members is None:
            members = other.members if self.members is None else self.members
        else:
            members = self.members & other.members
        return IntegerSet(max(self.minimum, other.minimum), min(self.maximum, other.maximum), members)


_NO_INTEGERS = IntegerSet(members=frozenset())


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The conjunction of all supported filters."""

    partitions: IntegerSet
    offsets: IntegerSet  # an interval: without members
    from_timestamp: int | None  # no record with an earlier timestamp (ms) can match
    matches_nothing: bool
    enforced: tuple[bool, ...]  # whether the ranges enforce a filter exactly, by its index in ``push_filters``

    def narrow(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of the ranges that can match the filters on partition and offset, none empty."""
        if self.matches_nothing:
            return []
        narrowed = []
        for r in ranges:
            first, until = max(r.from_offset, self.offsets.minimum), min(r.until_offset, self.offsets.maximum + 1)
            if first < until and r.partition in self.partitions:
                narrowed.append(replace(r, from_offset=first, until_offset=until))
        return narrowed

    def required_timestamps(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """Return the timestamps (ms) to look up by partition; the lookup must follow that of the ranges' ends."""
        # Brokers treat negative timestamps as keywords, and hardly any record is older than 1970.
        if self.from_timestamp is None or not 0 <= self.from_timestamp <= MAX_OFFSET:
            return {}
        return {r.topic_partition: self.from_timestamp for r in ranges}

    def narrow_by_timestamp(
        self, ranges: Sequence[OffsetRange], offsets: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """Drop the offsets before the first record that can match; ``NO_RECORD`` means there is none."""
        narrowed = []
        for r in ranges:
            first_match = offsets.get(r.topic_partition, r.from_offset)
            first = r.until_offset if first_match == NO_RECORD else max(r.from_offset, first_match)
            if first < r.until_offset:
                narrowed.append(replace(r, from_offset=first))
        return narrowed


def push_filters(filters: Sequence[Filter]) -> PushedFilters:
    """Combine filters that all must match; unsupported ones are left to Spark."""
    partitions, offsets = IntegerSet(), IntegerSet()
    from_timestamp: int | None = None
    matches_nothing = False
    enforced = []
    for item in filters:
        is_enforced = False
        if isinstance(item, NotNull):
            is_enforced = item.column in ("partition", "offset")  # these are never null
        elif isinstance(item, Comparison) and item.column in ("partition", "offset"):
            integers = _integer_set(item)
            if integers is not None and item.column == "partition":
                partitions, is_enforced = partitions & integers, True
            elif integers is not None:  # a range of offsets has no gaps
                interval, is_enforced = _as_interval(integers)
                offsets &= interval
        elif isinstance(item, Comparison) and item.column == "timestamp":  # never enforced: older records may follow
            lower_bound = _from_timestamp(item)
            if lower_bound == "never":
                matches_nothing = True
            elif lower_bound is not None:
                from_timestamp = lower_bound if from_timestamp is None else max(from_timestamp, lower_bound)
        enforced.append(is_enforced)
    matches_nothing = matches_nothing or partitions.minimum > partitions.maximum or offsets.minimum > offsets.maximum
    return PushedFilters(partitions, offsets, from_timestamp, matches_nothing, tuple(enforced))


def _integer_set(item: Comparison) -> IntegerSet | None:
    """Return the integers for which the comparison is true; ``None`` if its value is not an integer."""
    if item.operator == "in":
        if not isinstance(item.value, (tuple, list, set, frozenset)):
            return None
        # A null in the list turns "false" into "null" if nothing else matches: not true either way.
        values = [value for value in item.value if value is not None]
        return IntegerSet(members=frozenset(values)) if all(map(_is_integer, values)) else None
    if item.value is None:
        return _NO_INTEGERS  # also for <=>: neither column is ever null
    if not _is_integer(item.value):
        return None
    assert isinstance(item.value, int)
    match item.operator:
        case "=" | "<=>":
            return IntegerSet(item.value, item.value)
        case "<":
            return IntegerSet(maximum=item.value - 1)
        case "<=":
            return IntegerSet(maximum=item.value)
        case ">":
            return IntegerSet(minimum=item.value + 1)
        case ">=":
            return IntegerSet(minimum=item.value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_interval(integers: IntegerSet) -> tuple[IntegerSet, bool]:
    """Return the smallest interval that contains the integers, and whether it contains no others."""
    if integers.members is None:
        return integers, True
    if not integers.members:
        return IntegerSet(1, 0), True  # an empty interval
    minimum, maximum = min(integers.members), max(integers.members)
    return IntegerSet(minimum, maximum), maximum - minimum + 1 == len(integers.members)


def _from_timestamp(item: Comparison) -> int | Literal["never"] | None:
    """Return the earliest millisecond that can match: ``"never"`` if none can, ``None`` without a lower bound."""
    values = list(item.value) if item.operator == "in" and isinstance(item.value, (tuple, list)) else [item.value]
    if item.operator == "in":
        values = [value for value in values if value is not None]
    micros = [_microseconds(value) for value in values]
    known = [value for value in micros if value is not None]
    if len(known) != len(micros):  # a value is no timestamp, so Spark has to evaluate the filter
        return None
    if item.operator in ("=", "<=>", "in"):
        # A literal with a fraction of a millisecond does not equal any record's timestamp.
        milliseconds = [value // 1000 for value in known if value % 1000 == 0]
        return min(milliseconds) if milliseconds else "never"
    if item.operator == ">=":
        return -(-known[0] // 1000)  # rounded up
    if item.operator == ">":
        return known[0] // 1000 + 1
    return None  # for < and <=


def _microseconds(value: object) -> int | None:
    """Return microseconds since 1970 of a datetime with a time zone; ``None`` for anything else, also for null."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return None
