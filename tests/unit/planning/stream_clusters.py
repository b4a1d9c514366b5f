"""A made-up cluster for the planner of streams: logs that grow, shrink, go and come."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.limits import Sample
from pyspark_kafka_direct.planning.stream_view import Assigned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


@dataclass
class Cluster:
    """Implements ``ClusterView``; a log is (first offset, end); timestamps equal offsets.

    ``on_wait`` runs at every pause: what happens while the planner waits. What is ``unselected`` exists, and the
    selection leaves it out.
    """

    logs: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, UUID] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    group: dict[TopicPartition, int] = field(default_factory=dict)
    on_wait: Callable[[Cluster], None] = lambda cluster: None
    looks: int = 0
    unselected: set[TopicPartition] = field(default_factory=set)
    sizes: dict[TopicPartition, float] = field(default_factory=dict)
    sampled: list[set[TopicPartition]] = field(default_factory=list)
    waits: int = 0
    warnings: list[str] = field(default_factory=list)

    def assigned(self, *, strict: bool) -> Assigned:
        self.looks += 1
        if strict and not self.logs:
            raise TopicNotFoundError("no such topic")
        return Assigned(frozenset(self.logs) - self.unselected, dict(self.ids))

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return self.unselected & set(partitions)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {tp: self._answer(tp, what) for tp, what in wanted.items() if tp in self.logs}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in partitions if tp in self.logs}

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self.group.items() if tp in partitions}

    def samples(self, begins: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Sample]:
        self.sampled.append(set(begins))
        return {tp: Sample(self.sizes[tp], 1) for tp in begins if tp in self.sizes}

    def wait(self) -> None:
        self.waits += 1
        self.on_wait(self)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def recreate(self, topic: str, number: int, ends: list[int]) -> None:
        """The topic is deleted and created again, with another id and these ends."""
        self.logs = {tp: log for tp, log in self.logs.items() if tp.topic != topic}
        self.logs.update({TopicPartition(topic, partition): (0, end) for partition, end in enumerate(ends)})
        self.ids[topic] = UUID(int=number)

    def _answer(self, tp: TopicPartition, what: int) -> int:
        first, end = self.logs[tp]
        visible = self.stable.get(tp, end)
        if what == EARLIEST:
            return first
        if what == LATEST:
            return visible
        return max(first, what) if what < end else -1


def cluster(*ends: int, topic: str = "t") -> Cluster:
    """One topic, with an id, whose partitions end so."""
    logs = {TopicPartition(topic, partition): (0, end) for partition, end in enumerate(ends)}
    return Cluster(logs, {topic: UUID(int=1)})


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def without_ids(made: Cluster) -> Cluster:
    """The same on brokers that have no topic ids (before Kafka 2.8)."""
    return dataclasses.replace(made, ids={})
