"""Callbacks of single record batches, and how the producer continues without a failed one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.fake_cluster import FakeCluster, FakeResponse
from tests.unit.producer.test_batch_producer import batch, scripted, sent_producer_states, sent_sequences
from tests.unit.producer.test_batch_producer_faults import (
    PARTITIONS,
    FaultyCluster,
    FaultyConnection,
    encoded,
)

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    InvalidRecordError,
    KafkaDirectError,
    ProtocolError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.producer.fake_cluster import FakeConnection

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node

NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."
TEN = (0, 10)


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


class RecordingCallback:
    """A ``DeliveryCallback`` that record_count its calls."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, int]] = []
        self.errors: list[tuple[int, int, BaseException]] = []

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        self.written.append((first_index, record_count, base_offset, append_time))

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        self.errors.append((first_index, record_count, error))

    @property
    def error(self) -> KafkaDirectError:
        assert not self.written
        ((*location, error),) = self.errors
        assert tuple(location) == TEN
        assert isinstance(error, KafkaDirectError)
        return error


def new_producer(cluster: FakeCluster, **settings: Any) -> BatchProducer:
    return BatchProducer(cluster, ProducerSettings(**settings))  # type: ignore[arg-type]


def send(producer: BatchProducer, *partitions: int) -> list[RecordingCallback]:
    callbacks = [RecordingCallback() for _ in partitions]
    for partition, each in zip(partitions, callbacks, strict=True):
        producer.send("t", batch(partition), each)
    return callbacks


def test_offsets_and_append_times_are_reported_per_batch() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(more={"log_append_time_ms": 7})))
    producer = new_producer(cluster)
    callbacks = send(producer, 0, 0, 0)
    producer.flush()
    assert [each.written for each in callbacks] == [[(0, 10, 0, -1)], [(0, 10, 10, 7)], [(0, 10, 20, -1)]]
    assert not any(each.errors for each in callbacks)


def test_without_acks_there_is_no_offset() -> None:
    producer = new_producer(FakeCluster(), acks=0, idempotent=False)
    (callbacks,) = send(producer, 0)
    assert callbacks.written == [(0, 10, -1, -1)]


def test_the_parts_of_a_split_batch_are_reported_separately() -> None:
    cluster = FaultyCluster(1)
    cluster.chance = _NoFaults()
    callbacks = RecordingCallback()
    producer = new_producer(cluster)
    producer.send("t", encoded(0, 0, 25), callbacks)
    producer.flush()
    # Batches of 25 and 13 records are too large, one of 12 is not.
    assert sorted(callbacks.written) == [(0, 7, 0, -1), (7, 6, 7, -1), (13, 12, 13, -1)]
    producer.send("t", encoded(0, 25, 25), callbacks)
    producer.flush()
    assert sum(records for _, records, *_ in callbacks.written) == 50, "also where it is known to be too large"


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.INVALID_RECORD, InvalidRecordError),
        (ErrorCode.INVALID_TIMESTAMP, InvalidRecordError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_a_rejected_batch_fails_alone(code: int, error_type: type[KafkaDirectError]) -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(code=code)))
    producer = new_producer(cluster)
    before, rejected, after = send(producer, 0, 0, 0)
    producer.flush()
    (later,) = send(producer, 0)
    producer.flush()
    assert type(rejected.error) is error_type
    assert rejected.error.message.endswith(NOT_WRITTEN)
    assert [each.written[0][2] for each in (before, after, later)] == [0, 10, 20]
    assert producer.unacknowledged_bytes == 0


def test_queued_batches_behind_a_failed_one_get_the_next_epoch() -> None:
    """Nothing else was in flight, so nothing can be written twice; a late request of the failed one is rejected."""
    cluster = FakeCluster(scripted(FakeResponse(code=ErrorCode.INVALID_RECORD)))
    producer = new_producer(cluster)
    start = cluster.system.now
    rejected, after = send(producer, 0, 0)
    producer.flush()
    assert (rejected.error, after.written) == (rejected.error, [(0, 10, 0, -1)])
    assert sent_producer_states(cluster) == [(100, 0, 0), (100, 1, 0)]
    assert cluster.system.now - start < 0.05, "and without a pause"


def test_in_flight_batches_behind_a_failed_one_keep_their_sequence_numbers() -> None:
    """They may have been written: with other sequence numbers they could be duplicated."""
    rejected, missing = (
        FakeResponse(code=ErrorCode.INVALID_RECORD),
        FakeResponse(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    )
    cluster = FakeCluster(scripted(FakeResponse(), rejected, FakeResponse(None), missing))
    producer = new_producer(cluster)
    callbacks = send(producer, 0, 0, 0)
    producer.flush()
    assert (len(callbacks[0].written), len(callbacks[1].errors), len(callbacks[2].written)) == (1, 1, 1)
    assert sent_producer_states(cluster) == [
        (100, 0, 0),
        (100, 0, 10),
        (100, 0, 20),
        (100, 0, 20),
        (100, 1, 0),
    ]


def test_a_rejection_counts_after_the_batches_before_are_written() -> None:
    late = FakeResponse(code=ErrorCode.REQUEST_TIMED_OUT)
    rejected = FakeResponse(code=ErrorCode.INVALID_RECORD)
    cluster = FakeCluster(scripted(FakeResponse(), late, rejected, FakeResponse(more={"base_offset": 10}), rejected))
    producer = new_producer(cluster)
    callbacks = send(producer, 0, 0, 0)
    producer.flush()
    assert [len(each.written) for each in callbacks] == [1, 1, 0]
    assert type(callbacks[2].error) is InvalidRecordError
    assert [sequence for _, sequence in sent_sequences(cluster)] == [0, 10, 20, 10, 20]


def test_one_record_that_is_too_large_for_the_topic() -> None:
    class SmallTopicCluster(FaultyCluster):
        def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
            connection = _SmallTopicConnection(self, node.id)
            self.system.connections[connection.fileno()] = connection
            return connection

    class _SmallTopicConnection(FaultyConnection):
        def _append(self, number: int, data: bytes) -> dict[str, Any]:
            if len(data) > 70:
                return {"error_code": ErrorCode.MESSAGE_TOO_LARGE, "base_offset": -1}
            return super()._append(number, data)

    cluster = SmallTopicCluster(1)
    cluster.chance = _NoFaults()
    producer = new_producer(cluster)
    large, small = RecordingCallback(), RecordingCallback()
    producer.send("t", encoded(0, 10**9, 1), large)
    producer.send("t", encoded(0, 1, 1), small)
    producer.flush()
    ((_, _, error),) = large.errors
    assert type(error) is RecordTooLargeError
    assert small.written == [(0, 1, 0, -1)]
    assert cluster.logs[0].values == [1]


def test_a_missing_partition_fails_its_batches_only() -> None:
    cluster = FakeCluster()
    original_leaders = cluster.leaders

    def leaders(partitions: Any, *more: Any, **requests_for: Any) -> Any:
        if any(each.partition == 1 for each in partitions):
            raise TopicNotFoundError("unknown topic", topic="t", partition=1)
        return original_leaders(partitions, *more, **requests_for)

    cluster.leaders = leaders  # type: ignore[method-assign]
    producer = new_producer(cluster)
    one, other, again = send(producer, 1, 0, 1)
    producer.flush()
    assert type(one.error) is type(again.error) is TopicNotFoundError
    assert one.error.message == f"unknown topic{NOT_WRITTEN}"
    assert other.written == [(0, 10, 0, -1)]
    cluster.leaders = original_leaders  # type: ignore[method-assign]
    (later,) = send(producer, 1)
    producer.flush()
    assert later.written == [(0, 10, 0, -1)], "it may be there by now"


def test_a_topic_without_permission_fails_its_batches() -> None:
    cluster = FakeCluster()

    def leaders(*_: Any, **__: Any) -> Any:
        raise AuthorizationError("no", topic="t")

    cluster.leaders = leaders  # type: ignore[method-assign]
    producer = new_producer(cluster)
    (callbacks,) = send(producer, 0)
    producer.flush()
    assert type(callbacks.error) is AuthorizationError


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        ({"leader": None}, NOT_WRITTEN),
        ({"unreachable": {1}}, NOT_WRITTEN),
        ({"script": lambda _: FakeResponse(code=ErrorCode.NOT_ENOUGH_REPLICAS)}, NOT_WRITTEN),
        ({"script": lambda _: FakeResponse(code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)}, MAY_BE_WRITTEN),
        ({"script": lambda _: FakeResponse(code=ErrorCode.REQUEST_TIMED_OUT)}, MAY_BE_WRITTEN),
        ({"script": lambda _: FakeResponse(None)}, MAY_BE_WRITTEN),
    ],
)
def test_the_error_states_whether_records_may_have_been_written(what: dict[str, Any], outcome: str) -> None:
    cluster = FakeCluster()
    vars(cluster).update(what)
    producer = new_producer(cluster, delivery_timeout_ms=20_000)
    (callbacks,) = send(producer, 0)
    producer.flush()
    assert type(callbacks.error) is BrokerTimeoutError
    assert "within 20 s" in callbacks.error.message
    assert callbacks.error.message.endswith(outcome)
    assert isinstance(callbacks.error.__cause__, KafkaDirectError)


def test_each_batch_has_its_own_delivery_timeout() -> None:
    cluster = FakeCluster()
    cluster.leader = None
    producer = new_producer(cluster, delivery_timeout_ms=20_000)
    start = cluster.system.now
    early, late = RecordingCallback(), RecordingCallback()
    producer.send("t", batch(), early, created_at=start - 15)
    producer.send("t", batch(), late, created_at=start)
    while not early.errors:
        producer.poll(60)
    assert cluster.system.now - start == pytest.approx(5)
    assert not late.errors
    while not late.errors:
        producer.poll(60)
    assert cluster.system.now - start == pytest.approx(20)


def test_without_a_producer_id_a_batch_fails_after_its_own_delivery_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    producer = new_producer(cluster, delivery_timeout_ms=20_000)
    start = cluster.system.now

    def request(_: object, deadline: Deadline) -> ProducerIdAndEpoch:
        cluster.system.now = max(cluster.system.now, deadline.at)
        raise BrokerTimeoutError("no id")

    with monkeypatch.context() as unresponsive:
        unresponsive.setattr("pyspark_kafka_direct.producer.producer_id_manager.request_producer_id", request)
        old, new = RecordingCallback(), RecordingCallback()
        producer.enqueue("t", batch(0), old, start - 15)
        producer.enqueue("t", batch(1), new, start)
        producer.poll(0)
        while not old.errors:
            producer.poll(1)
    assert "no id" in old.error.message
    assert old.error.message.endswith(NOT_WRITTEN)
    assert 5 <= cluster.system.now - start < 8
    producer.flush()
    assert new.written == [(0, 10, 0, -1)]


def test_a_connection_ends_before_other_batches_expire() -> None:
    class SlowCluster(FakeCluster):
        def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
            self.system.now = max(self.system.now, deadline.at)
            raise BrokerUnreachableError("slow", broker="b:1")

    cluster = SlowCluster()
    producer = new_producer(cluster, delivery_timeout_ms=20_000)
    start = cluster.system.now
    old, new = RecordingCallback(), RecordingCallback()
    producer.enqueue("t", batch(0), old, start - 15)
    producer.enqueue("t", batch(1), new, start)
    producer.poll(0)
    assert old.error.message.endswith(NOT_WRITTEN)
    assert 5 <= cluster.system.now - start < 7
    assert not new.errors


def test_an_expired_batch_does_not_fail_later_ones() -> None:
    cluster = FakeCluster(scripted(FakeResponse(None)), request_timeout_ms=5_000)
    producer = new_producer(cluster, delivery_timeout_ms=20_000)
    start = cluster.system.now
    old, new = RecordingCallback(), RecordingCallback()
    producer.send("t", batch(), old, created_at=start - 17)
    producer.send("t", batch(), new, created_at=start)
    producer.flush()
    assert old.error.message.endswith(MAY_BE_WRITTEN)
    assert new.written == [(0, 10, 10, -1)], "the broker had taken the other one"
    assert sent_producer_states(cluster) == [(100, 0, 0), (100, 1, 0)]


def test_a_general_error_fails_all_batches() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(1.0)))
    producer = new_producer(cluster)
    (done,) = send(producer, 0)
    producer.flush()
    callbacks = send(producer, 0, 0)
    cluster.leaders = _unknown  # type: ignore[method-assign]
    callbacks += [RecordingCallback()]
    with pytest.raises(ProtocolError, match="who knows"):
        producer.send("t", batch(1), callbacks[-1])
    assert len(done.written) == 1
    assert [each.error.message[9:] for each in callbacks] == [MAY_BE_WRITTEN, MAY_BE_WRITTEN, NOT_WRITTEN]
    with pytest.raises(ProtocolError, match=r"who knows$"):
        producer.send("t", batch())
    assert [len(each.errors) for each in callbacks] == [1, 1, 1]


def test_a_failed_batch_without_a_callback_raises() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(code=ErrorCode.INVALID_RECORD)))
    producer = new_producer(cluster)
    (callbacks,) = send(producer, 0)
    producer.flush()
    producer.send("t", batch())
    (other,) = send(producer, 0)
    with pytest.raises(InvalidRecordError):
        producer.flush()
    assert len(callbacks.written) == 1
    assert other.error.message.endswith(MAY_BE_WRITTEN)


def test_queued_batches_are_counted() -> None:
    producer = new_producer(FakeCluster(lambda _: FakeResponse(1.0)))
    assert producer.queued_batches(topic_partition(0)) == 0
    send(producer, 0, 0, 0, 1)
    assert [producer.queued_batches(topic_partition(number)) for number in (0, 1)] == [2, 0]
    producer.flush()
    assert producer.queued_batches(topic_partition(0)) == 0


def test_poll_waits_no_longer_than_its_timeout() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(5.0))
    producer = new_producer(cluster)
    start = cluster.system.now
    producer.poll(3)
    assert cluster.system.now - start == 3
    (callbacks,) = send(producer, 0)
    producer.poll(2)
    assert (cluster.system.now - start, callbacks.written) == (5, [])
    producer.poll(60)
    assert (cluster.system.now - start, len(callbacks.written)) == (8, 1)


def topic_partition(partition: int) -> Any:
    return ("t", partition)


def _unknown(*_: object, **__: object) -> Any:
    raise ProtocolError("who knows")


class _NoFaults(random.Random):
    """No random fault occurs."""

    def random(self) -> float:
        return 0.9

    def choice(self, options: Any) -> Any:
        return options[0]


class RejectingCluster(FaultyCluster):
    """Brokers that also reject records permanently."""

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        if self.chance.random() < 0.1:
            raise BrokerUnreachableError("rejected", broker=str(node))
        connection = RejectingConnection(self, node.id)
        self.system.connections[connection.fileno()] = connection
        return connection


class RejectingConnection(FaultyConnection):
    """Validates records before sequence numbers, as Kafka does."""

    def _append(self, number: int, data: bytes) -> dict[str, Any]:
        if is_bad(data) and self._cluster.leader_ids[number] == self._node:
            return {"error_code": ErrorCode.INVALID_RECORD, "base_offset": -1}
        return super()._append(number, data)


def is_bad(data: bytes) -> bool:
    return sum(data[61:]) % 11 == 3  # depends on the content only


class RecordOutcomes:
    """The outcome of each record of a batch."""

    def __init__(self, first: int, records: int) -> None:
        self.first = first
        self.outcomes: list[Any] = [None] * records

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        for index in range(first_index, first_index + record_count):
            assert self.outcomes[index] is None
            self.outcomes[index] = base_offset + index - first_index

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        for index in range(first_index, first_index + record_count):
            assert self.outcomes[index] is None
            self.outcomes[index] = error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 84))
def test_each_record_is_reported_once_and_correctly_despite_faults(seed: int) -> None:
    """Leaders move, connections break, records are rejected, and timeouts are short."""
    cluster = RejectingCluster(seed)
    settings = ProducerSettings(max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=12_000)
    producer = BatchProducer(cluster, settings)  # type: ignore[arg-type]
    counts = [0] * PARTITIONS
    sent: list[list[RecordOutcomes]] = [[] for _ in range(PARTITIONS)]
    for _ in range(150):
        partition = cluster.chance.randrange(PARTITIONS)
        number = cluster.chance.choice([1, 2, 5, 9, 20])
        records = RecordOutcomes(counts[partition], number)
        sent[partition].append(records)
        created_at = cluster.system.now - cluster.chance.choice([0, 0, 0, 8])
        producer.send("t", encoded(partition, counts[partition], number), records, created_at=created_at)
        counts[partition] += number
    producer.flush()
    assert producer.unacknowledged_bytes == 0
    outcomes = _check(cluster, sent)
    assert outcomes["written"] > outcomes["rejected"]
    assert outcomes["unknown"] > 0


def _check(cluster: FaultyCluster, sent: list[list[RecordOutcomes]]) -> Mapping[str, int]:
    counts = {"written": 0, "rejected": 0, "unknown": 0, "not written": 0}
    for log, batches in zip(cluster.logs, sent, strict=True):
        assert log.values == sorted(set(log.values)), "in order, and none twice"
        for records in batches:
            for index, outcome in enumerate(records.outcomes):
                value = records.first + index
                if isinstance(outcome, int):
                    counts["written"] += 1
                    assert log.values[outcome] == value
                    continue
                assert isinstance(outcome, KafkaDirectError)
                unknown = outcome.message.endswith(MAY_BE_WRITTEN)
                assert unknown != outcome.message.endswith(NOT_WRITTEN)
                assert unknown or value not in log.values
                counts["rejected"] += isinstance(outcome, InvalidRecordError)
                counts["unknown" if unknown else "not written"] += 1
    return counts


def test_a_batch_expires_while_other_partitions_use_the_connection() -> None:
    """The broker responds in time, but so slowly that the last partitions are not sent before their timeout."""
    cluster = FakeCluster(lambda _: FakeResponse(25.0), request_timeout_ms=30_000)
    producer = new_producer(cluster, max_in_flight=1, max_request_bytes=61, delivery_timeout_ms=40_000)
    start = cluster.system.now
    callbacks = [RecordingCallback() for _ in range(4)]
    for partition, callback in enumerate(callbacks):
        producer.enqueue("t", batch(partition), callback, start)
    producer.poll(0)
    while not callbacks[3].errors:
        producer.poll(60)
        assert cluster.system.now - start < 41
    assert cluster.system.now - start == pytest.approx(40)
    producer.flush()
    assert [len(each.written) for each in callbacks] == [1, 1, 0, 0]
    for callback in callbacks[2:]:
        assert type(callback.error) is BrokerTimeoutError
        assert "earlier requests" in callback.error.message
        assert callback.error.message.endswith(NOT_WRITTEN)
    assert [sorted(each.batches) for each in cluster.sent] == [[0], [1]]


def test_an_expired_batch_is_not_sent_when_the_connection_is_free() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(25.0), request_timeout_ms=30_000)
    producer = new_producer(cluster, max_in_flight=1, max_request_bytes=61, delivery_timeout_ms=40_000)
    start = cluster.system.now
    first, expired = RecordingCallback(), RecordingCallback()
    producer.enqueue("t", batch(0), first, start)
    producer.poll(0)
    producer.enqueue("t", batch(1), expired, start - 20)
    cluster.system.now = start + 26  # the caller polled late
    producer.flush()
    assert len(first.written) == 1
    assert expired.error.message.endswith(NOT_WRITTEN)


def test_old_evidence_that_a_topic_is_missing_does_not_count() -> None:
    cluster = FakeCluster()
    cluster.missing = 1_000
    producer = new_producer(cluster)
    (first,) = send(producer, 0)
    producer.flush()
    assert type(first.error) is TopicNotFoundError
    cluster.system.now += 3_600
    cluster.missing = 2  # one broker lags behind
    (later,) = send(producer, 0)
    producer.flush()
    assert later.written == [(0, 10, 0, -1)]
