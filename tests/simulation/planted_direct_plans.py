"""Bugs of the plans of direct streams: where they start, what they read, and what counts as lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.simulation.planting import BugsOf, does_nothing

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer import fetcher as fetcher_module
from pyspark_kafka_direct.direct import direct_stream_planner as planner_module
from pyspark_kafka_direct.direct import rate_controller as rate_module
from pyspark_kafka_direct.direct import stream_client as client_module
from pyspark_kafka_direct.direct.direct_stream_planner import DirectBatchPlan, LogOffsets
from pyspark_kafka_direct.direct.stream_client import StreamClusterView
from pyspark_kafka_direct.offsets import EARLIEST, OffsetRange
from pyspark_kafka_direct.planning.data_loss import LossDecision
from pyspark_kafka_direct.planning.loss_report import LossReport

_bug: Final = BugsOf("direct_streams").by_one_patch


def _skips_expired(original: Any) -> Any:
    """A batch begins at the log start, so that the loss of the records before it is not noticed."""

    def plan(position: Any, assigned: Any, offset_reader: Any) -> DirectBatchPlan:
        batch = original(position, assigned, offset_reader)
        starts = offset_reader._client.cluster.offsets({each.topic_partition: EARLIEST for each in batch.ranges})
        ranges = []
        for each in batch.ranges:
            start = min(max(each.from_offset, starts[each.topic_partition]), each.until_offset)
            ranges.append(OffsetRange(each.topic, each.partition, start, each.until_offset))
        return DirectBatchPlan(tuple(ranges), batch.topic_ids)

    return plan


def _lost_partition(original: Any) -> Any:
    """Partitions that one response lacks are left out of the batch, and are new ones later."""

    def confirmed(position: Any, offset_reader: Any) -> Any:
        assigned = offset_reader.assigned(position.offsets)
        for tp in [each for each in position.offsets if each not in assigned]:
            del position.offsets[tp]
        return assigned

    return confirmed


def _one_witness(_: Any) -> Any:
    return lambda self, suspects: set(suspects)


def _new_at_latest(original: Any) -> Any:
    def decide(committed: Any, logs: Any, *, reset: Any, group: Any) -> Any:
        ends = {tp: log.readable_end if reset == "latest" else log.start for tp, log in logs.items()}
        starts = original(committed, logs, reset=reset, group=group)
        return type(starts)({**ends, **committed}, starts.warnings)

    return decide


def _new_at_end(original: Any) -> Any:
    def decide(committed: Any, logs: Any, *, reset: Any, group: Any) -> Any:
        starts = original(committed, logs, reset=reset, group=group)
        return type(starts)({tp: log.readable_end for tp, log in logs.items()}, starts.warnings)

    return decide


def _committed_needs_readable(_: Any) -> Any:
    return lambda self, offset: self.start <= offset <= self.readable_end


def _committed_always_valid(_: Any) -> Any:
    return lambda self, offset: True


def _committed_ignored(original: Any) -> Any:
    def decide(explicit: Any, committed: Any, logs: Any, **named: Any) -> Any:
        return original(explicit, {}, logs, **named)

    return decide


def _stable_end_is_end(_: Any) -> Any:
    return lambda self, partitions: self.latest(partitions)


def _high_watermark_for_committed(_: Any) -> Any:
    return lambda self, partitions: client_module.high_watermarks(self._client.cluster, partitions)


def _share_of_zero_skips(original: Any) -> Any:
    """A partition whose share of the rate is less than a record gets an empty range at its end."""

    def clamp(from_offsets: Any, ends: Any, records: Any) -> Any:
        clamped = original(from_offsets, ends, records)
        if records is None:
            return clamped
        return {tp: ends[tp] if records[tp] <= 1 else end for tp, end in clamped.items()}

    return clamp


def _no_minimum(original: Any) -> Any:
    """A share of less than a record is none, so a partition with little lag waits without end."""

    def limit(rate: Any, batch_seconds: float, from_offsets: Any, ends: Any, limits: Any) -> Any:
        found = original(rate, batch_seconds, from_offsets, ends, limits)
        return None if found is None else {tp: 0 if count <= 1 else count for tp, count in found.items()}

    return limit


def _rate_of_zero(original: Any) -> Any:
    """Before the first estimate the rate is 0: no record is planned, but the stream continues at the end."""

    def plan(position: Any, assigned: Any, offset_reader: Any) -> Any:
        batch = original(position, assigned, offset_reader)
        controller = offset_reader._controller
        if controller is None or controller.latest_rate() > 0 or controller.initial_rate:
            return batch
        ranges = [
            OffsetRange(each.topic, each.partition, each.until_offset, each.until_offset) for each in batch.ranges
        ]
        return DirectBatchPlan(tuple(ranges), batch.topic_ids)

    return plan


def _silent_loss(original: Any) -> Any:
    """Tasks skip lost offsets without a word."""

    def evaluate(*args: Any, **named: Any) -> Any:
        return LossDecision(original(*args, **{**named, "fail_on_data_loss": False}).next_offset)

    return evaluate


def _start_behind_open_transactions(original: Any) -> Any:
    def decide(explicit: Any, committed: Any, logs: Any, **named: Any) -> Any:
        return original(
            explicit, committed, {tp: replace(log, readable_end=log.end) for tp, log in logs.items()}, **named
        )

    return decide


BUGS: Final = (
    _bug(
        "recreated topic accepted",
        "A recreated topic is read from the old position.",
        planner_module,
        "topic_ids_by_partition",
        lambda _: lambda *_: {},
    ),
    _bug(
        "skips expired records",
        "A batch begins at the log start, without a report.",
        planner_module,
        "_plan_assigned",
        _skips_expired,
    ),
    _bug(
        "partition left out",
        "A partition that one response lacks is left out, and starts again later.",
        planner_module,
        "_confirmed_partitions",
        _lost_partition,
    ),
    _bug(
        "one broker is asked once",
        "One broker's response proves that a topic was deleted or recreated.",
        StreamClusterView,
        "confirm_missing",
        _one_witness,
        was_real=True,
    ),
    _bug(
        "deposed leader's end counts",
        "The end that a deposed leader reports counts as a data loss.",
        StreamClusterView,
        "raise_epoch_floors",
        does_nothing,
        was_real=True,
    ),
    _bug(
        "deposed leader's log decides start",
        "The log of a deposed leader decides whether a committed offset is valid.",
        ClusterClient,
        "raise_epoch_floors",
        does_nothing,
        was_real=True,
    ),
    _bug(
        "new partition by reset",
        "With auto.offset.reset=latest a new partition starts at its end.",
        client_module,
        "decide_new_partition_offsets",
        _new_at_latest,
        was_real=True,
    ),
    _bug(
        "new partition at end",
        "A new partition starts at its end.",
        client_module,
        "decide_new_partition_offsets",
        _new_at_end,
    ),
    _bug(
        "undecided committed offset",
        "A committed offset after the last stable offset is replaced.",
        LogOffsets,
        "contains",
        _committed_needs_readable,
        was_real=True,
    ),
    _bug(
        "committed offset not checked",
        "A stream starts at a committed offset that is not in the log.",
        LogOffsets,
        "contains",
        _committed_always_valid,
        was_real=True,
    ),
    _bug(
        "committed offset ignored",
        "A stream does not start at committed offsets.",
        client_module,
        "decide_start_offsets",
        _committed_ignored,
    ),
    _bug(
        "stable end is loss",
        "A position after the last stable offset counts as a data loss.",
        StreamClusterView,
        "high_watermarks",
        _stable_end_is_end,
        was_real=True,
    ),
    _bug(
        "direct batch of undecided records",
        "With read_committed, a batch ends at the high watermark.",
        StreamClusterView,
        "latest",
        _high_watermark_for_committed,
    ),
    _bug(
        "start behind open transactions",
        "With read_committed, a stream that starts at the end starts behind open transactions.",
        client_module,
        "decide_start_offsets",
        _start_behind_open_transactions,
    ),
    _bug(
        "share of zero skips",
        "A partition whose share of a rate is less than a record is skipped.",
        planner_module,
        "clamp_ends",
        _share_of_zero_skips,
    ),
    _bug(
        "share of zero waits",
        "A partition whose share of a rate is less than a record is never read.",
        rate_module,
        "records_per_partition",
        _no_minimum,
    ),
    _bug(
        "rate of zero skips",
        "With backpressure, batches before the first estimate skip their records.",
        planner_module,
        "_plan_assigned",
        _rate_of_zero,
    ),
    _bug(
        "lower end of streams not reported",
        "A stream waits silently for a log that was truncated below its position.",
        LossReport,
        "report_offsets_changed",
        does_nothing,
    ),
    _bug(
        "silent loss in tasks of streams",
        "Tasks skip lost records silently.",
        fetcher_module,
        "evaluate_loss",
        _silent_loss,
    ),
)
