"""Bugs of direct streams: their checkpoint, their commits and their stops."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.planting import BugsOf, Patch, does_nothing
from tests.simulation.scenarios import direct_stream_life as life_module

from pyspark_kafka_direct.client.system import wait_until
from pyspark_kafka_direct.direct import checkpointed_stream as stream_module
from pyspark_kafka_direct.direct import commit_queue as commit_module
from pyspark_kafka_direct.direct import direct_stream as direct_module
from pyspark_kafka_direct.direct import stop_hooks as stop_module
from pyspark_kafka_direct.direct import streaming_context as context_module
from pyspark_kafka_direct.direct.checkpoint_data import BatchRetention, StreamCheckpointData
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
from pyspark_kafka_direct.direct.direct_stream import BeginGeneration
from pyspark_kafka_direct.direct.direct_stream_planner import StreamPosition
from pyspark_kafka_direct.direct.stop_hooks import StopSignal
from pyspark_kafka_direct.direct.streaming_context import StreamingContextBinding
from pyspark_kafka_direct.spark.offset_committer import AsyncOffsetCommitter

_bugs: Final = BugsOf("direct_streams")
_bug: Final = _bugs.by_one_patch


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


def _waits_for_its_thread_only(_: Any) -> Any:
    def wait(self: Any, timeout: float) -> bool:
        with self._changed:
            return wait_until(self._system, self._changed, lambda: not self._running, timeout)

    return wait


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
    _bugs(
        "failed generation in checkpoint",
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
        "stop does not wait for commitSync",
        "A stop does not wait for a commitSync in flight.",
        AsyncOffsetCommitter,
        "wait",
        _waits_for_its_thread_only,
    ),
    _bug(
        "stop waits for brokers",
        "A stop waits for a plan until its timeout.",
        StopSignal,
        "request_stop",
        does_nothing,
        was_real=True,
    ),
    _bug("starts committed", "The starts of ranges are committed.", commit_module, "_end_offsets", _commits_starts),
    _bugs(
        "stop commits nothing",
        "A stop does not send the queued offsets.",
        lambda: [
            Patch(stop_module, "flush_commits", does_nothing),
            Patch(stream_module, "flush_commits", does_nothing),
            Patch(life_module, "flush_commits", does_nothing),
        ],
        was_real=True,
    ),
)
