"""One broker of three takes requests and answers none: whom to ask next, and how long everything else takes."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC, Broker, then

from pyspark_kafka_direct.errors import BrokerTimeoutError, ProtocolError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire import _any_broker
from pyspark_kafka_direct.wire._any_broker import in_turn, patience, share
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

# Whoever waits out a request waits for 20 s; the first patience is one of them.
SETTINGS = ConnectionSettings(
    (("127.0.0.1", 1),), request_timeout_ms=20_000, default_api_timeout_ms=200_000, connect_timeout_ms=20_000
)
HANG = 18.0


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Broker]]:
    """Brokers of one cluster; the first one leads, and is the first to be asked anything."""
    monkeypatch.setattr(POOL, "rotation", 0.0)
    monkeypatch.setattr(_any_broker, "_FIRST_PATIENCE", 0.05)
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(Broker()) for _ in range(3)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers
    POOL.clear()


def cluster_of(brokers: list[Broker], retries: int | None = None) -> Cluster:
    bootstrap = tuple(("127.0.0.1", broker.port) for broker in brokers)
    return Cluster(replace(SETTINGS, bootstrap_servers=bootstrap), retries=retries)


def elect(brokers: list[Broker], leader: int) -> None:
    for broker in brokers:
        broker.epoch += 1
        broker.leaders = sorted(enumerate(brokers, 1), key=lambda entry: entry[0] != leader)


def latest(cluster: Cluster) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


def test_known_brokers_come_first_and_failed_ones_last() -> None:
    a, b, c, d = (("host", port) for port in range(4))
    failures = {b: 5.0, d: 4.0}

    def failed_at(address: tuple[str, int]) -> float:
        return failures.get(address, 0.0)

    assert in_turn([a, b, c], [a, d], lambda _: 0.0, 0.0) == [a, b, c, d]
    assert in_turn([a, b, c], [a, d], lambda _: 0.0, 0.5) == [b, c, a, d]
    assert in_turn([a, b, c], [a, d], lambda _: 0.0, 0.5, turn=2) == [a, b, c, d]
    assert in_turn([], [a, d], lambda _: 0.0, 0.5, turn=2) == [a, d]
    assert in_turn([a, b, c], [d], failed_at, 0.5) == [c, a, d, b]
    assert in_turn([], [b, d, a], failed_at, 0.9) == [a, d, b]


def test_only_the_last_broker_gets_all_the_time() -> None:
    assert share(60.0, others=2, longest=3.0) == 3.0
    assert share(60.0, others=0, longest=3.0) == 60.0
    assert share(6.0, others=2, longest=3.0) == 2.0
    assert [patience(SETTINGS, tries) for tries in (1, 2, 3)] == [2.0, 4.0, 8.0]  # of 20
    assert patience(SETTINGS, 10_000) < 1e6


def test_metadata_comes_from_another_broker(three: list[Broker]) -> None:
    cluster = cluster_of(three)
    assert TOPIC in cluster.topics([TOPIC])
    three[0].frozen = True
    started = time.monotonic()
    assert TOPIC in cluster.topics([TOPIC])
    assert time.monotonic() - started < HANG


def test_what_failed_is_remembered_for_the_next_task(three: list[Broker]) -> None:
    three[0].frozen = True
    assert TOPIC in cluster_of(three).topics([TOPIC])
    asked = three[0].connections
    for _ in range(3):
        assert TOPIC in cluster_of(three).topics([TOPIC])
    assert three[0].connections == asked


def test_a_broker_that_answers_again_is_asked_again(three: list[Broker]) -> None:
    cluster = cluster_of(three)
    cluster.topics([TOPIC])
    three[0].frozen = True
    cluster.topics([TOPIC])
    three[0].frozen = False
    address = ("127.0.0.1", three[0].port)
    assert POOL.failed_at(address) > 0.0
    assert latest(cluster) == 42  # it leads, so it is asked
    assert POOL.failed_at(address) == 0.0
    before = three[1].asked["Metadata"]
    cluster.topics([TOPIC])
    assert three[1].asked["Metadata"] == before


def test_other_connections_to_a_silent_broker_are_given_up(three: list[Broker]) -> None:
    settings = cluster_of(three).settings
    address = ("127.0.0.1", three[0].port)
    elsewhere = ("127.0.0.1", three[1].port)
    lent = [POOL.borrow(settings, *address, Deadline.after(20)) for _ in range(3)]
    other = POOL.borrow(settings, *elsewhere, Deadline.after(20))
    for connection in (*lent, other):
        POOL.give_back(connection)
    three[0].frozen = True
    assert TOPIC in cluster_of(three).topics([TOPIC])
    assert all(connection.closed for connection in lent)
    assert not other.closed
    assert POOL.failed_at(address) > 0.0
    assert POOL.failed_at(elsewhere) == 0.0


@pytest.mark.parametrize("retries", [3, None])
def test_offsets_follow_a_leader_that_falls_silent(three: list[Broker], retries: int | None) -> None:
    cluster = cluster_of(three, retries)
    assert latest(cluster) == 42
    three[0].frozen = True
    three[1].offsets = three[2].offsets = lambda _: (0, 99)
    answers = itertools.count()

    def notice() -> int:
        if next(answers) == 0:  # what is told this time is what was before
            elect(three, 2)
        return 0

    for broker in three[1:]:
        broker.error = notice
    started = time.monotonic()
    assert latest(cluster) == 99
    assert time.monotonic() - started < HANG


def test_the_last_try_waits_for_the_leader(three: list[Broker]) -> None:
    """A task asks once only, and a slow leader is no frozen one."""
    cluster = cluster_of(three, retries=0)
    cluster.topics([TOPIC])

    def slowly(_: int) -> tuple[int, int]:
        time.sleep(1.5)
        return 0, 42

    three[0].offsets = slowly
    assert latest(cluster) == 42
    assert three[0].asked["ListOffsets"] == 1


def test_looking_for_a_time_may_take_long(three: list[Broker]) -> None:
    def slowly(_: int) -> tuple[int, int]:
        time.sleep(1.5)
        return 0, 42

    three[0].offsets = slowly
    assert cluster_of(three).offsets({PARTITION: 1_700_000_000_000})[PARTITION] == 42
    assert three[0].asked["ListOffsets"] == 1


def test_a_cluster_that_is_slow_as_a_whole_still_answers(three: list[Broker]) -> None:
    def slowly() -> int:
        time.sleep(1.5)
        return 0

    for broker in three:
        broker.error = slowly
    assert TOPIC in cluster_of(three, retries=0).topics([TOPIC])


def test_nobody_answers(three: list[Broker]) -> None:
    for broker in three:
        broker.frozen = True
    cluster = cluster_of(three, retries=0)
    cluster.settings = replace(cluster.settings, request_timeout_ms=1000, connect_timeout_ms=500)
    with pytest.raises(BrokerTimeoutError, match="No broker answered in time") as caught:
        cluster.topics([TOPIC])
    for broker in three:
        assert f"127.0.0.1:{broker.port}" in str(caught.value)


def test_the_coordinator_is_found_by_another_broker(three: list[Broker]) -> None:
    elect(three, 2)
    group = Group(cluster_of(three), "group")
    assert group.committed([PARTITION]) == {PARTITION: 7}
    three[1].frozen = True
    elect(three, 3)
    started = time.monotonic()
    assert group.committed([PARTITION]) == {PARTITION: 7}
    assert three[2].asked["OffsetFetch"] > 0
    three[0].frozen = True
    group = Group(cluster_of(three), "group")
    group.commit({PARTITION: 8})
    assert three[2].asked["OffsetCommit"] > 0
    assert time.monotonic() - started < HANG


def test_group_calls_end_at_their_own_deadline(three: list[Broker]) -> None:
    group = Group(cluster_of(three), "group")
    group.committed([PARTITION])
    for broker in three:
        broker.frozen = True
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError):
        group.committed([PARTITION], deadline=Deadline.after(1))
    with pytest.raises(BrokerTimeoutError):
        group.commit({PARTITION: 1}, deadline=Deadline.after(1))
    with pytest.raises(BrokerTimeoutError):
        cluster_of(three).all_topics(deadline=Deadline.after(1))
    assert time.monotonic() - started < HANG


def test_a_commit_for_a_partition_that_is_gone_is_given_up(
    three: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_any_broker, "_FIRST_PATIENCE", 1.0)  # requests are counted
    group = Group(cluster_of(three), "group")
    three[0].commit_error = then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    group.commit({PARTITION: 1})  # a partition may be new to its coordinator
    assert three[0].asked["OffsetCommit"] == 2
    three[0].commit_error = lambda: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TopicNotFoundError) as caught:
        group.commit({PARTITION: 1})
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert three[0].asked["OffsetCommit"] == 7


def test_a_partition_left_out_by_a_coordinator_is_not_without_offset_nor_committed(three: list[Broker]) -> None:
    group = Group(cluster_of(three), "group")
    three[0].forgetful = True
    with pytest.raises(ProtocolError, match="The answer to OffsetFetch lacks a partition") as caught:
        group.committed([PARTITION])
    assert (caught.value.topic, caught.value.partition) == PARTITION
    with pytest.raises(ProtocolError, match="The answer to OffsetCommit lacks a partition"):
        group.commit({PARTITION: 1})
