"""What a tail makes of what its brokers say, in a made-up world: real bytes, no sockets, and time is a number."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.reading.made_up import LATENCY, Brokers
from tests.unit.records.batches import Batch, Rec

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    CorruptRecordError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import COLUMNS
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.reading.tail import Polled, Tail

ONE, TWO, THREE = (TopicPartition("flights", number) for number in range(3))
OTHER = TopicPartition("ships", 0)


@pytest.fixture
def brokers() -> Brokers:
    """Two brokers; the first one leads."""
    return Brokers([ONE, TWO, THREE], brokers=2)


def offsets(polled: list[Polled]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for partition, rows in polled:
        assert rows.num_rows
        found.setdefault(partition, []).extend(rows.column("offset").to_pylist())
    return found


def take(tail: Tail, until: Callable[[], bool], seconds: float = 120.0) -> dict[TopicPartition, list[int]]:
    """Polls until something is so, and returns what came."""
    found: dict[TopicPartition, list[int]] = {}
    for _ in range(10_000):
        if until():
            return found
        for partition, more in offsets(tail.poll(seconds)).items():
            found.setdefault(partition, []).extend(more)
    raise AssertionError(f"never so: {tail.positions}, {tail.trouble}")


def at_end(brokers: Brokers, tail: Tail) -> Callable[[], bool]:
    return lambda: all(position == brokers.logs[name].high_watermark for name, position in tail.positions.items())


def failure(tail: Tail, kind: type[Exception], seconds: float = 600.0) -> Any:
    """Polls until an error of this kind, and returns it."""
    limit = tail._system.monotonic() + seconds
    while tail._system.monotonic() < limit:
        try:
            tail.poll(limit - tail._system.monotonic())
        except kind as error:
            return error
    raise AssertionError(f"no {kind.__name__}")


def test_records_come_of_all_partitions(brokers: Brokers) -> None:
    brokers.logs[ONE].append(5)
    brokers.logs[THREE].append(2)
    with brokers.tail() as tail:
        assert offsets(tail.poll(10)) == {ONE: [0, 1, 2, 3, 4], THREE: [0, 1]}
        assert tail.positions == {ONE: 5, TWO: 0, THREE: 2}
        assert tail.poll(3) == []
    assert len(brokers.connections) == 1
    assert [wire.closed for wire in brokers.given_back] == [True]  # an answer was due


def test_what_is_new_is_handed_out_when_it_comes(brokers: Brokers) -> None:
    world = brokers.world
    with brokers.tail() as tail:
        assert tail.poll(5.0) == []
        assert world.now == pytest.approx(1005.0)

        def appended() -> None:
            brokers.logs[TWO].append(1)
            brokers.changed()

        world.at(1005.3, appended)
        assert offsets(tail.poll(5.0)) == {TWO: [0]}
        assert world.now == pytest.approx(1005.3 + LATENCY)


def test_a_wake_ends_the_wait_at_any_time(brokers: Brokers) -> None:
    world = brokers.world
    given = world.signal()
    with brokers.tail() as tail:
        tail.poll(1.0)
        for trouble in (False, True):
            if trouble:
                brokers.down.update({1, 2})
                brokers.break_connections()
            now = world.now
            world.at(now + 7.25, given.give)
            assert tail.poll(60.0, [given.fileno()]) == []
            assert world.now == pytest.approx(now + 7.25)
            given.take()
        given.give()
        now = world.now
        assert tail.poll(60.0, [given.fileno()]) == []
        assert world.now == now


def test_a_broker_that_is_looked_for_holds_nothing_up(brokers: Brokers) -> None:
    """Whatever takes long is an errand: the poll ends in its time all the same."""
    brokers.logs[ONE].append(1)
    brokers.world.holding = True
    with brokers.tail() as tail:
        assert tail.poll(2.0) == []
        assert brokers.world.now == pytest.approx(1002.0)
        brokers.world.holding = False
        brokers.world.run_errands()
        assert offsets(tail.poll(2.0)) == {ONE: [0]}


def test_what_comes_of_an_errand_after_the_end_is_given_back(brokers: Brokers) -> None:
    tail = brokers.tail()
    brokers.world.holding = True
    tail.poll(0)
    brokers.world.run_errands()  # the leaders are known
    tail.poll(0)
    tail.close()
    brokers.world.run_errands()  # and only now a connection is there
    assert len(brokers.given_back) == len(brokers.connections) == 1


def test_the_next_request_is_sent_before_records_are_handed_out(brokers: Brokers) -> None:
    brokers.logs[ONE].append(5)
    with brokers.tail({ONE: 0}) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0, 1, 2, 3, 4]}
        assert brokers.asked == [(ONE, 0), (ONE, 5)]


def test_a_poll_hands_out_a_bounded_amount_and_loses_nothing(brokers: Brokers) -> None:
    for name in (ONE, TWO):
        brokers.logs[name].append(100, size=100)
    with brokers.tail(max_bytes=1000, max_rows=3) as tail:
        first = tail.poll(1)
        assert sum(rows.nbytes for _, rows in first) < 1500
        assert {partition for partition, _ in first} == {ONE, TWO}  # in turns
        found = offsets(first)
        for name, more in take(tail, at_end(brokers, tail)).items():
            found[name] += more
        assert found == {ONE: list(range(100)), TWO: list(range(100))}


def test_an_answer_is_not_taken_while_the_last_one_waits(brokers: Brokers) -> None:
    """So memory is bounded by what two answers hold, however slow the owner is."""
    for _ in range(10):
        brokers.logs[ONE].append(10, size=100)
    with brokers.tail({ONE: 0}, max_rows=1, max_bytes=1, fetch={"max_partition_fetch_bytes": 1}) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0]}
        for expected in range(1, 10):
            assert offsets(tail.poll(1)) == {ONE: [expected]}
            assert len(brokers.asked) == 2
        assert offsets(tail.poll(1)) == {ONE: [10]}


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), COLUMNS, ("key",)])
def test_only_wanted_columns_come(brokers: Brokers, columns: tuple[str, ...]) -> None:
    brokers.logs[ONE].append(3)
    with brokers.tail({ONE: 1}, columns=columns) as tail:
        ((_, rows),) = tail.poll(1)
        assert tuple(rows.schema.names) == columns
        assert rows.num_rows == 2
        assert tail.positions == {ONE: 3}


def test_a_position_moves_over_what_holds_no_records(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(2)
    log.append(3, producer_id=7)
    log.finish(7, commit=False)
    with brokers.tail({ONE: 0}, isolation_level="read_committed") as tail:
        assert offsets(tail.poll(1)) == {ONE: [0, 1]}
        assert tail.positions == {ONE: 6}
        log.append(1, producer_id=8)
        brokers.changed()
        assert tail.poll(2) == []
        assert tail.positions == {ONE: 6}  # the transaction is open
        log.finish(8, commit=False)
        brokers.changed()
        now = brokers.world.now
        assert tail.poll(60) == []
        assert brokers.world.now < now + 1
        assert tail.positions == {ONE: 8}


def test_open_transactions_hold_back_committed_readers_only(brokers: Brokers) -> None:
    log = brokers.logs[ONE]
    log.append(2)
    log.append(3, producer_id=7)
    log.append(1)
    with brokers.tail({ONE: 0}) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0, 1, 2, 3, 4, 5]}
    with brokers.tail({ONE: 0}, isolation_level="read_committed") as tail:
        assert offsets(tail.poll(1)) == {ONE: [0, 1]}
        assert tail.poll(3) == []
        log.finish(7, commit=True)
        brokers.changed()
        assert offsets(tail.poll(1)) == {ONE: [2, 3, 4, 5]}


def test_paused_partitions_are_left_alone(brokers: Brokers) -> None:
    with brokers.tail({ONE: 0, TWO: 0}) as tail:
        tail.poll(1)
        tail.pause([ONE])
        tail.poll(1)
        brokers.asked.clear()
        brokers.logs[ONE].append(4)
        brokers.logs[TWO].append(4)
        brokers.changed()
        assert offsets(tail.poll(2)) == {TWO: [0, 1, 2, 3]}
        tail.poll(2)
        assert {name for name, _ in brokers.asked} == {TWO}
        tail.resume([ONE])
        assert offsets(tail.poll(2)) == {ONE: [0, 1, 2, 3]}


def test_what_was_fetched_waits_while_a_partition_is_paused(brokers: Brokers) -> None:
    brokers.logs[ONE].append(6)
    with brokers.tail({ONE: 0, TWO: 0}, max_bytes=1) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0]}
        tail.pause([ONE])
        brokers.logs[ONE].append(1)  # comes with the request under way, and finds no room
        brokers.logs[TWO].append(1)
        brokers.changed()
        assert offsets(tail.poll(1)) == {TWO: [0]}
        tail.resume([ONE])
        assert take(tail, at_end(brokers, tail)) == {ONE: [1, 2, 3, 4, 5, 6]}


def test_seek_goes_anywhere(brokers: Brokers) -> None:
    brokers.logs[ONE].append(10)
    with brokers.tail({ONE: 0}, max_bytes=1) as tail:
        assert offsets(tail.poll(1)) == {ONE: [0]}
        for offset in (4, 2):
            tail.seek(ONE, offset)
            assert tail.positions == {ONE: offset}
        assert take(tail, at_end(brokers, tail)) == {ONE: [2, 3, 4, 5, 6, 7, 8, 9]}
        tail.seek(ONE, 9)
        assert take(tail, at_end(brokers, tail)) == {ONE: [9]}


@pytest.mark.parametrize("fields", [{"columns": ("nonsense",)}, {"max_rows": 0}, {"max_bytes": 0}])
def test_what_is_out_of_range_is_refused_at_once(brokers: Brokers, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nonsense|max_rows|max_bytes"):
        brokers.tail(**fields)


def test_what_cannot_be_read_is_refused(brokers: Brokers) -> None:
    with pytest.raises(ValueError, match="flights-0 cannot be read from offset -1"):
        brokers.tail({ONE: -1})
    with brokers.tail({ONE: 0}) as tail:
        uses: list[Callable[[], None]] = [
            lambda: tail.seek(TWO, 0),
            lambda: tail.pause([TWO]),
            lambda: tail.resume([TWO]),
        ]
        for use in uses:
            with pytest.raises(ValueError, match="flights-1 is not read by this tail"):
                use()
        with pytest.raises(ValueError, match="offset -2"):
            tail.seek(ONE, -2)
    with pytest.raises(RuntimeError, match="closed"):
        tail.poll(0)


# Who is asked.


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


# What is lost.


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
