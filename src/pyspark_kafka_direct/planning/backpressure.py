"""How fast to read, from how fast batches are processed: Spark's PID controller, and a rate divided over partitions.

The controller is ``org.apache.spark.streaming.scheduler.rate.PIDRateEstimator``, the division
``DirectKafkaInputDStream.maxMessagesPerPartition``; both in records per second, like Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Gains:
    """The controller's settings.

    Attributes:
        proportional: Weight of the difference between the wanted and the measured rate.
        integral: Weight of what has piled up while batches waited.
        derived: Weight of how fast the difference changes.
        min_rate: The rate never goes below this, in records per second.

    Raises:
        OptionError: A negative weight, or a least rate that is not above zero.
    """

    proportional: float = 1.0
    integral: float = 0.2
    derived: float = 0.0
    min_rate: float = 100.0

    def __post_init__(self) -> None:
        for name in ("proportional", "integral", "derived"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"the {name} term of backpressure must not be negative, got {getattr(self, name)}")
        if not self.min_rate > 0:
            raise OptionError(f"the least rate of backpressure must be above 0, got {self.min_rate}")


class PIDRateEstimator:
    """Follows the processing rate from batch to batch; not for several threads.

    Args:
        batch_interval_ms: Time between two batches.
        gains: Its settings.

    Raises:
        OptionError: The interval is not above zero.
    """

    def __init__(self, batch_interval_ms: float, gains: Gains | None = None) -> None:
        if not batch_interval_ms > 0:
            raise OptionError(f"backpressure needs a batch interval above 0 ms, got {batch_interval_ms}")
        self._interval_ms = batch_interval_ms
        self._gains = gains or Gains()
        self._last_time_ms: float | None = None
        self._last_rate = -1.0
        self._last_error = -1.0

    def compute(
        self, time_ms: float, elements: int, processing_delay_ms: float, scheduling_delay_ms: float
    ) -> float | None:
        """Return the next rate, after a batch.

        Args:
            time_ms: When the batch ended.
            elements: How many records it had.
            processing_delay_ms: How long they took.
            scheduling_delay_ms: How long the batch waited before it began.

        Returns:
            Records per second. ``None`` where nothing can be said: for the first batch, whose measured rate is what
            later ones are compared with; for a batch without records or duration; and for one that is not newer than
            the last.
        """
        earlier = self._last_time_ms
        if time_ms <= (-1 if earlier is None else earlier) or elements <= 0 or processing_delay_ms <= 0:
            return None
        measured = elements / processing_delay_ms * 1000
        if earlier is None:
            self._last_time_ms, self._last_rate, self._last_error = time_ms, measured, 0.0
            return None
        error = self._last_rate - measured
        piled_up = scheduling_delay_ms * measured / self._interval_ms
        change = (error - self._last_error) / ((time_ms - earlier) / 1000)
        gains = self._gains
        correction = gains.proportional * error + gains.integral * piled_up + gains.derived * change
        rate = max(self._last_rate - correction, gains.min_rate)
        self._last_time_ms, self._last_rate, self._last_error = time_ms, rate, error
        return rate


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits that are set, not measured.

    Attributes:
        max_rate: Most records per second of a partition; 0 is no limit.
        min_records: Least number of records of a partition in a batch, not multiplied by its seconds.
        by_partition: Partitions with another ``max_rate``.
        least_by_partition: Partitions with another ``min_records``.
    """

    max_rate: float = 0.0
    min_records: int = 1
    by_partition: Mapping[TopicPartition, float] = field(default_factory=dict)
    least_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> float:
        """Return the most records per second of this partition; 0 is no limit."""
        return self.by_partition.get(partition, self.max_rate)

    def least(self, partition: TopicPartition) -> int:
        """Return the least number of records of this partition in a batch."""
        return self.least_by_partition.get(partition, self.min_records)


def records_per_partition(
    rate: float | None,
    batch_seconds: float,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: RateLimits,
) -> dict[TopicPartition, int] | None:
    """Decide how many records each partition may have in the next batch.

    A measured rate is divided in proportion to lag; no share exceeds the partition's own limit. The least number of
    records comes last, so it holds even above the limit, as in Spark.

    Args:
        rate: Records per second for all partitions together; ``None`` or 0: only the limits of the partitions count.
        batch_seconds: Length of a batch.
        begins: Where reading of each partition begins; every partition of ``ends``.
        ends: What is available.
        limits: What is set.

    Returns:
        Records by partition; they may be more than there are. ``None`` when nothing limits the batch, which is so too
        when there is no lag to divide a rate by.
    """
    allowed = {tp: limits.of(tp) for tp in ends}
    if rate is not None and rate > 0:
        lags = {tp: max(end - begins[tp], 0) for tp, end in ends.items()}
        total = sum(lags.values())
        if total == 0:
            return None
        for tp, lag in lags.items():
            share = lag / total * rate
            allowed[tp] = min(share, allowed[tp]) if allowed[tp] > 0 else share
    if not sum(allowed.values()) > 0:
        return None
    return {tp: max(int(batch_seconds * limit), limits.least(tp)) for tp, limit in allowed.items()}


def clamp(
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    records: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    """Decide where each partition ends in a batch: after so many records, or where there are no more.

    ``DirectKafkaInputDStream.clamp``. An end that lies before its begin stays there: whether that is a loss of data is
    not a matter of rates.

    Args:
        begins: Where reading of each partition begins; every partition of ``ends``.
        ends: What is available.
        records: The answer of ``records_per_partition``; ``None`` is no limit.
    """
    if records is None:
        return dict(ends)
    return {tp: min(begins[tp] + records[tp], end) for tp, end in ends.items()}
