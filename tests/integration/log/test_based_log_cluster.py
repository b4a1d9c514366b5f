"""Logs on three brokers: leaders that move while somebody waits, and a log that is cut back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.log.logs import PATIENCE, Recorder, done, params
from tests.integration.transactions import transaction, transactional
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import TruncatedError
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.workbench import Workbench


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bench(three: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three)


def test_the_leader_moves_while_somebody_waits(three: EmbeddedKafka, bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    seen = Recorder()
    producer = transactional(bench, topic)
    given = params(bench.bootstrap_servers, isolation_level="read_committed")
    with KafkaBasedLog(topic, given, on_record=seen) as log:
        transaction(producer, topic, [b"a"])
        end = log.read_to_end()
        before = bench.leader(topic)
        three.stop_broker(before)
        try:
            wait_until(lambda: bench.leader(topic) not in (before, -1), "another leader")
            log.send(b"k", b"b")
            with pytest.raises(TimeoutError):
                end.result(1)
            producer.commit_transaction(60)
            done(end)
            done(log.read_to_end())
            assert seen.values() == [b"a", b"b"]
        finally:
            three.start_broker(before)


def test_a_log_that_is_cut_back(three: EmbeddedKafka, bench: Workbench) -> None:
    """An unclean election: a replica that has seen ten records only becomes the leader, and others are written.

    Those who wait get an error, the log is told and goes on where it was cut, and the table is read anew.
    """
    topic = bench.make_topic(replication=2, unclean_leader_election_enable="true", min_insync_replicas=1)
    write(bench, topic, b"old", range(10))
    leading = bench.leader(topic)
    behind = next(node for node in bench.replicas(topic) if node != leading)
    three.stop_broker(behind)
    write(bench, topic, b"old", range(10, 30))
    seen = Recorder()
    resets: list[Any] = []
    waits: list[BaseException] = []

    def wait() -> None:
        try:
            table.wait_for({0: 99}, PATIENCE * 2)
        except BaseException as error:
            waits.append(error)

    with (
        KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen, on_reset=resets.append) as log,
        KafkaTable(topic, params(bench.bootstrap_servers)) as table,
    ):
        assert len(seen.records) == len(table) == 30
        waiter = threading.Thread(target=wait)
        waiter.start()
        three.kill_broker(leading)
        try:
            three.start_broker(behind)
            bench.wait_until(lambda: bench.leader(topic) == behind, "an unclean election", 120)
            write(bench, topic, b"new", range(20, 25))
            wait_until(lambda: len(resets) == 1, "the reset", 120)
            waiter.join(PATIENCE)
            read_after_the_cut(log)
            read_after_the_cut(table)
            assert isinstance(resets[0], TruncatedError)
            assert isinstance(waits[0], TruncatedError)
            assert (resets[0].topic, resets[0].partition, resets[0].cut_at) == (topic, 0, 10)
            assert [(record.offset, record.value) for record in seen.records[30:]] == [
                (10 + number, b"new") for number in range(5)
            ]
            assert dict(table) == {
                **{b"%d" % key: b"old" for key in range(10)},
                **{b"%d" % key: b"new" for key in range(20, 25)},
            }
        finally:
            three.start_broker(leading)


def read_after_the_cut(log: KafkaBasedLog | KafkaTable) -> None:
    """Read to the end; whoever asks before the log has noticed that it was cut is told so."""
    try:
        done(log.read_to_end())
    except TruncatedError:
        done(log.read_to_end())


def write(bench: Workbench, topic: str, value: bytes, keys: range) -> None:
    producer = bench.producer()
    for key in keys:
        producer.produce(topic, value, b"%d" % key, 0)
    assert producer.flush(60) == 0
