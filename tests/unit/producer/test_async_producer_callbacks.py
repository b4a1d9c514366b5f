"""Callbacks that hang or wait: all futures are completed, and the producer closes in time."""

from __future__ import annotations

from concurrent.futures import Future, as_completed, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.producer_cluster import PARTITION, ProducerCluster

from pyspark_kafka_direct.errors import BrokerTimeoutError, RecordTooLargeError

if TYPE_CHECKING:
    from pyspark_kafka_direct.producer.accumulator import DeliveryReport
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

TIMEOUT = 20.0
ONE_BATCH = 1.0  # the linger with which the records of a test share a batch


@pytest.mark.parametrize("sends_another", [False, True])
def test_records_behind_a_hanging_callback_are_completed(cluster: ProducerCluster, sends_another: bool) -> None:
    """Those that were acknowledged at once, their callbacks and the others by ``close``."""
    producer = cluster.async_producer(ONE_BATCH)
    called: list[object] = []
    first, second = (producer.send("t", b"k", b"v") for _ in range(2))
    first.add_done_callback(lambda _: cluster.process.sleep(100))
    second.add_done_callback(called.append)
    assert second.result(TIMEOUT).offset == 1
    others = [producer.send("t", b"k", b"v") for _ in range(sends_another)]
    for other in others:
        other.add_done_callback(called.append)
    start = cluster.now
    producer.close(0.5)
    assert cluster.now - start < 1
    assert [type(other.exception(0)) for other in others] == [BrokerTimeoutError] * sends_another
    assert called == [second, *others]


@pytest.mark.parametrize("durations", [(0.2, 0.4), (0.4, 0.2), (0.1, 0.5, 0.2, 0.3)])
def test_flush_waits_for_callbacks_of_two_threads(cluster: ProducerCluster, durations: tuple[float, ...]) -> None:
    """After its timeout, ``close`` calls them in another thread, and so does the background thread, which ends."""
    cluster.delay_responses(20.0)
    producer = cluster.async_producer()
    returned: list[float] = []

    def call(seconds: float, _: object) -> None:
        cluster.process.sleep(seconds)
        returned.append(seconds)

    for seconds in durations:
        producer.send("t", b"k", b"v").add_done_callback(partial(call, seconds))
    cluster.sleep(1)
    producer.close(0)
    producer.flush(TIMEOUT)
    assert sorted(returned) == sorted(durations)
    assert producer.completed_count == len(durations)


def test_callbacks_get_the_metadata_or_the_error(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    called: list[tuple[Any, Any, bool]] = []

    def note(metadata: object, error: object) -> None:
        called.append((metadata, error, producer.in_callback))
        if len(called) == 2:
            raise SystemExit  # is only logged

    for number in range(3):
        producer.send_with_callback("t", b"k", b"%d" % number, note)
    producer.send_with_callback("t", b"k", b"", None)
    producer.flush(TIMEOUT)
    assert [(metadata.offset, error, inside) for metadata, error, inside in called] == [
        (number, None, True) for number in range(3)
    ]
    producer.send_with_callback("t", b"k", b"x" * (2 << 20), note)
    metadata, error, inside = called[3]
    assert (metadata, type(error), inside) == (None, RecordTooLargeError, True)
    assert not producer.in_callback


class Listener:
    """Notes what is completed whenever it is called."""

    def __init__(self, producer: AsyncProducer) -> None:
        self.producer = producer
        self.futures: list[Future[Any]] = []
        self.notes: list[tuple[Any, ...]] = []

    def on_acknowledged(self, report: DeliveryReport) -> None:
        contexts = [(offset, record.context) for offset, record in report.with_offsets()]
        self.notes.append((contexts, any(future.done() for future in self.futures), self.producer.completed_count))

    def on_completed(self) -> None:
        self.notes.append((all(future.done() for future in self.futures), self.producer.completed_count))


def test_records_count_as_completed_after_their_callbacks(cluster: ProducerCluster) -> None:
    """A listener is called before the futures of acknowledged records are completed, and after the callbacks."""
    producer = cluster.async_producer(ONE_BATCH)
    listener = Listener(producer)
    for number in range(2):
        future = producer.send("t", b"k", b"", listener=listener, context=number)
        future.add_done_callback(lambda _: listener.notes.append(("callback", producer.completed_count)))
        listener.futures.append(future)
    assert (producer.sent_count, producer.completed_count) == (2, 0)
    producer.flush(TIMEOUT)
    acknowledged = ([(0, 0), (1, 1)], False, 0)
    assert listener.notes == [acknowledged, ("callback", 0), ("callback", 0), (True, 2)]
    del listener.notes[:]
    listener.futures.append(producer.send("t", b"k", b"", listener=listener))
    producer.close(0)
    assert listener.notes == [(True, 3)], "a record that failed counts, too"


def test_a_record_that_completes_late_holds_back_the_count(cluster: ProducerCluster) -> None:
    cluster.elect(PARTITION._replace(partition=1), 2)
    cluster.fault("Produce", "delay_response", seconds=1)
    producer = cluster.async_producer()
    late = producer.send("t", None, b"v", partition=0)
    cluster.sleep(0.5)
    assert producer.send("t", None, b"v", partition=1).result(TIMEOUT).offset == 0
    cluster.sleep(0.1)
    assert (late.done(), producer.completed_count) == (False, 0)
    late.result(TIMEOUT)
    cluster.sleep(0.1)
    assert producer.completed_count == 2


def test_the_futures_of_a_producer_share_a_condition(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer = cluster.async_producer()
    futures = [producer.send("t", b"k", b"%d" % number) for number in range(3)]
    assert vars(Future()).keys() <= set(dir(futures[0])) | {"_waiters", "_done_callbacks"}, "Python has added some"
    assert not any(isinstance(value, list) for future in futures for value in vars(future).values())
    lists = {id(getattr(future, name)) for future in futures for name in ("_waiters", "_done_callbacks")}
    assert len(lists) == 6
    with pytest.raises(AttributeError, match="no attribute '_unknown'"):
        futures[0]._unknown  # type: ignore[attr-defined]  # noqa: B018
    assert "pending" in repr(futures[0])
    assert wait(futures, 0.01).not_done == set(futures)
    with pytest.raises(TimeoutError):
        futures[0].result(0.01)
    producer.flush(TIMEOUT)
    assert wait(futures, TIMEOUT).done == set(futures)
    assert {future.result().offset for future in as_completed(futures, TIMEOUT)} == {0, 1, 2}


def test_a_callback_that_waits_for_another_record_raises(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    errors: list[BaseException] = []

    def wait(_: Future[Any]) -> None:
        for wait_for in (producer.send("t", b"k", b"2").result, producer.send("t", b"k", b"3").exception):
            try:
                wait_for(5)
            except BaseException as error:
                errors.append(error)

    first = producer.send("t", b"k", b"1")
    first.add_done_callback(wait)
    producer.flush(TIMEOUT)
    assert first.result(0).offset == 0
    assert [type(error) for error in errors] == [RuntimeError] * 2
    assert "cannot wait for another record" in str(errors[0])


def test_a_callback_may_close_the_producer_and_sent_records_are_delivered(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    later: list[Future[Any]] = []

    def close(_: Future[Any]) -> None:
        later.append(producer.send("t", b"k", b"2"))
        producer.close_without_waiting()

    producer.send("t", b"k", b"1").add_done_callback(close)
    producer.flush(TIMEOUT)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"3")
    assert later[0].result(TIMEOUT).offset == 1


def test_records_are_completed_although_their_listener_raises(
    cluster: ProducerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenListener:
        def on_acknowledged(self, _: DeliveryReport) -> None:
            raise ValueError("a defect")

        def on_completed(self) -> None:
            raise ValueError("another defect")

    producer = cluster.async_producer()
    assert producer.send("t", b"k", b"1", listener=BrokenListener()).result(TIMEOUT).offset == 0
    assert producer.send("t", b"k", b"2").result(TIMEOUT).offset == 1
    assert "a defect" in caplog.text
    assert "another defect" in caplog.text


def test_the_delivery_timeout_starts_when_there_is_memory_for_the_record(cluster: ProducerCluster) -> None:
    """A record that waited would fail early, and late behind newer records of its partition."""
    cluster.fault("Produce", "delay_response", seconds=15)
    cluster.after(14, lambda: cluster.event("lose_leader", topic="t", partition=0, seconds=13))
    producer = cluster.async_producer(buffer_bytes=1, delivery_timeout_ms=20_000)
    start = cluster.now
    futures = [producer.send("t", None, b"v", partition=0) for _ in range(2)]  # the second one waits for the first
    assert [future.result(60).offset for future in futures] == [0, 1]
    assert cluster.now - start > 27
