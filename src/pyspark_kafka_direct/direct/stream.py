"""``DirectKafkaDStream``: what ``KafkaUtils.createDirectStream`` gives."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark.streaming.dstream import TransformedDStream
from pyspark.streaming.util import TransformFunction

from pyspark_kafka_direct.direct import _registry
from pyspark_kafka_direct.direct._carried import CarriedStream, check_threads
from pyspark_kafka_direct.direct._carrier import (
    Carrier,
    ForEachKafkaRdd,
    GenerationBegins,
    GenerationEnds,
    OnKafkaRdd,
    milliseconds,
)
from pyspark_kafka_direct.direct._graph import mark_generations
from pyspark_kafka_direct.direct._registry import stream_of
from pyspark_kafka_direct.direct._spark_side import SparkSide, constant_stream
from pyspark_kafka_direct.direct._spec import StreamSpec
from pyspark_kafka_direct.direct.locations import preferred_hosts
from pyspark_kafka_direct.direct.rates import PerPartitionConfig, per_partition_config, rate_controller
from pyspark_kafka_direct.direct.record import check_decoders
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.spark_conf import assume_consecutive as assume_consecutive_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    import pyarrow as pa
    from pyspark import StorageLevel
    from pyspark.streaming import DStream, StreamingContext

    from pyspark_kafka_direct.direct._commits import Callback
    from pyspark_kafka_direct.direct.locations import LocationStrategy
    from pyspark_kafka_direct.direct.rdd import KafkaRDD
    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.direct.strategies import ConsumerStrategy
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

__all__ = ["DirectKafkaDStream", "StreamReference"]


class CommitsOffsets:
    """What a function that runs on the driver for each batch may ask of its stream."""

    _stream_id: str

    def commitAsync(  # noqa: N802 (Spark's spelling)
        self,
        offsetRanges: Iterable[OffsetRange],  # noqa: N803
        callback: Callback | None = None,
    ) -> None:
        """Queue the ends of these ranges, to be committed for the group of ``group.id`` when the next batch is planned.

        Of each partition the highest end is sent. A stop sends what is left, and so does the end of the program;
        what is queued when the driver is killed is not committed.

        Args:
            offsetRanges: Ranges whose results are safe, as ``rdd.offsetRanges()`` gives them.
            callback: Called once, from another thread, with the offsets that were sent and with the error, if any.

        Raises:
            OptionError: There is no ``group.id``, or these are no offset ranges.
        """
        stream_of(self._stream_id).wire.commits.add(offsetRanges, callback)

    def commitSync(self, offsetRanges: Iterable[OffsetRange]) -> None:  # noqa: N802, N803 (Spark's spelling)
        """Commit the ends of these ranges now, and what is queued with them; waits for the broker's answer.

        Raises:
            OptionError: There is no ``group.id``, or these are no offset ranges.
            BrokerError: The commit failed, or took longer than ``default.api.timeout.ms``.
        """
        stream_of(self._stream_id).wire.commits.commit_sync(offsetRanges)

    def offsetRanges(self, time: datetime) -> list[OffsetRange]:  # noqa: N802 (Spark's spelling)
        """Return the ranges of a batch, wherever its KafkaRDD is not at hand.

        It works in any function of ``(time, rdd)`` behind the stream: after ``map``, ``union``, ``window`` and the
        like, whose RDDs know no ranges. A window's time is that of its last batch.

        Args:
            time: The batch's time, as Spark hands it to the function.

        Raises:
            OffsetPlanError: There was no such batch, or it was forgotten.
        """
        return stream_of(self._stream_id).known_ranges(milliseconds(time))

    def currentOffsets(self) -> dict[TopicPartition, int]:  # noqa: N802 (in the style of its neighbours)
        """Return the next offset to read of each partition, after the last batch that was planned."""
        return stream_of(self._stream_id).current_offsets


class StreamReference(CommitsOffsets):
    """What a direct stream is after a restart, within the functions that had it: enough to commit offsets."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id


class DirectKafkaDStream(TransformedDStream[Any], CommitsOffsets):
    """The records of some topic-partitions, batch by batch, read straight from the partitions' leaders.

    ``foreachRDD`` and ``transform`` hand over the batch's :class:`KafkaRDD`, so that ``rdd.offsetRanges()`` works
    there, and that records are fetched and worked on in the same Python worker. All else of a DStream works as well;
    windows, unions and joins pass records between Python and the JVM, so map them to what is needed first.
    """

    def __init__(self, ssc: StreamingContext, ticks: DStream[Any], carried: CarriedStream) -> None:
        super().__init__(ticks, Carrier(carried.stream_id))
        self._ssc = ssc
        self._carried = carried
        self._stream_id = carried.stream_id

    def foreachRDD(self, func: Callable[..., Any]) -> None:  # noqa: N802
        """Call a function on the driver for each batch, with its KafkaRDD, or with its time and its KafkaRDD.

        What it returns is dropped, as in Scala.
        """
        called = ForEachKafkaRdd((self._stream_id,), func)
        function = TransformFunction(self._sc, called, self._jrdd_deserializer)  # type: ignore[no-untyped-call]
        assert self._ssc._jvm is not None
        self._ssc._jvm.PythonDStream.callForeachRDD(self._jdstream, function)

    def transform(self, func: Callable[..., Any]) -> TransformedDStream[Any]:
        """Make a stream of what a function makes of each batch's KafkaRDD, or of its time and its KafkaRDD."""
        return TransformedDStream(self, OnKafkaRdd((self._stream_id,), func))

    def transformWith(  # noqa: N802
        self,
        func: Callable[..., Any],
        other: DStream[Any],
        keepSerializer: bool = False,  # noqa: N803
    ) -> DStream[Any]:
        """Make a stream of what a function makes of the RDDs of two streams; direct ones come as KafkaRDDs."""
        streams = (self._stream_id, other._stream_id if isinstance(other, DirectKafkaDStream) else None)
        replace = OnKafkaRdd(streams, func)

        def call(time: Any, one: Any, two: Any) -> Any:
            return replace(time, one, two)

        return super().transformWith(call, other, keepSerializer)

    def persist(self, storageLevel: StorageLevel) -> DStream[Any]:  # noqa: N803 (Spark's spelling)
        """Keep the records of each batch, so that several functions read them from Kafka once."""
        self._carried.persisted = True
        return super().persist(storageLevel)

    def checkpoint(self, interval: int) -> DStream[Any]:
        """Refuse: the records of this stream are in Kafka, and a restart reads them there again.

        Raises:
            OptionError: Always. Streams made of it can be checkpointed.
        """
        raise OptionError(
            "a direct stream is not checkpointed itself, its records stay in Kafka; ssc.checkpoint(folder) is all that "
            "a restart needs, and streams made of this one can have an interval of their own"
        )

    def arrow(self) -> TransformedDStream[pa.RecordBatch]:
        """Make a stream of Arrow record batches, with no Python object per record; see ``KafkaRDD.arrow``."""
        return self.transform(_arrow)

    def __reduce__(self) -> tuple[type[StreamReference], tuple[str]]:
        # A function that Spark writes into its checkpoint may hold the stream, to commit offsets.
        return (StreamReference, (self._stream_id,))


def open_stream(
    ssc: StreamingContext,
    locations: LocationStrategy,
    strategy: ConsumerStrategy,
    config: PerPartitionConfig | None,
    *,
    key_decoder: Decoder | None,
    value_decoder: Decoder | None,
    assume_consecutive: bool | None,
) -> DirectKafkaDStream:
    """Make a stream and find where it begins; see ``KafkaUtils.createDirectStream``."""
    preferred_hosts(locations, {})  # refuses what is none
    if not hasattr(strategy, "on_start"):
        raise OptionError(
            "the consumer strategy must be ConsumerStrategies.Subscribe(...), SubscribePattern(...) or Assign(...), or "
            f"an object with executor_params and on_start, got {type(strategy).__name__}"
        )
    if config is not None and not isinstance(config, PerPartitionConfig):
        raise OptionError(f"perPartitionConfig must be an object of a subclass of PerPartitionConfig, got {config!r}")
    check_decoders(key_decoder, value_decoder)
    check_threads()
    conf = ssc.sparkContext.getConf()
    interval_ms = ssc._jssc.ssc().graph().batchDuration().milliseconds()
    spec = StreamSpec(
        strategy,
        locations,
        per_partition_config(conf) if config is None else config,
        interval_ms / 1000,
        key_decoder,
        value_decoder,
        assume_consecutive_of(conf) if assume_consecutive is None else assume_consecutive,
    )
    carried = CarriedStream(uuid.uuid4().hex, spec, rate_controller(conf, interval_ms))
    carried.start()
    constant, ticks = constant_stream(ssc)
    carried.spark = SparkSide(ssc, constant, carried)
    _registry.enter(carried)
    mark_generations(ssc, ticks, GenerationBegins(carried), GenerationEnds(carried.stream_id))
    return DirectKafkaDStream(ssc, ticks, carried)


def _arrow(rdd: KafkaRDD) -> Any:
    return rdd.arrow()
