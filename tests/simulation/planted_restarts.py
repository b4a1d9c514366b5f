"""More bugs of streaming queries: what they record for a restart, topics that change, limits, and silent losses."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.planting import BugsOf, does_nothing

from pyspark_kafka_direct.datasource import micro_batch_planner as planner_module
from pyspark_kafka_direct.datasource import micro_batch_stream_base as stream_module
from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_planner import BatchLimiter, MicroBatchPlanner
from pyspark_kafka_direct.datasource.micro_batch_stream_base import KafkaMicroBatchStreamBase
from pyspark_kafka_direct.offsets import LATEST, OffsetRange
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.planning.offset_reader import SnapshotReader
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

_bug: Final = BugsOf("micro_batches").by_one_patch


# Restarts.


def _recorded_start_ignored(_: Any) -> Any:
    return lambda topics: None


def _start_clipped_silently(original: Any) -> Any:
    def starts(self: Any, from_offsets: Any, end: Any) -> Any:
        warn, self._offset_reader.warn = self._offset_reader.warn, lambda message: None
        try:
            return original(self, from_offsets, end)
        finally:
            self._offset_reader.warn = warn

    return starts


def _legacy_forgets_start(original: Any) -> Any:
    """After a restart the first batch starts at the initial offsets of a new query."""

    def partitions(self: Any, start: Any, end: Any) -> Any:
        tasks = original(self, start, end)
        if start == end and self._next_start == end:
            self._next_start = None
        return tasks

    return partitions


def _replan_without_added(original: Any) -> Any:
    """A batch that runs again leaves out partitions that were added in it."""

    def replan(self: Any, start: Any, end: Any, **named: Any) -> Any:
        plan = original(self, start, end, **named)
        ranges = tuple(each for each in plan.ranges if each.topic_partition in start)
        return type(plan)(ranges, plan.topic_ids)

    return replan


def _end_without_partition(original: Any) -> Any:
    """The JSON of offsets lacks the partitions of two digits, here those from 2 on."""

    def to_offset(offsets: Any) -> Any:
        return original({tp: offset for tp, offset in offsets.items() if tp.partition < 2})

    return to_offset


def _end_without_zero(original: Any) -> Any:
    """The JSON of offsets lacks partitions with offset 0."""

    def to_offset(offsets: Any) -> Any:
        return original({tp: offset for tp, offset in offsets.items() if offset})

    return to_offset


def _parsed_once(original: Any) -> Any:
    def parse(self: Any, start: Any) -> Any:
        if self._parsed_start is None:
            return original(self, start)
        return self._parsed_start.offsets

    return parse


# Topics that change.


class _KeysWithoutOverlap(set[Any]):
    def __and__(self, other: Any) -> Any:
        return set()


class _StartsWithoutOverlap(dict[Any, int]):
    def keys(self) -> Any:
        return _KeysWithoutOverlap(super().keys())


def _recreated_start_not_recorded(original: Any) -> Any:
    """The batch that finds a recreated topic also reads from it, and a restart begins at the old offset."""

    def start_added(self: Any, ends: Any, added: Any) -> Any:
        return _StartsWithoutOverlap(original(self, ends, added))

    return start_added


def _returns_at_end(original: Any) -> Any:
    """A topic that is found again starts at its end."""

    def start_added(self: Any, ends: Any, added: Any) -> Any:
        starts = original(self, ends, added)
        seen = self.__dict__.setdefault("_seen_topics", set())
        found = {tp: ends[tp] if tp.topic in seen else offset for tp, offset in starts.items()}
        seen.update(tp.topic for tp in ends)
        return found

    return start_added


def _all_unselected(_: Any) -> Any:
    """Missing partitions count as not selected without evidence."""
    return lambda self, partitions: set(partitions)


# Limits.


def _limit_goes_back(original: Any) -> Any:
    """The end of a limited batch may lie before its start, where a partition has no lag."""

    def limit_ends(self: Any, start: Any, from_offsets: Any, end_offsets: Any) -> Any:
        limited = original(self, start, from_offsets, end_offsets)
        if limited == end_offsets:
            return limited
        return {tp: max(end - 1, 0) if end == from_offsets[tp] else end for tp, end in limited.items()}

    return limit_ends


def _share_of_zero(_: Any) -> Any:
    """A share of less than one offset is none."""

    def rate_limit(limit: int, from_offsets: Any, end_offsets: Any) -> Any:
        lags = {tp: max(end - from_offsets[tp], 0) for tp, end in end_offsets.items()}
        total = sum(lags.values()) or 1
        return {
            tp: min(from_offsets[tp] + limit * lag // total, end_offsets[tp]) if lag else end_offsets[tp]
            for tp, lag in lags.items()
        }

    return rate_limit


def _limit_for_each(_: Any) -> Any:
    """Each partition has the whole limit."""

    def rate_limit(limit: int, from_offsets: Any, end_offsets: Any) -> Any:
        return {tp: min(end, max(from_offsets[tp] + limit, from_offsets[tp])) for tp, end in end_offsets.items()}

    return rate_limit


def _delayed_loss(original: Any) -> Any:
    """minOffsetsPerTrigger delays the batch after a loss, too."""

    def should_wait(self: Any, *args: Any, immediately: bool) -> Any:
        del immediately
        return original(self, *args, immediately=False)

    return should_wait


def _limited_batch_is_last(original: Any) -> Any:
    """Trigger.AvailableNow ends after the first batch that reaches its limit."""

    def next_end(self: Any, start: Any, **named: Any) -> Any:
        if self._snapshots.fixed_end_offsets is not None and self.__dict__.get("_was_limited"):
            return dict(start)
        end = original(self, start, **named)
        fixed = self._snapshots.fixed_end_offsets
        self._was_limited = fixed is not None and end != fixed and end != start
        return end

    return next_end


def _fixed_again(original: Any) -> Any:
    """Trigger.AvailableNow fixes its ends again for each batch."""

    def available(self: Any, start: Any) -> Any:
        if self.fixed_end_offsets is not None:
            snapshot = self.fetch_latest(start)
            self.fixed_end_offsets, self._fixed_topic_ids = dict(snapshot.latest), snapshot.topic_ids
        return original(self, start)

    return available


def _resolved_start_is_end(original: Any) -> Any:
    """Starts at a timestamp or at earliest skip the first record."""

    def resolve(*args: Any, **named: Any) -> Any:
        return {tp: offset + 1 for tp, offset in original(*args, **named).items()}

    return resolve


def _gap_between_tasks(original: Any) -> Any:
    """Tasks of a split partition leave out the last offset of each piece."""

    def split(ranges: Any, *args: Any) -> Any:
        ends = {(each.topic_partition, each.until_offset) for each in ranges}
        return [
            each
            if (each.topic_partition, each.until_offset) in ends or each.count() < 2
            else OffsetRange(each.topic, each.partition, each.from_offset, each.until_offset - 1)
            for each in original(ranges, *args)
        ]

    return split


def _latest_is_start(original: Any) -> Any:
    """An unknown start of a partition is its end."""

    def log_starts(self: Any, partitions: Any) -> Any:
        return self._offset_reader.offsets(dict.fromkeys(partitions, LATEST))

    del original
    return log_starts


BUGS: Final = (
    _bug(
        "recorded start ignored",
        "An unfinished first batch runs again with the new start options.",
        stream_module,
        "recorded_first_start",
        _recorded_start_ignored,
        was_real=True,
    ),
    _bug(
        "expired first batch not reported",
        "An unfinished first batch skips expired records silently.",
        MicroBatchPlanner,
        "_starts_after_retention",
        _start_clipped_silently,
    ),
    _bug(
        "legacy reader forgets start",
        "Before Spark 4.2 a query starts again at its initial offsets after a restart.",
        LegacyKafkaMicroBatchStream,
        "partitions",
        _legacy_forgets_start,
    ),
    _bug(
        "replanned without added partitions",
        "A batch that runs again leaves out partitions that were added in it.",
        MicroBatchPlanner,
        "_replan",
        _replan_without_added,
    ),
    _bug(
        "offsets lose a partition",
        "The offset log lacks the third partition.",
        stream_module,
        "to_spark_offset",
        _end_without_partition,
    ),
    _bug(
        "offsets lose zeros",
        "The offset log lacks partitions at offset 0.",
        stream_module,
        "to_spark_offset",
        _end_without_zero,
    ),
    _bug(
        "start parsed once",
        "All batches of a run are planned from the first start.",
        KafkaMicroBatchStreamBase,
        "_parse_cached",
        _parsed_once,
    ),
    _bug(
        "recreated start not recorded",
        "A query that dies in the batch that finds a recreated topic loses its first records.",
        MicroBatchPlanner,
        "_start_added_partitions",
        _recreated_start_not_recorded,
        was_real=True,
    ),
    _bug(
        "topic returns at end",
        "A topic that was missing and returns starts at its end.",
        MicroBatchPlanner,
        "_start_added_partitions",
        _returns_at_end,
    ),
    _bug(
        "missing is not selected",
        "Partitions that one response lacks are left out as not selected.",
        KafkaOffsetReader,
        "not_selected",
        _all_unselected,
    ),
    _bug(
        "limit goes back",
        "The end of a limited batch lies before its start, where a partition has no lag.",
        BatchLimiter,
        "limit_ends",
        _limit_goes_back,
    ),
    _bug(
        "share of zero",
        "A partition whose share of maxOffsetsPerTrigger is less than one offset is never read.",
        planner_module,
        "rate_limit",
        _share_of_zero,
    ),
    _bug(
        "limit for each partition",
        "maxOffsetsPerTrigger applies to each partition.",
        planner_module,
        "rate_limit",
        _limit_for_each,
    ),
    _bug(
        "loss is delayed",
        "minOffsetsPerTrigger delays the batch that finds a recreated topic, whose first records are lost then.",
        BatchLimiter,
        "should_wait",
        _delayed_loss,
        was_real=True,
    ),
    _bug(
        "AvailableNow ends at limit",
        "Trigger.AvailableNow ends after the first limited batch.",
        MicroBatchPlanner,
        "next_end_offsets",
        _limited_batch_is_last,
    ),
    _bug(
        "AvailableNow fixes ends again",
        "Trigger.AvailableNow fixes its ends again for each batch.",
        SnapshotReader,
        "available_offsets",
        _fixed_again,
    ),
    _bug(
        "AvailableNow misses partitions",
        "Trigger.AvailableNow leaves out partitions that its first look missed.",
        SnapshotReader,
        "fix_added_end_offsets",
        does_nothing,
        was_real=True,
    ),
    _bug(
        "start skips a record",
        "A new query skips the first record.",
        planner_module,
        "resolve_start_offsets",
        _resolved_start_is_end,
    ),
    _bug(
        "gap between tasks",
        "The tasks of a split partition leave out the last offset of each piece.",
        planner_module,
        "split_ranges",
        _gap_between_tasks,
    ),
    _bug(
        "log start is end",
        "Partitions that are read from their start begin at their end.",
        SnapshotReader,
        "fetch_log_starts",
        _latest_is_start,
    ),
    _bug(
        "expired records not reported",
        "The planner skips expired records silently.",
        LossReport,
        "report_aged_out",
        does_nothing,
    ),
    _bug(
        "late start not reported",
        "An added partition that starts after offset 0 is not reported.",
        LossReport,
        "report_added_late",
        does_nothing,
    ),
    _bug(
        "left out partition not reported",
        "A batch that runs again leaves out a partition silently.",
        LossReport,
        "report_left_out",
        does_nothing,
    ),
)
