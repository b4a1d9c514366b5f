"""Idempotent producers that nobody uses now. Brokers remember each for a day, so they are used again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark_kafka_direct.offsets import TopicPartition

_IDLE_PER_KEY = 4
_KEYS = 16


class ProducerId(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


class Place(NamedTuple):
    """Where a producer stands in one partition.

    Attributes:
        producer: The id that it writes with there.
        sequence: Sequence number of the next record.
    """

    producer: ProducerId
    sequence: int


@dataclass(slots=True)
class IdleProducer:
    """What an idempotent producer has to know to go on, when all that it sent has been acknowledged.

    Attributes:
        newest: The id for partitions that it has not written to.
        places: Where it stands in the others.
    """

    newest: ProducerId
    places: dict[TopicPartition, Place] = field(default_factory=dict)


class IdleProducers:
    """Producers by what they can be used for; each is lent to one at a time. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Hashable, list[IdleProducer]] = {}

    def take(self, key: Hashable) -> IdleProducer | None:
        """Return a producer that nobody else has, if there is one."""
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def keep(self, key: Hashable, producer: IdleProducer) -> None:
        """Keep a producer for the next who can use it; of many, the longest unused are forgotten."""
        with self._lock:
            idle = self._idle.pop(key, [])
            self._idle[key] = [*idle, producer][-_IDLE_PER_KEY:]
            if len(self._idle) > _KEYS:
                del self._idle[next(iter(self._idle))]
