"""Bugs of streaming queries: their planner, their limits and the recorded offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from tests.simulation.planting import BugsOf, does_nothing

from pyspark_kafka_direct.consumer import fetcher as fetcher_module
from pyspark_kafka_direct.datasource import micro_batch_planner as planner_module
from pyspark_kafka_direct.datasource import micro_batch_stream_base as stream_module
from pyspark_kafka_direct.datasource.micro_batch_planner import BatchLimiter, MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.datasource.micro_batch_stream_base import KafkaMicroBatchStreamBase
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, partition_offsets_to_json
from pyspark_kafka_direct.planning import offset_resolution
from pyspark_kafka_direct.planning.backpressure import BackpressureLimit
from pyspark_kafka_direct.planning.data_loss import AbsenceEvidence, LossDecision, Presence
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.planning.offset_reader import SnapshotReader
from pyspark_kafka_direct.planning.read_limits import rate_limit
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader
from pyspark_kafka_direct.spark.offset_committer import RunOffsetCommitter

_bug: Final = BugsOf("micro_batches").by_one_patch


def _end_read_again(original: Any) -> Any:
    """A batch that runs again ends at the latest offsets."""

    def replan(self: Any, start: Any, end: Any, **named: Any) -> Any:
        latest = self._offset_reader.offsets(dict.fromkeys(end, LATEST))
        return original(self, start, {tp: max(latest.get(tp, 0), offset) for tp, offset in end.items()}, **named)

    return replan


def _start_not_recorded(original: Any) -> Any:
    def record(end: Any, start: Any) -> Any:
        del start
        return json.loads(partition_offsets_to_json(end))

    return record


def _commit_ahead(original: Any) -> Any:
    """The end that was just planned is committed."""

    def next_end(self: Any, start: Any, **named: Any) -> Any:
        end = original(self, start, **named)
        committer = self._committer()
        if committer is not None and end != start:
            committer.commit_async(stream_module._from_spark_offset(end))
            committer.wait_for_commit()
        return end

    return next_end


def _limit_loses_partition(original: Any) -> Any:
    """A limited batch leaves out the partition with the least to read."""

    def rate_limit(limit: int, from_offsets: Any, end_offsets: Any) -> Any:
        limited = original(limit, from_offsets, end_offsets)
        if len(limited) > 1 and limited != end_offsets:
            del limited[min(limited, key=lambda tp: (end_offsets[tp] - from_offsets[tp], tp))]
        return limited

    return rate_limit


def _limit_skips(original: Any) -> Any:
    """A share below one is counted, and its record is not read."""

    def limit_ends(self: Any, start: Any, from_offsets: Any, end_offsets: Any) -> Any:
        limited = original(self, start, from_offsets, end_offsets)
        for tp, offset in limited.items():
            if offset - from_offsets[tp] == 1 and offset < end_offsets[tp]:
                from_offsets[tp] = offset
                limited[tp] = offset + 1
        return limited

    return limit_ends


def _added_at_latest(original: Any) -> Any:
    """Partitions that are added to a running query start at their end."""

    def start_added(self: Any, ends: Any, added: Any) -> Any:
        original(self, ends, added)
        return dict(ends)

    return start_added


def _first_response_counts(original: Any) -> Any:
    """One broker's response proves that a topic is missing."""

    def add(self: Any, reports: Any, now: float) -> Presence:
        reports = list(reports)[:1]
        if reports[0].has(self._tp.partition, self._topic_id):
            return Presence.PRESENT
        presence, self.new_topic_id = self._statement(reports[0])
        return Presence(presence)

    return add


def _lower_end_at_once(original: Any) -> Any:
    """The first response counts for ends and missing partitions."""

    def fetch_latest(self: Any, known: Any) -> Any:
        return original(self, {})

    return fetch_latest


def _silent_loss(original: Any) -> Any:
    """Tasks skip lost offsets without a word."""

    def evaluate(*args: Any, **named: Any) -> Any:
        decision = original(*args, **{**named, "fail_on_data_loss": False})
        return LossDecision(decision.next_offset)

    return evaluate


def _overlapping_tasks(original: Any) -> Any:
    """Each task of a split partition also reads the first offset of the next one."""

    def split(ranges: Any, *args: Any) -> Any:
        result = original(ranges, *args)
        ends = {each.topic_partition: each.until_offset for each in ranges}
        return [
            type(each).create(
                each.topic_partition,
                each.from_offset,
                min(each.until_offset + 1, ends[each.topic_partition]),
            )
            for each in result
        ]

    return split


def _start_resolved_twice(original: Any) -> Any:
    """Each call resolves the initial offset again."""

    def initial_offsets(self: Any) -> Any:
        self._initial_offsets = None
        return original(self)

    return initial_offsets


def _high_watermark_for_committed(original: Any) -> Any:
    """With read_committed, a batch ends at the high watermark."""

    def offsets(self: Any, requested: Any) -> Any:
        return self._offsets(requested, "read_uncommitted")

    return offsets


def _idle_answer_repeated(original: Any) -> Any:
    """For a second, a query that found no records does not look again."""

    def next_end(self: Any, start: Any, **named: Any) -> Any:
        idle = self._idle_refresh
        if idle is not None and idle.start == start and self._clock() < idle.began_at + 1:
            return dict(start)
        return original(self, start, **named)

    return next_end


def _end_before_log(original: Any) -> Any:
    """A batch that runs again leaves out its last record."""

    def replan(self: Any, start: Any, end: Any, **named: Any) -> Any:
        plan = original(self, start, end, **named)
        ranges = tuple(
            type(each).create(each.topic_partition, each.from_offset, each.until_offset - 1)
            for each in plan.ranges
            if each.count() > 1
        )
        return MicroBatchPlan(ranges, plan.topic_ids)

    return replan


def _log_start_is_read(original: Any) -> Any:
    """A batch that runs again starts at the log start."""

    def replan(self: Any, start: Any, end: Any, **named: Any) -> Any:
        starts = self._offset_reader.offsets(dict.fromkeys(start, EARLIEST))
        return original(self, {tp: starts.get(tp, offset) for tp, offset in start.items()}, end, **named)

    return replan


def _truncation_waits(original: Any) -> Any:
    def limited_ends(self: Any, start: Any, from_offsets: Any, max_ends: Any, *, immediately: bool) -> Any:
        is_truncated = any(max_ends.get(tp, offset) < offset for tp, offset in start.items())
        return original(self, start, from_offsets, max_ends, immediately=immediately and not is_truncated)

    return limited_ends


def _starts_of_a_deposed_leader(_: Any) -> Any:
    """The current leader is found, but the starts remain those that a deposed leader reported."""

    def confirmed_starts(fetch_starts: Any, raise_epoch_floors: Any) -> Any:
        starts = fetch_starts()
        raise_epoch_floors({tp.topic for tp, offset in starts.items() if offset})
        return starts

    return confirmed_starts


def _first_latest_offsets(original: Any) -> Any:
    """The progress report has the ends of the first batch in all batches."""

    def known_latest(self: Any) -> Any:
        latest = original.fget(self)
        self.__dict__.setdefault("first_latest", latest)
        return self.__dict__["first_latest"] or latest

    return property(known_latest)


def _reported_with_the_plan(original: Any) -> Any:
    """The plan of a batch reports all partitions that it lacks, also those of recreated topics."""

    def plan_decided(self: Any, start: Any, end: Any, metadata: Any) -> Any:
        self._losses.report_missing(start.keys() - end.keys())
        return original(self, start, end, metadata)

    return plan_decided


def _first_limit_only(_: Any) -> Any:
    def limit_ends(self: Any, start: Any, from_offsets: Any, end_offsets: Any) -> Any:
        by_duration = None if self._backpressure_limit is None else self._backpressure_limit(start)
        limits = (self._limits.max_offsets, by_duration, self._byte_limit(from_offsets, end_offsets))
        limit = next((each for each in limits if each is not None), None)
        return dict(end_offsets) if limit is None else rate_limit(limit, from_offsets, end_offsets)

    return limit_ends


def _counted_twice(original: Any) -> Any:

    def report_loss(self: Any, loss: Any) -> Any:
        offsets = {tp: 2 * count if loss.cause.name == "AGED_OUT" else count for tp, count in loss.offsets.items()}
        return original(self, replace(loss, offsets=offsets))

    return report_loss


def _interval_of_one_second(original: Any) -> Any:
    def apply_measurements(self: Any) -> None:
        original(self)
        self._interval_ms = 1000.0

    return apply_measurements


def _committed_with_the_next_batch(original: Any) -> Any:
    """An idle query does not commit the batch that it has finished."""

    def commit_async(self: Any, offsets: Any, *, resumed_from: Any = None) -> None:
        waiting, self.__dict__["waiting"] = self.__dict__.get("waiting"), (offsets, resumed_from)
        if waiting is not None and waiting[0] != offsets:
            original(self, waiting[0], resumed_from=waiting[1])

    return commit_async


BUGS: Final = (
    _bug(
        "recreated with fewer partitions",
        "The partitions that a recreated topic lacks are reported and counted as recreated, and again as deleted when "
        "the batch is planned.",
        MicroBatchPlanner,
        "_plan_decided",
        _reported_with_the_plan,
        was_real=True,
    ),
    _bug(
        "first limit only",
        "Of maxOffsetsPerTrigger, backpressure and maxBytesPerTrigger only the first one limits a batch.",
        BatchLimiter,
        "limit_ends",
        _first_limit_only,
    ),
    _bug(
        "too many expired offsets counted",
        "Twice as many expired offsets are counted as the planner's warning says.",
        KafkaOffsetReader,
        "report_loss",
        _counted_twice,
    ),
    _bug(
        "committed with the next batch",
        "The offsets of a finished batch are committed only when the next one is finished.",
        RunOffsetCommitter,
        "commit_async",
        _committed_with_the_next_batch,
    ),
    _bug(
        "tasks without leaders",
        "Tasks do not get the leaders that the planner knows, so each one requests metadata.",
        KafkaOffsetReader,
        "leaders",
        lambda _: lambda *_: {},
    ),
    _bug(
        "idle query without a pause",
        "An idle query sends requests at each poll of Spark.",
        planner_module,
        "_IDLE_REFRESH_SECONDS",
        lambda _: 0.0,
    ),
    _bug(
        "backpressure for one second",
        "Backpressure allows the records of one second in each batch, with any trigger interval.",
        BackpressureLimit,
        "_apply_measurements",
        _interval_of_one_second,
    ),
    _bug(
        "outdated latest offsets",
        "The progress report has the ends of the first batch in all batches of a run.",
        MicroBatchPlanner,
        "known_latest",
        _first_latest_offsets,
    ),
    _bug(
        "starts of a deposed leader",
        "A query that starts at earliest takes the log start that a deposed leader reports even after the later leader "
        "was found, so records that the current leader still has are skipped without a report.",
        offset_resolution,
        "confirmed_starts",
        _starts_of_a_deposed_leader,
    ),
    _bug(
        "replanned until latest",
        "A batch that runs again ends at the latest offsets.",
        MicroBatchPlanner,
        "_replan",
        _end_read_again,
    ),
    _bug(
        "replanned without last record",
        "A batch that runs again leaves out its last record.",
        MicroBatchPlanner,
        "_replan",
        _end_before_log,
    ),
    _bug(
        "replanned from log start",
        "A batch that runs again starts at the log start.",
        MicroBatchPlanner,
        "_replan",
        _log_start_is_read,
    ),
    _bug(
        "start not recorded",
        "The end of the first batch does not record the batch's start.",
        stream_module,
        "record_first_start",
        _start_not_recorded,
        was_real=True,
    ),
    _bug(
        "start resolved twice",
        "Each call resolves the initial offset again.",
        MicroBatchPlanner,
        "initial_offsets",
        _start_resolved_twice,
    ),
    _bug(
        "commits ahead",
        "A group's offsets are ahead of the results.",
        KafkaMicroBatchStreamBase,
        "_next_end_offset",
        _commit_ahead,
    ),
    _bug(
        "limit loses partition",
        "A limited batch leaves out a partition, which counts as deleted then.",
        planner_module,
        "rate_limit",
        _limit_loses_partition,
    ),
    _bug(
        "limit exceeded",
        "A limited batch reads two records of small partitions.",
        BatchLimiter,
        "limit_ends",
        _limit_skips,
    ),
    _bug(
        "added partitions at latest",
        "Partitions that are added to a running query start at their end.",
        MicroBatchPlanner,
        "_start_added_partitions",
        _added_at_latest,
        was_real=True,
    ),
    _bug(
        "one witness of deletion",
        "One broker's response proves that a topic is missing.",
        AbsenceEvidence,
        "add",
        _first_response_counts,
        was_real=True,
    ),
    _bug(
        "first end counts",
        "Ends and partitions of one response are not compared with the known ones.",
        SnapshotReader,
        "fetch_latest",
        _lower_end_at_once,
        was_real=True,
    ),
    _bug(
        "topic ids not compared",
        "The planner does not notice that a topic was recreated.",
        planner_module,
        "topic_ids_by_partition",
        lambda _: lambda *_: {},
    ),
    _bug("silent loss in tasks", "Tasks skip lost records silently.", fetcher_module, "evaluate_loss", _silent_loss),
    _bug(
        "lower end not reported",
        "The planner continues silently at an end below the position.",
        LossReport,
        "report_offsets_changed",
        does_nothing,
    ),
    _bug(
        "missing partition not reported",
        "Deleted partitions are left out silently.",
        LossReport,
        "report_lost",
        does_nothing,
    ),
    _bug("tasks overlap", "Tasks of a split partition overlap.", planner_module, "split_ranges", _overlapping_tasks),
    _bug(
        "batch of undecided records",
        "With read_committed, a batch ends at the high watermark.",
        KafkaOffsetReader,
        "offsets",
        _high_watermark_for_committed,
    ),
    _bug(
        "idle answer repeated",
        "For a second, a query that found no records does not look again.",
        MicroBatchPlanner,
        "next_end_offsets",
        _idle_answer_repeated,
    ),
    _bug(
        "waits forever",
        "minOffsetsPerTrigger delays a batch without end.",
        BatchLimiter,
        "should_wait",
        lambda _: lambda *_, **__: True,
    ),
    _bug(
        "truncation waits",
        "With minOffsetsPerTrigger, the batch that finds a truncated log waits for more records.",
        MicroBatchPlanner,
        "_limited_ends",
        _truncation_waits,
    ),
    _bug(
        "AvailableNow without fixed ends",
        "Trigger.AvailableNow reads records that were appended after its start.",
        SnapshotReader,
        "fix_end_offsets",
        does_nothing,
    ),
)
