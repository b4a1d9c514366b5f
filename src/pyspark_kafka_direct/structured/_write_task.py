"""What a task does that writes, and what it tells the driver when it writes at least once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafka_direct.runtime.worker import begin_task, end_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.written import PartitionWritten
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.runtime.write_schema import WriteSchema
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which task this is.

    Attributes:
        partition: Number of the task.
        attempt: How often the task was tried before.
        query_id: Of the streaming query, also within ``foreachBatch``; ``None`` in a batch query.
        batch_id: Of its micro-batch; ``None`` in a batch query.
        job_group: The batch query's job group (``SparkContext.setJobGroup``), if it has one.
        run_id: Of the run of the streaming query. Spark tells it as the job group, so it is another text where
            ``foreachBatch`` has set one.
    """

    partition: int = 0
    attempt: int = 0
    query_id: str | None = None
    batch_id: int | None = None
    job_group: str | None = None
    run_id: str | None = None

    @classmethod
    def here(cls) -> TaskPlace:
        """Return the place of the task that runs here."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls()
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        group = context.getLocalProperty("spark.jobGroup.id")
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            query_id,
            None if batch_id is None else int(batch_id),
            group if query_id is None else None,
            None if query_id is None else group,
        )

    def stamp(self) -> dict[str, bytes]:
        """Return the headers of the option ``stampBatch``."""
        from pyspark_kafka_direct.runtime.write_rows import stamp_of

        return stamp_of(self.query_id, self.batch_id, self.partition, self.attempt)


@dataclass(frozen=True, slots=True)
class TaskWritten(WriterCommitMessage):
    """What a task has written, and the brokers have acknowledged.

    Attributes:
        place: Which task.
        partitions: What it wrote.
    """

    place: TaskPlace
    partitions: Mapping[TopicPartition, PartitionWritten]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """How the tasks of a query write. It travels to the executors, and has no more than they need.

    Attributes:
        connection: How to reach the cluster.
        produce: How to write records.
        schema: Where the columns are.
        topic: The topic of all rows; ``None``: a column names it.
        stamp: Whether records get headers that tell who wrote them.
    """

    connection: ConnectionSettings
    produce: ProduceSettings
    schema: WriteSchema
    topic: str | None
    stamp: bool

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task.

        Args:
            batches: The rows.

        Raises:
            KafkaDirectError: Something could not be written.
        """
        raise NotImplementedError

    def encode(
        self,
        batches: Iterator[pa.RecordBatch],
        place: TaskPlace,
        cluster: Cluster,
        send: Callable[[str, EncodedBatch], None],
    ) -> None:
        """Encode all rows.

        Args:
            batches: The rows.
            place: Which task this is.
            cluster: Knows the topics.
            send: Takes each record batch, with its topic.

        Raises:
            KafkaDirectError: A row can't be written, or ``send`` has failed.
        """
        from pyspark_kafka_direct.runtime.write_rows import pieces, rows_to_write
        from pyspark_kafka_direct.writing.rows import RowWriter

        stamp = place.stamp() if self.stamp else None
        rows = RowWriter(cluster, self.produce, send, topic=self.topic, first_sticky=place.partition)
        for batch in batches:
            now_ms = int(cluster.pool.system.wall_time() * 1000)
            for piece in pieces(batch):
                rows.write(rows_to_write(piece, self.schema, now_ms, stamp))
        rows.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeastOnceTask(WriteTask):
    """A task that sends its rows to the brokers."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write all rows of a task; return when the brokers have acknowledged every one.

        Raises:
            KafkaDirectError: Something could not be written. What was written before stays in Kafka.
        """
        from pyspark_kafka_direct.planning.written import PartitionWritten
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.writing.producer import Producer
        from pyspark_kafka_direct.writing.rows import settings_behind

        begin_task()
        place = TaskPlace.here()
        cluster = Cluster(self.connection)
        producer = Producer(cluster, settings_behind(self.produce))
        try:
            self.encode(batches, place, cluster, functools.partial(producer.send, more=True))
            written = {partition: PartitionWritten(*each) for partition, each in producer.flush().items()}
        finally:
            producer.close()
        end_task()
        return TaskWritten(place, written)
