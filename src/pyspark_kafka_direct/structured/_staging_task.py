"""What a task does that writes exactly once: it encodes its rows and keeps them where the commit step finds them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafka_direct.errors import KafkaDirectError, OptionError
from pyspark_kafka_direct.planning.delivery import Attempt
from pyspark_kafka_direct.runtime.worker import begin_task, end_task
from pyspark_kafka_direct.structured._write_task import TaskPlace, WriteTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.writing.staging import Location, Staged


@dataclass(frozen=True, slots=True)
class Staging:
    """Where tasks leave what they have encoded.

    Attributes:
        transactional_id: Under which it will be sent.
        threshold: Most bytes of a task for its message (``stagingThreshold``).
        location: Where more than that goes (``stagingLocation``).
        probe: By what tasks recognise the location as the one that the driver sees.
    """

    transactional_id: str
    threshold: int
    location: str | None = None
    probe: str | None = None

    def open(self, cluster: Cluster, run: str) -> Location | None:
        """Return the location, if there is one.

        Args:
            cluster: The cluster.
            run: The run that stages and commits.

        Raises:
            OptionError: There is no such place.
        """
        if self.location is None:
            return None
        from pyspark_kafka_direct.writing.staging_location import open_location

        return open_location(self.location, cluster, transactional_id=self.transactional_id, run=run, probe=self.probe)


@dataclass(frozen=True, slots=True)
class Job:
    """What a batch write is known by.

    Attributes:
        id: The option ``jobId``, or a text that no other write has.
        given: Whether it was the option.
    """

    id: str
    given: bool


@dataclass(frozen=True, slots=True)
class TaskStaged(WriterCommitMessage):
    """What a task has encoded, and where it is.

    Attributes:
        place: Which task.
        attempt: Which batch it is part of.
        staged: Where it is, or itself.
    """

    place: TaskPlace
    attempt: Attempt
    staged: Staged


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTask(WriteTask):
    """A task that leaves its rows to the commit step.

    Attributes:
        staging: Where.
        job: What the batch write is known by; ``None`` in a stream.
    """

    staging: Staging
    job: Job | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskStaged:
        """Encode all rows of a task, and stage them.

        Raises:
            KafkaDirectError: A row can't be written, or there is no room for them. Nothing of it is in Kafka.
        """
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.writing.staging import Stager

        begin_task()
        place = TaskPlace.here()
        attempt = attempt_of(place, self.job)
        cluster = Cluster(self.connection)
        location = self.staging.open(cluster, attempt.run)
        if location is not None:
            location.check()
        name = f"{attempt.batch}-{place.partition}-{place.attempt}-{cluster.pool.system.nonce()}"
        stager = Stager(self.staging.threshold, None if location is None else lambda: location.spill(name))
        try:
            self.encode(batches, place, cluster, stager.add)
            staged = stager.finish()
        except BaseException:
            stager.abandon()
            raise
        end_task()
        return TaskStaged(place, attempt, staged)


def attempt_of(place: TaskPlace, job: Job | None) -> Attempt:
    """Return which batch a task is part of.

    Args:
        place: Which task it is.
        job: What the batch write is known by; ``None`` in a stream.

    Raises:
        OptionError: Within ``foreachBatch``: the write has a job id, or nobody knows which run it is part of.
        KafkaDirectError: Spark does not tell.
    """
    if place.query_id is None or place.batch_id is None:
        if job is None:
            raise KafkaDirectError(
                "Spark does not tell its tasks which streaming query and batch they belong to (the local properties "
                "sql.streaming.queryId and streaming.sql.batchId), which delivery=exactly-once needs."
            )
        return Attempt.of_job(job.id, named=job.given)
    if job is not None and job.given:
        raise OptionError(
            "jobId cannot be used within foreachBatch: there the query and the number of the batch are what a write is "
            "known by. Leave it out."
        )
    if not _is_uuid(place.run_id):
        raise OptionError(
            f"The job group is {place.run_id!r}, and delivery=exactly-once knows the run of a query by the job group "
            "that Spark sets: do not call setJobGroup within foreachBatch, or write before it."
        )
    return Attempt("stream" if job is None else "foreach", place.query_id, str(place.run_id), place.batch_id)


def _is_uuid(text: str | None) -> bool:
    try:
        return text is not None and str(uuid.UUID(text)) == text
    except ValueError:
        return False
