"""One task's work, and how an executor does it: the same in batches and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.runtime.worker import begin_task, end_task
from pyspark_kafka_direct.wire.settings import connection_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options import ReadOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema
    from pyspark_kafka_direct.wire.cluster import PartitionLeader
    from pyspark_kafka_direct.wire.settings import ConnectionSettings


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """One task's work. It travels to the executor, so it holds nothing secret.

    Attributes:
        offsets: The offset range to read.
        topic_id: The topic's id at planning.
        leader: The partition's leader at planning, so that a task need not ask: for a topic of a thousand partitions
            that takes longer than a small read.
        from_earliest: Whether the range begins at the log start because that was asked for.
    """

    offsets: OffsetRange
    topic_id: UUID | None
    leader: PartitionLeader | None
    from_earliest: bool


class TaskReader(NamedTuple):
    """What a reader leaves of itself when Spark sends it to the executors: all that reading a range takes.

    It spares a Python worker that has just started the import of everything that only planning needs: a third of what
    it would import of this package. Each query that ends early (``show``, ``limit``) costs Spark a worker.

    Attributes:
        settings: How to reach the cluster.
        schema: The columns to read.
        fail_on_data_loss: Whether lost records are an error.
        poll_timeout: Seconds without progress after which a read fails.
        rack_environment_variable: Where an executor finds its rack.
        max_batch_bytes: Most bytes that a record batch may decompress to.
    """

    settings: ConnectionSettings
    schema: ReadSchema
    fail_on_data_loss: bool
    poll_timeout: float
    rack_environment_variable: str | None
    max_batch_bytes: int

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range, on an executor.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        # Spark makes up a partition of its own when there is nothing to read.
        if isinstance(partition, RangePartition):
            begin_task()
            yield from self._batches(partition)
            end_task()

    def _batches(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        from pyspark_kafka_direct.reading.range_reader import read_range
        from pyspark_kafka_direct.reading.request import RangeRequest, with_rack

        request = RangeRequest(
            offsets=partition.offsets,
            columns=self.schema.columns,
            topic_id=partition.topic_id,
            leader=partition.leader,
            from_earliest=partition.from_earliest,
            fail_on_data_loss=self.fail_on_data_loss,
            poll_timeout=self.poll_timeout,
            max_batch_bytes=self.max_batch_bytes,
        )
        return self.schema.renamed(read_range(with_rack(self.settings, self.rack_environment_variable), request))


class KafkaReader:
    """What is the same in the readers of batches and streams: settings, and the executors' half.

    Spark pickles a reader when it has planned, to send it to the executors, and only a ``TaskReader`` arrives there.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    def __init__(self, options: ReadOptions, schema: ReadSchema) -> None:
        self._options = options
        self._schema = schema
        self._settings = connection_settings(options.kafka, oauth_token_provider=options.oauth_token_provider)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range, on an executor.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        return self._for_tasks().read(partition)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[object, ...]]:
        return TaskReader, tuple(self._for_tasks())

    def _for_tasks(self) -> TaskReader:
        options = self._options
        return TaskReader(
            self._settings,
            self._schema,
            options.fail_on_data_loss,
            options.poll_timeout_ms / 1000,
            options.rack_environment_variable,
            options.max_record_batch_bytes,
        )
