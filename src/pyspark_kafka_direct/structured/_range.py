"""One task's work, and how an executor does it: the same in batches and streams."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.structured._early_end import allow_early_end

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
        from_earliest: Whether the range was planned from the log start on.
    """

    offsets: OffsetRange
    topic_id: UUID | None
    leader: PartitionLeader | None
    from_earliest: bool


def read_partition(
    partition: InputPartition, settings: ConnectionSettings, options: ReadOptions, schema: ReadSchema
) -> Iterator[pa.RecordBatch]:
    """Reads one range, on an executor.

    Raises:
        KafkaDirectError: The records can't be read.
    """
    # Spark makes up a partition of its own when there is nothing to read.
    if not isinstance(partition, RangePartition):
        return iter(())
    allow_early_end()
    return _read(partition, settings, options, schema)


def _read(
    partition: RangePartition, settings: ConnectionSettings, options: ReadOptions, schema: ReadSchema
) -> Iterator[pa.RecordBatch]:
    from pyspark_kafka_direct.reading.range_reader import read_range
    from pyspark_kafka_direct.reading.request import RangeRequest

    request = RangeRequest(
        offsets=partition.offsets,
        columns=schema.columns,
        topic_id=partition.topic_id,
        leader=partition.leader,
        from_earliest=partition.from_earliest,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout=options.poll_timeout_ms / 1000,
    )
    return schema.renamed(read_range(_with_rack(settings, options.rack_environment_variable), request))


def _with_rack(settings: ConnectionSettings, variable: str | None) -> ConnectionSettings:
    rack = os.environ.get(variable, "") if variable else ""
    return dataclasses.replace(settings, client_rack=rack) if rack else settings
