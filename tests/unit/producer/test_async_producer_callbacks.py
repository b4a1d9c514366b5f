"""Callbacks that hang or wait: all futures are completed, and the producer closes in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.producer.accumulator import DeliveryReport
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Future

HANG_SECONDS = 20.0  # longer than anything but a hang takes


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


def test_close_fails_records_behind_a_hanging_callback(producer: AsyncProducer) -> None:
    release, inside = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        inside.set()
        release.wait(HANG_SECONDS)

    first = producer.send("t", b"k", b"1")
    second = producer.send("t", b"k", b"2")
    first.add_done_callback(hang)
    OPEN.set()
    assert inside.wait(HANG_SECONDS)
    with at_most(10):
        producer.close(0.5)
    assert isinstance(second.exception(10), BrokerTimeoutError)
    release.set()


def test_close_returns_although_callbacks_of_failed_records_hang(producer: AsyncProducer) -> None:
    release = threading.Event()
    first = producer.send("t", b"k", b"1")
    first.add_done_callback(lambda _: (release.wait(HANG_SECONDS), None)[1])
    with at_most(10):
        producer.close(0.2)
    assert isinstance(first.exception(10), BrokerTimeoutError)
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
    producer.close(HANG_SECONDS)
    assert later[0].result(0).offset == 1
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", b"k", b"3")
