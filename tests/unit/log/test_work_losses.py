"""The work of a log where records aged out, were cut back, or belong to another topic of that name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tests.unit.log.clusters import Bench, FakeCluster, read_five, tp

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    DataLossError,
    TopicRecreatedError,
    TruncatedError,
)

if TYPE_CHECKING:
    import pytest


def test_what_aged_out_is_passed_over(cluster: FakeCluster, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    cluster.write(10)
    cluster.starts[tp(0)] = 6
    bench.reader.failures = [DataLossError("gone", topic=tp(0).topic, partition=0, offset=0)]
    waiter = bench.ask()
    with caplog.at_level(logging.WARNING):
        bench.until(waiter)
    assert waiter.exception() is None
    assert bench.handed == [(0, each) for each in range(6, 10)]
    assert "records [0, 6) went" in caplog.text


def test_what_aged_out_is_asked_about_until_there_is_an_answer(cluster: FakeCluster, bench: Bench) -> None:
    cluster.write(10)
    cluster.starts[tp(0)] = 10
    bench.reader.failures = [DataLossError("gone", topic=tp(0).topic, partition=0, offset=0)]
    bench.turns()
    cluster.failures = [BrokerUnreachableError("away")] * 3
    waiter = bench.ask()
    bench.until(waiter)
    assert waiter.exception() is None
    assert bench.handed == []
    assert len(bench.reader.polls) < 6


def cut(at: int) -> TruncatedError:
    error = TruncatedError("cut", topic=tp(0).topic, partition=0, offset=5)
    error.cut_at = at
    return error


def test_after_a_cut_reading_goes_on_where_it_was(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    error = cut(at=3)
    bench.reader.failures = [error]
    cluster.ends[tp(0)] = 4
    past = bench.past({tp(0): 9})
    bench.until(past)
    assert past.exception() is error
    assert bench.resets == [error]
    bench.until(bench.ask())
    assert bench.handed == [(0, 3)]


def test_nobody_is_told_of_an_end_that_lies_before_what_was_read(cluster: FakeCluster, bench: Bench) -> None:
    """The log was cut back, and the reader has not found out yet: what it has read is not what is there."""
    read_five(cluster, bench)
    cluster.ends[tp(0)] = 3
    first = bench.ask()
    bench.turns()
    assert isinstance(first.exception(0), TruncatedError)
    second = bench.ask()
    bench.turns(20)
    assert not second.done()
    bench.reader.failures = [cut(at=2)]
    bench.until(second)
    assert isinstance(second.exception(), TruncatedError)
    third = bench.ask()
    bench.until(third)
    assert third.exception() is None
    assert bench.handed == [(0, 2)]


def test_after_a_cut_everything_is_read_anew_if_the_function_says_so(cluster: FakeCluster) -> None:
    bench = Bench(cluster, on_reset=lambda _: True)
    read_five(cluster, bench)
    cluster.write(2, partition=1)
    bench.until(bench.ask())
    bench.handed.clear()
    old = bench.reader
    old.failures = [cut(at=3)]
    cluster.ends[tp(0)] = 4
    bench.turns()
    bench.until(bench.ask())
    assert old.closed
    assert bench.handed == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_a_position_beyond_the_end_is_a_cut_somewhere(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    bench.reader.failures = [DataLossError("beyond", topic=tp(0).topic, partition=0, offset=5)]
    cluster.ends[tp(0)] = 2
    past = bench.past({tp(0): 9})
    bench.until(past)
    assert isinstance(past.exception(), TruncatedError)
    bench.until(bench.ask())
    assert bench.handed == [(0, 0), (0, 1)]  # where it was cut nobody knows, so all is read again


def test_an_end_that_went_back_fails_those_who_wait_though_the_reader_saw_nothing(
    cluster: FakeCluster, bench: Bench
) -> None:
    """The reader was at 5 of 9 when the log was cut to 7: nobody would wait for the missing two in vain."""
    read_five(cluster, bench)
    cluster.write(4)
    cluster.stable[tp(0)] = 5
    counted, past = bench.ask(), bench.past({tp(0): 9})
    bench.turns()
    cluster.ends[tp(0)] = 7
    del cluster.stable[tp(0)]
    bench.until(counted, past)
    assert isinstance(counted.exception(), TruncatedError)
    assert isinstance(past.exception(), TruncatedError)
    bench.until(bench.ask())
    assert bench.handed == [(0, 5), (0, 6)]


def test_a_topic_that_is_created_anew_is_read_from_its_beginning(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    bench.reader.failures = [TopicRecreatedError("another", topic=tp(0).topic)]
    cluster.recreate(partitions=3)
    cluster.write(1, partition=2)
    past = bench.past({tp(0): 9})
    bench.until(past)
    assert isinstance(past.exception(), TopicRecreatedError)
    bench.until(bench.ask())
    assert bench.handed == [(2, 0)]
    assert bench.work.positions == {tp(0): 0, tp(1): 0, tp(2): 1}
    assert len(bench.resets) == 1


def test_a_topic_that_is_created_anew_is_noticed_by_its_end_too(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    cluster.recreate(partitions=2)
    cluster.write(1)
    bench.reader.most = 0
    waiter = bench.ask()
    bench.turns()
    assert isinstance(waiter.exception(0), TopicRecreatedError)
    bench.until(bench.ask())
    assert bench.handed == [(0, 0)]
    assert len(bench.resets) == 1


def test_the_end_of_another_topic_of_that_name_is_nobodys_end(cluster: FakeCluster, bench: Bench) -> None:
    """The reader has not noticed yet, and the new log is as long as the old one was."""
    read_five(cluster, bench)
    bench.until(bench.ask())
    cluster.recreate(partitions=2)
    cluster.write(5)
    waiter = bench.ask()
    bench.turns()
    assert isinstance(waiter.exception(0), TopicRecreatedError)
    bench.until(bench.ask())
    assert bench.handed == [(0, each) for each in range(5)]


def test_an_end_before_what_was_read_is_nobodys_end(cluster: FakeCluster, bench: Bench) -> None:
    """The end was not looked up since, and the reader has not noticed yet: who asks is not told that all is read."""
    cluster.write(5)
    bench.turns(2)
    assert bench.work.positions[tp(0)] == 5
    cluster.ends[tp(0)] = 4  # cut back to 2, and 2 others in their place
    waiter = bench.ask()
    bench.turns(20)
    assert not waiter.done()
    bench.reader.failures = [cut(at=2)]
    bench.until(waiter)
    assert isinstance(waiter.exception(0), TruncatedError)


def test_a_cut_that_begins_later_than_what_was_read_is_one_somewhere(cluster: FakeCluster, bench: Bench) -> None:
    """The new leader has not even the epoch that was read, and its log goes on longer in an older one."""
    read_five(cluster, bench)
    cluster.write(15)
    bench.reader.failures = [cut(at=20)]
    bench.until(bench.past({tp(0): 9}))
    bench.until(bench.ask())
    assert bench.handed == [(0, each) for each in range(20)]  # since where it was another one nobody knows


def test_a_record_written_before_what_was_read_tells_of_another_topic(cluster: FakeCluster, bench: Bench) -> None:
    """Who waits for it is not told that it was read, though the position lies behind it."""
    read_five(cluster, bench)
    cluster.recreate(partitions=2)
    cluster.write(1)
    bench.work.doubt(tp(0), 0, bench.work.incarnation)
    assert bench.work.in_doubt
    past = bench.past({tp(0): 1})
    bench.until(past)
    assert isinstance(past.exception(), TopicRecreatedError)
    assert not bench.work.in_doubt
    again = bench.past({tp(0): 1})
    bench.until(again)
    assert again.exception() is None
    assert bench.handed == [(0, 0)]


def test_a_record_written_before_what_was_read_tells_of_a_cut(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    bench.work.doubt(tp(0), 3, bench.work.incarnation)
    past = bench.past({tp(0): 4})
    bench.turns(5)
    assert not past.done()
    error = cut(at=2)
    bench.reader.failures = [error]
    bench.until(past)
    assert past.exception() is error
    bench.until(bench.past({tp(0): 4}))
    assert bench.handed == [(0, 2), (0, 3), (0, 4)]


def test_a_cut_that_the_reader_does_not_find_is_believed_all_the_same(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    bench.work.doubt(tp(0), 3, bench.work.incarnation)
    began = cluster.system.now
    past = bench.past({tp(0): 4})
    bench.until(past)
    assert isinstance(past.exception(), TruncatedError)
    assert 10 <= cluster.system.now - began < 15
    bench.until(bench.ask())
    assert bench.handed == [(0, each) for each in range(5)]


def test_what_was_sent_before_records_were_taken_back_is_no_doubt(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    before = bench.work.incarnation
    bench.reader.failures = [cut(at=3)]
    bench.turns(2)
    bench.work.doubt(tp(0), 3, before)
    assert not bench.work.in_doubt


def test_who_is_told_that_records_were_taken_back_finds_it_done(cluster: FakeCluster, bench: Bench) -> None:
    """A position of before would tell them at once that they have what they ask for next."""
    read_five(cluster, bench)
    bench.reader.failures = [cut(at=3)]
    found: list[Any] = []
    past = bench.past({tp(0): 9})
    past.add_done_callback(lambda _: found.append((bench.work.positions[tp(0)], len(bench.resets))))
    bench.until(past)
    assert found == [(3, 1)]
