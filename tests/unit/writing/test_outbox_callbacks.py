"""An outbox whose callbacks misbehave: everybody is told, and its end comes in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.system import RealSystem
from pyspark_kafka_direct.writing._dispatch import Settled
from pyspark_kafka_direct.writing.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Future

PATIENCE = 20.0
"""Seconds that only a hang takes."""


class Desk:
    """Stands in for the dispatcher: acknowledges what it has, all at once, when it is let.

    Attributes:
        open: Whether it is let.
    """

    def __init__(self, _cluster: object, _settings: object, settle: Callable[[Settled], None], *_: object) -> None:
        self.system = RealSystem()
        self.settle = settle
        self.records: deque[Any] = deque()
        self.offset = 0
        self.open = OPEN

    def take(self, records: Collection[Any], *, hurry: bool = False) -> None:
        self.records.extend(records)

    def work(self, wake: Collection[int]) -> None:
        if not self.records or not self.open.is_set():
            self.system.wait_readable(wake, 0.01 if self.records else PATIENCE)
            return
        together = list(self.records)
        self.records.clear()
        for each in together:
            each.partition = 0
        first, self.offset = self.offset, self.offset + len(together)
        self.settle(Settled(together, first))

    def close(self) -> None:
        """Has nothing."""


OPEN = threading.Event()


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    OPEN.clear()
    monkeypatch.setattr("pyspark_kafka_direct.writing.outbox.Dispatcher", Desk)
    cluster: Any = SimpleNamespace(pool=SimpleNamespace(system=RealSystem()))
    return Outbox(cluster, ProduceSettings())


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_those_behind_one_whose_callback_hangs_are_told_at_the_end(outbox: Outbox) -> None:
    go_on, inside = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        inside.set()
        go_on.wait(PATIENCE)

    first = outbox.send("t", b"k", b"1")
    second = outbox.send("t", b"k", b"2")
    first.add_done_callback(hang)
    OPEN.set()
    assert inside.wait(PATIENCE)
    with at_most(10):
        outbox.close(0.5)
    assert isinstance(second.exception(10), BrokerTimeoutError)
    go_on.set()


def test_callbacks_of_what_a_close_gives_up_may_hang_too(outbox: Outbox) -> None:
    go_on = threading.Event()
    first = outbox.send("t", b"k", b"1")
    first.add_done_callback(lambda _: (go_on.wait(PATIENCE), None)[1])
    with at_most(10):
        outbox.close(0.2)
    assert isinstance(first.exception(10), BrokerTimeoutError)
    go_on.set()


def test_a_callback_that_waits_for_another_record_is_told_so(outbox: Outbox) -> None:
    told: list[BaseException] = []

    def wait(_: Future[Any]) -> None:
        for ask in (outbox.send("t", b"k", b"2").result, outbox.send("t", b"k", b"3").exception):
            try:
                ask(5)
            except BaseException as error:
                told.append(error)

    first = outbox.send("t", b"k", b"1")
    first.add_done_callback(wait)
    OPEN.set()
    outbox.flush(PATIENCE)
    assert first.result(0).offset == 0
    assert [type(error) for error in told] == [RuntimeError] * 2
    assert "waits for another record" in str(told[0])
    outbox.close(PATIENCE)


def test_a_callback_may_end_it_and_what_was_sent_is_delivered(outbox: Outbox) -> None:
    later: list[Future[Any]] = []
    closed = threading.Event()

    def close(_: Future[Any]) -> None:
        later.append(outbox.send("t", b"k", b"2"))
        outbox.finish()
        closed.set()

    outbox.send("t", b"k", b"1").add_done_callback(close)
    OPEN.set()
    assert closed.wait(PATIENCE)
    outbox.close(PATIENCE)
    assert later[0].result(0).offset == 1
    with pytest.raises(RuntimeError, match="closed"):
        outbox.send("t", b"k", b"3")
