"""commitGroupId: what is committed, when, and that nothing of it concerns the query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor._commits import GroupCommitter
from pyspark_kafka_direct.monitor._lag import SourceBatch
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.commit_choice import accept, group_of
from pyspark_kafka_direct.settings.source import parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark_kafka_direct.runtime.commit_choice import Acceptance, QueryGroup
    from pyspark_kafka_direct.runtime.query_commits import GroupCommits

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SHOP = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitgroupid": "shop"}


Sources = list[tuple[SourceBatch, Mapping[str, str]]]


def ended(*ends: Mapping[TopicPartition, int], options: Mapping[str, str] = SHOP) -> Sources:
    """A batch of as many sources."""
    return [(SourceBatch(f"source {number}", 0, 1, 1, {}, end, end), options) for number, end in enumerate(ends)]


class Broker:
    """A group's offsets; takes commits when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.fails = False
        self.connections = 0
        self.tries: list[Mapping[TopicPartition, int]] = []
        self.commits: list[Mapping[TopicPartition, int]] = []
        self.there: dict[TopicPartition, int] = {}

    def connect(self, options: Mapping[str, str], group: str) -> Broker:
        self.connections += 1
        assert (options, group) == (SHOP, "shop")
        return self

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self.there.items() if tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: object = None) -> None:
        self.tries.append(offsets)
        self.asked.set()
        assert self.open.wait(30)
        if self.fails:
            raise BrokerTimeoutError("no answer")
        self.commits.append(offsets)
        self.there.update(offsets)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def committer(broker: Broker, tmp_path: Path) -> GroupCommitter:
    return GroupCommitter(tmp_path, broker.connect)


Start = Callable[..., "Acceptance | None"]


@pytest.fixture
def start(committer: GroupCommitter, tmp_path: Path) -> Start:
    """Starts a run as Spark does: tells the listener, and then makes the planner."""

    def start(run_id: str = "run", options: Mapping[str, str] = SHOP) -> Acceptance | None:
        committer.query_started(run_id, [options])
        group = group_of(parse_stream_options(options))
        return None if group is None else accept(tmp_path, group)

    return start


def test_nothing_without_the_option(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    options = {name: text for name, text in SHOP.items() if name != "commitgroupid"}
    start(options=options)
    committer.batch_ended("run", ended({A: 5}, options=options))
    assert committer.flush(30)
    assert broker.connections == 0


def test_every_batch_over_one_connection(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    start()
    for end in (5, 7):
        committer.batch_ended("run", ended({A: end, B: 1}))
        assert committer.flush(30)
    assert broker.commits == [{A: 5, B: 1}, {A: 7, B: 1}], "all of it: Kafka forgets what is not committed for long"
    assert broker.connections == 1


def test_a_query_that_its_planner_will_refuse_gets_no_offer(committer: GroupCommitter, tmp_path: Path) -> None:
    committer.query_started("run", [{**SHOP, "startingoffsets": "somewhere"}])
    assert list(tmp_path.iterdir()) == []


def test_a_planner_that_begins_after_the_first_batch_leaves_the_commits_to_the_listener_too(
    broker: Broker, committer: GroupCommitter, start: Start, tmp_path: Path
) -> None:
    """The first batch may be one that Spark runs again, without asking the sources that have nothing in it."""
    group = group_of(parse_stream_options(SHOP))
    assert group is not None
    assert start() is not None
    committer.batch_ended("run", ended({A: 5}, {B: 1}))
    assert accept(tmp_path, group) is not None, "the planner of the second source"
    committer.batch_ended("run", ended({A: 7}, {B: 2}))
    assert accept(tmp_path, group) is None, "one of another query"
    assert committer.flush(30)
    assert broker.commits[-1] == {A: 7, B: 2}


def test_a_first_batch_without_records_of_the_group_does_not_make_the_planner_commit(
    broker: Broker, committer: GroupCommitter, tmp_path: Path
) -> None:
    """It is run again too, and had records of a source without a group only."""
    group = group_of(parse_stream_options(SHOP))
    assert group is not None
    committer.query_started("run", [SHOP])
    committer.batch_ended("run", ended({A: 5}))
    assert accept(tmp_path, group) is not None
    committer.batch_ended("run", ended({A: 7}))
    assert committer.flush(30)
    assert broker.commits == [{A: 7}]


def test_an_idle_query_ends_its_offer(committer: GroupCommitter, start: Start, tmp_path: Path) -> None:
    group = group_of(parse_stream_options(SHOP))
    assert group is not None
    start()
    committer.query_idle("run")
    assert accept(tmp_path, group) is None


def test_a_late_report_takes_nothing_back_that_the_planner_committed(broker: Broker, committer: GroupCommitter) -> None:
    """The planner found no offer, so it commits, alone."""
    committer.query_started("run", [SHOP])
    broker.there = {A: 7, B: 3}  # the start of the batch after the next
    for end in ({A: 5, B: 3}, {A: 7, B: 3}, {A: 7, B: 4}):
        committer.batch_ended("run", ended(end))
        assert committer.flush(30)
    assert broker.commits == []


def test_a_query_that_was_started_before_the_listener_is_the_planners(
    broker: Broker, committer: GroupCommitter
) -> None:
    committer.batch_ended("run", ended({A: 5}))
    committer.query_idle("run")
    committer.query_ended("run")
    assert committer.flush(30)
    assert broker.connections == 0


def test_a_stalled_listener_takes_nothing_back(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    """The planner, which had gone on to commit meanwhile, was taken back by the commit that had stalled."""
    planner = start()
    assert planner is not None
    broker.open.clear()
    committer.batch_ended("run", ended({A: 2}))
    assert broker.asked.wait(30)
    for end in range(2, 9, 2):
        planner.offer({A: end})
        planner.settle()
        committer.batch_ended("run", ended({A: end + 2}))
    assert broker.there == {}, "nobody commits in the meantime"
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 2}, {A: 10}]


def test_a_run_that_is_over_takes_nothing_back(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    start("one")
    broker.open.clear()
    for end in (5, 7):
        committer.batch_ended("one", ended({A: end}))
        assert broker.asked.wait(30)
    committer.query_ended("one")
    start("two")
    committer.batch_ended("two", ended({A: 9}))
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 5}, {A: 9}]
    assert broker.connections == 2, "the options may be others"


def test_a_run_of_another_session_that_is_over_takes_nothing_back(broker: Broker, tmp_path: Path) -> None:
    groups: dict[QueryGroup, GroupCommits] = {}
    one, two = (GroupCommitter(tmp_path, broker.connect, groups) for _ in range(2))
    group = group_of(parse_stream_options(SHOP))
    assert group is not None
    broker.open.clear()
    for session, run_id, end in ((one, "one", 5), (two, "two", 9)):
        session.query_started(run_id, [SHOP])
        assert accept(tmp_path, group) is not None
        session.batch_ended(run_id, ended({A: end}))
        session.query_ended(run_id)
        assert broker.asked.wait(30)
    assert not two.flush(0.2)
    assert len(broker.tries) == 1, "one at a time"
    broker.open.set()
    assert two.flush(30)
    assert broker.commits == [{A: 5}, {A: 9}]


def test_a_session_without_queries_of_a_group_does_not_wait_for_it(broker: Broker, tmp_path: Path) -> None:
    """At the end of a program every session waits for itself, one after the other."""
    groups: dict[QueryGroup, GroupCommits] = {}
    one, two = (GroupCommitter(tmp_path, broker.connect, groups) for _ in range(2))
    group = group_of(parse_stream_options(SHOP))
    assert group is not None
    broker.open.clear()
    one.query_started("one", [SHOP])
    assert accept(tmp_path, group) is not None
    one.batch_ended("one", ended({A: 5}))
    assert not one.flush(0)
    assert two.flush(0)
    broker.open.set()
    assert one.flush(30)


def test_a_query_restarted_from_an_older_checkpoint_sets_the_group_back(
    broker: Broker, committer: GroupCommitter, start: Start
) -> None:
    for run_id, ends in (("one", (5, 9)), ("two", (3, 6))):
        start(run_id)
        for end in ends:
            committer.batch_ended(run_id, ended({A: end}))
            assert committer.flush(30)
        committer.query_ended(run_id)
    assert broker.commits == [{A: 5}, {A: 9}, {A: 3}, {A: 6}]


def test_a_query_that_goes_on_and_finds_nothing_shows_where_it_is(
    broker: Broker, committer: GroupCommitter, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planner = start()
    assert planner is not None
    committer.query_idle("run")
    assert committer.flush(30)
    assert broker.commits == []
    planner.offer({A: 5}, read_before={A: 5})
    for _ in range(2):
        committer.query_idle("run")
        assert committer.flush(30)
    assert broker.commits == [{A: 5}]
    assert "this query has read t before, but the group 'shop' (commitGroupId) has no offsets of it" in caplog.text
    committer.batch_ended("run", ended({A: 7}))
    committer.query_idle("run")
    committer.query_ended("run")
    assert committer.flush(30)
    assert broker.commits == [{A: 5}, {A: 7}], "where it went on is out of date"
    assert list(tmp_path.iterdir()) == [], "the files of the run are gone"


def test_a_query_that_ends_at_once_shows_where_it_is(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    planner = start()
    assert planner is not None
    planner.offer({A: 5}, read_before={A: 5})
    committer.query_ended("run")
    assert committer.flush(30)
    assert broker.commits == [{A: 5}]


def test_the_last_batch_too(broker: Broker, committer: GroupCommitter, start: Start) -> None:
    start()
    broker.open.clear()
    committer.batch_ended("run", ended({A: 5}))
    committer.query_ended("run")
    assert not committer.flush(0)
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 5}]


def test_a_slow_broker_holds_nothing_up_and_gets_the_newest(
    broker: Broker, committer: GroupCommitter, start: Start
) -> None:
    start()
    broker.open.clear()
    committer.batch_ended("run", ended({A: 0}))
    assert broker.asked.wait(30)
    for end in range(1, 100):
        committer.batch_ended("run", ended({A: end}))
    assert not committer.flush(0)
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 0}, {A: 99}]


def test_failures_are_told_once_and_so_is_their_end(
    broker: Broker, committer: GroupCommitter, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start()
    for end, fails in enumerate((True, True, False)):
        broker.fails = fails
        committer.batch_ended("run", ended({A: end}))
        assert committer.flush(30)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "offsets of the group shop are not committed (commitGroupId); the query goes on: no answer",
        "offsets of the group shop are committed again",
    ]


def test_a_topic_read_twice_is_where_the_slower_reader_is(
    broker: Broker, committer: GroupCommitter, start: Start
) -> None:
    start()
    for one, two in ((5, 4), (9, 7)):
        committer.batch_ended("run", ended({A: one}, {A: two}))
        assert committer.flush(30)
    assert broker.commits == [{A: 4}, {A: 7}]


def test_two_queries_in_one_group_are_told(
    broker: Broker, committer: GroupCommitter, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start("first")
    committer.batch_ended("first", ended({A: 5}))
    start("again")  # Spark tells of the end of the one before a moment later
    start("other")
    committer.query_ended("first")
    committer.batch_ended("again", ended({A: 6}))
    assert caplog.text == ""
    for end in (2, 3):
        committer.batch_ended("other", ended({A: end}))
    assert committer.flush(30)
    assert caplog.text.count("two queries commit for the group shop") == 1


def test_threads_end_with_their_query(committer: GroupCommitter, start: Start) -> None:
    before = set(threading.enumerate())
    start()
    committer.batch_ended("run", ended({A: 5}))
    committer.query_ended("run")
    assert committer.flush(30)
    for worker in set(threading.enumerate()) - before:
        worker.join(30)
        assert not worker.is_alive()
