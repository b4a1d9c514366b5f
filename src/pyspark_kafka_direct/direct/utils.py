"""``KafkaUtils``: Spark's factories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct.locations import PREFER_CONSISTENT, LocationStrategy, preferred_hosts
from pyspark_kafka_direct.direct.rdd import KafkaRDD, kafka_rdd
from pyspark_kafka_direct.direct.record import check_decoders
from pyspark_kafka_direct.direct.stream import DirectKafkaDStream, open_stream
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.runtime.plain_errors import plain_errors
from pyspark_kafka_direct.settings.kafka_params import driver_parameters
from pyspark_kafka_direct.settings.spark_conf import assume_consecutive, poll_timeout
from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark import SparkContext
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.direct.rates import PerPartitionConfig
    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.direct.strategies import ConsumerStrategy


class KafkaUtils:
    """Makes RDDs and streams of Kafka records."""

    @staticmethod
    @plain_errors
    def createRDD(  # noqa: N802 (Spark's spelling)
        sc: SparkContext,
        kafkaParams: Mapping[str, object] | Callable[[], Mapping[str, object]],  # noqa: N803
        offsetRanges: Iterable[OffsetRange],  # noqa: N803
        locationStrategy: LocationStrategy = PREFER_CONSISTENT,  # noqa: N803
        *,
        keyDecoder: Decoder | None = None,  # noqa: N803
        valueDecoder: Decoder | None = None,  # noqa: N803
        assumeConsecutiveOffsets: bool | None = None,  # noqa: N803
    ) -> KafkaRDD:
        """Make an RDD of the records of offset ranges: one partition per range, in the given order.

        Spark's ``KafkaUtils.createRDD``. The cluster is asked once, here, for the topics' ids and the leaders; so
        ``PreferBrokers``, which Spark refuses here, works as well.

        Args:
            sc: The context.
            kafkaParams: Client settings by their Java names; ``bootstrap.servers`` is required. Or a function that
                returns them, as for the strategies of ``createDirectStream``; it is called once, here.
            offsetRanges: What to read; several ranges of one topic-partition are allowed.
            locationStrategy: Where the tasks should run.
            keyDecoder: Makes something of a key's bytes, on the executors; without one keys are bytes.
            valueDecoder: The same for values.
            assumeConsecutiveOffsets: Each offset of the ranges is a record, so they can be counted without reading.
                True only of topics that are neither compacted nor written in transactions. By default the Spark
                configuration's ``spark.streaming.kafka.assumeConsecutiveOffsets``, else false.

        Raises:
            OptionError: A parameter is missing, refused, or has a value that can't be used; or another argument is
                not what it should be.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        ranges = _checked_ranges(offsetRanges)
        check_decoders(keyDecoder, valueDecoder)
        preferred_hosts(locationStrategy, {})  # refuses what is none before anything is asked
        parameters = driver_parameters(kafkaParams() if callable(kafkaParams) else kafkaParams, "rdd")
        cluster = Cluster(parameters.settings)
        partitions = {wanted.topic_partition for wanted in ranges}
        topics = cluster.topics(partition.topic for partition in partitions)
        for partition in sorted(partitions):
            cluster.partition(partition)  # says so where there is none
        leaders = cluster.known_leaders(partitions)
        conf = sc.getConf()
        return kafka_rdd(
            sc,
            parameters,
            ranges,
            hosts=preferred_hosts(locationStrategy, leaders),
            topic_ids={name: topic.topic_id for name, topic in topics.items()},
            leaders=leaders,
            key_decoder=keyDecoder,
            value_decoder=valueDecoder,
            assume_consecutive=assume_consecutive(conf)
            if assumeConsecutiveOffsets is None
            else assumeConsecutiveOffsets,
            poll_timeout=poll_timeout(conf),
        )

    @staticmethod
    @plain_errors
    def createDirectStream(  # noqa: N802 (Spark's spelling)
        ssc: StreamingContext,
        locationStrategy: LocationStrategy,  # noqa: N803
        consumerStrategy: ConsumerStrategy,  # noqa: N803
        perPartitionConfig: PerPartitionConfig | None = None,  # noqa: N803
        *,
        keyDecoder: Decoder | None = None,  # noqa: N803
        valueDecoder: Decoder | None = None,  # noqa: N803
        assumeConsecutiveOffsets: bool | None = None,  # noqa: N803
    ) -> DirectKafkaDStream:
        """Make a stream of the records of some topic-partitions: one RDD partition per topic-partition and batch.

        Spark's ``KafkaUtils.createDirectStream``. The cluster is asked here and now where the stream begins, so with
        ``auto.offset.reset=latest`` it has what is written after this call. A context that comes back from its
        checkpoint brings the stream along: do not call this again.

        Args:
            ssc: The context; it has not started yet.
            locationStrategy: Where the tasks should run.
            consumerStrategy: What to read, and from where.
            perPartitionConfig: Limits of the partitions. By default those of the Spark configuration,
                ``spark.streaming.kafka.maxRatePerPartition`` and ``minRatePerPartition``.
            keyDecoder: Makes something of a key's bytes, on the executors; without one keys are bytes.
            valueDecoder: The same for values.
            assumeConsecutiveOffsets: As for ``createRDD``.

        Raises:
            OptionError: A parameter is missing, refused, or has a value that can't be used.
            OffsetPlanError: There is no offset to start at, or a given one is not in the log.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        return open_stream(
            ssc,
            locationStrategy,
            consumerStrategy,
            perPartitionConfig,
            key_decoder=keyDecoder,
            value_decoder=valueDecoder,
            assume_consecutive=assumeConsecutiveOffsets,
        )


def _checked_ranges(given: Iterable[OffsetRange]) -> list[OffsetRange]:
    if isinstance(given, OffsetRange):
        raise OptionError(f"offsetRanges takes a list of OffsetRange objects: [{given!r}]")
    ranges = list(given) if isinstance(given, Iterable) else [given]
    for each in ranges:
        if not isinstance(each, OffsetRange):
            raise OptionError(
                f"offsetRanges takes OffsetRange objects, got {each!r}; make one with OffsetRange.create(...)"
            )
    return ranges
