"""The unacknowledged record batches of one partition: which may be sent next, and in which order. No I/O.

These rules keep the order and prevent duplicates:

- One batch is in flight until a first one is acknowledged; then several, with consecutive sequence numbers. (A broker
  without state for a producer id accepts any sequence number, so of two batches it could reject the first and accept
  the second.) Without sequence numbers only one batch is ever in flight.
- After an error nothing is sent until every in-flight batch has its response. Then the same bytes are sent again,
  oldest first, one batch at a time until one is acknowledged.
- The oldest unacknowledged batch and all batches sent after it, acknowledged or not, number at most ``max_in_flight``:
  a broker detects a duplicate only among the last batches that it appended.
- The epoch of the producer id is incremented only while nothing is in flight. Sequence numbers then restart at 0, and
  the leader rejects requests of the old epoch that arrive later.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_kafka_direct.producer.produce_channel import NO_TIMESTAMP

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.client.producer_state import PartitionSequence
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import WritableBytes

_LATEST_TIMESTAMP: Final = slice(35, 43)  # the field maxTimestamp of a record batch
_NO_SEQUENCE = -1
_SEQUENCE_MODULUS = 1 << 31


class DeliveryCallback(Protocol):
    """Receives the outcome of each record of a batch exactly once, in parts if the batch was split."""

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        """Report written records; ``append_time`` is -1 unless the topic uses log append time."""

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        """Report records that will not be sent again."""


class ProducerBatch:
    """A record batch that is not acknowledged yet, or one part of it after a split."""

    __slots__ = (
        "callback",
        "data",
        "delivery_started_at",
        "first_index",
        "has_producer_state",
        "outcome_unknown",
        "queue_position",
        "record_count",
        "sequence",
    )

    def __init__(
        self,
        queue_position: tuple[int, ...],  # halves of a batch append 0 and 1 to its position
        record_count: int,
        data: WritableBytes,
        *,
        first_index: int,  # of its first record in the batch that was passed to the producer
        callback: DeliveryCallback | None,
        created_at: float | None,  # when the delivery timeout started; None: when it is first sent
    ) -> None:
        self.queue_position = queue_position
        self.record_count = record_count
        self.data = data
        self.first_index = first_index
        self.callback = callback
        self.sequence = _NO_SEQUENCE
        self.has_producer_state = False  # whether `data` contains the producer id and the sequence number
        self.delivery_started_at = created_at
        self.outcome_unknown = False  # whether it was sent, and no response excludes that it was written

    def append_time(self, reported: int) -> int:
        """Return the log append time that a broker reports, or -1 if the records have their own timestamps.

        For a duplicate, a broker reports the latest timestamp of the batch (UnifiedLog.append: setLogAppendTime).
        """
        latest = int.from_bytes(self.data[_LATEST_TIMESTAMP], "big")
        return NO_TIMESTAMP if self.outcome_unknown and reported == latest else reported


class PartitionQueue:
    """One partition's unacknowledged record batches, and the state of sending them."""

    def __init__(self, topic_partition: TopicPartition, max_in_flight: int, *, idempotent: bool) -> None:
        self.topic_partition = topic_partition
        self.leader: Node | None = None
        self.next_attempt_at = 0.0  # of sending or finding the leader, by the monotonic clock
        self.attempts = 0  # that failed since the last acknowledgement
        self.last_error: KafkaDirectError | None = None
        self.needs_producer_id = idempotent  # or the next epoch, before anything is sent
        self.partition_sequence: PartitionSequence | None = None
        self._max_in_flight = max_in_flight  # 1 without sequence numbers
        self._queued: deque[ProducerBatch] = deque()
        self._in_flight: deque[ProducerBatch] = deque()
        self._sent_batches: list[ProducerBatch] = []  # the oldest unacknowledged batch, and all batches sent after it
        self._last_position = 0
        self._has_dropped_unknown = False  # whether a batch of this epoch was dropped that may still be written
        self._may_pipeline = False  # whether several batches may be in flight
        self._is_draining = False  # after an error, until nothing is in flight

    @property
    def head(self) -> ProducerBatch | None:
        """The batch to send next, if any is queued."""
        return self._queued[0] if self._queued else None

    @property
    def oldest(self) -> ProducerBatch | None:
        """The oldest unacknowledged batch, queued or in flight."""
        heads = [each[0] for each in (self._queued, self._in_flight) if each]
        return min(heads, key=lambda batch: batch.queue_position, default=None)

    @property
    def queued_batches(self) -> int:
        """The number of batches waiting to be sent."""
        return len(self._queued)

    @property
    def is_complete(self) -> bool:
        """Whether no batch is queued or in flight."""
        return not self._queued and not self._in_flight

    @property
    def nothing_in_flight(self) -> bool:
        """Whether every batch that was sent has its response."""
        return not self._in_flight

    def add(
        self,
        record_count: int,
        data: WritableBytes,
        first_index: int,
        callback: DeliveryCallback | None,
        created_at: float | None,
    ) -> None:
        """Append a batch; the arguments are those of ``ProducerBatch``."""
        self._last_position += 1
        self._queued.append(
            ProducerBatch(
                (self._last_position,),
                record_count,
                data,
                first_index=first_index,
                callback=callback,
                created_at=created_at,
            )
        )

    def may_send(self, now: float) -> bool:
        """Return whether the head may be sent now."""
        if not self._queued or now < self.next_attempt_at:
            return False
        if len(self._in_flight) >= (self._max_in_flight if self._may_pipeline else 1):
            return False
        # A batch that is sent again is among them already.
        return len(self._sent_batches) < self._max_in_flight or self._queued[0] in self._sent_batches

    def send(self, now: float) -> ProducerBatch:
        """Move the head to the batches in flight, assign its sequence number, and return it."""
        batch = self._queued.popleft()
        self._in_flight.append(batch)
        if batch not in self._sent_batches:
            self._sent_batches.append(batch)
        if batch.delivery_started_at is None:
            batch.delivery_started_at = now
        if self.partition_sequence is not None and batch.sequence == _NO_SEQUENCE:
            batch.sequence = self.partition_sequence.sequence
            self.partition_sequence = self.partition_sequence._replace(
                sequence=increment_sequence(batch.sequence, batch.record_count)
            )
        return batch

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Return whether all older batches are acknowledged."""
        return batch is self.oldest

    def copy_may_exist(self, batch: ProducerBatch) -> bool:
        """Return whether requests of this epoch may have written this batch or later ones, or may still write them.

        Their responses were lost. A broker accepts them without the batches before: if those are written meanwhile, or
        if it has no state of the producer, as for a topic that was recreated.
        """
        # The error shows that this batch was not written, and its late requests would fail likewise, unless a dropped
        # batch is written before them.
        is_unknown = batch.outcome_unknown and self._has_dropped_unknown
        return is_unknown or any(each.outcome_unknown for each in self._queued if each is not batch)

    def on_acknowledged(self, batch: ProducerBatch) -> None:
        """Remove a batch that was written."""
        self._in_flight.remove(batch)
        self._remove_completed_batches()
        if self._is_draining:  # an older batch failed, so the partition keeps backing off
            self._is_draining = bool(self._in_flight)
            return
        self._may_pipeline = True
        self.attempts = 0
        self.last_error = None

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue an in-flight batch again, in its old position."""
        self._in_flight.remove(batch)
        self._insert_in_order(batch)

    def split_and_reenqueue(self, batch: ProducerBatch, halves: tuple[WritableBytes, WritableBytes]) -> None:
        """Queue a batch that is too large as two halves, which share its sequence numbers."""
        self._in_flight.remove(batch)
        sent_before = [each for each in self._sent_batches if each.queue_position < batch.queue_position]
        sent_after = [each for each in self._sent_batches if each.queue_position > batch.queue_position]
        sent_halves: list[ProducerBatch] = []
        first_half_count = (batch.record_count + 1) // 2
        counts = (first_half_count, batch.record_count - first_half_count)
        for index, (record_count, data) in enumerate(zip(counts, halves, strict=True)):
            records_before = index * first_half_count
            half = ProducerBatch(
                (*batch.queue_position, index),
                record_count,
                data,
                first_index=batch.first_index + records_before,
                callback=batch.callback,
                created_at=batch.delivery_started_at,
            )
            half.outcome_unknown = batch.outcome_unknown
            self._insert_in_order(half)
            if batch.sequence != _NO_SEQUENCE:
                half.sequence = increment_sequence(batch.sequence, records_before)
            sent_halves.append(half)
        # An earlier try may have written the batch before the topic's limit was lowered, and then those after it, too.
        # Otherwise the broker has not appended it, and so not the batches after it either.
        self._sent_batches = [*sent_before, *sent_halves, *sent_after] if batch.outcome_unknown else sent_before

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch that failed; later batches need the next epoch, in which it cannot be written any more.

        Later batches that were sent keep their sequence numbers, because they may have been written. If the broker
        reports the gap, they fail too, unless no request with them can be written any more: then they get the next
        epoch.
        """
        (self._in_flight if batch in self._in_flight else self._queued).remove(batch)
        self._has_dropped_unknown |= batch.outcome_unknown
        self._remove_completed_batches()
        self._may_pipeline = False
        self._is_draining = bool(self._in_flight)
        if batch.sequence != _NO_SEQUENCE and not self._sent_batches:  # no later batch was sent
            self.needs_producer_id = True

    def abort_batches(self) -> list[ProducerBatch]:
        """Return all unacknowledged batches when the producer stops; those in flight have an unknown outcome."""
        for batch in self._in_flight:
            batch.outcome_unknown = True
        return [*self._in_flight, *self._queued]

    def reset_producer_id(self, partition_sequence: PartitionSequence) -> None:
        """Set the producer id and epoch; queued batches get new sequence numbers."""
        assert not self._in_flight
        # `_may_pipeline` is false since the error that requires the epoch, until a batch is acknowledged in this epoch.
        self.partition_sequence = partition_sequence
        self.needs_producer_id = False
        self._has_dropped_unknown = False
        self._sent_batches.clear()
        for batch in self._queued:
            batch.sequence = _NO_SEQUENCE
            batch.has_producer_state = False

    def back_off(self, error: KafkaDirectError, now: float, pause: float) -> None:
        """Record an error, and allow the next attempt after a pause in seconds."""
        self.attempts += 1
        self.last_error = error
        self.next_attempt_at = max(self.next_attempt_at, now + pause)
        if self._queued and self._queued[0].delivery_started_at is None:  # to find its leader was an attempt, too
            self._queued[0].delivery_started_at = now

    def _remove_completed_batches(self) -> None:
        """Remove the sent batches before the oldest unacknowledged one."""
        oldest = self.oldest
        self._sent_batches = [
            each for each in self._sent_batches if oldest is not None and each.queue_position >= oldest.queue_position
        ]

    def _insert_in_order(self, batch: ProducerBatch) -> None:
        """Queue a batch that failed; then only one is in flight, until one is acknowledged."""
        index = sum(each.queue_position < batch.queue_position for each in self._queued)
        self._queued.insert(index, batch)
        self._may_pipeline = False
        self._is_draining = bool(self._in_flight)


def increment_sequence(sequence: int, record_count: int) -> int:
    """Return the sequence number after some records; it wraps to 0 as in Kafka."""
    return (sequence + record_count) % _SEQUENCE_MODULUS
