"""Continuous queries: long-running tasks, and epochs. From Kafka to Kafka, or to a sink of yours, within milliseconds.

``continuous_query(spark)`` begins one. docs/continuous.md has the rest.
"""

# ruff: noqa: E402 (what is imported below needs PySpark)

from __future__ import annotations

from pyspark_kafka_direct.runtime.spark_versions import require_spark

require_spark("The continuous runner")

from pyspark_kafka_direct.continuous.builder import ContinuousQueryBuilder, continuous_query
from pyspark_kafka_direct.continuous.query import ContinuousQuery
from pyspark_kafka_direct.continuous.settling import settle
from pyspark_kafka_direct.continuous.sink import Sink, SinkFactory, TaskInfo

__all__ = ["ContinuousQuery", "ContinuousQueryBuilder", "Sink", "SinkFactory", "TaskInfo", "continuous_query", "settle"]
