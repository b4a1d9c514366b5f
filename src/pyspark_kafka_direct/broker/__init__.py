"""An embedded, real Apache Kafka for demos and tests."""

from __future__ import annotations

from pyspark_kafka_direct.broker._jars import jars
from pyspark_kafka_direct.broker.embedded import EmbeddedKafka

__all__ = ["EmbeddedKafka", "jars"]
