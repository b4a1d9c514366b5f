"""The common part of the stream readers of all Spark versions: an adapter between Spark and ``MicroBatchPlanner``.

Spark creates a reader in several processes: one on the driver plans as long as the query runs, and another one's
``read`` is sent to the executors. So the constructor opens no connections and logs nothing.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition, KafkaReader
from pyspark_kafka_direct.offsets import (
    REWOUND,
    partition_offsets_from_json,
    partition_offsets_to_json,
    record_first_start,
    recorded_first_start,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import InputPartition

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
    from pyspark_kafka_direct.datasource.read_schema import ReadSchema
    from pyspark_kafka_direct.datasource.stream_listener_files import QueryCommitter
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

_log = logging.getLogger("pyspark_kafka_direct.datasource")


class PlanningState(NamedTuple):
    planner: MicroBatchPlanner
    offset_reader: KafkaOffsetReader
    committer: QueryCommitter | None  # None without commitGroupId


class _ParsedOffset(NamedTuple):
    spark_offset: dict[str, Any]
    offsets: dict[TopicPartition, int]


class KafkaMicroBatchStreamBase(KafkaReader, DataSourceStreamReader):
    """Reads a stream in micro-batches, with the offset format of Spark's Kafka source: ``{"topic":{"0":123}}``."""

    def __init__(self, settings: ReadSettings, schema: ReadSchema, pool: ConnectionPool | None = None) -> None:
        super().__init__(settings, schema)
        self._pool = pool  # None: the pool of the process
        self._planning_state: PlanningState | None = None
        self._parsed_start: _ParsedOffset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, also below)
        # Spark also calls this if the first batch of an earlier run was not finished. So an invalid start is no error
        # here: ``latestOffset`` rejects it, and ``partitions`` goes by the end of the batch.
        return to_spark_offset(self._planner().initial_offsets())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if REWOUND in end:  # ``kafka-direct checkpoint rewind`` has added the batch, or it ends where it starts
            return []
        # Only the end of a first batch records its start. If it is the start of a later batch, that batch may also end
        # there, because there were no new records.
        recorded_start = None if recorded_first_start(start) is not None else recorded_first_start(end)
        plan = self._planner().plan(_from_spark_offset(start), _from_spark_offset(end), recorded_start)
        leaders = self._offset_reader().leaders({offset_range.topic_partition for offset_range in plan.ranges})
        login = self._settings.connection.security.token_login
        return [
            KafkaInputPartition(
                RangeTask(
                    offset_range,
                    topic_id=plan.topic_ids.get(offset_range.topic),
                    leader=leaders.get(offset_range.topic_partition),
                ),
                login,
            )
            for offset_range in plan.ranges
        ]

    def _next_end_offset(self, start: dict[str, Any], *, unlimited: bool = False) -> dict[str, Any]:
        """Return the end of the batch that starts at ``start``, or ``start`` itself if there is nothing to read."""
        start_offsets = self._parse_cached(start)
        planner, committer = self._planner(), self._committer()
        is_first_start = planner.is_first_start(start_offsets)
        # Spark calls this when the previous batch, which ended at ``start``, is finished. Its own commit() comes later,
        # and never for the last batch of a query.
        if committer is not None and not is_first_start:
            committer.commit_async(start_offsets, resumed_from=start_offsets if planner.resumed else None)
        end = planner.next_end_offsets(start_offsets, unlimited=unlimited)
        if committer is not None:
            committer.wait_for_commit()  # briefly: Spark ends this process with the query, also while it commits
        if is_first_start:
            return record_first_start(end, start_offsets)
        # Spark compares offsets as strings, so ``start`` itself has to be returned.
        return start if end == start_offsets else to_spark_offset(end)

    def _parse_cached(self, start: dict[str, Any]) -> dict[TopicPartition, int]:
        """Parse an offset; Spark may pass the same one, with many partitions, 100 times a second."""
        if self._parsed_start is None or self._parsed_start.spark_offset != start:
            self._parsed_start = _ParsedOffset(start, _from_spark_offset(start))
        return self._parsed_start.offsets

    def _planner(self) -> MicroBatchPlanner:
        return self._open_planner().planner

    def _offset_reader(self) -> KafkaOffsetReader:
        return self._open_planner().offset_reader

    def _committer(self) -> QueryCommitter | None:
        return self._open_planner().committer

    def _open_planner(self) -> PlanningState:
        if self._planning_state is None:
            from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
            from pyspark_kafka_direct.datasource.stream_listener_files import backpressure_limit, open_query_committer
            from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

            settings, source = self._settings, self._settings.source
            offset_reader = KafkaOffsetReader(settings, _log, self._pool)
            for warning in settings.warnings:
                offset_reader.warn(warning)
            backpressure = (
                None
                if source.backpressure is None
                else backpressure_limit(source.backpressure, offset_reader.warn).max_offsets
            )
            self._planning_state = PlanningState(
                MicroBatchPlanner(settings, offset_reader, offset_reader.clock, backpressure_limit=backpressure),
                offset_reader,
                open_query_committer(settings, offset_reader.cluster),
            )
        return self._planning_state


def to_spark_offset(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return offsets as Spark serializes them: topics sorted, and partitions sorted by number."""
    topics: dict[str, Any] = json.loads(partition_offsets_to_json(offsets))
    return topics


def _from_spark_offset(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return partition_offsets_from_json(json.dumps(topics))
