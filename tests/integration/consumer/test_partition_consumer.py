"""``PartitionConsumer`` with a real broker."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.consumer.polling_consumer import PollingConsumer
from tests.integration.open_transactions import COMMITTED, new_transactional_producer, write_open_transaction

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.consumer import fetch_channel
from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

ISOLATION = {name.replace(".", "_"): value for name, value in COMMITTED.items()}


def fill(bench: Workbench, topic: str, count: int, *, partition: int = 0, text: str = "value") -> None:
    first = bench.end(topic, partition)
    bench.write(topic, [f"{text}-{offset}".encode() for offset in range(first, first + count)], partition=partition)


def test_existing_and_new_records_are_returned(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=3)
    partitions = [TopicPartition(topic, partition) for partition in range(3)]
    fill(bench, topic, 10, partition=0)
    fill(bench, topic, 5, partition=2)
    with PollingConsumer(bench, dict.fromkeys(partitions, 0)) as consumer:
        consumer.until(lambda: sum(map(len, consumer.rows.values())) == 15)
        for partition in (1, 2, 0, 1):
            fill(bench, topic, 2, partition=partition)
            before = sum(map(len, consumer.rows.values()))
            consumer.until(lambda: sum(map(len, consumer.rows.values())) == before + 2)  # noqa: B023
    for tp, count in zip(partitions, (12, 4, 7), strict=True):
        assert consumer.rows[tp] == [(offset, b"value-%d" % offset) for offset in range(count)]


@pytest.mark.parametrize("version", [fetch_channel.NEWEST_VERSION, 12, 11, 7, 4])
def test_every_fetch_version(bench: Workbench, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_channel, "NEWEST_VERSION", version)
    monkeypatch.setattr(fetch_channel, "FIRST_VERSION_WITH_TOPIC_IDS", min(13, version + 1))
    topics = [bench.make_topic(partitions=2) for _ in range(2)]
    partitions = [TopicPartition(topic, partition) for partition in range(2) for topic in topics]
    for tp in partitions:
        fill(bench, tp.topic, 3, partition=tp.partition)
    with PollingConsumer(bench, dict.fromkeys(partitions, 1)) as consumer:
        consumer.until(lambda: set(consumer.partition_consumer.positions.values()) == {3})
    assert all([offset for offset, _ in rows] == [1, 2] for rows in consumer.rows.values())


def test_record_is_returned_when_it_arrives(bench: Workbench) -> None:
    """Neither the broker's nor the consumer's poll has to end first."""
    topic = bench.make_topic()
    with PollingConsumer(bench, {topic: 0}, fetch_max_wait_ms=600_000, request_timeout_ms=700_000) as consumer:
        consumer.poll(0.5)
        writer = threading.Timer(1.0, fill, (bench, topic, 1))
        writer.start()
        started = time.monotonic()
        assert consumer.poll(600) == 1
        assert time.monotonic() - started < 120
        writer.join()


def test_wakeup_fd_ends_the_poll(bench: Workbench) -> None:
    topic = bench.make_topic()
    signal = SYSTEM.wakeup_signal()
    with PollingConsumer(bench, {topic: 0}) as consumer:
        consumer.poll(0.5)
        threading.Timer(0.5, signal.set).start()
        started = time.monotonic()
        assert consumer.partition_consumer.poll(600, [signal.fileno()]) == []
        assert 0.4 < time.monotonic() - started < 120
        started = time.monotonic()
        assert consumer.partition_consumer.poll(600, [signal.fileno()]) == []  # the signal is still set
        signal.clear()
        consumer.poll(0.1)
        assert time.monotonic() - started < 120
    signal.close()


def test_transactions(bench: Workbench, mixed: str) -> None:
    end = bench.end(mixed)
    with PollingConsumer(bench, {mixed: 0}, **ISOLATION) as consumer:
        consumer.until_position(end)
        assert all(value.startswith((b"plain", b"committed")) for value in consumer.values)
        assert consumer.offsets == [0, 1, 2, 3, 4, 10, 11]
    with PollingConsumer(bench, {mixed: 0}) as consumer:
        consumer.until_position(end)
        assert len(consumer.offsets) == 12


def test_position_stops_at_an_open_transaction(bench: Workbench) -> None:
    topic = bench.make_topic()
    with PollingConsumer(bench, {topic: 0}, **ISOLATION) as consumer:
        fill(bench, topic, 2)
        producer = new_transactional_producer(bench, topic)
        for commit in (True, False):
            first = bench.end(topic)
            write_open_transaction(producer, topic, [b"new"] * 3)
            bench.write(topic, [b"later"])
            consumer.until_position(first)
            consumer.poll(1.0)
            assert consumer.position == first
            (producer.commit_transaction if commit else producer.abort_transaction)(600)
            consumer.until_position(first + 5)
        assert consumer.values == [b"value-0", b"value-1", b"new", b"new", b"new", b"later", b"later"]


def test_a_compacted_log_is_read_to_its_end(bench: Workbench, compacted: str) -> None:
    expected_offsets = bench.read(compacted, bench.start(compacted), bench.end(compacted)).offsets
    with PollingConsumer(bench, {compacted: 0}, max_partition_fetch_bytes=1) as consumer:
        consumer.until_position(bench.end(compacted))
        assert consumer.offsets == expected_offsets
        assert len(expected_offsets) < consumer.position


def test_seek(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=2)
    one, two = (TopicPartition(topic, partition) for partition in range(2))
    with PollingConsumer(bench, {one: 0, two: 0}) as consumer:
        for partition in range(2):
            fill(bench, topic, 5, partition=partition)
        consumer.until(lambda: len(consumer.rows[one]) == len(consumer.rows[two]) == 5)
        consumer.partition_consumer.seek(two, 3)
        consumer.until(lambda: len(consumer.rows[two]) == 7)
        assert [offset for offset, _ in consumer.rows[two]] == [0, 1, 2, 3, 4, 3, 4]
        assert len(consumer.rows[one]) == 5


def test_a_record_larger_than_a_fetch(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=3, max_message_bytes=4 << 20)
    partitions = [TopicPartition(topic, partition) for partition in range(3)]
    for partition in range(3):
        bench.write(topic, [b"x" * (3 << 20), b"small"], partition=partition, message_max_bytes=8 << 20)
    with PollingConsumer(
        bench, dict.fromkeys(partitions, 0), fetch_max_bytes=1000, max_partition_fetch_bytes=1000
    ) as consumer:
        consumer.until(lambda: set(consumer.partition_consumer.positions.values()) == {2})
    assert [len(value) for _, value in consumer.rows[partitions[0]]] == [3 << 20, 5]


def test_expired_records_are_data_loss(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 50)
    with PollingConsumer(bench, {topic: 0}) as consumer:
        consumer.until_position(50)
        fill(bench, topic, 50)
        consumer.partition_consumer.seek(TopicPartition(topic, 0), 10)
        bench.delete_records(topic, 70)
        error = consumer.failure(DataLossError)
        assert not isinstance(error, TruncatedError)
        assert (error.topic, error.partition, error.offset) == (topic, 0, 10)
        assert "now contains [70, 100)" in str(error)
        consumer.partition_consumer.seek(TopicPartition(topic, 0), bench.start(topic))
        consumer.until_position(100)
        assert consumer.offsets == [*range(50), *range(70, 100)]


def test_records_that_expire_behind_the_reader_are_no_loss(bench: Workbench) -> None:
    topic = bench.make_topic()
    with PollingConsumer(bench, {topic: 0}) as consumer:
        for round_ in range(3):
            fill(bench, topic, 10)
            consumer.until_position(10 * round_ + 10)
            bench.delete_records(topic, 10 * round_ + 10)
        consumer.poll(1.0)
        assert consumer.offsets == list(range(30))


def test_an_offset_that_does_not_exist_yet(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 5)
    with PollingConsumer(bench, {topic: 9}) as consumer:
        error = consumer.failure(DataLossError)
        assert not isinstance(error, TruncatedError)
        assert "beyond the end of the log: the log now contains [0, 5)" in str(error)


def test_deleted_topic_is_reported(bench: Workbench) -> None:
    topic, other = bench.make_topic(), bench.make_topic()
    fill(bench, topic, 5)
    with PollingConsumer(bench, {topic: 0, other: 0}) as consumer:
        consumer.until(lambda: len(consumer.rows[TopicPartition(topic, 0)]) == 5)
        bench.delete_topic(topic)
        error = consumer.failure(TopicNotFoundError)
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic == topic
        fill(bench, other, 3)
        while len(consumer.rows[TopicPartition(other, 0)]) < 3:
            with contextlib.suppress(TopicNotFoundError):
                consumer.poll()


@pytest.mark.parametrize(
    ("version", "batches"),
    [
        pytest.param(fetch_channel.NEWEST_VERSION, 1, marks=pytest.mark.soak),
        (fetch_channel.NEWEST_VERSION, 9),
        pytest.param(12, 9, marks=pytest.mark.soak),
    ],
)
def test_recreated_topic_is_reported(
    bench: Workbench, version: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer records than before, and more; also with requests without topic ids."""
    monkeypatch.setattr(fetch_channel, "NEWEST_VERSION", version)
    topic = bench.make_topic()
    fill(bench, topic, 5, text="old")
    with PollingConsumer(bench, {topic: 0}) as consumer:
        consumer.until_position(5)
        bench.recreate_topic(topic)
        for _ in range(batches):
            fill(bench, topic, 1, text="new")
        error = consumer.failure(TopicRecreatedError)
        assert (error.topic, error.topic_id) == (topic, bench.topic_id(topic))
        assert consumer.position == 5
        consumer.partition_consumer.seek(TopicPartition(topic, 0), 0)
        consumer.until_position(batches)
        assert [value[:3] for value in consumer.values] == [b"old"] * 5 + [b"new"] * batches


def test_many_partitions_are_served_in_turn(bench: Workbench) -> None:
    """A response fits a few of them; new records of one are returned although the others are far behind."""
    topic = bench.make_topic(partitions=100)
    partitions = [TopicPartition(topic, partition) for partition in range(100)]
    producer = bench.producer()
    for round_ in range(4):
        for tp in partitions:
            for number in range(10):
                producer.produce(topic, b"%d-%d" % (round_, number) + b"." * 1000, partition=tp.partition)
        assert producer.flush(300) == 0
    with PollingConsumer(
        bench, dict.fromkeys(partitions, 0), fetch_max_bytes=60_000, max_partition_fetch_bytes=10_000
    ) as consumer:
        first_at_end = None
        while first_at_end is None:
            consumer.poll(5)
            positions = consumer.partition_consumer.positions.values()
            first_at_end = min(positions) if max(positions) == 40 else None
        assert first_at_end >= 20
        consumer.until(lambda: set(consumer.partition_consumer.positions.values()) == {40})
    for rows in consumer.rows.values():
        assert [offset for offset, _ in rows] == list(range(40))


def test_connections_are_released(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 3)
    client_id = f"consumer-{time.monotonic_ns()}"

    def idle() -> int:
        return sum(each.key.settings.client_id == client_id for each in POOL._idle.values())

    with PollingConsumer(bench, {topic: 0}, client_id=client_id) as consumer:
        consumer.until_position(3)
    assert idle() == 0  # a connection that expects a response is closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_leaves_the_consumer_usable(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 3)
    with PollingConsumer(bench, {topic: 0}) as consumer:
        consumer.until_position(3)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.partition_consumer.poll(0)
            except RuntimeError:
                consumer.partition_consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        fill(bench, topic, 3)
        consumer.until_position(6)
        assert consumer.partition_consumer.transient_errors == {}
        assert consumer.offsets == list(range(6))
