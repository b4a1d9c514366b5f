"""The writers: tasks write on executors, and the driver is told what was written.

Spark makes a writer in a process beside the driver, for each batch anew, and packs it for the executors. A second such
process commits: a batch query's has the packed writer, a stream's makes one of its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.written import BatchWritten, together
from pyspark_kafka_direct.runtime.written_files import leave
from pyspark_kafka_direct.structured._write_schema import write_schema
from pyspark_kafka_direct.structured._write_task import AtLeastOnceTask, TaskWritten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.settings.sink import SinkOptions

_log = logging.getLogger("pyspark_kafka_direct.structured")


class KafkaWriter:
    """What is the same in the writers of batches and streams.

    Args:
        task: How tasks write.
    """

    def __init__(self, task: AtLeastOnceTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of a task, on an executor.

        Raises:
            KafkaDirectError: The rows can't be written.
        """
        return self._task.write(iterator)


class KafkaBatchWriter(KafkaWriter, DataSourceArrowWriter):
    """Writes a frame, at least once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take note that all tasks have written."""
        _tell_what_was_written(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what stays in Kafka when the write has failed."""
        _tell_what_stays(messages)


class KafkaStreamWriter(KafkaWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each at least once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Take note that all tasks have written."""
        _tell_what_was_written(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what stays in Kafka when a micro-batch has failed; Spark runs it again when the query starts again."""
        _tell_what_stays(messages)


def task_of(options: SinkOptions, schema: StructType) -> AtLeastOnceTask:
    """Return how tasks write.

    Args:
        options: The checked options.
        schema: The frame's.

    Raises:
        ColumnError: The columns do not fit.
        OptionError: The delivery is not there yet.
    """
    if options.delivery != "at-least-once":
        raise OptionError(f"delivery={options.delivery} is not there yet; leave the option out")
    columns = write_schema(schema, options.topic)
    return AtLeastOnceTask(options.connection, options.produce, columns, options.topic, options.stamp_batch)


def _tell_what_was_written(messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, TaskWritten)]
    if done:
        place = done[0].place
        written = BatchWritten(place.query_id, place.batch_id, together(message.partitions for message in done))
        leave(written, place.query_id or place.job_group or "")


def _tell_what_stays(messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, TaskWritten)]
    records = sum(each.records for message in done for each in message.partitions.values())
    if records:
        _log.warning(
            "the write has failed; %d records of the %d tasks that were done stay in Kafka, and maybe some of others",
            records,
            len(done),
        )
