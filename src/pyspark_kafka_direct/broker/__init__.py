"""An embedded, real Apache Kafka for demos and tests."""

from __future__ import annotations

from pyspark_kafka_direct.broker._certificates import Certificates, make_certificates
from pyspark_kafka_direct.broker._jars import jars
from pyspark_kafka_direct.broker._security import Credentials, unsecured_token
from pyspark_kafka_direct.broker.embedded import EmbeddedKafka

__all__ = ["Certificates", "Credentials", "EmbeddedKafka", "jars", "make_certificates", "unsecured_token"]
