"""The writers of ``kafka-direct``: tasks write on executors, and the driver commits and reports.

Spark creates a writer for each batch in a process beside the driver and pickles it for the executors. A second such
process commits: a batch query sends it the pickled writer, a stream creates another one.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter

from pyspark_kafka_direct.datasource.exactly_once_committer import ExactlyOnceCommitter
from pyspark_kafka_direct.datasource.offset_log_digest import check_checkpoint
from pyspark_kafka_direct.datasource.staging_folder import prepare_staging
from pyspark_kafka_direct.datasource.write_task import (
    AtLeastOnceWriteTask,
    BatchWriteJob,
    StagingConfig,
    StagingWriteTask,
    TaskCommitMessage,
    WrittenCommitMessage,
)
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.payloads.spark.write_schema import resolve_write_schema
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas
from pyspark_kafka_direct.spark.listener_files import save_write_report
from pyspark_kafka_direct.spark.spark_versions import arrow_stream_writer_class
from pyspark_kafka_direct.spark.worker_lifecycle import begin_process
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, merge_write_reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.datasource.write_task import KafkaWriteTask
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import WriteSettings
    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

    StreamArrowWriter = DataSourceStreamArrowWriter
else:
    StreamArrowWriter = arrow_stream_writer_class()

_log = logging.getLogger("pyspark_kafka_direct.datasource")


class Committer(Protocol):
    """The driver's part of a batch, when its tasks have ended."""

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> Mapping[TopicPartition, PartitionWriteReport] | None:
        """Commit a batch, and return what was written; ``None`` if nothing was."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed batch."""


class AtLeastOnceCommitter:
    """Does nothing but report: the tasks have written their rows."""

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], _: int | None = None
    ) -> Mapping[TopicPartition, PartitionWriteReport] | None:
        written = [message for message in messages if isinstance(message, WrittenCommitMessage)]
        return merge_write_reports(message.partitions for message in written) if written else None

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, WrittenCommitMessage)]
        records = sum(report.records for message in written for report in message.partitions.values())
        if records:
            _log.warning(
                "the write failed; %d records of %d finished tasks remain in Kafka, and maybe records of other tasks",
                records,
                len(written),
            )


class KafkaDataSourceWriter:
    """The common part of batch and stream writers."""

    def __init__(self, task: KafkaWriteTask[TaskCommitMessage], committer: Committer) -> None:
        self._task = task
        self._committer = committer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._task.write(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803 (Spark's name)
    ) -> None:
        partition_reports = self._committer.commit(messages, batchId)
        if partition_reports is not None:  # so there are messages of tasks
            # Any of the tasks identifies the query and the batch.
            task = next(message.task for message in messages if isinstance(message, TaskCommitMessage))
            report_name = task.query_id or task.job_group or ""  # by which the monitor finds the report
            save_write_report(BatchWriteReport(task.query_id, task.batch_id, partition_reports), report_name)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803
    ) -> None:
        self._committer.abort(messages)

    def __setstate__(self, state: dict[str, Any]) -> None:
        begin_process()  # the process that commits a batch query unpickles the writer without the data source
        self.__dict__.update(state)


class KafkaBatchWriter(KafkaDataSourceWriter, DataSourceArrowWriter):
    """Writes a frame."""


class KafkaStreamWriter(KafkaDataSourceWriter, StreamArrowWriter):
    """Writes each micro-batch of a stream."""


def batch_writer(settings: WriteSettings, schema: StructType, checkpoint: str | None) -> DataSourceArrowWriter:
    """Return the writer of a frame; ``checkpoint`` is set if ``foreachBatch`` writes it."""
    from pyspark_kafka_direct.client.connection_pool import POOL

    job = BatchWriteJob(
        id=POOL.system.nonce() if settings.job_id is None else settings.job_id,
        from_option=settings.job_id is not None,
    )
    _warn_of_unwritten_columns(schema, settings)
    options_of_task = _task_options(settings, schema, job, starting=True)
    if settings.delivery_guarantee == "at-least-once":
        return KafkaBatchWriter(AtLeastOnceWriteTask(**options_of_task), AtLeastOnceCommitter())
    if checkpoint is not None:
        check_checkpoint(checkpoint)
    committer = _exactly_once_committer(settings, checkpoint)
    return KafkaBatchWriter(_staging_task(committer, options_of_task), committer)


def stream_writer(
    settings: WriteSettings, schema: StructType, checkpoint: str | None, *, starting: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of a micro-batch; ``starting`` is false in the process that commits or aborts the batch."""
    if starting:
        _warn_of_unwritten_columns(schema, settings)
    options_of_task = _task_options(settings, schema, job=None, starting=starting)
    if settings.delivery_guarantee == "at-least-once":
        return KafkaStreamWriter(AtLeastOnceWriteTask(**options_of_task), AtLeastOnceCommitter())
    committer = _exactly_once_committer(settings, checkpoint)
    if starting:
        check_checkpoint(checkpoint)
        return KafkaStreamWriter(_staging_task(committer, options_of_task), committer)
    # The process that commits runs no tasks, so it needs no ticket.
    return KafkaStreamWriter(StagingWriteTask(**options_of_task, staging=committer.staging, ticket=None), committer)


def _task_options(
    settings: WriteSettings, schema: StructType, job: BatchWriteJob | None, *, starting: bool
) -> dict[str, Any]:
    """Return the common arguments of write tasks; the process that commits needs no schemas of a registry."""
    payloads = settings.payloads
    login = settings.connection.security.token_login
    if starting and login is not None:
        from pyspark_kafka_direct.client.deadline import Deadline
        from pyspark_kafka_direct.client.security.token_login import wait_for_token
        from pyspark_kafka_direct.client.system import SYSTEM

        wait_for_token(login, Deadline.after(settings.connection.connect_timeout_ms / 1000, system=SYSTEM))
    return {
        "connection": settings.connection,
        "produce": settings.produce,
        "schema": resolve_write_schema(schema, settings.topic, payloads.sides_with_types),
        "encoders": resolve_writer_schemas(payloads, schema, settings.topic) if starting else {},
        "topic": settings.topic,
        "stamp": settings.stamp_batch,
        "job": job,
    }


def _warn_of_unwritten_columns(schema: StructType, settings: WriteSettings) -> None:
    # The fields of a WriteSchema are the positions of columns.
    written = dataclasses.astuple(resolve_write_schema(schema, settings.topic, settings.payloads.sides_with_types))
    unwritten = [name for position, name in enumerate(schema.fieldNames()) if position not in written]
    if unwritten:
        warn_once(
            f"the columns {listed(unwritten)} are not written, but Spark serializes them for Python; select only the "
            "columns to write"
        )


def _staging_task(committer: ExactlyOnceCommitter, options_of_task: dict[str, Any]) -> StagingWriteTask:
    """Check that a batch can be written, and return its tasks."""
    committer.prepare()
    staging = prepare_staging(committer.staging, committer.checkpoint)
    ticket = committer.append_ticket()
    has_checkpoint = committer.checkpoint is not None
    return StagingWriteTask(**options_of_task, staging=staging, ticket=ticket, has_checkpoint=has_checkpoint)


def _exactly_once_committer(settings: WriteSettings, checkpoint: str | None) -> ExactlyOnceCommitter:
    prefix = settings.transactional_id_prefix
    assert prefix is not None
    return ExactlyOnceCommitter(
        connection=settings.connection,
        produce=settings.produce,
        staging=StagingConfig(
            query_transactional_id=f"{prefix}.sink",
            threshold=settings.staging_threshold,
            location=settings.staging_location,
        ),
        prefix=prefix,
        topic=settings.topic,
        sink_state_topic=settings.sink_state_topic,
        timeout_ms=settings.transaction_timeout_ms,
        reset_token=settings.reset_transaction_state,
        checkpoint=checkpoint,
    )
