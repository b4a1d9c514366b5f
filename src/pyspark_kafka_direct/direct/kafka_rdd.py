"""``KafkaRDD``, an RDD over offset ranges with one partition per range, and the functions that its tasks run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.core.rdd import RDD, PipelinedRDD

from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.direct.arrow_columns import ArrowColumns, arrow_columns
from pyspark_kafka_direct.direct.kafka_record import RECORD_COLUMNS, KafkaRecord, kafka_records
from pyspark_kafka_direct.direct.location_strategies import create_task_rdd, list_executors, preferred_location
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import offset_ranges_to_json, with_topic_ids
from pyspark_kafka_direct.spark.loss_channel import find_loss_channel
from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.direct.kafka_record import Decoder
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.options.kafka_params import KafkaParameters

_T = TypeVar("_T")
_U = TypeVar("_U")

# A record keeps its Arrow batch alive, so batches are small. Much smaller batches would be slower to read.
_MAX_BATCH_RECORDS = 2048
_MAX_BATCH_BYTES = 512 << 10


def create_kafka_rdd(
    sc: SparkContext,
    parameters: KafkaParameters,
    ranges: Sequence[OffsetRange],  # a topic-partition may occur more than once
    *,
    hosts: Mapping[TopicPartition, str] | None = None,  # preferred hosts; None distributes the partitions consistently
    topic_ids: Mapping[str, UUID | None] | None = None,  # with ids, tasks detect a recreated topic
    leaders: Mapping[TopicPartition, PartitionLeader] | None = None,  # with leaders, tasks need no metadata request
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
    assume_consecutive: bool = False,
    poll_timeout_ms: int = 120_000,  # without progress until a task fails, unless the parameters set it
    name: str = "KafkaRDD",  # in Spark's UI
) -> KafkaRDD:
    """Create a KafkaRDD without any broker request."""
    executors = list_executors(sc)
    leaders, hosts = leaders or {}, hosts or {}
    ranges = with_topic_ids(ranges, topic_ids or {})
    partitions = [offset_range.topic_partition for offset_range in ranges]
    tasks = [
        RangeTask(offset_range, offset_range.topic_id, leaders.get(partition))
        for offset_range, partition in zip(ranges, partitions, strict=True)
    ]
    task_rdd = create_task_rdd(sc, tasks, [preferred_location(partition, executors, hosts) for partition in partitions])
    # The name of the KafkaRDD itself would create a JVM object for it, which its transformations do not need.
    task_rdd.setName(name)
    return KafkaRDD(
        task_rdd,
        parameters,
        ranges,
        key_decoder,
        value_decoder,
        assume_consecutive=assume_consecutive,
        poll_timeout_ms=poll_timeout_ms,
    )


class _TransformableRDD(PipelinedRDD[_T, _U]):
    """Overrides the one method that every narrow transformation of an RDD uses."""

    def mapPartitionsWithIndex(  # noqa: N802
        self,
        f: Callable[[int, Iterable[Any]], Iterable[Any]],
        preservesPartitioning: bool = False,  # noqa: N803
    ) -> RDD[Any]:
        """Return an RDD without offset ranges; the base of ``map``, ``filter`` and similar methods."""
        return DerivedRDD(self, f, preservesPartitioning)


class DerivedRDD(_TransformableRDD[_T, _U]):
    """The result of a transformation of a ``KafkaRDD``; it has no offset ranges."""

    def offsetRanges(self) -> NoReturn:  # noqa: N802 (Spark's spelling)
        """Reject the call: a derived RDD has no offset ranges.

        Raises:
            KafkaDirectError: Always.
        """
        raise KafkaDirectError(
            "offsetRanges() is available only on the RDD that createRDD returns, or that the stream passes to the "
            "first foreachRDD or transform, not on RDDs derived from it. Call it there, before any transformation, and "
            "keep its result."
        )


class KafkaRDD(_TransformableRDD[RangeTask, KafkaRecord]):
    """The records of offset ranges; created by ``KafkaUtils.createRDD``, or by a direct stream for each batch.

    Partition *i* contains the records of ``offsetRanges()[i]``. A range may contain fewer records than offsets, because
    of compaction, transaction markers and aborted transactions. If the records of a range were deleted, or if a range
    ends beyond the end of the log, the job fails with ``DataLossError``.
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
        poll_timeout_ms: int,
    ) -> None:
        fetch = parameters.fetch
        if parameters.poll_timeout_ms is None:  # kafkaParams do not set it
            fetch = replace(fetch, poll_timeout_ms=poll_timeout_ms)
        self._reader = RangeTaskReader(parameters.executor_connection, fetch, find_loss_channel())
        super().__init__(tasks, ReadRecords(self._reader, key_decoder, value_decoder))
        self._tasks = tasks
        self._parameters = parameters
        self._ranges = tuple(ranges)
        self._assume_consecutive = assume_consecutive

    def offsetRanges(self) -> list[OffsetRange]:  # noqa: N802 (Spark's spelling)
        """Return the offset ranges, in the order of the partitions."""
        return list(self._ranges)

    def getNumPartitions(self) -> int:  # noqa: N802
        """Return the number of partitions, one per range."""
        return len(self._ranges)

    def count(self) -> int:
        """Return the number of records, from the headers of the record batches.

        Only the first and last batches of a range are decompressed. With ``assumeConsecutiveOffsets`` it is the number
        of offsets, and no job runs. For a persisted RDD, Spark counts the persisted records.
        """
        if self._is_persisted():
            return super().count()
        if self._assume_consecutive:
            return sum(offset_range.count() for offset_range in self._ranges)
        return sum(self._run_job(CountRecords(self._reader), self._non_empty_partitions()))

    def countApprox(self, timeout: int, confidence: float = 0.95) -> int:  # noqa: N802
        """Return ``count()``: as with any RDD in PySpark, the call waits for the final value.

        Args:
            timeout: Ignored.
            confidence: Ignored.
        """
        return self.count()

    def isEmpty(self) -> bool:  # noqa: N802
        """Return whether there is no record, from the headers of the record batches up to the first record."""
        if self._is_persisted():
            return super().isEmpty()
        candidates = self._non_empty_partitions()
        if self._assume_consecutive:
            return not candidates
        scanned = 0
        while scanned < len(candidates):
            partitions = candidates[scanned : max(1, scanned * 4)]  # the first one, then the next 3, 12, 48, ...
            if any(self._run_job(CountRecords(self._reader, limit=1), partitions)):
                return False
            scanned += len(partitions)
        return True

    def take(self, num: int) -> list[KafkaRecord]:
        """Return the first records, in the order of the partitions.

        The first job runs on the partitions whose ranges contain ``num`` offsets. Only if they have too few records,
        because of offset gaps, further jobs run on more partitions.

        Args:
            num: The maximum number of records.
        """
        if self._is_persisted():
            return super().take(num)
        taken: list[KafkaRecord] = []
        candidates = self._non_empty_partitions()
        scanned = 0
        while len(taken) < num and scanned < len(candidates):
            missing = num - len(taken)
            offset_counts = [self._ranges[index].count() for index in candidates[scanned:]]
            # At least doubles the scanned partitions: otherwise a thousand ranges without records take a thousand jobs.
            next_count = max(scanned, _partitions_needed(missing, offset_counts))
            taken += self._run_job(_TakeFirst(self.func, missing), candidates[scanned : scanned + next_count])
            scanned += next_count
        return taken[:num]

    def arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        keyFormat: str | None = None,  # noqa: N803 (the names of the data source's options)
        valueFormat: str | None = None,  # noqa: N803
        keySchema: str | None = None,  # noqa: N803
        valueSchema: str | None = None,  # noqa: N803
        keyMessage: str | None = None,  # noqa: N803
        valueMessage: str | None = None,  # noqa: N803
        keyCharset: str | None = None,  # noqa: N803
        valueCharset: str | None = None,  # noqa: N803
        mode: str | None = None,
        columnNameOfCorruptRecord: str | None = None,  # noqa: N803
        options: Mapping[str, str] | None = None,
    ) -> RDD[pa.RecordBatch]:
        """Return the records as ``pyarrow.RecordBatch`` objects, without a Python object per record.

        Keys and values are binary, or decoded as by the data source; docs/formats.md describes formats and modes.

        Args:
            columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers, leaderEpoch, in
                the order of the result. Only these are decoded. By default the first seven, which are the columns of
                the data source. With JSON, Avro and Protobuf also _error, which says why a record is malformed.
            keyFormat: ``binary`` (default), ``string``, ``json``, ``avro``, ``protobuf``, or ``module:factory`` for a
                decoder of your own.
            valueFormat: The same for values.
            keySchema: With ``keyFormat="json"``: the fields to decode, as DDL. With ``avro``: an Avro schema, as JSON.
                With ``protobuf``: the text of a ``.proto`` file, or a set of descriptors in base64. With
                ``module:factory``: fields or any type.
            valueSchema: The same for values.
            keyMessage: With ``protobuf``: the full name of the message type. Default: the first one of the schema.
            valueMessage: The same for values.
            keyCharset: With ``string``: the charset. By default, the bytes are not checked.
            valueCharset: The same for values.
            mode: What to do with malformed records: ``PERMISSIVE`` (default), ``DROPMALFORMED`` or ``FAILFAST``
                (default if the key or the value is Avro, Protobuf or a string with a charset).
            columnNameOfCorruptRecord: The name of the field for malformed records. Default: ``_corrupt_record``.
            options: Options of the data source for a schema registry, such as ``schema.registry.url``, and
                ``emit.default.values`` for Protobuf. The subject follows from the topic if all ranges have the same
                one; otherwise, set ``valueSubject``.

        Returns:
            An RDD of record batches.

        Raises:
            OptionError: A column does not exist or occurs twice, ``columns`` is not a list of names, or another
                argument is invalid.
            SchemaRegistryError: The registry does not have the schema, or is not available.
        """
        payloads = {
            "keyFormat": keyFormat,
            "valueFormat": valueFormat,
            "keySchema": keySchema,
            "valueSchema": valueSchema,
            "keyMessage": keyMessage,
            "valueMessage": valueMessage,
            "keyCharset": keyCharset,
            "valueCharset": valueCharset,
            "mode": mode,
            "columnNameOfCorruptRecord": columnNameOfCorruptRecord,
        }
        topics = {offset_range.topic for offset_range in self._ranges}
        topic = topics.pop() if len(topics) == 1 else None
        security = self._parameters.connection.security
        return self._read_arrow(arrow_columns(columns, payloads, options, topic=topic, security=security))

    def _read_arrow(self, columns: ArrowColumns) -> RDD[pa.RecordBatch]:
        """Return the records as Arrow batches with validated columns."""
        return DerivedRDD(self._tasks, ReadArrow(self._reader, columns))

    def toDF(  # type: ignore[override]  # noqa: N802
        self, schema: StructType | str | None = None
    ) -> DataFrame:
        """Return a DataFrame of the same ranges, read by the data source ``kafka-direct``; decoders are not applied.

        Args:
            schema: Some of the data source's columns; by default all but ``headers``. A column that does not exist is
                an error when the DataFrame is used, because Spark calls the source only then.
        """
        from pyspark.sql import SparkSession

        reader = SparkSession.builder.getOrCreate().read.format("kafka-direct")
        reader = reader.options(**self._parameters.source_options())
        reader = reader.option("offsetRanges", offset_ranges_to_json(self._ranges))
        reader = reader.option("kafkaConsumer.pollTimeoutMs", str(self._reader.fetch.poll_timeout_ms))
        return (reader if schema is None else reader.schema(schema)).load()

    def _is_persisted(self) -> bool:
        return self.is_cached or self.is_checkpointed

    def _non_empty_partitions(self) -> list[int]:
        return [index for index, offset_range in enumerate(self._ranges) if offset_range.count()]

    def _run_job(self, function: Callable[[int, Iterable[Any]], Iterable[_T]], partitions: Sequence[int]) -> list[_T]:
        """Run a job on these partitions only, or no job if there are none."""
        if not partitions:
            return []
        return self.ctx.runJob(PipelinedRDD(self._tasks, function), _identity, partitions)


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Reads ranges as ``KafkaRecord`` objects; Spark calls it for each partition."""

    reader: RangeTaskReader
    key_decoder: Decoder | None
    value_decoder: Decoder | None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[KafkaRecord]:
        """Yield the records of the tasks' ranges."""
        return chain.from_iterable(self._batches(tasks))  # no Python frame between two records

    def _batches(self, tasks: Iterable[RangeTask]) -> Iterator[Iterator[KafkaRecord]]:
        for task in tasks:
            if not task.offsets.count():
                continue
            topic, partition = task.offsets.topic_partition
            for batch in self.reader.read(
                task, RECORD_COLUMNS, max_rows=_MAX_BATCH_RECORDS, max_bytes=_MAX_BATCH_BYTES
            ):
                yield kafka_records(batch, topic, partition, self.key_decoder, self.value_decoder)


@dataclass(frozen=True, slots=True)
class ReadArrow:
    """Reads ranges as Arrow batches."""

    reader: RangeTaskReader
    columns: ArrowColumns

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of the tasks' ranges."""
        names, decoded = self.columns
        for task in tasks:
            if not task.offsets.count():
                continue
            if decoded is None:
                yield from self.reader.read(task, names)
            else:
                yield from self.reader.read_decoded(task, decoded)


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Counts the records of each range, up to a limit, from the headers of its record batches."""

    reader: RangeTaskReader
    limit: int | None = None

    def __call__(self, _: int, tasks: Iterable[RangeTask]) -> Iterator[int]:
        """Yield one count per task."""
        for task in tasks:
            if task.offsets.count():
                yield self.reader.count(task, self.limit)


class _TakeFirst:
    """Reads the first records of a range, and fetches no more than needed."""

    def __init__(self, read: Callable[[int, Iterable[Any]], Iterable[KafkaRecord]], limit: int) -> None:
        self._read = read
        self._limit = limit

    def __call__(self, split: int, tasks: Iterable[RangeTask]) -> Iterator[KafkaRecord]:
        return islice(self._read(split, tasks), self._limit)


def _identity(iterator: Iterable[_T]) -> Iterable[_T]:
    return iterator


def _partitions_needed(record_count: int, offset_counts: Sequence[int]) -> int:
    """Return how many partitions, from the first, have ``record_count`` offsets together; all if they have fewer."""
    totals = enumerate(accumulate(offset_counts), 1)
    return next((count for count, total in totals if total >= record_count), len(offset_counts))
