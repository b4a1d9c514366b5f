"""Apache Kafka for PySpark with no connector jar: ``spark.read.format("kafka-direct")``."""

from __future__ import annotations

__version__ = "0.1.0"
