"""An RDD over offset ranges of topics: one partition per range."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.core.rdd import RDD, PipelinedRDD

from pyspark_kafka_direct.direct._placement import executors_of, place, tasks_rdd
from pyspark_kafka_direct.direct._task import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.direct.record import KafkaRecord
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError
from pyspark_kafka_direct.offsets import offset_ranges_to_json
from pyspark_kafka_direct.runtime.range_task import RangeTask, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.settings.kafka_params import KafkaParameters
    from pyspark_kafka_direct.wire.cluster import PartitionLeader

_T = TypeVar("_T")
_U = TypeVar("_U")

# Those of the data source without includeHeaders.
_ARROW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def kafka_rdd(
    sc: SparkContext,
    parameters: KafkaParameters,
    ranges: Sequence[OffsetRange],
    *,
    hosts: Mapping[TopicPartition, str] | None = None,
    topic_ids: Mapping[str, UUID | None] | None = None,
    leaders: Mapping[TopicPartition, PartitionLeader] | None = None,
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
    assume_consecutive: bool = False,
    poll_timeout: float = 120.0,
) -> KafkaRDD:
    """Make a KafkaRDD without asking the cluster anything.

    Args:
        sc: The context.
        parameters: How to reach the cluster.
        ranges: The partitions of the RDD, in this order; a topic-partition may occur more than once.
        hosts: Preferred hosts; ``None``: spread the partitions consistently.
        topic_ids: Ids of the topics as planned: a topic that was deleted and created anew is then seen.
        leaders: Leaders as planned: tasks then need not look them up.
        key_decoder: Applied to keys that are not null, on the executors.
        value_decoder: The same for values.
        assume_consecutive: Count by the offsets, because each one is a record.
        poll_timeout: Seconds without any progress after which a task fails, if the parameters do not say.
    """
    executors = executors_of(sc)
    ids, known, preferred = topic_ids or {}, leaders or {}, hosts or {}
    partitions = [wanted.topic_partition for wanted in ranges]
    tasks = [
        RangeTask(wanted, ids.get(wanted.topic), known.get(partition))
        for wanted, partition in zip(ranges, partitions, strict=True)
    ]
    made = tasks_rdd(sc, tasks, [place(partition, executors, preferred) for partition in partitions])
    return KafkaRDD(
        made,
        parameters,
        ranges,
        key_decoder,
        value_decoder,
        assume_consecutive=assume_consecutive,
        timeout=poll_timeout,
    )


class _MakesDerived(PipelinedRDD[_T, _U]):
    """Every narrow transformation of an RDD goes through this one method."""

    def mapPartitionsWithIndex(  # noqa: N802
        self,
        f: Callable[[int, Iterable[Any]], Iterable[Any]],
        preservesPartitioning: bool = False,  # noqa: N803
    ) -> RDD[Any]:
        """See ``RDD``."""
        return DerivedRDD(self, f, preservesPartitioning)


class DerivedRDD(_MakesDerived[_T, _U]):
    """What a transformation makes of a ``KafkaRDD``: it knows no offset ranges, and says so."""

    def offsetRanges(self) -> NoReturn:  # noqa: N802 (Spark's spelling)
        """Refuse: a derived RDD has no offset ranges.

        Raises:
            KafkaDirectError: Always.
        """
        raise KafkaDirectError(
            "offsetRanges() is known to the RDD that createRDD returned, or that the stream gives to the first "
            "foreachRDD or transform, and not to what was made of it: call it there, before any transformation, and "
            "keep its result."
        )


class KafkaRDD(_MakesDerived[RangeTask, KafkaRecord]):
    """Records of offset ranges; made by ``KafkaUtils.createRDD``, or by a direct stream for each batch.

    Partition *i* holds the records of ``offsetRanges()[i]``. Gaps of compaction, transaction markers and aborted
    records are no records: a range may have fewer than its offsets. A range whose records are gone, or that ends beyond
    the log, fails the job with ``DataLossError``.
    """

    def __init__(
        self,
        tasks: RDD[RangeTask],
        parameters: KafkaParameters,
        ranges: Sequence[OffsetRange],
        key_decoder: Decoder | None,
        value_decoder: Decoder | None,
        *,
        assume_consecutive: bool,
        timeout: float,
    ) -> None:
        self._reading = Reading(
            parameters.executor_settings,
            parameters.fetch,
            timeout if parameters.poll_timeout is None else parameters.poll_timeout,
            parameters.rack_environment_variable,
            parameters.fail_on_data_loss,
            parameters.max_record_batch_bytes,
        )
        super().__init__(tasks, ReadRecords(self._reading, key_decoder, value_decoder))
        self._tasks = tasks
        self._parameters = parameters
        self._ranges = tuple(ranges)
        self._consecutive = assume_consecutive

    def offsetRanges(self) -> list[OffsetRange]:  # noqa: N802 (Spark's spelling)
        """Return the offset ranges, in the order of the partitions."""
        return list(self._ranges)

    def getNumPartitions(self) -> int:  # noqa: N802
        """Return the number of partitions, one per range."""
        return len(self._ranges)

    def count(self) -> int:
        """Count records by the headers of their batches: nothing is decompressed but the batches at the edges.

        With ``assumeConsecutiveOffsets`` the number of offsets, without a job. A persisted RDD is counted as any other.
        """
        if self._is_stored():
            return super().count()
        if self._consecutive:
            return sum(wanted.count() for wanted in self._ranges)
        return sum(self._run(CountRecords(self._reading), self._not_empty()))

    def countApprox(self, timeout: int, confidence: float = 0.95) -> int:  # noqa: N802
        """Count as ``count`` does: as with any RDD in PySpark, the final value is waited for."""
        return self.count()

    def isEmpty(self) -> bool:  # noqa: N802
        """Tell whether there is no record, by the headers of record batches; look no further than the first record."""
        if self._is_stored():
            return super().isEmpty()
        wanted = self._not_empty()
        if self._consecutive:
            return not wanted
        tried = 0
        while tried < len(wanted):
            next_ones = wanted[tried : max(1, tried * 4)]
            if any(self._run(CountRecords(self._reading, limit=1), next_ones)):
                return False
            tried += len(next_ones)
        return True

    def take(self, num: int) -> list[KafkaRecord]:
        """Return the first records, in the order of the partitions.

        A job runs on as many partitions as hold ``num`` offsets; only if gaps have made that too few, on more.
        """
        if self._is_stored():
            return super().take(num)
        taken: list[KafkaRecord] = []
        wanted = self._not_empty()
        tried = 0
        while len(taken) < num and tried < len(wanted):
            lacking = num - len(taken)
            # As many again as were tried in vain, or a thousand empty ranges would be a thousand jobs.
            more = max(tried, _reaching(lacking, [self._ranges[index].count() for index in wanted[tried:]]))
            taken += self._run(_First(self.func, lacking), wanted[tried : tried + more])
            tried += more
        return taken[:num]

    def arrow(self, columns: Sequence[str] | None = None) -> RDD[pa.RecordBatch]:
        """Return the records as ``pyarrow.RecordBatch``, with no object per record.

        Args:
            columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers, leaderEpoch, in
                the wanted order; only these are decoded. By default the first seven, the data source's columns.

        Raises:
            OptionError: There is no such column, one is named twice, or these are no names.
        """
        from pyspark_kafka_direct.records import arrow_schema

        if isinstance(columns, str):
            raise OptionError(f"arrow(columns=...) takes a list of names: [{columns!r}]")
        wanted = _ARROW_COLUMNS if columns is None else tuple(columns)
        try:
            arrow_schema(wanted)
        except ValueError as error:
            raise OptionError(f"arrow(columns=...): {error}") from None
        return DerivedRDD(self._tasks, ReadArrow(self._reading, wanted))

    def toDF(  # type: ignore[override]  # noqa: N802
        self, schema: StructType | str | None = None
    ) -> DataFrame:
        """Make a DataFrame of the same ranges, read by the data source ``kafka-direct``; decoders play no part in it.

        Args:
            schema: Some of the data source's columns; by default all but ``headers``. One that does not exist is an
                error when the DataFrame is used, as Spark asks the source only then.
        """
        from pyspark.sql import SparkSession

        reader = SparkSession.builder.getOrCreate().read.format("kafka-direct")
        reader = reader.options(**self._parameters.source_options())
        reader = reader.option("offsetRanges", offset_ranges_to_json(self._ranges))
        reader = reader.option("kafkaConsumer.pollTimeoutMs", str(round(self._reading.poll_timeout * 1000)))
        return (reader if schema is None else reader.schema(schema)).load()

    def _is_stored(self) -> bool:
        return self.is_cached or self.is_checkpointed

    def _not_empty(self) -> list[int]:
        return [index for index, wanted in enumerate(self._ranges) if wanted.count()]

    def _run(self, function: Callable[[int, Iterable[Any]], Iterable[_T]], partitions: Sequence[int]) -> list[_T]:
        """Run a job on these partitions only; none if there are none."""
        if not partitions:
            return []
        return self.ctx.runJob(PipelinedRDD(self._tasks, function), _same, partitions)


class _First:
    """The first records of a range, and not one more."""

    def __init__(self, read: Callable[[int, Iterable[Any]], Iterable[KafkaRecord]], most: int) -> None:
        self._read = read
        self._most = most

    def __call__(self, split: int, tasks: Iterable[RangeTask]) -> Iterator[KafkaRecord]:
        return islice(self._read(split, tasks), self._most)


def _same(iterator: Iterable[_T]) -> Iterable[_T]:
    return iterator


def _reaching(wanted: int, counts: Sequence[int]) -> int:
    """Return how many of the counts, from the first on, make so many together; all, if they do not."""
    return next((number for number, total in enumerate(accumulate(counts), 1) if total >= wanted), len(counts))
