"""What the driver sees and the planner doesn't: lag and measured batches, from Spark's progress reports."""

from __future__ import annotations

from pyspark_kafka_direct.monitor._enable import enable
from pyspark_kafka_direct.monitor._lag import PartitionLag, QueryLag, SourceBatch, SourceLag
from pyspark_kafka_direct.monitor.monitor import BatchObserver, Monitor

__all__ = ["BatchObserver", "Monitor", "PartitionLag", "QueryLag", "SourceBatch", "SourceLag", "enable"]
