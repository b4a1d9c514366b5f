"""A fake Kafka with one transactional id, and drivers that commit batches to it one step at a time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.errors import OutcomeUnknownError, ProducerFencedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer import sink_state_store
from pyspark_kafka_direct.producer.batch_producer import WrittenRange
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore
from pyspark_kafka_direct.producer.transactional_records import KeyRecord
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_kafka_direct.client.system import System

SINK_STATE_TOPIC = "m"


class FakeTransactionLog:
    """One transactional id, its transactions, and the sink state topic.

    Attributes:
        data: The committed records, in order.
        log: The sink state topic: value and state of each record; control records have no value.
        step: Called before each step of a driver.
        outcome_unknown: Returns None if a commit is confirmed, else whether the unconfirmed commit succeeds.
        lag: Returns the number of records that the responding broker lacks.
    """

    def __init__(self) -> None:
        self.data: list[str] = []
        self.log: list[tuple[bytes | None, str]] = []
        self.step: Callable[[str], None] = lambda _: None
        self.outcome_unknown: Callable[[], bool | None] = lambda: None
        self.lag: Callable[[], int] = lambda: 0
        self._epoch = 0
        self._sent: list[str] = []
        self._state_offset: int | None = None

    def acquire(self) -> int:
        self._end("aborted")
        self._epoch += 1
        return self._epoch

    def append(self, epoch: int, topic: str, value: bytes) -> int:
        self._check(epoch)
        if topic != SINK_STATE_TOPIC:
            self._sent.append(value.decode())
            return 0
        self._state_offset = len(self.log)
        self.log.append((value, "open"))
        return self._state_offset

    def end(self, epoch: int, *, commit: bool) -> None:
        self._check(epoch)
        if commit:
            self.data += self._sent
        self._end("committed" if commit else "aborted")

    def _end(self, state: str) -> None:
        if self._state_offset is not None:
            self.log[self._state_offset] = (self.log[self._state_offset][0], state)
            self.log.append((None, "end"))
        self._sent, self._state_offset = [], None

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise ProducerFencedError("Another producer acquired the transactional id.")


class FakeTransactionalProducer:
    """Stands in for a ``TransactionalProducer``."""

    def __init__(self, log: FakeTransactionLog, system: System, timeout_ms: int) -> None:
        self._log = log
        self._system = system
        self._timeout_ms = timeout_ms
        self._started_at = system.monotonic()
        self._epoch = 0
        self._offset = -1
        self._is_open = False

    def __enter__(self) -> FakeTransactionalProducer:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release."""

    @property
    def open_seconds(self) -> float:
        return self._system.monotonic() - self._started_at

    @property
    def may_have_timed_out(self) -> bool:
        return self.open_seconds >= 0.9 * self._timeout_ms / 1000

    def init_transactions(self) -> None:
        self._log.step("init_transactions")
        self._started_at = self._system.monotonic()
        self._epoch, self._is_open = self._log.acquire(), False

    def send(self, topic: str, batch: EncodedBatch, *, more_follows: bool = False) -> None:
        self._log.step("send")
        self._is_open = True
        self._offset = self._log.append(self._epoch, topic, bytes(batch.data))

    def flush(self) -> dict[TopicPartition, WrittenRange]:
        self._log.step("flush")
        return {TopicPartition(SINK_STATE_TOPIC, 0): WrittenRange(self._offset, self._offset + 1, 1, 1)}

    def commit(self) -> None:
        self._log.step("commit")
        committed, self._is_open = self._log.outcome_unknown(), False
        if committed is not False:
            self._log.end(self._epoch, commit=True)
        if committed is not None:
            self._log.step("outcome_unknown")
            raise OutcomeUnknownError("There was no response.")

    def abort(self) -> None:
        self._log.step("abort")
        if self._is_open:
            self._log.end(self._epoch, commit=False)


class FoundRecords(NamedTuple):
    newest: KeyRecord | None
    undecided: KeyRecord | None


class FakeSinkStatePartition:
    """Reads the fake log, possibly from a broker that lags."""

    partition = TopicPartition(SINK_STATE_TOPIC, 0)
    check_follows: Any = CompactedPartition.check_follows
    _error_text = sink_state_store._ERROR_TEXT

    def __init__(self, log: FakeTransactionLog) -> None:
        self._log = log

    def end(self, _: object) -> int:
        self._log.step("read")
        return max(0, len(self._log.log) - self._log.lag())

    def start(self, _: object) -> int:
        return 0

    def find_newest(self, _key: bytes, first: int, until: int, *_args: object, **_more: object) -> FoundRecords:
        newest = undecided = None
        for offset in range(first, until):
            value, _ = self._log.log[offset]
            if value is not None:
                undecided = KeyRecord(offset, value)
                continue
            if undecided is not None and self._log.log[undecided.offset][1] == "committed":
                newest = undecided
            undecided = None
        return FoundRecords(newest, undecided)


class FakeSinkStateStore(SinkStateStore):
    """Reads sink state records from the fake log."""

    def __init__(self, log: FakeTransactionLog) -> None:
        super().__init__(fake_cluster(), SINK_STATE_TOPIC)
        partition: Any = FakeSinkStatePartition(log)
        self._log = partition

    def encode(self, key: str, value: bytes | None) -> EncodedBatch:
        return single_record_batch(value or b"")


def fake_cluster() -> Any:
    return SimpleNamespace(pool=SimpleNamespace(system=FakeTimeSystem()), deadline=lambda: None)


def single_record_batch(value: bytes) -> EncodedBatch:
    return EncodedBatch(0, 1, len(value), bytearray(value))


class Killed(BaseException):
    """The driver was killed."""


class SteppedDriver:
    """Runs in its own thread, one step at a time."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.done = False
        self._killed = False
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def step_once(self, *, kill: bool = False) -> None:
        """Let the driver do its next step, or kill it before."""
        self._killed = kill
        self._mine.release()
        self._others.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Wait in the driver's thread for the next step."""
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


def interleaved(log: FakeTransactionLog, runs: Iterable[Callable[[], None]]) -> list[SteppedDriver]:
    """Return drivers whose steps on Kafka wait for ``step_once``."""
    drivers = [SteppedDriver(run) for run in runs]

    def step(_: str) -> None:
        for driver in drivers:
            if driver.is_here():
                driver.pause()

    log.step = step
    return drivers
