"""When the producer sends, waits, finds leaders and fails, against scripted brokers in simulated time."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.fake_cluster import FakeCluster, FakeConnection, FakeResponse

from pyspark_kafka_direct.client.producer_state import EPOCH_ENDED, ProducerIdAndEpoch
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.batch_producer import AssignedProducerId, BatchProducer, WrittenRange
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node

PARTITION = TopicPartition("t", 0)
RECORDS = 10
SIZE = 61


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 200))
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


def batch(partition: int = 0, size: int = SIZE) -> EncodedBatch:
    data = bytearray(size)
    struct.pack_into(">i", data, 57, RECORDS)
    data[16] = 2
    return EncodedBatch(partition, RECORDS, 100, data)


def sent_sequences(cluster: FakeCluster, partition: int = 0) -> list[tuple[int, int]]:
    """Return the producer id and sequence number of each batch that was sent, in order."""
    return [(producer_id, sequence) for producer_id, _, sequence in sent_producer_states(cluster, partition)]


def sent_producer_states(cluster: FakeCluster, partition: int = 0) -> list[tuple[int, int, int]]:
    """Return the producer id, epoch and sequence number of each batch that was sent, in order."""
    sent = [each.batches[partition] for each in cluster.sent if partition in each.batches]
    return [struct.unpack_from(">qhi", each, 43) for each in sent]


def scripted(*responses: FakeResponse) -> Callable[[int], FakeResponse]:
    """Return a script with these responses, then successful ones."""
    return lambda number: responses[number] if number < len(responses) else FakeResponse()


def write(cluster: FakeCluster, count: int = 1, **settings: Any) -> dict[TopicPartition, WrittenRange]:
    producer = BatchProducer(cluster, ProducerSettings(**settings))  # type: ignore[arg-type]
    for _ in range(count):
        producer.send("t", batch())
    written = producer.flush()
    producer.close()
    return written


def test_one_batch_is_acknowledged_before_five_are_in_flight() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    start = cluster.system.now
    assert write(cluster, 11) == {PARTITION: WrittenRange(0, 110, 110, 11 * SIZE)}
    assert [each.at - start for each in cluster.sent] == [0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6]
    assert [sequence for _, sequence in sent_sequences(cluster)] == list(range(0, 110, 10))


def test_without_sequence_numbers_one_batch_is_in_flight() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    start = cluster.system.now
    write(cluster, 3, acks=1)
    assert [each.at - start for each in cluster.sent] == [0, 1, 2]
    assert sent_sequences(cluster) == [(0, 0)] * 3  # unchanged


def test_a_request_has_one_batch_per_partition_up_to_its_size() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings(max_request_bytes=3 * SIZE, max_in_flight=1))  # type: ignore[arg-type]
    for partition in (0, 1, 2, 3, 0, 1):
        producer.send("t", batch(partition))
    producer.send("t", batch(4, 10 * SIZE))
    producer.flush()
    assert [sorted(each.batches) for each in cluster.sent] == [[0], [1, 2, 3], [0], [4], [1]]


def test_small_batches_of_several_partitions_share_a_request() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    for partition in range(3):
        producer.send("t", batch(partition), more_follows=True)
    assert not cluster.sent
    assert len(producer.flush()) == 3
    assert [sorted(each.batches) for each in cluster.sent] == [[0, 1, 2]]


def test_a_large_batch_is_sent_at_once_with_the_deferred_ones() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings(batch_bytes=202))  # type: ignore[arg-type]
    producer.send("t", batch(0), more_follows=True)
    producer.send("t", batch(1)._replace(uncompressed_bytes=101), more_follows=True)
    producer.send("t", batch(2), more_follows=True)
    assert [sorted(each.batches) for each in cluster.sent] == [[0, 1]]
    producer.flush()
    assert [sorted(each.batches) for each in cluster.sent] == [[0, 1], [2]]


def test_small_batches_are_deferred_until_they_fill_a_request() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings(max_request_bytes=3 * SIZE))  # type: ignore[arg-type]
    for partition in range(7):
        producer.send("t", batch(partition), more_follows=True)
    assert [sorted(each.batches) for each in cluster.sent] == [[0, 1, 2], [3, 4, 5]]
    assert producer.unacknowledged_bytes == 7 * SIZE


def test_deferred_batches_are_bounded_too() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings(buffer_bytes=3 * SIZE))  # type: ignore[arg-type]
    for _ in range(20):
        producer.send("t", batch(), more_follows=True)
        assert producer.unacknowledged_bytes <= 3 * SIZE


def test_callers_can_wait_for_responses_with_descriptors() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    assert (producer.descriptors(), producer.has_queued_batches) == ([], False)
    producer.send("t", batch(), more_follows=True)
    assert (producer.descriptors(), producer.has_queued_batches) == ([], True)
    start = cluster.system.now
    producer.poll(0)
    (descriptor,) = producer.descriptors()
    assert not producer.has_queued_batches
    producer.send("t", batch())
    assert producer.has_queued_batches  # the first one must be acknowledged before
    cluster.system.wait_readable([descriptor], 60)
    assert cluster.system.now == start + 1
    producer.poll(0)
    assert (len(cluster.sent), producer.has_queued_batches, producer.unacknowledged_bytes) == (2, False, SIZE)
    cluster.system.wait_readable(producer.descriptors(), 60)
    producer.poll(0)
    assert (producer.descriptors(), producer.unacknowledged_bytes) == ([], 0)


def test_batches_without_a_leader_are_queued() -> None:
    cluster = FakeCluster()
    cluster.leader = None
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    assert producer.has_queued_batches


def test_unacknowledged_bytes_are_bounded() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    producer = BatchProducer(cluster, ProducerSettings(buffer_bytes=3 * SIZE))  # type: ignore[arg-type]
    for _ in range(20):
        producer.send("t", batch())
        assert producer.unacknowledged_bytes <= 3 * SIZE
    producer.send("t", batch(0, 10 * SIZE))
    assert producer.unacknowledged_bytes == 10 * SIZE
    producer.flush()
    assert producer.unacknowledged_bytes == 0


def test_a_response_that_has_arrived_counts_although_the_caller_is_late() -> None:
    cluster = FakeCluster()
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    cluster.system.now += 1_000
    producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(0, 20, 20, 2 * SIZE)}
    assert len(cluster.sent) == 2


def test_a_missing_response_is_awaited_for_the_request_timeout() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(None)))
    start = cluster.system.now
    write(cluster, 3)
    times = [each.at - start for each in cluster.sent]
    assert times[:3] == pytest.approx([0, 0.01, 0.01])
    assert 30 < times[3] < 31
    assert sent_sequences(cluster) == [(100, 0), (100, 10), (100, 20), (100, 10), (100, 20)]
    assert cluster.metadata_refreshes == 1


def test_nothing_is_sent_to_a_broker_while_it_throttles() -> None:
    cluster = FakeCluster(scripted(FakeResponse(1.0, throttle_ms=40_000), FakeResponse(25.0)))
    start = cluster.system.now
    write(cluster, 2)
    assert [each.at - start for each in cluster.sent] == [0, 41]


def test_a_later_response_without_throttling_does_not_end_it() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(1.0, throttle_ms=10_000), FakeResponse(0.5)))
    start = cluster.system.now
    write(cluster, 4, max_in_flight=2)
    assert [each.at - start for each in cluster.sent] == pytest.approx([0, 0.01, 0.01, 11.01])


def test_the_throttle_time_is_limited_by_the_delivery_timeout() -> None:
    cluster = FakeCluster(scripted(FakeResponse(throttle_ms=2**31 - 1)))
    start = cluster.system.now
    write(cluster, 2, delivery_timeout_ms=60_000)
    assert cluster.sent[1].at - start == pytest.approx(60.01)


class Outcomes:
    """A delivery callback that records when batches end."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.acknowledged_at: list[float] = []
        self.failed: list[tuple[float, BaseException]] = []

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        self.acknowledged_at.append(self._cluster.system.now)

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        self.failed.append((self._cluster.system.now, error))


def test_queued_records_expire_while_the_broker_throttles() -> None:
    cluster = FakeCluster(scripted(FakeResponse(1.0, throttle_ms=50_000)))
    start, outcomes = cluster.system.now, Outcomes(cluster)
    producer = BatchProducer(cluster, ProducerSettings(delivery_timeout_ms=40_000))  # type: ignore[arg-type]
    for _ in range(2):
        producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert outcomes.acknowledged_at == [start + 1]
    ((failed_at, error),) = outcomes.failed
    assert failed_at == pytest.approx(start + 40)
    assert "were not acknowledged within 40 s (kafka.delivery.timeout.ms)" in str(error)
    assert "throttles" in str(error)
    assert len(cluster.sent) == 1


def test_records_in_flight_are_reported_in_time_while_the_broker_throttles() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(1.0, throttle_ms=39_000), FakeResponse(None)))
    start, outcomes = cluster.system.now, Outcomes(cluster)
    producer = BatchProducer(cluster, ProducerSettings(delivery_timeout_ms=40_000))  # type: ignore[arg-type]
    cluster.system.now += 5  # the records were created earlier
    for _ in range(3):
        producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert len(outcomes.acknowledged_at) == 2
    ((failed_at, _),) = outcomes.failed
    assert failed_at <= start + 40 + 30 + 1  # the delivery and request timeouts, and a retry
    assert failed_at > start + 40


def test_retries_back_off_with_the_same_sequence_numbers() -> None:
    cluster = FakeCluster(scripted(*[FakeResponse(0.0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 6))
    start = cluster.system.now
    write(cluster)
    times = [each.at - start for each in cluster.sent]
    assert [round(after - before, 3) for before, after in itertools.pairwise(times)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
    ]
    assert sent_sequences(cluster) == [(100, 0)] * 7
    assert cluster.metadata_refreshes == 0


def test_transactional_retries_start_with_a_short_backoff() -> None:
    cluster = FakeCluster(scripted(*[FakeResponse(0.0, ErrorCode.CONCURRENT_TRANSACTIONS)] * 3))
    start = cluster.system.now
    producer = BatchProducer(cluster, ProducerSettings(), AssignedProducerId(5, 1, "id"))  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    assert [round(each.at - start, 3) for each in cluster.sent] == [0, 0.01, 0.03, 0.07]


def test_metadata_is_refreshed_for_a_leader_that_moved() -> None:
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    cluster.leader = 2
    producer.flush()
    assert [each.node for each in cluster.sent] == [1, 2]
    assert cluster.metadata_refreshes == 1


def test_a_leader_in_the_response_needs_no_metadata_refresh() -> None:
    expected = {"current_leader": {"leader_id": 2, "leader_epoch": 3}}
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, more=expected)))
    write(cluster)
    assert [each.node for each in cluster.sent] == [1, 2]
    assert cluster.metadata_refreshes == 0


def test_metadata_is_refreshed_for_an_unreachable_leader() -> None:
    cluster = FakeCluster()
    cluster.unreachable = {1}
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    cluster.leader = 2
    producer.flush()
    assert [each.node for each in cluster.sent] == [2]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"leader": None}, "LEADER_NOT_AVAILABLE"),
        ({"unreachable": {1}}, "rejected"),
        ({"script": lambda _: FakeResponse(code=ErrorCode.NOT_ENOUGH_REPLICAS)}, "NOT_ENOUGH_REPLICAS"),
        ({"script": lambda _: FakeResponse(None)}, "no response"),
    ],
)
def test_the_delivery_timeout_error_has_the_last_error(attributes: dict[str, Any], expected: str) -> None:
    cluster = FakeCluster()
    vars(cluster).update(attributes)
    start = cluster.system.now
    with pytest.raises(BrokerTimeoutError, match=r"within 20 s \(kafka\.delivery\.timeout\.ms\)") as caught:
        write(cluster, 3, delivery_timeout_ms=20_000)
    assert expected in caught.value.message
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert 20 <= cluster.system.now - start < 41
    assert cluster.pool.idle_producers.acquire((cluster.settings, "c")) is None


def test_a_connection_is_awaited_for_a_second_even_if_the_records_expire_earlier() -> None:
    cluster = FakeCluster()
    original_connect, limits = cluster.connect, []

    def connect(node: Node, deadline: Deadline) -> FakeConnection:
        limits.append(deadline.at - cluster.system.now)
        return original_connect(node, deadline)

    cluster.connect = connect  # type: ignore[method-assign]
    start, outcomes = cluster.system.now, Outcomes(cluster)
    producer = BatchProducer(cluster, ProducerSettings(delivery_timeout_ms=40_000))  # type: ignore[arg-type]
    cluster.system.now += 39.5
    producer.send("t", batch(), callback=outcomes, created_at=start)
    producer.flush()
    assert limits == [1.0]
    assert outcomes.acknowledged_at


def test_time_in_the_queue_does_not_count() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(15.0))
    assert write(cluster, 8, acks=1, delivery_timeout_ms=20_000)[PARTITION].records == 80


def test_a_topic_that_a_lagging_broker_does_not_know_is_written() -> None:
    cluster = FakeCluster()
    cluster.missing = 4
    write(cluster)


def test_a_missing_topic_fails_once_brokers_have_confirmed_it() -> None:
    cluster = FakeCluster()
    cluster.missing = 1000
    start = cluster.system.now
    with pytest.raises(TopicNotFoundError):
        write(cluster)
    assert 5 <= cluster.system.now - start < 8


def test_a_cluster_that_was_never_reached_fails_at_once() -> None:
    cluster = FakeCluster()
    cluster.nodes, cluster.was_reached = {}, False

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("unreachable")

    cluster.leaders = unreachable  # type: ignore[method-assign]
    with pytest.raises(BrokerUnreachableError, match="unreachable"):
        write(cluster)


def test_empty_metadata_is_retried() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    nodes, cluster.nodes, original_leaders = cluster.nodes, {}, cluster.leaders

    def empty(*_: object, **__: object) -> Any:
        cluster.leaders = again  # type: ignore[method-assign]
        raise BrokerUnreachableError("it has just started")

    def again(*wanted: Any, **more: Any) -> Any:
        cluster.nodes = nodes
        return original_leaders(*wanted, **more)

    cluster.leaders = empty  # type: ignore[method-assign]
    producer.send("t", batch())
    assert producer.flush()[PARTITION].records == RECORDS


def test_a_producer_id_is_reused_for_the_same_cluster_only() -> None:
    cluster = FakeCluster()
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    cluster.cluster_id = "another"
    producer.close()
    assert cluster.pool.idle_producers.acquire((cluster.settings, "another")) is None
    assert cluster.pool.idle_producers.acquire((cluster.settings, "c")) is not None


def test_a_child_process_cannot_continue_its_parents_sequence_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(RuntimeError, match="parent"):
        producer.send("t", batch())
    producer.close()
    assert cluster.pool.idle_producers.acquire((cluster.settings, "c")) is None
    assert len(cluster.sent) == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transaction_requires_acks_all(acks: Any) -> None:
    with pytest.raises(ValueError, match="acks"):
        BatchProducer(FakeCluster(), ProducerSettings(acks=acks), AssignedProducerId(5, 1, "id"))  # type: ignore[arg-type]


def test_lost_producer_state_is_an_error_in_a_transaction() -> None:
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    producer = BatchProducer(cluster, ProducerSettings(), AssignedProducerId(5, 1, "id"))  # type: ignore[arg-type]
    producer.send("t", batch())
    with pytest.raises(
        Exception, match=r"^OUT_OF_ORDER_SEQUENCE_NUMBER while writing records in a transaction of 'id'"
    ):
        producer.flush()


def test_a_duplicate_is_written_at_an_unknown_offset() -> None:
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
    assert write(cluster) == {PARTITION: WrittenRange(-1, -1, 10, SIZE)}


def test_the_written_range_is_correct_for_responses_in_any_order() -> None:
    """A batch was written although its request timed out; the later ones were acknowledged before its retry."""
    late = FakeResponse(code=ErrorCode.REQUEST_TIMED_OUT)
    cluster = FakeCluster(
        scripted(FakeResponse(), late, *[FakeResponse(more={"base_offset": offset}) for offset in (20, 30, 10)])
    )
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(0, 10, 10, SIZE)}
    for _ in range(3):
        producer.send("t", batch())
    assert producer.flush() == {PARTITION: WrittenRange(10, 40, 30, 3 * SIZE)}
    assert sent_sequences(cluster) == [(100, 0), (100, 10), (100, 20), (100, 30), (100, 10)]


def test_an_offset_that_was_not_returned_stays_unknown() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
    assert write(cluster, 3) == {PARTITION: WrittenRange(-1, -1, 30, 3 * SIZE)}


def test_partitions_are_added_once_to_each_transaction() -> None:
    cluster = FakeCluster()
    announced: list[list[int]] = []
    producer = BatchProducer(
        cluster,  # type: ignore[arg-type]
        ProducerSettings(),
        AssignedProducerId(5, 1, "id"),
        add_partitions_to_transaction=lambda names: announced.append([each.partition for each in names]),
    )
    for partition in (0, 1, 0):
        producer.send("t", batch(partition))
    producer.flush()
    producer.begin_transaction()
    producer.send("t", batch(0))
    producer.flush()
    producer.begin_transaction(AssignedProducerId(5, 2, "id"))
    producer.send("t", batch(0))
    producer.flush()
    assert announced == [[0], [1], [0], [0]]
    assert sent_sequences(cluster) == [(5, 0), (5, 10), (5, 20), (5, 0)]


def test_reauthentication_waits_for_requests_in_flight() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    start = cluster.system.now
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    (connection,) = cluster.system.connections.values()
    connection.reauthentication_due = True
    for _ in range(3):
        producer.send("t", batch())
    producer.flush()
    assert [each.at - start for each in cluster.sent] == [0, 1, 2, 3]


def test_after_an_error_nothing_more_is_sent() -> None:
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.INVALID_REQUIRED_ACKS)))
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.flush()
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.send("t", batch())
    assert len(cluster.sent) == 1
    producer.close()
    released = cluster.pool.idle_producers.acquire((cluster.settings, "c"))
    assert released.sequences[PARTITION].sequence == EPOCH_ENDED


def test_a_closed_producer_sends_nothing() -> None:
    producer = BatchProducer(FakeCluster(), ProducerSettings())  # type: ignore[arg-type]
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", batch())
