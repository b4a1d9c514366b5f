"""The queue behind commitAsync and commitSync: what is sent when, and who is told."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.systems import Sleepless

from pyspark_kafka_direct.direct import ConsumerStrategies
from pyspark_kafka_direct.direct._commits import CommitQueue
from pyspark_kafka_direct.direct._wire import connect
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.wire.pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.deadline import Deadline

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Takes commits, when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)
        self.failures: list[Exception] = []
        self.commits: list[dict[TopicPartition, int]] = []
        self.deadlines: list[Deadline | None] = []

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        self.deadlines.append(deadline)
        self.asked.release()
        assert self.open.wait(30)
        if self.failures:
            raise self.failures.pop(0)
        self.commits.append(dict(offsets))


class Told:
    """A callback that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Mapping[TopicPartition, int], Exception | None]] = []

    def __call__(self, offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        self.calls.append((offsets, error))


def ranges(**until: int) -> list[OffsetRange]:
    """``ranges(a=5, b=7)``: from 0 to 5 of partition A, and to 7 of B."""
    return [OffsetRange("t", {"a": 0, "b": 1}[name], 0, end) for name, end in until.items()]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def queue(coordinator: Coordinator) -> CommitQueue:
    return CommitQueue(coordinator)


def test_nothing_is_sent_before_the_next_batch(coordinator: Coordinator, queue: CommitQueue) -> None:
    told = Told()
    queue.add(ranges(a=5), told)
    assert not coordinator.asked.acquire(timeout=0.1)
    assert (coordinator.commits, told.calls) == ([], [])
    queue.send()
    assert queue.flush(30)
    assert coordinator.commits == [{A: 5}]
    assert told.calls == [({A: 5}, None)]


def test_the_highest_of_each_partition_wins(coordinator: Coordinator, queue: CommitQueue) -> None:
    queue.add(ranges(a=5, b=9))
    queue.add(ranges(a=8))
    queue.add([*ranges(a=7), *ranges(a=6), *ranges(b=2)])
    assert queue.flush(30)
    assert coordinator.commits == [{A: 8, B: 9}]


def test_empty_ranges_are_committed_too(coordinator: Coordinator, queue: CommitQueue) -> None:
    queue.add([OffsetRange("t", 0, 5, 5)])
    assert queue.flush(30)
    assert coordinator.commits == [{A: 5}]


def test_each_call_keeps_its_own_callback(coordinator: Coordinator, queue: CommitQueue) -> None:
    first, second = Told(), Told()
    queue.add(ranges(a=5), first)
    queue.add(ranges(a=6))
    queue.add(ranges(b=7), second)
    assert queue.flush(30)
    assert first.calls == second.calls == [({A: 6, B: 7}, None)]


def test_what_is_sent_is_not_sent_again(coordinator: Coordinator, queue: CommitQueue) -> None:
    queue.add(ranges(a=5))
    for _ in range(3):
        assert queue.flush(30)
    assert coordinator.commits == [{A: 5}]


def test_planning_does_not_wait_for_the_coordinator(coordinator: Coordinator, queue: CommitQueue) -> None:
    coordinator.open.clear()
    queue.add(ranges(a=1))
    queue.send()
    assert coordinator.asked.acquire(timeout=30)
    for end in (2, 3):
        queue.add(ranges(a=end))
        queue.send()
    assert not queue.flush(0.05), "it is still waiting"
    coordinator.open.set()
    assert queue.flush(30)
    assert coordinator.commits == [{A: 1}, {A: 3}], "what came meanwhile goes together"


def test_failures_go_to_the_callbacks(
    coordinator: Coordinator, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    failure = BrokerTimeoutError("no answer")
    coordinator.failures.append(failure)
    told = Told()
    queue.add(ranges(a=5), told)
    assert queue.flush(30)
    assert told.calls == [({A: 5}, failure)]
    assert caplog.records == [], "the callback knows"
    queue.add(ranges(a=6), told)
    assert queue.flush(30)
    assert coordinator.commits == [{A: 6}]
    assert told.calls[1:] == [({A: 6}, None)]


def test_failures_nobody_waits_for_are_warnings(
    coordinator: Coordinator, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.failures.append(BrokerTimeoutError("no answer"))
    queue.add(ranges(a=5))
    assert queue.flush(30)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "offsets were not committed; a later commit covers them: no answer")
    ]


@pytest.mark.parametrize("failure", [RuntimeError("mine"), SystemExit(1)], ids=repr)
def test_a_callback_that_fails_harms_nobody(
    coordinator: Coordinator, queue: CommitQueue, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def fail(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        raise failure

    told = Told()
    queue.add(ranges(a=5), fail)
    queue.add(ranges(a=5), told)
    assert queue.flush(30)
    assert "a callback of commitAsync failed" in caplog.text
    assert told.calls == [({A: 5}, None)]
    queue.add(ranges(a=6))
    assert queue.flush(30)
    assert coordinator.commits == [{A: 5}, {A: 6}]


def test_what_is_no_range_and_no_callback_is_refused(queue: CommitQueue) -> None:
    for given in (None, 5, "t", [None], [("t", 0, 0, 5)]):
        with pytest.raises(OptionError, match="commitAsync takes offset ranges"):
            queue.add(given)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="callback of commitAsync must be a function"):
        queue.add(ranges(a=5), "told")  # type: ignore[arg-type]


def test_a_callback_may_commit(coordinator: Coordinator, queue: CommitQueue) -> None:
    def more(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        queue.add(ranges(b=1))
        queue.commit_sync(ranges(b=2))

    queue.add(ranges(a=5), more)
    assert queue.flush(30)
    assert coordinator.commits == [{A: 5}, {B: 2}]


def test_what_nobody_answers_ends_the_wait(
    coordinator: Coordinator, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.open.clear()
    queue.add(ranges(a=5))
    began = time.monotonic()
    assert not queue.flush(0.2)
    assert time.monotonic() - began < 20
    assert "not committed in the time that a stop has for it" in caplog.text
    coordinator.open.set()


def test_commits_are_sent_where_the_streams_brokers_are(coordinator: Coordinator) -> None:
    """Whoever has a deadline sleeps and dials in its system."""
    world = Sleepless()
    queue = CommitQueue(coordinator, world)
    queue.add(ranges(a=5))
    assert queue.flush(30)
    assert [deadline and deadline.system for deadline in coordinator.deadlines] == [world]
    pool = ConnectionPool(world)
    strategy = ConsumerStrategies.Subscribe(["t"], {"bootstrap.servers": "b:9092", "group.id": "g"})
    assert connect(strategy, pool).commits.deadline(3).system is world


def test_a_flush_has_one_deadline_for_all(coordinator: Coordinator, queue: CommitQueue) -> None:
    queue.add(ranges(a=5))
    queue.send()
    assert coordinator.asked.acquire(timeout=30)
    queue.add(ranges(a=6))
    assert queue.flush(30)
    first, second = coordinator.deadlines
    assert first is None, "its own: default.api.timeout.ms"
    assert second is not None
    assert second.remaining() < 30, "what a flush sends tries no longer than it waits"


def test_when_no_thread_can_be_started_the_caller_commits(
    coordinator: Coordinator, queue: CommitQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of an interpreter from Python 3.12 on."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    told = Told()
    queue.add(ranges(a=5), told)
    assert queue.flush(1)
    assert coordinator.commits == [{A: 5}]
    assert told.calls == [({A: 5}, None)]


class TestSync:
    def test_at_once(self, coordinator: Coordinator, queue: CommitQueue) -> None:
        queue.commit_sync(ranges(a=5, b=6))
        assert coordinator.commits == [{A: 5, B: 6}]

    def test_what_is_queued_goes_with_it(self, coordinator: Coordinator, queue: CommitQueue) -> None:
        # Sent later, it would take the group back.
        told = Told()
        queue.add(ranges(a=3, b=9), told)
        queue.commit_sync(ranges(a=5))
        assert queue.flush(30)
        assert coordinator.commits == [{A: 5, B: 9}]
        assert told.calls == [({A: 5, B: 9}, None)]

    def test_it_does_not_overtake_what_is_under_way(self, coordinator: Coordinator, queue: CommitQueue) -> None:
        coordinator.open.clear()
        queue.add(ranges(a=3))
        queue.send()
        assert coordinator.asked.acquire(timeout=30)
        sync = threading.Thread(target=queue.commit_sync, args=(ranges(a=5),))
        sync.start()
        assert not coordinator.asked.acquire(timeout=0.1)
        coordinator.open.set()
        sync.join(30)
        assert coordinator.commits == [{A: 3}, {A: 5}]

    def test_failures_are_raised_and_told(self, coordinator: Coordinator, queue: CommitQueue) -> None:
        failure = BrokerTimeoutError("no answer")
        coordinator.failures.append(failure)
        told = Told()
        queue.add(ranges(b=1), told)
        with pytest.raises(BrokerTimeoutError, match="no answer"):
            queue.commit_sync(ranges(a=5))
        assert told.calls == [({A: 5, B: 1}, failure)]


class TestRefused:
    def test_without_a_group(self) -> None:
        queue = CommitQueue(None)
        with pytest.raises(OptionError, match=r"commitAsync needs a consumer group .* give group\.id"):
            queue.add(ranges(a=5))
        with pytest.raises(OptionError, match="commitSync needs a consumer group"):
            queue.commit_sync(ranges(a=5))
        queue.send()
        assert queue.flush(1), "a stop has nothing to do"

    @pytest.mark.parametrize("given", [["t"], [("t", 0, 0, 5)], [TopicPartition("t", 0)]])
    def test_what_is_no_range(self, queue: CommitQueue, given: list[OffsetRange]) -> None:
        for commit in (queue.add, queue.commit_sync):
            with pytest.raises(OptionError, match=r"takes offset ranges, as rdd.offsetRanges\(\) gives them, got"):
                commit(given)


def test_many_threads(coordinator: Coordinator, queue: CommitQueue) -> None:
    told = Told()

    def add(first: int) -> None:
        for end in range(first, first + 50):
            queue.add(ranges(a=end), told)
            queue.send()

    threads = [threading.Thread(target=add, args=(1 + 50 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert queue.flush(30)
    assert len(told.calls) == 400
    assert max(commit[A] for commit in coordinator.commits) == 400


def test_a_stop_waits_for_what_a_commit_sync_has_taken_along(coordinator: Coordinator, queue: CommitQueue) -> None:
    told = Told()
    queue.add(ranges(a=5), told)
    coordinator.open.clear()
    syncing = threading.Thread(target=queue.commit_sync, args=(ranges(b=7),))
    syncing.start()
    assert coordinator.asked.acquire(timeout=30)
    assert not queue.flush(0.05), "it is under way, on another thread"
    coordinator.open.set()
    assert queue.flush(30)
    assert (coordinator.commits, told.calls) == ([{A: 5, B: 7}], [({A: 5, B: 7}, None)])
    syncing.join(30)


class Cancelled(BaseException):
    """Not an ``Exception``, as ``asyncio.CancelledError`` is none."""


def test_no_error_of_a_callback_ends_the_commits(coordinator: Coordinator, queue: CommitQueue) -> None:
    def cancelled(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        raise Cancelled

    queue.add(ranges(a=5), cancelled)
    assert queue.flush(30)
    queue.add(ranges(a=6))
    assert queue.flush(30)
    assert coordinator.commits == [{A: 5}, {A: 6}]
