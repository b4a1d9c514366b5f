"""What a task does that is run again."""

from __future__ import annotations


def start_over_on_retry() -> None:
    """Drop all connections when a task is retried: it trusts none made before (``KafkaDataConsumer.acquire``)."""
    from pyspark import TaskContext

    from pyspark_kafka_direct.wire.pool import POOL

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        POOL.clear()
