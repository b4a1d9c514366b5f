"""Transactions against a real broker, by both sequences of requests; read back by librdkafka."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.integration.deliveries import batch_of, cluster_of, committed, new_id, new_session
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError, FencedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.groups import CommittedOffset, Group
from pyspark_kafka_direct.wire.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.writing.session import TransactionalSession

    Sessions: TypeAlias = Callable[..., TransactionalSession]


@pytest.fixture(params=["4.3", "3.9"])
def servers(request: pytest.FixtureRequest) -> str:
    """A cluster with transaction.version 2, and one without."""
    kafka = request.getfixturevalue("kafka" if request.param == "4.3" else "kafka39")
    assert isinstance(kafka, EmbeddedKafka)
    return kafka.bootstrap_servers


@pytest.fixture
def session_of(servers: str) -> Iterator[Callable[..., TransactionalSession]]:
    """Sessions that are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda name, **more: stack.enter_context(new_session(servers, name, **more))


@pytest.fixture
def topic(servers: str, topics_on: Callable[[str], MakeTopic]) -> str:
    return topics_on(servers)(3)


def test_the_sequence_is_that_of_the_cluster(kafka: EmbeddedKafka, kafka39: EmbeddedKafka) -> None:
    assert Transactions(cluster_of(kafka.bootstrap_servers), new_id()).init(1000).bumps_epochs
    assert not Transactions(cluster_of(kafka39.bootstrap_servers), new_id()).init(1000).bumps_epochs


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(session_of: Sessions, servers: str, topic: str) -> None:
    session = session_of(new_id())
    session.init()
    session.send(topic, batch_of([b"a", b"b"], 0))
    session.send(topic, batch_of([b"c"], 2))
    written = session.commit()
    assert {partition.partition: count.records for partition, count in written.items()} == {0: 2, 2: 1}
    session.send(topic, batch_of([b"x"], 1))
    session.abort()
    session.init()
    session.send(topic, batch_of([b"d"], 0))
    session.commit()
    assert committed(servers, topic, 3) == [b"a", b"b", b"d", b"c"]


def test_many_transactions_follow_one_another(session_of: Sessions, servers: str, topic: str) -> None:
    """Without taking the id over anew; several batches of each, so that sequence numbers count."""
    session = session_of(new_id())
    session.init()
    wanted = []
    for number in range(20):
        for part in range(3):
            values = [b"%d-%d-%d" % (number, part, row) for row in range(3)]
            session.send(topic, batch_of(values, 1))
            wanted += values
        session.commit()
    assert committed(servers, topic, 3) == wanted


def test_nothing_sent_is_nothing_to_commit(session_of: Sessions, servers: str, topic: str) -> None:
    session = session_of(new_id())
    session.init()
    assert session.commit() == {}
    session.abort()
    session.send(topic, batch_of([b"a"]))
    session.commit()
    assert committed(servers, topic, 3) == [b"a"]


def test_whoever_takes_the_id_over_fences_the_one_before(session_of: Sessions, servers: str, topic: str) -> None:
    name = new_id()
    first, second = session_of(name), session_of(name)
    first.init()
    first.send(topic, batch_of([b"first"]))
    first.flush()
    second.init()
    with pytest.raises(FencedError):
        first.commit()
    with pytest.raises(FencedError):
        first.init()
    with pytest.raises(FencedError):
        first.send(topic, batch_of([b"again"]))
    second.send(topic, batch_of([b"second"]))
    second.commit()
    assert committed(servers, topic, 3) == [b"second"]


def test_a_fenced_writer_is_told_so_when_it_sends(session_of: Sessions, servers: str, topic: str) -> None:
    name = new_id()
    first, second = session_of(name), session_of(name)
    first.init()
    first.send(topic, batch_of([b"first"]))
    first.flush()
    second.init()
    first.send(topic, batch_of([b"more"]))
    with pytest.raises(FencedError):
        first.flush()
    first.abort()  # has nothing to do, and does not end what is its successor's
    second.send(topic, batch_of([b"second"]))
    second.commit()
    assert committed(servers, topic, 3) == [b"second"]


def test_a_commit_can_be_repeated(session_of: Sessions, servers: str, topic: str) -> None:
    """As after an answer that was lost."""
    name = new_id()
    session = session_of(name)
    session.init()
    producer = session.producer
    assert producer is not None
    session.send(topic, batch_of([b"a"]))
    session.flush()
    transactions = Transactions(cluster_of(servers), name)
    bumps = transactions.bumps_epochs()
    first = transactions.end(producer, commit=True, bumps_epochs=bumps)
    assert transactions.end(producer, commit=True, bumps_epochs=bumps) == first
    assert (first == producer) != bumps
    assert committed(servers, topic, 3) == [b"a"]


def test_another_session_may_commit_what_one_has_sent(session_of: Sessions, servers: str, topic: str) -> None:
    """An id and epoch handed over."""
    name = new_id()
    writer, committer = session_of(name), session_of(name)
    writer.init()
    writer.send(topic, batch_of([b"a"], 0))
    writer.flush()
    assert writer.producer is not None
    committer.adopt(ProducerId(*writer.producer))
    committer.send(topic, batch_of([b"b"], 1))
    committer.commit()
    assert committed(servers, topic, 3) == [b"a", b"b"]


def test_a_transaction_that_is_open_for_too_long_is_over(session_of: Sessions, servers: str, topic: str) -> None:
    session = session_of(new_id(), timeout_ms=1000)
    session.init()
    session.send(topic, batch_of([b"slow"]))
    session.flush()
    cluster, partition = cluster_of(servers), TopicPartition(topic, 0)

    def is_over() -> bool:
        return cluster.offsets({partition: -1}, isolation_level="read_committed")[partition] == 2

    wait_until(is_over, "the broker has aborted it", 60)
    with pytest.raises(BrokerError, match=r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_TXN_STATE"):
        session.commit()
    assert committed(servers, topic, 3) == []


def test_a_time_out_above_the_brokers_is_refused(session_of: Sessions) -> None:
    with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms"):
        session_of(new_id(), timeout_ms=900_001).init()


def test_offsets_are_there_if_and_only_if_the_records_are(session_of: Sessions, servers: str, topic: str) -> None:
    name = new_id()
    session, group = session_of(name), Group(cluster_of(servers), name)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    session.init()
    session.send(topic, batch_of([b"a"]))
    wanted = {partitions[0]: CommittedOffset(1, "one"), partitions[1]: CommittedOffset(7)}
    session.add_offsets(group, wanted)
    session.commit()
    assert group.noted(partitions) == wanted, "waited for, as the transaction is just being ended"
    assert group.noted() == wanted
    session.send(topic, batch_of([b"x"]))
    session.add_offsets(group, {partitions[0]: CommittedOffset(2, "two")})
    session.abort()
    assert group.noted(partitions) == wanted
    assert committed(servers, topic, 3) == [b"a"]


def test_many_transactions_of_offsets_alone_follow_one_another(session_of: Sessions, servers: str, topic: str) -> None:
    name, tp = new_id(), TopicPartition(topic, 2)
    session, group = session_of(name), Group(cluster_of(servers), name)
    session.init()
    for number in range(20):
        session.add_offsets(group, {tp: CommittedOffset(number, str(number))})
        session.commit()
    assert group.noted([tp]) == {tp: CommittedOffset(19, "19")}


def test_a_fenced_writer_commits_no_offsets(session_of: Sessions, servers: str, topic: str) -> None:
    name, tp = new_id(), TopicPartition(topic, 0)
    first, second, group = session_of(name), session_of(name), Group(cluster_of(servers), name)
    first.init()
    first.add_offsets(group, {tp: CommittedOffset(1)})
    second.init()
    for step in (lambda: first.add_offsets(group, {tp: CommittedOffset(2)}), first.commit):
        with pytest.raises(FencedError):
            step()
    second.add_offsets(group, {tp: CommittedOffset(3)})
    second.commit()
    assert group.noted([tp]) == {tp: CommittedOffset(3)}


def test_what_is_adopted_and_not_begun_needs_no_end(session_of: Sessions, servers: str, topic: str) -> None:
    name = new_id()
    taker, writer = session_of(name), session_of(name)
    taker.init()
    assert taker.producer is not None
    writer.adopt(taker.producer, begun=False)
    assert writer.commit() == {}
    writer.abort()
    writer.send(topic, batch_of([b"a"]))
    writer.commit()
    assert committed(servers, topic, 3) == [b"a"]


def test_a_session_must_be_begun(session_of: Sessions) -> None:
    session = session_of(new_id())
    with pytest.raises(RuntimeError, match="init comes first"):
        session.send("any", batch_of([b"a"]))


def test_epochs_that_run_out_bring_another_producer_id(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """32,767 transactions, as a query has in a day; empty ones, which are quick."""
    servers, name, topic = kafka.bootstrap_servers, new_id(), make_topic()
    transactions = Transactions(cluster_of(servers), name)
    first = producer = transactions.init(60_000).producer
    for _ in range(32_770):
        producer = transactions.end(producer, commit=False, bumps_epochs=True)
        if producer.id != first.id:
            break
    assert producer.id != first.id
    assert producer.epoch == 0
    with new_session(servers, name) as session:
        session.adopt(producer)
        session.send(topic, batch_of([b"a"]))
        session.commit()
        session.send(topic, batch_of([b"b"]))
        session.commit()
    assert committed(servers, topic) == [b"a", b"b"]
