"""What a tail says is lost, refused or nonsense, in a made-up world."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.reading.made_up import Brokers
from tests.unit.reading.polled import ONE, OTHER, THREE, TWO, at_end, failure, offsets, take
from tests.unit.records.batches import Batch, Rec

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    CorruptRecordError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def brokers() -> Brokers:
    """Two brokers; the first one leads."""
    return Brokers([ONE, TWO, THREE], brokers=2)


def test_an_offset_before_the_log_start(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(10)
    log.append(10)
    log.start = 12
    brokers.logs[TWO].append(1)
    with brokers.tail({ONE: 3, TWO: 0}) as tail:
        error = failure(tail, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert "[3, 12) are gone" in str(error)
        assert "now holds [12, 20)" in str(error)
        tail.seek(ONE, 12)
        found = take(tail, at_end(brokers, tail))
        assert found[ONE] == list(range(12, 20))


def test_what_was_found_before_a_seek_is_not_raised_after_it(brokers: Brokers) -> None:
    for name in (ONE, TWO):
        brokers.logs[name].append(10)
        brokers.logs[name].start = 10
    with brokers.tail({ONE: 3, TWO: 3}) as tail:
        assert failure(tail, DataLossError).partition == 0  # the other one is found at the same time, and waits
        tail.seek(ONE, 10)
        tail.seek(TWO, 10)
        tail.poll(10)


def test_the_others_go_on_when_one_has_lost_its_place(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(10)
    log.start = 10
    brokers.logs[TWO].append(1)
    with brokers.tail({ONE: 3, TWO: 0}) as tail:
        found: list[int] = []
        failures = 0
        for _ in range(40):
            try:
                found += offsets(tail.poll(1)).get(TWO, [])
            except DataLossError:
                failures += 1
            brokers.logs[TWO].append(1)
            brokers.world.wait_readable([], 0.1)
            brokers.changed()
        assert found[:30] == list(range(30))
        assert failures > 3  # it is told again, with pauses
        assert tail.positions[ONE] == 3


def test_an_offset_beyond_the_end_that_was_never_read(brokers: Brokers) -> None:
    brokers.logs[ONE].append(10)
    with brokers.tail({ONE: 11}) as tail:
        error = failure(tail, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert "beyond the end of the log: the log now holds [0, 10)" in str(error)
        assert error.offset == 11
        tail.seek(ONE, 10)
        assert tail.poll(1) == []


def test_an_old_leader_may_not_know_its_end_yet(brokers: Brokers) -> None:
    brokers.versions = {1: (4, 11), 2: (1, 4)}
    log = brokers.logs[ONE]
    log.append(10)
    with brokers.tail({ONE: 0}) as tail:
        take(tail, at_end(brokers, tail))
        batches, log.batches, log.epoch = log.batches, [], 6
        brokers.changed()
        for _ in range(4):
            assert tail.poll(0.4) == []
        log.batches = batches
        log.append(1)
        assert take(tail, at_end(brokers, tail)) == {ONE: [10]}


@pytest.mark.parametrize("newest", [11, 17])
def test_a_log_that_was_cut_back(brokers: Brokers, newest: int) -> None:
    """Newer brokers say where it was cut; of older ones only the end tells."""
    brokers.versions = {1: (4, newest), 2: (1, 11)}
    log = brokers.logs[ONE]
    for _ in range(4):
        log.append(5)
    with brokers.tail({ONE: 0}) as tail:
        take(tail, at_end(brokers, tail))
        log.cut(10)
        log.leader = 2
        if newest == 17:
            log.append(50)  # as long as before, and longer
        brokers.changed()
        for _ in range(2):  # it is told again until somebody decides
            error = failure(tail, TruncatedError)
            assert (error.topic, error.partition, error.offset, error.cut_at) == (*ONE, 20, 10)
            assert "back to offset 10" in str(error)
        tail.seek(ONE, 10)
        log.append(1)
        found = take(tail, at_end(brokers, tail))
        assert found == {ONE: list(range(10, log.end))}


def test_a_log_that_was_cut_before_anything_was_read_of_it_is_not_compared(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(5)
    with brokers.tail({ONE: 3}) as tail:
        log.cut(0)
        log.append(9)
        assert take(tail, at_end(brokers, tail)) == {ONE: [3, 4, 5, 6, 7, 8]}


def test_a_leader_that_forgot_its_epochs_is_read_on(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(5)
    with brokers.tail({ONE: 0}) as tail:
        take(tail, at_end(brokers, tail))
        log.epoch = 6
        asked: list[int] = []

        def error(name: TopicPartition) -> int:
            entry = brokers.requests[-1].topics[0].partitions[0]
            asked.append(entry.last_fetched_epoch)
            return ErrorCode.OFFSET_OUT_OF_RANGE if entry.last_fetched_epoch >= 0 else 0

        brokers.error = error
        log.append(1)
        assert take(tail, at_end(brokers, tail)) == {ONE: [5]}
        assert asked.count(5) == 5


@pytest.mark.parametrize("newest", [12, 17])
def test_a_topic_that_was_created_again(brokers: Brokers, newest: int) -> None:
    brokers.versions = {1: (4, newest), 2: (1, 11)}
    brokers.logs[ONE].append(5)
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        take(tail, at_end(brokers, tail))
        brokers.error = lambda _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # while it is gone
        brokers.changed()
        tail.poll(0.01)
        brokers.error = lambda _: 0
        brokers.recreate("flights")
        brokers.logs[ONE].append(9)
        told = {}
        for _ in range(2):
            error = failure(tail, TopicRecreatedError)
            assert error.topic_id == brokers.topic_ids["flights"]
            assert error.topic == "flights"
            told[TopicPartition(error.topic, error.partition)] = error
        assert told.keys() == {ONE, TWO}
        assert isinstance(error, TopicNotFoundError)
        for name in (ONE, TWO):
            tail.seek(name, 0)
        assert take(tail, at_end(brokers, tail)) == {ONE: list(range(9))}


def test_a_topic_that_was_created_again_before_the_tail_was_made(brokers: Brokers) -> None:
    """Who knows which topic the offsets are of says so: offsets alone fit the new topic as well."""
    known = dict.fromkeys((ONE, TWO), brokers.topic_ids["flights"])
    brokers.recreate("flights")
    brokers.logs[ONE].append(9)
    with brokers.tail({ONE: 5, TWO: 0}, topic_ids=known) as tail:
        assert failure(tail, TopicRecreatedError).topic_id == brokers.topic_ids["flights"]
        assert failure(tail, TopicRecreatedError).topic_id == brokers.topic_ids["flights"]
        for name in (ONE, TWO):
            tail.seek(name, 0)
        assert take(tail, at_end(brokers, tail)) == {ONE: list(range(9))}


def test_a_topic_that_is_gone(brokers: Brokers) -> None:
    with brokers.tail({ONE: 0}) as tail:
        tail.poll(1)
        log = brokers.logs.pop(ONE)
        del brokers.logs[TWO], brokers.logs[THREE]
        brokers.changed()
        now = brokers.world.now
        error = failure(tail, TopicNotFoundError)
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic == "flights"
        assert brokers.turns == 5  # five times, and each time another broker is asked
        assert 1.4 < brokers.world.now - now < 3
        brokers.logs[ONE] = log
        log.append(1)
        assert take(tail, at_end(brokers, tail)) == {ONE: [0]}


def test_a_partition_that_is_not_there(brokers: Brokers) -> None:
    with brokers.tail({TopicPartition("flights", 7): 0}) as tail:
        assert "no such partition; it has 3" in str(failure(tail, TopicNotFoundError))


def test_a_hole_at_the_end_is_believed_after_a_while(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        assert take(tail, lambda: tail.positions[ONE] == 5) == {ONE: [0, 1, 2, 3, 4]}
        now = brokers.world.now
        assert tail.poll(500) == []
        assert tail.positions[ONE] == 9
        assert 59 < brokers.world.now - now < 65
        assert tail.trouble == {}


def test_a_hole_is_not_believed_of_what_is_slow_to_come(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(5)
    log.empty_until = 9
    brokers.local_start = 7
    with brokers.tail({ONE: 0}) as tail:
        take(tail, lambda: tail.positions[ONE] == 5)
        assert tail.poll(500) == []
        assert tail.positions[ONE] == 5
        assert "its log goes on to offset 9" in str(tail.trouble[ONE])
        brokers.local_start = 0
        tail.poll(100)
        assert tail.positions[ONE] == 9


def test_a_hole_is_believed_although_others_get_records_all_the_time(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        take(tail, lambda: tail.positions[ONE] == 5)
        for _ in range(1000):
            brokers.logs[TWO].append(1)
            brokers.changed()
            brokers.world.wait_readable([], 0.1)
            tail.poll(1)
        assert tail.positions[ONE] == 9


def test_what_finds_no_room_in_an_answer_is_not_silent(brokers: Brokers) -> None:
    brokers.logs[ONE].append(1, size=100)
    for _ in range(300):
        brokers.logs[TWO].append(1, size=10)
        brokers.logs[THREE].append(1, size=10)
    with brokers.tail(fetch={"fetch_max_bytes": 1}) as tail:
        take(tail, at_end(brokers, tail))
        assert tail.trouble == {}
    assert all(len(request.topics[0].partitions) == 3 for request in brokers.requests)  # none had to pause
    assert brokers.world.now < 1002


# What is refused, and what is nonsense.


def test_what_may_not_be_read_is_raised_and_tried_again(brokers: Brokers) -> None:
    brokers.error = lambda name: ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == ONE else 0
    brokers.logs[TWO].append(2)
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        error = failure(tail, AuthorizationError)
        assert TopicPartition(error.topic, error.partition) == ONE
        assert tail.trouble == {}
        brokers.logs[ONE].append(1)
        brokers.error = lambda _: 0
        found = take(tail, at_end(brokers, tail))
        assert found.get(ONE) == [0]


def test_a_topic_that_may_not_be_seen_does_not_hold_up_the_others() -> None:
    brokers = Brokers([ONE, OTHER])
    brokers.logs[ONE].append(1)

    def metadata_error(name: str) -> Exception | None:
        return error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "asking", topic=name) if name == "ships" else None

    brokers.metadata_error = metadata_error
    with brokers.tail() as tail:
        assert failure(tail, AuthorizationError).topic == "ships"
        assert offsets(tail.poll(1)) == {ONE: [0]}
        assert failure(tail, AuthorizationError).topic == "ships"
        brokers.metadata_error = lambda _: None
        brokers.logs[OTHER].append(1)
        assert take(tail, at_end(brokers, tail)) == {OTHER: [0]}


def test_records_that_are_damaged_are_told_after_those_before_them(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(3)
    good = Batch((Rec(b"x"), Rec(b"y")), 3, leader_epoch=5)
    encoded = bytearray(good.encode())
    encoded[-3] ^= 1

    class Damaged(Batch):
        def encode(self) -> bytes:
            return bytes(encoded)

    log.batches.append(Damaged(good.records, 3, leader_epoch=5))
    brokers.logs[TWO].append(1)
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0, 1, 2], TWO: [0]}
        for _ in range(2):
            error = failure(tail, CorruptRecordError)
            assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert tail.positions == {ONE: 3, TWO: 1}
        log.batches[-1] = good
        assert take(tail, at_end(brokers, tail)) == {ONE: [3, 4]}


def test_bytes_without_a_whole_batch_are_damage(brokers: Brokers) -> None:
    class Cut(Batch):
        def encode(self) -> bytes:
            return super().encode()[:30]

    brokers.logs[ONE].batches.append(Cut((Rec(b"x"),), 0))
    with brokers.tail({ONE: 0}) as tail:
        assert "hold no complete record batch" in str(failure(tail, CorruptRecordError))


def test_an_answer_that_is_nonsense_costs_the_connection_and_nothing_else(brokers: Brokers) -> None:
    brokers.logs[ONE].append(1)
    with brokers.tail({ONE: 0}) as tail:
        tail.poll(1)
        brokers.connections[0]._encode = lambda answers: b"\xff" * 60  # type: ignore[method-assign]
        brokers.logs[ONE].append(1)
        brokers.changed()
        error = failure(tail, ProtocolError)
        assert "malformed" in str(error)
        assert take(tail, at_end(brokers, tail)) == {ONE: [1]}
    assert brokers.connections[0].closed


def test_a_divergence_from_what_nobody_named_is_nonsense(brokers: Brokers) -> None:
    brokers.logs[ONE].append(3)
    with brokers.tail({ONE: 0}) as tail:
        take(tail, at_end(brokers, tail))
        wire = brokers.connections[0]
        diverging = wire_divergence(wire)
        wire._partition = diverging  # type: ignore[method-assign]
        assert "was not told what that is" in str(failure(tail, ProtocolError))


def wire_divergence(wire: Any) -> Callable[..., dict[str, Any]]:
    from tests.unit.reading.made_up import Answered

    answers = wire._partition
    end = Answered.EpochEndOffset(version=17, epoch=1, end_offset=1)
    return lambda *asked: answers(*asked) | {"records": b"", "diverging_epoch": end}


def test_a_mistake_in_an_errand_is_not_hidden(brokers: Brokers) -> None:
    brokers.metadata_error = lambda _: KeyError("a mistake")
    with brokers.tail() as tail, pytest.raises(KeyError, match="a mistake"):
        tail.poll(1)


def test_a_tail_is_of_its_process(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = brokers.tail()
    tail.poll(1)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RuntimeError, match="belongs to the parent process"):
        tail.poll(0)
    tail.close()
    assert brokers.connections[0].closed  # the child's descriptor
    assert brokers.given_back == []


def test_times_are_waited_for_together(brokers: Brokers) -> None:
    """What was in the same trouble is asked for again in one request, not one long poll later."""
    with brokers.tail() as tail:
        tail.poll(1)
        brokers.break_connections()
        count = len(brokers.requests)
        tail.poll(0.2)
        assert [len(request.topics[0].partitions) for request in brokers.requests[count:]] == [3]


def test_nothing_is_waited_for_in_circles(brokers: Brokers) -> None:
    """Metadata is due again while somebody looks for a leader, and that takes long."""
    with brokers.tail(fetch={"fetch_max_wait_ms": 15_000}) as tail:
        tail.poll(290)
        brokers.world.holding = True
        brokers.break_connections()
        tail.poll(5)
        brokers.world.waits.clear()
        tail.poll(60)
        assert len(brokers.world.waits) < 10


def test_a_broker_is_not_asked_to_wait_longer_than_we_do(brokers: Brokers) -> None:
    with brokers.tail(fetch={"fetch_max_wait_ms": 50_000}) as tail:
        tail.poll(100)
        assert tail.trouble == {}
    assert len(brokers.connections) == 1
    assert {request.max_wait_ms for request in brokers.requests} == {15_000}


def test_trouble_is_told_while_it_lasts(brokers: Brokers) -> None:
    brokers.down.add(1)
    with brokers.tail({ONE: 0}) as tail:
        tail.poll(5)
        assert "LEADER_NOT_AVAILABLE" in str(tail.trouble[ONE])
        brokers.down.clear()
        tail.poll(3)
        assert tail.trouble == {}
