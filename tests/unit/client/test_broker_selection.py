"""One of three brokers accepts requests but does not respond: which broker is next, and how long requests take."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.simulation.cluster.coordinators import GROUP, Coordinators
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.witness_cluster import pause

from pyspark_kafka_direct.client.broker_selection import (
    attempt_timeout,
    broker_timeout,
    no_broker_error,
    order_brokers,
)
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError, ProtocolError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Iterator


TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
ADDRESSES = [(f"broker-{number}", 9092) for number in (1, 2, 3)]


@pytest.fixture
def three() -> Iterator[UnitCluster]:
    """Brokers that are called in the order of their ids; the first one leads. Tests take less than 1000 s."""
    settings = {"request_timeout_ms": 30_000, "default_api_timeout_ms": 1_000_000}
    with UnitCluster({TOPIC: 1}, brokers=3, replication_factor=3, connection=settings) as cluster:
        cluster.pool.rotation = 0.0
        cluster.append(PARTITION, 42)
        yield cluster


def latest(client: ClusterClient) -> int:
    return client.offsets({PARTITION: LATEST})[PARTITION]


def test_known_brokers_come_first_and_failed_ones_last() -> None:
    a, b, c, d = (("host", port) for port in range(4))
    failures = {b: 5.0, d: 4.0}

    def last_failure_time(address: tuple[str, int]) -> float:
        return failures.get(address, 0.0)

    assert order_brokers([a, b, c], [a, d], lambda _: 0.0, 0.0) == [a, b, c, d]
    assert order_brokers([a, b, c], [a, d], lambda _: 0.0, 0.5) == [b, c, a, d]
    assert order_brokers([a, b, c], [a, d], lambda _: 0.0, 0.5, shift=2) == [a, b, c, d]
    assert order_brokers([], [a, d], lambda _: 0.0, 0.5, shift=2) == [a, d]
    assert order_brokers([a, b, c], [d], last_failure_time, 0.5) == [c, a, d, b]
    assert order_brokers([], [b, d, a], last_failure_time, 0.9) == [a, d, b]


def test_only_last_broker_gets_full_timeout() -> None:
    settings = ConnectionSettings((("broker", 1),), request_timeout_ms=1_200_000)
    assert broker_timeout(60.0, later_brokers=2, max_seconds=3.0) == 3.0
    assert broker_timeout(60.0, later_brokers=0, max_seconds=3.0) == 60.0
    assert broker_timeout(6.0, later_brokers=2, max_seconds=3.0) == 2.0
    assert [attempt_timeout(settings, tries) for tries in (1, 2, 3)] == [120.0, 240.0, 480.0]
    assert attempt_timeout(settings, 10_000) < 1e7


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ({BrokerTimeoutError}, BrokerTimeoutError),
        ({ProtocolError}, ProtocolError),
        ({BrokerUnreachableError}, BrokerUnreachableError),
        ({BrokerTimeoutError, BrokerUnreachableError}, BrokerUnreachableError),
        ({ProtocolError, BrokerTimeoutError}, BrokerUnreachableError),
        ({ProtocolError, BrokerUnreachableError}, BrokerUnreachableError),
    ],
)
def test_the_error_of_several_brokers_is_one_that_a_retry_may_resolve_if_any_is(
    failures: set[type[BrokerError]], expected: type[BrokerError]
) -> None:
    for chosen in product(failures, repeat=3):
        if set(chosen) == failures:
            error = no_broker_error([each("no", broker=f"b{number}:1") for number, each in enumerate(chosen)])
            assert type(error) is expected
            assert error.message.endswith(" b0:1: no; b1:1: no; b2:1: no")


@pytest.mark.parametrize("responding", [1, 2, 3])
def test_each_known_broker_is_called_until_one_responds(three: UnitCluster, responding: int) -> None:
    settings = replace(three.client().settings, bootstrap_servers=(ADDRESSES[0],))
    client = ClusterClient(settings, pool=three.pool)
    client.refresh_brokers()
    for broker in {1, 2, 3} - {responding}:
        three.event("stop_broker", broker=broker - 1, seconds=500)
    assert (
        client.call_any_broker(lambda connection, _: connection.broker, client.deadline(60))
        == f"broker-{responding}:9092"
    )


def test_a_broker_that_does_not_respond_is_avoided_until_it_does(three: UnitCluster) -> None:
    client = three.client()
    client.topics([TOPIC])
    pause(three, 1, seconds=50)
    started = three.now
    assert TOPIC in client.topics([TOPIC])
    assert 3 <= three.now - started < 3.1, "a tenth of request.timeout.ms"
    started = three.now
    for _ in range(3):
        assert TOPIC in three.client().topics([TOPIC])
    assert three.now - started < 0.1
    assert three.pool.last_failure_time(ADDRESSES[0]) > 0.0
    three.sleep(50)
    assert latest(client) == 42  # it leads, so it is called
    assert three.pool.last_failure_time(ADDRESSES[0]) == 0.0
    before = three.received_by("Metadata")
    client.topics([TOPIC])
    assert three.received_by("Metadata") == [before[0] + 1, *before[1:]]


def test_timeout_closes_other_connections_to_the_broker(three: UnitCluster) -> None:
    client = three.client()
    deadline = client.deadline()
    acquired = [three.pool.acquire(client.settings, *ADDRESSES[0], deadline) for _ in range(3)]
    other = three.pool.acquire(client.settings, *ADDRESSES[1], deadline)
    for connection in (*acquired, other):
        three.pool.release(connection)
    pause(three, 1, seconds=500)
    assert TOPIC in client.topics([TOPIC])
    assert all(connection.closed for connection in acquired)
    assert not other.closed
    assert three.pool.last_failure_time(ADDRESSES[0]) > 0.0
    assert three.pool.last_failure_time(ADDRESSES[1]) == 0.0


@pytest.mark.parametrize("retries", [3, None])
def test_offset_requests_fail_over_from_unresponsive_leader(three: UnitCluster, retries: int | None) -> None:
    client = three.client(retries=retries)
    assert latest(client) == 42
    pause(three, 1, seconds=500)

    def elect() -> None:
        three.elect(PARTITION, 2)
        three.after(1, lambda: three.append(PARTITION, 3))

    three.after(3.2, elect)  # the first metadata after the timeout still has the previous leader
    started = three.now
    assert latest(client) in (42, 45)
    assert three.now - started < 30
    three.sleep(2)
    assert latest(client) == 45


@pytest.mark.parametrize("position", [LATEST, 1_700_000_000_000])
def test_slow_leaders_have_time_if_there_is_no_other_try_or_a_timestamp_is_requested(
    three: UnitCluster, position: int
) -> None:
    """A task tries only once, and a leader has to search its log for a timestamp."""
    client = three.client(retries=0 if position == LATEST else None)
    three.every("ListOffsets", "delay_response", seconds=15)
    assert client.offsets({PARTITION: position})[PARTITION] == (42 if position == LATEST else 0)
    assert three.sent("ListOffsets") == 1


@pytest.mark.parametrize("kind", ["stop", "freeze", "no Kafka broker"])
def test_a_bootstrap_server_that_does_not_respond_is_skipped(three: UnitCluster, kind: str) -> None:
    if kind == "stop":
        three.event("stop_broker", broker=0, seconds=500)
    elif kind == "freeze":
        pause(three, 1, seconds=500)
    else:
        three.fault("ApiVersions", "garble_response")
    client = three.client(retries=0)
    started = three.now
    assert TOPIC in client.topics([TOPIC])
    assert three.now - started < 4
    assert three.received_by("Metadata") == [0, 1, 0]


def test_slow_cluster_still_responds(three: UnitCluster) -> None:
    three.every("Metadata", "delay_response", seconds=15)
    assert TOPIC in three.client(retries=0).topics([TOPIC])


def test_error_names_all_unresponsive_brokers(three: UnitCluster) -> None:
    pause(three, 1, 2, 3, seconds=500)
    with pytest.raises(BrokerTimeoutError, match="No broker responded in time") as caught:
        three.client(retries=0).topics([TOPIC])
    for host, port in ADDRESSES:
        assert f"{host}:{port}" in str(caught.value)


def test_coordinator_lookup_falls_back_to_another_broker(three: UnitCluster) -> None:
    three.event("move_group_coordinators", broker=1, unavailable_seconds=0, loading_seconds=0)
    client = three.client()
    group = ConsumerGroup(client, "group")
    group.commit({PARTITION: 7})
    assert Coordinators.of(three.cluster).leader(GROUP, "group") == 2
    pause(three, 2, seconds=500)
    three.event("move_group_coordinators", broker=2, unavailable_seconds=0, loading_seconds=0)
    assert group.committed([PARTITION]) == {PARTITION: 7}
    pause(three, 1, seconds=500)
    restarted = ConsumerGroup(three.client(), "group")
    restarted.commit({PARTITION: 8})
    assert group.committed([PARTITION]) == {PARTITION: 8}
    assert three.received_by("OffsetCommit") == [0, 1, 1]


def test_requests_end_at_their_deadline(three: UnitCluster) -> None:
    client = three.client()
    group = ConsumerGroup(client, "group")
    group.committed([PARTITION])
    pause(three, 1, 2, 3, seconds=500)
    for call in (
        lambda: group.committed([PARTITION], deadline=client.deadline(1)),
        lambda: group.commit({PARTITION: 1}, deadline=client.deadline(1)),
        lambda: client.all_topics(deadline=client.deadline(1)),
    ):
        started = three.now
        with pytest.raises(BrokerTimeoutError):
            call()
        assert 0.5 < three.now - started < 1.01
