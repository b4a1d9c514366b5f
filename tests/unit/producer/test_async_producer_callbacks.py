"""Callbacks that hang or wait: all futures are completed, and the producer closes in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, as_completed, wait
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import BrokerTimeoutError, RecordTooLargeError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.accumulator import DeliveryReport, PendingRecord
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

HANG_SECONDS = 600.0  # longer than anything but a hang takes


class FakeAccumulator:
    """Stands in for ``RecordAccumulator``: acknowledges all records at once while ``open`` is set."""

    def __init__(
        self, _cluster: object, _settings: object, on_delivery: Callable[[DeliveryReport], None], *_: object
    ) -> None:
        self.system = RealSystem()
        self.on_delivery = on_delivery
        self.records: deque[Any] = deque()
        self.offset = 0
        self.open = OPEN

    def append(self, records: Collection[Any], *, flush_now: bool = False) -> None:
        self.records.extend(records)
        CREATED_AT.update({each.value: each.created_at for each in records})

    def poll(self, wake: Collection[int]) -> None:
        if not self.records or not self.open.is_set():
            self.system.wait_readable(wake, 0.01 if self.records else HANG_SECONDS)
            return
        records = list(self.records)
        self.records.clear()
        for each in records:
            each.partition = 0
        first, self.offset = self.offset, self.offset + len(records)
        self.on_delivery(DeliveryReport(records, first))

    def close(self) -> None:
        """Nothing to release."""


OPEN = threading.Event()
CREATED_AT: dict[bytes, float] = {}


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> AsyncProducer:
    OPEN.clear()
    monkeypatch.setattr("pyspark_kafka_direct.producer.async_producer.RecordAccumulator", FakeAccumulator)
    cluster: Any = SimpleNamespace(pool=SimpleNamespace(system=RealSystem()))
    return AsyncProducer(cluster, ProducerSettings())


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_records_behind_a_hanging_callback_are_completed(producer: AsyncProducer) -> None:
    """Those that were acknowledged at once, their callbacks and the others by ``close``."""
    release, inside = threading.Event(), threading.Event()
    called: list[object] = []

    def hang(_: object) -> None:
        inside.set()
        release.wait(HANG_SECONDS)

    first = producer.send("t", b"k", b"1")
    second = producer.send("t", b"k", b"2")
    first.add_done_callback(hang)
    second.add_done_callback(called.append)
    OPEN.set()
    assert inside.wait(HANG_SECONDS)
    assert second.result(HANG_SECONDS).offset == 1
    third = producer.send("t", b"k", b"3")
    third.add_done_callback(called.append)
    with at_most(120):
        producer.close(0.5)
    assert isinstance(third.exception(120), BrokerTimeoutError)
    assert called == [second, third]
    release.set()


def test_callbacks_get_the_metadata_or_the_error(producer: AsyncProducer) -> None:
    OPEN.set()
    called: list[tuple[Any, Any, bool]] = []

    def note(metadata: object, error: object) -> None:
        called.append((metadata, error, producer.in_callback))
        if len(called) == 2:
            raise SystemExit  # is only logged

    for number in range(3):
        producer.send_with_callback("t", b"k", b"%d" % number, note)
    producer.send_with_callback("t", b"k", b"", None)
    producer.flush(HANG_SECONDS)
    assert [(metadata.offset, error, inside) for metadata, error, inside in called] == [
        (number, None, True) for number in range(3)
    ]
    producer.send_with_callback("t", b"k", b"x" * (2 << 20), note)
    metadata, error, inside = called[3]
    assert (metadata, type(error), inside) == (None, RecordTooLargeError, True)
    assert not producer.in_callback
    producer.close(HANG_SECONDS)


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


def test_records_count_as_completed_after_their_callbacks(producer: AsyncProducer) -> None:
    """A listener is called before the futures of acknowledged records are completed, and after the callbacks."""
    listener = Listener(producer)
    for number in range(2):
        future = producer.send("t", b"k", b"", listener=listener, context=number)
        future.add_done_callback(lambda _: listener.notes.append(("callback", producer.completed_count)))
        listener.futures.append(future)
    assert (producer.sent_count, producer.completed_count) == (2, 0)
    OPEN.set()
    with at_most(120):
        producer.flush(HANG_SECONDS)
    OPEN.clear()
    acknowledged = ([(0, 0), (1, 1)], False, 0)
    assert listener.notes == [acknowledged, ("callback", 0), ("callback", 0), (True, 2)]
    del listener.notes[:]
    listener.futures.append(producer.send("t", b"k", b"", listener=listener))
    producer.close(0.1)
    assert listener.notes == [(True, 3)], "a record that failed counts, too"


def test_a_record_that_completes_late_holds_back_the_count(producer: AsyncProducer) -> None:
    records = [
        PendingRecord("t", None, None, headers=(), partition=0, timestamp=0, created_at=float(number), size_bound=100)
        for number in range(4)
    ]
    producer._start_thread = lambda: SimpleNamespace(set=lambda: None)  # type: ignore[method-assign]
    for record in records:
        producer._add(record)
    producer._on_delivery(DeliveryReport(records[1:3], 5))
    assert producer.completed_count == 0
    producer._on_delivery(DeliveryReport(records[:1], error=ValueError()))
    assert producer.completed_count == 3
    producer._on_delivery(DeliveryReport(records[3:], 7))
    assert (producer.completed_count, producer._buffered_bytes) == (4, 0)


def test_the_futures_of_a_producer_share_a_condition(producer: AsyncProducer) -> None:
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
    OPEN.set()
    assert wait(futures, HANG_SECONDS).done == set(futures)
    assert {future.result().offset for future in as_completed(futures, HANG_SECONDS)} == {0, 1, 2}
    producer.close(HANG_SECONDS)


def test_close_returns_although_callbacks_of_failed_records_hang(producer: AsyncProducer) -> None:
    release = threading.Event()
    first = producer.send("t", b"k", b"1")
    first.add_done_callback(lambda _: (release.wait(HANG_SECONDS), None)[1])
    with at_most(120):
        producer.close(0.2)
    assert isinstance(first.exception(120), BrokerTimeoutError)
    release.set()


def test_a_callback_that_waits_for_another_record_raises(producer: AsyncProducer) -> None:
    errors: list[BaseException] = []

    def wait(_: Future[Any]) -> None:
        for wait_for in (producer.send("t", b"k", b"2").result, producer.send("t", b"k", b"3").exception):
            try:
                wait_for(5)
            except BaseException as error:
                errors.append(error)

    first = producer.send("t", b"k", b"1")
    first.add_done_callback(wait)
    OPEN.set()
    producer.flush(HANG_SECONDS)
    assert first.result(0).offset == 0
    assert [type(error) for error in errors] == [RuntimeError] * 2
    assert "cannot wait for another record" in str(errors[0])
    producer.close(HANG_SECONDS)


def test_a_callback_may_close_the_producer_and_sent_records_are_delivered(producer: AsyncProducer) -> None:
    later: list[Future[Any]] = []
    closed = threading.Event()

    def close(_: Future[Any]) -> None:
        later.append(producer.send("t", b"k", b"2"))
        producer.close_without_waiting()
        closed.set()

    producer.send("t", b"k", b"1").add_done_callback(close)
    OPEN.set()
    assert closed.wait(HANG_SECONDS)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"3")
    producer.close(HANG_SECONDS)
    assert later[0].result(0).offset == 1


def test_records_are_completed_although_their_listener_raises(
    producer: AsyncProducer, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenListener:
        def on_acknowledged(self, _: DeliveryReport) -> None:
            raise ValueError("a defect")

        def on_completed(self) -> None:
            raise ValueError("another defect")

    OPEN.set()
    assert producer.send("t", b"k", b"1", listener=BrokenListener()).result(HANG_SECONDS).offset == 0
    assert producer.send("t", b"k", b"2").result(HANG_SECONDS).offset == 1
    producer.close(HANG_SECONDS)
    assert "a defect" in caplog.text
    assert "another defect" in caplog.text


def test_the_delivery_timeout_starts_when_there_is_memory_for_the_record(producer: AsyncProducer) -> None:
    """A record that waited would fail early, and late behind newer records of its partition."""
    producer = AsyncProducer(producer._cluster, ProducerSettings(buffer_bytes=1))
    producer.send("t", b"k", b"first")
    thread = threading.Thread(target=producer.send, args=("t", b"k", b"waits"))
    thread.start()
    while not producer._flushes_in_progress:
        time.sleep(0.001)
    opened_at = time.monotonic()
    OPEN.set()
    thread.join(HANG_SECONDS)
    producer.close(HANG_SECONDS)
    assert CREATED_AT[b"waits"] >= opened_at
