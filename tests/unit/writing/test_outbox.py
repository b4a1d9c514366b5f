"""Single records from several threads: futures that are done once, waits that end in their time, what is held."""

from __future__ import annotations

import logging
import select
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.writing.brokers import Answer, Brokers, Line, World
from tests.unit.writing.test_recipients import Refusing

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    KafkaDirectError,
    RecordTooLargeError,
)
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.system import RealSystem
from pyspark_kafka_direct.writing._dispatch import Dispatcher
from pyspark_kafka_direct.writing.outbox import Outbox, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Future

    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.metadata import Node

NOT_WRITTEN = " The records were not written."
IN_DOUBT = " The records may have been written."
SECONDS = 20.0


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", lambda *_: ProducerId(next(ids), 0))


class Woken(World):
    """Made-up time, in which a thread that has nothing else to wait for waits for its signal."""

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        lines = [each for each in descriptors if each in self.lines]
        signals = [each for each in descriptors if each not in self.lines]
        nothing_due = seconds > 50 and not lines
        if not signals or not select.select(signals, [], [], 0.2 if nothing_due else 0)[0]:
            super().wait_readable(lines, 0.0 if nothing_due else seconds)

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        return condition.wait(0.01)


def made_up(script: Callable[[int], Answer] = lambda _: Answer(), **more: Any) -> Brokers:
    brokers = Brokers(script, **more)
    brokers.world = Woken()
    brokers.pool.system = brokers.world
    return brokers


@pytest.fixture
def boxes() -> Iterator[list[Outbox]]:
    made: list[Outbox] = []
    yield made
    for box in made:
        box.close(SECONDS)
    wait_for_the_end()


def wait_for_the_end() -> None:
    """Wait until no outbox has a thread."""
    end = time.monotonic() + SECONDS
    while any("outbox" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.001)


def make(boxes: list[Outbox], brokers: Brokers, linger: float = 0.0, **settings: Any) -> Outbox:
    boxes.append(Outbox(brokers, ProduceSettings(**settings), linger=linger))  # type: ignore[arg-type]
    return boxes[-1]


class Held(Brokers):
    """Brokers that nobody can connect with until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.pool.system = RealSystem()
        self.held, self.go = threading.Event(), threading.Event()

    def connect(self, node: Node, deadline: Deadline) -> Line:
        self.held.set()
        assert self.go.wait(SECONDS)
        return _Answering(self, node.id)


class _Answering(Line):
    """Answers at once, on the machine's clock."""

    def has_answer(self) -> bool:
        return bool(self._answers)

    def fileno(self) -> int:
        raise AssertionError("nobody has to wait for it")


def test_receipts_come_in_order_and_one_for_each(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up())
    futures = [box.send("t", b"k", b"%d" % number, timestamp=number) for number in range(500)]
    assert [each.result(SECONDS) for each in futures] == [Receipt("t", 0, number, number) for number in range(500)]


def test_the_brokers_time_comes_before_the_records_own(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up(lambda _: Answer(more={"log_append_time_ms": 77})))
    assert box.send("t", b"k", b"v", timestamp=5).result(SECONDS) == ("t", 0, 0, 77)


def test_the_time_that_a_broker_tells_of_a_batch_it_had_already_is_not_the_records(boxes: list[Outbox]) -> None:
    """It is the latest one of the batch, as if the topic had the broker's times."""
    box = make(boxes, made_up(lambda _: Answer(more={"log_append_time_ms": 77})), linger=100.0)
    futures = [box.send("t", b"k", b"v", timestamp=each) for each in (5, 77, 6)]
    box.flush(SECONDS)
    assert [each.result(SECONDS).timestamp for each in futures] == [5, 77, 6]


def test_a_record_without_a_time_has_that_of_now(boxes: list[Outbox]) -> None:
    brokers = made_up()
    assert make(boxes, brokers).send("t", b"k", b"v").result(SECONDS).timestamp == 1_000_000


def test_one_that_is_too_large_fails_at_once_and_nobody_is_asked() -> None:
    brokers = made_up()
    box = Outbox(brokers, ProduceSettings(max_request_bytes=1_000))  # type: ignore[arg-type]
    future = box.send("t", b"k", bytes(1_000))
    assert future.done()
    error = future.exception()
    assert isinstance(error, RecordTooLargeError)
    assert error.message.startswith("The record takes up to 1083 bytes, more than the 1000 of max.request.size.")
    assert error.message.endswith(NOT_WRITTEN)
    assert (brokers.asked, brokers.sent) == ([], [])
    assert not any("outbox" in thread.name for thread in threading.enumerate())


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
def test_what_is_no_record_is_an_error_of_the_caller(given: dict[str, Any], error: type[Exception]) -> None:
    box = Outbox(made_up(), ProduceSettings())  # type: ignore[arg-type]
    with pytest.raises(error, match=f"^{next(iter(given))} must "):
        box.send(**{"topic": "t", "key": b"k", "value": b"v", **given})


def test_a_future_cannot_be_cancelled(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers)
    future = box.send("t", b"k", b"v")
    assert not future.cancel()
    brokers.go.set()
    assert future.result(SECONDS).offset == 0


def test_a_callback_may_send_even_where_there_is_no_room(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up(), buffer_bytes=1)
    second: list[Future[Receipt]] = []
    first = box.send("t", b"k", b"1")
    first.add_done_callback(lambda _: second.append(box.send("t", b"k", b"2")))
    box.flush(SECONDS)
    box.flush(SECONDS)
    assert second[0].result(0).offset == 1


def test_what_a_callback_raises_is_logged_and_no_more(boxes: list[Outbox], caplog: pytest.LogCaptureFixture) -> None:
    brokers = Held()
    box = make(boxes, brokers)

    def bad(_: object) -> None:
        raise ValueError("bad callback")

    def worse(_: object) -> None:
        raise SystemExit(3)

    futures = [box.send("t", b"k", b"v") for _ in range(3)]
    futures[0].add_done_callback(bad)
    futures[1].add_done_callback(worse)
    brokers.go.set()
    box.flush(SECONDS)
    assert [each.result(0).offset for each in futures] == [0, 1, 2]
    assert [record.message[:9] for record in caplog.records] == ["exception", "A callbac"]
    assert box.send("t", b"k", b"v").result(SECONDS).offset == 3


def test_a_callback_that_would_wait_for_itself_is_told_so(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers)
    said: list[str] = []

    def callback(_: object) -> None:
        with pytest.raises(RuntimeError) as caught:
            box.flush()
        said.append(str(caught.value))
        with pytest.raises(RuntimeError) as caught:
            box.close(1)
        said.append(str(caught.value))

    box.send("t", b"k", b"v").add_done_callback(callback)
    brokers.go.set()
    box.flush(SECONDS)
    assert said == [f"{what} within a callback of a record would wait for itself" for what in ("flush", "close")]


def test_flush_waits_for_what_was_sent_before_and_its_callbacks(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers)
    called: list[int] = []
    box.flush(0)
    for number in range(3):
        box.send("t", b"k", b"v", timestamp=number).add_done_callback(
            lambda each: called.append(each.result().timestamp)
        )
    with pytest.raises(BrokerTimeoutError, match=r"^3 records were not acknowledged within 0\.05 s; they are still on"):
        box.flush(0.05)
    brokers.go.set()
    box.flush(SECONDS)
    assert called == [0, 1, 2]


def test_flush_does_not_wait_for_what_comes_later(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up())
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            box.send("t", b"k", b"v")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for _ in range(5):
            box.flush(None)
    finally:
        stop.set()
        thread.join()


def test_nothing_lingers_for_a_flush(boxes: list[Outbox]) -> None:
    brokers = Held()
    brokers.go.set()
    box = make(boxes, brokers, linger=100.0)
    future = box.send("t", b"k", b"v")
    box.flush(SECONDS)
    assert future.result(0).offset == 0


def test_close_fails_what_is_left_and_returns_in_time(boxes: list[Outbox], caplog: pytest.LogCaptureFixture) -> None:
    """Even where the thread hangs; that ends as soon as it can."""
    brokers = Held()
    box = make(boxes, brokers)
    under_way = box.send("t", b"k", b"v")
    assert brokers.held.wait(SECONDS)
    waits = box.send("t", b"k", b"v")
    start = time.monotonic()
    box.close(0.05)
    assert time.monotonic() - start < 5
    for future, doubt in ((under_way, IN_DOUBT), (waits, NOT_WRITTEN)):
        error = future.exception(0)
        assert isinstance(error, BrokerTimeoutError)
        why = "The outbox was closed, and the record was not acknowledged within 0.05 s."
        assert error.message == f"{why}{doubt}"
    with pytest.raises(RuntimeError, match="the outbox is closed"):
        box.send("t", b"k", b"v")
    box.close(0)
    box.flush(0)
    brokers.go.set()
    wait_for_the_end()
    assert not caplog.records, "nobody gave a future a second outcome"


def test_close_tells_what_is_left_where_no_thread_is_to_be_had(
    boxes: list[Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a function of ``atexit`` with Python 3.12."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    brokers = Held()
    box = make(boxes, brokers)
    future = box.send("t", b"k", b"v")
    assert brokers.held.wait(SECONDS)
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        box.close(0.05)
    assert isinstance(future.exception(0), BrokerTimeoutError)
    brokers.go.set()


def test_what_close_has_given_up_is_not_sent(boxes: list[Outbox]) -> None:
    brokers = Held()
    brokers.partitions = {"t": 2}
    box = make(boxes, brokers, linger=0.3)
    futures = [box.send("t", b"k", b"v", partition=partition) for partition in (0, 1)]
    assert brokers.held.wait(SECONDS)
    box.close(0)
    assert [IN_DOUBT in str(future.exception(0)) for future in futures] == [True, False]
    brokers.go.set()
    wait_for_the_end()
    assert [sorted(each.batches) for each in brokers.sent] == [[0]]


def test_close_waits_for_what_was_sent(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up())
    futures = [box.send("t", b"k", b"v") for _ in range(100)]
    box.close(SECONDS)
    assert [each.result(0).offset for each in futures] == list(range(100))


def test_one_that_sent_nothing_has_no_thread_to_end() -> None:
    box = Outbox(made_up(), ProduceSettings())  # type: ignore[arg-type]
    box.flush(0)
    box.close(SECONDS)
    with pytest.raises(RuntimeError, match="closed"):
        box.send("t", b"k", b"v")


def test_one_that_gets_no_thread_leaves_nothing_open(boxes: list[Outbox], monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, signals = made_up(), list[Any]()

    def signal() -> Any:
        signals.append(RealSystem().signal())
        return signals[-1]

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    box = make(boxes, brokers)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(brokers.world, "signal", signal, raising=False)
        exhausted.setattr(brokers.world, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                box.send("t", b"k", b"v")
    assert [each.fileno() for each in signals] == [-1, -1]
    box.flush(0)
    assert box.send("t", b"k", b"v").result(SECONDS).offset == 0


def test_what_waits_is_bounded(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers, buffer_bytes=10 * 2_200)
    futures: list[Future[Receipt]] = []

    def write() -> None:
        futures.extend(box.send("t", b"k", bytes(10)) for _ in range(50))

    thread = threading.Thread(target=write)
    thread.start()
    assert brokers.held.wait(SECONDS)
    for _ in range(100):
        time.sleep(0.001)
        assert box._held <= 10 * 2_200
    assert thread.is_alive()
    brokers.go.set()
    thread.join(SECONDS)
    box.flush(SECONDS)
    assert [each.result(0).offset for each in futures] == list(range(50))
    assert box._held == 0


def test_one_that_takes_all_the_room_goes_alone(boxes: list[Outbox]) -> None:
    box = make(boxes, made_up(), buffer_bytes=100)
    assert [box.send("t", b"k", bytes(5_000)).result(SECONDS).offset for _ in range(3)] == [0, 1, 2]


def test_where_no_room_comes_in_time_the_record_fails(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers, buffer_bytes=1, delivery_timeout_ms=50)
    first = box.send("t", b"k", b"1")
    error = box.send("t", b"k", b"2").exception(0)
    assert isinstance(error, BrokerTimeoutError)
    assert error.message.startswith("What waits took more than the 1 bytes of buffer.memory for 0.05 s")
    assert error.message.endswith(NOT_WRITTEN)
    brokers.go.set()
    box.flush(SECONDS)
    assert first.done()


def test_a_sender_that_waits_for_room_is_told_of_the_end(boxes: list[Outbox]) -> None:
    brokers = Held()
    box = make(boxes, brokers, buffer_bytes=1)
    box.send("t", b"k", b"1")
    said: list[str] = []

    def write() -> None:
        with pytest.raises(RuntimeError) as caught:
            box.send("t", b"k", b"2")
        said.append(str(caught.value))

    thread = threading.Thread(target=write)
    thread.start()
    while not box._hurried:
        time.sleep(0.001)
    box.close(0.05)
    thread.join(SECONDS)
    assert said == ["the outbox is closed"]
    brokers.go.set()


def test_a_child_process_does_not_use_its_parents(boxes: list[Outbox], monkeypatch: pytest.MonkeyPatch) -> None:
    box = make(boxes, made_up())
    box.send("t", b"k", b"v").result(SECONDS)
    box._changed.acquire()  # as a thread of the parent might have had it at that moment
    monkeypatch.setattr("pyspark_kafka_direct.writing.outbox.os.getpid", lambda: 1)
    for use in (lambda: box.send("t", b"k", b"v"), box.flush, lambda: box.close(1)):
        with pytest.raises(RuntimeError, match="belongs to the parent process"):
            use()
    monkeypatch.undo()
    box._changed.release()


def test_a_thread_that_dies_takes_its_records_along(
    boxes: list[Outbox], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Dispatcher, "take", broken)
    box = make(boxes, made_up())
    error = box.send("t", b"k", b"v").exception(SECONDS)
    assert isinstance(error, KafkaDirectError)
    assert error.message == f"The outbox has ended.{NOT_WRITTEN}"
    assert "a defect" in caplog.text
    with pytest.raises(RuntimeError, match="closed"):
        box.send("t", b"k", b"v")


def test_each_error_is_ones_own(boxes: list[Outbox]) -> None:
    """What is raised several times gathers tracebacks."""
    brokers = made_up(lambda _: Answer(code=87))
    box = make(boxes, brokers)
    one, other = (box.send("t", b"k", b"v").exception(SECONDS) for _ in range(2))
    assert one is not other
    brokers = Held()
    box = make(boxes, brokers)
    futures = [box.send("t", b"k", b"v") for _ in range(3)]
    box.close(0)
    assert len({id(future.exception(0)) for future in futures}) == 3
    brokers.go.set()


@pytest.mark.parametrize("seed", range(90, 98))
def test_whatever_happens_each_future_is_done_once_and_truly(
    seed: int, boxes: list[Outbox], caplog: pytest.LogCaptureFixture
) -> None:
    """Leaders move, connections break, records are refused, several threads send, and the outbox is closed early."""
    caplog.set_level(logging.WARNING)
    brokers = Refusing(seed)
    brokers.world = Woken()
    brokers.pool.system = brokers.world
    brokers.partitions = {"t": 3}
    box = make(boxes, brokers, max_request_bytes=700, buffer_bytes=60_000, delivery_timeout_ms=12_000, batch_bytes=400)
    calls: dict[bytes, int] = {}
    futures: dict[bytes, Future[Receipt]] = {}

    def write(name: int) -> None:
        for number in range(150):
            value = b"%d" % (name * 1000 + number)
            try:
                future = futures[value] = box.send("t", b"%d" % (number % 9), value)
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
        box.close(0)
    for thread in threads:
        thread.join(SECONDS)
    box.close(SECONDS)
    assert calls == dict.fromkeys(futures, 1)
    for value, future in futures.items():
        error = future.exception(0)
        logs = [int(value) in log.values for log in brokers.logs]
        if error is None:
            receipt = future.result(0)
            assert brokers.logs[receipt.partition].values[receipt.offset] == int(value)
        else:
            assert isinstance(error, KafkaDirectError)
            assert error.message.endswith(IN_DOUBT) or not any(logs)
    for log in brokers.logs:
        assert len(log.values) == len(set(log.values))
        for name in range(3):
            own = [value for value in log.values if value // 1000 == name]
            assert own == sorted(own)
    assert not caplog.records
