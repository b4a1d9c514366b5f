"""commitGroupId: what is committed, when, and that nothing of it concerns the query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor._commits import GroupCommitter
from pyspark_kafka_direct.monitor._lag import SourceBatch
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SHOP = {"commitgroupid": "shop"}


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
        self.commits: list[Mapping[TopicPartition, int]] = []
        self.there: dict[TopicPartition, int] = {}

    def connect(self, options: Mapping[str, str], group: str) -> Broker:
        self.connections += 1
        assert (options, group) == (SHOP, "shop")
        return self

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self.there.items() if tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
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
def committer(broker: Broker) -> GroupCommitter:
    return GroupCommitter(broker.connect)


def test_nothing_without_the_option(broker: Broker, committer: GroupCommitter) -> None:
    committer.batch_ended("run", ended({A: 5}, options={"subscribe": "t"}))
    assert committer.flush(30)
    assert broker.connections == 0


def test_every_batch_over_one_connection(broker: Broker, committer: GroupCommitter) -> None:
    for end in (5, 7):
        committer.batch_ended("run", ended({A: end, B: 1}))
        assert committer.flush(30)
    assert broker.commits == [{A: 5, B: 1}, {A: 7}]
    assert broker.connections == 1


def test_a_late_report_takes_nothing_back_that_the_planner_committed(broker: Broker, committer: GroupCommitter) -> None:
    broker.there = {A: 7, B: 3}  # the start of the batch after the next
    for end in ({A: 5, B: 3}, {A: 7, B: 3}, {A: 7, B: 4}):
        committer.batch_ended("run", ended(end))
        assert committer.flush(30)
    assert broker.commits == [{B: 4}]


def test_the_last_batch_too(broker: Broker, committer: GroupCommitter) -> None:
    broker.open.clear()
    committer.batch_ended("run", ended({A: 5}))
    committer.query_ended("run")
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 5}]


def test_a_slow_broker_holds_nothing_up_and_gets_the_newest(broker: Broker, committer: GroupCommitter) -> None:
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
    broker: Broker, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    for fails in (True, True, False):
        broker.fails = fails
        committer.batch_ended("run", ended({A: 1}))
        assert committer.flush(30)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "offsets of the group shop are not committed; the query goes on: no answer",
        "offsets of the group shop are committed again",
    ]


def test_a_topic_read_twice_is_where_the_slower_reader_is(broker: Broker, committer: GroupCommitter) -> None:
    for one, two in ((5, 4), (9, 7)):
        committer.batch_ended("run", ended({A: one}, {A: two}))
        assert committer.flush(30)
    assert broker.commits == [{A: 4}, {A: 7}]


def test_two_queries_in_one_group_are_told(
    broker: Broker, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    committer.batch_ended("first", ended({A: 5}))
    committer.query_ended("first")
    committer.batch_ended("again", ended({A: 6}))
    assert caplog.text == ""
    committer.batch_ended("other", ended({A: 2}))
    assert committer.flush(30)
    assert "two queries commit for the group shop" in caplog.text


def test_threads_end_with_their_query(committer: GroupCommitter) -> None:
    def workers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "kafka-direct-commit-shop"]

    before = set(workers())
    committer.batch_ended("run", ended({A: 5}))
    (worker,) = set(workers()) - before
    committer.query_ended("run")
    worker.join(30)
    assert not worker.is_alive()
