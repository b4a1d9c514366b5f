"""The batch reader: plans offset ranges on the driver, reads one of them in each task."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafka_direct.planning.pushdown import Pushdown, push_down
from pyspark_kafka_direct.structured import _batch_plan, _pushdown
from pyspark_kafka_direct.structured._early_end import quiet_early_end
from pyspark_kafka_direct.wire.settings import ConnectionSettings, connection_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options import BatchOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema
    from pyspark_kafka_direct.wire.cluster import PartitionLeader

_log = logging.getLogger("pyspark_kafka_direct.structured")


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


class KafkaBatchReader(DataSourceReader):
    """Reads what the options name, once.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    def __init__(self, options: BatchOptions, schema: ReadSchema) -> None:
        self._options = options
        self._schema = schema
        self._settings = connection_settings(options.kafka, oauth_token_provider=options.oauth_token_provider)
        self._pushed: Pushdown | None = None

    def partitions(self) -> list[InputPartition]:
        """Plans the batch.

        Raises:
            KafkaDirectError: The cluster can't be asked, or the options do not fit what it has.
        """
        plan, topics, leaders = _batch_plan.plan_batch(self._settings, self._options, self._pushed)
        for warning in plan.warnings:
            _log.warning("%s", warning)
        return [
            RangePartition(
                wanted,
                topics[wanted.topic].topic_id,
                leaders.get(wanted.topic_partition),
                wanted.topic_partition in plan.from_earliest,
            )
            for wanted in plan.ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range, on an executor.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        # Spark makes up a partition of its own when there is nothing to read.
        if not isinstance(partition, RangePartition):
            return iter(())
        return quiet_early_end(self._read(partition))

    def _read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        from pyspark_kafka_direct.reading.range_reader import RangeRequest, read_range

        request = RangeRequest(
            offsets=partition.offsets,
            columns=self._schema.columns,
            topic_id=partition.topic_id,
            leader=partition.leader,
            from_earliest=partition.from_earliest,
            fail_on_data_loss=self._options.fail_on_data_loss,
            poll_timeout=self._options.poll_timeout_ms / 1000,
        )
        return self._schema.renamed(read_range(self._executor_settings(), request))

    def _executor_settings(self) -> ConnectionSettings:
        variable = self._options.rack_environment_variable
        rack = os.environ.get(variable, "") if variable else ""
        return dataclasses.replace(self._settings, client_rack=rack) if rack else self._settings


class FilteringBatchReader(KafkaBatchReader):
    """The same with filters pushed down.

    Spark refuses any reader that defines ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is set, and
    Python can't see that setting; so this class is used only when the option ``pushDownFilters`` asks for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrows the plan by filters on ``partition``, ``offset`` and ``timestamp``.

        Returns:
            The filters that Spark has to evaluate all the same.
        """
        self._pushed = push_down([_pushdown.translate(pushed) for pushed in filters])
        return [pushed for pushed, exact in zip(filters, self._pushed.handled, strict=True) if not exact]
