"""Transactions with a real broker, with and without transaction.version 2; read back by librdkafka."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.integration.transactional_batches import (
    batch_of,
    cluster_of,
    committed,
    new_transactional_id,
    new_transactional_producer,
)
from tests.integration.waiting import wait_until
from tests.proxy import END_TXN, Fault, Network

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.errors import BrokerError, ProducerFencedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from tests.conftest import MakeTopic

    ProducerFactory: TypeAlias = Callable[..., TransactionalProducer]


@pytest.fixture(params=["4.4", "3.9"])
def servers(request: pytest.FixtureRequest) -> str:
    """Return the address of a cluster with transaction.version 2, and of one without."""
    kafka = request.getfixturevalue("kafka" if request.param == "4.4" else "kafka39")
    assert isinstance(kafka, EmbeddedKafka)
    return kafka.bootstrap_servers


@pytest.fixture
def producer_of(servers: str) -> Iterator[Callable[..., TransactionalProducer]]:
    """Return a factory of producers that are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda name, **more: stack.enter_context(new_transactional_producer(servers, name, **more))


@pytest.fixture
def topic(servers: str, topics_on: Callable[[str], MakeTopic]) -> str:
    return topics_on(servers)(3)


def test_the_transaction_version_is_that_of_the_cluster(kafka: EmbeddedKafka, kafka39: EmbeddedKafka) -> None:
    assert (
        TransactionCoordinatorClient(cluster_of(kafka.bootstrap_servers), new_transactional_id())
        .init_transactions(1000)
        .transaction_v2
    )
    assert (
        not TransactionCoordinatorClient(cluster_of(kafka39.bootstrap_servers), new_transactional_id())
        .init_transactions(1000)
        .transaction_v2
    )


def test_only_committed_records_are_visible(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    producer = producer_of(new_transactional_id())
    producer.init_transactions()
    producer.send(topic, batch_of([b"a", b"b"], 0))
    producer.send(topic, batch_of([b"c"], 2))
    written = producer.commit()
    assert {partition.partition: count.records for partition, count in written.items()} == {0: 2, 2: 1}
    producer.send(topic, batch_of([b"x"], 1))
    producer.abort()
    producer.init_transactions()
    producer.send(topic, batch_of([b"d"], 0))
    producer.commit()
    assert committed(servers, topic, 3) == [b"a", b"b", b"d", b"c"]


def test_many_transactions_follow_one_another(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    """Without another ``init_transactions``; several batches each, so that sequence numbers matter."""
    producer = producer_of(new_transactional_id())
    producer.init_transactions()
    expected = []
    for number in range(20):
        for part in range(3):
            values = [b"%d-%d-%d" % (number, part, row) for row in range(3)]
            producer.send(topic, batch_of(values, 1))
            expected += values
        producer.commit()
    assert committed(servers, topic, 3) == expected


def test_an_empty_transaction_can_be_committed(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    producer = producer_of(new_transactional_id())
    producer.init_transactions()
    assert producer.commit() == {}
    producer.abort()
    producer.send(topic, batch_of([b"a"]))
    producer.commit()
    assert committed(servers, topic, 3) == [b"a"]


def test_init_transactions_fences_the_previous_producer(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    name = new_transactional_id()
    first, second = producer_of(name), producer_of(name)
    first.init_transactions()
    first.send(topic, batch_of([b"first"]))
    first.flush()
    second.init_transactions()
    with pytest.raises(ProducerFencedError):
        first.commit()
    with pytest.raises(ProducerFencedError):
        first.init_transactions()
    with pytest.raises(ProducerFencedError):
        first.send(topic, batch_of([b"again"]))
    second.send(topic, batch_of([b"second"]))
    second.commit()
    assert committed(servers, topic, 3) == [b"second"]


def test_a_fenced_producer_fails_when_it_sends(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    name = new_transactional_id()
    first, second = producer_of(name), producer_of(name)
    first.init_transactions()
    first.send(topic, batch_of([b"first"]))
    first.flush()
    second.init_transactions()
    first.send(topic, batch_of([b"more"]))
    with pytest.raises(ProducerFencedError):
        first.flush()
    first.abort()  # does nothing, and does not abort the transaction of its successor
    second.send(topic, batch_of([b"second"]))
    second.commit()
    assert committed(servers, topic, 3) == [b"second"]


def test_a_late_end_txn_does_not_end_the_next_transaction(servers: str, topic: str) -> None:
    """The response to the first try of a commit is lost, and the try arrives again later."""
    tries = itertools.count()

    def fault(api_key: int) -> Fault:
        return Fault.NO_RESPONSE if api_key == END_TXN and next(tries) == 0 else Fault.PASS

    name = new_transactional_id()
    with Network(fault) as network:
        client = ClusterClient(cluster_of(servers).settings, pool=network.pool())
        with TransactionalProducer(client, name, 60_000, ProducerSettings()) as producer:
            producer.init_transactions()
            first = producer.producer_id_and_epoch
            assert first is not None
            producer.send(topic, batch_of([b"a"]))
            producer.commit()
            producer.send(topic, batch_of([b"b"]))
            producer.flush()
            transactions = TransactionCoordinatorClient(client, name)
            for commit in (True, False):
                with pytest.raises(ProducerFencedError):
                    transactions.end_transaction(first, commit=commit, transaction_v2=transactions.transaction_v2())
            assert committed(servers, topic, 3, in_progress=True) == [b"a"]
            producer.commit()
    assert committed(servers, topic, 3) == [b"a", b"b"]


def test_a_commit_can_be_repeated(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    """As after a lost response."""
    name = new_transactional_id()
    producer = producer_of(name)
    producer.init_transactions()
    producer_id = producer.producer_id_and_epoch
    assert producer_id is not None
    producer.send(topic, batch_of([b"a"]))
    producer.flush()
    transactions = TransactionCoordinatorClient(cluster_of(servers), name)
    bumps = transactions.transaction_v2()
    first = transactions.end_transaction(producer_id, commit=True, transaction_v2=bumps).producer
    assert transactions.end_transaction(producer_id, commit=True, transaction_v2=bumps).producer == first
    assert (first == producer_id) != bumps
    assert committed(servers, topic, 3) == [b"a"]


def test_another_producer_may_commit_a_resumed_transaction(
    producer_of: ProducerFactory, servers: str, topic: str
) -> None:
    """The producer id and epoch are passed on."""
    name = new_transactional_id()
    writer, committer = producer_of(name), producer_of(name)
    writer.init_transactions()
    writer.send(topic, batch_of([b"a"], 0))
    writer.flush()
    assert writer.producer_id_and_epoch is not None
    committer.resume_transaction(ProducerIdAndEpoch(*writer.producer_id_and_epoch))
    committer.send(topic, batch_of([b"b"], 1))
    committer.commit()
    assert committed(servers, topic, 3) == [b"a", b"b"]


def test_a_transaction_is_aborted_after_its_timeout(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    producer = producer_of(new_transactional_id(), timeout_ms=1000)
    producer.init_transactions()
    producer.send(topic, batch_of([b"slow"]))
    producer.flush()
    cluster, partition = cluster_of(servers), TopicPartition(topic, 0)

    def is_over() -> bool:
        return cluster.offsets({partition: -1}, isolation_level="read_committed")[partition] == 2

    wait_until(is_over, "the broker has aborted it")
    with pytest.raises(BrokerError, match=r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_TXN_STATE"):
        producer.commit()
    assert committed(servers, topic, 3) == []


def test_a_timeout_above_the_brokers_limit_is_rejected(producer_of: ProducerFactory) -> None:
    with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms"):
        producer_of(new_transactional_id(), timeout_ms=900_001).init_transactions()


def test_offsets_are_committed_if_and_only_if_the_records_are(
    producer_of: ProducerFactory, servers: str, topic: str
) -> None:
    name = new_transactional_id()
    producer, group = producer_of(name), ConsumerGroup(cluster_of(servers), name)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    producer.init_transactions()
    producer.send(topic, batch_of([b"a"]))
    expected = {partitions[0]: CommittedOffset(1, "one"), partitions[1]: CommittedOffset(7)}
    producer.send_offsets_to_transaction(group, expected)
    producer.commit()
    assert group.committed_with_metadata(partitions) == expected, "the group waits for the end of the transaction"
    assert group.committed_with_metadata() == expected
    producer.send(topic, batch_of([b"x"]))
    producer.send_offsets_to_transaction(group, {partitions[0]: CommittedOffset(2, "two")})
    producer.abort()
    assert group.committed_with_metadata(partitions) == expected
    assert committed(servers, topic, 3) == [b"a"]


def test_many_transactions_with_offsets_only_follow_one_another(
    producer_of: ProducerFactory, servers: str, topic: str
) -> None:
    name, tp = new_transactional_id(), TopicPartition(topic, 2)
    producer, group = producer_of(name), ConsumerGroup(cluster_of(servers), name)
    producer.init_transactions()
    for number in range(20):
        producer.send_offsets_to_transaction(group, {tp: CommittedOffset(number, str(number))})
        producer.commit()
    assert group.committed_with_metadata([tp]) == {tp: CommittedOffset(19, "19")}


def test_a_fenced_producer_commits_no_offsets(producer_of: ProducerFactory, servers: str, topic: str) -> None:
    name, tp = new_transactional_id(), TopicPartition(topic, 0)
    first, second, group = producer_of(name), producer_of(name), ConsumerGroup(cluster_of(servers), name)
    first.init_transactions()
    first.send_offsets_to_transaction(group, {tp: CommittedOffset(1)})
    second.init_transactions()
    for step in (lambda: first.send_offsets_to_transaction(group, {tp: CommittedOffset(2)}), first.commit):
        with pytest.raises(ProducerFencedError):
            step()
    second.send_offsets_to_transaction(group, {tp: CommittedOffset(3)})
    second.commit()
    assert group.committed_with_metadata([tp]) == {tp: CommittedOffset(3)}


def test_a_resumed_transaction_that_is_not_in_progress_is_not_ended(
    producer_of: ProducerFactory, servers: str, topic: str
) -> None:
    name = new_transactional_id()
    owner, writer = producer_of(name), producer_of(name)
    owner.init_transactions()
    assert owner.producer_id_and_epoch is not None
    writer.resume_transaction(owner.producer_id_and_epoch, in_progress=False)
    assert writer.commit() == {}
    writer.abort()
    writer.send(topic, batch_of([b"a"]))
    writer.commit()
    assert committed(servers, topic, 3) == [b"a"]


def test_init_transactions_is_required(producer_of: ProducerFactory) -> None:
    producer = producer_of(new_transactional_id())
    with pytest.raises(RuntimeError, match="init_transactions first"):
        producer.send("any", batch_of([b"a"]))


@pytest.mark.soak  # tests/simulation/test_transcripts.py compares a simulated broker with recorded responses
def test_another_producer_id_is_assigned_when_epochs_run_out(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """After 32,767 transactions, here empty ones, which are fast."""
    servers, name, topic = kafka.bootstrap_servers, new_transactional_id(), make_topic()
    transactions = TransactionCoordinatorClient(cluster_of(servers), name)
    first = producer_id = transactions.init_transactions(60_000).producer
    for _ in range(32_770):
        producer_id = transactions.end_transaction(producer_id, commit=False, transaction_v2=True).producer
        if producer_id.id != first.id:
            break
    assert producer_id.id != first.id
    assert producer_id.epoch == 0
    with new_transactional_producer(servers, name) as producer:
        producer.resume_transaction(producer_id)
        producer.send(topic, batch_of([b"a"]))
        producer.commit()
        producer.send(topic, batch_of([b"b"]))
        producer.commit()
    assert committed(servers, topic) == [b"a", b"b"]
