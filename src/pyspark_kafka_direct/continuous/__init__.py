"""Continuous queries: long-running Spark tasks that pass records to Kafka, or to your own sink, within milliseconds.

Call ``continuous_query(spark)`` to define one. See docs/continuous.md.
"""

# ruff: noqa: E402 (the imports below need PySpark)

from __future__ import annotations

from pyspark_kafka_direct.spark.spark_versions import require_spark

require_spark("A continuous query")

from pyspark_kafka_direct.continuous.checkpoint_recovery import recover_checkpoint
from pyspark_kafka_direct.continuous.continuous_sink import Sink, SinkFactory, TaskInfo
from pyspark_kafka_direct.continuous.query import ContinuousQuery, active
from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder, continuous_query

__all__ = [
    "ContinuousQuery",
    "ContinuousQueryBuilder",
    "Sink",
    "SinkFactory",
    "TaskInfo",
    "active",
    "continuous_query",
    "recover_checkpoint",
]
