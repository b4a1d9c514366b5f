"""What an executor does with one offset range: read it as records, as Arrow batches, or only count it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct.record import COLUMNS, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.direct.record import Decoder, KafkaRecord
    from pyspark_kafka_direct.runtime.range_task import RangeTask, Reading

# A record that is kept keeps the Arrow batch it came in, so these are small; if much smaller, the work per batch shows.
_RECORDS_TOGETHER = 2048
_BYTES_TOGETHER = 512 << 10


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Reads ranges as ``KafkaRecord`` objects; called by Spark for each partition."""

    reading: Reading
    key_decoder: Decoder | None
    value_decoder: Decoder | None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[KafkaRecord]:
        """Yield the records of the tasks' ranges."""
        return chain.from_iterable(self._batches(tasks))  # no Python frame between two records

    def _batches(self, tasks: Iterable[RangeTask]) -> Iterator[Iterator[KafkaRecord]]:
        for task in tasks:
            if not task.offsets.count():
                continue
            topic, partition = task.offsets.topic_partition
            for batch in self.reading.read(task, COLUMNS, max_rows=_RECORDS_TOGETHER, max_bytes=_BYTES_TOGETHER):
                yield records_of(batch, topic, partition, self.key_decoder, self.value_decoder)


@dataclass(frozen=True, slots=True)
class ReadArrow:
    """Reads ranges as Arrow batches."""

    reading: Reading
    columns: tuple[str, ...]

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of the tasks' ranges."""
        for task in tasks:
            if task.offsets.count():
                yield from self.reading.read(task, self.columns)


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Counts the records of ranges, up to a limit, by the headers of their batches."""

    reading: Reading
    limit: int | None = None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[int]:
        """Yield one number per task."""
        from pyspark_kafka_direct.reading.range_counter import count_range

        for task in tasks:
            if task.offsets.count():
                yield count_range(*self.reading.prepare(task, ()), limit=self.limit)
