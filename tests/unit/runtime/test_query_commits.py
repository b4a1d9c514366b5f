"""Commits for a query's group: what is sent, and that nothing of it concerns the query."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime import query_commits
from pyspark_kafka_direct.runtime.query_commits import GroupCommits, Offered, RunCommits, newest, slowest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DEADLINE = 60  # seconds
A, B = TopicPartition("t", 0), TopicPartition("u", 0)

_log = logging.getLogger("pyspark_kafka_direct.tests")


class SlowGroup:
    """A coordinator that answers when it is told to, and then says no."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.fails = True
        self.offsets: list[dict[TopicPartition, int]] = []
        self.there: dict[TopicPartition, int] = {}

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self.there.items() if tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: object = None) -> None:
        self.offsets.append(dict(offsets))
        self.asked.set()
        assert self.answer.wait(60)
        if self.fails:
            raise BrokerTimeoutError("too late")


@pytest.fixture
def group() -> SlowGroup:
    return SlowGroup()


@pytest.fixture
def commits(group: SlowGroup) -> RunCommits:
    return GroupCommits("shop", _log).of_run(lambda: group)


def test_a_slow_coordinator_holds_nothing_up_and_its_errors_are_warnings(
    group: SlowGroup, commits: RunCommits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.offer({A: 0})
    assert group.asked.wait(DEADLINE)
    began = time.monotonic()
    for offset in range(20):
        commits.offer({A: offset})
        commits.settle()
    assert time.monotonic() - began < 9, "one moment of patience, not twenty: those are ten seconds"
    assert not commits._committer.wait(0)
    group.answer.set()
    assert commits._committer.wait(DEADLINE)
    assert group.offsets == [{A: 0}, {A: 19}], "what came between is out of date"
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["offsets of the group shop are not committed (commitGroupId); the query goes on: too late"]
    commits.offer({A: 19})
    commits.settle()
    assert len(group.offsets) == 2
    group.answer.clear()
    monkeypatch.setattr(query_commits, "_PATIENCE", DEADLINE)
    commits.offer({A: 20})
    threading.Timer(0.1, group.answer.set).start()
    commits.settle()
    assert commits._committer.wait(0), "the next one is waited for again"


def test_a_topic_that_the_group_has_forgotten_is_told(
    group: SlowGroup, commits: RunCommits, caplog: pytest.LogCaptureFixture
) -> None:
    group.answer.set()
    group.fails = False
    group.there = {A: 3}
    before = {A: 3, B: 5, TopicPartition("nothing read of it", 0): 0}
    for _ in range(2):
        commits.offer({A: 4, B: 9}, read_before=before)
        assert commits._committer.wait(DEADLINE)
    commits.offer({A: 4, B: 10}, read_before=before)
    assert commits._committer.wait(DEADLINE)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("this query has read u before, but the group 'shop' (commitGroupId) has no offsets of it")


def test_what_was_read_before_is_compared_although_newer_offsets_came() -> None:
    old, new = (RunCommits.__new__(RunCommits) for _ in range(2))
    first, second = Offered(old, {A: 1}, {A: 1}), Offered(old, {A: 2})
    assert newest([first]) == [first]
    assert newest([first, second]) == [Offered(old, {A: 2}, {A: 1})]
    assert newest([first, second, Offered(new, {A: 1})]) == [Offered(new, {A: 1})], "that was another run"


def test_a_query_in_the_same_group_takes_the_place_of_its_own_partitions_only() -> None:
    """It was the last batch of the one query, and nobody commits its offsets later."""
    one, two = (RunCommits.__new__(RunCommits) for _ in range(2))
    of_one, of_two = Offered(one, {A: 1}), Offered(two, {B: 1})
    assert newest([of_one, of_two]) == [of_one, of_two]
    assert newest([of_one, of_two, Offered(one, {A: 2})]) == [of_two, Offered(one, {A: 2})], "the latest is last"
    assert newest([of_one, of_two, Offered(two, {A: 0, B: 2})]) == [Offered(two, {A: 0, B: 2})]


def test_one_query_of_a_group_fails_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    commits = GroupCommits("shop", _log)
    good, bad = SlowGroup(), SlowGroup()
    good.fails = False
    for each in (good, bad):
        each.answer.set()
    bad.answer.clear()
    failing, fine = commits.of_run(lambda: bad), commits.of_run(lambda: good)
    failing.offer({A: 1})
    assert bad.asked.wait(DEADLINE)
    failing.offer({A: 2})
    fine.offer({B: 1})
    bad.answer.set()
    assert commits.wait(DEADLINE)
    assert (bad.offsets, good.offsets) == ([{A: 1}, {A: 2}], [{B: 1}])
    warning = "offsets of the group shop are not committed (commitGroupId); the query goes on: too late"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [warning]
    started_again = commits.of_run(lambda: bad)
    started_again.offer({A: 2})
    assert commits.wait(DEADLINE)
    assert caplog.messages.count(warning) == 2, "who starts it again to repair that has to see whether it helped"


def test_a_query_that_goes_back_is_followed(group: SlowGroup, commits: RunCommits) -> None:
    """As after a topic was created anew."""
    group.answer.set()
    group.fails = False
    for offset in (100, 0, 3):
        commits.offer({A: offset})
        assert commits._committer.wait(DEADLINE)
    assert group.offsets == [{A: 100}, {A: 0}, {A: 3}]


def test_of_a_topic_read_twice_the_slower_reader_counts() -> None:
    assert slowest([{A: 5, B: 1}, {A: 4}]) == {A: 4, B: 1}
    assert slowest([]) == {}
