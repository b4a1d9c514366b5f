"""Plans a batch: the offset ranges of its tasks between a start and an end.

The order of the lookups matters: log start offsets first, timestamps next, ends last. So a start never lies below the
log start offset that was returned, an offset found by timestamp never lies after the end, and a timestamp filter
(``pushed_filters``) without a matching record applies to the whole planned range. A timestamp without a record is
requested again after the ends, because a record may have arrived before such an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import ResolvedOffset
from pyspark_kafka_direct.planning.data_loss import clip_to_log, is_other_topic
from pyspark_kafka_direct.planning.offset_range_calculator import split_ranges
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts
from pyspark_kafka_direct.planning.offset_resolution import (
    positions_at,
    required_lookups,
    resolve_positions,
    times_without_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.options.offset_specs import OffsetSpec
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss
    from pyspark_kafka_direct.planning.offset_resolution import OffsetLookup
    from pyspark_kafka_direct.planning.pushed_filters import PushedFilters


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of a batch."""

    ranges: tuple[OffsetRange, ...]  # one per task, none empty, ordered by topic, partition, offset
    selected: tuple[OffsetRange, ...] = ()  # also empty ones, before filters and before they were split into tasks
    # Those that start at "earliest": deleted records at their start are no loss.
    from_earliest: frozenset[OffsetRange] = frozenset()
    warnings: tuple[str, ...] = ()
    losses: tuple[SkippedLoss, ...] = ()
    # Where partitions end that are read to the end of the log, or with ``read_committed`` to the last stable offset.
    latest: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)


def plan_offset_specs(
    start: OffsetSpec,
    end: OffsetSpec,
    partitions: Collection[TopicPartition],
    fetch_offsets: OffsetLookup,
    settings: ReadSettings,
    *,
    now_ms: int,  # the end of times such as -1h
    pushed: PushedFilters | None = None,
    raise_epoch_floors: Callable[[Collection[str]], None] | None = None,  # None: there is only one leader
) -> BatchPlan:
    """Plan the records from ``start`` to ``end``; two to eight lookups for any number of partitions."""
    if not partitions:
        return BatchPlan(())
    # Check both specs against the assigned partitions before the first lookup.
    start_positions = positions_at(start, partitions, "start", now_ms)
    end_positions = positions_at(end, partitions, "end", now_ms)

    # Starts that are not given depend on which records a leader has, and a deposed one may lack some.
    start_lookups = required_lookups(start_positions)
    earliest = _fetch_log_starts(partitions, fetch_offsets, raise_epoch_floors if start_lookups else None)
    start_offsets = {**earliest, **_fetch_times(start_lookups, fetch_offsets)}
    end_offsets = {**earliest, **_fetch_times(required_lookups(end_positions), fetch_offsets)}
    latest = fetch_offsets(dict.fromkeys(partitions, LATEST))

    start_offsets.update(_fetch_times(times_without_record(start_positions, start_offsets), fetch_offsets))
    end_offsets.update(_fetch_times(times_without_record(end_positions, end_offsets), fetch_offsets))

    starts = resolve_positions(start_positions, start_offsets, latest, side="start", option=start.option)
    ends = resolve_positions(end_positions, end_offsets, latest, side="end", option=end.option)
    plan = _plan_ranges(
        [(tp, starts[tp], ends[tp]) for tp in sorted(partitions)],
        earliest=earliest,
        latest=latest,
        fetch_offsets=fetch_offsets,
        settings=settings,
        pushed=pushed,
    )
    return replace(
        plan,
        latest={tp: end.offset for tp, end in ends.items() if end.offset == latest[tp] and end.origin != "given"},
    )


def plan_explicit_ranges(
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, Collection[int]],  # the partitions of each existing topic
    topic_ids: Mapping[str, UUID | None],
    fetch_offsets: OffsetLookup,
    settings: ReadSettings,
    *,
    pushed: PushedFilters | None = None,
) -> BatchPlan:
    """Plan the ranges of the option ``offsetRanges``, in the order of the option.

    Ranges of a topic that seems to be deleted or recreated come last and keep their topic ids. Their tasks decide
    whether it is data loss, because a single metadata response may be outdated. A range without a topic id may also be
    a wrong name, so it must exist if ``fail_on_data_loss`` is set.
    """

    def is_left_to_task(r: OffsetRange) -> bool:
        is_missing = r.partition not in topics.get(r.topic, ())
        # With failOnDataLoss, a missing partition of the same topic is an error of the plan.
        return (is_missing and not settings.fetch.fail_on_data_loss) or not _has_same_topic(r, topic_ids)

    planned_here = [r for r in ranges if not is_left_to_task(r)]
    left_to_tasks = [r for r in ranges if is_left_to_task(r) and r.count()]
    plan = _plan_existing_ranges(planned_here, topics, fetch_offsets, settings, pushed)
    return replace(
        plan,
        ranges=(*plan.ranges, *(left_to_tasks if pushed is None else pushed.narrow(left_to_tasks))),
        selected=(*plan.selected, *left_to_tasks),
    )


def _plan_existing_ranges(
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, Collection[int]],
    fetch_offsets: OffsetLookup,
    settings: ReadSettings,
    pushed: PushedFilters | None,
) -> BatchPlan:
    """Plan ranges of topics that exist; raise TopicNotFoundError if a partition does not."""
    partitions = {r.topic_partition for r in ranges}
    for tp in sorted(partitions):
        if tp.partition not in topics.get(tp.topic, ()):
            raise TopicNotFoundError(
                "offsetRanges names a topic-partition that does not exist",
                topic=tp.topic,
                partition=tp.partition,
            )
    if not partitions:
        return BatchPlan(())
    earliest = fetch_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = fetch_offsets(dict.fromkeys(partitions, LATEST))
    bounds = [
        (r.topic_partition, ResolvedOffset(r.from_offset, "given"), ResolvedOffset(r.until_offset, "given"))
        for r in ranges
    ]
    return _plan_ranges(
        bounds, earliest=earliest, latest=latest, fetch_offsets=fetch_offsets, settings=settings, pushed=pushed
    )


def _has_same_topic(offset_range: OffsetRange, topic_ids: Mapping[str, UUID | None]) -> bool:
    """Return whether the topic of a range exists with the same id, as far as the ids are known."""
    if offset_range.topic_id is None:
        return True
    return offset_range.topic in topic_ids and not is_other_topic(offset_range.topic_id, topic_ids[offset_range.topic])


def _fetch_log_starts(
    partitions: Collection[TopicPartition],
    fetch_offsets: OffsetLookup,
    raise_epoch_floors: Callable[[Collection[str]], None] | None,
) -> Mapping[TopicPartition, int]:
    """Return log starts; with ``raise_epoch_floors``, from leaders that several brokers confirm."""

    def fetch() -> Mapping[TopicPartition, int]:
        return fetch_offsets(dict.fromkeys(partitions, EARLIEST))

    return fetch() if raise_epoch_floors is None else confirmed_starts(fetch, raise_epoch_floors)


def _fetch_times(requested: Mapping[TopicPartition, int], fetch_offsets: OffsetLookup) -> Mapping[TopicPartition, int]:
    timestamps = {tp: lookup for tp, lookup in requested.items() if lookup >= 0}
    return fetch_offsets(timestamps) if timestamps else {}


def _plan_ranges(
    bounds: Sequence[tuple[TopicPartition, ResolvedOffset, ResolvedOffset]],
    *,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    fetch_offsets: OffsetLookup,
    settings: ReadSettings,
    pushed: PushedFilters | None,
) -> BatchPlan:
    """Clip the bounds to the log, narrow them by the pushed filters and split them into tasks."""
    ranges: list[OffsetRange] = []
    warnings: list[str] = []
    losses: list[SkippedLoss] = []
    for tp, start, end in bounds:
        clipped, clip_warnings, clip_losses = clip_to_log(
            tp,
            start,
            end,
            log_start=earliest[tp],
            # With read_committed, offsets past the last stable offset exist, so they are not lost.
            log_end=None if settings.fetch.read_committed else latest[tp],
            fail_on_data_loss=settings.fetch.fail_on_data_loss,
        )
        ranges.append(clipped)
        warnings.extend(clip_warnings)
        losses.extend(clip_losses)
    selected = tuple(ranges)
    if pushed is not None:
        ranges = pushed.narrow(ranges)
        timestamps = pushed.required_timestamps(ranges)
        if timestamps:
            ranges = pushed.narrow_by_timestamp(ranges, fetch_offsets(timestamps))
    task_ranges = split_ranges(ranges, settings.source.min_partitions, settings.source.max_records_per_partition)
    # Retention before the first read is no loss for these: "earliest" means the log start when reading begins.
    started_at_earliest = {tp for tp, start, _ in bounds if start.origin == "earliest"}
    from_earliest = frozenset(
        task_range
        for task_range in task_ranges
        if task_range.topic_partition in started_at_earliest
        and task_range.from_offset == earliest[task_range.topic_partition]
    )
    return BatchPlan(tuple(task_ranges), selected, from_earliest, tuple(warnings), tuple(losses))
