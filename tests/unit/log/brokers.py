"""A made-up topic of an offset store, with one transactional id, and what stands between it and a ``StoreLog``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import BrokerTimeoutError, FencedError, OutcomeUnknownError
from pyspark_kafka_direct.log._store_log import StoreLog
from pyspark_kafka_direct.log._stored_offsets import Run
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.writing.producer import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

STORE = TopicPartition("offsets", 0)


class Record(NamedTuple):
    """A record of the log, what became of its transaction, and where that is written; that has no key itself."""

    key: bytes | None
    value: bytes | None
    state: str
    ended: int = -1


class Topic:
    """The log.

    Attributes:
        step: Called before each step.
        unclear: Asked whether the outcome of this commit is not told, and if so whether it was heard.
        lag: Asked how many records the broker misses that is asked where the log ends.
    """

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.step: Callable[[str], None] = lambda _: None
        self.unclear: Callable[[], bool | None] = lambda: None
        self.lag: Callable[[], int] = lambda: 0
        self._epoch = 0
        self._forgotten = 0
        self._open: list[int] = []

    def take_over(self) -> int:
        self._end("aborted")
        self._epoch += 1
        return self._epoch

    def append(self, epoch: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        self._check(epoch)
        first = len(self.log)
        self._open += range(first, first + len(records))
        self.log += [Record(*each, "open") for each in records]
        return first

    def end(self, epoch: int, *, commit: bool) -> None:
        self._check(epoch)
        self._end("committed" if commit else "aborted")

    def _end(self, state: str) -> None:
        for number in self._open:
            self.log[number] = self.log[number]._replace(state=state, ended=len(self.log))
        if self._open:
            self.log.append(Record(None, None, "end"))
        self._open = []

    def forget(self) -> None:
        """Do what brokers do with a transactional id that was not used for a week."""
        self._forgotten = self._epoch

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch or epoch <= self._forgotten:
            error = FencedError("Another writer has taken over.")
            error.forgotten = epoch <= self._forgotten
            raise error


class Session:
    """Stands in for a ``TransactionalSession``."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._epoch = -1
        self._first: int | None = None
        self._count = 0

    def init(self) -> None:
        self._topic.step("init")
        self._epoch = self._topic.take_over()

    def send(self, _: str, batch: Any) -> None:
        self._topic.step("send")
        self._first = self._topic.append(self._epoch, batch)
        self._count = len(batch)

    def flush(self) -> dict[TopicPartition, Written]:
        self._topic.step("flush")
        assert self._first is not None
        return {STORE: Written(self._first, self._first + self._count, self._count, 1)}

    def commit(self) -> None:
        self._topic.step("commit")
        heard, self._first = self._topic.unclear(), None
        if heard is not False:
            self._topic.end(self._epoch, commit=True)
        if heard is not None:
            self._topic.step("unclear")
            raise OutcomeUnknownError("No answer came.")

    def abort(self) -> None:
        self._topic.step("abort")
        if self._first is not None:
            self._topic.end(self._epoch, commit=False)

    def close(self) -> None:
        """Nothing to give back."""


class Partition:
    """Stands in for a ``CompactedPartition``."""

    partition = STORE

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def start(self, _: object) -> int:
        return 0

    def end(self, _: object, isolation: str = "read_uncommitted") -> int:
        self._topic.step("end")
        return self._end(isolation)

    def stable_end(self, _: object) -> int:
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
            open_ones = (n for n, each in enumerate(self._topic.log[:end]) if each.state == "open" or each.ended >= end)
            return next(open_ones, end)
        return end


def store_log(topic: Topic, run: str) -> StoreLog:
    """Return one run of the query ``q``."""
    cluster: Any = SimpleNamespace(pool=SimpleNamespace(system=Frozen()), deadline=lambda *_: None)
    partition: Any = Partition(topic)
    session: Any = lambda: Session(topic)  # noqa: E731
    return StoreLog(cluster, partition, session, "q", Run(run, "host", 1, 0), 30.0)
