"""Measurements of batches for the option ``backpressure``, which planners read from the shared folder."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.planning.backpressure import BatchMeasurement, measurement_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.monitor.consumer_lag import SourceBatch

_MAX_MEASUREMENT_FILES = 64


class MeasurementWriter:
    """Writes the measurements of batches to the shared folder, where the planner reads them; not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._previous_batches: dict[str, SourceBatch] = {}  # by the key of `batch_ended`
        # By file name: the source that wrote the file, and what it contains. The newest file is the last one.
        self._written: OrderedDict[str, tuple[str, BatchMeasurement]] = OrderedDict()

    def batch_ended(self, key: str, batch: SourceBatch, interval_ms: float) -> None:
        """Write the measurement of a batch with records; ``key`` identifies a source of a run."""
        previous = self._previous_batches.get(key)
        self._previous_batches[key] = batch
        if batch.records <= 0:
            return
        measurement = BatchMeasurement(
            ended_ms=batch.ended_ms,
            records=batch.records,
            processing_delay_ms=batch.ended_ms - batch.began_ms,
            scheduling_delay_ms=_scheduling_delay_ms(batch, previous, interval_ms),
            interval_ms=interval_ms,
        )
        self._write(key, measurement_file_name(batch.end), measurement)

    def forget(self, key: str) -> None:
        """Drop the state of a source whose run has ended."""
        self._previous_batches.pop(key, None)

    def _write(self, key: str, file_name: str, measurement: BatchMeasurement) -> None:
        # If two sources end at the same offsets, they share a file, and both get the lower rate.
        written_key, written_measurement = self._written.get(file_name, (key, measurement))
        if written_key != key and written_measurement.rate < measurement.rate:
            return
        write_atomically(self._folder / file_name, measurement.to_json())
        self._written[file_name] = (key, measurement)
        self._written.move_to_end(file_name)
        while len(self._written) > _MAX_MEASUREMENT_FILES:
            oldest_file, _ = self._written.popitem(last=False)
            (self._folder / oldest_file).unlink(missing_ok=True)


def _scheduling_delay_ms(batch: SourceBatch, previous: SourceBatch | None, interval_ms: float) -> float:
    """Return by how long the batch started too late because the previous one took longer than the interval."""
    if previous is None or batch.began_ms - previous.ended_ms >= interval_ms:  # the query was idle in between
        return 0.0
    return max(previous.ended_ms - previous.began_ms - interval_ms, 0.0)
