"""Who waits, what was sent, and when records that were sent are settled."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from tests.unit.log.clusters import tp

from pyspark_kafka_direct.errors import LogStateError
from pyspark_kafka_direct.log._future import LogFuture
from pyspark_kafka_direct.log._requests import Requests, Sends, cut_back


def waiter() -> LogFuture:
    return LogFuture(lambda: False)


def test_sends_are_settled_up_to_the_first_that_is_not() -> None:
    sends = Sends()
    receipts: list[Future[Any]] = [Future() for _ in range(4)]
    told: list[int] = []
    for receipt in receipts:
        sends.send(receipt, told.append)
    assert (sends.sent, sends.settled) == (4, 0)
    receipts[1].set_result(None)
    receipts[2].set_exception(ValueError())  # failed is settled too
    assert (sends.settled, told) == (0, [])
    receipts[0].set_result(None)
    assert (sends.settled, told) == (3, [3])
    receipts[3].set_result(None)
    assert (sends.settled, told) == (4, [3, 4])


def test_a_sender_is_told_before_a_record_counts_as_settled() -> None:
    """Whoever reads to the end then finds every callback of what was sent before called."""
    sends = Sends()
    done: Future[Any] = Future()
    done.set_result(None)
    later: Future[Any] = Future()
    failing: Future[Any] = Future()
    seen: list[int] = []
    told: list[int] = []

    def before(_: Future[Any]) -> None:
        seen.append(sends.settled)

    def fail(_: Future[Any]) -> None:
        raise ValueError

    sends.send(done, told.append, before)
    sends.send(later, told.append, before)
    sends.send(failing, told.append, fail)
    later.set_result(None)
    failing.set_result(None)  # the future logs what its callback raises; the record counts all the same
    assert (seen, told) == ([0, 1], [1, 2, 3])


def test_who_may_be_counted() -> None:
    requests = Requests()
    requests.to_end(waiter(), sent=3)
    assert [requests.may_be_counted(settled) for settled in (2, 3, 4)] == [False, True, True]
    assert requests.count(3)
    assert not requests.may_be_counted(3)


def test_who_is_forgotten_is_waited_for_no_longer() -> None:
    requests = Requests()
    first, second, third = waiter(), waiter(), waiter()
    requests.to_end(first)
    requests.count(0)
    requests.to_end(second)
    requests.past(third, {tp(0): 3})
    assert requests.behind({tp(0): 1}) == {tp(0): 3}
    for each in (first, second, third):
        assert requests.waiting
        requests.forget(each)
    assert not requests.waiting
    assert requests.behind({}) == {}


def test_what_is_still_waited_for() -> None:
    requests = Requests()
    requests.past(waiter(), {tp(0): 3, tp(1): 1})
    requests.past(waiter(), {tp(0): 5})
    requests.to_end(waiter())
    requests.count(0)
    requests.ends = {tp(0): 4, tp(2): 2}
    assert requests.behind({tp(0): 2, tp(1): 1, tp(2): 0}) == {tp(0): 5, tp(2): 2}
    assert requests.reached({tp(0): 3, tp(1): 1, tp(2): 2}) != []
    assert requests.behind({tp(0): 4, tp(2): 2}) == {tp(0): 5}


def test_ends_that_went_back() -> None:
    assert cut_back({}, {tp(0): 0}) == {}
    assert cut_back({tp(0): 5, tp(1): 5}, {tp(0): 5, tp(1): 4, tp(2): 0}) == {tp(1): 4}


def test_a_future_refuses_to_wait_in_its_own_thread() -> None:
    own = LogFuture(lambda: True)
    assert not own.cancel()
    with pytest.raises(LogStateError):
        own.result()
    with pytest.raises(LogStateError):
        own.exception()
    own.settle(None)
    own.settle(ValueError())  # too late
    assert own.exception() is None
