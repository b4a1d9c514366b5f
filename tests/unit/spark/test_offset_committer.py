"""Asynchronous commits for a query's group: the requests, and that they never affect the query."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.unit.spark.commit_cluster import CommitCluster

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.spark.offset_committer import (
    AsyncOffsetCommitter,
    GroupOffsetCommitter,
    PendingCommit,
    RunOffsetCommitter,
    latest_commits,
    min_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup

A, B = TopicPartition("t", 0), TopicPartition("u", 0)

_log = logging.getLogger("pyspark_kafka_direct.tests")


@pytest.fixture
def cluster() -> Iterator[CommitCluster]:
    with CommitCluster() as cluster:
        yield cluster


@pytest.fixture
def committer(cluster: CommitCluster) -> GroupOffsetCommitter:
    return GroupOffsetCommitter("shop", _log, cluster.process)


@pytest.fixture
def commits(cluster: CommitCluster, committer: GroupOffsetCommitter) -> RunOffsetCommitter:
    return committer.for_run(cluster.group)


def test_a_slow_coordinator_delays_no_batch(
    cluster: CommitCluster, committer: GroupOffsetCommitter, commits: RunOffsetCommitter
) -> None:
    cluster.delay_commits(1.5)
    began = cluster.now
    for offset in range(20):
        commits.commit_async({A: offset})
        commits.wait_for_commit()
    assert 0.4 < cluster.now - began < 0.6, "only the first wait is for a slow commit"
    assert committer.wait(20)
    assert cluster.commits == [{A: 0}, {A: 19}], "intermediate offsets are outdated"
    commits.commit_async({A: 19})
    assert committer.wait(20)
    assert len(cluster.commits) == 2
    cluster.delay_commits(0.3)
    commits.commit_async({A: 20})
    began = cluster.now
    commits.wait_for_commit()
    assert cluster.now - began > 0.25, "the next commit is waited for again"
    assert cluster.commits[2:] == [{A: 20}]


def test_errors_are_warnings_until_commits_succeed(
    cluster: CommitCluster,
    committer: GroupOffsetCommitter,
    commits: RunOffsetCommitter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, _log.name)
    cluster.reject_commits(2)
    for offset in (1, 2, 3, 4):
        commits.commit_async({A: offset})
        assert committer.wait(20)
    levels = [(each.levelname, each.getMessage().split(";")[0]) for each in caplog.records]
    assert levels == [
        ("WARNING", "cannot commit offsets of the group shop (commitGroupId)"),
        ("DEBUG", "cannot commit offsets of the group shop (commitGroupId)"),
        ("WARNING", "offsets of the group shop are committed again"),
    ]
    assert cluster.commits[-1] == {A: 4}


def test_a_topic_without_committed_offsets_is_logged(
    cluster: CommitCluster,
    committer: GroupOffsetCommitter,
    commits: RunOffsetCommitter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.group().commit({A: 3, B: 1})
    resumed_from = {A: 3, B: 1, TopicPartition("lost", 0): 2, TopicPartition("nothing-read", 0): 0}
    for offset in (9, 9, 10):
        commits.commit_async({A: 4, B: offset}, resumed_from=resumed_from)
        assert committer.wait(20)
    (warning,) = [record.getMessage() for record in caplog.records]
    expected = "this query has read lost before, but the group 'shop' (commitGroupId) has no offsets of it"
    assert warning.startswith(expected)


def test_merged_commits_keep_the_offsets_of_the_first() -> None:
    old, new = (RunOffsetCommitter.__new__(RunOffsetCommitter) for _ in range(2))
    first, second = PendingCommit(old, {A: 1}, {A: 1}), PendingCommit(old, {A: 2})
    assert latest_commits([first]) == [first]
    assert latest_commits([first, second]) == [PendingCommit(old, {A: 2}, {A: 1})]
    assert latest_commits([first, second, PendingCommit(new, {A: 1})]) == [PendingCommit(new, {A: 1})], (
        "the earlier commits were of another run"
    )


def test_a_commit_replaces_only_those_whose_partitions_it_covers() -> None:
    """The offsets of a query's last batch are not committed again later."""
    one, two = (RunOffsetCommitter.__new__(RunOffsetCommitter) for _ in range(2))
    of_one, of_two = PendingCommit(one, {A: 1}), PendingCommit(two, {B: 1})
    assert latest_commits([of_one, of_two]) == [of_one, of_two]
    assert latest_commits([of_one, of_two, PendingCommit(one, {A: 2})]) == [of_two, PendingCommit(one, {A: 2})], (
        "the latest is last"
    )
    assert latest_commits([of_one, of_two, PendingCommit(two, {A: 0, B: 2})]) == [PendingCommit(two, {A: 0, B: 2})]


def test_errors_of_one_query_do_not_affect_others_in_the_group(
    cluster: CommitCluster, committer: GroupOffsetCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    failing, fine = committer.for_run(cluster.group), committer.for_run(cluster.group)
    cluster.delay_commits(1)
    failing.commit_async({A: 1})
    cluster.sleep(0.5)
    cluster.fault("OffsetCommit", "error", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    failing.commit_async({A: 2})
    fine.commit_async({B: 1})
    assert committer.wait(20)
    assert cluster.commits[-1] == {B: 1}
    (warning,) = caplog.messages
    assert warning.startswith("cannot commit offsets of the group shop (commitGroupId); the query continues: GROUP")
    cluster.reject_commits()
    committer.for_run(cluster.group).commit_async({A: 2})
    assert committer.wait(20)
    assert caplog.messages == [warning] * 2, "after a restart the warning shows whether the problem is solved"


def test_lower_offsets_of_a_query_are_committed(
    cluster: CommitCluster, committer: GroupOffsetCommitter, commits: RunOffsetCommitter
) -> None:
    """As after a topic was recreated."""
    for offset in (100, 0, 3):
        commits.commit_async({A: offset})
        assert committer.wait(20)
    assert cluster.commits == [{A: 100}, {A: 0}, {A: 3}]


def test_the_lower_offset_of_a_topic_that_is_read_twice() -> None:
    assert min_offsets([{A: 5, B: 1}, {A: 4}]) == {A: 4, B: 1}
    assert min_offsets([]) == {}


def test_a_commit_that_waits_for_its_response_has_ended_then() -> None:
    completed: list[tuple[list[str], list[str], Exception | None]] = []
    sent: list[list[str]] = []
    committer = AsyncOffsetCommitter[str, list[str]](
        list,
        lambda commit, _: sent.append(commit),
        lambda items, commit, error: completed.append((list(items), commit, error)),
    )
    committer.add("earlier")
    committer.commit_sync("now")
    assert (sent, completed) == ([["earlier", "now"]], [(["earlier"], ["earlier", "now"], None)])
    assert committer.wait(0)


def test_each_request_has_the_deadline_of_its_call() -> None:
    sent: list[tuple[list[str], Deadline | None]] = []
    committer = AsyncOffsetCommitter[str, list[str]](
        list, lambda commit, deadline: sent.append((commit, deadline)), lambda *_: None
    )
    deadline = Deadline.after(60, system=SYSTEM)
    for item, each in (("a", None), ("b", deadline), ("c", None)):
        committer.add(item)
        committer.send(each)
        assert committer.wait(60)
    assert sent == [(["a"], None), (["b"], deadline), (["c"], None)]


class BlockingCommitter:
    """A committer whose requests last until they are released."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.started, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.committer = AsyncOffsetCommitter[str, list[str]](list, self._send, lambda *_: None)

    def _send(self, commit: list[str], _: Deadline | None) -> None:
        self.sent += commit
        self.started.release()
        assert self.may_end.acquire(timeout=60)


def test_a_commit_that_waits_for_its_response_follows_all_earlier_items() -> None:
    blocking = BlockingCommitter()
    committer = blocking.committer
    committer.add("in flight")
    committer.send()
    assert blocking.started.acquire(timeout=60)
    committer.add("waits")
    committer.send()
    committer.add("added")
    with ThreadPoolExecutor() as threads:
        synchronous = threads.submit(committer.commit_sync, "now")
        blocking.may_end.release(3)
        synchronous.result(60)
    assert blocking.sent == ["in flight", "waits", "added", "now"]


def test_waiting_callers_are_woken_after_a_commit_that_waits_for_its_response() -> None:
    blocking = BlockingCommitter()
    with ThreadPoolExecutor() as threads:
        synchronous = threads.submit(blocking.committer.commit_sync, "now")
        assert blocking.started.acquire(timeout=60)
        assert not blocking.committer.wait(0)
        waiting = threads.submit(blocking.committer.wait, 90)
        blocking.may_end.release()
        synchronous.result(60)
        assert waiting.result(60)


def test_a_run_connects_once_and_commits_also_fewer_partitions(
    cluster: CommitCluster, committer: GroupOffsetCommitter
) -> None:
    connected: list[ConsumerGroup] = []

    def connect() -> ConsumerGroup:
        connected.append(cluster.group())
        return connected[-1]

    commits = committer.for_run(connect)
    for offsets in ({A: 1, B: 1}, {A: 1}, {A: 1, B: 2}):
        commits.commit_async(offsets)
        assert committer.wait(20)
    assert cluster.commits == [{A: 1, B: 1}, {A: 1}, {A: 1, B: 2}]
    assert len(connected) == 1
