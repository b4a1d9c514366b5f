"""Leaders that move, fail, are unresponsive or have no records, on a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.consumer.polling import (
    ONE,
    THREE,
    TWO,
    ConsumerCluster,
    at_end,
    offsets,
    poll_until,
)

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode


def test_one_request_per_leader_contains_all_its_partitions(cluster: ConsumerCluster) -> None:
    cluster.elect(TWO, 2)
    for tp in (ONE, TWO, THREE):
        cluster.append(tp, 1)
    with cluster.consumer() as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0], TWO: [0], THREE: [0]}
    first = {each.broker: each.values for each in reversed(cluster.arrivals("Fetch"))}
    assert {broker: len(values.topics[0].partitions) for broker, values in first.items()} == {1: 2, 2: 1}
    assert cluster.network.connect_count == 2


@pytest.mark.parametrize("returns_leaders", [False, True])
def test_moved_leader_is_followed(returns_leaders: bool) -> None:
    with ConsumerCluster(newest_versions={} if returns_leaders else {"Fetch": 15}) as cluster:
        cluster.append(ONE, 3)
        with cluster.consumer() as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            metadata_requests = cluster.sent("Metadata")
            cluster.elect(ONE, 2)
            cluster.append(ONE, 2)
            moved_at = cluster.now
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4]}
            assert consumer.transient_errors == {}
            confirmed = cluster.sent("Metadata")
            assert confirmed == metadata_requests + 1, "it also confirms the epoch that a response named"
            assert (cluster.now - moved_at < 0.05) == returns_leaders  # else it backs off


def test_leader_with_an_older_epoch_in_a_response_is_ignored(cluster: ConsumerCluster) -> None:
    """Broker 2 has not applied the election, and names the leader before it."""
    cluster.append(ONE, 1)
    cluster.event("stick_image", broker=1, seconds=1.0)
    cluster.elect(ONE, 2)
    with cluster.consumer({ONE: 0}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert cluster.sent("Fetch") < 8  # with pauses
    assert cluster.now > 1001


def test_the_first_pause_is_short(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1)
    cluster.fault("Fetch", "error", code=6)
    start = cluster.now
    with cluster.consumer({ONE: 0}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert 0.08 < cluster.now - start < 0.15  # retry.backoff.ms


def test_broken_connection_is_replaced(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1)
    with cluster.consumer() as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.break_connections()
        consumer.poll(0)
        assert {type(error) for error in consumer.transient_errors.values()} == {BrokerUnreachableError}
        assert consumer.transient_errors.keys() == {ONE, TWO, THREE}
        cluster.append(ONE, 1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1]}
        consumer.poll(1)
        assert consumer.transient_errors == {}


def test_unreachable_brokers_are_retried_with_backoff(cluster: ConsumerCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        for broker in cluster.cluster.brokers:
            cluster.event("stop_broker", broker=broker, seconds=1000)
        connects = cluster.network.connect_count
        assert consumer.poll(600.0) == []
        assert 1000 < cluster.network.connect_count - connects < 1300  # two brokers; retry.backoff.max.ms is a second
        assert "No broker could be reached" in str(consumer.transient_errors[ONE])
        cluster.heal()
        cluster.append(ONE, 1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}


def test_unresponsive_broker_is_removed_after_the_request_timeout(cluster: ConsumerCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.event("pause_broker", broker=0, seconds=1000)  # broker 1; its connections stay open
        for tp in (ONE, TWO, THREE):
            cluster.elect(tp, 2)
        cluster.append(ONE, 1)
        now = cluster.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert 29 < cluster.now - now < 32  # request.timeout.ms


def test_late_poll_finds_the_response(cluster: ConsumerCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.append(ONE, 1)
        cluster.sleep(300)
        assert offsets(consumer.poll(0)) == {ONE: [0]}
        assert cluster.network.connect_count == 1


@pytest.mark.parametrize("has_reliable_epochs", [False, True])
def test_partitioned_leader_is_detected_by_the_metadata_refresh(has_reliable_epochs: bool) -> None:
    """It keeps returning no records; the periodic metadata refresh finds the new leader."""
    newest_versions = {} if has_reliable_epochs else {"Metadata": 8, "Fetch": 11}  # Kafka 2.3
    with ConsumerCluster(newest_versions=newest_versions) as cluster, cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.event("isolate_broker", broker=0, seconds=10_000)
        cluster.sleep(1)  # the controller elects broker 2
        cluster.append(ONE, 1)
        now = cluster.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert cluster.now - now == pytest.approx(300, abs=2)  # metadata.max.age.ms


def test_a_late_response_of_a_leader_is_ignored_after_the_partition_has_moved() -> None:
    """Brokers before Kafka 2.4 have no reliable leader epochs, by which the response would be outdated."""
    versions, settings = {"Metadata": 8, "Fetch": 11}, {"metadata_max_age_ms": 2000}
    with ConsumerCluster(newest_versions=versions, connection=settings) as cluster, cluster.consumer() as consumer:
        consumer.poll(1)
        for seconds in (5.0, 8.0):
            cluster.fault("Fetch", "delay_response", number=seconds == 8.0, seconds=seconds)
        cluster.append(ONE, 1)
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        cluster.append(ONE, 1)
        consumer.poll(0.1)
        cluster.elect(ONE, 2)
        began = cluster.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1]}
        assert cluster.now - began > 8


def test_a_leader_is_found_after_a_metadata_refresh_has_failed() -> None:
    versions = {"Fetch": 11}  # responses do not name the leader
    settings = {"metadata_max_age_ms": 10_000}
    with ConsumerCluster(newest_versions=versions, connection=settings) as cluster, cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.every("Metadata", "lose_response")
        sent = cluster.sent("Metadata")
        consumer.poll(11)
        assert cluster.sent("Metadata") - sent < 5
        cluster.every("Metadata", None)
        consumer.poll(1)
        cluster.elect(ONE, 2)
        cluster.append(ONE, 1)
        began = cluster.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}
        assert cluster.now - began < 5


def test_leader_that_rejects_connections_is_retried_with_backoff() -> None:
    with ConsumerCluster(failure_detection=1000) as cluster:
        cluster.elect(TWO, 2)
        cluster.append(ONE, 1)
        cluster.append(TWO, 1)
        cluster.event("stop_broker", broker=0, seconds=60)
        with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
            assert offsets(consumer.poll(1)) == {TWO: [0]}
            assert consumer.poll(50) == []
            assert type(consumer.transient_errors[ONE]) is BrokerUnreachableError
            assert 40 < cluster.network.connect_count < 80  # retry.backoff.max.ms is a second
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}


def test_all_partitions_are_served_in_turn() -> None:
    """A response fits a few of them only."""
    with ConsumerCluster(60, brokers=1) as cluster:
        partitions = [TopicPartition("flights", number) for number in range(60)]
        for tp in partitions:
            for _ in range(3):
                cluster.append(tp, 10, size=1000)
        with cluster.consumer(fetch={"fetch_max_bytes": 45_000, "max_partition_fetch_bytes": 1}) as consumer:
            for round_ in range(3):
                seen: list[TopicPartition] = []
                while len(seen) < 60:
                    seen += offsets(consumer.poll(1))
                assert sorted(seen) == partitions, round_


def test_record_larger_than_a_fetch_is_returned(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1, size=3_000_000)
    cluster.append(TWO, 5)
    with cluster.consumer(fetch={"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0], TWO: [0, 1, 2, 3, 4]}


def test_decoders_of_large_responses_are_not_retained() -> None:
    with ConsumerCluster(100, brokers=1) as cluster:
        partitions = [TopicPartition("flights", number) for number in range(100)]
        for tp in partitions:
            cluster.append(tp, 10, size=10_000)
        with cluster.consumer(fetch={"fetch_max_bytes": 1 << 20}) as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            retained = [each for each in consumer._partitions.values() if each._decoder is not None]
            assert len(retained) * 100_000 <= 1 << 20
            for tp in partitions:
                cluster.append(tp, 1)
            poll_until(consumer, at_end(cluster, consumer))
            assert all(each._decoder is not None for each in consumer._partitions.values())


@pytest.mark.parametrize("newest", [4, 6, 8, 10, 11, 12, 17])
@pytest.mark.parametrize("topic_ids", [True, False])
def test_older_broker_versions_are_supported(newest: int, topic_ids: bool) -> None:
    """Without topic ids, topics are fetched by name."""
    with ConsumerCluster(newest_versions={"Fetch": newest, "ListOffsets": 4}, topic_ids=topic_ids) as cluster:
        cluster.append(ONE, 2)
        cluster.append(THREE, 2)
        with cluster.consumer() as consumer:
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1], THREE: [0, 1]}


def respond_at_once(cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a leader return no records without a wait, as Kafka does below an open transaction."""
    broker = cluster.cluster.brokers[1]
    handle = broker.handle

    def handle_at_once(api: str, version: int, request: Any, client_id: str) -> Any:
        immediate = request._replace(max_wait_ms=0) if api == "Fetch" else request
        return handle(api, version, immediate, client_id)

    monkeypatch.setattr(broker, "handle", handle_at_once)


def test_repeated_immediate_empty_responses_slow_down_the_fetches(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka responds so while an offset lies beyond the last stable offset."""
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        respond_at_once(cluster, monkeypatch)
        fetches = cluster.sent("Fetch")
        assert consumer.poll(60) == []
        assert cluster.sent("Fetch") - fetches < 140
        cluster.after(20, lambda: cluster.append(ONE, 1))
        began = cluster.now
        assert offsets(consumer.poll(60)) == {ONE: [0]}
        assert cluster.now - began < 22, "the poll ends a pause"


@pytest.mark.parametrize("is_of_partition", [False, True])
def test_a_pause_that_ends_before_the_wait_begins_is_not_slept_over(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch, is_of_partition: bool
) -> None:
    """That of a partition after an error, and that of a broker after empty responses; the thread is slow."""
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        manager = consumer._fetcher_manager
        send_fetches = manager.send_fetches

        def send_fetches_slowly() -> None:
            send_fetches()
            if all(fetcher.idle for fetcher in manager._fetchers.values()):
                cluster.sleep(3)

        monkeypatch.setattr(manager, "send_fetches", send_fetches_slowly)
        if is_of_partition:
            cluster.fault("Fetch", "error", code=ErrorCode.KAFKA_STORAGE_ERROR, repeats=3)
        else:
            respond_at_once(cluster, monkeypatch)
        began = cluster.now
        cluster.after(8, lambda: cluster.append(ONE, 1))
        assert offsets(consumer.poll(600)) == {ONE: [0]}
        assert cluster.now - began < 60


def test_throttled_fetch_is_repeated(cluster: ConsumerCluster) -> None:
    cluster.event("throttle_broker", broker=0, seconds=0.17, ms=50)
    cluster.append(ONE, 1)
    with cluster.consumer({ONE: 0}) as consumer:
        assert consumer.poll(0) == []
        assert offsets(consumer.poll(5)) == {ONE: [0]}
    assert 3 <= cluster.sent("Fetch") <= 5


def test_requests_follow_the_settings(cluster: ConsumerCluster) -> None:
    """Without the rack: a leader that refers to a follower returns no records."""
    settings = {"client_rack": "ours", "fetch_max_wait_ms": 300, "fetch_max_bytes": 1000}
    with cluster.consumer(isolation_level="read_committed", fetch=settings) as consumer:
        consumer.poll(1)
    request = cluster.received("Fetch")[0]
    assert (request.rack_id, request.max_wait_ms, request.max_bytes, request.isolation_level) == ("", 300, 1000, 1)


@pytest.mark.parametrize(("min_bytes", "requested"), [(0, 1), (1, 1), (5, 5)])
def test_requests_wait_for_at_least_one_byte(cluster: ConsumerCluster, min_bytes: int, requested: int) -> None:
    with cluster.consumer(fetch={"fetch_min_bytes": min_bytes}) as consumer:
        consumer.poll(1)
    assert {request.min_bytes for request in cluster.received("Fetch")} == {requested}


def test_due_metadata_refresh_waits_for_the_one_in_flight() -> None:
    """A due refresh must not cause a busy loop."""
    with ConsumerCluster(1, connection={"metadata_max_age_ms": 10_000}) as cluster, cluster.consumer() as consumer:
        consumer.poll(1.0)
        for broker in cluster.cluster.brokers:
            cluster.event("pause_broker", broker=broker, seconds=60)
        cluster.break_connections()
        calls = cluster.world.calls
        assert consumer.poll(30) == []  # the metadata request takes longer than metadata.max.age.ms
        assert cluster.world.calls - calls < 1000
