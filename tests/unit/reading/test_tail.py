"""What a tail hands out, in a made-up world: real bytes, no sockets, and time is a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.reading.made_up import LATENCY, Brokers
from tests.unit.reading.polled import ONE, THREE, TWO, at_end, offsets, take

from pyspark_kafka_direct.records import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def brokers() -> Brokers:
    """Two brokers; the first one leads."""
    return Brokers([ONE, TWO, THREE], brokers=2)


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
