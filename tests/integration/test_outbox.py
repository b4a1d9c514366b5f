"""Single records with receipts against a real broker, read back by a client that is not ours."""

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
from tests.integration.waiting import wait_until
from tests.integration.writing import cluster, read_back

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    KafkaDirectError,
    RecordRefusedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.pool import ConnectionPool
from pyspark_kafka_direct.writing.outbox import Outbox, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic

    TopicsOn = Callable[[str], MakeTopic]

NOT_WRITTEN = "The records were not written."
SECONDS = 60.0


@contextmanager
def outbox(servers: str, *, linger: float = 0.0, **settings: Any) -> Iterator[Outbox]:
    pool = ConnectionPool()
    box = Outbox(cluster(servers, pool), ProduceSettings(**settings), linger=linger)
    try:
        yield box
    finally:
        box.close(SECONDS)
        pool.close()


def check(servers: str, topic: str, partitions: int, receipts: dict[bytes, Receipt]) -> None:
    """Where each value is, is where its receipt says."""
    found = {record.value: record for record in read_back(servers, topic, partitions)}
    assert found.keys() == receipts.keys()
    for value, receipt in receipts.items():
        record = found[value]
        assert receipt == (topic, record.partition, record.offset, record.timestamp)


def test_receipts_tell_where_each_record_is(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with outbox(kafka.bootstrap_servers) as box:
        sent = {b"%d" % number: box.send(topic, b"key-%d" % (number % 40), b"%d" % number) for number in range(5_000)}
        receipts = {value: future.result(SECONDS) for value, future in sent.items()}
    check(kafka.bootstrap_servers, topic, 3, receipts)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_contents_times_and_partitions_are_those_that_were_given(
    kafka: EmbeddedKafka, make_topic: MakeTopic, codec: Any
) -> None:
    topic = make_topic(3)
    headers = [("one", b"1"), ("one", b""), ("none", None)]
    with outbox(kafka.bootstrap_servers, codec=codec) as box:
        one = box.send(topic, None, b"v", headers=headers, partition=2, timestamp=1_234).result(SECONDS)
        two = box.send(topic, b"\0\xff", None, partition=1).result(SECONDS)
    assert one == (topic, 2, 0, 1_234)
    assert abs(two.timestamp - time.time() * 1000) < 60_000
    second, first = read_back(kafka.bootstrap_servers, topic, 3)
    assert (first.key, first.value, first.timestamp, list(first.headers)) == (None, b"v", 1_234, headers)
    assert (second.key, second.value, second.timestamp) == (b"\0\xff", None, two.timestamp)


def test_the_brokers_time_is_told_where_the_topic_is_so(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, message_timestamp_type="LogAppendTime")
    with outbox(kafka.bootstrap_servers) as box:
        receipt = box.send(topic, b"k", b"v", timestamp=5).result(SECONDS)
    check(kafka.bootstrap_servers, topic, 1, {b"v": receipt})
    assert receipt.timestamp > 1_000_000


def test_without_acknowledgement_there_is_no_offset(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with outbox(kafka.bootstrap_servers, acks=0, idempotent=False) as box:
        assert box.send(topic, b"k", b"v", timestamp=5).result(SECONDS) == (topic, 0, -1, 5)
    wait_until(lambda: len(read_back(kafka.bootstrap_servers, topic)) == 1, "the record")


def test_each_thread_has_its_order(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with outbox(kafka.bootstrap_servers, batch_bytes=4_000) as box:
        sent: dict[bytes, Future[Receipt]] = {}

        def write(name: int) -> None:
            for number in range(2_000):
                value = b"%d-%d" % (name, number)
                sent[value] = box.send(topic, b"key-%d" % (number % 7), value)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        box.flush(SECONDS)
        receipts = {value: future.result(0) for value, future in sent.items()}
    check(kafka.bootstrap_servers, topic, 4, receipts)
    ordered = defaultdict(list)
    for record in read_back(kafka.bootstrap_servers, topic, 4):
        name, number = record.value.split(b"-")
        ordered[name, record.key].append(int(number))
    assert len(ordered) == 4 * 7
    assert all(numbers == sorted(numbers) for numbers in ordered.values())


def test_a_record_that_is_wrong_fails_alone(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """Larger than our own limit or the topic's, without a key for a compacted topic, for what is not there."""
    topic = make_topic(2, max_message_bytes=20_000, cleanup_policy="compact")
    with outbox(kafka.bootstrap_servers, max_request_bytes=100_000) as box:
        sent: dict[bytes, Future[Receipt]] = {}
        wrong: dict[str, Future[Receipt]] = {}
        for number in range(600):
            value = b"%d" % number
            sent[value] = box.send(topic, b"key-%d" % (number % 11), value)
            if number % 100 == 50:
                wrong[f"ours {number}"] = box.send(topic, b"k", bytes(100_000))
                wrong[f"topic {number}"] = box.send(topic, b"k", bytes(30_000))
                wrong[f"partition {number}"] = box.send(topic, b"k", b"v", partition=2)
                wrong[f"absent {number}"] = box.send("there-is-no-such-topic", b"k", b"v")
        box.flush(SECONDS)
        refused = box.send(topic, None, b"v")
        receipts = {value: future.result(SECONDS) for value, future in sent.items()}
        kinds = {"ours": RecordTooLargeError, "topic": RecordTooLargeError}
        for name, future in wrong.items():
            error = future.exception(SECONDS)
            assert type(error) is kinds.get(name.split()[0], TopicNotFoundError), name
            assert str(error.args and error).find(NOT_WRITTEN) > 0, name
        assert type(refused.exception(SECONDS)) is RecordRefusedError
        receipts[b"last"] = box.send(topic, b"k", b"last").result(SECONDS)
    check(kafka.bootstrap_servers, topic, 2, receipts)


def test_callbacks_may_send_and_may_fail(
    kafka: EmbeddedKafka, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(2)
    followers: list[Future[Receipt]] = []
    with outbox(kafka.bootstrap_servers, buffer_bytes=50_000) as box:

        def follow(future: Future[Receipt]) -> None:
            followers.append(box.send(topic, b"other", b"after-%d" % future.result(0).offset))
            raise ValueError("a callback that fails")

        for number in range(300):
            box.send(topic, b"k", b"%d" % number).add_done_callback(follow)
        box.flush(SECONDS)
        box.flush(SECONDS)
        assert len(followers) == 300
        assert all(future.exception(0) is None for future in followers)
    assert sum("exception calling callback" in record.message for record in caplog.records) == 300
    assert len(read_back(kafka.bootstrap_servers, topic, 2)) == 600


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(topics_on: TopicsOn) -> None:
    with EmbeddedKafka() as kafka, outbox(kafka.bootstrap_servers) as box:
        topic = topics_on(kafka.bootstrap_servers)(3)
        sent: dict[bytes, Future[Receipt]] = {}
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                value = b"%d" % number
                sent[value] = box.send(topic, b"key-%d" % (number % 5), value)
                number += 1
                if number % 100 == 0:
                    time.sleep(0.01)

        def more_than(count: int) -> Callable[[], bool]:
            return lambda: len(sent) > count

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for end in (kafka.kill_broker, kafka.stop_broker):
                wait_until(more_than(len(sent) + 1_000), "records sent")
                end(1)
                time.sleep(1)
                kafka.start_broker(1)
        finally:
            stop.set()
            thread.join()
        box.flush(SECONDS)
        check(kafka.bootstrap_servers, topic, 3, {value: future.result(0) for value, future in sent.items()})
        values = defaultdict(list)
        for record in read_back(kafka.bootstrap_servers, topic, 3):
            values[record.key].append(int(record.value))
        assert all(numbers == sorted(numbers) for numbers in values.values())


def test_with_the_broker_gone_records_fail_in_their_time_and_waits_end_in_theirs(topics_on: TopicsOn) -> None:
    with EmbeddedKafka() as kafka, outbox(kafka.bootstrap_servers, delivery_timeout_ms=6_000) as box:
        topic = topics_on(kafka.bootstrap_servers)(1)
        box.send(topic, b"k", b"there").result(SECONDS)
        kafka.kill_broker(1)
        start = time.monotonic()
        futures = [box.send(topic, b"k", b"%d" % number) for number in range(100)]
        with pytest.raises(BrokerTimeoutError, match=r"records were not acknowledged within 0\.5 s"):
            box.flush(0.5)
        assert time.monotonic() - start < 5
        box.flush()
        assert 5.5 < time.monotonic() - start < 30
        errors = [future.exception(0) for future in futures]
        assert all(isinstance(error, KafkaDirectError) for error in errors)
        # The broker was gone before they were sent; the connection may have been found broken with the first of them.
        assert sum(NOT_WRITTEN in str(error) for error in errors) >= 99
        futures = [box.send(topic, b"k", b"more")]
        start = time.monotonic()
        box.close(0.5)
        assert time.monotonic() - start < 5
        assert isinstance(futures[0].exception(0), BrokerTimeoutError)
        kafka.start_broker(1)
        with pytest.raises(RuntimeError, match="closed"):
            box.send(topic, b"k", b"v")


def test_a_broker_that_hangs_holds_nobody(topics_on: TopicsOn) -> None:
    with EmbeddedKafka() as kafka:
        topic = topics_on(kafka.bootstrap_servers)(1)
        pool = ConnectionPool()
        place = cluster(kafka.bootstrap_servers, pool, request_timeout_ms=1_000)
        box = Outbox(place, ProduceSettings(delivery_timeout_ms=6_000))
        box.send(topic, b"k", b"there").result(SECONDS)
        os.kill(kafka.pids[1], signal.SIGSTOP)
        try:
            start = time.monotonic()
            future = box.send(topic, b"k", b"v")
            assert "may have been written" in str(future.exception(SECONDS))
            assert time.monotonic() - start < 20
            left = box.send(topic, b"k", b"v")
            start = time.monotonic()
            box.close(0.3)
            assert time.monotonic() - start < 5
            assert isinstance(left.exception(0), BrokerTimeoutError)
        finally:
            os.kill(kafka.pids[1], signal.SIGCONT)
        wait_until(lambda: not any("outbox" in thread.name for thread in threading.enumerate()), "the thread's end")
        pool.close()


def test_many_small_records_take_bounded_memory(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with outbox(kafka.bootstrap_servers, buffer_bytes=1 << 20) as box:
        done, most, sent = 0, 0, 20_000

        def count(_: Future[Receipt]) -> None:
            nonlocal done
            done += 1

        for number in range(sent):
            box.send(topic, b"key-%d" % number, b"value").add_done_callback(count)
            most = max(most, number + 1 - done)
        box.flush(SECONDS)
        assert done == sent
        assert most <= (1 << 20) // 2048 + 1
    assert len(read_back(kafka.bootstrap_servers, topic, 3)) == sent


def test_the_thread_ends_with_the_outbox(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)

    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "outbox" in thread.name]

    with outbox(kafka.bootstrap_servers) as box:
        assert wait([box.send(topic, b"k", b"v")], SECONDS).not_done == set()
        assert names()
    wait_until(lambda: not names(), "the thread's end")
