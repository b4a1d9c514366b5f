"""The state of a direct stream in Spark's checkpoint: its offsets, the ranges of its batches, and the user's arguments.

It is plain data with a version number. When Spark generates a batch again, because it was pending when the driver
failed or because a window needs it, the batch gets the same ranges.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark_kafka_direct.direct.direct_stream_planner import StreamPosition
from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_kafka_direct.direct.consumer_strategies import ConsumerStrategy
    from pyspark_kafka_direct.direct.kafka_record import Decoder
    from pyspark_kafka_direct.direct.location_strategies import LocationStrategy
    from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig

CHECKPOINT_DATA_VERSION = 1

_NO_BATCH = -1
_NO_POSITION = StreamPosition({}, {})


class StreamCheckpointData:
    """The offsets and batches of one stream, batches keyed by their time in milliseconds; not thread-safe."""

    # Batches are planned between begin_generation and end_generation. If a generation does not end, it has failed:
    # its batches become empty, and the next batch starts at the offsets where they started. Only the outcome of
    # completed generations is pickled: a generation in progress is pickled as a failed one.

    # Not pickled: `_init_transient` sets them for a new and for a restored stream.
    _generation_ms: int | None  # the time of the batch that Spark is generating
    _generation_batches: set[int]  # the times of the batches planned in that generation
    _position_before: StreamPosition  # the position before the first of these batches, if there is one
    _no_requests_since_ms: int | None  # the first of the latest generations without a request for ranges, if any

    def __init__(self) -> None:
        self._position = _NO_POSITION
        self._batches: dict[int, tuple[OffsetRange, ...]] = {}
        self._newest_batch_ms = _NO_BATCH  # the latest time with ranges, which may be empty
        self._newest_forgotten_ms = _NO_BATCH  # the latest time whose ranges were dropped
        self._init_transient()

    @property
    def position(self) -> StreamPosition:
        """The offsets at which the last planned batch ends, and the id that each topic had at first."""
        return self._position

    def start(self, position: StreamPosition) -> None:
        """Set the position at which a new stream starts."""
        self._position = position

    def begin_generation(self, time_ms: int) -> None:
        """Record that Spark starts to generate the batch of this time."""
        self._generation_ms = time_ms

    def end_generation(self) -> None:
        """Record that Spark has generated the batch and submits its jobs."""
        requested_no_ranges = self._generation_ms is not None and self._generation_ms > self._newest_batch_ms
        if not requested_no_ranges:
            self._no_requests_since_ms = None
        elif self._no_requests_since_ms is None:
            self._no_requests_since_ms = self._generation_ms
        self._generation_ms = None
        self._generation_batches.clear()

    def unfinished_batches(self) -> list[int]:
        """Return the times of the batches of the generation in progress, including the generated batch itself."""
        return [] if self._generation_ms is None else sorted({*self._generation_batches, self._generation_ms})

    def roll_back_generation(self) -> None:
        """Make the batches of a failed generation empty, and restore the position from before it."""
        self._batches.update(self._empty_if_failed())
        self._newest_batch_ms = max([self._newest_batch_ms, *self._batches])
        if self._generation_batches:
            self._position = self._position_before
        self._init_transient()

    def find_ranges(self, time_ms: int) -> tuple[OffsetRange, ...] | None:
        """Return the ranges of a batch, or ``None`` if the caller has to plan the batch now."""
        # Two kinds of batches are planned: the batch that is being generated, and earlier batches whose generations
        # requested no ranges, because a window slides by several batches. For any other unknown batch, the generation
        # failed. Such a batch stays empty, and a later batch reads its records. If a window that looks back planned it
        # now, outputs without a window would never get its records.
        planned = self._batches.get(time_ms)
        if planned is not None:
            return planned
        if time_ms <= self._newest_forgotten_ms:
            raise InvalidOffsetsError(
                f"the offset ranges of the batch at {time_ms} ms are no longer available. A stream keeps them as long "
                "as Spark keeps its batches. To keep them longer, call ssc.remember()"
            )
        if time_ms < self._newest_batch_ms:
            return ()  # a later batch has its records, or gets them
        if self._generation_ms is None:
            raise KafkaDirectError(_NO_GENERATION.format(time_ms=time_ms))
        if time_ms > self._generation_ms:
            raise KafkaDirectError(_NOT_YET_GENERATED.format(time_ms=time_ms, generation_ms=self._generation_ms))
        had_no_request = self._no_requests_since_ms is not None and time_ms >= self._no_requests_since_ms
        if time_ms == self._generation_ms or had_no_request:
            return None
        self._batches[time_ms] = ()  # stays empty, also if a later window requests it
        self._newest_batch_ms = time_ms
        return ()

    def planned_ranges(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """Return the ranges of a batch that was planned; raises InvalidOffsetsError if there is none."""
        planned = self._batches.get(time_ms)
        if planned is None:
            raise InvalidOffsetsError(
                f"no offset ranges are known for a batch at {time_ms} ms: there was no such batch, or Spark no longer "
                "remembers it (ssc.remember). Use the time that Spark passes to the function"
            )
        return planned

    def add_batch(self, time_ms: int, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, UUID]) -> None:
        """Store the ranges of a new batch; the next batch starts at their end offsets."""
        if not self._generation_batches:
            self._position_before = self._position
        self._generation_batches.add(time_ms)
        planned = tuple(ranges)
        self._batches[time_ms] = planned
        self._newest_batch_ms = max(self._newest_batch_ms, time_ms)
        self._position = StreamPosition(
            {offset_range.topic_partition: offset_range.until_offset for offset_range in planned},
            {**topic_ids, **self._position.topic_ids},  # the first id of each topic stays, to detect a recreated topic
        )

    def forget_batches(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Drop the batches that are no longer needed, and return their times."""
        forgotten = [
            time_ms
            for time_ms in self._batches
            if time_ms < self._newest_batch_ms and time_ms not in self._generation_batches and not is_needed(time_ms)
        ]
        for time_ms in forgotten:
            del self._batches[time_ms]
            self._newest_forgotten_ms = max(self._newest_forgotten_ms, time_ms)
        return forgotten

    def __getstate__(self) -> dict[str, Any]:
        # Topic indexes and plain integers keep this small: a thousand partitions take a few KiB per batch.
        # A generation in progress is pickled as a failed one.
        position = self._position_before if self._generation_batches else self._position
        batches = self._batches | self._empty_if_failed()
        topics = sorted(
            {tp.topic for tp in position.offsets} | {r.topic for ranges in batches.values() for r in ranges}
        )
        topic_indexes = {topic: index for index, topic in enumerate(topics)}
        return {
            "version": CHECKPOINT_DATA_VERSION,
            "topics": topics,
            "topic_ids": {topic: topic_id.bytes for topic, topic_id in position.topic_ids.items()},
            "current": [(topic_indexes[tp.topic], tp.partition, offset) for tp, offset in position.offsets.items()],
            "batches": {
                time_ms: [(topic_indexes[r.topic], r.partition, r.from_offset, r.until_offset) for r in ranges]
                for time_ms, ranges in batches.items()
            },
            "newest": max([self._newest_batch_ms, *batches]),
            "forgotten": self._newest_forgotten_ms,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_checkpoint_version(state, CHECKPOINT_DATA_VERSION)
        topics = state["topics"]
        self._position = StreamPosition(
            {TopicPartition(topics[index], partition): offset for index, partition, offset in state["current"]},
            {topic: UUID(bytes=raw) for topic, raw in state["topic_ids"].items()},
        )
        self._batches = {
            time_ms: tuple(OffsetRange(topics[index], *rest) for index, *rest in ranges)
            for time_ms, ranges in state["batches"].items()
        }
        self._newest_batch_ms = state["newest"]
        self._newest_forgotten_ms = state["forgotten"]
        self._init_transient()

    def _empty_if_failed(self) -> dict[int, tuple[OffsetRange, ...]]:
        """Return empty ranges for the batches in progress, except batches that an earlier generation planned."""

        # After a restart Spark generates some batches again, so the ranges are known, or were already dropped.
        def is_of_earlier_generation(time_ms: int) -> bool:
            is_known = time_ms in self._batches or time_ms <= self._newest_forgotten_ms
            return is_known and time_ms not in self._generation_batches

        return {time_ms: () for time_ms in self.unfinished_batches() if not is_of_earlier_generation(time_ms)}

    def _init_transient(self) -> None:
        """Initialize the attributes that are not pickled."""
        self._generation_ms = None
        self._generation_batches = set()
        self._position_before = _NO_POSITION
        self._no_requests_since_ms = None


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The user's arguments of createDirectStream; they are pickled, so a restart cannot change them."""

    strategy: ConsumerStrategy
    locations: LocationStrategy
    config: PerPartitionConfig
    batch_seconds: float
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None
    assume_consecutive: bool = False


@dataclass(frozen=True, slots=True)
class BatchRetention:
    """Decides which batches a restart or a window may still request; all times are those of batches."""

    # A restart generates all pending batches again, and all batches since the time of its checkpoint. Spark writes a
    # checkpoint when a batch is generated, and a second one under the time of that batch when the batch is done. If the
    # driver falls behind, the second may be written long after later batches were done. From each batch, windows and
    # states look back.

    now_ms: int  # the batch that is being generated
    processed_ms: int | None  # the checkpoints of all earlier batches are written; None: no batch was processed yet
    pending: tuple[int, ...]  # the batches whose jobs are not done, sorted
    look_back_ms: int  # how far windows and states look back: Spark's remember duration plus one batch interval

    def is_needed(self, time_ms: int) -> bool:
        """Return whether the batch may still be requested."""
        if self.processed_ms is None or time_ms >= min(self.now_ms, self.processed_ms) - self.look_back_ms:
            return True
        # Binary search for the next pending batch, because thousands are pending if every batch fails.
        index = bisect_left(self.pending, time_ms)
        return index < len(self.pending) and self.pending[index] - self.look_back_ms <= time_ms


class UnwrittenBatches:
    """The batches under whose time Spark may still write a checkpoint.

    The checkpoint that is written last counts, and a restart generates all batches since its time. With
    ``spark.streaming.concurrentJobs`` that may be a batch that was done long after later ones.
    """

    # Spark writes checkpoints one after the other, and requests the last one of a batch when its jobs are done. So a
    # batch that is done has all its checkpoints if a batch that was submitted after that moment has all of them.

    def __init__(self) -> None:
        # By batch: when its jobs were found to be done, the first time that was not submitted yet; None: not done.
        self._done_at: dict[int, int | None] = {}
        self._failed: set[int] = set()  # stay pending, although their jobs have ended: no checkpoint follows

    def oldest(
        self, now_ms: int, processed_ms: int | None, pending: Collection[int], is_done: Callable[[int], bool]
    ) -> int:
        """Return the oldest of them when the batch of ``now_ms`` is generated.

        ``processed_ms`` is the batch whose last checkpoint was written last, and ``is_done`` returns whether the jobs
        of a batch have ended.
        """
        pending = set(pending)
        self._failed &= pending
        for time_ms in {now_ms, *pending} - self._failed:  # a failed batch must not be added again
            self._done_at.setdefault(time_ms, None)
        newest = max(self._done_at)
        # The first time that is not submitted yet; a window that looks back requests an earlier batch than the newest.
        next_ms = newest if newest == now_ms else newest + 1
        for time_ms in sorted(self._done_at):
            done_at = self._done_at[time_ms]
            if done_at is None:
                if time_ms == now_ms or (time_ms in pending and not is_done(time_ms)):
                    break  # it remains, and later batches cannot be the oldest
                if time_ms in pending:
                    self._failed.add(time_ms)
                self._done_at[time_ms] = next_ms
            elif processed_ms is not None and processed_ms >= done_at:
                del self._done_at[time_ms]  # a batch that was generated later has all its checkpoints
        return min(self._done_at)


def check_checkpoint_version(state: Mapping[str, Any], version: int) -> None:
    """Raise InvalidOffsetsError if another release wrote the state in another format."""
    if state.get("version") != version:
        raise InvalidOffsetsError(
            f"the checkpoint contains a direct stream of version {state.get('version')}, but this release reads "
            f"version {version}. Continue with the release that wrote the checkpoint, or start with a new checkpoint "
            "directory"
        )


_NO_GENERATION = (
    "the batch at {time_ms} ms was requested while Spark was not generating a batch. A direct stream plans batches "
    "only during generation, so that it can detect batches that Spark fails to generate. Start the context with "
    "start() of the object that was passed to createDirectStream, and slice only batches that were generated"
)

_NOT_YET_GENERATED = (
    "the batch at {time_ms} ms was requested before Spark generated it: Spark is generating the batch at "
    "{generation_ms} ms. Slice only batches that were generated"
)
