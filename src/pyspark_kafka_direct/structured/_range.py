"""The readers' half for tasks: the same in batches and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.runtime.range_task import RangeTask, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.settings.source import RangeOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """One task's work, in the class that Spark wants.

    Attributes:
        task: The work.
    """

    task: RangeTask


class TaskReader(NamedTuple):
    """What a reader leaves of itself when Spark sends it to the executors: all that reading a range takes.

    Attributes:
        reading: How tasks read.
        schema: The columns to read.
    """

    reading: Reading
    schema: ReadSchema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, on an executor.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        # Spark makes up a partition of its own when there is nothing to read.
        if isinstance(partition, RangePartition):
            yield from self.schema.renamed(self.reading.read(partition.task, self.schema.columns))


class KafkaReader:
    """What is the same in the readers of batches and streams: options, and the executors' half.

    Spark pickles a reader when it has planned, to send it to the executors, and only a ``TaskReader`` arrives there.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    def __init__(self, options: RangeOptions, schema: ReadSchema) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, on an executor.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        return self._for_tasks().read(partition)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[object, ...]]:
        return TaskReader, tuple(self._for_tasks())

    def _for_tasks(self) -> TaskReader:
        options = self._options
        reading = Reading(
            options.connection,
            options.fetch,
            options.poll_timeout_ms / 1000,
            options.rack_environment_variable,
            options.fail_on_data_loss,
            options.max_record_batch_bytes,
        )
        return TaskReader(reading, self._schema)
