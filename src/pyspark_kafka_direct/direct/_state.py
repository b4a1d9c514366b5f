"""What a direct stream must not forget: where it stands, and which ranges its batches have.

It is what goes into Spark's checkpoint, and all of it is plain data in a form with a version number. A batch that Spark
asks for again, because it was pending when the driver died or because a window needs it, gets the very same ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

VERSION = 1

_NEVER = -1


class StreamState:
    """Offsets and batches of one stream; not for several threads. Batches are known by their time in milliseconds.

    Attributes:
        current: The next offset to read of each partition: where the last planned batch ends.
        topic_ids: The id under which each topic was first seen, where brokers have ids.
    """

    def __init__(self) -> None:
        self.current: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._batches: dict[int, tuple[OffsetRange, ...]] = {}
        self._newest = _NEVER
        self._forgotten = _NEVER

    def ranges(self, time_ms: int) -> tuple[OffsetRange, ...] | None:
        """The ranges of a batch; ``None`` if it is still to be planned.

        A batch older than the newest is not planned any more: it failed to be, and later ones have its records.

        Raises:
            OffsetPlanError: They were forgotten.
        """
        known = self._batches.get(time_ms)
        if known is None and time_ms <= self._forgotten:
            raise OffsetPlanError(
                f"the offset ranges of the batch of {time_ms} ms are no longer known. A stream remembers them as long "
                "as Spark remembers its batches; for longer, call ssc.remember()"
            )
        return () if known is None and time_ms < self._newest else known

    def add(self, time_ms: int, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, UUID]) -> None:
        """Remember a batch; the next one begins where it ends."""
        planned = tuple(ranges)
        self._batches[time_ms] = planned
        self._newest = max(self._newest, time_ms)
        self.current = {each.topic_partition: each.until_offset for each in planned}
        self.topic_ids = {**topic_ids, **self.topic_ids}

    def forget(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Forget the batches that nobody will ask for again; returns their times."""
        forgotten = [time_ms for time_ms in self._batches if time_ms < self._newest and not is_needed(time_ms)]
        for time_ms in forgotten:
            del self._batches[time_ms]
            self._forgotten = max(self._forgotten, time_ms)
        return forgotten

    def __getstate__(self) -> dict[str, Any]:
        # Topics by number, and bare numbers: a thousand partitions take a few KiB per batch.
        topics = sorted({tp.topic for tp in self.current} | {r.topic for each in self._batches.values() for r in each})
        numbers = {topic: number for number, topic in enumerate(topics)}
        return {
            "version": VERSION,
            "topics": topics,
            "topic_ids": {topic: topic_id.bytes for topic, topic_id in self.topic_ids.items()},
            "current": [(numbers[tp.topic], tp.partition, offset) for tp, offset in self.current.items()],
            "batches": {
                time_ms: [(numbers[r.topic], r.partition, r.from_offset, r.until_offset) for r in ranges]
                for time_ms, ranges in self._batches.items()
            },
            "newest": self._newest,
            "forgotten": self._forgotten,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_version(state)
        topics = state["topics"]
        self.topic_ids = {topic: UUID(bytes=raw) for topic, raw in state["topic_ids"].items()}
        self.current = {TopicPartition(topics[number], p): offset for number, p, offset in state["current"]}
        self._batches = {
            time_ms: tuple(OffsetRange(topics[number], *rest) for number, *rest in ranges)
            for time_ms, ranges in state["batches"].items()
        }
        self._newest = state["newest"]
        self._forgotten = state["forgotten"]


def check_version(state: Mapping[str, Any]) -> None:
    """Refuse what a newer release has written.

    Raises:
        OffsetPlanError: The version is not one that is known here.
    """
    if state.get("version") != VERSION:
        raise OffsetPlanError(
            f"the checkpoint holds a direct stream of version {state.get('version')}, this release reads version "
            f"{VERSION}; go on with the release that has written it, or start with another checkpoint folder"
        )
