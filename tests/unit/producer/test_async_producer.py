"""Single records from several threads: completion of futures, timeouts and memory limits."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.producer_cluster import PARTITION, ProducerCluster
from tests.unit.producer.test_batch_producer_faults import FaultyCluster

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.producer.accumulator import RecordAccumulator
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.simulation.scheduler import Task

    from pyspark_kafka_direct.producer.async_producer import AsyncProducer, RecordMetadata

NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."
TIMEOUT = 20.0
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def cluster() -> Iterator[ProducerCluster]:
    with ProducerCluster(partitions=1, topics={"u": 1}) as cluster:
        yield cluster


def blocked_producer(cluster: ProducerCluster, linger: float = 0.0, **settings: Any) -> AsyncProducer:
    """Return a producer that has written a record; brokers then do not respond to connects until ``heal``."""
    producer = cluster.async_producer(linger, **settings)
    producer.send("t", b"k", b"first")
    producer.flush(TIMEOUT)
    cluster.break_connections()
    for broker in range(2):
        cluster.event("pause_broker", broker=broker, seconds=1e6)
    return producer


def threads(cluster: ProducerCluster) -> list[Task]:
    """Return the threads of producers that run."""
    return [task for task in cluster.world.tasks if "producer" in task.name and not task.greenlet.dead]


def test_each_record_gets_its_metadata_in_order(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    futures = [producer.send("t", b"k", b"%d" % number, timestamp=number) for number in range(500)]
    assert [each.result(TIMEOUT)[:4] for each in futures] == [("t", 0, number, number) for number in range(500)]


def test_the_metadata_has_the_topic_id_and_the_leader_epoch(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    metadata = producer.send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (cluster.topic_id("t"), cluster.partition(PARTITION).epoch)
    cluster.fault("Produce", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the metadata is refreshed
    cluster.before("Produce", lambda: cluster.event("recreate_topic", topic="t"))
    metadata = producer.send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (None, -1), "it is in either topic"


def test_the_leader_epoch_is_unknown_if_metadata_has_no_leader(cluster: ProducerCluster) -> None:
    cluster.event("lose_leader", topic="t", partition=0, seconds=1)  # elected after the record was encoded
    metadata = cluster.async_producer().send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (cluster.topic_id("t"), -1)


def test_without_acknowledgements_the_offsets_are_unknown(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(linger=100.0, acks=0)
    futures = [producer.send("t", b"k", b"v") for _ in range(2)]
    producer.flush(TIMEOUT)
    assert [future.result(0).offset for future in futures] == [-1, -1]


def test_log_append_time_replaces_the_record_timestamp(cluster: ProducerCluster) -> None:
    cluster.cluster.topics["t"].configs.update(LOG_APPEND_TIME)
    now = cluster.cluster.timestamp
    assert now <= cluster.async_producer().send("t", b"k", b"v", timestamp=5).result(TIMEOUT).timestamp < now + 1_000


def test_the_append_time_of_a_duplicate_batch_is_ignored(cluster: ProducerCluster) -> None:
    """Brokers return the latest timestamp of a duplicate batch as its log append time."""
    cluster.fault("Produce", "lose_response")
    producer = cluster.async_producer(linger=100.0)
    futures = [producer.send("t", b"k", b"v", timestamp=each) for each in (5, 77, 6)]
    producer.flush(TIMEOUT)
    assert [each.result(TIMEOUT).timestamp for each in futures] == [5, 77, 6]


def test_a_record_without_a_timestamp_gets_the_current_time(cluster: ProducerCluster) -> None:
    now = cluster.cluster.timestamp
    assert now <= cluster.async_producer().send("t", b"k", b"v").result(TIMEOUT).timestamp <= now + 1


@pytest.mark.parametrize(
    ("record", "size"),
    [
        ({"value": bytes(1_000)}, 1_083),
        ({"value": bytes(900), "headers": [("four", b"12345"), ("none", None)]}, 900 + 83 + 2 * (10 + 4) + 5),
    ],
    ids=["value", "headers"],
)
def test_a_record_that_is_too_large_fails_without_a_request(
    cluster: ProducerCluster, record: dict[str, Any], size: int
) -> None:
    producer = cluster.async_producer(max_request_bytes=1_000)
    future = producer.send("t", b"k", **record)
    assert future.done()
    error = future.exception()
    assert isinstance(error, RecordTooLargeError)
    assert error.message.startswith(f"The record has up to {size} bytes, more than max.request.size (1000).")
    assert error.message.endswith(NOT_WRITTEN)
    assert (threads(cluster), cluster.network.sent_requests) == ([], [])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topic": b"t"}, TypeError),
        ({"topic": ""}, ValueError),
        ({"key": "k"}, TypeError),
        ({"value": "v"}, TypeError),
        ({"headers": [(b"k", b"v")]}, TypeError),
        ({"headers": [("k", "v")]}, TypeError),
        ({"partition": -1}, ValueError),
        ({"partition": 1 << 31}, ValueError),
        ({"timestamp": -1}, ValueError),
        ({"timestamp": 1 << 63}, ValueError),
    ],
)
def test_invalid_arguments_are_errors_of_the_caller(
    cluster: ProducerCluster, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"^{next(iter(given))} must "):
        cluster.async_producer().send(**{"topic": "t", "key": b"k", "value": b"v", **given})


@pytest.mark.parametrize("given", ["key", "value"])
def test_a_str_has_to_be_encoded(cluster: ProducerCluster, given: str) -> None:
    arguments: dict[str, Any] = {"key": b"k", "value": b"v", given: "text"}
    with pytest.raises(
        TypeError, match=f"^{given} must be bytes or None, got str: encode it, or set {given}_serde of a"
    ):
        cluster.async_producer().send("t", **arguments)


def test_the_greatest_partition_and_timestamp_are_valid(cluster: ProducerCluster) -> None:
    greatest = (1 << 63) - 1
    producer = cluster.async_producer()
    assert producer.send("t", b"k", b"v", timestamp=greatest).result(TIMEOUT).timestamp == greatest
    assert isinstance(producer.send("t", b"k", b"v", partition=(1 << 31) - 1).exception(TIMEOUT), TopicNotFoundError)


def test_a_future_cannot_be_cancelled(cluster: ProducerCluster) -> None:
    future = cluster.async_producer().send("t", b"k", b"v")
    assert future.cancel() is False
    assert future.result(TIMEOUT).offset == 0


def test_a_callback_may_send_when_the_buffer_is_full(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(buffer_bytes=1)
    second: list[Future[RecordMetadata]] = []
    first = producer.send("t", b"k", b"1")
    first.add_done_callback(lambda _: second.append(producer.send("t", b"k", b"2")))
    producer.flush(TIMEOUT)
    producer.flush(TIMEOUT)
    assert second[0].result(0).offset == 1


def test_errors_of_callbacks_are_only_logged(cluster: ProducerCluster, caplog: pytest.LogCaptureFixture) -> None:
    def bad(_: object) -> None:
        raise ValueError("bad callback")

    def worse(_: object) -> None:
        raise SystemExit(3)

    producer = cluster.async_producer()
    futures = [producer.send("t", b"k", b"v") for _ in range(3)]
    futures[0].add_done_callback(bad)
    futures[1].add_done_callback(worse)
    producer.flush(TIMEOUT)
    assert [each.result(0).offset for each in futures] == [0, 1, 2]
    assert [record.message[:9] for record in caplog.records] == ["exception", "A callbac"]
    assert producer.send("t", b"k", b"v").result(TIMEOUT).offset == 3


def test_flush_and_close_raise_in_a_callback(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    messages: list[str] = []

    def callback(_: object) -> None:
        calls: list[Callable[[], None]] = [producer.flush, lambda: producer.close(1)]
        for call in calls:
            with pytest.raises(RuntimeError) as caught:
                call()
            messages.append(str(caught.value))

    producer.send("t", b"k", b"v").add_done_callback(callback)
    producer.flush(TIMEOUT)
    assert [message.split()[0] for message in messages] == ["flush", "close"]
    assert all("cannot be called in a callback" in message for message in messages)


def test_flush_waits_for_earlier_records_and_their_callbacks(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.async_producer()
    called: list[int] = []
    producer.flush(0)
    for number in range(3):
        producer.send("t", b"k", b"v", timestamp=number).add_done_callback(
            lambda each: called.append(each.result().timestamp)
        )
    with pytest.raises(
        BrokerTimeoutError, match=r"^3 records were not acknowledged within 0\.05 s\. They are still being sent"
    ):
        producer.flush(0.05)
    producer.flush(TIMEOUT)
    assert called == [0, 1, 2]


def test_flush_does_not_wait_for_later_records(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    done: list[bool] = []

    def keep_sending() -> None:
        while not done:
            producer.send("t", b"k", b"v")
            cluster.process.sleep(0.001)

    cluster.process.spawn("sender", keep_sending)
    cluster.sleep(0.1)
    for _ in range(5):
        producer.flush(TIMEOUT)
    done.append(True)


@pytest.mark.parametrize("seconds", [0, 5])
def test_flush_ends_lingering(cluster: ProducerCluster, seconds: int) -> None:
    producer = cluster.async_producer(linger=100.0)
    future = producer.send("t", b"k", b"v")
    cluster.sleep(seconds)  # the thread waits
    start = cluster.now
    producer.flush(TIMEOUT)
    assert future.result(0).offset == 0
    assert cluster.now - start < 1


def test_records_linger_after_a_flush(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(linger=100.0)
    producer.send("t", b"k", b"v")
    producer.flush(TIMEOUT)
    producer.send("u", b"k", b"1")
    cluster.sleep(99)
    assert cluster.sent("Produce") == 1
    cluster.sleep(2)
    assert cluster.sent("Produce") == 2


@pytest.mark.parametrize("seconds", [0, 5])
def test_records_linger_after_the_buffer_was_full(cluster: ProducerCluster, seconds: int) -> None:
    producer, start = cluster.async_producer(linger=100.0, buffer_bytes=1), cluster.now
    producer.send("t", b"k", b"1")
    cluster.sleep(seconds)
    producer.send("t", b"k", b"2")  # waits until the first one is written, which does not linger then
    assert cluster.now < start + seconds + 1
    cluster.sleep(99)
    assert cluster.sent("Produce") == 1
    cluster.sleep(2)
    assert cluster.sent("Produce") == 2


def test_close_returns_when_the_thread_fails_although_a_callback_hangs(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        cluster.process.sleep(1)
        raise ValueError("a defect")

    monkeypatch.setattr(RecordAccumulator, "append", broken)
    producer, start = cluster.async_producer(), cluster.now
    future = producer.send("t", b"k", b"v")
    future.add_done_callback(lambda _: cluster.process.sleep(50))
    producer.close(40)
    assert cluster.now - start < 2
    assert str(future.exception(0)).startswith("The producer is closed.")


def test_close_fails_incomplete_records_and_returns_in_time(
    cluster: ProducerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the thread hangs, which ends as soon as it can."""
    producer = blocked_producer(cluster)
    in_flight = producer.send("t", b"k", b"v")
    cluster.sleep(0.1)
    queued = producer.send("t", b"k", b"v")
    start = cluster.now
    producer.close(0.05)
    assert cluster.now - start < 0.3
    for future, outcome in ((in_flight, MAY_BE_WRITTEN), (queued, NOT_WRITTEN)):
        error = future.exception(0)
        assert isinstance(error, BrokerTimeoutError)
        why = "The producer was closed, and the record was not acknowledged within 0.05 s."
        assert error.message == f"{why}{outcome}"
        with pytest.raises(BrokerTimeoutError):
            future.result(0)
    with pytest.raises(RuntimeError, match="The producer is closed"):
        producer.send("t", b"k", b"v")
    producer.close(0)
    producer.flush(0)
    cluster.heal()
    cluster.sleep(1)
    assert threads(cluster) == []
    assert not caplog.records, "no future was completed twice"


def test_close_returns_and_the_thread_ends_although_a_callback_that_close_calls_hangs(cluster: ProducerCluster) -> None:
    producer = blocked_producer(cluster)
    failed = producer.send("t", b"k", b"v")
    failed.add_done_callback(lambda _: cluster.process.sleep(50))
    cluster.sleep(0.1)
    start = cluster.now
    producer.close(0.05)
    assert cluster.now - start < 0.3
    assert isinstance(failed.exception(0), BrokerTimeoutError)
    cluster.heal()
    cluster.sleep(20)
    assert [task.name for task in threads(cluster)] == ["pyspark-kafka-direct-producer-close"]


def test_records_that_close_failed_are_not_sent(cluster: ProducerCluster) -> None:
    producer = blocked_producer(cluster, linger=0.3)
    futures = [producer.send("t", b"k", b"v")]
    cluster.sleep(0.4)
    futures.append(producer.send("t", b"k", b"v"))
    producer.close(0)
    assert [MAY_BE_WRITTEN in str(future.exception(0)) for future in futures] == [True, False]
    cluster.heal()
    cluster.sleep(1)
    assert threads(cluster) == []
    assert cluster.log(PARTITION).end <= 2


def test_the_thread_ends_at_once_after_a_close(cluster: ProducerCluster) -> None:
    """Also if it waits for a response, or has nothing to do."""
    busy, idle = cluster.async_producer(), cluster.async_producer()
    idle.send("t", b"k", b"v").result(TIMEOUT)
    cluster.delay_responses(20.0)
    busy.send("t", b"k", b"v")
    cluster.sleep(1)
    busy.close(0.05)
    idle.close_without_waiting()
    cluster.sleep(0.1)
    assert threads(cluster) == []


def test_close_waits_for_sent_records(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    futures = [producer.send("t", b"k", b"v") for _ in range(100)]
    producer.close(TIMEOUT)
    assert [each.result(0).offset for each in futures] == list(range(100))


def test_a_producer_that_sent_nothing_has_no_thread(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    producer.flush(0)
    producer.close(TIMEOUT)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"v")
    assert threads(cluster) == []


def test_nothing_stays_open_when_the_thread_cannot_be_started(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    producer = cluster.async_producer()
    descriptors = len(cluster.network._readable)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(cluster.process, "start_thread", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                producer.send("t", b"k", b"v")
    assert len(cluster.network._readable) == descriptors
    producer.flush(0)
    assert producer.send("t", b"k", b"v").result(TIMEOUT).offset == 0


@pytest.mark.parametrize(("buffer_bytes", "count"), [(10 * 1_117, 10), (10 * 1_117 - 1, 9)])
def test_buffered_bytes_are_bounded(cluster: ProducerCluster, buffer_bytes: int, count: int) -> None:
    """Each record takes its upper bound of 1,117 bytes."""
    cluster.delay_responses(1.0)
    producer = cluster.async_producer(buffer_bytes=buffer_bytes)
    futures: list[Future[RecordMetadata]] = []

    def write() -> None:
        futures.extend(producer.send("t", b"k", bytes(10)) for _ in range(50))

    cluster.process.spawn("writer", write)
    cluster.sleep(0.5)
    assert producer.sent_count == count
    cluster.sleep(60)
    assert [each.result(0).offset for each in futures] == list(range(50))


def test_a_record_larger_than_the_buffer_is_sent_alone(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(buffer_bytes=100)
    assert [producer.send("t", b"k", bytes(5_000)).result(TIMEOUT).offset for _ in range(3)] == [0, 1, 2]


def test_a_record_fails_when_the_buffer_stays_full(cluster: ProducerCluster) -> None:
    cluster.delay_responses(9.0)
    producer = cluster.async_producer(buffer_bytes=1, delivery_timeout_ms=5_000)
    first, start = producer.send("t", b"k", b"1"), cluster.now
    error = producer.send("t", b"k", b"2").exception(0)
    assert isinstance(error, BrokerTimeoutError)
    assert error.message.startswith("Unacknowledged records exceeded buffer.memory (1 bytes) for 5 s")
    assert error.message.endswith(NOT_WRITTEN)
    assert cluster.now - start == pytest.approx(5, abs=0.1)
    producer.flush(TIMEOUT)
    assert first.done()


def test_a_send_that_waits_for_memory_raises_after_close(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.async_producer(buffer_bytes=1)
    producer.send("t", b"k", b"1")
    messages: list[str] = []

    def write() -> None:
        with pytest.raises(RuntimeError) as caught:
            producer.send("t", b"k", b"2")
        messages.append(str(caught.value))

    cluster.process.spawn("writer", write)
    cluster.sleep(0.1)
    producer.close(0.05)
    cluster.sleep(0.1)
    assert messages == ["The producer is closed."]


def test_a_child_process_cannot_use_the_producer_of_its_parent(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold() -> None:
        with producer._changed:
            cluster.process.sleep(100)

    producer = cluster.async_producer()
    producer.send("t", b"k", b"v").result(TIMEOUT)
    cluster.process.spawn("a thread of the parent during the fork", hold)
    cluster.sleep(1)
    start = cluster.now
    with monkeypatch.context() as child:
        child.setattr("pyspark_kafka_direct.producer.async_producer.os.getpid", lambda: 1)
        for use in (lambda: producer.send("t", b"k", b"v"), producer.flush, lambda: producer.close(1)):
            with pytest.raises(RuntimeError, match="belongs to the parent process"):
                use()
    assert cluster.now - start < 1
    cluster.sleep(100)


def test_records_fail_when_the_thread_fails(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(RecordAccumulator, "append", broken)
    producer = cluster.async_producer()
    error = producer.send("t", b"k", b"v").exception(TIMEOUT)
    assert isinstance(error, KafkaDirectError)
    assert error.message == f"The producer is closed.{NOT_WRITTEN}"
    assert "a defect" in caplog.text
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"v")


def test_each_record_has_its_own_error_object(cluster: ProducerCluster) -> None:
    """An exception that is raised repeatedly accumulates tracebacks."""
    cluster.fault("Produce", "error", code=ErrorCode.INVALID_RECORD)
    producer = cluster.async_producer(linger=1.0)
    futures = [producer.send("t", b"k", b"v") for _ in range(2)]
    producer.flush(TIMEOUT)
    closed = cluster.async_producer(linger=1.0)
    futures += [closed.send("t", b"k", b"v") for _ in range(3)]
    closed.close(0)
    assert len({id(future.exception(0)) for future in futures}) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(90, 98))
def test_each_future_is_completed_once_and_correctly_despite_faults(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Leaders move, connections break, records are rejected, several threads send, and the producer closes early."""
    caplog.set_level(logging.WARNING)
    with FaultyCluster(seed, rejections=0.1) as cluster:
        producer = cluster.async_producer(
            max_request_bytes=700, buffer_bytes=60_000, delivery_timeout_ms=12_000, batch_bytes=400
        )
        calls: list[bytes] = []
        futures: dict[bytes, Future[RecordMetadata]] = {}
        writers = [
            cluster.process.spawn("writer", partial(_write, cluster, producer, name, futures, calls.append))
            for name in range(3)
        ]
        if seed % 2:
            cluster.sleep(2)
            producer.close(0)
        while not all(writer.greenlet.dead for writer in writers):
            cluster.sleep(10)
        producer.close(100)
        cluster.sleep(100)  # late requests arrive
        assert sorted(calls) == sorted(futures)
        logs = [cluster.values(partition) for partition in range(3)]
        for value, future in futures.items():
            error = future.exception(0)
            if error is None:
                metadata = future.result(0)
                assert logs[metadata.partition][metadata.offset] == int(value)
            else:
                assert isinstance(error, KafkaDirectError)
                assert error.message.endswith(MAY_BE_WRITTEN) or not any(int(value) in log for log in logs)
        for log in logs:
            assert len(log) == len(set(log))
            for name in range(3):
                own = [value for value in log if value // 1000 == name]
                assert own == sorted(own)
        assert not caplog.records


def _write(
    cluster: ProducerCluster,
    producer: AsyncProducer,
    name: int,
    futures: dict[bytes, Future[RecordMetadata]],
    called: Callable[[bytes], None],
) -> None:
    """Send records to three partitions, as one thread."""
    for number in range(100):
        value = b"%d" % (name * 1000 + number)
        try:
            future = futures[value] = producer.send("t", None, value, partition=number % 3)
        except RuntimeError:
            return  # closed
        future.add_done_callback(partial(_call, called, value))
        cluster.process.sleep(0.02)


def _call(called: Callable[[bytes], None], value: bytes, _: object) -> None:
    called(value)
