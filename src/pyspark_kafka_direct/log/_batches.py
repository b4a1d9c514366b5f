"""Save where batches of Spark end: of structured queries in ``foreachBatch``, of direct streams in ``foreachRDD``.

``foreachBatch`` is told a number and no offsets. But before a batch runs Spark writes its end to the offset log of the
checkpoint (``runtime/offset_log.py``), and it is read there. Sources that are not Kafka's are passed over.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles
from pyspark_kafka_direct.runtime.offset_log import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_kafka_direct.offsets import OffsetStore

_log = logging.getLogger("pyspark_kafka_direct.log")

_QUERY: Final = "sql.streaming.queryId"
_JOB_GROUP: Final = "spark.jobGroup.id"  # the id of the run, unless somebody has changed it


class SavedBatches:
    """Calls a function with each batch of a structured query, and saves where the batch ends.

    Args:
        store: Where to.
        function: The function.
        checkpoint: The query's ``checkpointLocation``.
    """

    def __init__(self, store: OffsetStore, function: Callable[[DataFrame, int], None], checkpoint: str) -> None:
        self._store = store
        self._function = function
        self._checkpoint = checkpoint.rstrip("/")
        self._checked: object = None

    def run(self, frame: DataFrame, batch_id: int) -> None:
        """Work on a batch, and save where it ends."""
        files = _Files(frame.sparkSession, self._checkpoint)
        ends = files.running_ends(batch_id)
        if self._checked != (run := files.run()):  # of several queries, one after the other, each
            files.check_query()
            self._compare(files, batch_id, ends)
            self._checked = run
        self._function(frame, batch_id)
        self._store.save(ends)

    def _compare(self, files: _Files, batch_id: int, ends: Mapping[TopicPartition, int]) -> None:
        """Warn where the checkpoint goes on somewhere else than the store says: to Spark the checkpoint counts."""
        before = files.ends(batch_id - 1) if batch_id else None
        stored = self._store.load()
        if before is None:  # where the query began is not in its checkpoint
            begins = ends
            apart = {tp: at for tp, at in stored.items() if at > ends.get(tp, at)}
        else:
            begins = before
            apart = {tp: at for tp, at in stored.items() if tp in begins and at not in (begins[tp], ends.get(tp))}
        if apart:
            _log.warning(
                "The checkpoint %s goes on at %s, and the offset store is at %s. The checkpoint counts. Where the "
                "store is right, as after a run elsewhere, stop the query, remove the checkpoint and start again.",
                self._checkpoint,
                partition_offsets_to_json({tp: begins[tp] for tp in apart}),
                partition_offsets_to_json(apart),
            )


class _Ranges(Protocol):
    """What is asked of the RDD of a direct stream."""

    def offsetRanges(self) -> list[Any]: ...  # noqa: N802 (Spark's spelling)


def run_and_save(store: OffsetStore, function: Callable[[Any], None], rdd: _Ranges) -> None:
    """Call a function with a batch of a direct stream, and save where the batch ends.

    Args:
        store: Where to.
        function: The function.
        rdd: The batch.

    Raises:
        OffsetPlanError: The batch does not begin where the last one was saved.
    """
    ranges = rdd.offsetRanges()
    stored = store.load()
    for each in ranges:
        begin = stored.get(each.topic_partition, each.from_offset)
        if begin != each.from_offset:
            raise OffsetPlanError(
                f"The batch begins at offset {each.from_offset}, and {begin} is the next one by the offset store: the "
                "batch before it has failed, or the stream was not started with offsets=store.load(). Nothing was "
                "done; stop the application and start it again, and it goes on where the store says.",
                topic=each.topic,
                partition=each.partition,
            )
    # Where the first batch begins must not be lost with it: "latest" is another offset after a restart.
    store.save({each.topic_partition: each.from_offset for each in ranges if each.topic_partition not in stored})
    function(rdd)
    store.save({each.topic_partition: each.until_offset for each in ranges})


def parse_ends(text: str, place: str) -> dict[TopicPartition, int]:
    """Return where a batch ends, by partition, over all sources of Kafka.

    Where two sources read one partition to different offsets it is the lower one: nothing is lost by it.

    Args:
        text: An entry of the offset log of a checkpoint.
        place: Where it is, for errors.

    Raises:
        OffsetPlanError: It is of another version, or no source in it is Kafka's.
    """
    ends: dict[TopicPartition, int] = {}
    sources = 0
    for line in read_lines(text, place).sources:
        if (found := _kafka_offsets(line)) is not None:
            sources += 1
            for tp, offset in found.items():
                ends[tp] = min(offset, ends.get(tp, offset))
    if not sources:
        raise OffsetPlanError(f"{place} has no offsets of a Kafka source: {text!r}")
    return ends


def _kafka_offsets(line: str | None) -> dict[TopicPartition, int] | None:
    """Return the offsets in a source's line; ``None`` if it is no source of Kafka's."""
    if line is None:
        return None
    try:
        return partition_offsets_from_json(line)
    except OffsetPlanError:
        return None


class _Files:
    """The checkpoint of a query, read as Spark does."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = CheckpointFiles(spark, checkpoint, "foreach_batch")
        self._spark = spark
        self._checkpoint = checkpoint

    def place(self, batch_id: int) -> str:
        """Return the name of the entry of a batch."""
        return self._files.place(_entry(batch_id))

    def ends(self, batch_id: int) -> dict[TopicPartition, int] | None:
        """Return where a batch ends; ``None`` if the checkpoint does not have it."""
        text = self._files.text(_entry(batch_id))
        return None if text is None else parse_ends(text, self.place(batch_id))

    def running_ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """Return where the batch ends that runs now."""
        ends = self.ends(batch_id)
        if ends is None:
            raise OptionError(
                f"There is no {self.place(batch_id)}: give foreach_batch the checkpointLocation of this query."
            )
        return ends

    def run(self) -> tuple[str | None, str | None]:
        """Return which query runs, and which of its runs it is; as far as Spark tells."""
        context = self._spark.sparkContext
        return context.getLocalProperty(_QUERY), context.getLocalProperty(_JOB_GROUP)

    def check_query(self) -> None:
        """Refuse the checkpoint of another query.

        Raises:
            OptionError: It is one.
        """
        text = self._files.text("metadata")
        running, _ = self.run()
        there = None if text is None else json.loads(text).get("id")
        if None not in (running, there) and running != there:
            raise OptionError(
                f"{self._checkpoint} is the checkpoint of the query {there}, and this is {running}: give foreach_batch "
                "the checkpointLocation of this query."
            )


def _entry(batch_id: int) -> str:
    return f"offsets/{batch_id}"
