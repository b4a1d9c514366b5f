"""commitGroupId: the offsets that are committed, and when; errors do not affect the query."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import pytest
from tests.unit.spark.commit_cluster import CommitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.monitor.consumer_lag import SourceBatch
from pyspark_kafka_direct.monitor.group_committer import GroupCommitter
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.spark.commit_offer import accept_commit_offer, commit_group
from pyspark_kafka_direct.spark.offset_committer import GroupOffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.spark.commit_offer import AcceptedCommitOffer, CommitGroup

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OPTIONS = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitgroupid": "shop"}
OTHER_OPTIONS = {**OPTIONS, "subscribe": "u", "commitgroupid": "other"}


Sources = list[tuple[SourceBatch, Mapping[str, str]]]


def sources_ending_at(*ends: Mapping[TopicPartition, int], options: Mapping[str, str] = OPTIONS) -> Sources:
    """A batch with one source for each of the end offsets."""
    return [(SourceBatch(f"source {number}", 0, 1, 1, {}, end, end), options) for number, end in enumerate(ends)]


class GroupCluster(CommitCluster):
    """Counts the clients of the groups ``shop`` and ``other``, of all sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0
        log = logging.getLogger("pyspark_kafka_direct.monitor")
        self.committers = {
            shop(commitgroupid=name): GroupOffsetCommitter(name, log, self.process) for name in ("shop", "other")
        }
        self.groups: WeakValueDictionary[CommitGroup, GroupOffsetCommitter] = WeakValueDictionary(self.committers)

    def connect(self, options: Mapping[str, str], group: str) -> ConsumerGroup:
        self.connections += 1
        assert options == {"shop": OPTIONS, "other": OTHER_OPTIONS}[group]
        return self.group(group)

    def commits_of(self, group: str) -> list[dict[TopicPartition, int]]:
        """Return the offsets of all commits of a group."""
        pairs = zip(self.received("OffsetCommit"), self.commits, strict=True)
        return [offsets for request, offsets in pairs if request.group_id == group]


class BlockedGroup(ConsumerGroup):
    """A group for commits in real threads, which wait until ``open`` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.offsets: list[int] = []

    def commit(self, offsets: Mapping[TopicPartition, int], **_: object) -> None:
        assert self.open.wait(120)
        self.offsets.append(offsets[A])


def shop(**options: str) -> CommitGroup:
    key = commit_group(parse_stream_options({**OPTIONS, **options}))
    assert key is not None
    return key


@pytest.fixture
def group() -> Iterator[GroupCluster]:
    with GroupCluster() as cluster:
        yield cluster


@pytest.fixture
def committer(group: GroupCluster, tmp_path: Path) -> GroupCommitter:
    return GroupCommitter(tmp_path, group.connect, group.groups)


Start = Callable[..., "AcceptedCommitOffer | None"]


@pytest.fixture
def start(committer: GroupCommitter, tmp_path: Path) -> Start:
    """Starts a run as Spark does: it notifies the listener, and then creates the planner."""

    def start(run_id: str = "run", options: Mapping[str, str] = OPTIONS) -> AcceptedCommitOffer | None:
        committer.query_started(run_id, [options])
        commit_group_key = commit_group(parse_stream_options(options))
        return None if commit_group_key is None else accept_commit_offer(tmp_path, commit_group_key)

    return start


def test_nothing_is_committed_without_the_option(group: GroupCluster, committer: GroupCommitter, start: Start) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "commitgroupid"}
    start(options=options)
    committer.batch_ended("run", sources_ending_at({A: 5}, options=options))
    assert committer.flush(120)
    assert group.connections == 0


def test_every_batch_is_committed_over_one_connection(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    start()
    for end in (5, 7):
        committer.batch_ended("run", sources_ending_at({A: end, B: 1}))
        assert committer.flush(120)
    assert group.commits == [{A: 5, B: 1}, {A: 7, B: 1}], (
        "all partitions, because Kafka deletes offsets that are not committed for long"
    )
    assert group.connections == 1


def test_a_query_with_invalid_options_gets_no_offer(committer: GroupCommitter, tmp_path: Path) -> None:
    committer.query_started("run", [{**OPTIONS, "startingoffsets": "somewhere"}])
    assert list(tmp_path.iterdir()) == []


def test_a_planner_that_starts_after_the_first_batch_accepts_the_offer(
    group: GroupCluster, committer: GroupCommitter, start: Start, tmp_path: Path
) -> None:
    """Spark may rerun the first batch without the planners of sources that have no records in it."""
    commit_group_key = shop()
    assert start() is not None
    committer.batch_ended("run", sources_ending_at({A: 5}, {B: 1}))
    assert accept_commit_offer(tmp_path, commit_group_key) is not None, "the planner of the second source"
    committer.batch_ended("run", sources_ending_at({A: 7}, {B: 2}))
    assert accept_commit_offer(tmp_path, commit_group_key) is None, "a planner of another query"
    assert committer.flush(120)
    assert group.commits[-1] == {A: 7, B: 2}


def test_the_offer_stays_open_after_a_first_batch_without_records_of_the_group(
    group: GroupCluster, committer: GroupCommitter, tmp_path: Path
) -> None:
    """Spark reruns such a batch too; it had only records of a source without a group."""
    commit_group_key = shop()
    committer.query_started("run", [OPTIONS])
    committer.batch_ended("run", sources_ending_at({A: 5}))
    assert accept_commit_offer(tmp_path, commit_group_key) is not None
    committer.batch_ended("run", sources_ending_at({A: 7}))
    assert committer.flush(120)
    assert group.commits == [{A: 7}]


def test_an_idle_query_closes_its_offer(committer: GroupCommitter, start: Start, tmp_path: Path) -> None:
    commit_group_key = shop()
    start()
    committer.query_idle("run")
    assert accept_commit_offer(tmp_path, commit_group_key) is None


def test_a_late_report_does_not_set_back_commits_of_the_planner(group: GroupCluster, committer: GroupCommitter) -> None:
    """The planner found no offer, so only the planner commits."""
    committer.query_started("run", [OPTIONS])
    group.group().commit({A: 7, B: 3})  # the start of the batch after the next
    for end in ({A: 5, B: 3}, {A: 7, B: 3}, {A: 7, B: 4}):
        committer.batch_ended("run", sources_ending_at(end))
        assert committer.flush(120)
    assert group.commits == [{A: 7, B: 3}]


def test_the_planner_commits_if_the_query_started_before_the_listener(
    group: GroupCluster, committer: GroupCommitter
) -> None:
    committer.batch_ended("run", sources_ending_at({A: 5}))
    committer.query_idle("run")
    committer.query_ended("run")
    assert committer.flush(120)
    assert group.connections == 0


def test_a_stalled_commit_of_the_listener_does_not_set_the_group_back(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    """A stalled commit once overwrote the offsets that the planner had committed in the meantime."""
    planner = start()
    assert planner is not None
    group.delay_commits(1.5)
    committer.batch_ended("run", sources_ending_at({A: 2}))
    group.sleep(0.1)
    for end in range(2, 9, 2):
        planner.commit_async({A: end})
        planner.wait_for_commit()
        committer.batch_ended("run", sources_ending_at({A: end + 2}))
    assert len(group.commits) == 1, "there is no commit in the meantime"
    assert committer.flush(120)
    assert group.commits == [{A: 2}, {A: 10}]


def test_an_ended_run_does_not_set_the_group_back(group: GroupCluster, committer: GroupCommitter, start: Start) -> None:
    start("one")
    group.delay_commits(1.5)
    committer.batch_ended("one", sources_ending_at({A: 5}))
    group.sleep(0.1)
    committer.batch_ended("one", sources_ending_at({A: 7}))
    committer.query_ended("one")
    start("two")
    committer.batch_ended("two", sources_ending_at({A: 9}))
    assert committer.flush(120)
    assert group.commits == [{A: 5}, {A: 9}]
    assert group.connections == 2, "the options may differ"


def test_an_ended_run_of_another_session_does_not_set_the_group_back(group: GroupCluster, tmp_path: Path) -> None:
    one, two = (GroupCommitter(tmp_path, group.connect, group.groups) for _ in range(2))
    group.delay_commits(1.5)
    for session, run_id, end in ((one, "one", 5), (two, "two", 9)):
        session.query_started(run_id, [OPTIONS])
        assert accept_commit_offer(tmp_path, shop()) is not None
        session.batch_ended(run_id, sources_ending_at({A: end}))
        session.query_ended(run_id)
        group.sleep(0.1)  # otherwise a later offset could replace the first one before it is requested
    assert not two.flush(0.2)
    assert len(group.commits) == 1, "one commit at a time"
    assert two.flush(120)
    assert group.commits == [{A: 5}, {A: 9}]


def test_the_groups_of_ended_queries_are_forgotten(tmp_path: Path) -> None:
    """A driver may start queries for weeks, each with a group of its own."""
    groups: WeakValueDictionary[CommitGroup, GroupOffsetCommitter] = WeakValueDictionary()
    before = set(threading.enumerate())
    for number in range(3):
        group = BlockedGroup()
        committer = GroupCommitter(tmp_path, lambda _, name, group=group: group, groups)  # type: ignore[misc]
        options = {**OPTIONS, "commitgroupid": f"group {number}"}
        key = shop(commitgroupid=f"group {number}")
        committer.query_started(f"run {number}", [options])
        assert accept_commit_offer(tmp_path, key) is not None
        gc.collect()
        assert key in groups
        committer.batch_ended(f"run {number}", sources_ending_at({A: number}, options=options))
        committer.query_ended(f"run {number}")
        gc.collect()
        assert key in groups, "the commit is in flight"
        assert not committer.flush(0)
        group.open.set()
        assert committer.flush(120)
        assert group.offsets == [number]
    for worker in set(threading.enumerate()) - before:
        worker.join(120)
        assert not worker.is_alive(), "threads end with their query"
    del committer, group
    gc.collect()
    assert not groups


def test_a_session_without_queries_of_a_group_does_not_wait_for_it(group: GroupCluster, tmp_path: Path) -> None:
    """At the exit of a program the sessions wait one after the other."""
    one, two = (GroupCommitter(tmp_path, group.connect, group.groups) for _ in range(2))
    group.delay_commits(1.5)
    one.query_started("one", [OPTIONS])
    assert accept_commit_offer(tmp_path, shop()) is not None
    one.batch_ended("one", sources_ending_at({A: 5}))
    assert not one.flush(0)
    assert two.flush(0)
    assert one.flush(120)


@pytest.mark.parametrize("first_delay", [1.0, 100.0], ids=["slow", "unresponsive"])
def test_a_flush_has_one_timeout_for_all_groups(
    group: GroupCluster, committer: GroupCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_delay: float
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: group.now)
    committer.query_started("run", [OPTIONS, OTHER_OPTIONS])
    for key in (shop(), shop(commitgroupid="other")):
        assert accept_commit_offer(tmp_path, key) is not None
    for delay, end, options in ((first_delay, {A: 7}, OPTIONS), (100.0, {C: 9}, OTHER_OPTIONS)):
        group.delay_commits(delay)
        committer.batch_ended("run", sources_ending_at(end, options=options))
        group.sleep(0.1)  # its request is sent
    start = group.now
    assert not committer.flush(3)
    assert group.now - start == pytest.approx(3, abs=0.01)
    assert committer.flush(300)


def test_the_sources_of_a_query_may_commit_for_several_groups(
    group: GroupCluster, committer: GroupCommitter, tmp_path: Path
) -> None:
    keys = [shop(), shop(commitgroupid="other")]
    for run_id, idles in (("idle", True), ("ends", False), ("reads", False)):
        committer.query_started(run_id, [OPTIONS, OTHER_OPTIONS])
        for key, start in zip(keys, ({A: 5}, {C: 8}), strict=True):
            planner = accept_commit_offer(tmp_path, key)
            assert planner is not None
            planner.commit_async(start, resumed_from=start)
        if idles:
            committer.query_idle(run_id)
            assert [accept_commit_offer(tmp_path, key) for key in keys] == [None, None]
        if run_id == "reads":
            group.fault("OffsetCommit", "delay_response", number=1, seconds=1.5)
            committer.batch_ended(run_id, sources_ending_at({A: 7}) + sources_ending_at({C: 9}, options=OTHER_OPTIONS))
        else:
            committer.query_ended(run_id)
            assert list(tmp_path.iterdir()) == [], "the files of the run are deleted"
        assert committer.flush(120)
        ends = ([{A: 5}, {A: 5}, {A: 7}], [{C: 8}, {C: 8}, {C: 9}])
        count = ("idle", "ends", "reads").index(run_id) + 1
        assert [group.commits_of(name) for name in ("shop", "other")] == [each[:count] for each in ends]


def test_each_topic_that_a_group_lacks_is_logged(
    group: GroupCluster, committer: GroupCommitter, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start()
    sources = [(SourceBatch(f"source of {tp}", 0, 1, 1, {tp: 5}, {tp: 7}, {tp: 7}), OPTIONS) for tp in (A, C)]
    committer.batch_ended("run", sources)
    assert committer.flush(120)
    assert "this query has read t, u before, but the group 'shop' (commitGroupId) has no offsets" in caplog.text


def test_a_query_restarted_from_an_older_checkpoint_sets_the_group_back(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    for run_id, ends in (("one", (5, 9)), ("two", (3, 6))):
        start(run_id)
        for end in ends:
            committer.batch_ended(run_id, sources_ending_at({A: end}))
            assert committer.flush(120)
        committer.query_ended(run_id)
    assert group.commits == [{A: 5}, {A: 9}, {A: 3}, {A: 6}]


def test_a_resumed_query_without_new_records_commits_its_start_offsets(
    group: GroupCluster, committer: GroupCommitter, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planner = start()
    assert planner is not None
    committer.query_idle("run")
    assert committer.flush(120)
    assert group.commits == []
    planner.commit_async({A: 5}, resumed_from={A: 5})
    for _ in range(2):
        committer.query_idle("run")
        assert committer.flush(120)
    assert group.commits == [{A: 5}]
    assert "this query has read t before, but the group 'shop' (commitGroupId) has no offsets of it" in caplog.text
    committer.batch_ended("run", sources_ending_at({A: 7}))
    committer.query_idle("run")
    committer.query_ended("run")
    assert committer.flush(120)
    assert group.commits == [{A: 5}, {A: 7}], "its start offsets are outdated"
    assert list(tmp_path.iterdir()) == [], "the files of the run are deleted"


def test_a_query_that_ends_immediately_commits_its_start_offsets(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    planner = start()
    assert planner is not None
    planner.commit_async({A: 5}, resumed_from={A: 5})
    committer.query_ended("run")
    assert committer.flush(120)
    assert group.commits == [{A: 5}]


def test_the_last_batch_is_committed(group: GroupCluster, committer: GroupCommitter, start: Start) -> None:
    start()
    group.delay_commits(1.5)
    committer.batch_ended("run", sources_ending_at({A: 5}))
    committer.query_ended("run")
    assert not committer.flush(0)
    assert committer.flush(120)
    assert group.commits == [{A: 5}]


def test_a_slow_broker_delays_no_query_and_gets_the_newest_offsets(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    start()
    group.delay_commits(1.5)
    committer.batch_ended("run", sources_ending_at({A: 0}))
    group.sleep(0.1)
    for end in range(1, 100):
        committer.batch_ended("run", sources_ending_at({A: end}))
    assert not committer.flush(0)
    assert committer.flush(120)
    assert group.commits == [{A: 0}, {A: 99}]


def test_a_topic_with_two_readers_has_the_lower_offset(
    group: GroupCluster, committer: GroupCommitter, start: Start
) -> None:
    start()
    for one, two in ((5, 4), (9, 7)):
        committer.batch_ended("run", sources_ending_at({A: one}, {A: two}))
        assert committer.flush(120)
    assert group.commits == [{A: 4}, {A: 7}]


def test_two_queries_with_one_group_are_logged(
    group: GroupCluster, committer: GroupCommitter, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start("idle")
    start("first")
    committer.batch_ended("first", sources_ending_at({A: 5}))
    start("restarted")  # Spark reports the end of the first run later
    start("other")
    committer.query_ended("first")
    committer.batch_ended("restarted", sources_ending_at({A: 6}))
    assert caplog.text == ""
    for end in (2, 3):
        committer.batch_ended("other", sources_ending_at({A: end}))
        assert caplog.text.count("two queries commit to the group shop") == 1
    assert committer.flush(120)
