"""Single records with a real broker, read back by kafka-python."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.producer_rows import cluster, read_back
from tests.integration.waiting import suspend, wait_until
from tests.proxy import PRODUCE, Fault, Network

from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    InvalidRecordError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.async_producer import AsyncProducer, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

    TopicsOn = Callable[[str], MakeTopic]

NOT_WRITTEN = "The records were not written."
TIMEOUT = 600.0
CLOSED = "The producer was closed, and the record was not acknowledged within {} s."  # of a waiting record
CLOSED_WHILE_SENDING = "The producer is closed. The records "


@contextmanager
def async_producer_of(servers: str, *, linger: float = 0.0, **settings: Any) -> Iterator[AsyncProducer]:
    pool = ConnectionPool()
    producer = AsyncProducer(cluster(servers, pool), ProducerSettings(**settings), linger=linger)
    try:
        yield producer
    finally:
        producer.close(TIMEOUT)
        pool.close()


def check(servers: str, topic: str, partitions: int, metadata_by_value: dict[bytes, RecordMetadata]) -> None:
    """Check that each value is at the location in its metadata."""
    records_by_value = {record.value: record for record in read_back(servers, topic, partitions)}
    assert records_by_value.keys() == metadata_by_value.keys()
    for value, metadata in metadata_by_value.items():
        record = records_by_value[value]
        assert metadata[:4] == (topic, record.partition, record.offset, record.timestamp)


def test_metadata_has_the_location_of_each_record(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with async_producer_of(kafka.bootstrap_servers) as producer:
        sent = {
            b"%d" % number: producer.send(topic, b"key-%d" % (number % 40), b"%d" % number) for number in range(5_000)
        }
        metadata_by_value = {value: future.result(TIMEOUT) for value, future in sent.items()}
    check(kafka.bootstrap_servers, topic, 3, metadata_by_value)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_contents_timestamps_and_partitions_are_unchanged(
    kafka: EmbeddedKafka, make_topic: MakeTopic, codec: Any
) -> None:
    topic = make_topic(3)
    headers = [("one", b"1"), ("one", b""), ("none", None)]
    with async_producer_of(kafka.bootstrap_servers, codec=codec) as producer:
        one = producer.send(topic, None, b"v", headers=headers, partition=2, timestamp=1_234).result(TIMEOUT)
        two = producer.send(topic, b"\0\xff", None, partition=1).result(TIMEOUT)
    assert one[:4] == (topic, 2, 0, 1_234)
    assert abs(two.timestamp - time.time() * 1000) < 60_000
    second, first = read_back(kafka.bootstrap_servers, topic, 3)
    assert (first.key, first.value, first.timestamp, list(first.headers)) == (None, b"v", 1_234, headers)
    assert (second.key, second.value, second.timestamp) == (b"\0\xff", None, two.timestamp)


def test_metadata_has_the_log_append_time(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, message_timestamp_type="LogAppendTime")
    with async_producer_of(kafka.bootstrap_servers) as producer:
        metadata = producer.send(topic, b"k", b"v", timestamp=5).result(TIMEOUT)
    check(kafka.bootstrap_servers, topic, 1, {b"v": metadata})
    assert metadata.timestamp > 1_000_000


def test_without_acknowledgement_there_is_no_offset(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with async_producer_of(kafka.bootstrap_servers, acks=0, idempotent=False) as producer:
        assert producer.send(topic, b"k", b"v", timestamp=5).result(TIMEOUT)[:4] == (topic, 0, -1, 5)
    wait_until(lambda: len(read_back(kafka.bootstrap_servers, topic)) == 1, "the record")


def test_the_order_of_each_thread_is_kept(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with async_producer_of(kafka.bootstrap_servers, batch_bytes=4_000) as producer:
        sent: dict[bytes, Future[RecordMetadata]] = {}

        def write(name: int) -> None:
            for number in range(2_000):
                value = b"%d-%d" % (name, number)
                sent[value] = producer.send(topic, b"key-%d" % (number % 7), value)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(TIMEOUT)
        metadata_by_value = {value: future.result(0) for value, future in sent.items()}
    check(kafka.bootstrap_servers, topic, 4, metadata_by_value)
    ordered = defaultdict(list)
    for record in read_back(kafka.bootstrap_servers, topic, 4):
        name, number = record.value.split(b"-")
        ordered[name, record.key].append(int(number))
    assert len(ordered) == 4 * 7
    assert all(numbers == sorted(numbers) for numbers in ordered.values())


def test_an_invalid_record_fails_alone(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """Records larger than a limit, without a key in a compacted topic, or for a missing topic or partition."""
    topic = make_topic(2, max_message_bytes=20_000, cleanup_policy="compact")
    with async_producer_of(kafka.bootstrap_servers, max_request_bytes=100_000) as producer:
        sent: dict[bytes, Future[RecordMetadata]] = {}
        invalid: dict[str, Future[RecordMetadata]] = {}
        for number in range(600):
            value = b"%d" % number
            sent[value] = producer.send(topic, b"key-%d" % (number % 11), value)
            if number % 100 == 50:
                invalid[f"client {number}"] = producer.send(topic, b"k", bytes(100_000))
                invalid[f"topic {number}"] = producer.send(topic, b"k", bytes(30_000))
                invalid[f"partition {number}"] = producer.send(topic, b"k", b"v", partition=2)
                invalid[f"missing {number}"] = producer.send("there-is-no-such-topic", b"k", b"v")
        producer.flush(TIMEOUT)
        rejected = producer.send(topic, None, b"v")
        metadata_by_value = {value: future.result(TIMEOUT) for value, future in sent.items()}
        error_types = {"client": RecordTooLargeError, "topic": RecordTooLargeError}
        for name, future in invalid.items():
            error = future.exception(TIMEOUT)
            assert type(error) is error_types.get(name.split()[0], TopicNotFoundError), name
            assert str(error.args and error).find(NOT_WRITTEN) > 0, name
        assert type(rejected.exception(TIMEOUT)) is InvalidRecordError
        metadata_by_value[b"last"] = producer.send(topic, b"k", b"last").result(TIMEOUT)
    check(kafka.bootstrap_servers, topic, 2, metadata_by_value)


def test_callbacks_may_send_and_raise(
    kafka: EmbeddedKafka, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(2)
    followers: list[Future[RecordMetadata]] = []
    with async_producer_of(kafka.bootstrap_servers, buffer_bytes=50_000) as producer:

        def follow(future: Future[RecordMetadata]) -> None:
            followers.append(producer.send(topic, b"other", b"after-%d" % future.result(0).offset))
            raise ValueError("a callback that fails")

        for number in range(300):
            producer.send(topic, b"k", b"%d" % number).add_done_callback(follow)
        producer.flush(TIMEOUT)
        producer.flush(TIMEOUT)
        assert len(followers) == 300
        assert all(future.exception(0) is None for future in followers)
    assert sum("exception calling callback" in record.message for record in caplog.records) == 300
    assert len(read_back(kafka.bootstrap_servers, topic, 2)) == 600


@pytest.mark.soak
def test_sending_resumes_after_a_broker_restart(stoppable_kafka: EmbeddedKafka, topics_on: TopicsOn) -> None:
    kafka = stoppable_kafka
    with async_producer_of(kafka.bootstrap_servers) as producer:
        topic = topics_on(kafka.bootstrap_servers)(3)
        sent: dict[bytes, Future[RecordMetadata]] = {}
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                value = b"%d" % number
                sent[value] = producer.send(topic, b"key-%d" % (number % 5), value)
                number += 1
                if number % 100 == 0:
                    time.sleep(0.05)

        def more_than(count: int) -> Callable[[], bool]:
            return lambda: len(sent) > count

        thread = threading.Thread(target=write)
        thread.start()
        try:
            wait_until(more_than(1_000), "records sent")
            kafka.kill_broker(1)
            time.sleep(1)
            kafka.start_broker(1)
        finally:
            stop.set()
            thread.join()
        producer.flush(TIMEOUT)
        check(kafka.bootstrap_servers, topic, 3, {value: future.result(0) for value, future in sent.items()})
        values = defaultdict(list)
        for record in read_back(kafka.bootstrap_servers, topic, 3):
            values[record.key].append(int(record.value))
        assert all(numbers == sorted(numbers) for numbers in values.values())


def test_a_hanging_broker_does_not_block_callers(stoppable_kafka: EmbeddedKafka, topics_on: TopicsOn) -> None:
    kafka = stoppable_kafka
    topic = topics_on(kafka.bootstrap_servers)(1)
    pool = ConnectionPool()
    client = cluster(kafka.bootstrap_servers, pool, request_timeout_ms=1_000)
    producer = AsyncProducer(client, ProducerSettings(delivery_timeout_ms=6_000))
    producer.send(topic, b"k", b"there").result(TIMEOUT)
    suspend(kafka.pids[1])
    try:
        future = producer.send(topic, b"k", b"v")
        assert "may have been written" in str(future.exception(TIMEOUT))
        incomplete = producer.send(topic, b"k", b"v")
        producer.close(0.3)
        error = incomplete.exception(0)
        assert isinstance(error, BrokerTimeoutError)
        assert error.message.startswith((CLOSED.format(0.3), CLOSED_WHILE_SENDING))
    finally:
        os.kill(kafka.pids[1], signal.SIGCONT)
    wait_until(
        lambda: not any("kafka-direct-producer" in thread.name for thread in threading.enumerate()),
        "the thread's end",
    )
    pool.close()


def test_a_late_request_of_a_failed_record_is_not_written_behind_a_newer_one(
    kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    """The request leaves the network after a newer record was acknowledged: the broker rejects its epoch."""
    topic = make_topic(1)
    is_late = threading.Event()

    def fault(api_key: int) -> Fault:
        if api_key != PRODUCE or not is_late.is_set():
            return Fault.PASS
        is_late.clear()
        return Fault.LATE_REQUEST

    with Network(fault) as network:
        client = cluster(kafka.bootstrap_servers, network.pool(), request_timeout_ms=6_000)
        producer = AsyncProducer(client, ProducerSettings(delivery_timeout_ms=6_000))
        producer.send(topic, b"k", b"first").result(TIMEOUT)
        is_late.set()
        failed = producer.send(topic, b"k", b"failed")
        assert "may have been written" in str(failed.exception(TIMEOUT))
        newer = producer.send(topic, b"k", b"newer").result(TIMEOUT)
        network.deliver_late_requests()
        wait_until(lambda: network.late_responses == 1, "a response to the late request")
        producer.send(topic, b"k", b"last").result(TIMEOUT)
        producer.close(TIMEOUT)
    assert newer.offset == 1
    assert [record.value for record in read_back(kafka.bootstrap_servers, topic)] == [b"first", b"newer", b"last"]


def test_many_small_records_use_bounded_memory(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with async_producer_of(kafka.bootstrap_servers, buffer_bytes=1 << 20) as producer:
        done, max_incomplete, sent = 0, 0, 20_000

        def count(_: Future[RecordMetadata]) -> None:
            nonlocal done
            done += 1

        for number in range(sent):
            producer.send(topic, b"key-%d" % number, b"value").add_done_callback(count)
            max_incomplete = max(max_incomplete, number + 1 - done)
        producer.flush(TIMEOUT)
        assert done == sent
        assert max_incomplete <= (1 << 20) // 1024 + 1
    assert len(read_back(kafka.bootstrap_servers, topic, 3)) == sent


def test_the_thread_ends_when_the_producer_is_closed(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    before = set(threading.enumerate())  # producers of other tests may end later

    def names() -> list[str]:
        started = set(threading.enumerate()) - before
        return [thread.name for thread in started if "kafka-direct-producer" in thread.name]

    with async_producer_of(kafka.bootstrap_servers) as producer:
        assert wait([producer.send(topic, b"k", b"v")], TIMEOUT).not_done == set()
        assert names()
    wait_until(lambda: not names(), "the thread's end")
