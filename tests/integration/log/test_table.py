"""KafkaTable on a real broker."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.integration.log.log_helpers import (
    TIMEOUT,
    params,
    tp,
    wait_for_no_thread,
    wait_result,
)
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.errors import IllegalLogStateError, TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log import KafkaTable

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench


def test_the_latest_value_of_each_key(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-table"
    with KafkaTable(topic, params(bench.bootstrap_servers), create={"partitions": 3}) as table:
        assert dict(table) == {}
        for number in range(100):
            table.put(b"k%d" % (number % 10), b"%d" % number)
        written = wait_result(table.delete(b"k3"))
        table.wait_for(written, TIMEOUT)
        wait_result(table.read_to_end())
        expected = {b"k%d" % key: b"%d" % (90 + key) for key in range(10) if key != 3}
        assert dict(table) == table.snapshot() == expected
        assert len(table) == 9
        assert table[b"k4"] == b"94"
        assert b"k3" not in table
        assert table.get(b"k3") is None
        with pytest.raises(KeyError):
            table[b"k3"]
        assert set(table) == set(table.keys()) == set(expected)
        assert sorted(table.values()) == sorted(expected.values())
        assert sorted(table.items()) == sorted(expected.items())
        assert repr(table) == f"KafkaTable('{topic}', 9 keys)"
    wait_for_no_thread(topic)
    with pytest.raises(IllegalLogStateError, match="is stopped; reading the table needs a running log"):
        len(table)
    with KafkaTable(topic, params(bench.bootstrap_servers), read_only=True) as again:
        assert again == expected
        with pytest.raises(IllegalLogStateError, match="read-only"):
            again.put(b"k", b"v")


def test_a_snapshot_is_independent_of_changes(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        table.put(b"a", b"1")
        table.wait_for(wait_result(table.put(b"b", b"1")), TIMEOUT)
        before = table.snapshot()
        keys = []
        for key in table:  # the table changes during the iteration
            keys.append(key)
            table.wait_for(wait_result(table.delete(key)), TIMEOUT)
        assert (before, keys, dict(table)) == ({b"a": b"1", b"b": b"1"}, [b"a", b"b"], {})


def test_keys_deleted_and_written_again_in_one_batch(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="delete")
    producer = bench.producer()
    for key, value in [
        (b"a", b"1"),
        (b"a", None),
        (b"a", b"2"),
        (b"b", b"1"),
        (b"b", None),
        (None, b"x"),
        (None, None),
    ]:
        producer.produce(topic, value, key, 0)
    assert producer.flush(300) == 0
    bench.alter_topic(topic, cleanup_policy="compact")  # a compacted topic accepts no record without a key
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        assert dict(table) == {b"a": b"2"}  # records without a key are ignored


def test_waiting_counts_offsets_without_visible_records(bench: Workbench) -> None:
    """Control records, aborted records and offset gaps count."""
    topic = bench.make_topic(cleanup_policy="compact")
    producer = new_transactional_producer(bench, topic)
    properties = params(bench.bootstrap_servers, isolation_level="read_committed")
    with KafkaTable(topic, properties) as table:
        write_open_transaction(producer, topic, [b"x", b"y"], key=b"k")
        producer.abort_transaction(600)
        table.wait_for({0: 2}, TIMEOUT)  # the control record
        table.wait_for({tp(topic): 1}, 0)
        assert dict(table) == {}


def test_many_keys_and_compaction(bench: Workbench, compacted: str) -> None:
    with KafkaTable(compacted, params(bench.bootstrap_servers)) as table:
        assert table[b"key-7"] == b"value-599"
        assert {table[b"key-%d" % key] for key in range(7)} == {b"value-%d" % offset for offset in range(293, 300)}


def test_a_recreated_topic_empties_the_table(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        table.wait_for(wait_result(table.put(b"old", b"1")), TIMEOUT)
        waits: list[BaseException] = []

        def wait() -> None:
            try:
                table.wait_for({0: 99}, TIMEOUT)
            except BaseException as error:
                waits.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        bench.recreate_topic(topic, cleanup_policy="compact")
        thread.join(TIMEOUT)
        assert isinstance(waits[0], (TopicRecreatedError, TopicNotFoundError))
        bench.wait_until(lambda: not table, "an empty table", TIMEOUT)
        written = wait_result(table.put(b"new", b"2"))
        table.wait_for(written, TIMEOUT)
        assert dict(table) == {b"new": b"2"}


def test_waiting_for_a_record_of_a_recreated_topic(bench: Workbench) -> None:
    """The position in the old topic is higher, and the table may not have detected the new topic yet."""
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        for number in range(5):
            table.wait_for(wait_result(table.put(b"old", b"%d" % number)), TIMEOUT)
        bench.recreate_topic(topic, cleanup_policy="compact")
        written = wait_result(table.put(b"new", b"1"))
        for _ in range(2):
            with suppress(TopicNotFoundError):  # the topic is missing, or was recreated
                table.wait_for(written, TIMEOUT)
        table.wait_for(written, TIMEOUT)
        assert table.snapshot() == {b"new": b"1"}


def test_a_table_is_thread_safe(bench: Workbench) -> None:
    topic = bench.make_topic(3, cleanup_policy="compact")
    failures: list[BaseException] = []
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:

        def use(name: int) -> None:
            try:
                for number in range(30):
                    key = b"%d-%d" % (name, number % 3)
                    written = wait_result(table.put(key, b"%d" % number))
                    table.wait_for(written, TIMEOUT)
                    assert table[key] == b"%d" % number
                    assert len(table.snapshot()) <= 12
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=use, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        assert failures == []
        assert len(table) == 12


def test_a_table_cannot_be_used_in_a_forked_process(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        child = os.fork()
        if child == 0:
            try:
                table.read_to_end()
            except IllegalLogStateError:
                os._exit(42)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        wait_result(table.read_to_end())


def test_a_hundred_thousand_keys_are_read_within_seconds(bench: Workbench) -> None:
    topic = bench.make_topic(3, cleanup_policy="compact")
    producer = bench.producer(linger_ms=5)
    for number in range(100_000):
        producer.produce(topic, b"value-%d" % number, b"key-%d" % number, number % 3)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    started = time.monotonic()
    with KafkaTable(topic, params(bench.bootstrap_servers), read_only=True) as table:
        assert time.monotonic() - started < 120
        assert len(table) == 100_000
        assert table[b"key-77777"] == b"value-77777"


def test_a_topic_whose_records_expire_is_rejected(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="delete")
    with (
        pytest.raises(
            IllegalLogStateError, match=r"needs cleanup.policy=compact.* has cleanup.policy=delete"
        ) as caught,
        KafkaTable(topic, params(bench.bootstrap_servers)),
    ):
        pass
    assert caught.value.topic == topic


def test_a_topic_with_another_number_of_partitions_than_given_is_rejected(bench: Workbench) -> None:
    topic = bench.make_topic(3, cleanup_policy="compact")
    with (
        pytest.raises(IllegalLogStateError, match=r"has 3 partitions, and the table was made for 2"),
        KafkaTable(topic, params(bench.bootstrap_servers), create={"partitions": 2}),
    ):
        pass
    with KafkaTable(topic, params(bench.bootstrap_servers), create={}) as table:
        assert table.log.partition_count == 3


def test_a_table_whose_topic_gets_more_partitions_is_not_used(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        table.wait_for(wait_result(table.put(b"k", b"1")), TIMEOUT)
        bench.add_partitions(topic, 4)
        with pytest.raises(IllegalLogStateError, match=r"has 4 partitions, and the table was made for 1"):
            wait_until(lambda: wait_result(table.read_to_end()), "a read that fails")
        for use in (table.snapshot, table.read_to_end, lambda: table[b"k"], lambda: table.put(b"k", b"2")):
            with pytest.raises(IllegalLogStateError, match="has 4 partitions"):
                use()


def test_keys_that_another_partitioner_has_placed_are_warned_of(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    """The key may come back when it was deleted."""
    topic = bench.make_topic(3, cleanup_policy="compact")
    producer = bench.producer()
    for partition in range(3):
        producer.produce(topic, b"v", b"k", partition)
        producer.produce(topic, b"v", b"only-%d" % partition, partition)
    assert producer.flush(300) == 0
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        assert len(table) == 4
        table.wait_for(wait_result(table.delete(b"k")), TIMEOUT)
        assert b"k" not in table
    warnings = [record.getMessage() for record in caplog.records if "in several partitions" in record.getMessage()]
    assert len(warnings) == 1
    assert topic in warnings[0]


def test_a_forked_process_has_the_contents_as_of_the_fork(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with KafkaTable(topic, params(bench.bootstrap_servers)) as table:
        table.wait_for(wait_result(table.put(b"k", b"v")), TIMEOUT)
        child = os.fork()
        if child == 0:
            os._exit(42 if (table.get(b"k"), len(table), table.snapshot()) == (b"v", 1, {b"k": b"v"}) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
