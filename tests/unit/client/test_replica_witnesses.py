"""The brokers of all replicas confirm the leader that has reported the end of its log."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.client.fake_broker import PARTITION, TOPIC, TOPIC_ID, FakeBroker
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.witnesses import Witnesses
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.client.witnesses import ReplicaWitnesses


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool(FakeTimeSystem())
    pool.rotation = 0.0
    yield pool
    pool.close()


@pytest.fixture
def three() -> Iterator[list[FakeBroker]]:
    """Brokers of one cluster: the first one leads at epoch 5, and is the first to be called."""
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(3)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers


@pytest.fixture
def five() -> Iterator[list[FakeBroker]]:
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(5)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers


def client(brokers: list[FakeBroker], pool: ConnectionPool) -> ClusterClient:
    settings = brokers[0].settings
    return ClusterClient(
        replace(settings, bootstrap_servers=tuple(("127.0.0.1", broker.port) for broker in brokers)), pool=pool
    )


def freeze(brokers: list[FakeBroker], *, frozen: bool = True) -> None:
    for broker in brokers:
        broker.frozen = frozen


def ask(cluster: ClusterClient, witnesses: ReplicaWitnesses, seconds: float = 0.3) -> tuple[set[int], bool]:
    """Return which brokers have reported, and whether their reports suffice."""
    reports, unresolved = witnesses.request_reports({TOPIC: TOPIC_ID}, [PARTITION], cluster.deadline(seconds))
    return {report.node_id for report in reports[TOPIC]}, unresolved is None


@pytest.fixture
def real_pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    pool.rotation = 0.0
    yield pool
    pool.close()


def test_the_brokers_of_all_replicas_report_the_leader(pool: ConnectionPool) -> None:
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(6)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
            broker.replicas = [1, 3, 4, 6]
        cluster = client(brokers, pool)
        cluster.topics([TOPIC])
        brokers[5].epoch = 7
        assert ask(cluster, cluster.replica_witnesses()) == ({1, 3, 4, 6}, True)
        assert cluster.is_deposed(PARTITION, TOPIC_ID, 5)
        assert cluster.known_leaders([PARTITION]) == {}, "the metadata names the leader that was deposed"


def test_fewer_replicas_are_not_the_only_witnesses(five: list[FakeBroker], pool: ConnectionPool) -> None:
    """A replica may have moved while its broker was paused."""
    for broker in five:
        broker.replicas = [4]
    cluster = client(five, pool)
    cluster.topics([TOPIC])
    reporting, _ = ask(cluster, cluster.replica_witnesses())
    assert 4 in reporting
    assert len(reporting) == 3


def test_an_unresponsive_replica_counts_until_the_request_timeout(
    three: list[FakeBroker], real_pool: ConnectionPool
) -> None:
    for broker in three:
        broker.replicas = [1, 2, 3]
    settings = replace(client(three, real_pool).settings, request_timeout_ms=3_000)
    cluster = ClusterClient(settings, pool=real_pool)
    cluster.topics([TOPIC])
    witnesses = cluster.replica_witnesses()
    assert ask(cluster, witnesses, 120) == ({1, 2, 3}, True)
    freeze(three[1:2])
    started = real_pool.system.monotonic()
    assert ask(cluster, witnesses, 1) == ({1, 3}, False)
    outcome: tuple[set[int], bool] = (set(), False)
    while not outcome[1]:
        assert real_pool.system.monotonic() < started + 120
        with contextlib.suppress(BrokerTimeoutError):  # of brokers on a busy machine
            outcome = ask(cluster, witnesses, 1)
    assert outcome == ({1, 3}, True)
    assert real_pool.system.monotonic() >= started + 3
    freeze(three, frozen=False)
    while ask(cluster, witnesses) != ({1, 2, 3}, True):
        assert real_pool.system.monotonic() < started + 120


def test_an_unreachable_replica_does_not_count(three: list[FakeBroker], pool: ConnectionPool) -> None:
    for broker in three:
        broker.replicas = [1, 2, 3]
    cluster = client(three, pool)
    cluster.topics([TOPIC])
    three[1]._server.shutdown()
    three[1]._server.server_close()
    pool.clear()
    assert ask(cluster, cluster.replica_witnesses(), 20) == ({1, 3}, True)


def test_a_replica_that_knows_another_topic_has_to_be_asked_again(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    three[1].topic_id = UUID(int=9)
    cluster = client(three, pool)
    cluster.topics([TOPIC])
    witnesses = cluster.replica_witnesses()
    assert ask(cluster, witnesses) == ({1, 2, 3}, False)
    pool.system.sleep(31)
    assert ask(cluster, witnesses) == ({1, 2, 3}, True)
    three[1].topic_id = TOPIC_ID
    assert ask(cluster, witnesses) == ({1, 2, 3}, True)
    three[1].topic_id = UUID(int=9)
    assert ask(cluster, witnesses) == ({1, 2, 3}, False)


def test_witnesses_leave_brokers_more_time_while_some_do_not_respond(
    three: list[FakeBroker], pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = client(three, pool)
    cluster.refresh_brokers()
    connect, reachable = cluster.connect, set[int]()
    limits: list[float] = []

    def connect_or_fail(node: Node, limit: Deadline) -> Connection:
        limits.append(round(limit.remaining(), 3))
        if node.id in reachable:
            return connect(node, limit)
        raise BrokerUnreachableError("frozen")

    monkeypatch.setattr(cluster, "connect", connect_or_fail)
    witnesses = Witnesses(cluster)

    def ask() -> list[float]:
        limits.clear()
        with contextlib.suppress(BrokerUnreachableError):
            witnesses.request_reports([TOPIC], (), cluster.deadline(60))
        return limits

    assert ask() == [3.0, 3.0, 30.0]
    assert ask() == [6.0, 6.0, 30.0]
    error = BrokerTimeoutError("frozen")
    assert witnesses.track_unresolved({1: error}) is error
    assert witnesses.track_unresolved({1: error}) is error
    assert ask() == [15.0, 15.0, 30.0], "at most an equal share of the deadline"
    assert witnesses.track_unresolved({}) is None
    assert ask() == [3.0, 3.0, 30.0]
    reachable.add(2)
    assert ask() == [6.0, 6.0, 6.0], "a response of another one is due"


def test_an_absence_check_asks_the_replicas_first_and_then_others(five: list[FakeBroker], pool: ConnectionPool) -> None:
    for broker in five:
        broker.replicas = [4, 5]
    cluster = client(five, pool)
    cluster.topics([TOPIC])
    for broker in five:
        broker.request_counts.clear()
    check = cluster.absence_check({PARTITION: TOPIC_ID})
    for _ in range(3):
        check.step(cluster.deadline())
    assert [broker.request_counts["Metadata"] for broker in five] == [1, 1, 2, 3, 2]


def test_an_unresolved_broker_counts_for_one_request_timeout(pool: ConnectionPool) -> None:
    with FakeBroker() as broker:
        cluster = client([broker], pool)
        witnesses, error, other = Witnesses(cluster), BrokerTimeoutError("frozen"), BrokerTimeoutError("later")
        system: Any = pool.system
        assert witnesses.track_unresolved({1: error}) is error
        assert error.confirmation_seconds == 60.0
        system.now += 29.99
        assert witnesses.track_unresolved({1: error, 2: other}) is error
        system.now += 0.01
        assert witnesses.track_unresolved({1: error, 2: other}) is other
        system.now += 30
        assert witnesses.track_unresolved({1: error, 2: other}) is None
