"""The requests of a transactional producer, with and without transaction.version 2."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.unit.producer.fake_coordinator import NO_RESPONSE, FakeTransactionalCluster

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import BrokerError, OutcomeUnknownError, ProducerFencedError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.batch_producer import WrittenRange
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS, SIZE = 10, 61
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED = ErrorCode.PRODUCER_FENCED
FIRST, SECOND = ("id", 7, 3), ("id", 7, 4)

both = pytest.mark.parametrize("level", [1, 2])


def batch(partition: int = 0) -> EncodedBatch:
    data = bytearray(SIZE)
    struct.pack_into(">i", data, 57, RECORDS)
    data[16] = 2
    return EncodedBatch(partition, RECORDS, 100, data)


def new_producer(cluster: FakeTransactionalCluster) -> TransactionalProducer:
    return TransactionalProducer(cluster, "id", 5000, ProducerSettings())  # type: ignore[arg-type]


def initialized_producer(cluster: FakeTransactionalCluster) -> TransactionalProducer:
    """Return a producer after ``init_transactions``, without its request."""
    producer = new_producer(cluster)
    producer.init_transactions()
    assert cluster.take_requests() == [("InitProducerId", "id", 5000)]
    return producer


def group_of(cluster: FakeTransactionalCluster) -> ConsumerGroup:
    return ConsumerGroup(cluster, "g")  # type: ignore[arg-type]


def test_each_transaction_increments_the_epoch() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(7, 3)
    for _ in range(2):
        producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(0, 20, 20, 2 * SIZE)}
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(7, 4)
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(20, 30, 10, SIZE)}
    assert cluster.take_requests() == [
        ("Produce", FIRST, 0, 0),
        ("Produce", FIRST, 0, 10),
        ("EndTxn", FIRST, "commit"),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


def test_without_transaction_v2_partitions_are_added_and_sequence_numbers_continue() -> None:
    cluster = FakeTransactionalCluster(level=1)
    producer = initialized_producer(cluster)
    for _ in range(2):
        for partition in (0, 0, 1):
            producer.send("t", batch(partition))
        producer.commit()
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(7, 3)
    requests = cluster.take_requests()
    assert [each for each in requests if each[0] != "Produce"] == 2 * [
        ("AddPartitionsToTxn", FIRST, [("t", [0])]),
        ("AddPartitionsToTxn", FIRST, [("t", [1])]),
        ("EndTxn", FIRST, "commit"),
    ]
    assert [each[3] for each in requests if each[:3] == ("Produce", FIRST, 0)] == [0, 10, 20, 30]
    assert [each[3] for each in requests if each[:3] == ("Produce", FIRST, 1)] == [0, 10]


def test_a_commit_that_may_arrive_again_increments_the_epoch_without_transaction_v2() -> None:
    """The try without a response must not end the next transaction."""
    cluster = FakeTransactionalCluster(level=1)
    producer = initialized_producer(cluster)
    cluster.codes["EndTxn"] = [NO_RESPONSE]
    for _ in range(2):
        producer.send("t", batch())
        producer.commit()
    assert cluster.take_requests() == [
        ("AddPartitionsToTxn", FIRST, [("t", [0])]),
        ("Produce", FIRST, 0, 0),
        ("EndTxn", FIRST, "commit"),
        ("EndTxn", FIRST, "commit"),
        ("InitProducerId", "id", 5000, 7, 3),
        ("AddPartitionsToTxn", SECOND, [("t", [0])]),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FENCED])
def test_an_epoch_that_cannot_be_incremented_fails_the_next_transaction(code: ErrorCode) -> None:
    cluster = FakeTransactionalCluster(level=1)
    producer = initialized_producer(cluster)
    cluster.codes = {"EndTxn": [NO_RESPONSE], "InitProducerId": [code]}
    producer.send("t", batch())
    assert producer.commit()[P0].records == RECORDS
    for step in (lambda: producer.send("t", batch()), producer.require_producer_id) * 2:
        with pytest.raises(BrokerError, match=code.name):
            step()
    if code == FENCED:
        with pytest.raises(ProducerFencedError):
            producer.init_transactions()
    else:
        producer.init_transactions()
        producer.send("t", batch())
        producer.commit()
    assert len(cluster.requests_for("Produce")) == (1 if code == FENCED else 2)


def test_after_an_abort_the_next_epoch_is_used() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    producer.send("t", batch())
    producer.flush()
    producer.abort()
    producer.abort()  # nothing is left to abort
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests() == [
        ("Produce", FIRST, 0, 0),
        ("EndTxn", FIRST, "abort"),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


def test_an_abort_drops_unsent_batches() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    producer.send("t", batch(), more_follows=True)
    producer.abort()
    assert not producer.has_queued_batches
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(0, 10, 10, SIZE)}
    assert len(cluster.requests_for("Produce")) == 1


def test_after_an_abort_without_transaction_v2_init_transactions_is_required() -> None:
    """The sequence numbers that the brokers have are unknown."""
    cluster = FakeTransactionalCluster(level=1)
    producer = initialized_producer(cluster)
    producer.send("t", batch())
    producer.abort()
    assert cluster.requests_for("EndTxn") == [("EndTxn", FIRST, "abort")]
    assert producer.producer_id_and_epoch is None
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    producer.init_transactions()
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests()[-2:] == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


@both
def test_an_empty_transaction_needs_no_request(level: int) -> None:
    cluster = FakeTransactionalCluster(level)
    producer = initialized_producer(cluster)
    assert producer.flush() == {}
    assert producer.commit() == {}
    producer.abort()
    assert cluster.take_requests() == []
    producer.send("t", batch())
    producer.commit()
    assert producer.commit() == {}
    producer.abort()
    assert len(cluster.requests_for("EndTxn")) == 1


def test_init_transactions_is_required() -> None:
    cluster = FakeTransactionalCluster()
    producer = new_producer(cluster)
    assert producer.producer_id_and_epoch is None
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send_offsets_to_transaction(group_of(cluster), {})
    producer.commit()
    assert cluster.take_requests() == []


def test_init_transactions_drops_the_open_transaction() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    producer.send("t", batch())
    producer.init_transactions()
    assert producer.commit() == {}
    assert not cluster.requests_for("EndTxn"), "the coordinator has aborted it"
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(10, 20, 10, SIZE)}
    assert cluster.take_requests()[-2:] == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


def test_a_failed_init_transactions_leaves_the_producer_uninitialized() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    cluster.codes["InitProducerId"] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError):
        producer.init_transactions()
    assert producer.producer_id_and_epoch is None


STEPS: dict[str, tuple[str, Callable[[TransactionalProducer, ConsumerGroup], object]]] = {
    "commit": ("EndTxn", lambda producer, _: producer.commit()),
    "flush": ("Produce", lambda producer, _: producer.flush()),
    "poll": ("Produce", lambda producer, _: producer.poll(1)),
    "send_offsets_to_transaction": (
        "TxnOffsetCommit",
        lambda producer, group: producer.send_offsets_to_transaction(group, {P0: CommittedOffset(1)}),
    ),
    "abort": ("EndTxn", lambda producer, _: producer.abort()),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_fenced_producer_does_nothing_more(name: str) -> None:
    where, step = STEPS[name]
    cluster = FakeTransactionalCluster()
    producer, group = initialized_producer(cluster), group_of(cluster)
    producer.send("t", batch())
    cluster.codes[where] = [FENCED]
    if where == "Produce":
        producer.flush()
        producer.send("t", batch())
        cluster.codes[where] = []
    with pytest.raises(ProducerFencedError) as first_error:
        step(producer, group)
    cluster.take_requests()
    with pytest.raises(ProducerFencedError) as later_error:
        producer.init_transactions()
    assert later_error.value is first_error.value
    with pytest.raises(ProducerFencedError):
        producer.commit()
    with pytest.raises(ProducerFencedError):
        producer.send("t", batch())
    with pytest.raises(ProducerFencedError):
        producer.send_offsets_to_transaction(group, {P0: CommittedOffset(2)})
    producer.abort()
    producer.close()
    assert cluster.take_requests() == [], "what is open is its successor's by now"


def test_after_an_unconfirmed_commit_init_transactions_is_required() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    producer.send("t", batch())
    cluster.codes["EndTxn"] = [ErrorCode.UNKNOWN_SERVER_ERROR]
    with pytest.raises(OutcomeUnknownError):
        producer.commit()
    assert producer.producer_id_and_epoch is None
    producer.abort()
    assert len(cluster.requests_for("EndTxn")) == 1, "another end might be the end of another transaction"
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    producer.init_transactions()
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests()[-1] == ("EndTxn", SECOND, "commit")


@both
def test_offsets_are_committed_with_the_records(level: int) -> None:
    cluster = FakeTransactionalCluster(level)
    producer, group = initialized_producer(cluster), group_of(cluster)
    producer.send("t", batch())
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(5, "note")})
    assert not cluster.committed_offsets
    producer.commit()
    assert cluster.committed_offsets == {P0: CommittedOffset(5, "note")}
    requests = [each[:3] for each in cluster.take_requests() if each[0].startswith(("AddOffsets", "TxnOffset"))]
    added = [("AddOffsetsToTxn", FIRST, "g")] if level < 2 else []
    assert requests == [*added, ("TxnOffsetCommit", FIRST, "g")]


@both
def test_offsets_alone_are_a_transaction(level: int) -> None:
    cluster = FakeTransactionalCluster(level)
    producer, group = initialized_producer(cluster), group_of(cluster)
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(5)})
    producer.abort()
    assert not cluster.committed_offsets
    producer.init_transactions()
    producer.send_offsets_to_transaction(group, {P1: CommittedOffset(6)})
    producer.commit()
    assert cluster.committed_offsets == {P1: CommittedOffset(6, "")}


@both
def test_a_transaction_of_another_producer_can_be_resumed(level: int) -> None:
    cluster = FakeTransactionalCluster(level)
    producer = new_producer(cluster)
    producer.resume_transaction(ProducerIdAndEpoch(40, 2))
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(40, 2)
    producer.commit()
    assert cluster.take_requests() == [("EndTxn", ("id", 40, 2), "commit")], "others may have written with it"
    producer.resume_transaction(ProducerIdAndEpoch(50, 2), in_progress=False)
    producer.commit()
    producer.abort()
    assert cluster.take_requests() == []
    producer.send("t", batch())
    producer.commit()
    assert [each[:2] for each in cluster.take_requests()] == [
        *([("AddPartitionsToTxn", ("id", 50, 2))] if level < 2 else []),
        ("Produce", ("id", 50, 2)),
        ("EndTxn", ("id", 50, 2)),
    ]


@both
def test_a_transaction_may_have_timed_out_if_it_is_nearly_as_old_as_its_timeout(level: int) -> None:
    cluster = FakeTransactionalCluster(level)
    producer = initialized_producer(cluster)
    cluster.system.now += 100
    assert producer.open_seconds == 0.0, "it starts with its first record"
    for number in range(2):
        producer.send("t", batch())
        assert producer.open_seconds == pytest.approx(2.249 * number)
        cluster.system.now += 2.249
    assert not producer.may_have_timed_out, "5 s are its timeout"
    producer.commit()
    assert producer.open_seconds == 0.0
    producer.send_offsets_to_transaction(group_of(cluster), {P0: CommittedOffset(5)})
    cluster.system.now += 4.5
    cluster.codes["EndTxn"] = [FENCED]
    with pytest.raises(ProducerFencedError):
        producer.commit()
    assert producer.may_have_timed_out, "the error does not say it"
    assert producer.open_seconds == pytest.approx(4.5)


def test_resuming_another_transaction_drops_unsent_batches() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    producer.send("t", batch(), more_follows=True)
    producer.resume_transaction(ProducerIdAndEpoch(40, 2), in_progress=False)
    assert not producer.has_queued_batches
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests() == [("Produce", ("id", 40, 2), 0, 0), ("EndTxn", ("id", 40, 2), "commit")]


def test_brokers_without_fencing_are_rejected() -> None:
    cluster = FakeTransactionalCluster()
    cluster.versions = {22: (0, 2), 24: (0, 1)}
    with pytest.raises(UnsupportedBrokerError, match=r"requires Kafka 2\.5"):
        new_producer(cluster).init_transactions()
    assert cluster.take_requests() == []


def test_callers_can_wait_for_responses_with_descriptors() -> None:
    cluster = FakeTransactionalCluster()
    producer = initialized_producer(cluster)
    assert (producer.descriptors(), producer.has_queued_batches) == ([], False)
    producer.poll(0)
    producer.send("t", batch(), more_follows=True)
    assert (producer.descriptors(), producer.has_queued_batches) == ([], True)
    producer.poll(0)
    assert (len(producer.descriptors()), producer.has_queued_batches) == (1, False)
    producer.poll(1)
    assert producer.descriptors() == []
    assert producer.flush() == {P0: WrittenRange(0, 10, 10, SIZE)}
    assert producer.commit() == {}, "flush returned it"
    assert [each[0] for each in cluster.take_requests()] == ["Produce", "EndTxn"]


def test_the_end_of_the_with_block_releases_the_connections() -> None:
    cluster = FakeTransactionalCluster()
    with new_producer(cluster) as producer:
        producer.init_transactions()
        producer.send("t", batch())
        producer.flush()
        before = cluster.released
    assert cluster.released == before + 1
    assert producer.descriptors() == []
    assert not cluster.requests_for("EndTxn"), "the broker ends it when its time is up"
