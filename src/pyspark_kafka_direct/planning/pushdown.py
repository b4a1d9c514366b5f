"""Filters on partition, offset and timestamp that narrow offset ranges before anything is read.

Filters on ``partition`` and ``offset`` are exact: the narrowed ranges hold the matching records and no others, so
Spark need not evaluate those filters again. A filter on ``timestamp`` gives a lower bound only, and stays with Spark:

* the leader's answer to "first offset whose record is not older than t" leaves only older records before it, so
  everything before it can be skipped;
* timestamps need not grow with offsets (producers set them, CreateTime), so records after any offset may still be
  older: an upper bound cannot be used.

Kafka's timestamps are whole milliseconds; Spark's literals are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.offsets import MAX_OFFSET, OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.resolve import NO_RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Operator: TypeAlias = Literal["=", "<=>", "<", "<=", ">", ">=", "in"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator value``; the value is a tuple for ``in``. As in SQL, null equals null only by ``<=>``."""

    column: str
    operator: Operator
    value: object


@dataclass(frozen=True, slots=True)
class NotNull:
    """``column IS NOT NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class Other:
    """Any filter that cannot be used here."""


Filter: TypeAlias = Comparison | NotNull | Other


@dataclass(frozen=True, slots=True)
class Integers:
    """The whole numbers from ``least`` to ``most``; if ``only`` is given, those of them."""

    least: int = 0
    most: int = MAX_OFFSET
    only: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.most and (self.only is None or number in self.only)

    def __and__(self, other: Integers) -> Integers:
        only = self.only if other.only is None else other.only if self.only is None else self.only & other.only
        return Integers(max(self.least, other.least), min(self.most, other.most), only)


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The conjunction of all filters that could be used.

    Attributes:
        partitions: Partition numbers that can match.
        offsets: Offsets that can match; only ``least`` and ``most`` count.
        from_timestamp: No record with an earlier timestamp (ms) can match; ``None`` without such a bound.
        nothing: No record at all can match.
        handled: For each filter given to ``push_down``: true when it is fully enforced here.
    """

    partitions: Integers
    offsets: Integers
    from_timestamp: int | None
    nothing: bool
    handled: tuple[bool, ...]

    def narrow(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of the ranges that the filters on partition and offset leave; empty ones are dropped."""
        if self.nothing:
            return []
        narrowed = []
        for r in ranges:
            first, until = max(r.from_offset, self.offsets.least), min(r.until_offset, self.offsets.most + 1)
            if first < until and r.partition in self.partitions:
                narrowed.append(OffsetRange(r.topic, r.partition, first, until))
        return narrowed

    def lookups(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """Return the timestamps (ms) to look up, after the ends of the ranges were looked up (see ``batch``)."""
        # The broker takes negative timestamps for keywords, and hardly any record is older than 1970.
        if self.from_timestamp is None or not 0 <= self.from_timestamp <= MAX_OFFSET:
            return {}
        return {r.topic_partition: self.from_timestamp for r in ranges}

    def narrow_by_time(self, ranges: Sequence[OffsetRange], found: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Drop what lies before the first record that is new enough; ``NO_RECORD`` means that none is."""
        narrowed = []
        for r in ranges:
            first_new = found.get(r.topic_partition, r.from_offset)
            first = r.until_offset if first_new == NO_RECORD else max(r.from_offset, first_new)
            if first < r.until_offset:
                narrowed.append(OffsetRange(r.topic, r.partition, first, r.until_offset))
        return narrowed


def push_down(filters: Sequence[Filter]) -> Pushdown:
    """Work out what a conjunction of filters leaves to read."""
    partitions, offsets = Integers(), Integers()
    from_timestamp: int | None = None
    nothing = False
    handled = []
    for item in filters:
        exact = False
        if isinstance(item, NotNull):
            exact = item.column in ("partition", "offset")
        elif isinstance(item, Comparison) and item.column in ("partition", "offset"):
            numbers = _integers(item)
            if numbers is not None and item.column == "partition":
                partitions, exact = partitions & numbers, True
            elif numbers is not None:
                bounds, exact = _as_interval(numbers)
                offsets &= bounds
        elif isinstance(item, Comparison) and item.column == "timestamp":
            bound = _from_timestamp(item)
            if bound == "never":
                nothing = True
            elif bound is not None:
                from_timestamp = bound if from_timestamp is None else max(from_timestamp, bound)
        handled.append(exact)
    nothing = nothing or partitions.least > partitions.most or offsets.least > offsets.most
    return Pushdown(partitions, offsets, from_timestamp, nothing, tuple(handled))


_NONE = Integers(only=frozenset())


def _integers(item: Comparison) -> Integers | None:
    """Return the numbers for which the comparison is true; ``None`` when its value is not a whole number."""
    if item.operator == "in":
        if not isinstance(item.value, (tuple, list, set, frozenset)):
            return None
        # A null in the list turns "false" into "null" where nothing else matches: not true either way.
        values = [value for value in item.value if value is not None]
        return Integers(only=frozenset(values)) if all(map(_is_whole, values)) else None
    if item.value is None:
        return _NONE  # also for <=>: neither column is ever null
    if not _is_whole(item.value):
        return None
    assert isinstance(item.value, int)
    match item.operator:
        case "=" | "<=>":
            return Integers(item.value, item.value)
        case "<":
            return Integers(most=item.value - 1)
        case "<=":
            return Integers(most=item.value)
        case ">":
            return Integers(least=item.value + 1)
        case ">=":
            return Integers(least=item.value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_interval(numbers: Integers) -> tuple[Integers, bool]:
    """Return the smallest interval around the numbers, and whether it holds no others."""
    if numbers.only is None:
        return numbers, True
    if not numbers.only:
        return Integers(1, 0), True
    least, most = min(numbers.only), max(numbers.only)
    return Integers(least, most), most - least + 1 == len(numbers.only)


def _from_timestamp(item: Comparison) -> int | Literal["never"] | None:
    """Return the earliest millisecond that can match: ``"never"`` if none can, ``None`` without such a bound."""
    values = list(item.value) if item.operator == "in" and isinstance(item.value, (tuple, list)) else [item.value]
    if item.operator == "in":
        values = [value for value in values if value is not None]
    micros = [_microseconds(value) for value in values]
    known = [value for value in micros if value is not None]
    if len(known) != len(micros):
        return None
    if item.operator in ("=", "<=>", "in"):
        # A literal with a fraction of a millisecond equals no record's timestamp.
        whole = [value // 1000 for value in known if value % 1000 == 0]
        return min(whole) if whole else "never"
    if item.operator == ">=":
        return -(-known[0] // 1000)
    if item.operator == ">":
        return known[0] // 1000 + 1
    return None


def _microseconds(value: object) -> int | None:
    """Return microseconds since 1970 of a datetime with a time zone; ``None`` for anything else, also null."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return None
