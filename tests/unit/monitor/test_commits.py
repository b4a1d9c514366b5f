"""commitGroupId: what is committed, when, and that nothing of it concerns the query."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor._commits import GroupCommitter
from pyspark_kafka_direct.monitor._lag import SourceBatch
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SHOP = {"commitgroupid": "shop"}


def ended(end: Mapping[TopicPartition, int], source: str = "s") -> SourceBatch:
    return SourceBatch(source, 0, 1, 1, {}, end, end)


class Broker:
    """Takes commits, when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.fails = False
        self.connections = 0
        self.commits: list[Mapping[TopicPartition, int]] = []

    def connect(self, options: Mapping[str, str], group: str) -> Callable[[Mapping[TopicPartition, int]], None]:
        self.connections += 1
        assert (options, group) == (SHOP, "shop")
        return self.commit

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.asked.set()
        assert self.open.wait(30)
        if self.fails:
            raise BrokerTimeoutError("no answer")
        self.commits.append(offsets)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def committer(broker: Broker) -> GroupCommitter:
    return GroupCommitter(broker.connect)


def test_nothing_without_the_option(broker: Broker, committer: GroupCommitter) -> None:
    committer.batch_ended("run", ended({A: 5}), {"subscribe": "t"})
    assert committer.flush(30)
    assert broker.connections == 0


def test_every_batch_over_one_connection(broker: Broker, committer: GroupCommitter) -> None:
    for end in (5, 7):
        committer.batch_ended("run", ended({A: end, B: 1}), SHOP)
        assert committer.flush(30)
    assert broker.commits == [{A: 5, B: 1}, {A: 7, B: 1}]
    assert broker.connections == 1


def test_the_last_batch_too(broker: Broker, committer: GroupCommitter) -> None:
    broker.open.clear()
    committer.batch_ended("run", ended({A: 5}), SHOP)
    committer.query_ended("run")
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 5}]


def test_a_slow_broker_holds_nothing_up_and_gets_the_newest(broker: Broker, committer: GroupCommitter) -> None:
    broker.open.clear()
    committer.batch_ended("run", ended({A: 0}), SHOP)
    assert broker.asked.wait(30)
    for end in range(1, 100):
        committer.batch_ended("run", ended({A: end}), SHOP)
    assert not committer.flush(0)
    broker.open.set()
    assert committer.flush(30)
    assert broker.commits == [{A: 0}, {A: 99}]


def test_failures_are_told_once_and_so_is_their_end(
    broker: Broker, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    for fails in (True, True, False):
        broker.fails = fails
        committer.batch_ended("run", ended({A: 1}), SHOP)
        assert committer.flush(30)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "offsets of the group shop are not committed; the query goes on: no answer",
        "offsets of the group shop are committed again",
    ]


def test_a_topic_read_twice_is_where_the_slower_reader_is(broker: Broker, committer: GroupCommitter) -> None:
    for source, end in (("one", 9), ("two", 5)):
        committer.batch_ended("run", ended({A: end}, source), SHOP)
        assert committer.flush(30)
    assert broker.commits[-1] == {A: 5}


def test_two_queries_in_one_group_are_told(
    broker: Broker, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    committer.batch_ended("first", ended({A: 5}), SHOP)
    committer.query_ended("first")
    committer.batch_ended("again", ended({A: 6}), SHOP)
    assert caplog.text == ""
    committer.batch_ended("other", ended({A: 2}), SHOP)
    assert committer.flush(30)
    assert "two queries commit for the group shop" in caplog.text


def test_threads_end_with_their_query(committer: GroupCommitter) -> None:
    def workers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "kafka-direct-commit-shop"]

    before = set(workers())
    committer.batch_ended("run", ended({A: 5}), SHOP)
    (worker,) = set(workers()) - before
    committer.query_ended("run")
    worker.join(30)
    assert not worker.is_alive()
