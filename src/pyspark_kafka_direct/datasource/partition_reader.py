"""The part of batch and stream readers that runs in tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.datasource.kept_plan import KeptPlan
    from pyspark_kafka_direct.datasource.read_schema import ReadSchema
    from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
    from pyspark_kafka_direct.options.settings import ReadSettings


@dataclass(frozen=True)
class KafkaInputPartition(InputPartition):
    task: RangeTask
    # Pickled with the newest token. Spark pickles the reader of a batch before it is planned, when the driver may have
    # no token yet, and the reader of a stream only once.
    token_login: DelegationTokenLogin | None = None


class KafkaPartitionReader(NamedTuple):
    """The reader that Spark sends to the executors."""

    task_reader: RangeTaskReader
    schema: ReadSchema
    kept_plan: KeptPlan | None = None  # None: planned again for each action, or with the same result

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self.kept_plan is not None:
            self.kept_plan.warn_if_reused()
        # If the plan is empty, Spark adds a partition of its own.
        if isinstance(partition, KafkaInputPartition):
            yield from self.schema.read(self.task_reader, partition.task)


class KafkaReader:
    """The common part of batch and stream readers; pickling one yields a ``KafkaPartitionReader``."""

    def __init__(self, settings: ReadSettings, schema: ReadSchema) -> None:
        self._settings = settings
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._partition_reader().read(partition)

    def __reduce__(self) -> tuple[type[KafkaPartitionReader], tuple[object, ...]]:
        return KafkaPartitionReader, tuple(self._partition_reader())

    def _partition_reader(self) -> KafkaPartitionReader:
        from pyspark_kafka_direct.spark.loss_channel import find_loss_channel  # tasks do not need it

        task_reader = RangeTaskReader(self._settings.connection, self._settings.fetch, find_loss_channel())
        return KafkaPartitionReader(task_reader, self._schema)
