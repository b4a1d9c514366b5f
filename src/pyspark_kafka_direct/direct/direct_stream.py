"""``DirectKafkaInputDStream``, returned by ``KafkaUtils.createDirectStream``, and the functions that Spark calls."""

from __future__ import annotations

import inspect
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.streaming.dstream import TransformedDStream
from pyspark.streaming.util import TransformFunction

from pyspark_kafka_direct.direct import checkpointed_stream
from pyspark_kafka_direct.direct.arrow_columns import ArrowColumns, arrow_columns
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream, check_pinned_threads, find_stream
from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
from pyspark_kafka_direct.direct.kafka_record import check_decoders
from pyspark_kafka_direct.direct.location_strategies import preferred_hosts
from pyspark_kafka_direct.direct.rate_controller import (
    PerPartitionConfig,
    create_rate_controller,
    default_per_partition_config,
)
from pyspark_kafka_direct.direct.streaming_context import (
    StreamingContextBinding,
    add_generation_callbacks,
    bind_restored_stream,
    create_constant_stream,
)
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.spark_conf import assume_consecutive as assume_consecutive_of
from pyspark_kafka_direct.options.spark_conf import warn_of_ignored_properties
from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark import RDD, StorageLevel
    from pyspark.streaming import DStream, StreamingContext

    from pyspark_kafka_direct.direct.checkpointed_stream import ContextBinding
    from pyspark_kafka_direct.direct.commit_queue import OffsetCommitCallback
    from pyspark_kafka_direct.direct.consumer_strategies import ConsumerStrategy
    from pyspark_kafka_direct.direct.kafka_record import Decoder
    from pyspark_kafka_direct.direct.location_strategies import LocationStrategy
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

__all__ = ["DirectKafkaInputDStream", "DirectStreamReference"]


class CanCommitOffsets:
    """Commits offsets and returns offset ranges; for functions that run on the driver for each batch."""

    _stream_id: str

    def commitAsync(  # noqa: N802 (Spark's spelling)
        self,
        offsetRanges: Iterable[OffsetRange],  # noqa: N803
        callback: OffsetCommitCallback | None = None,
    ) -> None:
        """Queue the end offsets of these ranges, to be committed for ``group.id`` when the next batch is planned.

        If a partition is queued several times, the highest offset is committed. A stop of the context and the exit of
        the program commit the offsets that are still queued. If the driver is killed, queued offsets are not committed.

        Args:
            offsetRanges: Ranges whose results are stored, as returned by ``rdd.offsetRanges()``.
            callback: Called once, on another thread, with the committed offsets and the error, if any.

        Raises:
            OptionError: ``group.id`` is not set, or an element is not an offset range.
        """
        find_stream(self._stream_id).client.commits.add(offsetRanges, callback)

    def commitSync(self, offsetRanges: Iterable[OffsetRange]) -> None:  # noqa: N802, N803 (Spark's spelling)
        """Commit the end offsets of these ranges and all queued offsets now, and wait for the broker's response.

        Args:
            offsetRanges: Ranges whose results are stored, as returned by ``rdd.offsetRanges()``.

        Raises:
            OptionError: ``group.id`` is not set, or an element is not an offset range.
            BrokerError: The commit failed, or took longer than ``default.api.timeout.ms``.
        """
        find_stream(self._stream_id).client.commits.commit_sync(offsetRanges)

    def offsetRanges(self, time: datetime) -> list[OffsetRange]:  # noqa: N802 (Spark's spelling)
        """Return the offset ranges of a batch, for functions that do not receive the batch's KafkaRDD.

        Use it in any function of ``(time, rdd)`` downstream of the stream: after ``map``, ``union``, ``window`` and
        other transformations, whose RDDs have no ranges. The time of a window is that of its last batch.

        Args:
            time: The batch time that Spark passes to the function.

        Returns:
            One range for each partition.

        Raises:
            InvalidOffsetsError: The stream had no batch at that time, or Spark no longer remembers it.
        """
        return find_stream(self._stream_id).planned_ranges(batch_time_ms(time))

    def currentOffsets(self) -> dict[TopicPartition, int]:  # noqa: N802 (in the style of its neighbours)
        """Return the next offset to read of each partition, after the last planned batch.

        Returns:
            Offsets by topic-partition.
        """
        return find_stream(self._stream_id).current_offsets


class DirectStreamReference(CanCommitOffsets):
    """Replaces the direct stream in functions that are restored from a checkpoint, which may commit offsets."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id


class DirectKafkaInputDStream(TransformedDStream[Any], CanCommitOffsets):
    """A stream of the records of some topic-partitions, read directly from the partition leaders.

    ``foreachRDD`` and ``transform`` pass the batch's :class:`KafkaRDD`, so ``rdd.offsetRanges()`` is available there,
    and the records are fetched and processed in the same Python worker. All other operations of a DStream work as well.
    Windows, unions and joins move records between Python and the JVM, so map records to the fields you need first.
    """

    def __init__(self, ssc: StreamingContext, batches: DStream[Any], stream: CheckpointedStream) -> None:
        super().__init__(batches, ComputeKafkaRdd(stream.stream_id))
        self._ssc = ssc
        self._stream = stream
        self._stream_id = stream.stream_id

    def foreachRDD(self, func: Callable[..., Any]) -> None:  # noqa: N802
        """Call a function on the driver for each batch.

        Args:
            func: Called with the batch's KafkaRDD, or with the batch time and the KafkaRDD. Its result is ignored.
        """
        # Not super().foreachRDD, because it takes only functions with __code__.
        foreach = ForeachKafkaRdd((self._stream_id,), func)
        function = TransformFunction(self._sc, foreach, self._jrdd_deserializer)  # type: ignore[no-untyped-call]
        assert self._ssc._jvm is not None
        self._ssc._jvm.PythonDStream.callForeachRDD(self._jdstream, function)

    def transform(self, func: Callable[..., Any]) -> TransformedDStream[Any]:
        """Return a stream of the RDDs that a function returns for each batch.

        Args:
            func: Called with the batch's KafkaRDD, or with the batch time and the KafkaRDD.
        """
        return TransformedDStream(self, TransformKafkaRdd((self._stream_id,), func))

    def transformWith(  # noqa: N802
        self,
        func: Callable[..., Any],
        other: DStream[Any],
        keepSerializer: bool = False,  # noqa: N803
    ) -> DStream[Any]:
        """Return a stream of the RDDs that a function returns for the batches of this stream and another one.

        Args:
            func: Called with both RDDs, or with the batch time and both RDDs. The RDD of a direct stream is a KafkaRDD.
            other: The other stream.
            keepSerializer: As in ``DStream.transformWith``.
        """
        stream_ids = (self._stream_id, other._stream_id if isinstance(other, DirectKafkaInputDStream) else None)
        with_kafka_rdds = TransformKafkaRdd(stream_ids, func)

        # A function, because DStream.transformWith counts the arguments in __code__, which an object lacks.
        def transform(time: Any, rdd: Any, other_rdd: Any) -> Any:
            return with_kafka_rdds(time, rdd, other_rdd)

        return super().transformWith(transform, other, keepSerializer)

    def persist(self, storageLevel: StorageLevel) -> DStream[Any]:  # noqa: N803 (Spark's spelling)
        """Persist the records of each batch, so that several functions read them from Kafka only once.

        Args:
            storageLevel: As in ``DStream.persist``.
        """
        self._stream.persisted = True
        return super().persist(storageLevel)

    def checkpoint(self, interval: int) -> DStream[Any]:
        """Reject the call: a restart reads the records of this stream from Kafka again.

        Raises:
            OptionError: Always. Streams derived from this one can be checkpointed.
        """
        raise OptionError(
            "a direct stream can't be checkpointed, because its records remain in Kafka. For restarts, "
            "ssc.checkpoint(directory) is enough. Streams derived from this one can have a checkpoint interval"
        )

    def arrow(
        self, columns: Sequence[str] | None = None, *, options: Mapping[str, str] | None = None, **payloads: str
    ) -> TransformedDStream[pa.RecordBatch]:
        """Return a stream of Arrow record batches, without a Python object per record.

        Args:
            columns: As for ``KafkaRDD.arrow``.
            options: The options of a schema registry, and ``valueSubject`` or ``keySubject``. The schema to read with
                is resolved now, and becomes part of the stream's checkpoint, with the credentials of the registry.
            payloads: The other arguments of ``KafkaRDD.arrow``, such as ``valueFormat="json"``.

        Raises:
            OptionError: As by ``KafkaRDD.arrow``.
            SchemaRegistryError: As by ``KafkaRDD.arrow``.
        """
        self_argument = None
        inspect.signature(KafkaRDD.arrow).bind(self_argument, columns, **payloads)  # TypeError for an unknown name
        return self.transform(partial(_read_arrow, arrow_columns(columns, payloads, options)))

    def __reduce__(self) -> tuple[type[DirectStreamReference], tuple[str]]:
        # A user's function that commits offsets holds the stream, and Spark pickles the function into its checkpoint.
        return (DirectStreamReference, (self._stream_id,))


def create_direct_stream(
    ssc: StreamingContext,
    locations: LocationStrategy,
    strategy: ConsumerStrategy,
    config: PerPartitionConfig | None,
    *,
    key_decoder: Decoder | None,
    value_decoder: Decoder | None,
    assume_consecutive: bool | None,
) -> DirectKafkaInputDStream:
    """Create a stream and find its starting offsets; arguments that are ``None`` come from the Spark configuration."""
    preferred_hosts(locations, {})  # raises if it is not a location strategy
    if not hasattr(strategy, "on_start"):
        raise OptionError(
            "the consumer strategy must be ConsumerStrategies.Subscribe(...), SubscribePattern(...) or Assign(...), or "
            f"an object with executor_params and on_start, got {type(strategy).__name__}"
        )
    if config is not None and not isinstance(config, PerPartitionConfig):
        raise OptionError(f"perPartitionConfig must be an instance of a subclass of PerPartitionConfig, got {config!r}")
    check_decoders(key_decoder, value_decoder)
    check_pinned_threads()
    conf = ssc.sparkContext.getConf()
    warn_of_ignored_properties(conf)
    interval_ms = ssc._jssc.ssc().graph().batchDuration().milliseconds()
    spec = StreamSpec(
        strategy,
        locations,
        config=default_per_partition_config(conf) if config is None else config,
        batch_seconds=interval_ms / 1000,
        key_decoder=key_decoder,
        value_decoder=value_decoder,
        assume_consecutive=assume_consecutive_of(conf) if assume_consecutive is None else assume_consecutive,
    )
    start_delegation_tokens(ssc.sparkContext)
    stream = CheckpointedStream(uuid.uuid4().hex, spec, create_rate_controller(conf, interval_ms))
    try:
        stream.start()
        constant, batches = create_constant_stream(ssc)
        binding = stream.context_binding = StreamingContextBinding(ssc, constant, stream)
    except BaseException:
        stream.close()
        raise
    checkpointed_stream.register_stream(stream)
    begin, end = BeginGeneration(stream), EndGeneration(stream.stream_id)
    add_generation_callbacks(ssc, batches, begin, end, binding.show_name)
    return DirectKafkaInputDStream(ssc, batches, stream)


# The functions that Spark calls for each batch. They are objects of classes, not closures, because a pickled closure
# contains bytecode, which another Python version cannot read. ``BeginGeneration`` holds the stream itself, the others
# hold only its id (see checkpointed_stream.py).


class BeginGeneration:
    """Spark calls this before everything else that it generates for a batch; its pickle contains the stream."""

    # It is the first function of the graph, so Spark calls it first and pickles it first (see streaming_context.py).

    def __init__(self, stream: CheckpointedStream) -> None:
        self._stream = stream

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        stream = self._stream
        if stream.context_binding is None:
            stream.context_binding = bind_restored_stream(stream, rdd)
            # A stream is not registered when it is unpickled, because it would replace a stream that is still running.
            checkpointed_stream.register_stream(stream)
        stream.begin_generation(batch_time_ms(time))

    def __getstate__(self) -> dict[str, CheckpointedStream]:
        # Spark holds the graph's lock here and while it generates, so a generation that has not ended has failed.
        self._stream.roll_back_failed_generation()
        return {"_stream": self._stream}


class EndGeneration:
    """Spark calls this after everything else that it generates for a batch, before it submits the jobs."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        find_stream(self._stream_id).end_generation()


class ComputeKafkaRdd:
    """Returns the KafkaRDD of a batch when Spark generates it."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id

    def __call__(self, time: datetime, rdd: RDD[Any]) -> KafkaRDD:
        return _context_binding(self._stream_id).generate_rdd(batch_time_ms(time))


class TransformKafkaRdd:
    """Calls the user's function with the batch's KafkaRDD instead of PySpark's wrapper of the JVM's RDD."""

    # The wrapper has no offset ranges, and its tasks run in a separate worker, which pickles all records into the
    # worker of the user's function.

    def __init__(
        self,
        stream_ids: tuple[str | None, ...],  # one for each RDD argument; None: the RDD is not of a direct stream
        function: Callable[..., Any],
    ) -> None:
        self._stream_ids = stream_ids
        self._function = function
        self._with_time = _takes_time(function, len(stream_ids))

    def __call__(self, time: datetime, *rdds: RDD[Any]) -> Any:
        kafka_rdds = [
            rdd if stream_id is None else _context_binding(stream_id).rdd(batch_time_ms(time))
            for stream_id, rdd in zip(self._stream_ids, rdds, strict=True)
        ]
        return self._function(time, *kafka_rdds) if self._with_time else self._function(*kafka_rdds)


class ForeachKafkaRdd(TransformKafkaRdd):
    """The variant for ``foreachRDD``: it returns nothing, because PySpark treats any result as an RDD."""

    def __call__(self, time: datetime, *rdds: RDD[Any]) -> None:
        super().__call__(time, *rdds)


def batch_time_ms(time: datetime) -> int:
    """Return Spark's batch time in milliseconds, from the local time that PySpark passes."""
    return round(time.timestamp() * 1000)


def _context_binding(stream_id: str) -> ContextBinding:
    context_binding = find_stream(stream_id).context_binding
    assert context_binding is not None, "a stream is bound before it is registered"
    return context_binding


def _takes_time(function: Callable[..., Any], rdd_count: int) -> bool:
    """Return whether the function takes the batch time before the RDDs; raises OptionError for other signatures."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # builtins such as print have no signature
        return False
    kinds = [parameter.kind for parameter in parameters if parameter.default is parameter.empty]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return False  # *args take any number: as for a builtin, only the RDDs are passed
    required = len([kind for kind in kinds if kind is not inspect.Parameter.VAR_KEYWORD])
    if required not in (rdd_count, rdd_count + 1):
        raise OptionError(
            f"the function must take {rdd_count} argument{'s' * (rdd_count > 1)} (an RDD of each stream), optionally "
            f"preceded by the batch time, but {getattr(function, '__name__', function)!r} takes {required}"
        )
    return required == rdd_count + 1


def _read_arrow(columns: ArrowColumns, rdd: KafkaRDD) -> Any:
    return rdd._read_arrow(columns)
