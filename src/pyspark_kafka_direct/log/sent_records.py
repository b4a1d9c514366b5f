"""The records that a log sends: where they were written, and when reads to the end may follow them.

If a record is written below the position that was reached before the send, the topic was truncated or recreated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.accumulator import DeliveryListener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.log.log_worker import LogWorker
    from pyspark_kafka_direct.producer.accumulator import DeliveryReport
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer


class _SendContext(NamedTuple):
    """The state of the log before a record was sent."""

    log_generation: int
    positions: Mapping[TopicPartition, int]


class SentRecords(DeliveryListener):
    """Follows the records of one log; other logs may share the producer."""

    def __init__(self, producer: AsyncProducer, worker: LogWorker, reads_partition: Callable[[int], bool]) -> None:
        self._producer = producer
        self._worker = worker
        self._reads_partition = reads_partition
        self._context = _SendContext(0, {})

    def context(self) -> _SendContext:
        """Return the context of a record that is sent now."""
        # In this order, because the worker changes the positions before the generation.
        log_generation, positions = self._worker.log_generation, self._worker.positions
        context = self._context
        if context.log_generation != log_generation or context.positions is not positions:
            context = self._context = _SendContext(log_generation, positions)
        return context

    def on_acknowledged(self, report: DeliveryReport) -> None:
        """Report to the worker where records were written."""
        first = report.records[0]
        assert first.partition is not None
        if not self._reads_partition(first.partition):
            return
        partition = TopicPartition(first.topic, first.partition)
        previous: _SendContext | None = None
        for offset, record in report.with_offsets():
            context = record.context
            # Of records with the same context, the first one has the lowest offset. If it is not below the position,
            # no other one is.
            if record.listener is self and context is not previous:
                previous = context
                self._worker.on_written(partition, offset, context.positions.get(partition), context.log_generation)

    def on_completed(self) -> None:
        """Wake the worker if a read waited for these records."""
        pending_reads = self._worker.pending_reads
        if pending_reads.has_queued and pending_reads.can_activate(self._producer.completed_count):
            self._worker.wake()
