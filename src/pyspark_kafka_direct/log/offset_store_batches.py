"""Save the end offsets of batches: of structured queries in ``foreachBatch``, of direct streams in ``foreachRDD``.

Spark passes a batch id to ``foreachBatch`` but no offsets. They are read from the offset log of the checkpoint, which
Spark writes before the batch runs. Sources other than Kafka are ignored.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.producer.file_systems import mask_secrets
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles, parse_offset_seq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_kafka_direct.offsets import OffsetStore

_log = logging.getLogger("pyspark_kafka_direct.log")

_QUERY_ID: Final = "sql.streaming.queryId"
_JOB_GROUP: Final = "spark.jobGroup.id"  # the run id, unless the application has set another job group


class OffsetSavingBatchFunction:
    """Calls a function with each batch of a structured query, then saves the end offsets of the batch."""

    def __init__(self, store: OffsetStore, function: Callable[[DataFrame, int], None], checkpoint: str) -> None:
        self._store = store
        self._function = function
        self._checkpoint = checkpoint.rstrip("/")
        self._checked_run: _QueryRun | None = None

    def run(self, frame: DataFrame, batch_id: int) -> None:
        checkpoint = _QueryCheckpoint(frame.sparkSession, self._checkpoint)
        end_offsets = checkpoint.current_end_offsets(batch_id)
        if self._checked_run != (run := checkpoint.current_run()):  # once per run, because it reads more files
            checkpoint.check_query()
            self._warn_if_store_differs(checkpoint, batch_id, end_offsets)
            self._checked_run = run
        self._function(frame, batch_id)
        self._store.save(end_offsets)

    def _warn_if_store_differs(
        self, checkpoint: _QueryCheckpoint, batch_id: int, end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Warn if the checkpoint resumes at other offsets than the store has: Spark uses the checkpoint."""
        previous_ends = (checkpoint.end_offsets(batch_id - 1) if batch_id else None) or {}
        resume_offsets = {**end_offsets, **previous_ends}
        differing = {
            tp: offset
            for tp, offset in self._store.load().items()
            if tp in resume_offsets and not _agrees(offset, previous_ends.get(tp), end_offsets.get(tp))
        }
        if differing:
            _log.warning(
                "The checkpoint %s resumes at %s, and the offset store is at %s. Spark uses the checkpoint. If the "
                "store is right, for example after a run on another machine, stop the query, delete the checkpoint "
                "and restart.",
                mask_secrets(self._checkpoint, self._checkpoint),
                partition_offsets_to_json({tp: resume_offsets[tp] for tp in differing}),
                partition_offsets_to_json(differing),
            )


def _agrees(stored: int, previous_end: int | None, end: int | None) -> bool:
    """Return whether a stored offset agrees with the checkpoint's ends of a batch and of the one before it."""
    if previous_end is None:  # the batch is the first one of the partition, and the checkpoint lacks its start
        return end is not None and stored <= end
    return stored in (previous_end, end)  # `end` if the batch has finished before, and Spark runs it again


class _HasOffsetRanges(Protocol):
    """The RDD of a direct stream."""

    def offsetRanges(self) -> list[Any]: ...  # noqa: N802 (Spark's spelling)


def process_and_save(store: OffsetStore, function: Callable[[Any], None], rdd: _HasOffsetRanges) -> None:
    """Call a function with a batch of a direct stream, then save the end offsets of the batch."""
    ranges = rdd.offsetRanges()
    stored = store.load()
    for offset_range in ranges:
        stored_offset = stored.get(offset_range.topic_partition, offset_range.from_offset)
        if stored_offset != offset_range.from_offset:
            raise InvalidOffsetsError(
                f"The batch starts at offset {offset_range.from_offset}, but the offset store is at {stored_offset}: "
                "the batch before it has failed, or the stream was not started with offsets=store.load(). The batch "
                "was not processed. Restart the application to resume at the stored offsets.",
                topic=offset_range.topic,
                partition=offset_range.partition,
            )
    # If the first batch fails, its start must not be lost: "latest" resolves to a later offset after a restart.
    store.save(
        {
            offset_range.topic_partition: offset_range.from_offset
            for offset_range in ranges
            if offset_range.topic_partition not in stored
        }
    )
    function(rdd)
    store.save({offset_range.topic_partition: offset_range.until_offset for offset_range in ranges})


def parse_end_offsets(entry: str, path: str) -> dict[TopicPartition, int]:
    """Return the end offsets of a batch over all its Kafka sources."""
    end_offsets: dict[TopicPartition, int] = {}
    has_kafka_source = False
    for line in parse_offset_seq(entry, path).sources:
        if (offsets := _kafka_offsets(line)) is not None:
            has_kafka_source = True
            for tp, offset in offsets.items():  # two sources may read one partition: the lower offset loses nothing
                end_offsets[tp] = min(offset, end_offsets.get(tp, offset))
    if not has_kafka_source:
        raise InvalidOffsetsError(f"{path} has no offsets of a Kafka source: {entry!r}")
    return end_offsets


def _kafka_offsets(line: str | None) -> dict[TopicPartition, int] | None:
    """Return the offsets of a source, or ``None`` if it is not a Kafka source."""
    if line is None:
        return None
    try:
        return partition_offsets_from_json(line)
    except InvalidOffsetsError:
        return None


class _QueryRun(NamedTuple):
    query_id: str | None  # None if Spark does not set it
    job_group: str | None


class _QueryCheckpoint:
    """The checkpoint of a query, read through Spark."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = CheckpointFiles(spark, checkpoint, "foreach_batch")
        self._spark = spark
        self._checkpoint = checkpoint

    def entry_path(self, batch_id: int) -> str:
        return self._files.path(_offset_log_entry(batch_id))

    def end_offsets(self, batch_id: int) -> dict[TopicPartition, int] | None:
        """Return the end offsets of a batch, or ``None`` if the checkpoint does not have them."""
        entry = self._files.read(_offset_log_entry(batch_id))
        return None if entry is None else parse_end_offsets(entry, self.entry_path(batch_id))

    def current_end_offsets(self, batch_id: int) -> dict[TopicPartition, int]:
        end_offsets = self.end_offsets(batch_id)
        if end_offsets is None:
            raise OptionError(
                f"{self.entry_path(batch_id)} does not exist: pass the checkpointLocation of this query to "
                "foreach_batch."
            )
        return end_offsets

    def current_run(self) -> _QueryRun:
        """Return the run of the query that calls this function."""
        context = self._spark.sparkContext
        return _QueryRun(context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_JOB_GROUP))

    def check_query(self) -> None:
        """Raise if the checkpoint belongs to another query."""
        metadata = self._files.read("metadata")
        running_id = self.current_run().query_id
        stored_id = None if metadata is None else json.loads(metadata).get("id")
        if None not in (running_id, stored_id) and running_id != stored_id:
            raise OptionError(
                f"{mask_secrets(self._checkpoint, self._checkpoint)} is the checkpoint of query {stored_id}, but this "
                f"is query {running_id}: pass the checkpointLocation of this query to foreach_batch."
            )


def _offset_log_entry(batch_id: int) -> str:
    return f"offsets/{batch_id}"
