"""Which record batch of a partition may be sent when: order, sequence numbers, and what comes back."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._idle_producers import Place, ProducerId
from pyspark_kafka_direct.writing._partition import Partition, Pending, after

NAME = TopicPartition("t", 0)
ONE, TWO = ProducerId(7, 0), ProducerId(8, 0)
TROUBLE = BrokerUnreachableError("trouble")


def partition(batches: int = 9, records: int = 10, window: int = 5, sequence: int = 0) -> Partition:
    made = Partition(NAME, window, numbered=True)
    made.begin_anew(Place(ONE, sequence))
    for number in range(batches):
        made.add(records, bytearray([number]))
    return made


def send(queue: Partition, most: int = 99) -> list[Pending]:
    sent: list[Pending] = []
    while queue.may_send(0.0) and len(sent) < most:
        sent.append(queue.send(0.0))
    return sent


def told(batches: list[Pending]) -> list[tuple[int, int]]:
    """Which, and with which sequence number."""
    return [(batch.data[0], batch.sequence) for batch in batches]


def test_one_is_under_way_until_a_first_one_is_acknowledged() -> None:
    queue = partition()
    (first,) = send(queue)
    assert told([first]) == [(0, 0)]
    queue.acknowledged(first)
    assert told(send(queue)) == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]
    assert not queue.may_send(0.0)


def test_none_is_sent_that_would_make_a_broker_forget_the_oldest() -> None:
    """It has the oldest two, and said that they took too long; of what it has taken it knows the last five again."""
    queue = partition(12)
    queue.acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.returned(one)
    queue.returned(two)
    for batch in others:
        queue.acknowledged(batch)
    queue.acknowledged(*send(queue))
    again, *new = send(queue)
    assert again is two
    assert told(new) == [(6, 60)]
    queue.acknowledged(two)
    assert told(send(queue)) == [(7, 70), (8, 80), (9, 90), (10, 100)]


def test_without_sequence_numbers_it_is_always_one() -> None:
    queue = Partition(NAME, 1, numbered=False)
    for number in range(3):
        queue.add(1, bytearray([number]))
    for number in range(3):
        (only,) = send(queue)
        assert told([only]) == [(number, -1)]
        queue.acknowledged(only)
    assert queue.settled


def test_after_trouble_all_answers_are_awaited_and_the_oldest_goes_first_alone() -> None:
    queue = partition()
    queue.acknowledged(*send(queue))
    one, two, three, four, five = send(queue)
    queue.acknowledged(one)
    queue.returned(two)
    assert not queue.may_send(0.0)
    queue.returned(four)
    queue.returned(three)
    assert not queue.may_send(0.0)
    queue.returned(five)
    assert queue.quiet
    (again,) = send(queue)
    assert again is two
    assert told([again]) == [(2, 20)]
    queue.acknowledged(two)
    assert told(send(queue)) == [(3, 30), (4, 40), (5, 50), (6, 60), (7, 70)]


def test_an_acknowledgement_among_failures_proves_nothing() -> None:
    queue = partition()
    queue.acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.returned(one)
    for each in others:
        queue.returned(each)
    queue.acknowledged(two)
    assert send(queue) == [one]


def test_the_first_is_the_oldest_that_is_not_acknowledged() -> None:
    queue = partition()
    queue.acknowledged(*send(queue))
    one, two, three, *_ = send(queue)
    assert [queue.is_first(each) for each in (one, two, three)] == [True, False, False]
    queue.returned(one)
    assert not queue.is_first(two)
    queue.returned(two)
    queue.returned(three)
    assert queue.is_first(one)


def test_halves_take_the_place_and_the_numbers_of_the_whole() -> None:
    queue = partition(records=5)
    queue.acknowledged(*send(queue))
    one, two, *others = send(queue)
    queue.split(one, (bytearray([101]), bytearray([102])))
    queue.split(two, (bytearray([103]), bytearray([104])))
    for each in others:
        queue.returned(each)
    (first,) = send(queue)
    queue.acknowledged(first)
    assert told([first]) == [(101, 5)]
    assert (first.records, first.stamped) == (3, False)
    assert told(send(queue)) == [(102, 8), (103, 10), (104, 13), (3, 15), (4, 20)]


def test_halves_of_halves() -> None:
    queue = partition(batches=2, records=4)
    (whole,) = send(queue)
    queue.split(whole, (bytearray([10]), bytearray([11])))
    (half,) = send(queue)
    queue.split(half, (bytearray([20]), bytearray([21])))
    sent = []
    while not queue.settled:
        (each,) = send(queue, 1)
        sent.append(each)
        queue.acknowledged(each)
    assert told(sent) == [(20, 0), (21, 1), (11, 2), (1, 4)]


def test_another_producer_id_begins_at_0_when_nothing_is_under_way() -> None:
    queue = partition()
    queue.acknowledged(*send(queue))
    one, *others = send(queue)
    one.stamped = True
    queue.returned(one)
    queue.renew = True
    for each in others:
        assert not queue.may_send(0.0)
        queue.returned(each)
    assert queue.may_send(0.0)
    queue.begin_anew(Place(TWO, 0))
    assert not one.stamped
    (again,) = send(queue)
    assert told([again]) == [(1, 0)]
    queue.acknowledged(again)
    assert told(send(queue)) == [(2, 10), (3, 20), (4, 30), (5, 40), (6, 50)]
    assert queue.place == Place(TWO, 60)


def test_sequence_numbers_wrap_as_kafkas_do() -> None:
    assert after(2**31 - 1, 1) == 0
    assert after(2**31 - 3, 10) == 7
    queue = partition(sequence=2**31 - 10)
    queue.acknowledged(*send(queue))
    assert [batch.sequence for batch in send(queue, 2)] == [0, 10]


def test_a_pause_and_the_time_of_the_first_try() -> None:
    queue = partition()
    queue.failed(TROUBLE, 5.0, 2.0)
    assert queue.head is not None
    assert queue.head.tried_at == 5.0
    assert not queue.may_send(6.9)
    assert queue.may_send(7.0)
    batch = queue.send(7.0)
    assert batch.tried_at == 5.0
    queue.returned(batch)
    queue.failed(TROUBLE, 8.0, 1.0)
    assert (queue.tries, queue.trouble) == (2, TROUBLE)
    queue.acknowledged(queue.send(9.0))
    assert (queue.tries, queue.trouble) == (0, None)


class Broker:
    """What a broker does with the batches of one producer in one partition (``ProducerStateManager``)."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self._next: int | None = None
        self._recent: deque[int] = deque(maxlen=5)

    def append(self, batch: Pending) -> str:
        if batch.sequence in self._recent:
            return "written"
        if self._next is not None and batch.sequence != self._next:
            return "out of order"
        self._next = after(batch.sequence, batch.records)
        self._recent.append(batch.sequence)
        self.log.append(batch.data[0])
        return "written"


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 40))
def test_whatever_fails_each_batch_is_written_once_and_in_order(seed: int, window: int, count: int) -> None:
    """Requests are refused, or done but not answered; several are under way, and answers come in their order."""
    chance = random.Random(seed)
    broker, queue = Broker(), partition(count, window=window)
    under_way: deque[tuple[Pending, str]] = deque()
    while not queue.settled:
        if queue.may_send(0.0) and (not under_way or chance.random() < 0.6):
            batch = queue.send(0.0)
            fate = chance.choice(["done", "done", "refused", "late", "unanswered"])
            answer = fate if fate == "refused" else broker.append(batch)
            # A broker that waited for its replicas for too long has the batch all the same.
            under_way.append((batch, "refused" if fate == "late" and answer == "written" else answer))
            if fate == "unanswered":  # the connection breaks, and with it what is under way
                for lost, _ in under_way:
                    queue.returned(lost)
                under_way.clear()
        else:
            batch, answer = under_way.popleft()
            if answer == "written":
                queue.acknowledged(batch)
            else:
                assert answer == "refused" or not queue.is_first(batch)
                queue.returned(batch)
    assert broker.log == list(range(count))


@pytest.mark.parametrize("numbered", [True, False])
def test_a_producer_id_is_wanted_before_the_first_batch(numbered: bool) -> None:
    assert Partition(NAME, 5, numbered=numbered).renew is numbered
