"""One task's work, as every door gives it to Spark, and how an executor reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.runtime.worker import begin_task, end_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import PartitionLeader


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The offset range that one task reads. It travels to the executor, so it holds nothing secret.

    Attributes:
        offsets: The offset range.
        topic_id: The topic's id when the range was planned: another one means that the topic was created anew.
        leader: The partition's leader when the range was planned, so that the task need not ask: for a topic of a
            thousand partitions that takes longer than a small read.
        from_earliest: Whether the range begins at the log start because that was asked for.
    """

    offsets: OffsetRange
    topic_id: UUID | None = None
    leader: PartitionLeader | None = None
    from_earliest: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How the tasks of a query read; what of its options an executor needs, and no more.

    It spares a Python worker that has just started the import of everything that only planning needs: a third of what
    it would import of this package. Each query that ends early (``show``, ``limit``) costs Spark a worker.

    Attributes:
        settings: How to reach the cluster.
        fetch: How to fetch.
        poll_timeout: Seconds without any progress after which a task fails.
        rack_environment_variable: Where an executor finds its rack.
        fail_on_data_loss: Whether a task fails where records are gone, or passes over them with a warning.
        max_batch_bytes: Most bytes that a record batch may decompress to.
    """

    settings: ConnectionSettings
    fetch: FetchSettings
    poll_timeout: float
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    max_batch_bytes: int = 1 << 30

    def prepare(
        self, task: RangeTask, columns: tuple[str, ...], **limits: Any
    ) -> tuple[ConnectionSettings, FetchSettings, RangeRequest]:
        """Begin a task, in its own process.

        Args:
            task: Its work.
            columns: The wanted columns.
            limits: ``max_rows`` and ``max_bytes`` of Arrow batches, where those of ``RangeRequest`` won't do.

        Returns:
            What ``reading`` needs.
        """
        from pyspark_kafka_direct.reading.request import RangeRequest, with_rack

        begin_task()
        request = RangeRequest(
            task.offsets,
            columns,
            task.topic_id,
            task.leader,
            from_earliest=task.from_earliest,
            fail_on_data_loss=self.fail_on_data_loss,
            poll_timeout=self.poll_timeout,
            max_batch_bytes=self.max_batch_bytes,
            **limits,
        )
        return self.settings, with_rack(self.fetch, self.rack_environment_variable), request

    def read(self, task: RangeTask, columns: tuple[str, ...], **limits: Any) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of a task, from its beginning to its end.

        Args:
            task: Its work.
            columns: The wanted columns.
            limits: As of ``prepare``.

        Raises:
            KafkaDirectError: The records can't be read.
        """
        from pyspark_kafka_direct.reading.range_reader import read_range

        yield from read_range(*self.prepare(task, columns, **limits))
        end_task()
