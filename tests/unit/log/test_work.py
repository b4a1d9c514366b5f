"""The thread of a log, turn by turn: the rules of Kafka Connect's ``KafkaBasedLog``, and ours beyond."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.clusters import LOOK_UP, Bench, FakeCluster, read_five, tp

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    LogStateError,
    OptionError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.log._future import LogFuture


def test_what_is_there_is_read_first(cluster: FakeCluster) -> None:
    cluster.write(3, partition=0)
    cluster.write(2, partition=1)
    bench = Bench(cluster)
    loaded = bench.ask()
    bench.until(loaded)
    assert loaded.exception() is None
    assert bench.handed == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert cluster.questions == ["topics", "start", *LOOK_UP]


def test_a_log_without_new_records_is_never_polled() -> None:
    cluster = FakeCluster(2, start=7)
    bench = Bench(cluster)
    loaded = bench.ask()
    bench.work._ask()
    bench.work._tell_reached()
    assert loaded.done()
    assert bench.work.positions == {tp(0): 7, tp(1): 7}
    assert bench.reader.polls == []


def test_who_is_at_the_end_is_told_before_the_next_poll(cluster: FakeCluster, bench: Bench) -> None:
    waiter = bench.ask()
    told: list[bool] = []
    bench.reader.before_poll = lambda: told.append(waiter.done())
    bench.turns()
    assert told == [True]


def test_a_poll_is_long_unless_somebody_waits(cluster: FakeCluster, bench: Bench) -> None:
    bench.turns()
    bench.past({tp(0): 1})
    bench.turns()
    assert bench.reader.polls[-2:] == [30, 2]


def test_empty_polls_do_no_harm(cluster: FakeCluster) -> None:
    cluster.write(3)
    bench = Bench(cluster)
    loaded = bench.ask()
    bench.work._ask()
    bench.reader.most = 0
    bench.turns(5)
    assert not loaded.done()
    bench.reader.most = 1
    bench.until(loaded)
    assert bench.handed == [(0, 0), (0, 1), (0, 2)]


def test_who_asks_meanwhile_waits_for_the_next_end(cluster: FakeCluster, bench: Bench) -> None:
    cluster.write(2)
    bench.reader.most = 1
    first = bench.ask()
    bench.turns()  # counts, looks up 2, reads one
    cluster.write(1)
    second = bench.ask()
    bench.until(first)
    assert bench.handed == [(0, 0), (0, 1)]
    assert not second.done()
    bench.until(second)
    assert bench.handed == [(0, 0), (0, 1), (0, 2)]
    assert cluster.questions == LOOK_UP * 2


def test_all_who_asked_before_are_told_together_and_in_order(cluster: FakeCluster, bench: Bench) -> None:
    cluster.write(2)
    told: list[int] = []
    waiters = [bench.ask() for _ in range(3)]
    for number, waiter in enumerate(waiters):
        waiter.add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
    bench.until(*waiters)
    assert told == [0, 1, 2]
    assert cluster.questions == LOOK_UP


def test_nobody_is_counted_before_what_they_sent_is_settled(cluster: FakeCluster, bench: Bench) -> None:
    later, at_once = bench.ask(sent=2), bench.ask(sent=0)
    bench.turns(2)
    assert at_once.done()
    assert not later.done()
    cluster.write(2)
    bench.settled = 2
    bench.until(later)
    assert bench.handed == [(0, 0), (0, 1)]


def test_ends_that_were_looked_up_for_nobody_are_waited_for_by_nobody(cluster: FakeCluster, bench: Bench) -> None:
    """While what was sent is not settled, ends are looked up to see whether the log was cut back, no more."""
    cluster.write(5)
    cluster.stable[tp(0)] = 2
    waiter = bench.ask(sent=1)
    bench.turns(10)
    assert cluster.questions.count("end") >= 2
    assert bench.requests.ends is None
    bench.settled = 1
    bench.turns()
    assert bench.requests.ends == {tp(0): 5, tp(1): 0}
    cluster.stable.clear()
    bench.until(waiter)


def test_an_open_transaction_is_waited_for(cluster: FakeCluster, bench: Bench) -> None:
    cluster.write(5)
    cluster.stable[tp(0)] = 2
    waiter = bench.ask()
    bench.turns(20)
    assert not waiter.done()
    cluster.stable[tp(0)] = 5
    bench.until(waiter)


def test_trouble_that_passes_is_tried_again_and_who_asks_meanwhile_joins(cluster: FakeCluster, bench: Bench) -> None:
    cluster.failures = [BrokerTimeoutError("slow"), BrokerUnreachableError("away"), TimeoutError()]
    first = bench.ask()
    bench.turns()
    second = bench.ask()
    cluster.write(1)
    bench.until(first, second)
    assert (first.exception(), second.exception()) == (None, None)
    assert cluster.questions == [*["end"] * 3, *LOOK_UP]
    assert bench.errors == []


def test_patience_grows_with_a_slow_cluster(cluster: FakeCluster, bench: Bench) -> None:
    cluster.failures = [BrokerTimeoutError("slow")] * 6
    cluster.patience.clear()
    bench.until(bench.ask())
    bench.until(bench.ask())
    assert cluster.patience == [5, 10, 20, 40, 60, 60, 60, 5]


def test_reading_goes_on_while_the_end_cannot_be_looked_up(cluster: FakeCluster, bench: Bench) -> None:
    cluster.failures = [BrokerTimeoutError("slow")] * 3
    cluster.write(2)
    waiter = bench.ask()
    bench.turns()
    assert bench.handed == [(0, 0), (0, 1)]
    assert not waiter.done()
    bench.until(waiter)


def test_another_failure_is_theirs_who_are_counted_and_the_work_goes_on(cluster: FakeCluster, bench: Bench) -> None:
    """1st succeeds, 2nd fails, and a 3rd that is asked for in the failing callback succeeds."""
    first = bench.ask()
    bench.until(first)
    third = []
    error = AuthorizationError("no")
    cluster.failures = [error]
    second = bench.ask()
    second.add_done_callback(lambda _: third.append(bench.ask()))
    bench.until(second)
    assert second.exception() is error
    bench.until(third[0])
    assert third[0].exception() is None
    assert bench.errors == [error]


def test_an_error_of_reading_is_told_and_tried_again(cluster: FakeCluster, bench: Bench) -> None:
    error = CorruptRecordError("bad")
    cluster.write(1)
    bench.reader.failures = [error, error]
    waiter = bench.ask()
    bench.until(waiter)
    assert waiter.exception() is error
    again = bench.ask()
    bench.until(again)
    bench.until(bench.ask())
    assert bench.errors == [error, error]
    assert bench.handed == [(0, 0)]


def test_an_error_of_reading_does_not_make_it_spin(cluster: FakeCluster, bench: Bench) -> None:
    bench.reader.failures = [AuthorizationError("no")] * 1000
    began = cluster.system.now
    bench.turns(40)
    polls = 1000 - len(bench.reader.failures)
    assert polls <= 20
    assert cluster.system.now - began > polls / 2


def test_transient_trouble_of_reading_is_nobodys(cluster: FakeCluster, bench: Bench) -> None:
    bench.reader.failures = [BrokerUnreachableError("away")] * 3
    cluster.write(1)
    waiter = bench.ask()
    bench.until(waiter)
    assert waiter.exception() is None
    assert bench.errors == []


def test_a_record_whose_function_raises_fails_the_counted_and_the_next_follow(cluster: FakeCluster) -> None:
    seen: list[int] = []

    def apply(record: LogRecord) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            raise ZeroDivisionError

    bench = Bench(cluster, on_record=apply)
    cluster.write(4)
    waiter, later = bench.ask(), bench.ask(sent=1)
    bench.until(waiter)
    assert isinstance(waiter.exception(), ZeroDivisionError)
    assert not later.done()  # was not counted yet
    assert seen == [0, 1, 2, 3]
    again = bench.ask()
    bench.until(again)
    assert again.exception() is None
    assert seen == [0, 1, 2, 3]


def test_a_topic_that_is_gone_fails_those_who_wait_and_is_found_again(cluster: FakeCluster, bench: Bench) -> None:
    read_five(cluster, bench)
    before, cluster.topic_id = cluster.topic_id, None
    bench.reader.failures = [TopicNotFoundError("gone")]
    waiter = bench.ask()
    bench.turns()
    waiter = bench.ask()
    bench.until(waiter)
    assert isinstance(waiter.exception(), TopicNotFoundError)
    late = bench.ask()
    bench.until(late)
    assert isinstance(late.exception(), TopicNotFoundError)
    assert len(bench.errors) == 1
    cluster.topic_id = before  # it was there all the time
    cluster.write(1)
    bench.turns(20)
    assert bench.handed == [(0, 5)]
    assert bench.resets == []


def test_brokers_that_deny_the_topic_for_a_moment_are_not_believed(cluster: FakeCluster, bench: Bench) -> None:
    cluster.failures = [TopicNotFoundError("not yet")] * 4
    waiter = bench.ask()
    bench.until(waiter)
    assert waiter.exception() is None


def test_a_new_topic_is_waited_for_half_a_minute(cluster: FakeCluster) -> None:
    there, cluster.topic_id = cluster.topic_id, None
    began = cluster.system.now
    bench = Bench(cluster)
    loaded = bench.ask()
    while cluster.system.now < began + 25:
        bench.turns()
    assert not loaded.done()
    cluster.topic_id = there
    bench.until(loaded)
    assert loaded.exception() is None


def test_a_topic_that_never_comes_is_an_error(cluster: FakeCluster) -> None:
    cluster.topic_id = None
    began = cluster.system.now
    bench = Bench(cluster)
    loaded = bench.ask()
    bench.until(loaded)
    with pytest.raises(TopicNotFoundError, match="Create it"):
        loaded.result()
    assert 30 <= cluster.system.now - began < 35


def test_a_broker_that_cannot_tell_the_end_is_asked_once(cluster: FakeCluster) -> None:
    """There is no fallback to an end that is another one."""
    bench = Bench(cluster)
    error = UnsupportedBrokerError("too old")
    loaded = bench.ask()
    bench.turns()
    bench.until(loaded)
    cluster.questions.clear()
    cluster.failures = [error]
    waiter = bench.ask()
    bench.until(waiter)
    assert waiter.exception() is error
    assert cluster.questions == ["end"]


def test_a_filter_that_leaves_nothing_is_an_error(cluster: FakeCluster) -> None:
    bench = Bench(cluster, wanted=lambda number: number > 5)
    loaded = bench.ask()
    bench.until(loaded)
    with pytest.raises(OptionError, match="none of the topic's 2"):
        loaded.result()


def test_only_the_wanted_partitions_are_read(cluster: FakeCluster) -> None:
    cluster.write(1, partition=0)
    cluster.write(1, partition=1)
    bench = Bench(cluster, wanted=lambda number: number == 1)
    bench.until(bench.ask())
    assert bench.handed == [(1, 0)]
    assert bench.work.positions == {tp(1): 1}


def test_nobody_is_told_twice_or_forgotten_when_the_work_is_abandoned(cluster: FakeCluster, bench: Bench) -> None:
    told: list[LogFuture] = []
    stopped = LogStateError("stopped")
    waiters = [bench.ask() for _ in range(3)]
    late = []

    def stop(_: object) -> None:  # while a callback is held up
        late.append(bench.ask())
        bench.work.abandon(stopped)

    waiters[0].add_done_callback(stop)
    for waiter in waiters:
        waiter.add_done_callback(told.append)  # type: ignore[arg-type]
    bench.until(waiters[0])
    assert told[:2] == waiters[1:]
    assert told[2:] == waiters[:1]
    assert [waiter.exception(0) for waiter in waiters] == [None] * 3
    assert late[0].exception(0) is stopped
    assert not bench.work.held_up


def test_a_callback_that_ends_its_thread_ends_only_itself(
    cluster: FakeCluster, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.ask(), bench.ask()
    first.add_done_callback(lambda _: sys.exit())
    bench.until(second)
    assert second.exception(0) is None
    assert "A callback of a log's future has failed" in caplog.text


@pytest.mark.parametrize("seed", range(30))
def test_the_end_is_never_told_early(seed: int) -> None:
    """Whoever is told has been handed all that was there when they asked, whatever happens in between."""
    chance = random.Random(seed)
    cluster = FakeCluster(3)
    bench = Bench(cluster)
    bench.until(bench.ask())
    bench.reader.most = chance.randint(1, 3)
    asked: list[tuple[Any, dict[Any, int]]] = []
    done = 0
    for _ in range(600):
        match chance.randrange(8):
            case 0 | 1 | 2:
                cluster.write(chance.randint(1, 5), partition=chance.randrange(3))
            case 3:
                partition = tp(chance.randrange(3))
                cluster.stable[partition] = bench.work.positions[partition]  # a transaction is open
            case 4:
                cluster.stable.clear()
            case 5 if chance.random() < 0.3:
                kind = chance.choice([BrokerTimeoutError, BrokerUnreachableError, AuthorizationError])
                chance.choice([cluster.failures, bench.reader.failures]).append(kind("trouble"))
            case _:
                asked.append((bench.ask(), dict(cluster.ends)))
        if chance.random() < 0.7:
            bench.turns()
        for waiter, ends in asked:
            if waiter.done() and waiter.exception() is None:
                done += 1
                assert all(bench.work.positions[each] >= end for each, end in ends.items())
                handed = set(bench.handed)
                assert all((each.partition, offset) in handed for each, end in ends.items() for offset in range(end))
        asked = [(waiter, ends) for waiter, ends in asked if not waiter.done()]
    assert done > 5
