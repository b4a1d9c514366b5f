"""What makes a Python worker of Spark a good place to read in; all of it does nothing in any other process."""

from __future__ import annotations

from pyspark_kafka_direct.runtime._early_end import allow_early_end
from pyspark_kafka_direct.runtime._garbage import spare_collections
from pyspark_kafka_direct.runtime._no_delay import send_at_once

__all__ = ["begin_task", "end_task"]


def begin_task() -> None:
    """Prepare the worker for a task; each task calls this in the main thread before it reads."""
    allow_early_end()
    send_at_once()


def end_task() -> None:
    """Clean up after a task; each task that has read its range to the end calls this."""
    spare_collections()
