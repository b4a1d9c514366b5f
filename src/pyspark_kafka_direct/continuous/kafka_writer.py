"""Writes the output of a continuous query to Kafka. Flink: ``KafkaWriter``, ``ExactlyOnceKafkaWriter``.

With exactly-once delivery, each task writes one transaction for each epoch.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.continuous.continuous_sink import SinkWriter
from pyspark_kafka_direct.continuous.group_offsets import EpochMetadata, offsets_group_id, transactional_id
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, KafkaDirectError, ProducerFencedError
from pyspark_kafka_direct.payloads.payload_encoders import NO_ENCODERS, PayloadEncoders
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas
from pyspark_kafka_direct.payloads.write_rows import split_rows, stamp_headers, to_producer_rows
from pyspark_kafka_direct.payloads.write_schema import resolve_write_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo
    from pyspark_kafka_direct.continuous.control_messages import StartTask
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings, WriteSettings
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings
    from pyspark_kafka_direct.payloads.write_schema import WriteSchema
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer
    from pyspark_kafka_direct.producer.row_writer import RowWriter
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
    from pyspark_kafka_direct.records import EncodedBatch

_OFFSET_REFRESH_SECONDS: Final = 24 * 3600.0

# Abort explicitly, so that read_committed consumers need not wait for the transaction timeout.
_ABORT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class KafkaWriterFactory:
    """Makes the writers of a query in its tasks. Pickled to the executors, so it has only the required settings."""

    connection: ConnectionSettings
    produce: ProducerSettings
    topic: str | None  # None: the rows have a column `topic`
    stamp: bool  # whether records have headers with query, epoch and task (stampBatch)
    transactional_id_prefix: str | None  # None: at-least-once
    transaction_timeout_ms: int
    encoders: Mapping[str, EncoderSettings]  # of keys and values that have a schema

    @classmethod
    def of(cls, settings: WriteSettings) -> KafkaWriterFactory:
        is_exactly_once = settings.delivery_guarantee == "exactly-once"
        return cls(
            connection=settings.connection,
            produce=settings.produce,
            topic=settings.topic,
            stamp=settings.stamp_batch,
            transactional_id_prefix=settings.transactional_id_prefix if is_exactly_once else None,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            # Without columns: their types are known only when the query's function has returned its first batch.
            encoders=resolve_writer_schemas(settings.payloads, None, settings.topic),
        )

    def __call__(self, task: TaskInfo, start: StartTask, pool: ConnectionPool | None = None) -> SinkWriter:
        from pyspark_kafka_direct.client.cluster_client import ClusterClient
        from pyspark_kafka_direct.producer.batch_producer import BatchProducer
        from pyspark_kafka_direct.producer.row_writer import RowWriter, with_half_buffer

        cluster = ClusterClient(self.connection, pool=pool)
        producer_settings = with_half_buffer(self.produce)
        create_rows = functools.partial(
            RowWriter, cluster, self.produce, topic=self.topic, first_sticky_partition=task.task
        )
        encoders = PayloadEncoders(self.encoders, self.topic)
        output = OutputConverter(
            self.topic,
            stamps_rows=self.stamp,
            task=task,
            epoch=start.epoch,
            system=cluster.pool.system,
            encoders=encoders,
        )
        if self.transactional_id_prefix is None:
            producer = BatchProducer(cluster, producer_settings)
            return KafkaWriter(producer, create_rows(_deferred(producer)), output)
        from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

        assert start.producer is not None, "the driver assigns the producer id"
        task_transactional_id = transactional_id(self.transactional_id_prefix, task.task)
        transactional = TransactionalProducer(
            cluster, task_transactional_id, self.transaction_timeout_ms, producer_settings
        )
        transactional.resume_transaction(start.producer, in_progress=False)
        return ExactlyOnceKafkaWriter(
            transactional,
            ConsumerGroup(cluster, offsets_group_id(self.transactional_id_prefix)),
            rows=create_rows(_deferred(transactional)),
            output=output,
            cluster=cluster,
            query_id=task.query_id,
            topic_ids=start.topic_ids,
        )


def _deferred(producer: BatchProducer | TransactionalProducer) -> Callable[[str, EncodedBatch], None]:
    """Return a function that sends batches; until the next poll or flush, small ones wait to share a request."""
    return functools.partial(producer.send, more_follows=True)


class KafkaWriter(SinkWriter):
    """Sends rows at once. If brokers are slower than the query, rows accumulate in larger record batches."""

    _producer: BatchProducer | TransactionalProducer

    def __init__(
        self, producer: BatchProducer | TransactionalProducer, rows: RowWriter, output: OutputConverter
    ) -> None:
        self._producer = producer
        self._rows = rows
        self._output = output
        self._has_open_batches = False  # `_rows` may have record batches that are not full

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows and send full record batches; blocks while ``buffer.memory`` is exhausted."""
        for rows in self._output.convert(batch):
            self._rows.write(rows)
        self._has_open_batches = True

    def end_epoch(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        recreated_topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        """Return when the brokers have acknowledged all records."""
        self._send_open_batches()
        self._producer.flush()
        self._output.begin_epoch(epoch + 1)

    def descriptors(self) -> Collection[int]:
        """Return the broker connections that wait for responses."""
        return self._producer.descriptors()

    def run_once(self) -> None:
        """Handle received responses, and send what can be sent."""
        self._producer.poll(0)
        # While the producer has queued batches, rows stay in open record batches, which new rows may join.
        if self._has_open_batches and not self._producer.has_queued_batches:
            self._send_open_batches()
            self._producer.poll(0)

    def close(self) -> None:
        """Close the connections without flushing."""
        self._producer.close()

    def _send_open_batches(self) -> None:
        self._rows.flush()
        self._has_open_batches = False


class ExactlyOnceKafkaWriter(KafkaWriter):
    """Writes one transaction per epoch. It contains the rows and the next offsets to read (TxnOffsetCommit).

    The first epoch of a run commits the offsets of all partitions of the task. Later epochs commit the offsets that
    moved, even if the query's function dropped all rows, because the rows would otherwise be read again. An epoch
    without progress sends no request, except once a day: brokers delete offsets that were not committed for a week
    (``offsets.retention.minutes``), and unused transactional ids (``transactional.id.expiration.ms``).

    The task never requests a producer id, because a late task would fence its successor; the driver assigns it.
    """

    _producer: TransactionalProducer

    def __init__(
        self,
        producer: TransactionalProducer,
        group: ConsumerGroup,
        *,
        rows: RowWriter,
        output: OutputConverter,
        cluster: ClusterClient,
        query_id: str,
        topic_ids: Mapping[TopicPartition, UUID],  # at the start of the run
    ) -> None:
        super().__init__(producer, rows, output)
        self._group = group
        self._cluster = cluster
        self._system = cluster.pool.system
        self._query_id = query_id
        # By partition: the recreation of a topic may be detected at different times in its partitions.
        self._topic_ids: dict[TopicPartition, UUID | None] = dict(topic_ids)
        self._committed: dict[TopicPartition, int] = {}  # offsets, by this writer
        self._next_full_commit_at = 0.0  # by the monotonic clock

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows and send full record batches; blocks while ``buffer.memory`` is exhausted."""
        with self._explain_fencing():
            super().write(batch)

    def end_epoch(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        recreated_topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        """Commit the rows of an epoch together with the next offsets to read."""
        self._topic_ids.update(recreated_topic_ids or {})
        now = self._system.monotonic()
        offsets_to_commit = {tp: offset for tp, offset in positions.items() if self._committed.get(tp) != offset}
        if not self._committed or now >= self._next_full_commit_at:
            offsets_to_commit = dict(positions)
            self._next_full_commit_at = now + _OFFSET_REFRESH_SECONDS
        if offsets_to_commit or self._has_open_batches or self._producer.in_transaction:
            with self._explain_fencing():
                self._send_open_batches()
                self._producer.flush()
                if offsets_to_commit:
                    self._producer.send_offsets_to_transaction(
                        self._group, self._with_epoch_metadata(epoch, offsets_to_commit, recreated_topic_ids or ())
                    )
                self._producer.commit()
            self._committed.update(offsets_to_commit)
        self._output.begin_epoch(epoch + 1)

    def run_once(self) -> None:
        """Handle received responses, and send what can be sent: it need not be sent at the end of the epoch."""
        with self._explain_fencing():
            super().run_once()

    def close(self) -> None:
        """Abort the open transaction, so that no consumer waits for it, and close the connections."""
        with suppress(KafkaDirectError):
            self._producer.abort(self._cluster.deadline(_ABORT_SECONDS))
        super().close()

    def _with_epoch_metadata(
        self, epoch: int, offsets_to_commit: Mapping[TopicPartition, int], recreated: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        if moved_back := [
            tp
            for tp, offset in offsets_to_commit.items()
            if offset < self._committed.get(tp, 0) and tp not in recreated
        ]:
            # The log was truncated, or the topic recreated without a report of its id, and the query continues
            # (failOnDataLoss=false). A recovery ignores offsets that have the id of a deleted topic.
            topics = self._cluster.topics({tp.topic for tp in moved_back})
            self._topic_ids.update({tp: topics[tp.topic].topic_id for tp in moved_back if tp.topic in topics})
        return {
            tp: CommittedOffset(offset, EpochMetadata(self._query_id, epoch, self._topic_ids.get(tp)).to_json())
            for tp, offset in offsets_to_commit.items()
        }

    @contextmanager
    def _explain_fencing(self) -> Iterator[None]:
        """Raise a fencing error as what it probably is, if no other producer is the reason."""
        try:
            yield
        except ProducerFencedError as error:
            if error.may_be_expired:  # the brokers have deleted the unused transactional id
                raise BrokerError(
                    f"The transaction of the epoch was not committed: {error.message}", broker=error.broker
                ) from error
            producer = self._producer
            if not producer.may_have_timed_out:  # another producer has acquired the id
                raise
            raise BrokerTimeoutError(
                f"The transaction of {producer.transactional_id!r} was open for {producer.open_seconds:.1f} s, so it "
                f"was aborted after its timeout of {producer.timeout_ms / 1000:g} s. Raise "
                f"kafka.transaction.timeout.ms, or lower epochInterval or epochTimeout. {error.message}",
                broker=error.broker,
            ) from error


class OutputConverter:
    """Converts the output of a query's function to rows for the producer, by the rules of the sink."""

    def __init__(
        self,
        topic: str | None,
        *,
        stamps_rows: bool,
        task: TaskInfo,
        epoch: int,
        system: System,
        encoders: PayloadEncoders = NO_ENCODERS,
    ) -> None:
        self._topic = topic
        self._encoders = encoders
        self._system = system
        self._task = task
        self._stamps_rows = stamps_rows
        self._stamp: dict[str, bytes] | None = None
        self._schema: pa.Schema | None = None
        self._columns: WriteSchema | None = None
        self.begin_epoch(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Stamp the following rows with this epoch."""
        if self._stamps_rows:
            self._stamp = stamp_headers(self._task.query_id, epoch, self._task.task, attempt=0)

    def convert(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write in chunks of a few MiB. The schema may change from batch to batch."""
        schema = batch.schema
        if self._columns is None or not schema.equals(self._schema):
            self._columns = resolve_write_schema(schema, self._topic, self._encoders.columns)
            self._schema = schema
        default_timestamp_ms = int(self._system.wall_time() * 1000)
        for chunk in split_rows(batch):
            yield to_producer_rows(chunk, self._columns, default_timestamp_ms, self._stamp, self._encoders)
