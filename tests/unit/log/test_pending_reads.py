"""Pending reads of a log."""

from __future__ import annotations

import pytest
from tests.unit.log.log_cluster import tp

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.log.log_state import LogState
from pyspark_kafka_direct.log.pending_reads import LogFuture, PendingReads
from pyspark_kafka_direct.planning.data_loss import lower_end_offsets


def new_future() -> LogFuture:
    return LogFuture(lambda: False, SYSTEM)


def test_a_read_can_be_activated_once_enough_sends_completed() -> None:
    pending_reads = PendingReads(SYSTEM)
    read, later = new_future(), new_future()
    pending_reads.add_read_to_end(later, sent_count=9)
    pending_reads.add_read_to_end(read, sent_count=3)
    assert [pending_reads.can_activate(completed_count) for completed_count in (2, 3, 4)] == [False, True, True]
    assert pending_reads.activate(3)
    assert not pending_reads.can_activate(3)


def test_removed_reads_are_no_longer_pending() -> None:
    pending_reads = PendingReads(SYSTEM)
    first, second, third = new_future(), new_future(), new_future()
    pending_reads.add_read_to_end(first)
    pending_reads.activate(0)
    pending_reads.add_read_to_end(second)
    pending_reads.add_read_past(third, {tp(0): 3})
    assert pending_reads.unreached_offsets({tp(0): 1}) == {tp(0): 3}
    for each in (first, second, third):
        assert pending_reads.has_pending
        pending_reads.remove(each)
    assert not pending_reads.has_pending
    assert pending_reads.unreached_offsets({}) == {}


@pytest.mark.parametrize("state", ["queued", "active", "past"])
def test_the_other_reads_stay_pending_when_one_is_removed(state: str) -> None:
    pending_reads = PendingReads(SYSTEM)
    reads = [new_future() for _ in range(3)]
    for each in reads:
        if state == "past":
            pending_reads.add_read_past(each, {tp(0): 3})
        else:
            pending_reads.add_read_to_end(each)
    if state == "active":
        pending_reads.activate(0)
    pending_reads.remove(reads[0])
    error = ValueError()
    pending_reads.fail_all(error)
    assert [each.done() for each in reads] == [False, True, True]
    assert not pending_reads.has_pending
    assert not pending_reads.has_queued


def test_reads_past_an_offset_of_a_missing_partition_fail_and_the_others_stay() -> None:
    pending_reads = PendingReads(SYSTEM)
    waits = [{tp(0): 3}, {tp(1): 3}, {tp(2): 1, tp(1): 1}, {tp(2): 3}]
    reads = [new_future() for _ in waits]
    for each, offsets in zip(reads, waits, strict=True):
        pending_reads.add_read_past(each, offsets)
    pending_reads.fail_waiting_for(tp(1), ValueError())
    assert [each.done() for each in reads] == [False, True, True, False]
    assert pending_reads.unreached_offsets({}) == {tp(0): 3, tp(2): 3}
    pending_reads.fail_active(ValueError())
    assert all(each.done() for each in reads)
    assert not pending_reads.has_pending


def test_a_read_that_nobody_waits_for_is_dropped() -> None:
    """Such as after a timeout, which callers of ``result`` may repeat while no broker responds."""
    pending_reads = PendingReads(SYSTEM)
    called: list[object] = []
    for activated in (False, True):
        with pytest.raises(TimeoutError):
            add_read_to_end(pending_reads).result(0)
        pending_reads.activate(0)
        assert not pending_reads.has_pending, activated
    add_read_to_end(pending_reads).add_done_callback(called.append)
    add_read_to_end(pending_reads).add_done_callback(called.append)
    assert pending_reads.activate(0)
    kept = add_read_to_end(pending_reads)
    assert pending_reads.has_pending
    pending_reads.fail_all(ValueError())
    abandoned, kept = add_read_to_end(pending_reads), add_read_to_end(pending_reads)
    del abandoned
    assert pending_reads.has_pending
    pending_reads.fail_all(ValueError())
    assert (len(called), kept.done()) == (2, True)


@pytest.mark.parametrize("state", ["queued", "active", "active with known ends"])
def test_abandoned_reads_do_not_accumulate(state: str) -> None:
    """Also while an open transaction keeps the active reads from their ends."""
    pending_reads = PendingReads(SYSTEM)
    waiting = add_read_to_end(pending_reads)
    if state != "queued":
        assert pending_reads.activate(0)
    if state == "active with known ends":
        pending_reads.set_ends({tp(0): 5})
    for _ in range(1000):
        abandoned = add_read_to_end(pending_reads)
        pending_reads.activate(0)
        del abandoned
    assert retained_reads(pending_reads) <= 2
    assert not waiting.done()


def retained_reads(pending_reads: PendingReads) -> int:
    return sum(len(each) for each in vars(pending_reads).values() if isinstance(each, list))


def add_read_to_end(pending_reads: PendingReads) -> LogFuture:
    future = new_future()
    pending_reads.add_read_to_end(future)
    return future


def test_unreached_offsets() -> None:
    pending_reads = PendingReads(SYSTEM)
    first, second, third = (new_future() for _ in range(3))
    pending_reads.add_read_past(first, {tp(0): 3, tp(1): 1})
    pending_reads.add_read_past(second, {tp(0): 5})
    pending_reads.add_read_past(third, {tp(1): 1})
    read = add_read_to_end(pending_reads)
    pending_reads.activate(0)
    pending_reads.set_ends({tp(0): 4, tp(2): 2})
    assert pending_reads.unreached_offsets({tp(0): 2, tp(1): 1, tp(2): 0}) == {tp(0): 5, tp(2): 2}
    pending_reads.complete_reached(LogState(positions={tp(0): 3, tp(1): 1, tp(2): 2}))
    assert [each.done() for each in (first, second, third, read)] == [True, False, True, False]
    assert pending_reads.unreached_offsets({tp(0): 4, tp(2): 2}) == {tp(0): 5}


def test_truncated_ends() -> None:
    assert lower_end_offsets({}, {tp(0): 0}) == {}
    assert lower_end_offsets({tp(0): 5, tp(1): 5}, {tp(0): 5, tp(1): 4, tp(2): 0}) == {tp(1): 4}


def test_a_future_rejects_waiting_in_its_own_thread() -> None:
    own_thread_future = LogFuture(lambda: True, SYSTEM)
    assert not own_thread_future.cancel()
    with pytest.raises(IllegalLogStateError):
        own_thread_future.result()
    with pytest.raises(IllegalLogStateError):
        own_thread_future.exception()
    own_thread_future.complete(None)
    own_thread_future.complete(ValueError())  # already completed
    assert own_thread_future.exception() is None
