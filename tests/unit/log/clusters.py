"""A cluster with one topic in a time of its own, and a reader of it; nothing happens in threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.log._future import LogFuture
from pyspark_kafka_direct.log._handlers import Handlers
from pyspark_kafka_direct.log._requests import Requests
from pyspark_kafka_direct.log._work import Work
from pyspark_kafka_direct.log.record import COLUMNS
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.records import arrow_schema
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.errors import KafkaDirectError

TOPIC = "settings"


def tp(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


LOOK_UP = ["end", "topics"]
"""The questions that a look-up of the ends takes: the ends, and then whether they are those of the same topic."""


class Time(Frozen):
    """Waiting for nothing takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class FakeCluster:
    """A cluster with one topic.

    Attributes:
        starts: Log start offsets.
        ends: High watermarks.
        stable: How far a reader may read: the last stable offsets.
        topic_id: ``None``: there is no topic.
        failures: Raised by the next questions, one by each.
        questions: What was asked, in order: "topics", "start", "end".
        patience: How many seconds each question had.
        readers: All that were opened.
    """

    def __init__(self, partitions: int = 1, *, start: int = 0) -> None:
        self.settings = ConnectionSettings((("127.0.0.1", 1),))
        self.system = Time()
        self.pool = SimpleNamespace(system=self.system)
        self.starts = dict.fromkeys(map(tp, range(partitions)), start)
        self.ends = dict(self.starts)
        self.stable: dict[TopicPartition, int] = {}
        self.topic_id: UUID | None = UUID(int=1)
        self.failures: list[BaseException] = []
        self.questions: list[str] = []
        self.patience: list[float] = []
        self.readers: list[FakeReader] = []

    def deadline(self, seconds: float) -> Deadline:
        self.patience.append(seconds)
        return Deadline.after(seconds, system=self.system)

    def ask_another(self) -> None:
        pass

    def topics(self, names: Collection[str], *, deadline: Deadline) -> dict[str, Any]:
        self._asked("topics")
        if self.topic_id is None:
            return {}
        partitions = {each.partition: None for each in self.ends}
        return {TOPIC: SimpleNamespace(topic_id=self.topic_id, partitions=partitions)}

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted", deadline: Deadline
    ) -> dict[TopicPartition, int]:
        start = set(wanted.values()) == {EARLIEST}
        self._asked("start" if start else "end")
        assert isolation_level == "read_uncommitted"
        return {each: (self.starts if start else self.ends)[each] for each in wanted}

    def _asked(self, question: str) -> None:
        self.questions.append(question)
        if self.failures:
            raise self.failures.pop(0)

    def write(self, count: int = 1, partition: int = 0) -> None:
        self.ends[tp(partition)] += count

    def recreate(self, partitions: int = 1) -> None:
        assert self.topic_id is not None
        self.topic_id = UUID(int=self.topic_id.int + 1)
        self.starts = dict.fromkeys(map(tp, range(partitions)), 0)
        self.ends = dict(self.starts)

    def open_reader(self, starts: Mapping[TopicPartition, int]) -> FakeReader:
        self.readers.append(FakeReader(self, starts))
        return self.readers[-1]


class FakeReader:
    """Hands out at most ``most`` records of each partition by poll.

    Attributes:
        failures: Raised by the next polls, one by each.
        before_poll: Called at the beginning of each poll.
    """

    def __init__(self, cluster: FakeCluster, starts: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self.topic_id = cluster.topic_id
        self.positions: dict[TopicPartition, int] = dict(starts)
        self.trouble: dict[TopicPartition, KafkaDirectError] = {}
        self.failures: list[BaseException] = []
        self.before_poll: Callable[[], None] = lambda: None
        self.polls: list[float] = []
        self.most = 1000
        self.closed = False

    def poll(self, seconds: float, wake: Collection[int] = ()) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        assert not self.closed
        self.polls.append(seconds)
        self.before_poll()
        if self.failures:
            raise self.failures.pop(0)
        found = []
        for partition, position in self.positions.items():
            readable = self._cluster.stable.get(partition, self._cluster.ends[partition])
            until = min(readable, position + self.most)
            if until > position:
                found.append((partition, batch(range(position, until))))
                self.positions[partition] = until
        if not found:
            self._cluster.system.now += seconds
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def close(self) -> None:
        self.closed = True


def batch(offsets: range) -> pa.RecordBatch:
    rows = [
        {"key": b"k%d" % each, "value": b"v%d" % each, "offset": each, "timestamp": each * 1000, "headers": None}
        for each in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(COLUMNS))


class Bench:
    """A thread's work without the thread: the test takes its turns.

    Attributes:
        handed: What was handed out: partition and offset.
    """

    def __init__(self, cluster: FakeCluster, wanted: Callable[[int], bool] | None = None, **handlers: Any) -> None:
        self.cluster = cluster
        self.handed: list[tuple[int, int]] = []
        self.errors: list[BaseException] = []
        self.resets: list[BaseException] = []
        self.settled = 0
        self.requests = Requests()
        given: dict[str, Any] = {
            "on_record": lambda record: self.handed.append((record.partition, record.offset)),
            "on_error": self.errors.append,
            "on_reset": self.resets.append,
            **handlers,
        }
        self.work = Work(
            TOPIC,
            cluster,  # type: ignore[arg-type]
            wanted,
            cluster.open_reader,
            Handlers(**given),
            self.requests,
            lambda: self.settled,
        )

    def ask(self, sent: int = 0) -> LogFuture:
        waiter = LogFuture(lambda: False)
        self.requests.to_end(waiter, sent)
        return waiter

    def past(self, offsets: Mapping[TopicPartition, int]) -> LogFuture:
        waiter = LogFuture(lambda: False)
        self.requests.past(waiter, offsets)
        return waiter

    def turns(self, count: int = 1) -> None:
        for _ in range(count):
            self.work.turn()

    def until(self, *waiters: LogFuture, most: int = 200) -> None:
        for _ in range(most):
            if all(waiter.done() for waiter in waiters):
                return
            self.work.turn()
        raise AssertionError("not done")

    @property
    def reader(self) -> FakeReader:
        return self.cluster.readers[-1]


def read_five(cluster: FakeCluster, bench: Bench) -> None:
    cluster.write(5)
    bench.until(bench.ask())
    bench.handed.clear()
