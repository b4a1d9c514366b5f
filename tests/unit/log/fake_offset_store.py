"""A fake topic of an offset store with one transactional id, and fakes of the classes that access it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.errors import BrokerTimeoutError, OutcomeUnknownError, ProducerFencedError
from pyspark_kafka_direct.log import kafka_offset_store
from pyspark_kafka_direct.log.offset_store_log import OffsetStoreLog
from pyspark_kafka_direct.log.offset_store_records import StoreRun
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.batch_producer import WrittenRange
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

STORE_PARTITION = TopicPartition("offsets", 0)


class FakeRecord(NamedTuple):
    """A record, the state of its transaction, and the offset of the control record that ended it, which has no key."""

    key: bytes | None
    value: bytes | None
    state: str
    ended: int = -1


class FakeStoreTopic:
    """The topic.

    Attributes:
        step: Called before each step.
        unknown_outcome: Called at each commit: ``None`` if its outcome is reported, else whether the broker received
            it.
        lag: Called for an end offset: how many records the responding broker lacks.
    """

    def __init__(self) -> None:
        self.log: list[FakeRecord] = []
        self.step: Callable[[str], None] = lambda _: None
        self.unknown_outcome: Callable[[], bool | None] = lambda: None
        self.lag: Callable[[], int] = lambda: 0
        self._epoch = 0
        self._expired_epoch = 0
        self._open: list[int] = []

    def acquire(self) -> int:
        self._end("aborted")
        self._epoch += 1
        return self._epoch

    def append(self, epoch: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        self._check(epoch)
        first = len(self.log)
        self._open += range(first, first + len(records))
        self.log += [FakeRecord(*each, "open") for each in records]
        return first

    def end(self, epoch: int, *, commit: bool) -> None:
        self._check(epoch)
        self._end("committed" if commit else "aborted")

    def _end(self, state: str) -> None:
        for number in self._open:
            self.log[number] = self.log[number]._replace(state=state, ended=len(self.log))
        if self._open:
            self.log.append(FakeRecord(None, None, "end"))
        self._open = []

    def expire_transactional_id(self) -> None:
        """Expire the transactional id, as brokers do after a week without use."""
        self._expired_epoch = self._epoch

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch or epoch <= self._expired_epoch:
            error = ProducerFencedError("Another producer has the transactional id.")
            error.may_be_expired = epoch <= self._expired_epoch
            raise error


class FakeSession:
    """A fake of ``TransactionalProducer``."""

    open_seconds = 0.0
    may_have_timed_out = False

    def __init__(self, topic: FakeStoreTopic) -> None:
        self._topic = topic
        self._epoch = -1
        self._first: int | None = None
        self._count = 0

    def init_transactions(self) -> None:
        self._topic.step("init")
        self._epoch = self._topic.acquire()

    def send(self, _: str, batch: Any) -> None:
        self._topic.step("send")
        self._first = self._topic.append(self._epoch, batch)
        self._count = len(batch)

    def flush(self) -> dict[TopicPartition, WrittenRange]:
        self._topic.step("flush")
        assert self._first is not None
        return {STORE_PARTITION: WrittenRange(self._first, self._first + self._count, self._count, 1)}

    def commit(self) -> None:
        self._topic.step("commit")
        received, self._first = self._topic.unknown_outcome(), None
        if received is not False:
            self._topic.end(self._epoch, commit=True)
        if received is not None:
            self._topic.step("unknown outcome")
            raise OutcomeUnknownError("No response arrived.")

    def abort(self) -> None:
        self._topic.step("abort")
        if self._first is not None:
            self._topic.end(self._epoch, commit=False)

    def close(self) -> None: ...


class FakeCompactedPartition:
    """A fake of ``CompactedPartition``."""

    partition = STORE_PARTITION
    check_follows: Any = CompactedPartition.check_follows
    _error_text = kafka_offset_store._TOPIC_ERROR_TEXT

    def __init__(self, topic: FakeStoreTopic) -> None:
        self._topic = topic

    def start(self, _: object) -> int:
        return 0

    def end(self, _: object, isolation: str = "read_uncommitted") -> int:
        self._topic.step("end")
        return self._end(isolation)

    def wait_for_stable_end(self, _: object) -> int:
        self._topic.step("stable_end")
        end = self._end("read_uncommitted")
        if self._end("read_committed") < end:
            raise BrokerTimeoutError("a transaction is open")
        return end

    def read(self, first: int, until: int, _: object, isolation: str = "read_committed", **__: object) -> Iterator[Any]:
        rows = [
            (each.key, each.value, offset)
            for offset, each in enumerate(self._topic.log[first:until], first)
            if each.key is not None and (each.state == "committed" or isolation == "read_uncommitted")
        ]
        if rows:
            types = {"key": pa.binary(), "value": pa.binary(), "offset": pa.int64()}
            columns = zip(types.items(), zip(*rows, strict=True), strict=True)
            yield pa.record_batch({name: pa.array(column, kind) for (name, kind), column in columns})

    def encode(self, records: Sequence[tuple[bytes, bytes | None]]) -> Iterator[Any]:
        yield list(records)

    def _end(self, isolation: str) -> int:
        end = max(0, len(self._topic.log) - self._topic.lag())
        if isolation == "read_committed":
            open_offsets = (
                offset for offset, each in enumerate(self._topic.log[:end]) if each.state == "open" or each.ended >= end
            )
            return next(open_offsets, end)
        return end


def store_log(topic: FakeStoreTopic, run: str) -> OffsetStoreLog:
    """Return one run of the query ``q``."""
    cluster: Any = SimpleNamespace(pool=SimpleNamespace(system=FakeTimeSystem()), deadline=lambda *_: None)
    partition: Any = FakeCompactedPartition(topic)
    new_session: Any = lambda: FakeSession(topic)  # noqa: E731
    return OffsetStoreLog(cluster, partition, new_session, "q", StoreRun(run, "host", 1, 0), 30.0)
