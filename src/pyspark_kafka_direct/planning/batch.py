"""The plan of a batch: from two positions to the offset ranges of its tasks.

The order of the look-ups matters and is kept here: log start offsets first, timestamps next, ends last. So three things
hold:

* a start never lies below a log start that was seen;
* an offset found by timestamp never lies after the end;
* a timestamp filter (``pushdown``) that finds no record is true of the whole planned range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.loss import clip
from pyspark_kafka_direct.planning.ranges import split_ranges
from pyspark_kafka_direct.planning.resolve import Bound, Side, lookups, resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_kafka_direct.planning.positions import Position
    from pyspark_kafka_direct.planning.pushdown import Pushdown

LookUp: TypeAlias = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Asks the leaders: per partition -2, -1 or a timestamp in ms; answers an offset, -1 when no record is that new."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of a batch.

    Attributes:
        ranges: The offset ranges to read, one per task, none empty, in the order topic, partition, offset.
        from_earliest: Those of the ranges that begin at their partition's log start because that was asked for; see
            ``loss.judge``.
        warnings: To be logged once.
    """

    ranges: tuple[OffsetRange, ...]
    from_earliest: frozenset[OffsetRange] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuning:
    """Options that shape a plan but not its result."""

    fail_on_data_loss: bool = True
    read_committed: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None


def plan_positions(
    start: Position,
    end: Position,
    partitions: Collection[TopicPartition],
    look_up: LookUp,
    tuning: Tuning,
    pushed: Pushdown | None = None,
) -> BatchPlan:
    """Plan the records from ``start`` to ``end`` of the assigned partitions.

    Args:
        start: Where to begin in each partition.
        end: Where to stop.
        partitions: The assigned partitions.
        look_up: Asks the partitions' leaders; called two to five times, whatever the number of partitions.
        tuning: Options that shape the plan.
        pushed: Filters to narrow the ranges by.

    Raises:
        OffsetPlanError: The positions do not fit the partitions or each other.
        DataLossError: Offsets given by number are not in the log, and the tuning says to fail then.
    """
    if not partitions:
        return BatchPlan(())
    # Both are checked against the assigned partitions before anything is asked.
    wanted_start, wanted_end = lookups(start, partitions, "start"), lookups(end, partitions, "end")
    earliest = look_up(dict.fromkeys(partitions, EARLIEST))
    by_time_start, by_time_end = _by_time(wanted_start, look_up), _by_time(wanted_end, look_up)
    latest = look_up(dict.fromkeys(partitions, LATEST))

    def bounds(
        position: Position, wanted: Mapping[TopicPartition, int], timed: Mapping[TopicPartition, int], side: Side
    ) -> dict[TopicPartition, Bound]:
        sentinels = {tp: (earliest if n == EARLIEST else latest)[tp] for tp, n in wanted.items() if n < 0}
        return resolve(position, partitions, {**sentinels, **timed}, latest, side)

    starts = bounds(start, wanted_start, by_time_start, "start")
    ends = bounds(end, wanted_end, by_time_end, "end")
    return _plan([(tp, starts[tp], ends[tp]) for tp in sorted(partitions)], earliest, latest, look_up, tuning, pushed)


def plan_given_ranges(
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, Collection[int]],
    look_up: LookUp,
    tuning: Tuning,
    pushed: Pushdown | None = None,
) -> BatchPlan:
    """Plan the ranges of the option ``offsetRanges``, in the given order.

    Args:
        ranges: What to read; a partition may occur several times.
        topics: Partition numbers of each existing topic.
        look_up: Asks the partitions' leaders; called two or three times.
        tuning: Options that shape the plan.
        pushed: Filters to narrow the ranges by.

    Raises:
        TopicNotFoundError: A partition does not exist.
        DataLossError: Offsets are not in the log, and the tuning says to fail then.
    """
    partitions = {r.topic_partition for r in ranges}
    for tp in sorted(partitions):
        if tp.partition not in topics.get(tp.topic, ()):
            raise TopicNotFoundError(
                "offsetRanges names a topic-partition that does not exist, or may not be described",
                topic=tp.topic,
                partition=tp.partition,
            )
    if not partitions:
        return BatchPlan(())
    earliest = look_up(dict.fromkeys(partitions, EARLIEST))
    latest = look_up(dict.fromkeys(partitions, LATEST))
    bounds = [(r.topic_partition, Bound(r.from_offset, "given"), Bound(r.until_offset, "given")) for r in ranges]
    return _plan(bounds, earliest, latest, look_up, tuning, pushed)


def _by_time(wanted: Mapping[TopicPartition, int], look_up: LookUp) -> Mapping[TopicPartition, int]:
    timestamps = {tp: n for tp, n in wanted.items() if n >= 0}
    return look_up(timestamps) if timestamps else {}


def _plan(
    bounds: Sequence[tuple[TopicPartition, Bound, Bound]],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    look_up: LookUp,
    tuning: Tuning,
    pushed: Pushdown | None,
) -> BatchPlan:
    ranges: list[OffsetRange] = []
    warnings: list[str] = []
    for tp, start, end in bounds:
        fitted, said = clip(
            tp,
            start,
            end,
            earliest[tp],
            None if tuning.read_committed else latest[tp],
            fail_on_data_loss=tuning.fail_on_data_loss,
        )
        ranges.append(fitted)
        warnings.extend(said)
    if pushed is not None:
        ranges = pushed.narrow(ranges)
        wanted = pushed.lookups(ranges)
        if wanted:
            ranges = pushed.narrow_by_time(ranges, look_up(wanted))
    pieces = split_ranges(ranges, tuning.min_partitions, tuning.max_records_per_partition)
    moving = {tp for tp, start, _ in bounds if start.origin == "earliest"}
    from_earliest = frozenset(
        piece
        for piece in pieces
        if piece.topic_partition in moving and piece.from_offset == earliest[piece.topic_partition]
    )
    return BatchPlan(tuple(pieces), from_earliest, tuple(warnings))
