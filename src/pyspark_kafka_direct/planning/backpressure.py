"""Backpressure: Spark's PID rate controller, the split of a rate over partitions, and measured batches as its input.

The controller is ``org.apache.spark.streaming.scheduler.rate.PIDRateEstimator``, the split
``DirectKafkaInputDStream.maxMessagesPerPartition``. Rates are in records per second, as in Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET, partition_offsets_to_json
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

DEFAULT_INTERVAL_MS = 1000.0  # of a query without a trigger interval

_MAX_PENDING_BATCHES = 16
_BATCHES_BEFORE_WARNING = 8

_NO_MEASUREMENTS = (
    f"backpressure: no measurement arrived for {_BATCHES_BEFORE_WARNING} batches, so only the initial rate limits "
    "them; call pyspark_kafka_direct.enable(spark) with the session that runs the query"
)
_KEYS = ("endedMs", "records", "processingMs", "waitingMs", "intervalMs")


class PIDRateEstimator:
    """Estimates the processing rate from batch to batch; not thread-safe."""

    def __init__(self, batch_interval_ms: float, gains: PIDGains | None = None) -> None:
        if not batch_interval_ms > 0:
            raise OptionError(f"backpressure needs a batch interval above 0 ms, got {batch_interval_ms}")
        self._interval_ms = batch_interval_ms
        self._gains = gains or PIDGains()
        self._last_time_ms: float | None = None
        self._last_rate = -1.0
        self._last_error = -1.0

    def compute(
        self, end_time_ms: float, records: int, processing_delay_ms: float, scheduling_delay_ms: float
    ) -> float | None:
        """Return the next rate after a batch, in records per second.

        ``None`` for the first batch, whose rate is the reference for later ones, for a batch without records or
        duration, and for one that is not newer than the last.
        """
        last_time_ms = self._last_time_ms
        is_newer = end_time_ms > (-1 if last_time_ms is None else last_time_ms)  # Spark begins with -1
        if not is_newer or records <= 0 or processing_delay_ms <= 0:
            return None
        measured_rate = records / processing_delay_ms * 1000
        if last_time_ms is None:
            self._last_time_ms, self._last_rate, self._last_error = end_time_ms, measured_rate, 0.0
            return None
        error = self._last_rate - measured_rate
        # The records that wait because batches started late, per interval.
        accumulated_error = scheduling_delay_ms * measured_rate / self._interval_ms
        error_change = (error - self._last_error) / ((end_time_ms - last_time_ms) / 1000)
        gains = self._gains
        correction = gains.proportional * error + gains.integral * accumulated_error + gains.derived * error_change
        rate = max(self._last_rate - correction, gains.min_rate)
        self._last_time_ms, self._last_rate, self._last_error = end_time_ms, rate, error
        return rate


@dataclass(frozen=True, slots=True)
class PartitionRateLimits:
    """The configured limits of partitions."""

    max_rate: float = 0.0  # records per second; 0 is no limit
    min_records: int = 1  # per batch of any duration
    max_rate_by_partition: Mapping[TopicPartition, float] = field(default_factory=dict)
    min_records_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    def max_rate_of(self, partition: TopicPartition) -> float:
        """Return the maximum records per second of a partition; 0 is no limit."""
        return self.max_rate_by_partition.get(partition, self.max_rate)

    def min_records_of(self, partition: TopicPartition) -> int:
        """Return the minimum number of records of a partition in a batch."""
        return self.min_records_by_partition.get(partition, self.min_records)


def records_per_partition(
    rate: float | None,
    batch_seconds: float,
    from_offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: PartitionRateLimits,
) -> dict[TopicPartition, int] | None:
    """Return how many records each partition may have in the next batch; ``None`` is no limit.

    A measured rate is divided in proportion to lag, and no share exceeds the partition's own limit. The minimum number
    of records applies last, so it holds even above the limit, as in Spark. Without any lag there is no limit.
    """
    rates = {tp: limits.max_rate_of(tp) for tp in ends}
    if rate is not None and rate > 0:
        lags = {tp: max(end - from_offsets[tp], 0) for tp, end in ends.items()}
        total_lag = sum(lags.values())
        if total_lag == 0:
            return None
        for tp, lag in lags.items():
            share = lag / total_lag * rate
            rates[tp] = min(share, rates[tp]) if rates[tp] > 0 else share
    if not sum(rates.values()) > 0:
        return None
    return {tp: max(int(batch_seconds * tp_rate), limits.min_records_of(tp)) for tp, tp_rate in rates.items()}


def clamp_ends(
    from_offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    records: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    """Return each partition's end limited to its number of records (``DirectKafkaInputDStream.clamp``).

    An end before the start of its partition is not changed: the caller reports the data loss.
    """
    if records is None:
        return dict(ends)
    return {tp: min(from_offsets[tp] + records[tp], end) for tp, end in ends.items()}


# Spark reports durations of batches to a query listener on the driver, but not to the planner. Both have the end of a
# finished batch: the listener from the progress report, the planner as the start of the next batch. So the listener
# writes each measurement to a shared folder (spark.shared_folder) under a name derived from the batch's end, and the
# planner looks up those of the batches that it planned. datasource reads the files, monitor writes them.
#
#     name:     <sha256 of the end's JSON, 32 hex digits>.json
#     content:  {"endedMs":1700000000000,"records":5000,"processingMs":800,"waitingMs":0,"intervalMs":1000}


@dataclass(frozen=True, slots=True)
class BatchMeasurement:
    """The duration of a finished batch of one source."""

    ended_ms: float  # since 1970
    records: int  # offsets that the batch spans
    processing_delay_ms: float  # from trigger to commit
    scheduling_delay_ms: float  # how late the batch started, because the previous one exceeded the interval
    interval_ms: float  # of the trigger

    @property
    def rate(self) -> float:
        """The processing rate in records per second."""
        return self.records / max(self.processing_delay_ms, 1) * 1000

    def to_json(self) -> str:
        """Serialize for ``from_json``."""
        values = (self.ended_ms, self.records, self.processing_delay_ms, self.scheduling_delay_ms, self.interval_ms)
        return json.dumps(dict(zip(_KEYS, values, strict=True)))

    @classmethod
    def from_json(cls, text: str) -> BatchMeasurement:
        """Parse a measurement from ``to_json``; raise ``ValueError`` if it is malformed."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or set(fields) != set(_KEYS):
            raise ValueError(f"not a measurement: {text!r}")
        values: list[Any] = [fields[key] for key in _KEYS]
        ended_ms, records, processing_ms, waiting_ms, interval_ms = values
        if not all(isinstance(value, int | float) and value >= 0 for value in values) or not interval_ms > 0:
            raise ValueError(f"not a measurement: {text!r}")
        return cls(ended_ms, int(records), processing_ms, waiting_ms, interval_ms)


def measurement_file_name(end: Mapping[TopicPartition, int]) -> str:
    """Return the file name of the measurement of the batch with this end."""
    return hashlib.sha256(partition_offsets_to_json(end).encode()).hexdigest() + ".json"


class BackpressureLimit:
    """Turns measurements into the maximum number of offsets of the next batch; not thread-safe."""

    def __init__(
        self,
        options: BackpressureOptions,
        find_measurement: Callable[[Mapping[TopicPartition, int]], BatchMeasurement | None],  # by the batch's end
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        self._find_measurement = find_measurement
        self._warn = warn
        self._interval_ms = DEFAULT_INTERVAL_MS  # until the first measurement
        self._rate = options.initial_rate
        self._controller: PIDRateEstimator | None = None  # None until the first measurement
        # By the measurement's file name, oldest first.
        self._unmeasured_batches: OrderedDict[str, _PendingBatch] = OrderedDict()
        self._max_offsets: int | None = None  # the limit of the batch that was planned last
        self._planned_batches = 0

    def max_offsets(self, start: Mapping[TopicPartition, int]) -> int | None:
        """Return the maximum number of offsets of the batch that starts at ``start``, at least 1; ``None`` is no limit.

        A measurement arrives shortly after its batch ended. If Spark requests the next batch earlier, the previous rate
        applies.
        """
        self._add_previous_batch(start)
        self._apply_measurements()
        no_measurement_yet = self._controller is None
        if no_measurement_yet and self._planned_batches == _BATCHES_BEFORE_WARNING:
            self._warn(_NO_MEASUREMENTS)
        if self._rate is not None:
            self._max_offsets = int(min(max(self._rate * self._interval_ms / 1000, 1), MAX_OFFSET))
        return self._max_offsets

    def _add_previous_batch(self, end: Mapping[TopicPartition, int]) -> None:
        """Add the batch that ended where the next one starts; its limit is still ``_max_offsets``."""
        key = measurement_file_name(end)
        if key in self._unmeasured_batches:
            return
        self._unmeasured_batches[key] = _PendingBatch(dict(end), self._max_offsets)
        self._planned_batches += 1
        if len(self._unmeasured_batches) > _MAX_PENDING_BATCHES:  # without a listener, no batch is ever measured
            self._unmeasured_batches.popitem(last=False)

    def _apply_measurements(self) -> None:
        """Update the rate by the measurements that have arrived, and forget the batches up to the newest of them."""
        measured = [
            (key, batch, measurement)
            for key, batch in self._unmeasured_batches.items()
            if (measurement := self._find_measurement(batch.end)) is not None
        ]
        if not measured:
            return
        for _, batch, measurement in measured:
            if self._controller is None:  # the trigger interval comes with the first measurement
                self._interval_ms = measurement.interval_ms
                self._controller = PIDRateEstimator(measurement.interval_ms, self._options.gains)
            rate = self._controller.compute(
                measurement.ended_ms,
                batch.offsets_read(measurement.records),
                measurement.processing_delay_ms,
                measurement.scheduling_delay_ms,
            )
            self._rate = self._rate if rate is None else rate
        newest_key, _, _ = measured[-1]
        # Batches older than the newest measured one had no records and will not be measured.
        while self._unmeasured_batches.popitem(last=False)[0] != newest_key:
            pass


@dataclass(frozen=True, slots=True)
class _PendingBatch:
    """A planned batch without a measurement."""

    end: Mapping[TopicPartition, int]
    max_offsets: int | None  # the limit of the batch, which may exceed it by one offset per partition

    def offsets_read(self, spanned_offsets: int) -> int:
        """Return the number of offsets read: a batch that spans more offsets than its limit skipped lost ones."""
        return spanned_offsets if self.max_offsets is None else min(spanned_offsets, self.max_offsets + len(self.end))
