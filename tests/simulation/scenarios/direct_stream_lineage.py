"""What the batches of direct streams were, as their checkpoint must keep it: ranges by batch time, and positions.

It shares no code with the package, and is stored with each checkpoint of the stand-in for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import OffsetRange

TopicAndIndex = tuple[str, int]
Spans = tuple[tuple[TopicAndIndex, int, int], ...]
"""Partitions with the first offset and the end of a range."""


class StreamLineage(NamedTuple):
    """One stream."""

    known: dict[int, Spans]  # by batch time
    position: dict[TopicAndIndex, int]
    starts: dict[TopicAndIndex, int]
    generations: dict[str, int]  # of topics, when the stream found them

    def copy(self) -> StreamLineage:
        return StreamLineage(dict(self.known), dict(self.position), dict(self.starts), dict(self.generations))


class Lineage:
    """All streams of an application; ranges count once their generation has succeeded."""

    def __init__(self, streams: int) -> None:
        self.streams = [StreamLineage({}, {}, {}, {}) for _ in range(streams)]
        self._staged: list[dict[int, Spans]] = [{} for _ in range(streams)]

    def copy(self) -> Lineage:
        copy = Lineage(0)
        copy.streams = [each.copy() for each in self.streams]
        copy._staged = [{} for _ in self.streams]
        return copy

    def start(self, stream: int, position: dict[TopicAndIndex, int], generations: dict[str, int]) -> None:
        self.streams[stream] = StreamLineage({}, dict(position), dict(position), generations)
        self._staged[stream] = {}  # of a driver that died while it generated a batch

    def plan(self, stream: int, time_ms: int, ranges: Sequence[OffsetRange]) -> list[tuple[TopicAndIndex, int]] | None:
        """Check the ranges of a batch; return the starts of new partitions, or None if the batch is a repetition."""
        spans = spans_of(ranges)
        lineage, staged = self.streams[stream], self._staged[stream]
        earlier = staged.get(time_ms, lineage.known.get(time_ms))
        if earlier is not None:
            if spans != earlier:
                raise ViolationError(f"the batch at {time_ms} of stream {stream} was {earlier}, and is {spans} now")
            return None
        position = self._position(stream)
        new: list[tuple[TopicAndIndex, int]] = []
        for partition, first, until in spans:
            expected = position.pop(partition, None)
            if expected is None:
                new.append((partition, first))
            elif first != expected:
                raise ViolationError(f"the batch at {time_ms} begins at {first} of {partition}, and not at {expected}")
            if until < first:
                raise ViolationError(f"the batch at {time_ms} ends at {until} of {partition}, before it begins")
        if position and spans:
            raise ViolationError(f"the batch at {time_ms} lacks {sorted(position)}")
        staged[time_ms] = spans
        return new

    def check_window(self, output: Mapping[str, Any], time_ms: int, spans: Spans, interval_ms: int) -> None:
        """Check that an output gets the ranges of its batches."""
        expected: list[Any] = []
        for stream in output["streams"]:
            known = self.streams[stream].known
            for each in range(time_ms - (output["window"] - 1) * interval_ms, time_ms + 1, interval_ms):
                expected += known.get(each, ())
        if list(spans) != expected:
            raise ViolationError(f"an output gets {spans} at {time_ms}, and its batches are {expected}")

    def end_generation(self, time_ms: int, *, succeeded: bool) -> None:
        """Keep or drop what was planned in a generation."""
        for stream, (lineage, staged) in enumerate(zip(self.streams, self._staged, strict=True)):
            if succeeded:
                for spans in (staged[each] for each in sorted(staged)):
                    for partition, first, until in spans:
                        lineage.starts.setdefault(partition, first)
                        lineage.position[partition] = until
                lineage.known.update(staged)
            else:
                for each in (*staged, time_ms):
                    lineage.known.setdefault(each, ())
                for topic in lineage.generations.keys() - {topic for topic, _ in lineage.position}:
                    del lineage.generations[topic]  # the next generation finds it, perhaps recreated
            self._staged[stream] = {}

    def _position(self, stream: int) -> dict[TopicAndIndex, int]:
        position = dict(self.streams[stream].position)
        staged = self._staged[stream]
        for time_ms in sorted(staged):
            position.update({partition: until for partition, _, until in staged[time_ms]})
        return position


def spans_of(ranges: Sequence[OffsetRange]) -> Spans:
    return tuple(((each.topic, each.partition), each.from_offset, each.until_offset) for each in ranges)
