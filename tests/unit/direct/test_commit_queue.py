"""The queue of commitAsync and commitSync: when offsets are sent, and when callbacks are called."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from tests.unit.spark.commit_cluster import CommitCluster

from pyspark_kafka_direct.direct import ConsumerStrategies
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stream_client import create_stream_client
from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
def cluster() -> Iterator[CommitCluster]:
    with CommitCluster() as cluster:
        yield cluster


@pytest.fixture
def queue(cluster: CommitCluster) -> CommitQueue:
    params = {"bootstrap.servers": "broker-1:9092", "group.id": "shop"}
    strategy = ConsumerStrategies.Subscribe(["t"], params)
    return create_stream_client(strategy, cluster.pool).commits


def test_nothing_is_sent_before_the_next_batch(cluster: CommitCluster, queue: CommitQueue) -> None:
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    cluster.sleep(60)
    assert (cluster.commits, callback.calls) == ([], [])
    queue.send()
    assert queue.flush(10)
    assert cluster.commits == [{A: 5}]
    assert callback.calls == [({A: 5}, None)]
    threads = len(cluster.world.tasks)
    assert queue.flush(10)
    assert len(cluster.commits) == 1, "committed offsets are not sent again"
    assert len(cluster.world.tasks) == threads, "no thread is started for nothing"


@pytest.mark.parametrize("ends", [(3, 9, 5), (9, 5, 3), (3, 5, 9)])
@pytest.mark.parametrize("how", ["calls", "one call", "sync"])
def test_the_highest_offset_of_each_partition_is_committed(
    cluster: CommitCluster, queue: CommitQueue, ends: tuple[int, ...], how: str
) -> None:
    several = [OffsetRange("t", 0, 0, end) for end in ends] + ranges(b=2)
    if how == "sync":
        queue.commit_sync(several)
    else:
        for each in [[one] for one in several] if how == "calls" else [several]:
            queue.add(each)
        assert queue.flush(10)
    assert cluster.commits == [{A: 9, B: 2}]


def test_empty_ranges_are_committed(cluster: CommitCluster, queue: CommitQueue) -> None:
    queue.add([OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 0, 0)])
    assert queue.flush(10)
    assert cluster.commits == [{A: 5, B: 0}]


def test_each_call_keeps_its_own_callback(cluster: CommitCluster, queue: CommitQueue) -> None:
    first, second = RecordingCallback(), RecordingCallback()
    queue.add(ranges(a=5), first)
    queue.add(ranges(a=6))
    queue.add(ranges(b=7), second)
    assert queue.flush(10)
    assert first.calls == second.calls == [({A: 6, B: 7}, None)]


def test_planning_does_not_wait_for_the_coordinator(cluster: CommitCluster, queue: CommitQueue) -> None:
    cluster.delay_commits(2)
    for end in (1, 2, 3):
        began = cluster.now
        queue.add(ranges(a=end))
        queue.send()
        assert cluster.now - began < 0.01
        cluster.sleep(0.1)
    assert not queue.flush(1), "the first commit is still in flight"
    assert queue.flush(20)
    assert cluster.commits == [{A: 1}, {A: 3}], "offsets queued in the meantime are sent together"


def test_errors_are_passed_to_the_callbacks(
    cluster: CommitCluster, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.reject_commits()
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    assert queue.flush(10)
    ((offsets, error),) = callback.calls
    assert offsets == {A: 5}
    assert isinstance(error, AuthorizationError)
    assert caplog.records == [], "the callback has received the error"
    queue.add(ranges(a=6), callback)
    assert queue.flush(10)
    assert callback.calls[1:] == [({A: 6}, None)]


def test_errors_without_a_callback_are_logged_as_warnings(
    cluster: CommitCluster, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.reject_commits()
    queue.add(ranges(b=1), RecordingCallback())
    queue.add(ranges(a=5))
    assert queue.flush(10)
    ((level, message),) = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert level == logging.WARNING
    assert message.startswith("offsets were not committed; the next commit includes them: GROUP_AUTHORIZATION_FAILED")


class Cancelled(BaseException):
    """A ``BaseException``, like ``asyncio.CancelledError``."""


@pytest.mark.parametrize("failure", [RuntimeError("callback"), SystemExit(1), Cancelled()], ids=repr)
def test_a_failing_callback_affects_no_other_callback_or_commit(
    cluster: CommitCluster, queue: CommitQueue, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def fail(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        raise failure

    callback = RecordingCallback()
    queue.add(ranges(a=5), fail)
    queue.add(ranges(a=5), callback)
    assert queue.flush(10)
    assert "a callback of commitAsync raised an exception" in caplog.text
    assert callback.calls == [({A: 5}, None)]
    queue.add(ranges(a=6))
    assert queue.flush(10)
    assert cluster.commits == [{A: 5}, {A: 6}]


@pytest.mark.parametrize(
    "given",
    [None, 5, "t", [None], [("t", 0, 0, 5)], ["t"], [TopicPartition("t", 0)], [OffsetRange("t", 0, 0, 5), B]],
    ids=repr,
)
def test_invalid_ranges_are_rejected(queue: CommitQueue, given: list[OffsetRange]) -> None:
    for commit in (queue.add, queue.commit_sync):
        with pytest.raises(OptionError, match=r"takes offset ranges, as returned by rdd.offsetRanges\(\), got"):
            commit(given)


def test_invalid_callbacks_are_rejected(queue: CommitQueue) -> None:
    with pytest.raises(OptionError, match="callback of commitAsync must be a function"):
        queue.add(ranges(a=5), "callback")  # type: ignore[arg-type]


def test_commits_without_a_group_are_rejected() -> None:
    queue = CommitQueue(None)
    with pytest.raises(OptionError, match=r"commitAsync requires a consumer group: set group\.id"):
        queue.add(ranges(a=5))
    with pytest.raises(OptionError, match="commitSync requires a consumer group"):
        queue.commit_sync(ranges(a=5))
    queue.send()
    assert queue.flush(1), "a stop has nothing to commit"


def test_a_callback_may_commit(cluster: CommitCluster, queue: CommitQueue) -> None:
    def commit_more(offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        queue.add(ranges(b=1))
        queue.commit_sync(ranges(b=2))

    queue.add(ranges(a=5), commit_more)
    assert queue.flush(10)
    assert cluster.commits == [{A: 5}, {B: 2}]


def test_a_flush_ends_at_its_timeout_and_so_do_its_commits(
    cluster: CommitCluster, queue: CommitQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit that was sent before has the default timeout, default.api.timeout.ms."""
    cluster.every("OffsetCommit", "stall_request")
    first, second = RecordingCallback(), RecordingCallback()
    queue.add(ranges(a=5), first)
    queue.send()
    cluster.sleep(1)
    queue.add(ranges(a=6), second)
    began = cluster.now
    assert not queue.flush(5)
    assert cluster.now - began == pytest.approx(5, abs=0.1)
    assert "not committed before the timeout of the stop" in caplog.text
    assert first.calls == []
    cluster.sleep(70)
    for callback, end in ((first, 5), (second, 6)):
        ((offsets, error),) = callback.calls
        assert offsets == {A: end}
        assert isinstance(error, BrokerTimeoutError)
    assert cluster.commits == []


def test_the_caller_commits_if_no_thread_can_be_started(
    cluster: CommitCluster, queue: CommitQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example at the exit of the interpreter since Python 3.12."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(cluster.process, "start_thread", fail)
    callback = RecordingCallback()
    queue.add(ranges(a=5), callback)
    assert queue.flush(10)
    assert cluster.commits == [{A: 5}]
    assert callback.calls == [({A: 5}, None)]


class TestSync:
    def test_it_commits_immediately_together_with_queued_offsets(
        self, cluster: CommitCluster, queue: CommitQueue
    ) -> None:
        # Sent later, they would set the group back.
        callback = RecordingCallback()
        queue.add(ranges(a=3, b=9), callback)
        queue.commit_sync(ranges(a=5))
        assert cluster.commits == [{A: 5, B: 9}]
        assert callback.calls == [({A: 5, B: 9}, None)]
        assert queue.flush(10)
        assert len(cluster.commits) == 1

    def test_it_does_not_overtake_a_commit_in_flight(self, cluster: CommitCluster, queue: CommitQueue) -> None:
        cluster.fault("OffsetCommit", "delay_response", seconds=2.0)
        queue.add(ranges(a=3))
        queue.send()
        cluster.sleep(1)
        queue.commit_sync(ranges(a=5))
        first, second = cluster.arrivals("OffsetCommit")
        assert second.at - first.at > 1.9
        assert cluster.commits == [{A: 3}, {A: 5}]

    def test_errors_are_raised_and_passed_to_callbacks(self, cluster: CommitCluster, queue: CommitQueue) -> None:
        cluster.reject_commits()
        callback = RecordingCallback()
        queue.add(ranges(b=1), callback)
        with pytest.raises(AuthorizationError) as raised:
            queue.commit_sync(ranges(a=5))
        assert callback.calls == [({A: 5, B: 1}, raised.value)]

    def test_a_stop_waits_for_that_of_another_thread(self, cluster: CommitCluster, queue: CommitQueue) -> None:
        callback = RecordingCallback()
        queue.add(ranges(a=5), callback)
        cluster.delay_commits(2)
        cluster.process.spawn("sync", lambda: queue.commit_sync(ranges(b=7)))
        cluster.sleep(0.5)
        assert not queue.flush(0.5), "it is in flight, on another thread"
        began = cluster.now
        assert queue.flush(10)
        assert cluster.now - began < 1.5
        assert (cluster.commits, callback.calls) == ([{A: 5, B: 7}], [({A: 5, B: 7}, None)])


def test_many_threads_may_commit(cluster: CommitCluster) -> None:
    """With real threads and a group that only records, because a simulated process runs one thread at a time."""
    commits: list[Mapping[TopicPartition, int]] = []
    group = cluster.group()
    group.commit = lambda offsets, **_: commits.append(offsets)  # type: ignore[method-assign]
    queue, callback = CommitQueue(group), RecordingCallback()

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
    assert max(commit[A] for commit in commits) == 400
