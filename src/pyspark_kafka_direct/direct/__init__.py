"""The direct stream and KafkaRDD: Spark Streaming's Kafka connector, which PySpark lost in 3.0.

::

    from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

    rdd = KafkaUtils.createRDD(sc, {"bootstrap.servers": "broker1:9092"}, [OffsetRange.create("flights", 0, 0, 100)])
    rdd.map(lambda record: record.value).collect()
"""

# ruff: noqa: E402 (what is imported below needs PySpark)

from __future__ import annotations

from pyspark_kafka_direct.runtime.spark_versions import require_spark

require_spark("The direct stream")

from pyspark_kafka_direct.direct.locations import LocationStrategies, LocationStrategy
from pyspark_kafka_direct.direct.rates import PerPartitionConfig
from pyspark_kafka_direct.direct.rdd import KafkaRDD
from pyspark_kafka_direct.direct.record import KafkaRecord
from pyspark_kafka_direct.direct.strategies import ConsumerStrategies, ConsumerStrategy, DiscoversPartitions
from pyspark_kafka_direct.direct.stream import DirectKafkaDStream
from pyspark_kafka_direct.direct.utils import KafkaUtils
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

__all__ = [
    "ConsumerStrategies",
    "ConsumerStrategy",
    "DirectKafkaDStream",
    "DiscoversPartitions",
    "KafkaRDD",
    "KafkaRecord",
    "KafkaUtils",
    "LocationStrategies",
    "LocationStrategy",
    "OffsetRange",
    "PerPartitionConfig",
    "TopicPartition",
]
