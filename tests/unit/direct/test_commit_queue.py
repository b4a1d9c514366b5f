"""The queue of commitAsync and commitSync: when offsets are sent, and when callbacks are called."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_groups import FakeGroup
from tests.unit.client.fake_systems import NoSleepSystem

from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.direct import ConsumerStrategies
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stream_client import create_stream_client
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class RecordingCallback:
    """A callback that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Mapping[TopicPartition, int], Exception | None]] = []

    def __call__(self, offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        self.calls.append((offsets, error))


def ranges(**until: int) -> list[OffsetRange]:
    """``ranges(a=5, b=7)``: 0 to 5 of partition A, and 0 to 7 of B."""
    return [OffsetRange("t", {"a": 0, "b": 1}[name], 0, end) for name, end in until.items()]


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()


@pytest.fixture
def queue(group: FakeGroup) -> CommitQueue:
    return CommitQueue(group)


def test_nothing_is_sent_before_the_next_batch(group: FakeGroup, queue: CommitQueue) -> None:
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    assert not group.requested.acquire(timeout=0.1)
    assert (group.commits, callback.calls) == ([], [])
    queue.send()
    assert queue.flush(120)
    assert group.commits == [{A: 5}]
    assert callback.calls == [({A: 5}, None)]


def test_the_highest_offset_of_each_partition_is_committed(group: FakeGroup, queue: CommitQueue) -> None:
    queue.add(ranges(a=5, b=9))
    queue.add(ranges(a=8))
    queue.add([*ranges(a=7), *ranges(a=6), *ranges(b=2)])
    assert queue.flush(120)
    assert group.commits == [{A: 8, B: 9}]


@pytest.mark.parametrize("ends", [(3, 9, 5), (9, 5, 3), (3, 5, 9)])
@pytest.mark.parametrize("sync", [False, True])
def test_the_highest_offset_of_one_call_is_committed(
    group: FakeGroup, queue: CommitQueue, ends: tuple[int, ...], sync: bool
) -> None:
    several = [OffsetRange("t", 0, 0, end) for end in ends] + ranges(b=2)
    if sync:
        queue.commit_sync(several)
    else:
        queue.add(several)
        assert queue.flush(120)
    assert group.commits == [{A: 9, B: 2}]


def test_empty_ranges_are_committed(group: FakeGroup, queue: CommitQueue) -> None:
    queue.add([OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 0, 0)])
    assert queue.flush(120)
    assert group.commits == [{A: 5, TopicPartition("t", 1): 0}]


def test_each_call_keeps_its_own_callback(group: FakeGroup, queue: CommitQueue) -> None:
    first, second = RecordingCallback(), RecordingCallback()
    queue.add(ranges(a=5), first)
    queue.add(ranges(a=6))
    queue.add(ranges(b=7), second)
    assert queue.flush(120)
    assert first.calls == second.calls == [({A: 6, B: 7}, None)]


def test_committed_offsets_are_not_sent_again(group: FakeGroup, queue: CommitQueue) -> None:
    queue.add(ranges(a=5))
    for _ in range(3):
        assert queue.flush(120)
    assert group.commits == [{A: 5}]


def test_planning_does_not_wait_for_the_coordinator(group: FakeGroup, queue: CommitQueue) -> None:
    group.open.clear()
    queue.add(ranges(a=1))
    queue.send()
    assert group.requested.acquire(timeout=120)
    for end in (2, 3):
        queue.add(ranges(a=end))
        queue.send()
    assert not queue.flush(0.05), "the first commit is still in flight"
    group.open.set()
    assert queue.flush(120)
    assert group.commits == [{A: 1}, {A: 3}], "offsets queued in the meantime are sent together"


def test_errors_are_passed_to_the_callbacks(
    group: FakeGroup, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    error = BrokerTimeoutError("no response")
    group.errors.append(error)
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    assert queue.flush(120)
    assert callback.calls == [({A: 5}, error)]
    assert caplog.records == [], "the callback has received the error"
    queue.add(ranges(a=6), callback)
    assert queue.flush(120)
    assert group.commits == [{A: 6}]
    assert callback.calls[1:] == [({A: 6}, None)]


def test_errors_without_a_callback_are_logged_as_warnings(
    group: FakeGroup, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    group.errors.append(BrokerTimeoutError("no response"))
    queue.add(ranges(a=5))
    assert queue.flush(120)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "offsets were not committed; the next commit includes them: no response")
    ]


@pytest.mark.parametrize("failure", [RuntimeError("callback"), SystemExit(1)], ids=repr)
def test_a_failing_callback_does_not_affect_other_callbacks(
    group: FakeGroup, queue: CommitQueue, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def fail(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        raise failure

    callback = RecordingCallback()
    queue.add(ranges(a=5), fail)
    queue.add(ranges(a=5), callback)
    assert queue.flush(120)
    assert "a callback of commitAsync raised an exception" in caplog.text
    assert callback.calls == [({A: 5}, None)]
    queue.add(ranges(a=6))
    assert queue.flush(120)
    assert group.commits == [{A: 5}, {A: 6}]


def test_invalid_ranges_and_callbacks_are_rejected(queue: CommitQueue) -> None:
    for given in (None, 5, "t", [None], [("t", 0, 0, 5)]):
        with pytest.raises(OptionError, match="commitAsync takes offset ranges"):
            queue.add(given)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="callback of commitAsync must be a function"):
        queue.add(ranges(a=5), "callback")  # type: ignore[arg-type]


def test_a_callback_may_commit(group: FakeGroup, queue: CommitQueue) -> None:
    def commit_more(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        queue.add(ranges(b=1))
        queue.commit_sync(ranges(b=2))

    queue.add(ranges(a=5), commit_more)
    assert queue.flush(120)
    assert group.commits == [{A: 5}, {B: 2}]


def test_a_flush_ends_at_its_timeout(group: FakeGroup, queue: CommitQueue, caplog: pytest.LogCaptureFixture) -> None:
    group.open.clear()
    queue.add(ranges(a=5))
    assert not queue.flush(0.2)
    assert group.commits == []
    assert "not committed before the timeout of the stop" in caplog.text
    group.open.set()


def test_commits_use_the_system_of_the_stream(group: FakeGroup) -> None:
    """A caller with a deadline sleeps and connects in the deadline's system."""
    system = NoSleepSystem()
    queue = CommitQueue(group, system)
    queue.add(ranges(a=5))
    assert queue.flush(120)
    assert [deadline and deadline.system for deadline in group.deadlines] == [system]
    pool = ConnectionPool(system)
    strategy = ConsumerStrategies.Subscribe(["t"], {"bootstrap.servers": "b:9092", "group.id": "g"})
    assert create_stream_client(strategy, pool).commits.deadline(3).system is system


def test_a_flush_has_one_deadline_for_all_commits(group: FakeGroup, queue: CommitQueue) -> None:
    queue.add(ranges(a=5))
    queue.send()
    assert group.requested.acquire(timeout=120)
    queue.add(ranges(a=6))
    assert queue.flush(120)
    first, second = group.deadlines
    assert first is None, "the default, default.api.timeout.ms"
    assert second is not None
    assert second.remaining() < 120, "a commit of a flush has the deadline of the flush"


def test_the_caller_commits_if_no_thread_can_be_started(
    group: FakeGroup, queue: CommitQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example at the exit of the interpreter since Python 3.12."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", fail)
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    assert queue.flush(120)
    assert group.commits == [{A: 5}]
    assert callback.calls == [({A: 5}, None)]


class TestSync:
    def test_it_commits_immediately(self, group: FakeGroup, queue: CommitQueue) -> None:
        queue.commit_sync(ranges(a=5, b=6))
        assert group.commits == [{A: 5, B: 6}]

    def test_queued_offsets_are_committed_with_it(self, group: FakeGroup, queue: CommitQueue) -> None:
        # Sent later, they would set the group back.
        callback = RecordingCallback()
        queue.add(ranges(a=3, b=9), callback)
        queue.commit_sync(ranges(a=5))
        assert queue.flush(120)
        assert group.commits == [{A: 5, B: 9}]
        assert callback.calls == [({A: 5, B: 9}, None)]

    def test_it_does_not_overtake_a_commit_in_flight(self, group: FakeGroup, queue: CommitQueue) -> None:
        group.open.clear()
        queue.add(ranges(a=3))
        queue.send()
        assert group.requested.acquire(timeout=120)
        sync = threading.Thread(target=queue.commit_sync, args=(ranges(a=5),))
        sync.start()
        assert not group.requested.acquire(timeout=0.1)
        group.open.set()
        sync.join(120)
        assert group.commits == [{A: 3}, {A: 5}]

    def test_errors_are_raised_and_passed_to_callbacks(self, group: FakeGroup, queue: CommitQueue) -> None:
        error = BrokerTimeoutError("no response")
        group.errors.append(error)
        callback = RecordingCallback()
        queue.add(ranges(b=1), callback)
        with pytest.raises(BrokerTimeoutError, match="no response"):
            queue.commit_sync(ranges(a=5))
        assert callback.calls == [({A: 5, B: 1}, error)]


class TestRejected:
    def test_without_a_group(self) -> None:
        queue = CommitQueue(None)
        with pytest.raises(OptionError, match=r"commitAsync requires a consumer group: set group\.id"):
            queue.add(ranges(a=5))
        with pytest.raises(OptionError, match="commitSync requires a consumer group"):
            queue.commit_sync(ranges(a=5))
        queue.send()
        assert queue.flush(1), "a stop has nothing to commit"

    @pytest.mark.parametrize("given", [["t"], [("t", 0, 0, 5)], [TopicPartition("t", 0)]])
    def test_invalid_ranges(self, queue: CommitQueue, given: list[OffsetRange]) -> None:
        for commit in (queue.add, queue.commit_sync):
            with pytest.raises(OptionError, match=r"takes offset ranges, as returned by rdd.offsetRanges\(\), got"):
                commit(given)


def test_many_threads_may_commit(group: FakeGroup, queue: CommitQueue) -> None:
    callback = RecordingCallback()

    def add(first: int) -> None:
        for end in range(first, first + 50):
            queue.add(ranges(a=end), callback)
            queue.send()

    threads = [threading.Thread(target=add, args=(1 + 50 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert queue.flush(120)
    assert len(callback.calls) == 400
    assert max(commit[A] for commit in group.commits) == 400


def test_a_stop_waits_for_a_commit_sync_of_another_thread(group: FakeGroup, queue: CommitQueue) -> None:
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    group.open.clear()
    syncing = threading.Thread(target=queue.commit_sync, args=(ranges(b=7),))
    syncing.start()
    assert group.requested.acquire(timeout=120)
    assert not queue.flush(0.05), "it is in flight, on another thread"
    group.open.set()
    assert queue.flush(120)
    assert (group.commits, callback.calls) == ([{A: 5, B: 7}], [({A: 5, B: 7}, None)])
    syncing.join(120)


class Cancelled(BaseException):
    """A ``BaseException``, like ``asyncio.CancelledError``."""


def test_commits_continue_after_any_error_of_a_callback(group: FakeGroup, queue: CommitQueue) -> None:
    def cancelled(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        raise Cancelled

    queue.add(ranges(a=5), cancelled)
    assert queue.flush(120)
    queue.add(ranges(a=6))
    assert queue.flush(120)
    assert group.commits == [{A: 5}, {A: 6}]
