"""Lag, committed offsets, metrics and backpressure measurements of streaming queries, from Spark's progress reports."""

from __future__ import annotations

from pyspark_kafka_direct.monitor.consumer_lag import (
    PartitionLag,
    QueryLag,
    SourceBatch,
    SourceLag,
)
from pyspark_kafka_direct.monitor.enable_monitor import enable
from pyspark_kafka_direct.monitor.query_monitor import BatchObserver, Monitor
from pyspark_kafka_direct.spark.loss_counts import LossTotal, MalformedTotal

__all__ = [
    "BatchObserver",
    "LossTotal",
    "MalformedTotal",
    "Monitor",
    "PartitionLag",
    "QueryLag",
    "SourceBatch",
    "SourceLag",
    "enable",
]
