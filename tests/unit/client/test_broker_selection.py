"""One of three brokers accepts requests but does not respond: which broker is next, and how long requests take."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_broker import (
    PARTITION,
    TOPIC,
    FakeBroker,
    error_sequence,
)

from pyspark_kafka_direct.client import broker_selection
from pyspark_kafka_direct.client.broker_selection import attempt_timeout, broker_timeout, order_brokers
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, ProtocolError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

# A request times out after 20 minutes, and so does the test; the first attempt after 1 s.
SETTINGS = ConnectionSettings(
    (("127.0.0.1", 1),), request_timeout_ms=1_200_000, default_api_timeout_ms=12_000_000, connect_timeout_ms=1_200_000
)
FIRST_ATTEMPT_FRACTION = 1 / 1200


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeBroker]]:
    """Brokers of one cluster; the first one leads, and is the first to be called."""
    monkeypatch.setattr(POOL, "rotation", 0.0)
    monkeypatch.setattr(broker_selection, "_FIRST_ATTEMPT_FRACTION", FIRST_ATTEMPT_FRACTION)
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(3)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers
    POOL.clear()


def cluster_of(brokers: list[FakeBroker], retries: int | None = None) -> ClusterClient:
    bootstrap = tuple(("127.0.0.1", broker.port) for broker in brokers)
    return ClusterClient(replace(SETTINGS, bootstrap_servers=bootstrap), retries=retries)


def elect(brokers: list[FakeBroker], leader: int) -> None:
    for broker in brokers:
        broker.epoch += 1
        broker.leaders = sorted(enumerate(brokers, 1), key=lambda entry: entry[0] != leader)


def latest(cluster: ClusterClient) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


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
    assert broker_timeout(60.0, later_brokers=2, max_seconds=3.0) == 3.0
    assert broker_timeout(60.0, later_brokers=0, max_seconds=3.0) == 60.0
    assert broker_timeout(6.0, later_brokers=2, max_seconds=3.0) == 2.0
    assert [attempt_timeout(SETTINGS, tries) for tries in (1, 2, 3)] == [120.0, 240.0, 480.0]  # of 1200
    assert attempt_timeout(SETTINGS, 10_000) < 1e7


def test_metadata_request_falls_back_to_another_broker(three: list[FakeBroker]) -> None:
    cluster = cluster_of(three)
    assert TOPIC in cluster.topics([TOPIC])
    three[0].frozen = True
    assert TOPIC in cluster.topics([TOPIC])


def test_failed_broker_is_avoided_by_next_client(three: list[FakeBroker]) -> None:
    three[0].frozen = True
    assert TOPIC in cluster_of(three).topics([TOPIC])
    connections = three[0].connections
    for _ in range(3):
        assert TOPIC in cluster_of(three).topics([TOPIC])
    assert three[0].connections == connections


def test_recovered_broker_is_called_again(three: list[FakeBroker]) -> None:
    cluster = cluster_of(three)
    cluster.topics([TOPIC])
    three[0].frozen = True
    cluster.topics([TOPIC])
    three[0].frozen = False
    address = ("127.0.0.1", three[0].port)
    assert POOL.last_failure_time(address) > 0.0
    assert latest(cluster) == 42  # it leads, so it is called
    assert POOL.last_failure_time(address) == 0.0
    before = three[1].request_counts["Metadata"]
    cluster.topics([TOPIC])
    assert three[1].request_counts["Metadata"] == before


def test_timeout_closes_other_connections_to_the_broker(three: list[FakeBroker]) -> None:
    settings = cluster_of(three).settings
    address = ("127.0.0.1", three[0].port)
    elsewhere = ("127.0.0.1", three[1].port)
    acquired = [POOL.acquire(settings, *address, Deadline.after(120)) for _ in range(3)]
    other = POOL.acquire(settings, *elsewhere, Deadline.after(120))
    for connection in (*acquired, other):
        POOL.release(connection)
    three[0].frozen = True
    assert TOPIC in cluster_of(three).topics([TOPIC])
    assert all(connection.closed for connection in acquired)
    assert not other.closed
    assert POOL.last_failure_time(address) > 0.0
    assert POOL.last_failure_time(elsewhere) == 0.0


@pytest.mark.parametrize("retries", [3, None])
def test_offset_requests_fail_over_from_unresponsive_leader(three: list[FakeBroker], retries: int | None) -> None:
    cluster = cluster_of(three, retries)
    assert latest(cluster) == 42
    three[0].frozen = True
    three[1].offsets = three[2].offsets = lambda _: (0, 99)
    metadata_requests = itertools.count()

    def elect_after_response() -> int:
        if next(metadata_requests) == 0:  # this response still has the previous leader
            elect(three, 2)
        return 0

    for broker in three[1:]:
        broker.error = elect_after_response
    assert latest(cluster) == 99


def test_the_last_try_waits_for_the_leader(three: list[FakeBroker]) -> None:
    """A task tries only once, and a slow leader may not be frozen."""
    cluster = cluster_of(three, retries=0)
    cluster.topics([TOPIC])

    def respond_slowly(_: int) -> tuple[int, int]:
        time.sleep(1.5)
        return 0, 42

    three[0].offsets = respond_slowly
    assert latest(cluster) == 42
    assert three[0].request_counts["ListOffsets"] == 1


def test_timestamp_lookup_has_full_timeout(three: list[FakeBroker]) -> None:
    def respond_slowly(_: int) -> tuple[int, int]:
        time.sleep(1.5)
        return 0, 42

    three[0].offsets = respond_slowly
    assert cluster_of(three).offsets({PARTITION: 1_700_000_000_000})[PARTITION] == 42
    assert three[0].request_counts["ListOffsets"] == 1


def test_slow_cluster_still_responds(three: list[FakeBroker]) -> None:
    def respond_slowly() -> int:
        time.sleep(1.5)
        return 0

    for broker in three:
        broker.error = respond_slowly
    assert TOPIC in cluster_of(three, retries=0).topics([TOPIC])


def test_error_names_all_unresponsive_brokers(three: list[FakeBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    for broker in three:
        broker.frozen = True
    cluster = cluster_of(three, retries=0)
    cluster.settings = replace(cluster.settings, request_timeout_ms=1000, connect_timeout_ms=500)
    monkeypatch.setattr(broker_selection, "_FIRST_ATTEMPT_FRACTION", 0.05)
    with pytest.raises(BrokerTimeoutError, match="No broker responded in time") as caught:
        cluster.topics([TOPIC])
    for broker in three:
        assert f"127.0.0.1:{broker.port}" in str(caught.value)


def test_coordinator_lookup_falls_back_to_another_broker(three: list[FakeBroker]) -> None:
    elect(three, 2)
    group = ConsumerGroup(cluster_of(three), "group")
    assert group.committed([PARTITION]) == {PARTITION: 7}
    three[1].frozen = True
    elect(three, 3)
    assert group.committed([PARTITION]) == {PARTITION: 7}
    assert three[2].request_counts["OffsetFetch"] > 0
    three[0].frozen = True
    group = ConsumerGroup(cluster_of(three), "group")
    group.commit({PARTITION: 8})
    assert three[2].request_counts["OffsetCommit"] > 0


def test_group_requests_end_at_their_deadline(three: list[FakeBroker]) -> None:
    group = ConsumerGroup(cluster_of(three), "group")
    group.committed([PARTITION])
    for broker in three:
        broker.frozen = True
    with pytest.raises(BrokerTimeoutError):
        group.committed([PARTITION], deadline=Deadline.after(1))
    with pytest.raises(BrokerTimeoutError):
        group.commit({PARTITION: 1}, deadline=Deadline.after(1))
    with pytest.raises(BrokerTimeoutError):
        cluster_of(three).all_topics(deadline=Deadline.after(1))


def test_commit_for_missing_partition_fails_after_confirmations(
    three: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_selection, "_FIRST_ATTEMPT_FRACTION", 1.0)  # the test counts requests
    group = ConsumerGroup(cluster_of(three), "group")
    three[0].commit_error = error_sequence(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    group.commit({PARTITION: 1})  # the coordinator may not have the metadata of a new partition yet
    assert three[0].request_counts["OffsetCommit"] == 2
    for broker in three:
        broker.commit_error = broker.topic_error = lambda: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TopicNotFoundError) as caught:
        group.commit({PARTITION: 1})
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert three[0].request_counts["OffsetCommit"] == 3


def test_partition_missing_in_coordinator_response_raises(three: list[FakeBroker]) -> None:
    group = ConsumerGroup(cluster_of(three), "group")
    three[0].omits_partitions = True
    with pytest.raises(ProtocolError, match="The response to OffsetFetch lacks a partition") as caught:
        group.committed([PARTITION])
    assert (caught.value.topic, caught.value.partition) == PARTITION
    with pytest.raises(ProtocolError, match="The response to OffsetCommit lacks a partition"):
        group.commit({PARTITION: 1})
