"""The requests of a transactional producer on a simulated cluster, with and without transaction.version 2."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.unit.producer.producer_cluster import RECORDS, SIZE, ProducerCluster, batch
from tests.unit.producer.transaction_requests import TransactionRequest, transaction_requests

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import BrokerError, OutcomeUnknownError, ProducerFencedError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import WrittenRange
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED = ErrorCode.PRODUCER_FENCED
FIRST, SECOND, THIRD = (("id", 0, epoch) for epoch in range(3))

both = pytest.mark.parametrize("cluster", [0, 2], indirect=True)  # the transaction.version
before_v2 = pytest.mark.parametrize("cluster", [0], indirect=True)


class TransactionalCluster(ProducerCluster):
    """A cluster whose transactions end at once."""

    def __init__(self, transaction_version: int = 2, **settings: Any) -> None:
        super().__init__(transaction_version=transaction_version, **settings)
        self.version = transaction_version
        TransactionCoordinator.of(self.cluster).marker_seconds = (0.0, 0.0)
        self._taken = 0

    def new_producer(self) -> TransactionalProducer:
        producer = TransactionalProducer(self.client(), "id", 5000, ProducerSettings())
        self.at_end(producer.close)
        return producer

    def initialized_producer(self) -> TransactionalProducer:
        """Return a producer after ``init_transactions``, without its request."""
        producer = self.new_producer()
        producer.init_transactions()
        assert self.take_requests() == [("InitProducerId", "id", 5000)]
        return producer

    def group(self) -> ConsumerGroup:
        return ConsumerGroup(self.client(), "g")

    def committed_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        found = GroupCoordinator.of(self.cluster).committed("g")
        return {TopicPartition(*name): CommittedOffset(each.offset, each.metadata) for name, each in found.items()}

    def take_requests(self) -> list[TransactionRequest]:
        """Return the requests since the last call."""
        self.sleep(0.1)  # those on their way arrive
        first, self._taken = self._taken, len(self.requests)
        return transaction_requests(self.requests[first:])


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[TransactionalCluster]:
    with TransactionalCluster(getattr(request, "param", 2)) as cluster:
        yield cluster


def test_each_transaction_increments_the_epoch(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(0, 0)
    for _ in range(2):
        producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(0, 20, 20, 2 * SIZE)}
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(0, 1)
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(21, 31, 10, SIZE)}
    assert cluster.take_requests() == [
        ("Produce", FIRST, 0, 0),
        ("Produce", FIRST, 0, 10),
        ("EndTxn", FIRST, "commit"),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


@before_v2
def test_without_transaction_v2_partitions_are_added_and_sequence_numbers_continue(
    cluster: TransactionalCluster,
) -> None:
    producer = cluster.initialized_producer()
    for _ in range(2):
        for partition in (0, 0, 1):
            producer.send("t", batch(partition))
        producer.commit()
    assert producer.producer_id_and_epoch == ProducerIdAndEpoch(0, 0)
    requests = cluster.take_requests()
    assert [each for each in requests if each[0] != "Produce"] == 2 * [
        ("AddPartitionsToTxn", FIRST, [("t", [0])]),
        ("AddPartitionsToTxn", FIRST, [("t", [1])]),
        ("EndTxn", FIRST, "commit"),
    ]
    assert [each[3] for each in requests if each[:3] == ("Produce", FIRST, 0)] == [0, 10, 20, 30]
    assert [each[3] for each in requests if each[:3] == ("Produce", FIRST, 1)] == [0, 10]


@before_v2
def test_a_commit_that_may_arrive_again_increments_the_epoch_without_transaction_v2(
    cluster: TransactionalCluster,
) -> None:
    """The try without a response must not end the next transaction."""
    producer = cluster.initialized_producer()
    cluster.fault("EndTxn", "lose_response")
    for _ in range(2):
        producer.send("t", batch())
        producer.commit()
    assert cluster.take_requests() == [
        ("AddPartitionsToTxn", FIRST, [("t", [0])]),
        ("Produce", FIRST, 0, 0),
        ("EndTxn", FIRST, "commit"),
        ("EndTxn", FIRST, "commit"),
        ("InitProducerId", "id", 5000, 0, 0),
        ("AddPartitionsToTxn", SECOND, [("t", [0])]),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FENCED])
@before_v2
def test_an_epoch_that_cannot_be_incremented_fails_the_next_transaction(
    cluster: TransactionalCluster, code: ErrorCode
) -> None:
    producer = cluster.initialized_producer()
    cluster.fault("EndTxn", "lose_response")
    cluster.fault("InitProducerId", "error", code=code)
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
    assert cluster.sent("Produce") == (1 if code == FENCED else 2)


def test_after_an_abort_the_next_epoch_is_used(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
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


def test_an_abort_drops_unsent_batches(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    producer.send("t", batch(), more_follows=True)
    producer.abort()
    assert not producer.has_queued_batches
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(0, 10, 10, SIZE)}
    assert cluster.sent("Produce") == 1


@before_v2
def test_after_an_abort_without_transaction_v2_init_transactions_is_required(cluster: TransactionalCluster) -> None:
    """The sequence numbers that the brokers have are unknown."""
    producer = cluster.initialized_producer()
    producer.send("t", batch())
    producer.abort()
    assert cluster.take_requests()[-1] == ("EndTxn", FIRST, "abort")
    assert producer.producer_id_and_epoch is None
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    producer.init_transactions()
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests()[-2:] == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


@both
def test_an_empty_transaction_needs_no_request(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    assert producer.flush() == {}
    assert producer.commit() == {}
    producer.abort()
    assert cluster.take_requests() == []
    producer.send("t", batch())
    producer.commit()
    assert producer.commit() == {}
    producer.abort()
    assert cluster.sent("EndTxn") == 1


def test_init_transactions_is_required(cluster: TransactionalCluster) -> None:
    producer = cluster.new_producer()
    assert producer.producer_id_and_epoch is None
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send_offsets_to_transaction(cluster.group(), {})
    producer.commit()
    assert cluster.take_requests() == []


def test_init_transactions_drops_the_open_transaction(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    producer.send("t", batch())
    producer.flush()
    producer.init_transactions()
    assert producer.commit() == {}
    assert cluster.sent("EndTxn") == 0, "the coordinator has aborted it"
    producer.send("t", batch())
    assert producer.commit() == {P0: WrittenRange(11, 21, 10, SIZE)}
    assert cluster.take_requests()[-2:] == [("Produce", THIRD, 0, 0), ("EndTxn", THIRD, "commit")]


def test_a_failed_init_transactions_leaves_the_producer_uninitialized(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    cluster.fault("InitProducerId", "error", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
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
def test_a_fenced_producer_does_nothing_more(cluster: TransactionalCluster, name: str) -> None:
    where, step = STEPS[name]
    producer, group = cluster.initialized_producer(), cluster.group()
    producer.send("t", batch())
    producer.flush()
    cluster.fault(where, "error", code=FENCED)
    if where == "Produce":
        producer.send("t", batch())
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


def test_after_an_unconfirmed_commit_init_transactions_is_required(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    producer.send("t", batch())
    cluster.fault("EndTxn", "error", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(OutcomeUnknownError):
        producer.commit()
    assert producer.producer_id_and_epoch is None
    producer.abort()
    assert cluster.sent("EndTxn") == 1, "another end might be the end of another transaction"
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("t", batch())
    producer.init_transactions()
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests()[-1] == ("EndTxn", THIRD, "commit")


@both
def test_offsets_are_committed_with_the_records(cluster: TransactionalCluster) -> None:
    producer, group = cluster.initialized_producer(), cluster.group()
    producer.send("t", batch())
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(5, "note")})
    assert not cluster.committed_offsets()
    producer.commit()
    assert cluster.committed_offsets() == {P0: CommittedOffset(5, "note")}
    requests = [each[:3] for each in cluster.take_requests() if each[0].startswith(("AddOffsets", "TxnOffset"))]
    added = [("AddOffsetsToTxn", FIRST, "g")] if cluster.version < 2 else []
    assert requests == [*added, ("TxnOffsetCommit", FIRST, "g")]


@both
def test_offsets_that_may_arrive_again_increment_the_epoch(cluster: TransactionalCluster) -> None:
    """Else they could replace the offsets of the next transaction."""
    producer, group = cluster.initialized_producer(), cluster.group()
    cluster.fault("TxnOffsetCommit", "lose_response")
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(5)})
    producer.commit()
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(6)})
    producer.commit()
    requests = [each[:2] for each in cluster.take_requests() if each[0] == "TxnOffsetCommit"]
    assert requests == [("TxnOffsetCommit", epoch) for epoch in (FIRST, FIRST, SECOND)]
    assert cluster.committed_offsets() == {P0: CommittedOffset(6, "")}


@before_v2
@pytest.mark.parametrize("seed", range(6))
def test_any_request_that_may_arrive_again_increments_the_epoch_once(cluster: TransactionalCluster, seed: int) -> None:
    chance, producer, epoch = random.Random(seed), cluster.initialized_producer(), 0
    groups = [ConsumerGroup(cluster.client(), name) for name in ("g", "h")]
    for number in range(8):
        assert producer.require_producer_id().epoch == epoch
        may_arrive_again = False
        for group in chance.choices(groups, k=3):
            is_lost = chance.random() < 0.3
            if is_lost:
                cluster.fault("TxnOffsetCommit", "lose_response")
            producer.send_offsets_to_transaction(group, {P0: CommittedOffset(number)})
            may_arrive_again |= is_lost
        if chance.random() < 0.3:
            producer.abort()
            producer.init_transactions()
            epoch += 1
            continue
        if chance.random() < 0.3:
            cluster.fault("EndTxn", "lose_response")
            may_arrive_again = True
        producer.commit()
        epoch += may_arrive_again


@both
def test_offsets_alone_are_a_transaction(cluster: TransactionalCluster) -> None:
    producer, group = cluster.initialized_producer(), cluster.group()
    producer.send_offsets_to_transaction(group, {P0: CommittedOffset(5)})
    producer.abort()
    assert not cluster.committed_offsets()
    producer.init_transactions()
    producer.send_offsets_to_transaction(group, {P1: CommittedOffset(6)})
    producer.commit()
    assert cluster.committed_offsets() == {P1: CommittedOffset(6, "")}


@both
def test_a_transaction_of_another_producer_can_be_resumed(cluster: TransactionalCluster) -> None:
    producer, acquired = cluster.new_producer(), cluster.transactional_id()
    other = ProducerIdAndEpoch(acquired.producer_id, acquired.epoch)
    TransactionCoordinator.of(cluster.cluster).add_partitions("id", other, [P1])
    producer.resume_transaction(other)
    assert producer.producer_id_and_epoch == other
    producer.commit()
    assert cluster.take_requests() == [("EndTxn", FIRST, "commit")], "others may have written with it"
    acquired = cluster.transactional_id()
    other = ProducerIdAndEpoch(acquired.producer_id, acquired.epoch)
    producer.resume_transaction(other, in_progress=False)
    producer.commit()
    producer.abort()
    assert cluster.take_requests() == []
    producer.send("t", batch())
    producer.commit()
    assert [each[:2] for each in cluster.take_requests()] == [
        *([("AddPartitionsToTxn", ("id", *other))] if cluster.version < 2 else []),
        ("Produce", ("id", *other)),
        ("EndTxn", ("id", *other)),
    ]


@both
def test_an_id_that_the_coordinator_has_deleted_is_acquired_again(cluster: TransactionalCluster) -> None:
    """The request has the id and the epoch of the last transaction, so that no other producer is fenced."""
    producer = cluster.initialized_producer()
    for producer_id in range(3):
        for _ in range(2):
            producer.send("t", batch())
            producer.commit()
        TransactionCoordinator.of(cluster.cluster).expire("id")
        with pytest.raises(BrokerError) as caught:  # noqa: PT012 - either of the two calls fails
            producer.send("t", batch())
            producer.commit()
        assert caught.value.may_be_expired
        producer.reacquire()
        last_epoch = 0 if cluster.version < 2 else 2
        assert cluster.take_requests()[-1] == ("InitProducerId", "id", 5000, producer_id, last_epoch)
    producer.send("t", batch())
    assert producer.commit()[P0].records == RECORDS
    assert len(cluster.values()) == 7 * RECORDS


@both
def test_a_transaction_may_have_timed_out_if_it_is_nearly_as_old_as_its_timeout(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    cluster.sleep(100)
    assert producer.open_seconds == 0.0, "it starts with its first record"
    for number in range(2):
        producer.send("t", batch())
        assert producer.open_seconds == pytest.approx(2.2 * number, abs=0.02)
        cluster.sleep(2.2)
    assert not producer.may_have_timed_out, "5 s are its timeout"
    producer.commit()
    assert producer.open_seconds == 0.0
    producer.send_offsets_to_transaction(cluster.group(), {P0: CommittedOffset(5)})
    cluster.sleep(4.5)
    cluster.fault("EndTxn", "error", code=FENCED)
    with pytest.raises(ProducerFencedError):
        producer.commit()
    assert producer.may_have_timed_out, "the error does not say it"
    assert producer.open_seconds == pytest.approx(4.5, abs=0.02)


def test_resuming_another_transaction_drops_unsent_batches(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
    producer.send("t", batch(), more_follows=True)
    cluster.transactional_id()
    cluster.sleep(1)
    producer.resume_transaction(ProducerIdAndEpoch(0, 1), in_progress=False)
    assert not producer.has_queued_batches
    assert producer.open_seconds == 0.0, "the age of the other transaction is not known"
    producer.send("t", batch())
    producer.commit()
    assert cluster.take_requests() == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


def test_brokers_without_fencing_are_rejected() -> None:
    with TransactionalCluster(0, newest_versions={"InitProducerId": 2, "AddPartitionsToTxn": 1}) as cluster:
        with pytest.raises(UnsupportedBrokerError, match=r"requires Kafka 2\.5"):
            cluster.new_producer().init_transactions()
        assert cluster.take_requests() == []


def test_callers_can_wait_for_responses_with_descriptors(cluster: TransactionalCluster) -> None:
    producer = cluster.initialized_producer()
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


def test_the_end_of_the_with_block_releases_the_connections(cluster: TransactionalCluster) -> None:
    client = cluster.client()
    with TransactionalProducer(client, "id", 5000, ProducerSettings()) as producer:
        producer.init_transactions()
        producer.send("t", batch())
        producer.flush()
    assert producer.descriptors() == []
    client.pool.clear()
    assert cluster.open_connections == 0
    assert cluster.sent("EndTxn") == 0, "the broker ends it when its time is up"
