"""Callbacks of single record batches, and how the producer continues without a failed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.producer.encoded_batches import encoded
from tests.unit.producer.producer_cluster import PARTITION, SIZE, ProducerCluster, batch

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    InvalidRecordError,
    KafkaDirectError,
    ProtocolError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."
FIRST, SECOND = ProducerIdAndEpoch(0, 0), ProducerIdAndEpoch(0, 1)
REJECTED = ErrorCode.INVALID_RECORD


class RecordingCallback:
    """A ``DeliveryCallback`` that records its calls."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, int]] = []
        self.errors: list[tuple[int, int, BaseException]] = []

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        self.written.append((first_index, record_count, base_offset, append_time))

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        self.errors.append((first_index, record_count, error))

    @property
    def error(self) -> KafkaDirectError:
        """The error of a batch of ten records."""
        assert not self.written
        ((first_index, record_count, error),) = self.errors
        assert (first_index, record_count) == (0, 10)
        assert isinstance(error, KafkaDirectError)
        return error


def send(producer: BatchProducer, *partitions: int) -> list[RecordingCallback]:
    callbacks = [RecordingCallback() for _ in partitions]
    for partition, each in zip(partitions, callbacks, strict=True):
        producer.send("t", batch(partition), each)
    return callbacks


def limit_batches(cluster: ProducerCluster, size: int) -> None:
    """Set the most bytes of a batch in the topic."""
    cluster.cluster.topics["t"].configs["max.message.bytes"] = str(size)


def test_offsets_and_append_times_are_reported_per_batch(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    callbacks = send(producer, 0, 0)
    producer.flush()
    cluster.cluster.topics["t"].configs["message.timestamp.type"] = "LogAppendTime"
    before = cluster.cluster.timestamp
    (last,) = send(producer, 0)
    producer.flush()
    assert [each.written for each in callbacks] == [[(0, 10, 0, -1)], [(0, 10, 10, -1)]]
    ((*where, append_time),) = last.written
    assert where == [0, 10, 20]
    assert before <= append_time < before + 50
    assert not any(each.errors for each in (*callbacks, last))


def test_without_acks_there_is_no_offset(cluster: ProducerCluster) -> None:
    (callback,) = send(cluster.producer(acks=0, idempotent=False), 0)
    assert callback.written == [(0, 10, -1, -1)]


def test_the_parts_of_a_split_batch_are_reported_separately(cluster: ProducerCluster) -> None:
    limit_batches(cluster, len(encoded(0, 100, 12).data))
    callbacks = RecordingCallback()
    producer = cluster.producer()
    producer.send("t", encoded(0, 100, 25), callbacks)
    producer.flush()
    # Batches of 25 and 13 records are too large, one of 12 is not.
    assert sorted(callbacks.written) == [(0, 7, 0, -1), (7, 6, 7, -1), (13, 12, 13, -1)]
    known_to_be_too_large = RecordingCallback()
    producer.send("t", encoded(0, 125, 26), known_to_be_too_large)
    producer.flush()
    assert sorted(known_to_be_too_large.written) == [(0, 7, 25, -1), (7, 6, 32, -1), (13, 7, 38, -1), (20, 6, 45, -1)]
    assert cluster.values() == list(range(100, 151))


def test_the_halves_of_a_batch_expire_with_it_and_may_have_been_written(cluster: ProducerCluster) -> None:
    """The first request may have written it before the limit of the topic was lowered."""
    limit_batches(cluster, SIZE - 1)
    cluster.fault("Produce", "error", code=ErrorCode.REQUEST_TIMED_OUT)
    cluster.fault("Produce", "error", number=2, repeats=999, code=ErrorCode.NOT_ENOUGH_REPLICAS)
    producer = cluster.producer(delivery_timeout_ms=20_000)
    start, callback = cluster.now, RecordingCallback()
    producer.send("t", batch(), callback, created_at=start - 15)
    producer.flush()
    assert [(first, count) for first, count, _ in callback.errors] == [(0, 5), (5, 5)]
    for _, _, error in callback.errors:
        assert isinstance(error, BrokerTimeoutError)
        assert error.message.endswith(MAY_BE_WRITTEN)
    assert cluster.now - start == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.INVALID_RECORD, InvalidRecordError),
        (ErrorCode.INVALID_TIMESTAMP, InvalidRecordError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_a_rejected_batch_fails_alone(
    cluster: ProducerCluster, code: ErrorCode, error_type: type[KafkaDirectError]
) -> None:
    cluster.fault("Produce", "error", number=1, code=code)
    producer = cluster.producer()
    before, rejected, after = send(producer, 0, 0, 0)
    producer.flush()
    (later,) = send(producer, 0)
    producer.flush()
    assert type(rejected.error) is error_type
    assert rejected.error.message.endswith(NOT_WRITTEN)
    assert [each.written[0][2] for each in (before, after, later)] == [0, 10, 20]
    assert producer.unacknowledged_bytes == 0


def test_queued_batches_behind_a_failed_one_get_the_next_epoch(cluster: ProducerCluster) -> None:
    """Nothing else was in flight, so nothing can be written twice; a late request of the failed one is rejected."""
    cluster.fault("Produce", "error", code=REJECTED)
    producer = cluster.producer()
    rejected, after = send(producer, 0, 0)
    producer.flush()
    assert (rejected.error, after.written) == (rejected.error, [(0, 10, 0, -1)])
    assert cluster.producer_states() == [(FIRST, 0), (SECOND, 0)]
    assert cluster.produce_times == [0, 0], "and without a pause"


def test_in_flight_batches_behind_a_failed_one_keep_their_sequence_numbers(cluster: ProducerCluster) -> None:
    """They may have been written: with other sequence numbers they could be duplicated."""
    cluster.fault("Produce", "error", number=1, code=REJECTED)
    cluster.fault("Produce", "delay_response", number=2, seconds=1_000)
    producer = cluster.producer()
    callbacks = send(producer, 0, 0, 0)
    producer.flush()
    assert (len(callbacks[0].written), len(callbacks[1].errors), len(callbacks[2].written)) == (1, 1, 1)
    assert cluster.producer_states() == [(FIRST, 0), (FIRST, 10), (FIRST, 20), (FIRST, 20), (SECOND, 0)]


def test_a_rejection_counts_after_the_batches_before_are_written(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", number=1, code=ErrorCode.REQUEST_TIMED_OUT, is_handled=True)
    for number in (2, 4):
        cluster.fault("Produce", "error", number=number, code=REJECTED)
    producer = cluster.producer()
    callbacks = send(producer, 0, 0, 0)
    producer.flush()
    assert [len(each.written) for each in callbacks] == [1, 1, 0]
    assert type(callbacks[2].error) is InvalidRecordError
    assert cluster.sequences() == [0, 10, 20, 10, 20]


def test_one_record_that_is_too_large_for_the_topic(cluster: ProducerCluster) -> None:
    limit_batches(cluster, len(encoded(0, 1, 1).data))
    producer = cluster.producer()
    large, small = RecordingCallback(), RecordingCallback()
    producer.send("t", encoded(0, 10, 1), large)
    producer.send("t", encoded(0, 1, 1), small)
    producer.flush()
    ((_, _, error),) = large.errors
    assert type(error) is RecordTooLargeError
    assert small.written == [(0, 1, 0, -1)]
    assert cluster.values() == [1]


def test_a_missing_partition_fails_its_batches_only(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    one, other, again = send(producer, 8, 0, 8)
    producer.flush()
    assert type(one.error) is type(again.error) is TopicNotFoundError
    assert one.error.message.endswith(NOT_WRITTEN)
    assert other.written == [(0, 10, 0, -1)]
    cluster.event("expand_topic", topic="t")
    (later,) = send(producer, 8)
    producer.flush()
    assert later.written == [(0, 10, 0, -1)]


def test_a_topic_without_permission_fails_its_batches(cluster: ProducerCluster) -> None:
    cluster.event("deny_topic", topic="t", seconds=100)
    producer = cluster.producer()
    (callback,) = send(producer, 0)
    producer.flush()
    assert type(callback.error) is AuthorizationError


def errors(code: ErrorCode) -> Callable[[ProducerCluster], None]:
    return lambda cluster: cluster.fault("Produce", "error", code=code, repeats=99)


@pytest.mark.parametrize(
    ("start_fault", "outcome"),
    [
        (lambda cluster: cluster.event("lose_leader", topic="t", partition=0, seconds=90), NOT_WRITTEN),
        (lambda cluster: cluster.event("stop_broker", broker=0, seconds=90), NOT_WRITTEN),
        (errors(ErrorCode.NOT_ENOUGH_REPLICAS), NOT_WRITTEN),
        (errors(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), MAY_BE_WRITTEN),
        (errors(ErrorCode.REQUEST_TIMED_OUT), MAY_BE_WRITTEN),
        (lambda cluster: cluster.fault("Produce", "stall_request", repeats=99), MAY_BE_WRITTEN),
    ],
    ids=["no-leader", "unreachable", "not-enough-replicas", "after-append", "timed-out", "no-response"],
)
def test_the_error_states_whether_records_may_have_been_written(
    start_fault: Callable[[ProducerCluster], None], outcome: str
) -> None:
    with ProducerCluster(failure_detection=1_000) as cluster:
        start_fault(cluster)
        producer = cluster.producer(delivery_timeout_ms=20_000)
        (callback,) = send(producer, 0)
        producer.flush()
        assert type(callback.error) is BrokerTimeoutError
        assert "within 20 s" in callback.error.message
        assert callback.error.message.endswith(outcome)
        assert isinstance(callback.error.__cause__, KafkaDirectError)


def test_each_batch_has_its_own_delivery_timeout(cluster: ProducerCluster) -> None:
    cluster.event("lose_leader", topic="t", partition=0, seconds=90)
    producer = cluster.producer(delivery_timeout_ms=20_000)
    start = cluster.now
    early, late = RecordingCallback(), RecordingCallback()
    producer.send("t", batch(), early, created_at=start - 15)
    producer.send("t", batch(), late, created_at=start)
    while not early.errors:
        producer.poll(60)
    assert cluster.now - start == pytest.approx(5, abs=0.1)
    assert not late.errors
    while not late.errors:
        producer.poll(60)
    assert cluster.now - start == pytest.approx(20, abs=0.1)


def test_without_a_producer_id_a_batch_fails_after_its_own_delivery_timeout(cluster: ProducerCluster) -> None:
    cluster.fault("InitProducerId", "stall_request", repeats=99)
    producer = cluster.producer(delivery_timeout_ms=20_000)
    start = cluster.now
    old, new = RecordingCallback(), RecordingCallback()
    producer.enqueue("t", batch(0), old, start - 15)
    producer.enqueue("t", batch(1), new, start)
    producer.poll(0)
    while not old.errors:
        producer.poll(1)
    assert "InitProducerId" in old.error.message
    assert old.error.message.endswith(NOT_WRITTEN)
    assert 5 <= cluster.now - start < 8
    cluster.network.aimed_faults.clear()
    producer.flush()
    assert new.written == [(0, 10, 0, -1)]


def test_a_connection_ends_before_other_batches_expire(cluster: ProducerCluster) -> None:
    producer = cluster.producer(delivery_timeout_ms=20_000)
    send(producer, 2)
    producer.flush()
    cluster.break_connections()
    cluster.sleep(1)
    cluster.connect_fault("stall_connect")
    start = cluster.now
    old, new = RecordingCallback(), RecordingCallback()
    producer.enqueue("t", batch(0), old, start - 15)
    producer.enqueue("t", batch(1), new, start)
    producer.poll(0)
    assert old.error.message.endswith(NOT_WRITTEN)
    assert 5 <= cluster.now - start < 7
    assert not new.errors


def test_an_expired_batch_does_not_fail_later_ones() -> None:
    with ProducerCluster(connection={"request_timeout_ms": 5_000}) as cluster:
        cluster.fault("Produce", "stall_response")
        producer = cluster.producer(delivery_timeout_ms=20_000)
        start = cluster.now
        old, new = RecordingCallback(), RecordingCallback()
        producer.send("t", batch(), old, created_at=start - 17)
        producer.send("t", batch(), new, created_at=start)
        producer.flush()
        assert old.error.message.endswith(MAY_BE_WRITTEN)
        assert new.written == [(0, 10, 10, -1)], "the broker had taken the other one"
        assert cluster.producer_states() == [(FIRST, 0), (SECOND, 0)]


def test_a_batch_behind_an_expired_one_is_not_sent_again_if_both_may_be_written() -> None:
    """With another sequence number it could be duplicated: late requests of both may still arrive."""
    with ProducerCluster(connection={"request_timeout_ms": 5_000}) as cluster:
        cluster.fault("Produce", "late_stalled_request", number=1, seconds=20)
        cluster.fault("Produce", "late_stalled_request", number=2, seconds=20)
        producer = cluster.producer(delivery_timeout_ms=20_000)
        send(producer, 0)
        producer.flush()
        old, new = RecordingCallback(), RecordingCallback()
        producer.send("t", batch(), old, created_at=cluster.now - 17)
        producer.send("t", batch(), new, created_at=cluster.now)
        producer.flush()
        assert old.error.message.endswith(MAY_BE_WRITTEN)
        assert new.error.message.endswith(MAY_BE_WRITTEN)
        assert cluster.producer_states() == [(FIRST, 0), (FIRST, 20)]


def test_a_general_error_fails_all_batches(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "garble_response", number=1)
    producer = cluster.producer(max_in_flight=2)
    (done,) = send(producer, 0)
    producer.flush()
    callbacks = send(producer, 0, 0, 0)
    with pytest.raises(ProtocolError) as caught:
        producer.flush()
    assert len(done.written) == 1
    message = caught.value.message
    assert [each.error.message.removeprefix(message) for each in callbacks] == [
        MAY_BE_WRITTEN,
        MAY_BE_WRITTEN,
        NOT_WRITTEN,
    ]
    with pytest.raises(ProtocolError) as again:
        producer.send("t", batch())
    assert again.value.message == message
    assert [len(each.errors) for each in callbacks] == [1, 1, 1]


def test_a_failed_batch_without_a_callback_raises(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", number=1, code=REJECTED)
    producer = cluster.producer()
    (callback,) = send(producer, 0)
    producer.flush()
    producer.send("t", batch())
    (other,) = send(producer, 0)
    with pytest.raises(InvalidRecordError):
        producer.flush()
    assert len(callback.written) == 1
    assert other.error.message.endswith(MAY_BE_WRITTEN)


def test_queued_batches_are_counted(cluster: ProducerCluster) -> None:
    other = PARTITION._replace(partition=1)
    producer = cluster.producer()
    assert producer.queued_batches(PARTITION) == 0
    send(producer, 0, 0, 0, 1)
    assert [producer.queued_batches(each) for each in (PARTITION, other)] == [2, 0]
    producer.flush()
    assert producer.queued_batches(PARTITION) == 0


def test_poll_waits_no_longer_than_its_timeout(cluster: ProducerCluster) -> None:
    cluster.delay_responses(5.0)
    producer = cluster.producer()
    start = cluster.now
    producer.poll(3)
    assert cluster.now - start == pytest.approx(3, abs=0.001)
    (callback,) = send(producer, 0)
    start = cluster.now
    producer.poll(2)
    assert cluster.now - start == pytest.approx(2, abs=0.001)
    assert callback.written == []
    producer.poll(60)
    assert cluster.now - start == pytest.approx(5, abs=0.01)
    assert len(callback.written) == 1


def test_a_batch_expires_while_other_partitions_use_the_connection(cluster: ProducerCluster) -> None:
    """The broker responds in time, but so slowly that the last partitions are not sent before their timeout."""
    cluster.delay_responses(25.0)
    producer = cluster.producer(max_in_flight=1, max_request_bytes=SIZE, delivery_timeout_ms=40_000)
    start = cluster.now
    callbacks = [RecordingCallback() for _ in range(4)]
    for partition, callback in enumerate(callbacks):
        producer.enqueue("t", batch(partition), callback, start)
    producer.poll(0)
    while not callbacks[3].errors:
        producer.poll(60)
        assert cluster.now - start < 41
    assert cluster.now - start == pytest.approx(40, abs=0.1)
    producer.flush()
    assert [len(each.written) for each in callbacks] == [1, 1, 0, 0]
    for callback in callbacks[2:]:
        assert type(callback.error) is BrokerTimeoutError
        assert "earlier requests" in callback.error.message
        assert callback.error.message.endswith(NOT_WRITTEN)
    assert cluster.produced_partitions == [[0], [1]]


def test_an_expired_batch_is_not_sent_when_the_connection_is_free(cluster: ProducerCluster) -> None:
    cluster.delay_responses(25.0)
    producer = cluster.producer(max_in_flight=1, max_request_bytes=SIZE, delivery_timeout_ms=40_000)
    start = cluster.now
    first, expired = RecordingCallback(), RecordingCallback()
    producer.enqueue("t", batch(0), first, start)
    producer.poll(0)
    producer.enqueue("t", batch(1), expired, start - 20)
    cluster.sleep(26)  # the caller polls late
    producer.flush()
    assert len(first.written) == 1
    assert expired.error.message.endswith(NOT_WRITTEN)


def test_old_evidence_that_a_topic_is_missing_does_not_count(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    first, later = RecordingCallback(), RecordingCallback()
    producer.send("new", batch(), first)
    producer.flush()
    assert type(first.error) is TopicNotFoundError
    cluster.sleep(3_600)
    cluster.event("stick_image", broker=0, seconds=3)  # one broker lags behind
    cluster.event("create_topic", topic="new")
    producer.send("new", batch(), later)
    producer.flush()
    assert later.written == [(0, 10, 0, -1)]


def test_each_time_that_a_topic_is_missing_is_confirmed(cluster: ProducerCluster) -> None:
    """Also after it was confirmed, and after the topic was found before that."""
    producer = cluster.producer()
    callbacks = [RecordingCallback() for _ in range(3)]
    producer.send("new", batch(), callbacks[0])
    producer.flush()
    assert type(callbacks[0].error) is TopicNotFoundError
    for partition, callback in enumerate(callbacks[1:]):
        cluster.sleep(3_600)
        if partition:
            cluster.event("delete_topic", topic="new")
        cluster.after(2, lambda: cluster.event("create_topic", topic="new", partitions=2))
        producer.send("new", batch(partition), callback)
        producer.flush()
        assert callback.written == [(0, 10, 0, -1)]


def test_each_time_that_a_partition_is_missing_is_confirmed(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    for partitions in (None, 8):
        if partitions is not None:
            cluster.sleep(3_600)
            cluster.event("recreate_topic", topic="t", partitions=partitions)
        cluster.after(2, lambda: cluster.event("expand_topic", topic="t"))
        (callback,) = send(producer, 8)
        producer.flush()
        assert callback.written == [(0, 10, 0, -1)]
