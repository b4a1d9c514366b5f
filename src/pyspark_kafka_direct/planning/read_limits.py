"""Limits on a micro-batch as in Spark's ``KafkaMicroBatchStream`` (``rateLimit``, ``delayBatch``), in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.data_loss import later_log_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_SAMPLE_DECAY = 0.9  # factor of earlier samples at each new one, so that about the last ten count


@dataclass(frozen=True, slots=True)
class RecordSizeSample:
    """The size of a sample of records."""

    size: float  # bytes as stored by the broker
    offsets: float  # offsets that the records span, above zero

    @property
    def bytes_per_offset(self) -> float:
        """Mean size of an offset; compaction gaps count as offsets."""
        return self.size / self.offsets


def merge_samples(sample: RecordSizeSample, earlier: RecordSizeSample | None) -> RecordSizeSample:
    """Merge a new sample with earlier ones, whose weight decays."""
    if earlier is None:
        return sample
    return RecordSizeSample(
        earlier.size * _SAMPLE_DECAY + sample.size, earlier.offsets * _SAMPLE_DECAY + sample.offsets
    )


def rate_limit(
    limit: int, from_offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Reduce end offsets so that all partitions together have about ``limit`` offsets (at least 1) to read.

    Shares are proportional to the lags. A share below one is rounded up so that no partition starves; any other is
    rounded down. So the batch may exceed the limit by the number of partitions with a very small lag.
    """
    lags = {tp: end - from_offsets[tp] for tp, end in end_offsets.items() if end > from_offsets[tp]}
    total_lag = sum(lags.values())
    limited = dict(end_offsets)
    for tp, lag in lags.items():
        limited[tp] = min(from_offsets[tp] + max(limit * lag // total_lag, 1), end_offsets[tp])
    return limited


def byte_limit(
    max_bytes: int,
    from_offsets: Mapping[TopicPartition, int],
    end_offsets: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, float],
) -> int | None:
    """Return the ``limit`` of ``rate_limit`` for a batch of about ``max_bytes``; ``None`` if the batch is smaller.

    ``sizes`` are the bytes per offset of at least one partition; the others are assumed to have the mean size.
    """
    counts = {tp: end - from_offsets[tp] for tp, end in end_offsets.items() if end > from_offsets[tp]}
    sampled_offsets = sum(count for tp, count in counts.items() if tp in sizes)
    sampled_bytes = sum(count * sizes[tp] for tp, count in counts.items() if tp in sizes)
    mean_size = sampled_bytes / sampled_offsets if sampled_offsets else sum(sizes.values()) / len(sizes)
    total_bytes = sampled_bytes + mean_size * (sum(counts.values()) - sampled_offsets)
    return None if total_bytes <= max_bytes else max(int(sum(counts.values()) * (max_bytes / total_bytes)), 1)


class MinOffsetsGate:
    """Delays a batch until it has enough offsets, or until the maximum delay since the last batch has passed."""

    def __init__(self, minimum: int, max_delay: float) -> None:
        self._minimum = minimum
        self._max_delay = max_delay
        self._last_batch_at: float | None = None

    def admit(self, new_offsets: int, now: float, *, immediately: bool = False) -> bool:
        """Return whether a batch may run, and then begin the next delay; the first batch with any offset always may."""
        if new_offsets <= 0:
            return True  # there is nothing to delay
        if (
            immediately
            or self._last_batch_at is None
            or new_offsets >= self._minimum
            or now - self._last_batch_at >= self._max_delay
        ):
            self._last_batch_at = now
            return True
        return False


def count_new_offsets(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Count the offsets to read; a partition that is not in ``start`` counts from 0, as in Spark."""
    return sum(max(offset - start.get(tp, 0), 0) for tp, offset in latest.items())


def expired_log_starts(
    from_offsets: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    fetch_log_starts: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """Return the log starts that lie after the batch's start, so that its limit does not count deleted records."""
    partitions_to_read = [tp for tp, end in latest.items() if end > from_offsets[tp]]
    log_starts = fetch_log_starts(partitions_to_read) if partitions_to_read else {}
    return later_log_starts(from_offsets, log_starts, latest)
