"""The offset store with faulty networks and brokers: unknown outcomes are resolved, and no successor is fenced."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests import proxy
from tests.integration.log.store_helpers import new_name, records, store_of
from tests.proxy import Fault, Network
from tests.shards.brokers import new_kafka

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.errors import BrokerError, OutcomeUnknownError, ProducerFencedError
from pyspark_kafka_direct.log import log_clients
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.log import KafkaOffsetStore

PARTITION, OTHER_PARTITION = TopicPartition("t", 0), TopicPartition("t", 1)
WRITE_API_KEYS = {proxy.PRODUCE, proxy.INIT_PRODUCER_ID, proxy.ADD_PARTITIONS_TO_TXN, proxy.END_TXN}


@pytest.fixture
def make(kafka: EmbeddedKafka) -> Iterator[Callable[..., KafkaOffsetStore]]:
    """Create runs of one query, which are closed at the end."""
    topic = new_name()
    with contextlib.ExitStack() as stack:

        def make(**more: Any) -> KafkaOffsetStore:
            store = store_of(kafka.bootstrap_servers, topic, **more)
            stack.callback(store.close)
            return store

        yield make


class EndTxnFaults:
    """Loses responses to the next EndTxn requests; before each, calls a function."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._real = TransactionCoordinatorClient.end_transaction
        self._plan: list[tuple[bool, Callable[[], object]]] = []
        patch.setattr(
            TransactionCoordinatorClient, "end_transaction", lambda *given, **named: self._end(*given, **named)
        )

    def lose_response(self, *, received: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._plan.append((received, meanwhile))

    def _end(self, *given: Any, **named: Any) -> Any:
        if not self._plan:
            return self._real(*given, **named)
        received, meanwhile = self._plan.pop(0)
        if received:
            self._real(*given, **named)
        meanwhile()
        raise OutcomeUnknownError("No response arrived.")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> EndTxnFaults:
    return EndTxnFaults(monkeypatch)


@pytest.mark.parametrize("received", [True, False], ids=["received", "not-received"])
def test_an_unknown_outcome_of_a_save_is_read_from_the_topic(make: Any, faults: EndTxnFaults, received: bool) -> None:
    store = make().open()
    store.save({PARTITION: 1, OTHER_PARTITION: 5})
    faults.lose_response(received=received)
    store.save({PARTITION: 2})
    assert store.load() == {PARTITION: 2, OTHER_PARTITION: 5}
    store.save({PARTITION: 3})
    assert make().load() == {PARTITION: 3, OTHER_PARTITION: 5}


@pytest.mark.parametrize("received", [True, False], ids=["received", "not-received"])
def test_an_unknown_outcome_of_an_open_is_read_from_the_topic(make: Any, faults: EndTxnFaults, received: bool) -> None:
    make().open().save({PARTITION: 1})
    faults.lose_response(received=received)
    with make() as store:
        assert store.load() == {PARTITION: 1}
        store.save({PARTITION: 2})
    assert make().load() == {PARTITION: 2}


def test_an_outcome_that_stays_unknown_is_resolved_by_the_next_save(
    kafka: EmbeddedKafka, make: Any, faults: EndTxnFaults
) -> None:
    store = make().open()
    store.save({PARTITION: 1, OTHER_PARTITION: 5})
    for received in (True, False, False):
        faults.lose_response(received=received)
    with pytest.raises(OutcomeUnknownError):
        store.save({PARTITION: 2})
    store.save({OTHER_PARTITION: 6})
    assert make().load() == {PARTITION: 2, OTHER_PARTITION: 6}
    # The first commit was received, so the offset was not written again.
    assert [value["offset"] for key, value in records(kafka.bootstrap_servers, store.topic) if key[2:] == [0]] == [1, 2]


@pytest.mark.parametrize("received", [True, False], ids=["received", "not-received"])
def test_a_run_with_an_unknown_outcome_does_not_fence_its_successor(
    make: Any, faults: EndTxnFaults, received: bool
) -> None:
    """The successor starts while the first run waits for the response."""
    first, second = make().open(), make()
    first.save({PARTITION: 1})
    faults.lose_response(received=received, meanwhile=second.open)
    with pytest.raises(ProducerFencedError, match=f"acquired by run {second._run_id}"):
        first.save({PARTITION: 2})
    assert second.load() == {PARTITION: 2 if received else 1}
    second.save({PARTITION: 3})
    with pytest.raises(ProducerFencedError):
        first.save({PARTITION: 4})
    assert make().load() == {PARTITION: 3}


def test_a_successor_that_is_opening_the_store_is_not_fenced(
    make: Any, faults: EndTxnFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written the record of its run, but not committed it yet."""
    first, second = make().open(), make()
    first.save({PARTITION: 1})
    real, reached, release = TransactionalProducer.commit, threading.Event(), threading.Event()
    opening_thread = threading.Thread(target=second.open)

    def commit(session: TransactionalProducer) -> Any:
        if threading.current_thread() is opening_thread:
            reached.set()
            assert release.wait(600)
        return real(session)

    def start_successor() -> None:
        opening_thread.start()
        assert reached.wait(600)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    faults.lose_response(received=False, meanwhile=start_successor)
    with pytest.raises(ProducerFencedError, match=f"acquired by run {second._run_id}"):
        first.save({PARTITION: 2})
    release.set()
    opening_thread.join(600)
    assert second.load() == {PARTITION: 1}
    second.save({PARTITION: 7})
    assert make().load() == {PARTITION: 7}


def test_a_save_whose_transaction_timed_out_is_retried(
    secured_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has aborted its transaction, and responds as if another run had fenced this one."""
    servers, topic = secured_kafka.bootstrap_servers, new_name()
    with store_of(servers, topic, transaction_timeout_ms=1000) as store:
        store.save({PARTITION: 1})
        real, slow = TransactionalProducer.commit, [2.0]  # seconds; the id expires later

        def commit(session: TransactionalProducer) -> Any:
            time.sleep(slow.pop() if slow else 0)
            return real(session)

        monkeypatch.setattr(TransactionalProducer, "commit", commit)
        store.save({PARTITION: 2})
        store.save({PARTITION: 3})
    with store_of(servers, topic) as store:
        assert store.load() == {PARTITION: 3}


def test_a_run_continues_after_its_transactional_id_expired(secured_kafka: EmbeddedKafka) -> None:
    """It expires after three seconds."""
    check_expiration(secured_kafka)


@pytest.mark.soak
def test_a_run_continues_after_its_transactional_id_expired_in_kafka_3_9() -> None:
    expiration = {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with new_kafka(version="3.9.2", properties=expiration) as kafka:
        check_expiration(kafka)


def check_expiration(kafka: EmbeddedKafka) -> None:
    topic = new_name()
    with store_of(kafka.bootstrap_servers, topic) as store:
        store.save({PARTITION: 1})
        time.sleep(5)
        store.save({PARTITION: 2})
        with store_of(kafka.bootstrap_servers, topic) as successor:
            assert successor.load() == {PARTITION: 2}
            time.sleep(5)
            with pytest.raises(ProducerFencedError, match="acquired by run"):
                store.save({PARTITION: 3})
            successor.save({PARTITION: 4})
            assert successor.load() == {PARTITION: 4}


def test_a_stale_leader_is_detected(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partitioned broker that still acts as the leader returns a lower end offset."""
    make().open().save({PARTITION: 1})
    real = CompactedPartition.wait_for_stable_end
    monkeypatch.setattr(CompactedPartition, "wait_for_stable_end", lambda log, deadline: real(log, deadline) - 2)
    with pytest.raises(BrokerError, match=r"was read up to offset \d+, but the new record at offset \d+"):
        make().open()
    monkeypatch.undo()
    assert make().load() == {PARTITION: 1}


@pytest.mark.parametrize("version", ["4.4", "3.9"])
def test_a_faulty_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Every fifth write request is truncated, or its response is lost or truncated."""
    with contextlib.ExitStack() as stack:
        kafka = request.getfixturevalue("kafka" if version == "4.4" else "kafka39")
        rng = random.Random(20261122)

        def fault(api_key: int) -> Fault:
            is_hit = api_key in WRITE_API_KEYS and rng.random() < 0.2
            return rng.choice([Fault.HALF_REQUEST, Fault.NO_RESPONSE, Fault.HALF_RESPONSE]) if is_hit else Fault.PASS

        network = stack.enter_context(Network(fault))
        monkeypatch.setattr(log_clients, "ClusterClient", functools.partial(ClusterClient, pool=network.pool()))
        topic, params = new_name(), {"retry.backoff.ms": 10, "retry.backoff.max.ms": 100}
        for run in range(4):
            with store_of(kafka.bootstrap_servers, topic, params=params) as store:
                assert store.load() == ({PARTITION: 10 * run} if run else {})
                for number in range(10 * run + 1, 10 * run + 11):
                    store.save({PARTITION: number})
        assert sum(network.faults[each] for each in Fault if each is not Fault.PASS) > 10


@pytest.mark.soak
def test_saves_survive_killed_brokers() -> None:
    """Leaders and coordinators move. Saved offsets remain, and saves continue."""
    with new_kafka(brokers=3, properties={"default.replication.factor": "3", "min.insync.replicas": "2"}) as kafka:
        servers, done = kafka.bootstrap_servers, threading.Event()
        killed: list[int] = []

        def kill() -> None:
            rng = random.Random(7)
            while not done.is_set():
                node = 1 + len(killed) % 3
                done.wait(rng.uniform(0.5, 1.5))
                kafka.kill_broker(node)
                killed.append(node)
                done.wait(rng.uniform(0.2, 1.5))
                kafka.start_broker(node)

        saved = 0
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            deadline = time.monotonic() + 600
            while len(killed) < 4:
                assert time.monotonic() < deadline
                with (
                    contextlib.suppress(BrokerError),
                    store_of(servers, "offsets", params={"request.timeout.ms": 5000}) as store,
                ):
                    loaded = store.load().get(PARTITION, 0)
                    assert loaded in (saved, saved + 1)
                    saved = loaded
                    while len(killed) < 4:
                        store.save({PARTITION: saved + 1})
                        saved += 1
        finally:
            done.set()
            killer.join()
        assert saved > 0
        with store_of(servers, "offsets") as store:
            assert store.load()[PARTITION] in (saved, saved + 1)
