"""A made-up Kafka with one transactional id, and drivers that deliver batches through it, one step at a time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import BrokerTimeoutError, FencedError, OutcomeUnknownError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import EncodedBatch
from pyspark_kafka_direct.writing.markers import Found, MarkerStore
from pyspark_kafka_direct.writing.producer import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARKERS = "m"


class Kafka:
    """One transactional id, its transactions, and the log of markers.

    Attributes:
        data: What was committed, in order.
        log: The log of markers: value and state of each record; ends of transactions have no value.
        step: Called before each step of a driver.
        unclear: Asked whether the outcome of this commit is not told, and if so whether it was heard.
        lag: Asked how many records of the log a broker misses that is asked for the newest marker.
    """

    def __init__(self) -> None:
        self.data: list[str] = []
        self.log: list[tuple[bytes | None, str]] = []
        self.step: Callable[[str], None] = lambda _: None
        self.unclear: Callable[[], bool | None] = lambda: None
        self.lag: Callable[[], int] = lambda: 0
        self._epoch = 0
        self._sent: list[str] = []
        self._marker: int | None = None

    def take_over(self) -> int:
        self._end("aborted")
        self._epoch += 1
        return self._epoch

    def take(self, epoch: int, topic: str, value: bytes) -> int:
        self._check(epoch)
        if topic != MARKERS:
            self._sent.append(value.decode())
            return 0
        self._marker = len(self.log)
        self.log.append((value, "open"))
        return self._marker

    def end(self, epoch: int, *, commit: bool) -> None:
        self._check(epoch)
        if commit:
            self.data += self._sent
        self._end("committed" if commit else "aborted")

    def _end(self, state: str) -> None:
        if self._marker is not None:
            self.log[self._marker] = (self.log[self._marker][0], state)
            self.log.append((None, "end"))
        self._sent, self._marker = [], None

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise FencedError("Another writer has taken over.")


class Session:
    """Stands in for a ``TransactionalSession``."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._epoch = 0
        self._offset = -1
        self._is_open = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def init(self) -> None:
        self._kafka.step("init")
        self._epoch, self._is_open = self._kafka.take_over(), False

    def send(self, topic: str, batch: EncodedBatch, *, more: bool = False) -> None:
        self._kafka.step("send")
        self._is_open = True
        self._offset = self._kafka.take(self._epoch, topic, bytes(batch.data))

    def flush(self) -> dict[TopicPartition, Written]:
        self._kafka.step("flush")
        return {TopicPartition(MARKERS, 0): Written(self._offset, self._offset + 1, 1, 1)}

    def commit(self) -> None:
        self._kafka.step("commit")
        heard, self._is_open = self._kafka.unclear(), False
        if heard is not False:
            self._kafka.end(self._epoch, commit=True)
        if heard is not None:
            self._kafka.step("unclear")
            raise OutcomeUnknownError("No answer came.")

    def abort(self) -> None:
        self._kafka.step("abort")
        if self._is_open:
            self._kafka.end(self._epoch, commit=False)


class Store(MarkerStore):
    """Reads markers from the made-up log, perhaps as a broker knows it that is behind."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(cluster(), MARKERS)
        self._kafka = kafka

    def find(self, key: str, deadline: object = None) -> Found:
        self._kafka.step("find")
        end = max(0, len(self._kafka.log) - self._kafka.lag())
        if end and self._kafka.log[end - 1][0] is not None:
            raise BrokerTimeoutError("a transaction is open")
        values = [value for value, state in self._kafka.log[:end] if state == "committed"]
        return Found(values[-1] if values else None, end)

    def _newest(self, key: bytes, first: int, until: int, *_: object, **__: object) -> tuple[bool, bytes | None]:
        values = [value for value, _ in self._kafka.log[first:until] if value is not None]
        return bool(values), values[-1] if values else None

    def encode(self, key: str, value: bytes | None) -> EncodedBatch:
        return text(value or b"")


def cluster() -> Any:
    return SimpleNamespace(pool=SimpleNamespace(system=Frozen()), deadline=lambda: None)


def text(value: bytes) -> EncodedBatch:
    return EncodedBatch(0, 1, len(value), bytearray(value))


class Killed(BaseException):
    """The driver is dead."""


class Driver:
    """Runs in a thread of its own, but only while it has the turn.

    Attributes:
        done: Whether it has ended.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self.done = False
        self._killed = False
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def go_on(self, *, kill: bool = False) -> None:
        """Let it do one step, or die before it."""
        self._killed = kill
        self._mine.release()
        self._others.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Called by the driver before each step."""
        self._others.release()
        self._mine.acquire()
        if self._killed:
            raise Killed

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self, run: Callable[[], None]) -> None:
        self._mine.acquire()
        try:
            run()
        except Killed:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self.done = True
            self._others.release()


def interleaved(kafka: Kafka, runs: Iterable[Callable[[], None]]) -> list[Driver]:
    """Drivers whose steps on Kafka wait for their turn."""
    drivers = [Driver(run) for run in runs]

    def step(_: str) -> None:
        for driver in drivers:
            if driver.is_here():
                driver.pause()

    kafka.step = step
    return drivers
