"""Consumers of several topics, leaders and transactions: what holds for the first one holds for all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.consumer.polling import (
    ONE,
    OTHER,
    THREE,
    TWO,
    ConsumerCluster,
    at_end,
    offsets,
    poll_until,
    poll_until_error,
)
from tests.unit.consumer.reading import Read

from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel, FetchRequestPartition
from pyspark_kafka_direct.errors import AuthorizationError, DataLossError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

ALL = (ONE, TWO, THREE, OTHER)


@pytest.fixture
def cluster() -> Iterator[ConsumerCluster]:
    """Two brokers; broker 1 leads two of the four partitions, and broker 2 the others."""
    with ConsumerCluster(topics={"ships": 1}) as cluster:
        cluster.elect(TWO, 2)
        cluster.elect(OTHER, 2)
        yield cluster


def loss_offsets(consumer: PartitionConsumer) -> dict[TopicPartition, int]:
    """Poll until the errors of all partitions were raised, and return their offsets."""
    found: dict[TopicPartition, int] = {}
    while found.keys() != set(ALL):
        error = poll_until_error(consumer, DataLossError)
        found[TopicPartition(error.topic, error.partition)] = error.offset
    return found


@pytest.mark.parametrize("start", [3, 99])
@pytest.mark.parametrize("failing", [0, 2])
def test_offsets_of_all_partitions_are_checked_together(cluster: ConsumerCluster, start: int, failing: int) -> None:
    """Also if the first requests for the logs fail."""
    for tp in ALL:
        cluster.append(tp, 10)
        cluster.delete_records(tp, 5)
    with cluster.consumer(dict.fromkeys(ALL, start)) as consumer:
        cluster.fault("ListOffsets", "lose_response", repeats=failing)
        assert loss_offsets(consumer) == dict.fromkeys(ALL, start)
        assert cluster.sent("Fetch") == 2, "one to each leader"
        for tp in ALL:
            consumer.seek(tp, 5)
        assert poll_until(consumer, at_end(cluster, consumer)) == {tp: [5, 6, 7, 8, 9] for tp in ALL}


def test_errors_of_a_check_are_visible_for_all_partitions(cluster: ConsumerCluster) -> None:
    for tp in ALL:
        cluster.append(tp, 10)
        cluster.delete_records(tp, 5)
    with cluster.consumer(dict.fromkeys(ALL, 3)) as consumer:
        cluster.every("ListOffsets", "lose_response")
        consumer.poll(5)
        fetched = len(cluster.fetched())
        consumer.poll(120)  # two checks fail in this time
        assert consumer.transient_errors.keys() == set(ALL)
        assert len(cluster.fetched()) - fetched < 20, "nothing is fetched during a check"
        cluster.every("ListOffsets", None)
        assert loss_offsets(consumer) == dict.fromkeys(ALL, 3)


def test_truncations_are_detected_by_the_leader_epochs_of_an_earlier_consumer(cluster: ConsumerCluster) -> None:
    for tp in ALL:
        cluster.append_each(tp, 5)
    with cluster.consumer() as first:
        poll_until(first, at_end(cluster, first))
        last_epochs = dict(first.last_epochs)
    assert last_epochs == {tp: cluster.partition(tp).epoch for tp in ALL}
    for tp in (TWO, OTHER):
        cluster.truncate(tp, 3, leader=1)
        cluster.append_each(tp, 4)
    with cluster.consumer(dict.fromkeys(ALL, 5), last_epochs=last_epochs) as consumer:
        for _ in range(2):
            error = poll_until_error(consumer, TruncatedError)
            assert error.truncated_to == 3
            consumer.seek(TopicPartition(error.topic, error.partition), 3)
        assert poll_until(consumer, at_end(cluster, consumer)) == {tp: [3, 4, 5, 6] for tp in (TWO, OTHER)}


def test_each_moved_leader_is_found_by_the_metadata_refresh() -> None:
    """The deposed leader keeps returning no records."""
    with ConsumerCluster(topics={"ships": 1}) as cluster, cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.event("isolate_broker", broker=0, seconds=10_000)
        cluster.sleep(1)  # the controller elects broker 2
        for tp in ALL:
            cluster.append(tp, 1)
        start = cluster.now
        assert poll_until(consumer, at_end(cluster, consumer)) == {tp: [0] for tp in ALL}
        assert cluster.now - start == pytest.approx(300, abs=2)  # metadata.max.age.ms


def test_the_metadata_refresh_requests_all_topics(cluster: ConsumerCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.poll(1)
        before = len(cluster.received("Metadata"))
        consumer.poll(700)
        requested = [{topic.name for topic in request.topics} for request in cluster.received("Metadata")[before:]]
    assert requested == [{"flights", "ships"}] * 2


def test_any_unresponsive_leader_is_noticed_in_time(cluster: ConsumerCluster) -> None:
    """The other leader responds before, and the next time later."""
    noticed: list[set[TopicPartition]] = []
    with cluster.consumer(fetch={"fetch_max_wait_ms": 15_000}) as consumer:
        consumer.poll(1)
        cluster.event("pause_broker", broker=1, seconds=1000)  # broker 2
        consumer.poll(4)
        cluster.append(ONE, 1)
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        cluster.after(26, lambda: noticed.append(set(consumer.transient_errors)))
        consumer.poll(28)
    assert noticed == [{TWO, OTHER}]


@pytest.mark.parametrize("denied", [True, False], ids=["denied", "unreachable"])
def test_all_partitions_without_a_leader_back_off(cluster: ConsumerCluster, denied: bool) -> None:
    if denied:
        cluster.event("deny_topic", topic="flights", seconds=1000)
    with cluster.consumer() as consumer:
        if not denied:
            consumer.poll(1)
            for broker in range(2):
                cluster.event("stop_broker", broker=broker, seconds=1000)
        before = cluster.sent("Metadata") + cluster.network.connect_count
        ends_at = cluster.now + 30
        while cluster.now < ends_at:
            try:
                consumer.poll(ends_at - cluster.now)
            except AuthorizationError as error:
                assert error.topic == "flights"  # noqa: PT017
        assert cluster.sent("Metadata") + cluster.network.connect_count - before < 130
        cluster.heal()
        for tp in ALL:
            cluster.append(tp, 1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {tp: [0] for tp in ALL}


def test_a_partition_does_not_wait_for_the_backoff_of_another_one(cluster: ConsumerCluster) -> None:
    """The pauses of partitions without a leader have grown to a second."""
    cluster.event("lose_leader", topic="flights", partition=0, seconds=1000)
    cluster.append(TWO, 1)
    with cluster.consumer() as consumer:
        consumer.poll(0)
        consumer.poll(20)
        for number in range(5):  # at different times within the pause
            cluster.fault("Fetch", "error", code=6)
            cluster.append(TWO, 1)
            start = cluster.now
            assert poll_until(consumer, lambda: consumer.positions[TWO] == cluster.log(TWO).end)
            assert cluster.now - start < 0.4, number
            consumer.poll(0.17)


def test_any_descriptor_ends_the_poll(cluster: ConsumerCluster) -> None:
    signals = [cluster.process.wakeup_signal() for _ in range(3)]
    with cluster.consumer() as consumer:
        consumer.poll(1)
        for signal in signals:
            start = cluster.now
            cluster.after(7.25, signal.set)
            assert consumer.poll(60.0, [each.fileno() for each in signals]) == []
            assert cluster.now == pytest.approx(start + 7.25, abs=0.001)
            signal.clear()


def test_the_end_of_the_throttling_of_any_leader_ends_the_wait(cluster: ConsumerCluster) -> None:
    with cluster.consumer(fetch={"fetch_max_wait_ms": 20_000}) as consumer:
        consumer.poll(1)
        for tp, broker, offset in ((TWO, 1, 0), (ONE, 0, 0), (TWO, 1, 2)):
            cluster.event("throttle_broker", broker=broker, seconds=1, ms=3000)
            cluster.append(tp, 1)
            assert offsets(consumer.poll(1)) == {tp: [offset]}
            cluster.append(tp, 1)
            start = cluster.now
            assert offsets(consumer.poll(60)) == {tp: [offset + 1]}
            assert 1 < cluster.now - start < 4


@pytest.mark.parametrize("first", [0, 1])
def test_partitions_with_and_without_topic_ids_are_fetched_together(cluster: ConsumerCluster, first: int) -> None:
    client = cluster.client()
    client.topics(["flights"])
    connection = client.connect(client.leader(ONE), client.deadline())
    channel = FetchChannel(connection, FetchSettings())
    partitions = [
        FetchRequestPartition(ONE.topic, cluster.topic_id("flights"), ONE.partition, 0, 1000),
        FetchRequestPartition(THREE.topic, None, THREE.partition, 0, 1000),
    ]
    cluster.append(ONE, 1)
    cluster.append(THREE, 1)
    channel.request(partitions[:: -1 if first else 1], client.deadline())
    response = channel.response(client.deadline())
    assert [response.partition(tp).high_watermark for tp in (ONE, THREE)] == [1, 1]
    client.release(connection)


def test_the_connections_to_all_leaders_are_closed(cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_child in (False, True):
        consumer = cluster.consumer()
        consumer.poll(1)
        with monkeypatch.context() as child:
            if is_child:
                child.setattr(os, "getpid", lambda: 1)
            consumer.close()
        assert cluster.open_connections == 0, "each of them waits for a response, so none is pooled"


def aborted_transactions(cluster: ConsumerCluster) -> list[int]:
    """Append three aborted transactions that overlap, and return the offsets of the other records."""
    for producer_id in (7, 8, 9):
        cluster.append(ONE, 2, producer_id=producer_id)
    cluster.append(ONE, 2)
    for producer_id in (8, 7, 9):
        cluster.append(ONE, 1, producer_id=producer_id)
        cluster.end_transaction(ONE, producer_id, commit=False)
    cluster.append(ONE, 1)
    return [6, 7, 14]


def test_records_of_several_aborted_transactions_are_not_returned(cluster: ConsumerCluster) -> None:
    committed = aborted_transactions(cluster)
    with cluster.consumer({ONE: 0}, isolation_level="read_committed") as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: committed}
    assert Read(cluster, isolation_level="read_committed").run(until=15) == committed
