"""When a partition's record batches may be sent: order, sequence numbers and retries."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.client.producer_state import PartitionSequence, ProducerIdAndEpoch
from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.partition_queue import PartitionQueue, ProducerBatch, increment_sequence

PARTITION = TopicPartition("t", 0)
ONE, TWO = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 0)
ERROR = BrokerUnreachableError("broken")


def partition(batches: int = 9, records: int = 10, max_in_flight: int = 5, sequence: int = 0) -> PartitionQueue:
    queue = PartitionQueue(PARTITION, max_in_flight, idempotent=True)
    queue.reset_producer_id(PartitionSequence(ONE, sequence))
    for number in range(batches):
        queue.add(records, bytearray([number]), 0, None, None)
    return queue


def send(queue: PartitionQueue, limit: int = 99) -> list[ProducerBatch]:
    sent: list[ProducerBatch] = []
    while queue.may_send(0.0) and len(sent) < limit:
        sent.append(queue.send(0.0))
    return sent


def sequences_of(batches: list[ProducerBatch]) -> list[tuple[int, int]]:
    """Return the content and the sequence number of each batch."""
    return [(batch.data[0], batch.sequence) for batch in batches]


def test_no_batch_is_sent_that_would_push_the_oldest_out_of_the_broker_cache() -> None:
    """The broker has the oldest two, although their requests timed out, and detects duplicates of the last five."""
    queue = partition(12)
    queue.on_acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.reenqueue(one)
    queue.reenqueue(two)
    for batch in others:
        queue.on_acknowledged(batch)
    queue.on_acknowledged(*send(queue))
    again, *new = send(queue)
    assert again is two
    assert sequences_of(new) == [(6, 60)]
    queue.on_acknowledged(two)
    assert sequences_of(send(queue)) == [(7, 70), (8, 80), (9, 90), (10, 100)]


def test_after_an_error_all_responses_are_awaited_and_the_oldest_batch_is_sent_alone() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    one, two, three, four, five = send(queue)
    queue.on_acknowledged(one)
    queue.reenqueue(two)
    assert not queue.may_send(0.0)
    queue.reenqueue(four)
    queue.reenqueue(three)
    assert not queue.may_send(0.0)
    queue.reenqueue(five)
    assert queue.nothing_in_flight
    (again,) = send(queue)
    assert again is two
    assert sequences_of([again]) == [(2, 20)]
    queue.on_acknowledged(two)
    assert sequences_of(send(queue)) == [(3, 30), (4, 40), (5, 50), (6, 60), (7, 70)]


def test_an_acknowledgement_among_failures_does_not_end_the_recovery() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.reenqueue(one)
    for each in others:
        queue.reenqueue(each)
    queue.on_acknowledged(two)
    assert send(queue) == [one]


def test_an_acknowledgement_after_a_dropped_batch_does_not_end_the_recovery() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.drop(one)
    queue.on_acknowledged(two)
    assert not queue.may_send(0.0)
    for each in others:
        queue.on_acknowledged(each)
    (alone,) = send(queue)
    queue.on_acknowledged(alone)
    assert len(send(queue)) == 2


def test_halves_have_the_position_and_the_sequence_numbers_of_the_whole() -> None:
    queue = partition(records=5)
    queue.on_acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.split_and_reenqueue(one, (bytearray([101]), bytearray([102])))
    queue.split_and_reenqueue(two, (bytearray([103]), bytearray([104])))
    for each in others:
        queue.reenqueue(each)
    (first,) = send(queue)
    queue.on_acknowledged(first)
    assert sequences_of([first]) == [(101, 5)]
    assert (first.record_count, first.has_producer_state) == (3, False)
    assert sequences_of(send(queue)) == [(102, 8), (103, 10), (104, 13), (3, 15), (4, 20)]


def test_halves_of_halves() -> None:
    queue = partition(batches=2, records=4)
    (whole,) = send(queue)
    queue.split_and_reenqueue(whole, (bytearray([10]), bytearray([11])))
    (half,) = send(queue)
    queue.split_and_reenqueue(half, (bytearray([20]), bytearray([21])))
    sent = []
    while not queue.is_complete:
        (each,) = send(queue, 1)
        sent.append(each)
        queue.on_acknowledged(each)
    assert sequences_of(sent) == [(20, 0), (21, 1), (11, 2), (1, 4)]


def test_the_outcome_of_any_queued_batch_may_be_unknown() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    batches = send(queue, 3)
    for batch in batches:
        queue.reenqueue(batch)
    assert not queue.copy_may_exist(batches[0])
    batches[2].outcome_unknown = True
    assert queue.copy_may_exist(batches[0])


def test_a_batch_of_an_earlier_epoch_that_was_dropped_is_rejected() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    first, second = send(queue, 2)
    for batch in (first, second):
        batch.outcome_unknown = True
        queue.reenqueue(batch)
    queue.drop(first)
    assert queue.copy_may_exist(second)
    queue.reset_producer_id(PartitionSequence(TWO, 0))
    assert not queue.copy_may_exist(second)


def test_any_batch_of_this_epoch_that_was_dropped_may_still_be_written() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    batches = send(queue, 3)
    for batch in batches:
        queue.reenqueue(batch)
    batches[0].outcome_unknown = batches[2].outcome_unknown = True
    for batch in batches[:2]:  # the second one was not written
        queue.drop(batch)
    assert queue.copy_may_exist(batches[2])


def test_another_producer_id_restarts_at_0_when_nothing_is_in_flight() -> None:
    queue = partition()
    queue.on_acknowledged(*send(queue))
    one, *others = send(queue)
    one.has_producer_state = True
    queue.reenqueue(one)
    queue.needs_producer_id = True
    for each in others:
        assert not queue.may_send(0.0)
        queue.reenqueue(each)
    assert queue.may_send(0.0)
    queue.reset_producer_id(PartitionSequence(TWO, 0))
    assert not one.has_producer_state
    (again,) = send(queue)
    assert sequences_of([again]) == [(1, 0)]
    queue.on_acknowledged(again)
    assert sequences_of(send(queue)) == [(2, 10), (3, 20), (4, 30), (5, 40), (6, 50)]
    assert queue.partition_sequence == PartitionSequence(TWO, 60)


def test_sequence_numbers_wrap_as_in_kafka() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 3, 10) == 7
    queue = partition(sequence=2**31 - 10)
    queue.on_acknowledged(*send(queue))
    assert [batch.sequence for batch in send(queue, 2)] == [0, 10]


def test_backoff_and_the_start_of_the_delivery_timeout() -> None:
    queue = partition()
    queue.back_off(ERROR, 5.0, 2.0)
    assert queue.head is not None
    assert queue.head.delivery_started_at == 5.0
    assert not queue.may_send(6.9)
    assert queue.may_send(7.0)
    batch = queue.send(7.0)
    assert batch.delivery_started_at == 5.0
    queue.reenqueue(batch)
    queue.back_off(ERROR, 8.0, 1.0)
    assert (queue.attempts, queue.last_error) == (2, ERROR)
    queue.back_off(ERROR, 8.1, 9.0)
    queue.back_off(ERROR, 8.2, 0.1)
    assert not queue.may_send(17.0), "a shorter pause does not end a longer one"
    assert queue.may_send(17.1)
    queue.on_acknowledged(queue.send(17.1))
    assert (queue.attempts, queue.last_error) == (0, None)


class BrokerModel:
    """A broker's handling of one producer's batches in one partition (``ProducerStateManager``)."""

    def __init__(self, max_records: int) -> None:
        self.log: list[int] = []
        self._max_records = max_records  # of a batch
        self._next: int | None = None
        self._recent: deque[int] = deque(maxlen=5)

    def append(self, batch: ProducerBatch) -> str:
        if batch.record_count > self._max_records:
            return "too large"
        if batch.sequence in self._recent:
            return "written"
        if self._next is not None and batch.sequence != self._next:
            return "out of order"
        self._next = increment_sequence(batch.sequence, batch.record_count)
        self._recent.append(batch.sequence)
        self.log += batch.data
        return "written"


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 40))
def test_each_record_is_written_once_and_in_order_despite_failures(seed: int, max_in_flight: int, count: int) -> None:
    """Requests are rejected, or handled without a response; several are in flight, and responses are in order."""
    chance = random.Random(seed)
    broker, queue = BrokerModel(chance.choice([1, 2, 4])), partition(0, max_in_flight=max_in_flight)
    written: list[int] = []
    for number in range(count):
        records = [number] * chance.choice([1, 1, 2, 4])
        queue.add(len(records), bytearray(records), 0, None, None)
        written += records
    in_flight: deque[tuple[ProducerBatch, str]] = deque()
    while not queue.is_complete:
        if queue.may_send(0.0) and (not in_flight or chance.random() < 0.6):
            batch = queue.send(0.0)
            outcome = chance.choice(["done", "done", "rejected", "late", "unanswered"])
            response = outcome if outcome == "rejected" else broker.append(batch)
            # After a timeout of its replicas, the broker still has the batch.
            in_flight.append((batch, "rejected" if outcome == "late" and response == "written" else response))
            if outcome == "unanswered":  # the connection breaks, and all responses in flight are lost
                for lost, _ in in_flight:
                    queue.reenqueue(lost)
                in_flight.clear()
        else:
            batch, response = in_flight.popleft()
            if response == "written":
                queue.on_acknowledged(batch)
            elif response == "too large":
                middle = (batch.record_count + 1) // 2
                queue.split_and_reenqueue(batch, (bytearray(batch.data[:middle]), bytearray(batch.data[middle:])))
            else:
                assert response == "rejected" or not queue.is_oldest(batch)
                queue.reenqueue(batch)
    assert broker.log == written


@pytest.mark.parametrize("idempotent", [True, False])
def test_idempotent_queues_need_a_producer_id_before_the_first_batch(idempotent: bool) -> None:
    assert PartitionQueue(PARTITION, 5, idempotent=idempotent).needs_producer_id is idempotent
