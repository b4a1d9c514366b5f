"""The writers: tasks write on executors, and the driver is told what was written.

Spark makes a writer in a process beside the driver, for each batch anew, and packs it for the executors. A second such
process commits: a batch query's has the packed writer, a stream's makes one of its own.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter

from pyspark_kafka_direct.planning.written import BatchWritten, together
from pyspark_kafka_direct.runtime.spark_versions import arrow_stream_writer
from pyspark_kafka_direct.runtime.worker import begin_process
from pyspark_kafka_direct.runtime.write_schema import write_schema
from pyspark_kafka_direct.runtime.written_files import leave
from pyspark_kafka_direct.structured._commit_step import CommitStep
from pyspark_kafka_direct.structured._staging_task import Job, Staging, StagingTask
from pyspark_kafka_direct.structured._write_task import AtLeastOnceTask, TaskWritten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.structured._write_task import WriteTask

    StreamArrowWriter = DataSourceStreamArrowWriter
else:
    StreamArrowWriter = arrow_stream_writer()

_log = logging.getLogger("pyspark_kafka_direct.structured")


class KafkaWriter:
    """What is the same in the writers of batches and streams.

    Args:
        task: How tasks write.
    """

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, on an executor.

        Raises:
            KafkaDirectError: The rows can't be written.
        """
        return self._task.write(iterator)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the state of another process's object; a batch's writer is sent without a source to the commit."""
        begin_process()
        self.__dict__.update(state)


class KafkaBatchWriter(KafkaWriter, DataSourceArrowWriter):
    """Writes a frame, at least once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take note that all tasks have written."""
        _tell_what_was_written(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what stays in Kafka when the write has failed."""
        _tell_what_stays(messages)


class KafkaStreamWriter(KafkaWriter, StreamArrowWriter):
    """Writes the micro-batches of a stream, each at least once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Take note that all tasks have written."""
        _tell_what_was_written(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what stays in Kafka when a micro-batch has failed; Spark runs it again when the query starts again."""
        _tell_what_stays(messages)


class ExactlyOnceBatchWriter(KafkaWriter, DataSourceArrowWriter):
    """Writes a frame, exactly once.

    Args:
        task: How tasks stage.
        step: What the driver side does.
    """

    def __init__(self, task: StagingTask, step: CommitStep) -> None:
        super().__init__(task)
        self._step = step

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Deliver what the tasks have staged.

        Raises:
            KafkaDirectError: It was not delivered.
        """
        _tell_what_was_written([self._step.commit(messages)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged."""
        self._step.abort(messages)


class ExactlyOnceStreamWriter(KafkaWriter, StreamArrowWriter):
    """Writes the micro-batches of a stream, each exactly once.

    Args:
        task: How tasks stage.
        step: What the driver side does.
    """

    def __init__(self, task: StagingTask, step: CommitStep) -> None:
        super().__init__(task)
        self._step = step

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Deliver what the tasks have staged.

        Raises:
            KafkaDirectError: It was not delivered.
        """
        _tell_what_was_written([self._step.commit(messages, batchId)])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what the tasks have staged."""
        self._step.abort(messages)


def batch_writer(options: SinkOptions, schema: StructType, checkpoint: str | None) -> DataSourceArrowWriter:
    """Return the writer of a frame.

    Args:
        options: The checked options.
        schema: The frame's.
        checkpoint: The ``checkpointLocation`` of the query whose ``foreachBatch`` writes the frame, if it was given.

    Raises:
        ColumnError: The columns do not fit.
        KafkaDirectError: Exactly-once delivery is not possible.
    """
    from pyspark_kafka_direct.wire.pool import POOL

    how = _how(options, schema)
    if options.delivery == "at-least-once":
        return KafkaBatchWriter(AtLeastOnceTask(**how))
    job = Job(POOL.system.nonce() if options.job_id is None else options.job_id, options.job_id is not None)
    step = _commit_step(options, checkpoint)
    staging = dataclasses.replace(step.staging, probe=step.prepare())
    return ExactlyOnceBatchWriter(StagingTask(**how, staging=staging, job=job), step)


def stream_writer(
    options: SinkOptions, schema: StructType, checkpoint: str | None, *, begins: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of a micro-batch.

    Args:
        options: The checked options.
        schema: The frame's.
        checkpoint: The query's ``checkpointLocation``, if it was given as an option.
        begins: Whether the micro-batch is about to run, and not to be committed or aborted.

    Raises:
        ColumnError: The columns do not fit.
        KafkaDirectError: Exactly-once delivery is not possible.
    """
    how = _how(options, schema)
    if options.delivery == "at-least-once":
        return KafkaStreamWriter(AtLeastOnceTask(**how))
    step = _commit_step(options, checkpoint)
    staging = dataclasses.replace(step.staging, probe=step.prepare() if begins else None)
    return ExactlyOnceStreamWriter(StagingTask(**how, staging=staging, job=None), step)


def _how(options: SinkOptions, schema: StructType) -> dict[str, Any]:
    """Return what all tasks need that write."""
    return {
        "connection": options.connection,
        "produce": options.produce,
        "schema": write_schema(schema, options.topic),
        "topic": options.topic,
        "stamp": options.stamp_batch,
    }


def _commit_step(options: SinkOptions, checkpoint: str | None) -> CommitStep:
    prefix = options.transactional_id_prefix
    assert prefix is not None
    return CommitStep(
        connection=options.connection,
        produce=options.produce,
        staging=Staging(f"{prefix}.sink", options.staging_threshold, options.staging_location),
        prefix=prefix,
        topic=options.topic,
        marker_topic=options.marker_topic,
        timeout_ms=options.transaction_timeout_ms,
        reset_token=options.reset_delivery,
        checkpoint=checkpoint,
    )


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
