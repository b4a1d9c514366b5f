"""Single records from several threads: completion of futures, timeouts and memory limits."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.producer.fake_cluster import FakeCluster, FakeResponse
from tests.unit.producer.test_delivery_callbacks import RejectingCluster
from tests.unit.producer.threaded_clusters import TIMEOUT, BlockedCluster, SignalledSystem, WatchedSystem, fake_cluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    KafkaDirectError,
    RecordTooLargeError,
)
from pyspark_kafka_direct.producer.accumulator import RecordAccumulator
from pyspark_kafka_direct.producer.async_producer import AsyncProducer, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future


NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


@pytest.fixture
def producers() -> Iterator[list[AsyncProducer]]:
    made: list[AsyncProducer] = []
    yield made
    for producer in made:
        producer.close(TIMEOUT)
    wait_for_threads_to_end()


def wait_for_threads_to_end() -> None:
    """Wait until no producer has a thread."""
    end = time.monotonic() + TIMEOUT
    while any("kafka-direct-producer" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.001)


def new_producer(
    producers: list[AsyncProducer], cluster: FakeCluster, linger: float = 0.0, **settings: Any
) -> AsyncProducer:
    producers.append(AsyncProducer(cluster, ProducerSettings(**settings), linger=linger))  # type: ignore[arg-type]
    return producers[-1]


def test_each_record_gets_its_metadata_in_order(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster())
    futures = [producer.send("t", b"k", b"%d" % number, timestamp=number) for number in range(500)]
    assert [each.result(TIMEOUT) for each in futures] == [
        RecordMetadata("t", 0, number, number) for number in range(500)
    ]


def test_the_metadata_has_the_topic_id_and_the_leader_epoch(producers: list[AsyncProducer]) -> None:
    cluster = fake_cluster()
    cluster.topic_id = UUID(int=1)
    producer = new_producer(producers, cluster)
    metadata = producer.send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (UUID(int=1), 4)

    def recreate(_: int) -> FakeResponse:
        cluster.topic_id = UUID(int=2)
        return FakeResponse()

    cluster.script = recreate
    metadata = producer.send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (None, -1), "it is in either topic"


def test_the_leader_epoch_is_unknown_if_metadata_has_no_leader(producers: list[AsyncProducer]) -> None:
    cluster = fake_cluster()
    cluster.topic_id, cluster.leader = UUID(int=1), None
    original_leaders = cluster.leaders

    def leaders(*wanted: Any, **more: Any) -> Any:
        cluster.leader = 1  # elected after the record was encoded
        return original_leaders(*wanted, **more)

    cluster.leaders = leaders  # type: ignore[method-assign]
    metadata = new_producer(producers, cluster).send("t", b"k", b"v").result(TIMEOUT)
    assert (metadata.topic_id, metadata.leader_epoch) == (UUID(int=1), -1)


def test_without_acknowledgements_the_offsets_are_unknown(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster(), linger=100.0, acks=0)
    futures = [producer.send("t", b"k", b"v") for _ in range(2)]
    producer.flush(TIMEOUT)
    assert [future.result(0).offset for future in futures] == [-1, -1]


def test_log_append_time_replaces_the_record_timestamp(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster(lambda _: FakeResponse(more={"log_append_time_ms": 77})))
    assert producer.send("t", b"k", b"v", timestamp=5).result(TIMEOUT) == RecordMetadata("t", 0, 0, 77)


def test_the_append_time_of_a_duplicate_batch_is_ignored(
    producers: list[AsyncProducer],
) -> None:
    """Brokers return the latest timestamp of a duplicate batch as its log append time."""
    producer = new_producer(
        producers, fake_cluster(lambda _: FakeResponse(more={"log_append_time_ms": 77})), linger=100.0
    )
    futures = [producer.send("t", b"k", b"v", timestamp=each) for each in (5, 77, 6)]
    producer.flush(TIMEOUT)
    assert [each.result(TIMEOUT).timestamp for each in futures] == [5, 77, 6]


def test_a_record_without_a_timestamp_gets_the_current_time(producers: list[AsyncProducer]) -> None:
    cluster = fake_cluster()
    assert new_producer(producers, cluster).send("t", b"k", b"v").result(TIMEOUT).timestamp == 1_000_000


def test_a_record_that_is_too_large_fails_without_a_request() -> None:
    cluster = fake_cluster()
    producer = AsyncProducer(cluster, ProducerSettings(max_request_bytes=1_000))  # type: ignore[arg-type]
    future = producer.send("t", b"k", bytes(1_000))
    assert future.done()
    error = future.exception()
    assert isinstance(error, RecordTooLargeError)
    assert error.message.startswith("The record has up to 1083 bytes, more than max.request.size (1000).")
    assert error.message.endswith(NOT_WRITTEN)
    assert (cluster.requested_topics, cluster.sent) == ([], [])
    assert not any("kafka-direct-producer" in thread.name for thread in threading.enumerate())


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
def test_invalid_arguments_are_errors_of_the_caller(given: dict[str, Any], error: type[Exception]) -> None:
    producer = AsyncProducer(fake_cluster(), ProducerSettings())  # type: ignore[arg-type]
    with pytest.raises(error, match=f"^{next(iter(given))} must "):
        producer.send(**{"topic": "t", "key": b"k", "value": b"v", **given})


def test_a_future_cannot_be_cancelled(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    future = producer.send("t", b"k", b"v")
    assert not future.cancel()
    cluster.proceed.set()
    assert future.result(TIMEOUT).offset == 0


def test_a_callback_may_send_when_the_buffer_is_full(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster(), buffer_bytes=1)
    second: list[Future[RecordMetadata]] = []
    first = producer.send("t", b"k", b"1")
    first.add_done_callback(lambda _: second.append(producer.send("t", b"k", b"2")))
    producer.flush(TIMEOUT)
    producer.flush(TIMEOUT)
    assert second[0].result(0).offset == 1


def test_errors_of_callbacks_are_only_logged(producers: list[AsyncProducer], caplog: pytest.LogCaptureFixture) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)

    def bad(_: object) -> None:
        raise ValueError("bad callback")

    def worse(_: object) -> None:
        raise SystemExit(3)

    futures = [producer.send("t", b"k", b"v") for _ in range(3)]
    futures[0].add_done_callback(bad)
    futures[1].add_done_callback(worse)
    cluster.proceed.set()
    producer.flush(TIMEOUT)
    assert [each.result(0).offset for each in futures] == [0, 1, 2]
    assert [record.message[:9] for record in caplog.records] == ["exception", "A callbac"]
    assert producer.send("t", b"k", b"v").result(TIMEOUT).offset == 3


def test_flush_and_close_raise_in_a_callback(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    messages: list[str] = []

    def callback(_: object) -> None:
        with pytest.raises(RuntimeError) as caught:
            producer.flush()
        messages.append(str(caught.value))
        with pytest.raises(RuntimeError) as caught:
            producer.close(1)
        messages.append(str(caught.value))

    producer.send("t", b"k", b"v").add_done_callback(callback)
    cluster.proceed.set()
    producer.flush(TIMEOUT)
    assert [message.split()[0] for message in messages] == ["flush", "close"]
    assert all("cannot be called in a callback" in message for message in messages)


def test_flush_waits_for_earlier_records_and_their_callbacks(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
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
    cluster.proceed.set()
    producer.flush(TIMEOUT)
    assert called == [0, 1, 2]


def test_flush_does_not_wait_for_later_records(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster())
    stop = threading.Event()

    def keep_sending() -> None:
        while not stop.is_set():
            producer.send("t", b"k", b"v")

    thread = threading.Thread(target=keep_sending)
    thread.start()
    try:
        for _ in range(5):
            producer.flush(None)
    finally:
        stop.set()
        thread.join()


def test_flush_ends_lingering(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    cluster.proceed.set()
    producer = new_producer(producers, cluster, linger=100.0)
    future = producer.send("t", b"k", b"v")
    producer.flush(TIMEOUT)
    assert future.result(0).offset == 0


def test_records_linger_after_a_flush(producers: list[AsyncProducer]) -> None:
    cluster = fake_cluster()
    cluster.partitions = {"t": 1, "u": 1}
    system = WatchedSystem()
    cluster.system = cluster.pool.system = system
    producer = new_producer(producers, cluster, linger=100.0)
    producer.send("t", b"k", b"v")
    producer.flush(TIMEOUT)
    producer.send("u", b"k", b"1")
    end = time.monotonic() + TIMEOUT
    while "u" not in cluster.requested_topics:
        assert time.monotonic() < end
        time.sleep(0.001)
    system.nothing_due.clear()
    assert system.nothing_due.wait(TIMEOUT)
    assert len(cluster.sent) == 1, "the second record lingers"


def test_close_returns_when_the_thread_fails_although_a_callback_hangs(
    producers: list[AsyncProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed, release = threading.Event(), threading.Event()

    def broken(*_: object, **__: object) -> None:
        assert proceed.wait(TIMEOUT)
        raise ValueError("a defect")

    monkeypatch.setattr(RecordAccumulator, "append", broken)
    producer = new_producer(producers, BlockedCluster())
    future = producer.send("t", b"k", b"v")
    future.add_done_callback(lambda _: (release.wait(5 * TIMEOUT), None)[1])
    closer = threading.Thread(target=producer.close, args=(4 * TIMEOUT,))
    closer.start()
    while not producer._closed:
        time.sleep(0.001)
    with producer._changed:  # then the closing thread waits
        proceed.set()
    closer.join(TIMEOUT)
    returned = not closer.is_alive()
    release.set()
    assert returned
    assert str(future.exception(TIMEOUT)).startswith("The producer is closed.")


def test_close_fails_incomplete_records_and_returns_in_time(
    producers: list[AsyncProducer], caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the thread hangs, which ends as soon as it can."""
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    in_flight = producer.send("t", b"k", b"v")
    assert cluster.connecting.wait(TIMEOUT)
    queued = producer.send("t", b"k", b"v")
    start = time.monotonic()
    producer.close(0.05)
    assert time.monotonic() - start < 5
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
    cluster.proceed.set()
    wait_for_threads_to_end()
    assert not caplog.records, "no future was completed twice"


def test_the_thread_ends_although_a_callback_that_close_calls_hangs(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    release = threading.Event()
    producer.send("t", b"k", b"v").add_done_callback(lambda _: (release.wait(2 * TIMEOUT), None)[1])
    assert cluster.connecting.wait(TIMEOUT)
    producer.close(0.05)
    cluster.proceed.set()
    end = time.monotonic() + TIMEOUT
    while any(thread.name == "pyspark-kafka-direct-producer" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.001)
    release.set()


def test_close_fails_incomplete_records_when_no_thread_can_be_started(
    producers: list[AsyncProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an ``atexit`` function with Python 3.12."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    future = producer.send("t", b"k", b"v")
    assert cluster.connecting.wait(TIMEOUT)
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", fail)
        producer.close(0.05)
    assert isinstance(future.exception(0), BrokerTimeoutError)
    cluster.proceed.set()


def test_records_that_close_failed_are_not_sent(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    cluster.partitions = {"t": 2}
    producer = new_producer(producers, cluster, linger=0.3)
    futures = [producer.send("t", b"k", b"v", partition=0)]
    assert cluster.connecting.wait(TIMEOUT)
    futures.append(producer.send("t", b"k", b"v", partition=1))
    producer.close(0)
    assert [MAY_BE_WRITTEN in str(future.exception(0)) for future in futures] == [True, False]
    cluster.proceed.set()
    wait_for_threads_to_end()
    assert [sorted(each.batches) for each in cluster.sent] == [[0]]


def test_close_waits_for_sent_records(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster())
    futures = [producer.send("t", b"k", b"v") for _ in range(100)]
    producer.close(TIMEOUT)
    assert [each.result(0).offset for each in futures] == list(range(100))


def test_a_producer_that_sent_nothing_has_no_thread() -> None:
    producer = AsyncProducer(fake_cluster(), ProducerSettings())  # type: ignore[arg-type]
    producer.flush(0)
    producer.close(TIMEOUT)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"v")


def test_nothing_stays_open_when_the_thread_cannot_be_started(
    producers: list[AsyncProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, signals = fake_cluster(), list[Any]()

    def signal() -> Any:
        signals.append(RealSystem().wakeup_signal())
        return signals[-1]

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    producer = new_producer(producers, cluster)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(cluster.system, "wakeup_signal", signal, raising=False)
        exhausted.setattr(cluster.system, "start_thread", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                producer.send("t", b"k", b"v")
    assert [each.fileno() for each in signals] == [-1, -1]
    producer.flush(0)
    assert producer.send("t", b"k", b"v").result(TIMEOUT).offset == 0


def test_buffered_bytes_are_bounded(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster, buffer_bytes=10 * 2_200)
    futures: list[Future[RecordMetadata]] = []

    def write() -> None:
        futures.extend(producer.send("t", b"k", bytes(10)) for _ in range(50))

    thread = threading.Thread(target=write)
    thread.start()
    assert cluster.connecting.wait(TIMEOUT)
    for _ in range(100):
        time.sleep(0.001)
        assert producer._buffered_bytes <= 10 * 2_200
    assert thread.is_alive()
    cluster.proceed.set()
    thread.join(TIMEOUT)
    producer.flush(TIMEOUT)
    assert [each.result(0).offset for each in futures] == list(range(50))
    assert producer._buffered_bytes == 0


def test_a_record_larger_than_the_buffer_is_sent_alone(producers: list[AsyncProducer]) -> None:
    producer = new_producer(producers, fake_cluster(), buffer_bytes=100)
    assert [producer.send("t", b"k", bytes(5_000)).result(TIMEOUT).offset for _ in range(3)] == [0, 1, 2]


def test_a_record_fails_when_the_buffer_stays_full(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster, buffer_bytes=1, delivery_timeout_ms=50)
    first = producer.send("t", b"k", b"1")
    error = producer.send("t", b"k", b"2").exception(0)
    assert isinstance(error, BrokerTimeoutError)
    assert error.message.startswith("Unacknowledged records exceeded buffer.memory (1 bytes) for 0.05 s")
    assert error.message.endswith(NOT_WRITTEN)
    cluster.proceed.set()
    producer.flush(TIMEOUT)
    assert first.done()


def test_a_send_that_waits_for_memory_raises_after_close(producers: list[AsyncProducer]) -> None:
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster, buffer_bytes=1)
    producer.send("t", b"k", b"1")
    messages: list[str] = []

    def write() -> None:
        with pytest.raises(RuntimeError) as caught:
            producer.send("t", b"k", b"2")
        messages.append(str(caught.value))

    thread = threading.Thread(target=write)
    thread.start()
    while not producer._flushes_in_progress:
        time.sleep(0.001)
    producer.close(0.05)
    thread.join(TIMEOUT)
    assert messages == ["The producer is closed."]
    cluster.proceed.set()


def test_a_child_process_cannot_use_the_producer_of_its_parent(
    producers: list[AsyncProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = new_producer(producers, fake_cluster())
    producer.send("t", b"k", b"v").result(TIMEOUT)
    with producer._changed:  # as a thread of the parent may have done during the fork
        monkeypatch.setattr("pyspark_kafka_direct.producer.async_producer.os.getpid", lambda: 1)
        for use in (lambda: producer.send("t", b"k", b"v"), producer.flush, lambda: producer.close(1)):
            with pytest.raises(RuntimeError, match="belongs to the parent process"):
                use()
        monkeypatch.undo()


def test_records_fail_when_the_thread_fails(
    producers: list[AsyncProducer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(RecordAccumulator, "append", broken)
    producer = new_producer(producers, fake_cluster())
    error = producer.send("t", b"k", b"v").exception(TIMEOUT)
    assert isinstance(error, KafkaDirectError)
    assert error.message == f"The producer is closed.{NOT_WRITTEN}"
    assert "a defect" in caplog.text
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"v")


def test_each_record_has_its_own_error_object(producers: list[AsyncProducer]) -> None:
    """An exception that is raised repeatedly accumulates tracebacks."""
    cluster = fake_cluster(lambda _: FakeResponse(code=87))
    producer = new_producer(producers, cluster)
    one, other = (producer.send("t", b"k", b"v").exception(TIMEOUT) for _ in range(2))
    assert one is not other
    cluster = BlockedCluster()
    producer = new_producer(producers, cluster)
    futures = [producer.send("t", b"k", b"v") for _ in range(3)]
    producer.close(0)
    assert len({id(future.exception(0)) for future in futures}) == 3
    cluster.proceed.set()


@pytest.mark.parametrize("seed", range(90, 98))
def test_each_future_is_completed_once_and_correctly_despite_faults(
    seed: int, producers: list[AsyncProducer], caplog: pytest.LogCaptureFixture
) -> None:
    """Leaders move, connections break, records are rejected, several threads send, and the producer closes early."""
    caplog.set_level(logging.WARNING)
    cluster = RejectingCluster(seed)
    cluster.system = SignalledSystem()
    cluster.pool.system = cluster.system
    cluster.partitions = {"t": 3}
    producer = new_producer(
        producers, cluster, max_request_bytes=700, buffer_bytes=60_000, delivery_timeout_ms=12_000, batch_bytes=400
    )
    calls: dict[bytes, int] = {}
    futures: dict[bytes, Future[RecordMetadata]] = {}

    def write(name: int) -> None:
        for number in range(150):
            value = b"%d" % (name * 1000 + number)
            try:
                future = futures[value] = producer.send("t", b"%d" % (number % 9), value)
            except RuntimeError:
                return  # closed

            def called(_: object, value: bytes = value) -> None:
                calls[value] = calls.get(value, 0) + 1

            future.add_done_callback(called)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    if seed % 2:
        time.sleep(0.02)
        producer.close(0)
    for thread in threads:
        thread.join(TIMEOUT)
    producer.close(TIMEOUT)
    assert calls == dict.fromkeys(futures, 1)
    for value, future in futures.items():
        error = future.exception(0)
        logs = [int(value) in log.values for log in cluster.logs]
        if error is None:
            metadata = future.result(0)
            assert cluster.logs[metadata.partition].values[metadata.offset] == int(value)
        else:
            assert isinstance(error, KafkaDirectError)
            assert error.message.endswith(MAY_BE_WRITTEN) or not any(logs)
    for log in cluster.logs:
        assert len(log.values) == len(set(log.values))
        for name in range(3):
            own = [value for value in log.values if value // 1000 == name]
            assert own == sorted(own)
    assert not caplog.records
