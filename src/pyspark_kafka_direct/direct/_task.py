"""What an executor does with one offset range: read it as records, as Arrow batches, or only count it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct.record import COLUMNS, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.direct.record import Decoder, KafkaRecord
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.wire.cluster import PartitionLeader
    from pyspark_kafka_direct.wire.settings import ConnectionSettings

# A record that is kept keeps the Arrow batch it came in, so these are small; if much smaller, the work per batch shows.
_RECORDS_TOGETHER = 2048
_BYTES_TOGETHER = 512 << 10


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One task's work. It travels to the executor, so it holds nothing secret.

    Attributes:
        offsets: The offset range.
        topic_id: The topic's id when the range was planned: another one means that the topic was created anew.
        leader: The partition's leader when the range was planned, so that the task need not ask.
    """

    offsets: OffsetRange
    topic_id: UUID | None = None
    leader: PartitionLeader | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How tasks read.

    Attributes:
        settings: How to reach the cluster.
        poll_timeout: Seconds without any progress after which a task fails.
        rack_environment_variable: Where an executor finds its rack.
        fail_on_data_loss: Whether a task fails where records are gone, or passes over them with a warning.
        max_batch_bytes: Most bytes that a record batch may decompress to.
    """

    settings: ConnectionSettings
    poll_timeout: float
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    max_batch_bytes: int = 1 << 30

    def prepare(self, task: RangeTask, columns: tuple[str, ...]) -> tuple[ConnectionSettings, RangeRequest]:
        """What ``reading`` needs for a task, in the task's own process."""
        from pyspark_kafka_direct.reading.request import RangeRequest, with_rack
        from pyspark_kafka_direct.runtime.worker import begin_task

        begin_task()
        _start_over_on_retry()
        return with_rack(self.settings, self.rack_environment_variable), RangeRequest(
            task.offsets,
            columns,
            task.topic_id,
            task.leader,
            fail_on_data_loss=self.fail_on_data_loss,
            poll_timeout=self.poll_timeout,
            max_batch_bytes=self.max_batch_bytes,
        )


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Reads ranges as ``KafkaRecord`` objects; called by Spark for each partition."""

    reading: Reading
    key_decoder: Decoder | None
    value_decoder: Decoder | None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[KafkaRecord]:
        """The records of the tasks' ranges."""
        return chain.from_iterable(self._batches(tasks))  # no Python frame between two records

    def _batches(self, tasks: Iterable[RangeTask]) -> Iterator[Iterator[KafkaRecord]]:
        for task in tasks:
            if not task.offsets.count():
                continue
            settings, request = self.reading.prepare(task, COLUMNS)
            request = dataclasses.replace(request, max_rows=_RECORDS_TOGETHER, max_bytes=_BYTES_TOGETHER)
            topic, partition = task.offsets.topic_partition
            for batch in _read(settings, request):
                yield records_of(batch, topic, partition, self.key_decoder, self.value_decoder)


@dataclass(frozen=True, slots=True)
class ReadArrow:
    """Reads ranges as Arrow batches."""

    reading: Reading
    columns: tuple[str, ...]

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of the tasks' ranges."""
        for task in tasks:
            if task.offsets.count():
                yield from _read(*self.reading.prepare(task, self.columns))


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Counts the records of ranges, up to a limit, by the headers of their batches."""

    reading: Reading
    limit: int | None = None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[int]:
        """One number per task."""
        from pyspark_kafka_direct.reading.range_counter import count_range

        for task in tasks:
            if task.offsets.count():
                yield count_range(*self.reading.prepare(task, ()), limit=self.limit)


def _read(settings: ConnectionSettings, request: RangeRequest) -> Iterator[pa.RecordBatch]:
    from pyspark_kafka_direct.reading.range_reader import read_range
    from pyspark_kafka_direct.runtime.worker import end_task

    yield from read_range(settings, request)
    end_task()


def _start_over_on_retry() -> None:
    """A retried task trusts no connection that was made before it (``KafkaDataConsumer.acquire``)."""
    from pyspark import TaskContext

    from pyspark_kafka_direct.wire.pool import POOL

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        POOL.close()
