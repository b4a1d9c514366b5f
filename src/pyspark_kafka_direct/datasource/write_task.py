"""The tasks of a write: at-least-once tasks send their rows, exactly-once tasks stage them for the commit."""

from __future__ import annotations

import functools
import hashlib
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafka_direct.datasource.offset_log_digest import DIGEST_PROPERTY
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt
from pyspark_kafka_direct.spark.worker_lifecycle import begin_task, end_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings
    from pyspark_kafka_direct.payloads.write_schema import WriteSchema
    from pyspark_kafka_direct.planning.commit_decision import Ticket, WriteKind
    from pyspark_kafka_direct.producer.staged_frames import StagedOutput
    from pyspark_kafka_direct.producer.staging_location import StagingLocation
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport


@dataclass(frozen=True, slots=True)
class BatchWriteJob:
    """The identity of a batch write."""

    id: str  # the option jobId, or a random string
    from_option: bool


@dataclass(frozen=True, slots=True)
class WriteTaskContext:
    """The identity of a write task."""

    partition: int = 0  # the id of the Spark partition
    attempt: int = 0
    query_id: str | None = None  # of the streaming query, also within foreachBatch
    batch_id: int | None = None
    job_group: str | None = None  # of a batch query (SparkContext.setJobGroup)
    run_id: str | None = None  # of the streaming query: Spark sets it as the job group, which foreachBatch may change
    offsets_digest: str | None = None  # of the batch's entry in the offset log; foreach_batch_writer sets it

    @classmethod
    def begin(cls) -> WriteTaskContext:
        """Begin the task that the process runs, and return its identity."""
        from pyspark import TaskContext

        begin_task()
        context = TaskContext.get()
        if context is None:
            return cls()
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        job_group = context.getLocalProperty("spark.jobGroup.id")  # in a streaming query, the id of its run
        return cls(
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            query_id=query_id,
            batch_id=None if batch_id is None else int(batch_id),
            job_group=job_group if query_id is None else None,
            run_id=None if query_id is None else job_group,
            offsets_digest=context.getLocalProperty(DIGEST_PROPERTY),
        )

    def first_sticky_partition(self, job: BatchWriteJob | None) -> int:
        """Return the first partition for rows without a key, before the modulo; retries of the task return the same."""
        # The hash of a batch is a random partition, and its tasks take consecutive ones. So small batches fill all.
        batch = f"{self.query_id}/{self.batch_id}" if job is None or self.query_id is not None else job.id
        return int.from_bytes(hashlib.sha256(batch.encode()).digest()[:4]) + self.partition

    def stamp(self) -> dict[str, bytes]:
        """Return the headers of the option ``stampBatch``."""
        from pyspark_kafka_direct.payloads.write_rows import stamp_headers

        return stamp_headers(self.query_id, self.batch_id, self.partition, self.attempt)


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The commit message of a task."""

    task: WriteTaskContext


@dataclass(frozen=True, slots=True)
class WrittenCommitMessage(TaskCommitMessage):
    """The commit message of a task whose records the brokers have acknowledged."""

    partitions: Mapping[TopicPartition, PartitionWriteReport]


_Message_co = TypeVar("_Message_co", bound=TaskCommitMessage, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaWriteTask(ABC, Generic[_Message_co]):
    """The writer of the tasks of a query; it is sent to the executors, so it contains only what they need."""

    connection: ConnectionSettings
    produce: ProducerSettings
    schema: WriteSchema
    topic: str | None  # None: rows name their topics
    stamp: bool  # add the headers of stampBatch
    job: BatchWriteJob | None  # None in a stream
    encoders: Mapping[str, EncoderSettings] = field(default_factory=dict)  # of keys and values that have a schema

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        task: WriteTaskContext | None = None,
        pool: ConnectionPool | None = None,
    ) -> _Message_co:
        """Write all rows of a task; by default the task that the process runs, with the pool of the process."""
        from pyspark_kafka_direct.client.cluster_client import ClusterClient

        task = task or WriteTaskContext.begin()
        message = self._write(batches, task, ClusterClient(self.connection, pool=pool))
        end_task()
        return message

    @abstractmethod
    def _write(
        self, batches: Iterator[pa.RecordBatch], task: WriteTaskContext, cluster: ClusterClient
    ) -> _Message_co: ...

    def encode(
        self,
        batches: Iterator[pa.RecordBatch],
        task: WriteTaskContext,
        cluster: ClusterClient,
        send: Callable[[str, EncodedBatch], None],
    ) -> None:
        """Encode all rows, and pass each record batch with its topic to ``send``."""
        from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
        from pyspark_kafka_direct.payloads.write_rows import split_rows, to_producer_rows
        from pyspark_kafka_direct.producer.row_writer import RowWriter

        encoders = PayloadEncoders(self.encoders, self.topic)
        stamp = task.stamp() if self.stamp else None
        row_writer = RowWriter(
            cluster,
            self.produce,
            send,
            topic=self.topic,
            first_sticky_partition=task.first_sticky_partition(self.job),
        )
        for batch in batches:
            now_ms = int(cluster.pool.system.wall_time() * 1000)
            for rows in split_rows(batch):
                row_writer.write(to_producer_rows(rows, self.schema, now_ms, stamp, encoders))
        row_writer.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeastOnceWriteTask(KafkaWriteTask[WrittenCommitMessage]):
    def _write(
        self, batches: Iterator[pa.RecordBatch], task: WriteTaskContext, cluster: ClusterClient
    ) -> WrittenCommitMessage:
        """Return when the brokers have acknowledged all rows as the option for ``acks`` says."""
        from pyspark_kafka_direct.producer.batch_producer import BatchProducer
        from pyspark_kafka_direct.producer.row_writer import with_half_buffer
        from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

        producer = BatchProducer(cluster, with_half_buffer(self.produce))
        try:
            self.encode(batches, task, cluster, functools.partial(producer.send, more_follows=True))
            written = {tp: PartitionWriteReport(*written_range) for tp, written_range in producer.flush().items()}
        finally:
            producer.close()
        return WrittenCommitMessage(task, written)


@dataclass(frozen=True, slots=True)
class StagingConfig:
    """The place where exactly-once tasks store encoded rows."""

    query_transactional_id: str  # of jobs, too: it is part of the files' names
    threshold: int  # bytes of a task above which it uses the location (stagingThreshold)
    # stagingLocation, whose URI may contain secrets; `prepare_staging` replaces None by the default.
    location: str | None = field(default=None, repr=False)
    is_default: bool = False
    probe: str | None = None  # lets a task check that it sees the same location as the driver

    def open(self, attempt: BatchAttempt | None = None) -> StagingLocation | None:
        """Return the location for the files of a batch; without one, only to check it."""
        if self.location is None:
            return None
        from pyspark_kafka_direct.producer.staging_location import JOB_RUN_PREFIX, StagingLocation

        # The run is part of the files' names. The prefix keeps those of jobs when a query deletes its earlier runs.
        run = "" if attempt is None else f"{JOB_RUN_PREFIX if attempt.kind == 'job' else ''}{attempt.run}"
        return StagingLocation(self.location, self.query_transactional_id, run, self.probe, is_default=self.is_default)


@dataclass(frozen=True, slots=True)
class StagedCommitMessage(TaskCommitMessage):
    """The commit message of a task that has staged its rows."""

    attempt: BatchAttempt
    staged: StagedOutput
    location: str | None = field(default=None, repr=False)  # of a staged file


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingWriteTask(KafkaWriteTask[StagedCommitMessage]):
    staging: StagingConfig
    ticket: Ticket | None  # orders the attempts of a batch; None in the process that commits, which runs no tasks
    has_checkpoint: bool = True  # whether the process that commits can read the offset log

    def _write(
        self, batches: Iterator[pa.RecordBatch], task: WriteTaskContext, cluster: ClusterClient
    ) -> StagedCommitMessage:
        """Encode and stage all rows; nothing is sent to Kafka."""
        from pyspark_kafka_direct.producer.staging import StagingWriter

        assert self.ticket is not None
        batch_attempt = resolve_attempt(task, self.job, self.ticket, has_checkpoint=self.has_checkpoint)
        if task.batch_id is not None or not self.staging.is_default:
            # The folder is used only for rows above the threshold. A streaming query checks it in each batch all the
            # same: otherwise it would fail later, in a large batch that has been planned and cannot become smaller.
            # A batch write with the default folder can be repeated, so it fails only if it uses the folder.
            _check_location(self.staging)
        location = self.staging.open(batch_attempt)
        # Unique, because Spark may run an attempt again, for example if it repeats the stage.
        name = f"{batch_attempt.batch}-{task.partition}-{task.attempt}-{cluster.pool.system.nonce()}"
        staging_writer = StagingWriter(
            self.staging.threshold, None if location is None else lambda: location.open_spill(name)
        )
        try:
            self.encode(batches, task, cluster, staging_writer.add)
            staged = staging_writer.finish()
        except BaseException:
            staging_writer.abort()
            raise
        return StagedCommitMessage(task, batch_attempt, staged, self.staging.location)


@functools.lru_cache(maxsize=64)  # each check is a request to an object store
def _check_location(staging: StagingConfig) -> None:
    """Check once per process that a task sees the same location as the driver."""
    location = staging.open()
    if location is not None:
        location.check()


def resolve_attempt(
    task: WriteTaskContext, job: BatchWriteJob | None, ticket: Ticket, *, has_checkpoint: bool = True
) -> BatchAttempt:
    """Return the batch to which a task belongs, or raise if Spark does not identify it."""
    if task.query_id is None or task.batch_id is None:  # a batch write outside of foreachBatch
        if job is None:
            raise KafkaDirectError(
                "Spark does not set the local properties sql.streaming.queryId and streaming.sql.batchId in tasks, "
                "which deliveryGuarantee=exactly-once needs."
            )
        return BatchAttempt.of_job(job.id, ticket, named=job.from_option)
    if job is not None and job.from_option:
        raise OptionError(
            "jobId cannot be used within foreachBatch, where the query id and the batch id identify a write. Remove it."
        )
    if not _is_uuid(task.run_id):
        raise OptionError(
            f"The job group is {task.run_id!r}, but deliveryGuarantee=exactly-once identifies the run of a query by "
            "the job group that Spark sets: do not call setJobGroup within foreachBatch, or write before the call."
        )
    if task.offsets_digest is None and not has_checkpoint:
        raise OptionError(
            "deliveryGuarantee=exactly-once within foreachBatch compares the offsets of batches in the checkpoint. "
            "Write with foreach_batch_writer, or give the write the checkpointLocation of the query as an option."
        )
    kind: WriteKind = "stream" if job is None else "foreach"
    return BatchAttempt(
        kind, query=task.query_id, run=str(task.run_id), batch=task.batch_id, ticket=ticket, digest=task.offsets_digest
    )


def _is_uuid(text: str | None) -> bool:
    try:
        return text is not None and str(uuid.UUID(text)) == text
    except ValueError:
        return False
