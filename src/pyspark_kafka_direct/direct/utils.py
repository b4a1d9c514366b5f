"""``KafkaUtils``: Spark's factories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct._conf import assume_consecutive, poll_timeout
from pyspark_kafka_direct.direct.locations import PREFER_BROKERS, PREFER_CONSISTENT, LocationStrategy, PreferFixed
from pyspark_kafka_direct.direct.parameters import driver_parameters
from pyspark_kafka_direct.direct.rdd import KafkaRDD, kafka_rdd
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark import SparkContext

    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.cluster import PartitionLeader


class KafkaUtils:
    """Makes RDDs and streams of Kafka records."""

    @staticmethod
    def createRDD(  # noqa: N802 (Spark's spelling)
        sc: SparkContext,
        kafkaParams: Mapping[str, object],  # noqa: N803
        offsetRanges: Iterable[OffsetRange],  # noqa: N803
        locationStrategy: LocationStrategy = PREFER_CONSISTENT,  # noqa: N803
        *,
        keyDecoder: Decoder | None = None,  # noqa: N803
        valueDecoder: Decoder | None = None,  # noqa: N803
        assumeConsecutiveOffsets: bool | None = None,  # noqa: N803
    ) -> KafkaRDD:
        """An RDD of the records of offset ranges: one partition per range, in the given order.

        Spark's ``KafkaUtils.createRDD``. The cluster is asked once, here, for the topics' ids and the leaders; so
        ``PreferBrokers``, which Spark refuses here, works as well.

        Args:
            sc: The context.
            kafkaParams: Client settings by their Java names; ``bootstrap.servers`` is required.
            offsetRanges: What to read; several ranges of one topic-partition are allowed.
            locationStrategy: Where the tasks should run.
            keyDecoder: Makes something of a key's bytes, on the executors; without one keys are bytes.
            valueDecoder: The same for values.
            assumeConsecutiveOffsets: Each offset of the ranges is a record, so they can be counted without reading.
                True only of topics that are neither compacted nor written in transactions. By default the Spark
                configuration's ``spark.streaming.kafka.assumeConsecutiveOffsets``, else false.

        Raises:
            OptionError: A parameter is missing, refused, or has a value that can't be used.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        ranges = [_checked(wanted) for wanted in offsetRanges]
        parameters = driver_parameters(kafkaParams)
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


def preferred_hosts(
    strategy: LocationStrategy, leaders: Mapping[TopicPartition, PartitionLeader]
) -> Mapping[TopicPartition, str] | None:
    """The hosts a strategy prefers; ``None``: any, but always the same.

    Args:
        strategy: One of ``LocationStrategies``.
        leaders: Who leads the partitions, as far as known; one without a leader is spread like the others.

    Raises:
        OptionError: It is none of them.
    """
    if strategy == PREFER_CONSISTENT:
        return None
    if strategy == PREFER_BROKERS:
        return {partition: leader.node.host for partition, leader in leaders.items()}
    if isinstance(strategy, PreferFixed):
        return strategy.hosts
    raise OptionError(
        "the location strategy must be LocationStrategies.PreferConsistent, PreferBrokers or PreferFixed(...), "
        f"got {strategy!r}"
    )


def _checked(wanted: object) -> OffsetRange:
    if isinstance(wanted, OffsetRange):
        return wanted
    raise OptionError(f"offsetRanges takes OffsetRange objects, got {wanted!r}; make one with OffsetRange.create(...)")
