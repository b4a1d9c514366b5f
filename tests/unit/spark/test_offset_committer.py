"""Asynchronous commits for a query's group: the requests, and that they never affect the query."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark import offset_committer
from pyspark_kafka_direct.spark.offset_committer import (
    AsyncOffsetCommitter,
    GroupOffsetCommitter,
    PendingCommit,
    RunOffsetCommitter,
    latest_commits,
    min_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DEADLINE = 120  # seconds
A, B = TopicPartition("t", 0), TopicPartition("u", 0)

_log = logging.getLogger("pyspark_kafka_direct.tests")


class SlowGroup(ConsumerGroup):
    """A coordinator that responds when a test permits it, by default with an error."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.respond = threading.Event()
        self.fails = True
        self.offsets: list[dict[TopicPartition, int]] = []
        self.stored: dict[TopicPartition, int] = {}

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: object = None
    ) -> dict[TopicPartition, int]:
        return {tp: offset for tp, offset in self.stored.items() if tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: object = None) -> None:
        self.offsets.append(dict(offsets))
        self.requested.set()
        assert self.respond.wait(120)
        if self.fails:
            raise BrokerTimeoutError("too late")


@pytest.fixture
def group() -> SlowGroup:
    return SlowGroup()


@pytest.fixture
def commits(group: SlowGroup) -> RunOffsetCommitter:
    return GroupOffsetCommitter("shop", _log).for_run(lambda: group)


def test_a_slow_coordinator_delays_no_batch_and_its_errors_are_warnings(
    group: SlowGroup, commits: RunOffsetCommitter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.commit_async({A: 0})
    assert group.requested.wait(DEADLINE)
    monkeypatch.setattr(offset_committer, "_WAIT_SECONDS", 0.05)
    for offset in range(20):
        commits.commit_async({A: offset})
        commits.wait_for_commit()
        monkeypatch.setattr(offset_committer, "_WAIT_SECONDS", 3600)  # only the first wait is for a slow commit
    assert len(group.offsets) == 1
    assert not commits._shared_committer.wait(0)
    group.respond.set()
    assert commits._shared_committer.wait(DEADLINE)
    assert group.offsets == [{A: 0}, {A: 19}], "intermediate offsets are outdated"
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["cannot commit offsets of the group shop (commitGroupId); the query continues: too late"]
    commits.commit_async({A: 19})
    commits.wait_for_commit()
    assert len(group.offsets) == 2
    group.respond.clear()
    monkeypatch.setattr(offset_committer, "_WAIT_SECONDS", DEADLINE)
    commits.commit_async({A: 20})
    threading.Timer(0.1, group.respond.set).start()
    commits.wait_for_commit()
    assert commits._shared_committer.wait(0), "the next commit is waited for again"


def test_a_topic_without_committed_offsets_is_logged(
    group: SlowGroup, commits: RunOffsetCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    group.respond.set()
    group.fails = False
    group.stored = {A: 3}
    resumed_from = {A: 3, B: 5, TopicPartition("nothing-read", 0): 0}
    for _ in range(2):
        commits.commit_async({A: 4, B: 9}, resumed_from=resumed_from)
        assert commits._shared_committer.wait(DEADLINE)
    commits.commit_async({A: 4, B: 10}, resumed_from=resumed_from)
    assert commits._shared_committer.wait(DEADLINE)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("this query has read u before, but the group 'shop' (commitGroupId) has no offsets of it")


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


def test_errors_of_one_query_do_not_affect_others_in_the_group(caplog: pytest.LogCaptureFixture) -> None:
    commits = GroupOffsetCommitter("shop", _log)
    good, bad = SlowGroup(), SlowGroup()
    good.fails = False
    for each in (good, bad):
        each.respond.set()
    bad.respond.clear()
    failing, fine = commits.for_run(lambda: bad), commits.for_run(lambda: good)
    failing.commit_async({A: 1})
    assert bad.requested.wait(DEADLINE)
    failing.commit_async({A: 2})
    fine.commit_async({B: 1})
    bad.respond.set()
    assert commits.wait(DEADLINE)
    assert (bad.offsets, good.offsets) == ([{A: 1}, {A: 2}], [{B: 1}])
    warning = "cannot commit offsets of the group shop (commitGroupId); the query continues: too late"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [warning]
    restarted = commits.for_run(lambda: bad)
    restarted.commit_async({A: 2})
    assert commits.wait(DEADLINE)
    assert caplog.messages.count(warning) == 2, "after a restart the warning shows whether the problem is solved"


def test_lower_offsets_of_a_query_are_committed(group: SlowGroup, commits: RunOffsetCommitter) -> None:
    """As after a topic was recreated."""
    group.respond.set()
    group.fails = False
    for offset in (100, 0, 3):
        commits.commit_async({A: offset})
        assert commits._shared_committer.wait(DEADLINE)
    assert group.offsets == [{A: 100}, {A: 0}, {A: 3}]


def test_the_lower_offset_of_a_topic_that_is_read_twice() -> None:
    assert min_offsets([{A: 5, B: 1}, {A: 4}]) == {A: 4, B: 1}
    assert min_offsets([]) == {}


def test_a_commit_that_waits_for_its_response_has_ended_then(group: SlowGroup) -> None:
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
