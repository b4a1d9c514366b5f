"""A fake ``OffsetReader`` for planners: logs grow, shrink, disappear and come back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions
from pyspark_kafka_direct.planning.read_limits import RecordSizeSample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.planning.loss_errors import DataLossCause, SkippedLoss


CONFIRMATION_STEPS = 3


@dataclass
class FakeOffsetReader:
    """Implements ``OffsetReader``; a log is (log start, end) and timestamps equal offsets.

    ``on_wait`` runs at every pause before a retry, ``on_sleep`` at the others, ``on_offsets`` before offsets are
    returned. Partitions in ``unselected`` exist, but the subscription does not select them. ``described`` is the size
    of the metadata.
    """

    logs: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, UUID] = field(default_factory=dict)
    last_stable_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    group_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    on_wait: Callable[[FakeOffsetReader], None] = lambda reader: None
    on_sleep: Callable[[float], None] = lambda seconds: None
    on_offsets: Callable[[FakeOffsetReader], None] = lambda reader: None
    refreshes: int = 0
    described: int = 0
    unselected: set[TopicPartition] = field(default_factory=set)
    sizes: dict[TopicPartition, float] = field(default_factory=dict)
    sampled: list[set[TopicPartition]] = field(default_factory=list)
    waits: int = 0
    confirmations: int = 0
    floor_requests: list[set[str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    losses: list[tuple[DataLossCause, dict[TopicPartition, int]]] = field(default_factory=list)

    def assigned(self, *, strict: bool) -> AssignedPartitions:
        self.refreshes += 1
        if strict and not self.logs:
            raise TopicNotFoundError("no such topic")
        return AssignedPartitions(frozenset(self.logs) - self.unselected, dict(self.ids), self.described)

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return self.unselected & set(partitions)

    def known_topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        return {topic: topic_id for topic, topic_id in self.ids.items() if topic in topics}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.on_offsets(self)
        return {tp: self._offset(tp, lookup) for tp, lookup in wanted.items() if tp in self.logs}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in partitions if tp in self.logs}

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self.group_offsets.items() if tp in partitions}

    def samples(self, from_offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, RecordSizeSample]:
        self.sampled.append(set(from_offsets))
        return {tp: RecordSizeSample(self.sizes[tp], 1) for tp in from_offsets if tp in self.sizes}

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
        self.confirmations += 1
        for _ in range(CONFIRMATION_STEPS):
            missing = {
                tp
                for tp, topic_id in suspects.items()
                if tp not in self.logs or (topic_id is not None and self.ids.get(tp.topic, topic_id) != topic_id)
            }
            if len(missing) < len(suspects):
                return missing
            self.wait()
        return missing

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        self.floor_requests.append(set(topics))

    def sleep(self, seconds: float) -> None:
        self.on_sleep(seconds)

    def wait(self) -> None:
        self.waits += 1
        self.on_wait(self)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def report_loss(self, loss: SkippedLoss) -> None:
        self.losses.append((loss.cause, dict(loss.offsets)))
        self.warn(loss.message)

    def recreate(self, topic: str, topic_id: int, ends: list[int]) -> None:
        """Delete and recreate a topic, with another id and these ends."""
        self.logs = {tp: log for tp, log in self.logs.items() if tp.topic != topic}
        self.logs.update({TopicPartition(topic, partition): (0, end) for partition, end in enumerate(ends)})
        self.ids[topic] = UUID(int=topic_id)

    def _offset(self, tp: TopicPartition, lookup: int) -> int:
        log_start, end = self.logs[tp]
        if lookup == EARLIEST:
            return log_start
        if lookup == LATEST:
            return self.last_stable_offsets.get(tp, end)
        return max(log_start, lookup) if lookup < end else -1


def cluster(*ends: int, topic: str = "t") -> FakeOffsetReader:
    """A reader with one topic whose partitions have these ends."""
    logs = {TopicPartition(topic, partition): (0, end) for partition, end in enumerate(ends)}
    return FakeOffsetReader(logs, {topic: UUID(int=1)})


@dataclass
class FakeClock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def without_ids(reader: FakeOffsetReader) -> FakeOffsetReader:
    """The same for brokers without topic ids (before Kafka 2.8)."""
    return dataclasses.replace(reader, ids={})
