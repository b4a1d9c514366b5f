"""Leaders that move, fail, are unresponsive or have no records, with a fake cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.consumer.fake_cluster import FakeCluster
from tests.unit.consumer.polling import (
    ONE,
    THREE,
    TWO,
    at_end,
    offsets,
    poll_until,
)

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers; the first one leads."""
    return FakeCluster([ONE, TWO, THREE], cluster=2)


def test_one_request_per_leader_contains_all_its_partitions(cluster: FakeCluster) -> None:
    cluster.logs[TWO].leader = 2
    for log in cluster.logs.values():
        log.append(1)
    with cluster.consumer() as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0], TWO: [0], THREE: [0]}
    assert [len(request.topics[0].partitions) for request in cluster.requests[:2]] == [2, 1]
    assert sorted(connection.node.id for connection in cluster.connections) == [1, 2]


@pytest.mark.parametrize("returns_leaders", [False, True])
def test_moved_leader_is_followed(cluster: FakeCluster, returns_leaders: bool) -> None:
    cluster.returns_leaders = returns_leaders
    log = cluster.logs[ONE]
    log.append(3)
    with cluster.consumer() as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        metadata_requests = cluster.metadata_requests
        log.leader, log.epoch = 2, 6
        cluster.respond_to_waiting_fetches()
        log.append(2)
        moved_at = cluster.system.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4]}
        assert consumer.transient_errors == {}
        assert cluster.metadata_requests == metadata_requests + 1, "it also confirms the epoch that a response named"
        assert (cluster.system.now - moved_at < 0.05) == returns_leaders  # else it backs off


def test_leader_with_an_older_epoch_in_a_response_is_ignored(cluster: FakeCluster) -> None:
    cluster.returns_leaders = True
    cluster.error = lambda tp: ErrorCode.NOT_LEADER_OR_FOLLOWER if tp == ONE and len(cluster.fetched_offsets) < 9 else 0
    cluster.logs[ONE].append(1)
    with cluster.consumer({ONE: 0}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
    assert cluster.system.now > 1001


def test_broken_connection_is_replaced(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(1)
    with cluster.consumer() as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.break_connections()
        consumer.poll(0)
        assert {type(error) for error in consumer.transient_errors.values()} == {BrokerUnreachableError}
        assert consumer.transient_errors.keys() == {ONE, TWO, THREE}
        cluster.logs[ONE].append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1]}
        consumer.poll(1)
        assert consumer.transient_errors == {}
    assert [connection.closed for connection in cluster.connections] == [True, True]
    assert cluster.released == cluster.connections


def test_unreachable_brokers_are_retried_with_backoff(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.down.update({1, 2})
        cluster.break_connections()
        metadata_requests = cluster.metadata_requests
        assert consumer.poll(600.0) == []
        assert 600 < cluster.metadata_requests - metadata_requests < 800  # retry.backoff.max.ms is a second
        assert "all brokers are down" in str(consumer.transient_errors[ONE])
        cluster.down.clear()
        cluster.logs[ONE].append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}


def test_idle_connection_closed_by_the_broker_is_replaced(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        consumer.pause(cluster.logs)
        consumer.poll(700)
        cluster.break_connections()
        consumer.resume(cluster.logs)
        cluster.logs[ONE].append(1)
        now = cluster.system.now
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        assert cluster.system.now < now + 0.05
        assert consumer.transient_errors == {}


def test_unresponsive_broker_is_removed_after_the_request_timeout(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.down.add(1)  # its connections stay open
        for log in cluster.logs.values():
            log.leader, log.epoch = 2, 6
        cluster.logs[ONE].append(1)
        now = cluster.system.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert 29 < cluster.system.now - now < 32  # request.timeout.ms


def test_late_poll_finds_the_response(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.logs[ONE].append(1)
        cluster.respond_to_waiting_fetches()
        cluster.system.wait_readable([], 300)
        assert offsets(consumer.poll(0)) == {ONE: [0]}
        assert len(cluster.connections) == 1


def test_partitioned_leader_is_detected_by_the_metadata_refresh(cluster: FakeCluster) -> None:
    """It keeps returning no records; the periodic metadata refresh finds the new leader."""
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.logs[ONE] = replace(cluster.logs[ONE], leader=2, epoch=6)
        old = cluster.connections[0]
        respond = old._partition
        old._partition = lambda *arguments: respond(*arguments) | {"error_code": 0, "records": b"", "high_watermark": 0}  # type: ignore[method-assign]
        cluster.logs[ONE].append(1)
        now = cluster.system.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert cluster.system.now - now == pytest.approx(300, abs=2)  # metadata.max.age.ms


def test_all_partitions_are_served_in_turn() -> None:
    """A response fits a few of them only."""
    partitions = [TopicPartition("flights", number) for number in range(60)]
    cluster = FakeCluster(partitions)
    for log in cluster.logs.values():
        for _ in range(3):
            log.append(10, size=1000)
    with cluster.consumer(fetch={"fetch_max_bytes": 45_000, "max_partition_fetch_bytes": 1}) as consumer:
        for round_ in range(3):
            seen: list[TopicPartition] = []
            while len(seen) < 60:
                seen += offsets(consumer.poll(1))
            assert sorted(seen) == partitions, round_


def test_record_larger_than_a_fetch_is_returned(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(1, size=3_000_000)
    cluster.logs[TWO].append(5)
    with cluster.consumer(fetch={"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0], TWO: [0, 1, 2, 3, 4]}


def test_decoders_of_large_responses_are_not_retained() -> None:
    partitions = [TopicPartition("flights", number) for number in range(100)]
    cluster = FakeCluster(partitions)
    for log in cluster.logs.values():
        log.append(10, size=10_000)
    with cluster.consumer(fetch={"fetch_max_bytes": 1 << 20}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        retained = [each for each in consumer._partitions.values() if each._decoder is not None]
        assert len(retained) * 100_000 <= 1 << 20
        for log in cluster.logs.values():
            log.append(1)
        poll_until(consumer, at_end(cluster, consumer))
        assert all(each._decoder is not None for each in consumer._partitions.values())


@pytest.mark.parametrize("newest", [4, 6, 8, 10, 11, 12, 17])
def test_older_broker_versions_are_supported(cluster: FakeCluster, newest: int) -> None:
    cluster.versions = {1: (4, newest), 2: (1, 4)}
    cluster.logs[ONE].append(2)
    cluster.logs[THREE].append(2)
    with cluster.consumer() as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1], THREE: [0, 1]}


def test_repeated_immediate_empty_responses_slow_down_the_fetches(cluster: FakeCluster) -> None:
    """Kafka responds so while an offset lies beyond the last stable offset."""
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        connection = cluster.connections[0]
        fetches = len(cluster.requests)
        respond = connection._partition_responses
        connection._partition_responses = lambda: (respond()[0], True)  # type: ignore[method-assign]
        assert consumer.poll(60) == []
        assert len(cluster.requests) - fetches < 140
        cluster.logs[ONE].append(1)
        assert offsets(consumer.poll(1)) == {ONE: [0]}


def test_throttled_fetch_is_repeated(cluster: FakeCluster) -> None:
    cluster.throttled = 3
    cluster.logs[ONE].append(1)
    with cluster.consumer({ONE: 0}) as consumer:
        assert consumer.poll(0) == []
        assert offsets(consumer.poll(5)) == {ONE: [0]}
    assert len(cluster.requests) == 5


def test_due_metadata_refresh_waits_for_the_one_in_flight() -> None:
    """A due refresh must not cause a busy loop."""
    cluster = FakeCluster([ONE], cluster=2, metadata_max_age_ms=10_000)
    system = cluster.system
    with cluster.consumer() as consumer:
        consumer.poll(1.0)
        system.hold_background = True
        cluster.down.add(1)
        cluster.break_connections()
        system.waits.clear()
        for _ in range(1000):  # the metadata request takes longer than metadata.max.age.ms
            if system.now >= 1031:
                break
            consumer._fetcher_manager.wait(1031, [])
            consumer._run_once()
        assert system.now >= 1031
        assert len(system.waits) < 50
        system.hold_background = False
        system.run_background()
