"""What makes a Python worker of Spark a good place to work in; most of it does nothing in any other process."""

from __future__ import annotations

from pyspark_kafka_direct.runtime._early_end import allow_early_end
from pyspark_kafka_direct.runtime._garbage import spare_collections
from pyspark_kafka_direct.runtime._log_lines import write_log_lines
from pyspark_kafka_direct.runtime._no_delay import send_at_once
from pyspark_kafka_direct.runtime._retries import start_over_on_retry
from pyspark_kafka_direct.runtime.plain_errors import tell_plainly

__all__ = ["begin_process", "begin_task", "end_task", "spare_collections"]


def begin_process() -> None:
    """Prepare a process of Spark's, whatever it does: every object that Spark makes or unpickles there calls this."""
    tell_plainly()
    write_log_lines()


def begin_task() -> None:
    """Prepare the worker for a task; each task calls this in the main thread before it reads or writes."""
    begin_process()
    allow_early_end()
    send_at_once()
    start_over_on_retry()


def end_task() -> None:
    """Clean up after a task; each task that has read its range to the end, or written its rows, calls this."""
    spare_collections()
