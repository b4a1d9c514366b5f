"""Bugs of direct streams: their plans, their checkpoint, their commits and their stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import Patch, PlantedBug
from tests.simulation.scenarios import direct_stream_life as life_module

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer import fetcher as fetcher_module
from pyspark_kafka_direct.direct import checkpointed_stream as stream_module
from pyspark_kafka_direct.direct import commit_queue as commit_module
from pyspark_kafka_direct.direct import direct_stream as direct_module
from pyspark_kafka_direct.direct import rate_controller as rate_module
from pyspark_kafka_direct.direct import stop_hooks as stop_module
from pyspark_kafka_direct.direct import stream_client as client_module
from pyspark_kafka_direct.direct import streaming_context as context_module
from pyspark_kafka_direct.direct.checkpoint_data import BatchRetention, StreamCheckpointData
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
from pyspark_kafka_direct.direct.direct_stream import BeginGeneration
from pyspark_kafka_direct.direct.stop_hooks import StopSignal
from pyspark_kafka_direct.direct.stream_client import StreamClusterView
from pyspark_kafka_direct.direct.streaming_context import StreamingContextBinding
from pyspark_kafka_direct.offsets import EARLIEST, OffsetRange
from pyspark_kafka_direct.planning import direct_stream_planner as planner_module
from pyspark_kafka_direct.planning.data_loss import LossDecision
from pyspark_kafka_direct.planning.direct_stream_planner import DirectBatchPlan, LogOffsets, StreamPosition
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.spark.offset_committer import AsyncOffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Callable


# The checkpoint.


def _forget_batches_at_restart(original: Any) -> Any:
    def set_state(self: Any, state: Any) -> None:
        original(self, state)
        self._batches = {time_ms: ranges for time_ms, ranges in self._batches.items() if not ranges}
        self._newest_batch_ms = max(self._batches, default=-1)

    return set_state


def _position_of_oldest_batch(original: Any) -> Any:
    def set_state(self: Any, state: Any) -> None:
        original(self, state)
        oldest = self._batches[min(self._batches)] if self._batches else ()
        starts = {each.topic_partition: each.from_offset for each in oldest}
        self._position = StreamPosition({**self._position.offsets, **starts}, self._position.topic_ids)

    return set_state


def _position_from_group(original: Any) -> Any:
    """The first batch after a restart is planned from the committed offsets."""

    def begin(self: Any, time: Any, rdd: Any) -> None:
        stream = self._stream
        is_restored = stream.context_binding is None
        original(self, time, rdd)
        group = stream.client.group
        if is_restored and group is not None:
            position = stream._state.position
            offsets = {**position.offsets, **group.committed(list(position.offsets))}
            stream._state.start(StreamPosition(offsets, position.topic_ids))

    return begin


def _position_of_failed_generation(original: Any) -> Any:
    def roll_back(self: Any) -> None:
        position = self._position
        original(self)
        self._position = position

    return roll_back


def _checkpoint_has_failed_generation(original: Any) -> Any:
    def get_state(self: Any) -> Any:
        self._generation_batches, staged = set(), self._generation_batches
        try:
            return original(self)
        finally:
            self._generation_batches = staged

    return get_state


def _window_plans_failed_batch(original: Any) -> Any:
    """A batch of a failed generation is unknown, so it is planned when a window asks for it."""

    def find(self: Any, time_ms: int) -> Any:
        is_unknown = not self._batches.get(time_ms)
        if is_unknown and self._generation_ms is not None and self._newest_forgotten_ms < time_ms < self._generation_ms:
            return None
        return original(self, time_ms)

    return find


def _ranges_under_generation(original: Any) -> Any:
    """The ranges of an earlier batch, which a window asks for, are stored under the time of the generation."""

    def add(self: Any, time_ms: int, ranges: Any, topic_ids: Any) -> None:
        original(self, time_ms if self._generation_ms is None else self._generation_ms, ranges, topic_ids)

    return add


def _needed_by_now(_: Any) -> Any:
    def is_needed(self: Any, time_ms: int) -> Any:
        oldest = min((self.now_ms, *self.pending))
        return time_ms >= oldest - self.look_back_ms

    return is_needed


def _newer_topic_ids(original: Any) -> Any:
    def add(self: Any, time_ms: int, ranges: Any, topic_ids: Any) -> None:
        original(self, time_ms, ranges, topic_ids)
        self._position = StreamPosition(self._position.offsets, {**self._position.topic_ids, **topic_ids})

    return add


def _topic_ids_not_stored(original: Any) -> Any:
    def get_state(self: Any) -> Any:
        return {**original(self), "topic_ids": {}}

    return get_state


# Batches and their RDDs.


def _newest_rdd(original: Any) -> Any:
    """A job gets the RDD of the newest batch."""

    def rdd(self: Any, time_ms: int) -> Any:
        return original(self, max((time_ms, *self._rdds)))

    return rdd


def _one_stream(original: Any) -> Any:
    """The functions of all streams find the first stream."""

    def find(stream_id: str) -> Any:
        found = original(stream_id)
        return min(
            (each for each in stream_module.registered_streams() if each.system is found.system),
            key=lambda stream: stream.stream_id,
            default=found,
        )

    return find


def _drops_batch_of_stop(original: Any) -> Any:
    """A batch that is planned after a stop was requested is empty, but the stream continues behind it."""

    def batch_ranges(self: Any, time_ms: int) -> Any:
        ranges = original(self, time_ms)
        if self.stop_signal._planning_deadline == float("inf"):
            return ranges
        self._state._batches[time_ms] = ()
        return ()

    return batch_ranges


def _tasks_without_topic_ids(original: Any) -> Any:
    def create(*args: Any, **named: Any) -> Any:
        return original(*args, **{**named, "topic_ids": None})

    return create


# Plans.


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


def _ignore(_: Any) -> Any:
    return lambda *_args, **_named: None


# Commits.


def _commits_planned(original: Any) -> Any:
    def generate(self: Any, time_ms: int) -> Any:
        rdd = original(self, time_ms)
        commits = self._stream.client.commits
        if commits._group is not None:
            commits.add(rdd.offsetRanges())
        return rdd

    return generate


def _lowest_of_call(_: Any) -> Any:
    def end_offsets(ranges: Any, method: str) -> Any:
        del method
        ends: dict[Any, int] = {}
        for each in ranges:
            ends[each.topic_partition] = min(each.until_offset, ends.get(each.topic_partition, each.until_offset))
        return ends

    return end_offsets


def _last_of_call(_: Any) -> Any:
    return lambda ranges, method: {each.topic_partition: each.until_offset for each in ranges}


def _lowest_of_calls(_: Any) -> Any:
    def lowest(calls: Any) -> Any:
        offsets: dict[Any, int] = {}
        for call in calls:
            for tp, end in call.offsets.items():
                offsets[tp] = min(end, offsets.get(tp, end))
        return offsets

    return lowest


def _first_commit_only(original: Any) -> Any:
    """Calls that are queued while a commit is in flight are lost."""

    def send(self: Any, deadline: Any = None) -> None:
        with self._changed:
            if self._running:
                self._added_items.clear()
        original(self, deadline)

    return send


def _failed_commit_succeeds(original: Any) -> Any:
    def commit(self: Any, items: Any, deadline: Any) -> Any:
        return original(self, items, deadline)[0], None

    return commit


def _commits_starts(_: Any) -> Any:
    return lambda ranges, method: {each.topic_partition: each.from_offset for each in ranges}


def _bug(
    name: str, effect: str, owner: Any, attribute: str, replacement: Callable[[Any], Any], *, was_real: bool = False
) -> PlantedBug:
    return PlantedBug(name, "direct_streams", effect, lambda: [Patch(owner, attribute, replacement)], was_real)


BUGS: Final = (
    _bug(
        "replayed batch planned again",
        "After a restart a pending batch is planned again, until newer ends.",
        StreamCheckpointData,
        "__setstate__",
        _forget_batches_at_restart,
    ),
    _bug(
        "position of oldest batch",
        "After a restart the stream continues at the start of the oldest batch.",
        StreamCheckpointData,
        "__setstate__",
        _position_of_oldest_batch,
    ),
    _bug(
        "position from group",
        "After a restart from a checkpoint the stream continues at the committed offsets.",
        BeginGeneration,
        "__call__",
        _position_from_group,
    ),
    _bug(
        "failed generation advances",
        "A batch that Spark fails to generate advances the position.",
        StreamCheckpointData,
        "roll_back_generation",
        _position_of_failed_generation,
        was_real=True,
    ),
    PlantedBug(
        "failed generation in checkpoint",
        "direct_streams",
        "A checkpoint has the position of a failed generation.",
        lambda: [
            Patch(BeginGeneration, "__getstate__", lambda _: lambda self: {"_stream": self._stream}),
            Patch(StreamCheckpointData, "__getstate__", _checkpoint_has_failed_generation),
        ],
        was_real=True,
    ),
    _bug(
        "window plans failed batch",
        "A window plans a batch that Spark failed to generate, which no other output gets.",
        StreamCheckpointData,
        "find_ranges",
        _window_plans_failed_batch,
        was_real=True,
    ),
    _bug(
        "ranges under wrong time",
        "The ranges of a batch that a window asks for are stored under the time of the newest batch.",
        StreamCheckpointData,
        "add_batch",
        _ranges_under_generation,
    ),
    _bug(
        "ranges forgotten early",
        "The ranges of batches are forgotten that a restart generates again.",
        BatchRetention,
        "is_needed",
        _needed_by_now,
        was_real=True,
    ),
    _bug(
        "recreated topic accepted",
        "A recreated topic is read from the old position.",
        planner_module,
        "topic_ids_by_partition",
        lambda _: lambda *_: {},
    ),
    _bug(
        "topic ids not stored",
        "After a restart a recreated topic is read from the old position.",
        StreamCheckpointData,
        "__getstate__",
        _topic_ids_not_stored,
    ),
    _bug(
        "tasks without topic ids",
        "Tasks read a topic that was recreated after their batch was planned.",
        context_module,
        "create_kafka_rdd",
        _tasks_without_topic_ids,
    ),
    _bug(
        "newest RDD",
        "A job gets the ranges of a newer batch.",
        StreamingContextBinding,
        "rdd",
        _newest_rdd,
    ),
    _bug("shared position", "Two streams share a position.", direct_module, "find_stream", _one_stream),
    _bug(
        "stop drops a batch",
        "A batch that is planned during a graceful stop is lost.",
        CheckpointedStream,
        "batch_ranges",
        _drops_batch_of_stop,
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
        _ignore,
        was_real=True,
    ),
    _bug(
        "deposed leader's log decides start",
        "The log of a deposed leader decides whether a committed offset is valid.",
        ClusterClient,
        "raise_epoch_floors",
        _ignore,
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
        "batch of undecided records",
        "With read_committed, a batch ends at the high watermark.",
        StreamClusterView,
        "latest",
        _high_watermark_for_committed,
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
        "lower end not reported",
        "A stream waits silently for a log that was truncated below its position.",
        LossReport,
        "report_offsets_changed",
        _ignore,
    ),
    _bug(
        "silent loss in tasks of streams",
        "Tasks skip lost records silently.",
        fetcher_module,
        "evaluate_loss",
        _silent_loss,
    ),
    _bug(
        "commits planned ranges",
        "A batch is committed when it is planned.",
        StreamingContextBinding,
        "generate_rdd",
        _commits_planned,
    ),
    _bug(
        "lowest offset of a call",
        "Of several ranges of a partition in one call the lowest end is committed.",
        commit_module,
        "_end_offsets",
        _lowest_of_call,
    ),
    _bug(
        "last offset of a call",
        "Of several ranges of a partition in one call the last one's end is committed.",
        commit_module,
        "_end_offsets",
        _last_of_call,
    ),
    _bug(
        "lowest offset of calls",
        "Of several calls the lowest offset is committed.",
        commit_module,
        "_highest_offsets",
        _lowest_of_calls,
    ),
    _bug(
        "commits dropped in flight",
        "Calls during a commit in flight are lost.",
        AsyncOffsetCommitter,
        "send",
        _first_commit_only,
    ),
    _bug(
        "failed commit succeeds",
        "A commit that failed is reported as successful.",
        AsyncOffsetCommitter,
        "_commit",
        _failed_commit_succeeds,
    ),
    _bug(
        "stop does not wait for commits",
        "A stop does not wait for commits in flight.",
        AsyncOffsetCommitter,
        "wait",
        lambda _: lambda self, timeout: True,
        was_real=True,
    ),
    _bug(
        "stop waits for brokers",
        "A stop waits for a plan until its timeout.",
        StopSignal,
        "request_stop",
        _ignore,
        was_real=True,
    ),
    _bug("starts committed", "The starts of ranges are committed.", commit_module, "_end_offsets", _commits_starts),
    PlantedBug(
        "stop commits nothing",
        "direct_streams",
        "A stop does not send the queued offsets.",
        lambda: [
            Patch(stop_module, "flush_commits", _ignore),
            Patch(stream_module, "flush_commits", _ignore),
            Patch(life_module, "flush_commits", _ignore),
        ],
        was_real=True,
    ),
)
