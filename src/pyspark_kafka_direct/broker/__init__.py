"""A real, embedded Apache Kafka for demos and tests."""

from __future__ import annotations

from pyspark_kafka_direct.broker.certificate_authority import Certificates, make_certificates
from pyspark_kafka_direct.broker.embedded_kafka import EmbeddedKafka
from pyspark_kafka_direct.broker.maven import jars
from pyspark_kafka_direct.broker.node_config import Credentials, unsecured_token

__all__ = ["Certificates", "Credentials", "EmbeddedKafka", "jars", "make_certificates", "unsecured_token"]
