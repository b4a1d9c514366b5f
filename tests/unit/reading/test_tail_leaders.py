"""Whom a tail asks, and when: leaders that move, break, hang or have nothing, in a made-up world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reading.made_up import Brokers
from tests.unit.reading.polled import ONE, THREE, TWO, at_end, offsets, take

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.codes import ErrorCode


@pytest.fixture
def brokers() -> Brokers:
    """Two brokers; the first one leads."""
    return Brokers([ONE, TWO, THREE], brokers=2)


def test_each_leader_is_asked_once_for_all_that_it_leads(brokers: Brokers) -> None:
    brokers.logs[TWO].leader = 2
    for log in brokers.logs.values():
        log.append(1)
    with brokers.tail() as tail:
        assert take(tail, at_end(brokers, tail)) == {ONE: [0], TWO: [0], THREE: [0]}
    assert [len(request.topics[0].partitions) for request in brokers.requests[:2]] == [2, 1]
    assert sorted(wire.node.id for wire in brokers.connections) == [1, 2]


@pytest.mark.parametrize("hints", [False, True])
def test_a_leader_that_moved_is_followed(brokers: Brokers, hints: bool) -> None:
    brokers.hints = hints
    log = brokers.logs[ONE]
    log.append(3)
    with brokers.tail() as tail:
        take(tail, at_end(brokers, tail))
        looked = brokers.lookups
        log.leader, log.epoch = 2, 6
        brokers.changed()
        log.append(2)
        moved_at = brokers.world.now
        assert take(tail, at_end(brokers, tail)) == {ONE: [3, 4]}
        assert tail.trouble == {}
        assert brokers.lookups == looked + (not hints)
        assert (brokers.world.now - moved_at < 0.05) == hints  # without a hint there is a pause


def test_a_hint_of_an_older_leader_is_not_believed(brokers: Brokers) -> None:
    brokers.hints = True
    brokers.error = lambda name: ErrorCode.NOT_LEADER_OR_FOLLOWER if name == ONE and len(brokers.asked) < 9 else 0
    brokers.logs[ONE].append(1)
    with brokers.tail({ONE: 0}) as tail:
        assert take(tail, at_end(brokers, tail)) == {ONE: [0]}
    assert brokers.world.now > 1001


def test_a_broken_connection_is_made_again(brokers: Brokers) -> None:
    brokers.logs[ONE].append(1)
    with brokers.tail() as tail:
        take(tail, at_end(brokers, tail))
        brokers.break_connections()
        tail.poll(0)
        assert {type(error) for error in tail.trouble.values()} == {BrokerUnreachableError}
        assert tail.trouble.keys() == {ONE, TWO, THREE}
        brokers.logs[ONE].append(1)
        assert take(tail, at_end(brokers, tail)) == {ONE: [1]}
        tail.poll(1)
        assert tail.trouble == {}
    assert [wire.closed for wire in brokers.connections] == [True, True]
    assert brokers.given_back == brokers.connections


def test_brokers_that_are_gone_for_long_are_tried_again_with_pauses(brokers: Brokers) -> None:
    with brokers.tail() as tail:
        tail.poll(1)
        brokers.down.update({1, 2})
        brokers.break_connections()
        looked = brokers.lookups
        assert tail.poll(600.0) == []
        assert 600 < brokers.lookups - looked < 800  # retry.backoff.max.ms is a second
        assert "nobody is there" in str(tail.trouble[ONE])
        brokers.down.clear()
        brokers.logs[ONE].append(1)
        assert take(tail, at_end(brokers, tail)) == {ONE: [0]}


def test_a_connection_that_the_broker_closed_while_nothing_was_asked_is_made_again(brokers: Brokers) -> None:
    with brokers.tail() as tail:
        tail.poll(1)
        tail.pause(brokers.logs)
        tail.poll(700)
        brokers.break_connections()
        tail.resume(brokers.logs)
        brokers.logs[ONE].append(1)
        now = brokers.world.now
        assert offsets(tail.poll(1)) == {ONE: [0]}
        assert brokers.world.now < now + 0.05
        assert tail.trouble == {}


def test_a_broker_that_never_answers_is_given_up(brokers: Brokers) -> None:
    with brokers.tail() as tail:
        tail.poll(1)
        brokers.down.add(1)  # its connections stay open
        for log in brokers.logs.values():
            log.leader, log.epoch = 2, 6
        brokers.logs[ONE].append(1)
        now = brokers.world.now
        assert take(tail, at_end(brokers, tail)) == {ONE: [0]}
        assert 29 < brokers.world.now - now < 32  # request.timeout.ms


def test_an_owner_that_comes_late_finds_its_answer(brokers: Brokers) -> None:
    with brokers.tail() as tail:
        tail.poll(1)
        brokers.logs[ONE].append(1)
        brokers.changed()
        brokers.world.wait_readable([], 300)
        assert offsets(tail.poll(0)) == {ONE: [0]}
        assert len(brokers.connections) == 1


def test_a_leader_that_was_cut_off_is_found_out(brokers: Brokers) -> None:
    """It goes on answering that there is nothing; metadata, asked now and then, knows better."""
    with brokers.tail() as tail:
        tail.poll(1)
        brokers.logs[ONE] = replace(brokers.logs[ONE], leader=2, epoch=6)
        old = brokers.connections[0]
        answers = old._partition
        old._partition = lambda *asked: answers(*asked) | {"error_code": 0, "records": b"", "high_watermark": 0}  # type: ignore[method-assign]
        brokers.logs[ONE].append(1)
        now = brokers.world.now
        assert take(tail, at_end(brokers, tail)) == {ONE: [0]}
        assert brokers.world.now - now == pytest.approx(300, abs=2)  # metadata.max.age.ms


def test_all_partitions_get_their_turn() -> None:
    """An answer has room for a few of them only."""
    names = [TopicPartition("flights", number) for number in range(200)]
    brokers = Brokers(names)
    for log in brokers.logs.values():
        for _ in range(3):
            log.append(10, size=1000)
    with brokers.tail(fetch={"fetch_max_bytes": 150_000, "max_partition_fetch_bytes": 1}) as tail:
        for round_ in range(3):
            seen: list[TopicPartition] = []
            while len(seen) < 200:
                seen += offsets(tail.poll(1))
            assert sorted(seen) == names, round_


def test_a_record_larger_than_a_fetch_comes_all_the_same(brokers: Brokers) -> None:
    brokers.logs[ONE].append(1, size=3_000_000)
    brokers.logs[TWO].append(5)
    with brokers.tail(fetch={"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}) as tail:
        assert take(tail, at_end(brokers, tail)) == {ONE: [0], TWO: [0, 1, 2, 3, 4]}


def test_decoders_of_large_answers_are_not_kept() -> None:
    names = [TopicPartition("flights", number) for number in range(100)]
    brokers = Brokers(names)
    for log in brokers.logs.values():
        log.append(10, size=10_000)
    with brokers.tail(fetch={"fetch_max_bytes": 1 << 20}) as tail:
        take(tail, at_end(brokers, tail))
        kept = [each for each in tail._partitions.values() if each._decoder is not None]
        assert len(kept) * 100_000 <= 1 << 20
        for log in brokers.logs.values():
            log.append(1)
        take(tail, at_end(brokers, tail))
        assert all(each._decoder is not None for each in tail._partitions.values())


@pytest.mark.parametrize("newest", [4, 6, 8, 10, 11, 12, 17])
def test_older_brokers_are_read_too(brokers: Brokers, newest: int) -> None:
    brokers.versions = {1: (4, newest), 2: (1, 4)}
    brokers.logs[ONE].append(2)
    brokers.logs[THREE].append(2)
    with brokers.tail() as tail:
        assert take(tail, at_end(brokers, tail)) == {ONE: [0, 1], THREE: [0, 1]}


def test_an_answer_that_is_empty_at_once_again_and_again_slows_the_questions_down(brokers: Brokers) -> None:
    """Kafka waits for nothing where an offset lies beyond the end that may be read."""
    with brokers.tail({ONE: 0}) as tail:
        tail.poll(1)
        wire = brokers.connections[0]
        asks = len(brokers.requests)
        answers = wire._answers
        wire._answers = lambda: (answers()[0], True)  # type: ignore[method-assign]
        assert tail.poll(60) == []
        assert len(brokers.requests) - asks < 140
        brokers.logs[ONE].append(1)
        assert offsets(tail.poll(1)) == {ONE: [0]}


def test_a_quota_is_waited_for(brokers: Brokers) -> None:
    brokers.throttled = 3
    brokers.logs[ONE].append(1)
    with brokers.tail({ONE: 0}) as tail:
        assert tail.poll(0) == []
        assert offsets(tail.poll(5)) == {ONE: [0]}
    assert len(brokers.requests) == 5


def test_a_look_at_the_leaders_that_is_due_during_another_one_waits_for_it() -> None:
    """It must not keep the poll awake, though its time has come."""
    brokers = Brokers([ONE], brokers=2, metadata_max_age_ms=10_000)
    world = brokers.world
    with brokers.tail() as tail:
        tail.poll(1.0)
        world.holding = True
        brokers.down.add(1)
        brokers.break_connections()
        world.waits.clear()
        for _ in range(1000):  # the look-up takes longer than the leaders are believed
            if world.now >= 1031:
                break
            tail._leaders.wait(1031, [])
            tail._turn()
        assert world.now >= 1031
        assert len(world.waits) < 50
        world.holding = False
        world.run_errands()
