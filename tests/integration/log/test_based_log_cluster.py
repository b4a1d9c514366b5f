"""Logs on three brokers: leaders that move while a read is pending, and a log that is truncated."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.log.log_helpers import (
    TIMEOUT,
    Recorder,
    params,
    wait_result,
)
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.waiting import suspend, wait_until

from pyspark_kafka_direct.errors import TruncatedError
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture(scope="module")
def bench(three_brokers: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three_brokers)


def test_a_pending_read_survives_a_leader_change(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    seen = Recorder()
    producer = new_transactional_producer(bench, topic)
    properties = params(bench.bootstrap_servers, isolation_level="read_committed")
    with KafkaBasedLog(topic, properties, on_record=seen) as log:
        write_open_transaction(producer, topic, [b"a"])
        end = log.read_to_end()
        bench.move_leader(topic)
        log.send(b"k", b"b")
        with pytest.raises(TimeoutError):
            end.result(1)
        producer.commit_transaction(600)
        wait_result(end)
        wait_result(log.read_to_end())
        assert seen.values() == [b"a", b"b"]


def test_a_leader_that_was_deposed_while_it_was_paused(three_brokers: EmbeddedKafka, bench: Workbench) -> None:
    """When it continues, it still reports its old end to clients, for a moment. Its successor has more records."""
    topic = bench.make_topic(replication=3, cleanup_policy="compact", min_insync_replicas=2)
    write(bench, topic, b"old", range(1))
    with KafkaTable(topic, params(bench.bootstrap_servers), read_only=True) as table:
        wait_result(table.read_to_end())
        paused = bench.leader(topic)
        suspend(three_brokers.pids[paused])
        try:
            write(bench, topic, b"new", range(1))
            end = table.read_to_end()
        finally:
            os.kill(three_brokers.pids[paused], signal.SIGCONT)
        wait_result(end)
        assert table[b"0"] == b"new"


@pytest.mark.soak
def test_a_truncated_log(three_brokers: EmbeddedKafka, bench: Workbench) -> None:
    """An unclean leader election: a replica with only ten records becomes the leader, then others are written.

    Pending reads get an error, the log calls ``on_reset`` and resumes at the truncation offset, and the table is read
    again.
    """
    topic = bench.make_topic(
        replication=2, cleanup_policy="compact", unclean_leader_election_enable="true", min_insync_replicas=1
    )
    write(bench, topic, b"old", range(10))
    leading = bench.leader(topic)
    behind = next(node for node in bench.replicas(topic) if node != leading)
    three_brokers.stop_broker(behind)
    write(bench, topic, b"old", range(10, 30))
    seen = Recorder()
    resets: list[Any] = []
    waits: list[BaseException] = []

    def wait() -> None:
        try:
            table.wait_for({0: 99}, TIMEOUT * 2)
        except BaseException as error:
            waits.append(error)

    with (
        KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen, on_reset=resets.append) as log,
        KafkaTable(topic, params(bench.bootstrap_servers)) as table,
    ):
        assert len(seen.records) == len(table) == 30
        waiting_thread = threading.Thread(target=wait)
        waiting_thread.start()
        three_brokers.kill_broker(leading)
        try:
            three_brokers.start_broker(behind)
            bench.wait_until(lambda: bench.leader(topic) == behind, "an unclean election")
            write(bench, topic, b"new", range(20, 25))
            wait_until(lambda: len(resets) == 1, "the reset")
            waiting_thread.join(TIMEOUT)
            read_after_the_truncation(log)
            read_after_the_truncation(table)
            assert isinstance(resets[0], TruncatedError)
            assert isinstance(waits[0], TruncatedError)
            assert (resets[0].topic, resets[0].partition, resets[0].truncated_to) == (topic, 0, 10)
            assert [(record.offset, record.value) for record in seen.records[30:]] == [
                (10 + number, b"new") for number in range(5)
            ]
            assert dict(table) == {
                **{b"%d" % key: b"old" for key in range(10)},
                **{b"%d" % key: b"new" for key in range(20, 25)},
            }
        finally:
            three_brokers.start_broker(leading)


def read_after_the_truncation(log: KafkaBasedLog | KafkaTable[bytes, bytes]) -> None:
    """Read to the end; the first read fails if the log has not detected the truncation before."""
    try:
        wait_result(log.read_to_end())
    except TruncatedError:
        wait_result(log.read_to_end())


def write(bench: Workbench, topic: str, value: bytes, keys: range) -> None:
    producer = bench.producer()
    for key in keys:
        producer.produce(topic, value, b"%d" % key, 0)
    assert producer.flush(300) == 0
