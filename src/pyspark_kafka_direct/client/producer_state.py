"""Idle idempotent producers. Brokers retain producer ids for a day, so they are reused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition

EPOCH_ENDED: Final = -1  # as a sequence number: the partition needs another epoch, because records may arrive late

_MAX_IDLE_PER_KEY = 4
_MAX_KEYS = 16
_MAX_PARTITIONS = 10_000  # that a producer has written to, including those of deleted topics


class ProducerIdAndEpoch(NamedTuple):
    id: int
    epoch: int


class PartitionSequence(NamedTuple):
    """The producer id used in a partition, and the sequence number of its next record."""

    producer: ProducerIdAndEpoch
    sequence: int  # or EPOCH_ENDED


@dataclass(slots=True)
class IdempotentProducerState:
    """The producer id of an idempotent producer, and its sequence numbers."""

    producer: ProducerIdAndEpoch  # for partitions not yet in sequences
    sequences: dict[TopicPartition, PartitionSequence] = field(default_factory=dict)


class IdleProducerPool:
    """Idle producers by key; each is acquired by one user at a time. Thread-safe."""

    def __init__(self, system: System) -> None:
        self._lock = system.lock()
        self._idle: dict[Hashable, list[IdempotentProducerState]] = {}

    def acquire(self, key: Hashable) -> IdempotentProducerState | None:
        """Remove and return an idle producer, if there is one."""
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def release(self, key: Hashable, producer: IdempotentProducerState) -> None:
        """Add an idle producer; beyond the limits, those idle longest are dropped."""
        # Its sequence numbers cannot be dropped one by one: a partition would get the same ones again.
        if len(producer.sequences) > _MAX_PARTITIONS:
            return
        with self._lock:
            idle = self._idle.pop(key, [])
            self._idle[key] = [*idle, producer][-_MAX_IDLE_PER_KEY:]
            if len(self._idle) > _MAX_KEYS:
                del self._idle[next(iter(self._idle))]
