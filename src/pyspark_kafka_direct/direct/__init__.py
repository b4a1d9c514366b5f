"""The direct stream and KafkaRDD: the Kafka connector of Spark Streaming, which PySpark removed in 3.0.

::

    from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

    rdd = KafkaUtils.createRDD(sc, {"bootstrap.servers": "broker1:9092"}, [OffsetRange.create("flights", 0, 0, 100)])
    rdd.map(lambda record: record.value).collect()
"""

# ruff: noqa: E402 (the modules below import PySpark)

from __future__ import annotations

from pyspark_kafka_direct.spark.spark_versions import require_spark

require_spark("The direct stream")

from pyspark_kafka_direct.direct.consumer_strategies import ConsumerStrategies, ConsumerStrategy, DiscoversPartitions
from pyspark_kafka_direct.direct.direct_stream import DirectKafkaInputDStream
from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
from pyspark_kafka_direct.direct.kafka_record import KafkaRecord
from pyspark_kafka_direct.direct.kafka_utils import KafkaUtils
from pyspark_kafka_direct.direct.location_strategies import LocationStrategies, LocationStrategy
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

__all__ = [
    "ConsumerStrategies",
    "ConsumerStrategy",
    "DirectKafkaInputDStream",
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
