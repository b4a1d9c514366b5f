"""What a direct stream must not forget: where it stands, and which ranges its batches have.

It is what goes into Spark's checkpoint, and all of it is plain data in a form with a version number. A batch that Spark
asks for again, because it was pending when the driver died or because a window needs it, gets the very same ranges.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark_kafka_direct.errors import KafkaDirectError, OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.direct import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

VERSION = 1

_NEVER = -1
_NOWHERE = Position({}, {})


class StreamState:
    """Offsets and batches of one stream; not for several threads. Batches are known by their time in milliseconds.

    Batches are planned while Spark generates: between ``begin`` and ``end``. What is planned in a generation without an
    end is taken back: its batches become empty ones, and the next one begins where they began. Only what is certain is
    pickled: a generation under way is pickled as one that failed.
    """

    _generation: int | None  # the time of the batch that Spark generates
    _uncertain: set[int]  # the batches planned in that generation
    _before: Position  # where the stream stood before that generation
    _unasked_since: int | None  # the first of the generations, up to now, that asked for no batch

    def __init__(self) -> None:
        self._position = _NOWHERE
        self._batches: dict[int, tuple[OffsetRange, ...]] = {}
        self._newest = _NEVER
        self._forgotten = _NEVER
        self._live()

    @property
    def position(self) -> Position:
        """Where the last planned batch ends, and the id under which each topic was first seen."""
        return self._position

    def start(self, position: Position) -> None:
        """Begin a new stream."""
        self._position = position

    def begin(self, time_ms: int) -> None:
        """Note that Spark begins to generate the batch of this time."""
        self._generation = time_ms

    def end(self) -> None:
        """Note that Spark has generated the batch of this time, and submits its jobs."""
        if self._generation is None or self._generation <= self._newest:
            self._unasked_since = None
        elif self._unasked_since is None:
            self._unasked_since = self._generation
        self._generation = None
        self._uncertain.clear()

    def unfinished(self) -> list[int]:
        """Return times of the batches that belong to a generation that has begun and not ended; none without one."""
        return [] if self._generation is None else sorted({*self._uncertain, self._generation})

    def take_back(self) -> None:
        """Empty the batches that a failed generation planned, or did not come to plan."""
        self._batches.update(self._empty_if_failed())
        self._newest = max([self._newest, *self._batches])
        if self._uncertain:
            self._position = self._before
        self._live()

    def ranges(self, time_ms: int) -> tuple[OffsetRange, ...] | None:
        """Return the ranges of a batch; ``None`` if it is to be planned now.

        Only the batch that is generated is planned, and those before it that nobody has asked for when they were
        generated, because a window slides by several batches. Others that are not known have failed to be generated.
        They are empty, and a later one has their records: planned now, for a window that looks back, they would have
        records that no plain output sees.

        Raises:
            OffsetPlanError: They were forgotten.
            KafkaDirectError: They are not known, and Spark generates nothing, or an earlier batch.
        """
        known = self._batches.get(time_ms)
        if known is not None:
            return known
        if time_ms <= self._forgotten:
            raise OffsetPlanError(
                f"the offset ranges of the batch of {time_ms} ms are no longer known. A stream remembers them as long "
                "as Spark remembers its batches; for longer, call ssc.remember()"
            )
        if time_ms < self._newest:
            return ()
        if self._generation is None:
            raise KafkaDirectError(_NO_GENERATION.format(time_ms=time_ms))
        if time_ms > self._generation:
            raise KafkaDirectError(_TOO_EARLY.format(time_ms=time_ms, generation=self._generation))
        unasked = self._unasked_since is not None and time_ms >= self._unasked_since
        if time_ms == self._generation or unasked:
            return None
        self._batches[time_ms] = ()
        self._newest = time_ms
        return ()

    def known(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """Return the ranges of a batch that was planned.

        Raises:
            OffsetPlanError: There was no such batch, or it was forgotten.
        """
        found = self._batches.get(time_ms)
        if found is None:
            raise OffsetPlanError(
                f"the offset ranges of a batch of {time_ms} ms are not known: there was none, or it is older than what "
                "Spark remembers (ssc.remember). Ask with the time that Spark hands to the function"
            )
        return found

    def add(self, time_ms: int, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, UUID]) -> None:
        """Remember a batch; the next one begins where it ends."""
        if not self._uncertain:
            self._before = self._position
        self._uncertain.add(time_ms)
        planned = tuple(ranges)
        self._batches[time_ms] = planned
        self._newest = max(self._newest, time_ms)
        self._position = Position(
            {each.topic_partition: each.until_offset for each in planned}, {**topic_ids, **self._position.topic_ids}
        )

    def forget(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Forget the batches that nobody will ask for again; returns their times."""
        forgotten = [
            time_ms
            for time_ms in self._batches
            if time_ms < self._newest and time_ms not in self._uncertain and not is_needed(time_ms)
        ]
        for time_ms in forgotten:
            del self._batches[time_ms]
            self._forgotten = max(self._forgotten, time_ms)
        return forgotten

    def __getstate__(self) -> dict[str, Any]:
        # Topics by number, and bare numbers: a thousand partitions take a few KiB per batch.
        position = self._before if self._uncertain else self._position
        batches = self._batches | self._empty_if_failed()
        topics = sorted({tp.topic for tp in position.offsets} | {r.topic for each in batches.values() for r in each})
        numbers = {topic: number for number, topic in enumerate(topics)}
        return {
            "version": VERSION,
            "topics": topics,
            "topic_ids": {topic: topic_id.bytes for topic, topic_id in position.topic_ids.items()},
            "current": [(numbers[tp.topic], tp.partition, offset) for tp, offset in position.offsets.items()],
            "batches": {
                time_ms: [(numbers[r.topic], r.partition, r.from_offset, r.until_offset) for r in ranges]
                for time_ms, ranges in batches.items()
            },
            "newest": max([self._newest, *batches]),
            "forgotten": self._forgotten,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_version(state, VERSION)
        topics = state["topics"]
        self._position = Position(
            {TopicPartition(topics[number], p): offset for number, p, offset in state["current"]},
            {topic: UUID(bytes=raw) for topic, raw in state["topic_ids"].items()},
        )
        self._batches = {
            time_ms: tuple(OffsetRange(topics[number], *rest) for number, *rest in ranges)
            for time_ms, ranges in state["batches"].items()
        }
        self._newest = state["newest"]
        self._forgotten = state["forgotten"]
        self._live()

    def _empty_if_failed(self) -> dict[int, tuple[OffsetRange, ...]]:
        """Return the batches that are empty if this generation fails; those planned before it keep their ranges."""
        return {at: () for at in self.unfinished() if at in self._uncertain or at not in self._batches}

    def _live(self) -> None:
        """Set up what is of this process only."""
        self._generation = None
        self._uncertain = set()
        self._before = _NOWHERE
        self._unasked_since = None


@dataclass(frozen=True, slots=True)
class Needs:
    """Which batches somebody may still ask for.

    A restart generates pending batches again, and all from the time of its checkpoint on. Spark writes a checkpoint
    when a batch is generated, and another one, under the time of that batch, when it is done. If the driver is behind,
    the second may be written long after later batches were done. For each batch windows and states look back.

    Attributes:
        now_ms: The batch that is generated.
        processed_ms: The last batch whose checkpoints are all written; ``None`` if there is none yet.
        pending: The batches whose jobs are not done, sorted.
        look_back_ms: How far windows and states look back: Spark's remember duration, and one batch.
    """

    now_ms: int
    processed_ms: int | None
    pending: tuple[int, ...]
    look_back_ms: int

    def batch(self, time_ms: int) -> bool:
        """Tell whether a batch is needed."""
        if self.processed_ms is None or time_ms >= min(self.now_ms, self.processed_ms) - self.look_back_ms:
            return True
        # The first pending one that is not before it; thousands are pending where every batch fails.
        at = bisect_left(self.pending, time_ms)
        return at < len(self.pending) and self.pending[at] - self.look_back_ms <= time_ms


def check_version(state: Mapping[str, Any], version: int) -> None:
    """Refuse what another release has written in another form.

    Raises:
        OffsetPlanError: The version is not the one that is known here.
    """
    if state.get("version") != version:
        raise OffsetPlanError(
            f"the checkpoint holds a direct stream of version {state.get('version')}, this release reads version "
            f"{version}; go on with the release that has written it, or start with another checkpoint folder"
        )


_NO_GENERATION = (
    "the batch of {time_ms} ms was asked for while Spark generated none. A direct stream plans only then, so that it "
    "knows which batches Spark failed to generate: start the context by start() of the object that createDirectStream "
    "was given, and take slices only of batches that there have been"
)

_TOO_EARLY = (
    "the batch of {time_ms} ms was asked for before Spark generated it: it is at that of {generation} ms. Take slices "
    "only of batches that there have been"
)
