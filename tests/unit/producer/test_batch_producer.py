"""When the producer sends, waits, finds leaders and fails, on a simulated cluster."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.unit.producer.encoded_batches import encoded
from tests.unit.producer.producer_cluster import PARTITION, RECORDS, SIZE, ProducerCluster, batch

from pyspark_kafka_direct.client import producer_state
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.producer_state import EPOCH_ENDED
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import WrittenRange
from pyspark_kafka_direct.producer.broker_channel import BrokerChannel
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

NOW = pytest.approx(0, abs=0.05)


def soon_after(seconds: float) -> Any:
    """Compare with a time some milliseconds later, which requests take."""
    return pytest.approx(seconds + 0.02, abs=0.03)


def test_one_batch_is_acknowledged_before_five_are_in_flight(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    assert cluster.write(11) == {PARTITION: WrittenRange(0, 110, 110, 11 * SIZE)}
    assert cluster.produce_times == [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert cluster.sequences() == list(range(0, 110, 10))


def test_without_sequence_numbers_one_batch_is_in_flight(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    cluster.write(3, acks=1)
    assert cluster.produce_times == [0, 1, 2]
    assert cluster.sequences() == [-1] * 3
    assert cluster.sent("InitProducerId") == 0


def test_a_request_has_one_batch_per_partition_up_to_its_size(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.producer(max_request_bytes=3 * SIZE, max_in_flight=1)
    for partition in (0, 1, 2, 3, 0, 1):
        producer.send("t", batch(partition))
    producer.send("t", encoded(4, 0, 100))
    producer.flush()
    assert cluster.produced_partitions == [[0], [1, 2, 3], [0], [4], [1]]


def test_small_batches_of_several_partitions_share_a_request(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    for partition in range(3):
        producer.send("t", batch(partition), more_follows=True)
    assert cluster.sent("Produce") == 0
    assert len(producer.flush()) == 3
    assert cluster.produced_partitions == [[0, 1, 2]]


def test_a_large_batch_is_sent_at_once_with_the_deferred_ones(cluster: ProducerCluster) -> None:
    producer = cluster.producer(batch_bytes=202)
    producer.send("t", batch(0)._replace(uncompressed_bytes=100), more_follows=True)
    producer.send("t", batch(1)._replace(uncompressed_bytes=101), more_follows=True)
    producer.send("t", batch(2)._replace(uncompressed_bytes=100), more_follows=True)
    assert cluster.sent("Produce") == 1
    producer.flush()
    assert cluster.produced_partitions == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("max_request_bytes", "expected"),
    [(3 * SIZE, [[0, 1, 2], [3, 4, 5]]), (3 * SIZE + 1, [[0, 1, 2], [3]]), (3 * SIZE - 1, [[0, 1], [2], [3, 4], [5]])],
)
def test_small_batches_are_deferred_until_they_fill_a_request(
    cluster: ProducerCluster, max_request_bytes: int, expected: list[list[int]]
) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.producer(max_request_bytes=max_request_bytes)
    for partition in range(7):
        producer.send("t", batch(partition), more_follows=True)
    assert producer.unacknowledged_bytes == 7 * SIZE
    cluster.sleep(0.1)
    assert cluster.produced_partitions == expected


@pytest.mark.parametrize("more_follows", [False, True])
def test_unacknowledged_bytes_are_bounded(cluster: ProducerCluster, more_follows: bool) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.producer(buffer_bytes=3 * SIZE, max_in_flight=1)
    for _ in range(20):
        producer.send("t", batch(), more_follows=more_follows)
        assert producer.unacknowledged_bytes <= 3 * SIZE
    large = encoded(0, 0, 100)
    producer.send("t", large)
    assert producer.unacknowledged_bytes == len(large.data)
    producer.flush()
    assert producer.unacknowledged_bytes == 0


def test_callers_can_wait_for_responses_with_descriptors(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.producer()
    assert (producer.descriptors(), producer.has_queued_batches) == ([], False)
    producer.send("t", batch(), more_follows=True)
    assert (producer.descriptors(), producer.has_queued_batches) == ([], True)
    producer.poll(0)
    start = cluster.now
    (descriptor,) = producer.descriptors()
    assert not producer.has_queued_batches
    producer.send("t", batch())
    assert producer.has_queued_batches  # the first one must be acknowledged before
    cluster.process.wait_readable([descriptor], 60)
    assert cluster.now - start == soon_after(1)
    producer.poll(0)
    assert (cluster.sent("Produce"), producer.has_queued_batches, producer.unacknowledged_bytes) == (2, False, SIZE)
    cluster.process.wait_readable(producer.descriptors(), 60)
    producer.poll(0)
    assert (producer.descriptors(), producer.unacknowledged_bytes) == ([], 0)


def test_batches_without_a_leader_are_queued(cluster: ProducerCluster) -> None:
    cluster.event("lose_leader", topic="t", partition=0, seconds=100)
    producer = cluster.producer()
    producer.send("t", batch())
    assert producer.has_queued_batches


def test_a_response_that_has_arrived_counts_although_the_caller_is_late(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    producer.send("t", batch())
    cluster.sleep(1_000)
    producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(0, 20, 20, 2 * SIZE)}
    assert cluster.sent("Produce") == 2


def test_a_missing_response_is_awaited_for_the_request_timeout(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "stall_response", number=1)
    cluster.write(3)
    assert cluster.produce_times[:3] == [0, 0, 0]
    assert 30 < cluster.produce_times[3] < 31
    assert cluster.sequences() == [0, 10, 20, 10, 20]
    assert cluster.arrivals("Metadata")[-1].at > 30
    assert cluster.values() == 3 * list(range(RECORDS)), "they are written once"


def test_a_slow_broker_that_responds_does_not_time_out(cluster: ProducerCluster) -> None:
    """It handles the requests of a connection one after the other, so each one waits for those before it."""
    for number in range(1, 6):
        cluster.fault("Produce", "delay_response", number=number, seconds=20 * number)
    cluster.write(6)
    assert cluster.produce_times == [0] * 6


def test_nothing_is_sent_to_a_broker_while_it_throttles(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "throttle", ms=40_000)
    cluster.fault("Produce", "delay_response", number=1, seconds=25)
    cluster.write(2)
    assert cluster.produce_times == [0, 40]


def test_a_later_response_without_throttling_does_not_end_it(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "throttle", number=1, ms=10_000)
    cluster.write(4, max_in_flight=2)
    assert cluster.produce_times == [0, 0, 0, 10]


def test_the_throttle_time_is_limited_by_the_delivery_timeout(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "throttle", ms=2**31 - 1)
    cluster.write(2, delivery_timeout_ms=60_000)
    assert cluster.produce_times == [0, 60]


class Outcomes:
    """A delivery callback that records when batches end."""

    def __init__(self, cluster: ProducerCluster) -> None:
        self._cluster = cluster
        self._start = cluster.now
        self.acknowledged_at: list[float] = []
        self.failed: list[tuple[float, BaseException]] = []

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        self.acknowledged_at.append(self._cluster.now - self._start)

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        self.failed.append((self._cluster.now - self._start, error))


def test_queued_records_expire_while_the_broker_throttles(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "throttle", ms=50_000)
    start, outcomes = cluster.now, Outcomes(cluster)
    producer = cluster.producer(delivery_timeout_ms=40_000)
    for _ in range(2):
        producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert outcomes.acknowledged_at == [NOW]
    ((failed_at, error),) = outcomes.failed
    assert failed_at == soon_after(40)
    assert "were not acknowledged within 40 s (kafka.delivery.timeout.ms)" in str(error)
    assert "throttles" in str(error)
    assert cluster.sent("Produce") == 1


def test_records_in_flight_are_reported_in_time_while_the_broker_throttles(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "throttle", number=1, ms=39_000)
    cluster.fault("Produce", "delay_response", number=2, seconds=1_000)
    start, outcomes = cluster.now, Outcomes(cluster)
    producer = cluster.producer(delivery_timeout_ms=40_000)
    cluster.sleep(5)  # the records were created earlier
    for _ in range(3):
        producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert len(outcomes.acknowledged_at) == 2
    ((failed_at, _),) = outcomes.failed
    assert 40 < failed_at <= 40 + 30 + 1  # the delivery and request timeouts, and a retry


def test_retries_back_off_with_the_same_sequence_numbers(cluster: ProducerCluster) -> None:
    client = cluster.client()
    client.topics(["t"])
    metadata_requests = cluster.sent("Metadata")
    cluster.fault("Produce", "error", code=ErrorCode.NOT_ENOUGH_REPLICAS, repeats=6)
    producer = cluster.producer(client=client)
    producer.send("t", batch())
    producer.flush()
    times = [each.at for each in cluster.produced]
    assert [after - before for before, after in itertools.pairwise(times)] == [
        soon_after(pause) for pause in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
    ]
    assert cluster.sequences() == [0] * 7
    assert cluster.sent("Metadata") == metadata_requests


def test_transactional_retries_start_with_a_short_backoff(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", code=ErrorCode.CONCURRENT_TRANSACTIONS, repeats=3)
    producer = cluster.producer(cluster.transactional_id())
    producer.send("t", batch())
    producer.flush()
    times = [each.at for each in cluster.produced]
    assert [after - before for before, after in itertools.pairwise(times)] == [
        pytest.approx(pause + 0.003, abs=0.004) for pause in (0.01, 0.02, 0.04)
    ]


def test_metadata_is_refreshed_for_a_leader_that_moved(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    cluster.fault("Produce", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer.send("t", batch())
    cluster.elect(PARTITION, 2)
    metadata_requests = cluster.sent("Metadata")
    producer.flush()
    assert [each.broker for each in cluster.produced] == [1, 2]
    assert cluster.sent("Metadata") == metadata_requests + 1


def test_a_leader_in_the_response_needs_no_metadata_refresh(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    producer.send("t", batch(1))
    producer.flush()
    metadata_requests = cluster.sent("Metadata")
    cluster.elect(PARTITION, 2)
    for _ in range(3):
        producer.send("t", batch())
    producer.flush()
    assert [each.broker for each in cluster.produced] == [1, 1, 2, 2, 2]
    assert cluster.sent("Metadata") == metadata_requests


def test_metadata_is_refreshed_for_an_unreachable_leader(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    producer.send("t", batch(1))
    producer.flush()
    cluster.event("stop_broker", broker=0, seconds=100)
    producer.send("t", batch())
    assert producer.flush()[PARTITION].records == RECORDS
    assert [each.broker for each in cluster.produced] == [1, 2]
    assert cluster.produced[1].at < 2


def test_without_acks_the_end_of_a_connection_may_tell_that_the_leader_moved(cluster: ProducerCluster) -> None:
    producer = cluster.producer(acks=0)
    producer.send("t", batch())
    cluster.sleep(1)
    cluster.elect(PARTITION, 2)
    cluster.break_connections(1)
    cluster.sleep(1)
    producer.send("t", batch())
    producer.flush()
    cluster.sleep(1)
    assert [each.broker for each in cluster.produced] == [1, 2]


@pytest.mark.parametrize(
    ("start_fault", "expected"),
    [
        (lambda cluster: cluster.event("lose_leader", topic="t", partition=0, seconds=90), "LEADER_NOT_AVAILABLE"),
        (lambda cluster: cluster.event("stop_broker", broker=0, seconds=90), "Connection refused"),
        (
            lambda cluster: cluster.fault("Produce", "error", code=ErrorCode.NOT_ENOUGH_REPLICAS, repeats=99),
            "NOT_ENOUGH_REPLICAS",
        ),
        (lambda cluster: cluster.fault("Produce", "stall_request", repeats=99), "No response"),
    ],
    ids=["no-leader", "unreachable", "error", "no-response"],
)
def test_the_delivery_timeout_error_has_the_last_error(
    start_fault: Callable[[ProducerCluster], None], expected: str
) -> None:
    with ProducerCluster(failure_detection=1_000) as cluster:
        start_fault(cluster)
        start = cluster.now
        with pytest.raises(BrokerTimeoutError, match=r"within 20 s \(kafka\.delivery\.timeout\.ms\)") as caught:
            cluster.write(3, delivery_timeout_ms=20_000)
        assert expected in caught.value.message
        assert (caught.value.topic, caught.value.partition) == PARTITION
        assert isinstance(cause := caught.value.__cause__, BrokerError)
        assert caught.value.broker == cause.broker
        assert 20 <= cluster.now - start < 41


def test_a_connection_is_awaited_for_a_second_even_if_the_records_expire_earlier(cluster: ProducerCluster) -> None:
    producer = cluster.producer(delivery_timeout_ms=40_000)
    cluster.elect(PARTITION, 2)
    producer.send("t", batch(1))
    producer.flush()
    start, outcomes = cluster.now, Outcomes(cluster)
    cluster.sleep(39.5)
    cluster.break_connections(2)
    cluster.connect_fault("stall_connect")
    producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert [at for at, _ in outcomes.failed] == [soon_after(40.5)]


def test_time_in_the_queue_does_not_count(cluster: ProducerCluster) -> None:
    cluster.delay_responses(15.0)
    assert cluster.write(8, acks=1, delivery_timeout_ms=20_000)[PARTITION].records == 80


def test_a_topic_that_a_lagging_broker_does_not_know_is_written(cluster: ProducerCluster) -> None:
    cluster.event("stick_image", broker=0, seconds=3)
    cluster.event("create_topic", topic="new")
    producer = cluster.producer()
    producer.send("new", batch())
    assert producer.flush()[TopicPartition("new", 0)].records == RECORDS


def test_a_missing_topic_fails_once_brokers_have_confirmed_it(cluster: ProducerCluster) -> None:
    start = cluster.now
    producer = cluster.producer()
    producer.send("missing", batch())
    with pytest.raises(TopicNotFoundError):
        producer.flush()
    assert 5 <= cluster.now - start < 8


@pytest.mark.parametrize("was_reached", [False, True])
def test_only_a_cluster_that_was_reached_before_is_awaited(cluster: ProducerCluster, was_reached: bool) -> None:
    """A wrong address cannot be fixed by waiting."""
    producer = cluster.producer()
    if was_reached:
        producer.send("t", batch(1))
        producer.flush()
    start = cluster.now
    for broker in range(2):
        cluster.event("stop_broker", broker=broker, seconds=90)
    if was_reached:
        producer.send("t", batch())
        assert producer.flush()[PARTITION].records == RECORDS
        assert cluster.now - start > 90
    else:
        with pytest.raises(BrokerUnreachableError):
            producer.send("t", batch())
        assert cluster.now - start < 90


def test_a_producer_id_is_reused_for_the_same_cluster_only(cluster: ProducerCluster) -> None:
    client = cluster.client()
    producer = cluster.producer(client=client)
    producer.send("t", batch())
    producer.flush()
    cluster.cluster.cluster_id = "another"
    producer.close()
    client_of_another = cluster.client()
    client_of_another.refresh_brokers()
    assert client_of_another.cluster_id == "another"
    idle = client.pool.idle_producers
    assert idle.acquire((client.settings, "another")) is None
    assert idle.acquire((client.settings, "simulated-cluster")) is not None


def test_a_producer_id_is_released_once(cluster: ProducerCluster) -> None:
    """Two producers with the same sequence numbers would lose records as duplicates."""
    client = cluster.client()
    first = cluster.producer(client=client)
    first.send("t", batch())
    first.flush()
    for _ in range(2):
        first.close()
    for producer in [cluster.producer(client=client) for _ in range(2)]:
        producer.send("t", batch())
        producer.flush()
    headers = [each.header(0) for each in cluster.produced]
    assert len({(each.producer_id, each.base_sequence) for each in headers}) == 3
    assert len({each.producer_id for each in headers}) == 2


def test_a_producer_id_is_not_reused_for_more_and_more_partitions(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reuses a Python worker for weeks, and rows may name a topic for each day."""
    monkeypatch.setattr(producer_state, "_MAX_PARTITIONS", 3)
    client = cluster.client()
    for partition in range(8):
        producer = cluster.producer(client=client)
        producer.send("t", batch(partition))
        producer.flush()
        producer.close()
        idle = client.pool.idle_producers.acquire(key := (client.settings, "simulated-cluster"))
        if idle is not None:
            assert len(idle.sequences) <= 3
            client.pool.idle_producers.release(key, idle)
    assert cluster.sent("InitProducerId") == 2


def test_a_child_process_cannot_continue_its_parents_sequence_numbers(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    producer = cluster.producer(client=client)
    producer.send("t", batch())
    producer.flush()
    with monkeypatch.context() as child:
        child.setattr("pyspark_kafka_direct.producer.batch_producer.os.getpid", lambda: 1)
        with pytest.raises(RuntimeError, match="parent"):
            producer.send("t", batch())
        producer.close()
    assert client.pool.idle_producers.acquire((client.settings, "simulated-cluster")) is None
    assert cluster.sent("Produce") == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transaction_requires_acks_all(cluster: ProducerCluster, acks: Any) -> None:
    with pytest.raises(ValueError, match="acks"):
        cluster.producer(cluster.transactional_id(), acks=acks)


def test_lost_producer_state_is_an_error_in_a_transaction(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer = cluster.producer(cluster.transactional_id())
    producer.send("t", batch())
    with pytest.raises(
        Exception, match=r"^OUT_OF_ORDER_SEQUENCE_NUMBER while writing records in a transaction of 'id'"
    ):
        producer.flush()


def test_a_duplicate_is_written_at_an_unknown_offset(cluster: ProducerCluster) -> None:
    def reject(_: int, response: dict[str, Any]) -> dict[str, Any]:
        code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        response["responses"][0]["partition_responses"][0] |= {"error_code": code, "base_offset": 5}
        return response

    cluster.change("Produce", reject)
    assert cluster.write() == {PARTITION: WrittenRange(-1, -1, 10, SIZE)}


def test_the_written_range_is_correct_for_responses_in_any_order(cluster: ProducerCluster) -> None:
    """A batch was written although its request timed out; the later ones were acknowledged before its retry."""
    cluster.fault("Produce", "error", number=1, code=ErrorCode.REQUEST_TIMED_OUT, is_handled=True)
    producer = cluster.producer()
    producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(0, 10, 10, SIZE)}
    for _ in range(3):
        producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(10, 40, 30, 3 * SIZE)}
    assert cluster.sequences() == [0, 10, 20, 30, 10]


def test_an_offset_that_was_not_returned_stays_unknown(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", number=1, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER, is_handled=True)
    assert cluster.write(3) == {PARTITION: WrittenRange(-1, -1, 30, 3 * SIZE)}


def test_partitions_are_added_once_to_each_transaction() -> None:
    with ProducerCluster(transaction_version=0) as cluster:
        coordinator, announced = TransactionCoordinator.of(cluster.cluster), list[list[int]]()
        assigned_id = cluster.transactional_id()
        producer_id, epoch = assigned_id.producer_id, assigned_id.epoch

        def add(partitions: Collection[TopicPartition]) -> None:
            announced.append([each.partition for each in partitions])
            assert coordinator.add_partitions("id", (producer_id, epoch), partitions) == 0

        def end() -> None:
            producer.flush()
            coordinator.end("id", (producer_id, epoch), commit=True, bumps_epoch=False)
            cluster.sleep(1)

        producer = cluster.producer(assigned_id, add_partitions=add)
        for partition in (0, 1, 0):
            producer.send("t", batch(partition))
        end()
        producer.begin_transaction()
        producer.send("t", batch(0))
        end()
        epoch += 1
        producer.begin_transaction(cluster.transactional_id())
        producer.send("t", batch(0))
        producer.flush()
        assert announced == [[0], [1], [0], [0]]
        assert [(state.epoch, sequence) for state, sequence in cluster.producer_states()] == [
            (0, 0),
            (0, 10),
            (0, 20),
            (1, 0),
        ]


def test_reauthentication_waits_for_requests_in_flight(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.producer()
    producer.send("t", batch())
    producer.flush()
    with monkeypatch.context() as due:
        due.setattr(Connection, "reauthentication_due", True)
        for _ in range(3):
            producer.send("t", batch())
        producer.flush()
    assert cluster.produce_times == [0, 1, 2, 3]


def test_after_an_error_nothing_more_is_sent(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", code=ErrorCode.INVALID_REQUIRED_ACKS)
    client = cluster.client()
    producer = cluster.producer(client=client)
    producer.send("t", batch())
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.flush()
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.send("t", batch())
    assert cluster.sent("Produce") == 1
    producer.close()
    released = client.pool.idle_producers.acquire((client.settings, "simulated-cluster"))
    assert released is not None
    assert released.sequences[PARTITION].sequence == EPOCH_ENDED


def test_a_closed_producer_sends_nothing(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", batch())


def test_channels_of_brokers_that_are_no_more_are_closed(cluster: ProducerCluster) -> None:
    """Brokers may get another address with each restart, and the producer of a log lives for years."""
    client = cluster.client()
    producer = cluster.producer(client=client)
    producer.send("t", batch())
    producer.flush()
    (current,) = producer._channels
    for number in range(100):
        node = dataclasses.replace(current, host=f"pod-{number}")
        producer._channels[node] = BrokerChannel(client, node, ProducerSettings(), None, adds_partitions=False)
    cluster.elect(PARTITION, 2)
    producer.send("t", batch())
    producer.flush()
    assert {node.id for node in producer._channels} == {1, 2}
    assert len(producer._channels) == 2
    assert producer._channels[current].idle
