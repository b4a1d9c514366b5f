"""Writes a continuous query's output to Kafka, at least once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._output_rows import OutputRows
    from pyspark_kafka_direct.continuous._seams import EpochSink, EpochSinkFactory
    from pyspark_kafka_direct.continuous.sink import TaskInfo
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.writing.producer import Producer
    from pyspark_kafka_direct.writing.rows import RowWriter


def kafka_sink(options: SinkOptions) -> EpochSinkFactory:
    """Return what makes the sinks of a query that writes to Kafka at least once.

    Args:
        options: The checked options.
    """
    return _KafkaSinkFactory(options.connection, options.produce, options.topic, options.stamp_batch)


@dataclass(frozen=True, slots=True)
class _KafkaSinkFactory:
    """It travels to the executors, and has no more than they need."""

    connection: ConnectionSettings
    produce: ProduceSettings
    topic: str | None
    stamp: bool

    def __call__(self, task: TaskInfo) -> EpochSink:
        from pyspark_kafka_direct.continuous._output_rows import OutputRows
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.writing.producer import Producer
        from pyspark_kafka_direct.writing.rows import RowWriter, settings_behind

        cluster = Cluster(self.connection)
        producer = Producer(cluster, settings_behind(self.produce))
        send = functools.partial(producer.send, more=True)
        rows = RowWriter(cluster, self.produce, send, topic=self.topic, first_sticky=task.task)
        output = OutputRows(self.topic, stamp=self.stamp, task=task, system=cluster.pool.system)
        return KafkaSink(producer, rows, output)


class KafkaSink:
    """Sends rows at once while brokers keep up; while they don't, rows gather in larger record batches.

    Args:
        producer: Sends record batches.
        rows: Gives them to it.
        output: Makes rows of what the query's function returns.
    """

    def __init__(self, producer: Producer, rows: RowWriter, output: OutputRows) -> None:
        self._producer = producer
        self._rows = rows
        self._output = output
        self._open = False  # whether rows may be in open record batches

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows; record batches that are full are sent, and waited for while ``buffer.memory`` is used up.

        Raises:
            KafkaDirectError: The rows cannot be written.
        """
        for rows in self._output.of(batch):
            self._rows.write(rows)
        self._open = True

    def end_epoch(
        self, epoch: int, positions: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Return when the brokers have acknowledged everything.

        Raises:
            KafkaDirectError: Something could not be written.
        """
        self._hand_on()
        self._producer.flush()
        self._output.begin_epoch(epoch + 1)

    def descriptors(self) -> Collection[int]:
        """Return the connections on which answers are awaited."""
        return self._producer.descriptors()

    def turn(self) -> None:
        """Take the answers that are there, and send what may be sent.

        Raises:
            KafkaDirectError: Something could not be written.
        """
        self._producer.work(0)
        # What waits in the producer goes as it is; what waits here shares a record batch with what comes meanwhile.
        if self._open and not self._producer.has_waiting:
            self._hand_on()
            self._producer.work(0)

    def close(self) -> None:
        """Give the connections back; waits for nothing."""
        self._producer.close()

    def _hand_on(self) -> None:
        self._rows.flush()
        self._open = False
