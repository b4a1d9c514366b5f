"""``KafkaUtils``, Spark's factory of KafkaRDDs and direct streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer.query_metadata import existing_partitions
from pyspark_kafka_direct.direct.direct_stream import DirectKafkaInputDStream, create_direct_stream
from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD, create_kafka_rdd
from pyspark_kafka_direct.direct.kafka_record import check_decoders
from pyspark_kafka_direct.direct.location_strategies import PREFER_CONSISTENT, LocationStrategy, preferred_hosts
from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.spark_conf import assume_consecutive, poll_timeout_ms
from pyspark_kafka_direct.planning.offset_reader import (
    MAX_METADATA_RESPONSES,
    contradicting_metadata_error,
    contradiction_pause,
)
from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens
from pyspark_kafka_direct.spark.stack_traces import without_stack_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark import SparkContext
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.client.cluster_client import TopicMetadata
    from pyspark_kafka_direct.direct.consumer_strategies import ConsumerStrategy
    from pyspark_kafka_direct.direct.kafka_record import Decoder
    from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.direct")


class KafkaUtils:
    """Creates RDDs and streams of Kafka records."""

    @staticmethod
    @without_stack_trace
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
        """Create an RDD of the records of offset ranges, with one partition per range, in the given order.

        The equivalent of Spark's ``KafkaUtils.createRDD``. The call requests the topic ids and the partition
        leaders, and queries several brokers about partitions that seem to be missing. So ``PreferBrokers``, which Spark
        rejects here, works as well.

        Args:
            sc: The SparkContext.
            kafkaParams: Client properties by their Java names; ``bootstrap.servers`` is required. Or a function that
                returns them, as for the strategies of ``createDirectStream``; it is called once, in this call.
            offsetRanges: The ranges to read. A topic-partition may have several ranges.
            locationStrategy: The hosts on which tasks should run.
            keyDecoder: Decodes the bytes of keys, on the executors; without a decoder, keys are bytes.
            valueDecoder: Decodes the bytes of values.
            assumeConsecutiveOffsets: Whether each offset of the ranges is a record, so that records can be counted
                without reading. Set it only for topics that are neither compacted nor transactional. The default is
                ``spark.streaming.kafka.assumeConsecutiveOffsets`` of the Spark configuration, or else false.

        Returns:
            The RDD.

        Raises:
            OptionError: A client property is missing, unsupported or invalid, or another argument is not valid.
            TopicNotFoundError: A topic or partition does not exist; ``failOnDataLoss=false`` skips it.
            BrokerError: The brokers did not respond, or responded with an error.
        """
        ranges = _checked_ranges(offsetRanges)
        check_decoders(keyDecoder, valueDecoder)
        preferred_hosts(locationStrategy, {})  # raises if it is not a location strategy, before any request
        params = kafkaParams() if callable(kafkaParams) else kafkaParams
        parameters = parse_kafka_params(params, "rdd", start_delegation_tokens(sc))
        cluster = ClusterClient(parameters.connection)
        partitions = sorted({offset_range.topic_partition for offset_range in ranges})
        topics = _fetch_topics(cluster, partitions, confirm_missing=parameters.fetch.fail_on_data_loss)
        for partition in partitions:
            try:
                cluster.partition(partition)
            except TopicNotFoundError as error:  # several brokers have confirmed it, unless failOnDataLoss=false
                if parameters.fetch.fail_on_data_loss:
                    raise
                _log.warning("%s: %s Its tasks skip it if brokers confirm that.", partition, error.message)
        leaders = cluster.known_leaders(partitions)
        conf = sc.getConf()
        return create_kafka_rdd(
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
            poll_timeout_ms=poll_timeout_ms(conf),
        )

    @staticmethod
    @without_stack_trace
    def createDirectStream(  # noqa: N802 (Spark's spelling)
        ssc: StreamingContext,
        locationStrategy: LocationStrategy,  # noqa: N803
        consumerStrategy: ConsumerStrategy,  # noqa: N803
        perPartitionConfig: PerPartitionConfig | None = None,  # noqa: N803
        *,
        keyDecoder: Decoder | None = None,  # noqa: N803
        valueDecoder: Decoder | None = None,  # noqa: N803
        assumeConsecutiveOffsets: bool | None = None,  # noqa: N803
    ) -> DirectKafkaInputDStream:
        """Create a stream of the records of some topic-partitions, one RDD partition per topic-partition and batch.

        The equivalent of Spark's ``KafkaUtils.createDirectStream``. The call finds the starting offsets, so with
        ``auto.offset.reset=latest`` the stream reads the records that are written after the call. A context that is
        restored from its checkpoint contains the stream: do not call this method again.

        Args:
            ssc: The StreamingContext, before it is started.
            locationStrategy: The hosts on which tasks should run.
            consumerStrategy: The partitions to read, and where to start.
            perPartitionConfig: The rate limits of partitions. The default is
                ``spark.streaming.kafka.maxRatePerPartition`` and ``minRatePerPartition`` of the Spark configuration.
            keyDecoder: Decodes the bytes of keys, on the executors; without a decoder, keys are bytes.
            valueDecoder: Decodes the bytes of values.
            assumeConsecutiveOffsets: Whether each offset of the stream is a record, as for ``createRDD``.

        Returns:
            The stream.

        Raises:
            OptionError: A client property is missing, unsupported or invalid, or another argument is not valid.
            InvalidOffsetsError: There is no starting offset, or a requested offset is not in the log.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The brokers did not respond, or responded with an error.
        """
        return create_direct_stream(
            ssc,
            locationStrategy,
            consumerStrategy,
            perPartitionConfig,
            key_decoder=keyDecoder,
            value_decoder=valueDecoder,
            assume_consecutive=assumeConsecutiveOffsets,
        )


def _fetch_topics(
    cluster: ClusterClient, partitions: Collection[TopicPartition], *, confirm_missing: bool
) -> dict[str, TopicMetadata]:
    """Return metadata of existing topics; with ``confirm_missing``, several brokers confirm which are missing."""
    for _ in range(MAX_METADATA_RESPONSES):
        topics = cluster.topics({tp.topic for tp in partitions})
        missing = set(partitions).difference(existing_partitions(topics, partitions))
        if not missing or not confirm_missing:
            return topics
        if missing <= cluster.confirm_missing(dict.fromkeys(missing)):  # without topic ids, which are not known yet
            return topics
        cluster.pool.system.sleep(contradiction_pause())  # `confirm_missing` has chosen another broker
    raise contradicting_metadata_error(partitions)


def _checked_ranges(offset_ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges as a list; raises OptionError if an element is not an offset range."""
    if isinstance(offset_ranges, OffsetRange):
        raise OptionError(f"offsetRanges takes a list of OffsetRange objects: [{offset_ranges!r}]")
    ranges = list(offset_ranges) if isinstance(offset_ranges, Iterable) else [offset_ranges]  # rejected below
    for offset_range in ranges:
        if not isinstance(offset_range, OffsetRange):
            raise OptionError(
                f"offsetRanges takes OffsetRange objects, got {offset_range!r}. Create one with OffsetRange.create(...)"
            )
    return ranges
