"""How much of what is available one micro-batch takes: at most so many offsets, or at least so many.

The rules are those of Spark's ``KafkaMicroBatchStream`` (``rateLimit``, ``delayBatch``), computed in whole numbers
instead of doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_KEPT = 0.9
"""How much of what earlier samples told still counts at the next one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on micro-batches that the options set; ``None`` is no limit.

    Attributes:
        max_offsets: ``maxOffsetsPerTrigger``.
        min_offsets: ``minOffsetsPerTrigger``.
        max_delay: ``maxTriggerDelay`` in seconds: how long ``min_offsets`` may hold a batch back.
        max_bytes: ``maxBytesPerTrigger``.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0
    max_bytes: int | None = None

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        return self.max_offsets is not None or self.min_offsets is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of a partition.

    Attributes:
        size: Their bytes, as the broker keeps them.
        offsets: How many offsets they span, above zero.
    """

    size: float
    offsets: float

    @property
    def per_offset(self) -> float:
        """Bytes per offset."""
        return self.size / self.offsets


def with_earlier(sample: Sample, earlier: Sample | None) -> Sample:
    """Return what is known of a partition after a sample: the last ten or so count, each by its offsets."""
    if earlier is None:
        return sample
    return Sample(earlier.size * _KEPT + sample.size, earlier.offsets * _KEPT + sample.offsets)


def rate_limit(
    limit: int, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Move ends back so that all partitions together have about ``limit`` offsets to read.

    Each partition gets a share in proportion to what it has. A share below one is rounded up, so that no partition
    starves; any other is rounded down. So the batch may exceed the limit by the number of partitions with very little.

    Args:
        limit: Offsets to read, at least 1.
        begins: Where reading of each partition begins; every partition of ``ends``.
        ends: What is available. An end that is not after its begin stays as it is.

    Returns:
        New ends for the partitions of ``ends``.
    """
    sizes = {tp: end - begins[tp] for tp, end in ends.items() if end > begins[tp]}
    total = sum(sizes.values())
    limited = dict(ends)
    for tp, size in sizes.items():
        limited[tp] = min(begins[tp] + max(limit * size // total, 1), ends[tp])
    return limited


def byte_limit(
    most: int,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, float],
) -> int | None:
    """Return how many offsets make about ``most`` bytes, taken in proportion as ``rate_limit`` takes them.

    Args:
        most: Bytes.
        begins: Where reading of each partition begins.
        ends: What is available.
        sizes: Bytes per offset of some partitions, at least one; the others are taken to be like those.

    Returns:
        At least 1; ``None`` when everything there is has fewer bytes.
    """
    counts = {tp: end - begins[tp] for tp, end in ends.items() if end > begins[tp]}
    known = sum(count for tp, count in counts.items() if tp in sizes)
    known_bytes = sum(count * sizes[tp] for tp, count in counts.items() if tp in sizes)
    mean = known_bytes / known if known else sum(sizes.values()) / len(sizes)
    total = known_bytes + mean * (sum(counts.values()) - known)
    return None if total <= most else max(int(sum(counts.values()) * (most / total)), 1)


class MinimumGate:
    """Holds batches back until there is enough for one, or until it has waited long enough.

    The first batch that has anything always passes; what passes is the trigger that the next delay counts from.

    Args:
        minimum: Least number of new offsets.
        max_delay: Seconds after the last batch at which any number is enough.
    """

    def __init__(self, minimum: int, max_delay: float) -> None:
        self._minimum = minimum
        self._max_delay = max_delay
        self._last: float | None = None

    def passes(self, new: int, now: float, *, at_once: bool = False) -> bool:
        """Tell whether a batch may run.

        Args:
            new: New offsets there are.
            now: Seconds on a clock that never goes back.
            at_once: It must not wait, however small it is.
        """
        if new <= 0:
            return True  # nothing is held back, so this is no batch either
        if at_once or self._last is None or new >= self._minimum or now - self._last >= self._max_delay:
            self._last = now
            return True
        return False


def new_offsets(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Count the offsets there are to read; a partition that is not in ``start`` counts from 0, as in Spark."""
    return sum(max(offset - start.get(tp, 0), 0) for tp, offset in latest.items())


def passed_log_starts(
    begins: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    log_starts: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """Return log starts that have passed where a batch begins: its limit must not count records that are gone.

    Args:
        begins: Where the batch begins.
        latest: Where the logs end.
        log_starts: Tells where logs begin; asked of the partitions that have something to read, if there are any.
    """
    waiting = [tp for tp, end in latest.items() if end > begins[tp]]
    known = log_starts(waiting) if waiting else {}
    return {tp: min(offset, latest[tp]) for tp, offset in known.items() if offset > begins[tp]}
