"""The offset store while network and brokers fail: what is saved is never guessed, and no successor disturbed."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests import proxy
from tests.integration.log.stores import new_name, records, store_of
from tests.proxy import Fate, Network

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError, FencedError, OutcomeUnknownError
from pyspark_kafka_direct.log import offset_store
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.transactions import Transactions
from pyspark_kafka_direct.writing.compacted import CompactedPartition
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.log import KafkaOffsetStore

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
WRITING = {proxy.PRODUCE, proxy.INIT_PRODUCER_ID, proxy.ADD_PARTITIONS_TO_TXN, proxy.END_TXN}


@pytest.fixture
def make(kafka: EmbeddedKafka) -> Iterator[Callable[..., KafkaOffsetStore]]:
    """Makes runs of one query, which are closed at the end."""
    topic = new_name()
    with contextlib.ExitStack() as stack:

        def make(**more: Any) -> KafkaOffsetStore:
            store = store_of(kafka.bootstrap_servers, topic, **more)
            stack.callback(store.close)
            return store

        yield make


class Ends:
    """Loses the answers to some of the next EndTxn requests; before that, runs what is to happen meanwhile."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._real = Transactions.end
        self._plan: list[tuple[bool, Callable[[], object]]] = []
        patch.setattr(Transactions, "end", lambda *given, **named: self._end(*given, **named))

    def lose(self, *, heard: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._plan.append((heard, meanwhile))

    def _end(self, *given: Any, **named: Any) -> Any:
        if not self._plan:
            return self._real(*given, **named)
        heard, meanwhile = self._plan.pop(0)
        if heard:
            self._real(*given, **named)
        meanwhile()
        raise OutcomeUnknownError("No answer came.")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    return Ends(monkeypatch)


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not-heard"])
def test_where_nobody_knows_the_topic_tells(make: Any, ends: Ends, heard: bool) -> None:
    store = make().open()
    store.save({PLACE: 1, OTHER: 5})
    ends.lose(heard=heard)
    store.save({PLACE: 2})
    assert store.load() == {PLACE: 2, OTHER: 5}
    store.save({PLACE: 3})
    assert make().load() == {PLACE: 3, OTHER: 5}


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not-heard"])
def test_so_it_does_while_a_run_begins(make: Any, ends: Ends, heard: bool) -> None:
    make().open().save({PLACE: 1})
    ends.lose(heard=heard)
    with make() as store:
        assert store.load() == {PLACE: 1}
        store.save({PLACE: 2})
    assert make().load() == {PLACE: 2}


def test_what_stays_unknown_is_told_and_found_out_by_the_next_save(kafka: EmbeddedKafka, make: Any, ends: Ends) -> None:
    store = make().open()
    store.save({PLACE: 1, OTHER: 5})
    for heard in (True, False, False):
        ends.lose(heard=heard)
    with pytest.raises(OutcomeUnknownError):
        store.save({PLACE: 2})
    store.save({OTHER: 6})
    assert make().load() == {PLACE: 2, OTHER: 6}
    # The first was heard: what was found to be saved was not saved again.
    assert [value["offset"] for key, value in records(kafka.bootstrap_servers, store.topic) if key[2:] == [0]] == [1, 2]


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not-heard"])
def test_a_successor_is_not_disturbed(make: Any, ends: Ends, heard: bool) -> None:
    """A run that waits for an answer in vain must not take the query back from the one that was started meanwhile."""
    first, second = make().open(), make()
    first.save({PLACE: 1})
    ends.lose(heard=heard, meanwhile=second.open)
    with pytest.raises(FencedError, match=f"taken over by run {second._run}"):
        first.save({PLACE: 2})
    assert second.load() == {PLACE: 2 if heard else 1}
    second.save({PLACE: 3})
    with pytest.raises(FencedError):
        first.save({PLACE: 4})
    assert make().load() == {PLACE: 3}


def test_a_successor_that_is_just_beginning_is_not_disturbed(
    make: Any, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written the record of its run, and not committed it yet."""
    first, second = make().open(), make()
    first.save({PLACE: 1})
    real, reached, go_on = TransactionalSession.commit, threading.Event(), threading.Event()
    beginning = threading.Thread(target=second.open)

    def commit(session: TransactionalSession) -> Any:
        if threading.current_thread() is beginning:
            reached.set()
            assert go_on.wait(60)
        return real(session)

    def begin() -> None:
        beginning.start()
        assert reached.wait(60)

    monkeypatch.setattr(TransactionalSession, "commit", commit)
    ends.lose(heard=False, meanwhile=begin)
    with pytest.raises(FencedError, match=f"taken over by run {second._run}"):
        first.save({PLACE: 2})
    go_on.set()
    beginning.join(60)
    assert second.load() == {PLACE: 1}
    second.save({PLACE: 7})
    assert make().load() == {PLACE: 7}


def test_a_save_that_takes_too_long_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has ended its transaction, which looks as if another run had taken over."""
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with EmbeddedKafka(properties=quick) as kafka:
        with store_of(kafka.bootstrap_servers, "offsets", transaction_timeout_ms=1000) as store:
            store.save({PLACE: 1})
            real, slow = TransactionalSession.commit, [3.0]

            def commit(session: TransactionalSession) -> Any:
                time.sleep(slow.pop() if slow else 0)
                return real(session)

            monkeypatch.setattr(TransactionalSession, "commit", commit)
            store.save({PLACE: 2})
            store.save({PLACE: 3})
        with store_of(kafka.bootstrap_servers, "offsets") as store:
            assert store.load() == {PLACE: 3}


@pytest.mark.parametrize("version", ["4.3.0", "3.9.2"])
def test_a_run_that_was_quiet_for_a_week_goes_on(version: str) -> None:
    """Brokers forget a transactional id that was not used for so long; here for two seconds."""
    forgetful = {
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with (
        EmbeddedKafka(version=version, properties=forgetful) as kafka,
        store_of(kafka.bootstrap_servers, "offsets") as store,
    ):
        store.save({PLACE: 1})
        time.sleep(5)
        store.save({PLACE: 2})
        with store_of(kafka.bootstrap_servers, "offsets") as successor:
            assert successor.load() == {PLACE: 2}
            time.sleep(5)
            with pytest.raises(FencedError, match="taken over by run"):
                store.save({PLACE: 3})
            successor.save({PLACE: 4})
            assert successor.load() == {PLACE: 4}


def test_a_broker_that_does_not_know_the_newest_records_is_noticed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was cut off, and still takes itself for the leader, says that the log ends earlier."""
    make().open().save({PLACE: 1})
    real = CompactedPartition.stable_end
    monkeypatch.setattr(CompactedPartition, "stable_end", lambda log, deadline: real(log, deadline) - 2)
    with pytest.raises(BrokerError, match=r"were read up to \d+, and the next record was written at \d+"):
        make().open()
    monkeypatch.undo()
    assert make().load() == {PLACE: 1}


@pytest.mark.parametrize("version", ["4.3", "3.9"])
def test_an_unclean_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Requests cut in half, answers lost or cut in half: of every fifth request that writes."""
    with contextlib.ExitStack() as stack:
        kafka = request.getfixturevalue("kafka" if version == "4.3" else "kafka39")
        chance = random.Random(20261122)

        def fate(api_key: int) -> Fate:
            strikes = api_key in WRITING and chance.random() < 0.2
            return chance.choice([Fate.HALF_REQUEST, Fate.NO_ANSWER, Fate.HALF_ANSWER]) if strikes else Fate.PASS

        network = stack.enter_context(Network(fate))
        monkeypatch.setattr(offset_store, "Cluster", functools.partial(Cluster, pool=network.pool()))
        topic, params = new_name(), {"retry.backoff.ms": 10, "retry.backoff.max.ms": 100}
        for run in range(4):
            with store_of(kafka.bootstrap_servers, topic, params=params) as store:
                assert store.load() == ({PLACE: 10 * run} if run else {})
                for number in range(10 * run + 1, 10 * run + 11):
                    store.save({PLACE: number})
        assert sum(network.fates[each] for each in Fate if each is not Fate.PASS) > 10


def test_brokers_that_are_killed() -> None:
    """One after the other; leaders and coordinators move. What was saved is there, and saves go on."""
    with EmbeddedKafka(3, properties={"default.replication.factor": "3", "min.insync.replicas": "2"}) as kafka:
        servers, done = kafka.bootstrap_servers, threading.Event()
        killed: list[int] = []

        def kill() -> None:
            chance = random.Random(7)
            while not done.is_set():
                node = 1 + len(killed) % 3
                done.wait(chance.uniform(0.5, 1.5))
                kafka.kill_broker(node)
                killed.append(node)
                done.wait(chance.uniform(0.2, 1.5))
                kafka.start_broker(node)

        saved = 0
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            deadline = time.monotonic() + 240
            while len(killed) < 4:
                assert time.monotonic() < deadline
                with (
                    contextlib.suppress(BrokerError),
                    store_of(servers, "offsets", params={"request.timeout.ms": 5000}) as store,
                ):
                    found = store.load().get(PLACE, 0)
                    assert found in (saved, saved + 1)
                    saved = found
                    while len(killed) < 4:
                        store.save({PLACE: saved + 1})
                        saved += 1
        finally:
            done.set()
            killer.join()
        assert saved > 0
        with store_of(servers, "offsets") as store:
            assert store.load()[PLACE] in (saved, saved + 1)
