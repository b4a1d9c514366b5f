"""Stands for the broker that a range is read from: gives the answers that a test has written down."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tests.unit.records.batches import Batch, Rec

from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.loss import LogState
from pyspark_kafka_direct.reading._fetch_loop import FetchLoop
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.reading.request import RangeRequest
from pyspark_kafka_direct.records.counting import RecordCounter
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.fetch import FetchedPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading._replica import Replica

TOPIC_ID = UUID(int=1)
OFFSETS = OffsetRange("flights", 3, 10, 50)


def answer(code: int = 0, **fields: Any) -> FetchedPartition:
    """A broker's answer; without anything else the empty one of a log that goes on to offset 100."""
    usual: dict[str, Any] = {
        "error_code": code,
        "high_watermark": 100 if code == 0 else -1,
        "last_stable_offset": 100 if code == 0 else -1,
        "log_start_offset": 0,
        "aborted": (),
        "preferred_read_replica": -1,
        "current_leader": None,
        "diverging_epoch": None,
        "throttle_ms": 0,
        "records": memoryview(b""),
    }
    return FetchedPartition(**(usual | fields))


def records(first: int, until: int, *, epoch: int = 3, **fields: Any) -> FetchedPartition:
    """An answer with one batch of the offsets ``[first, until)``, written under a leader of that epoch."""
    batch = Batch(tuple(Rec() for _ in range(first, until)), first, leader_epoch=epoch)
    return answer(records=memoryview(batch.encode()), **fields)


class Place:
    """What ``Replica`` is to the loop: notes what it is told, and answers as the test says.

    Args:
        script: Answers, and errors to raise instead of one, in order.

    Attributes:
        silent_before: Below this offset the answer is ``silence``, for good.
    """

    def __init__(self, *script: FetchedPartition | Exception) -> None:
        self.on_leader = True
        self.broker = "broker:9092"
        self.end_may_lag = False
        self.recreated_as: UUID | None = None
        self.told: list[str] = []
        self.asked: list[int] = []
        self.sizes: list[int] = []
        self.epochs: list[int] = []
        self.log = LogState(0, 100, TOPIC_ID)
        self.first_local = 0
        self.silent_before = 0
        self.silence = answer()
        self._script = deque(script)
        self._under_way = False

    def ask(self, offset: int, max_bytes: int, _: object, *, last_epoch: int = -1) -> None:
        if not self._under_way:
            self.asked.append(offset)
            self.sizes.append(max_bytes)
            self.epochs.append(last_epoch)
        self._under_way = True

    def answer(self, _: object) -> FetchedPartition:
        self._under_way = False
        if self.asked[-1] < self.silent_before:
            return self.silence
        following = self._script.popleft()
        if isinstance(following, Exception):
            raise following
        return following

    def drop(self) -> None:
        self.told.append("drop")

    def return_to_leader(self) -> None:
        self.told.append("leader")
        self.on_leader = True

    def prefer(self, broker_id: int) -> None:
        self.told.append(f"prefer {broker_id}")
        self.on_leader = False

    def log_state(self, _: object) -> LogState:
        return self.log

    def local_start(self, _: object) -> int:
        return self.first_local


def count(
    place: Place, counts: ReadCounts | None = None, *, poll_timeout: float = 30.0, fail: bool = True, **kafka: str
) -> int:
    """Counts the records of ``OFFSETS`` that the place gives; the read is that of any range."""
    names = {name.replace("_", "."): text for name, text in kafka.items()}
    quick = {"bootstrap.servers": "broker:9092", "retry.backoff.ms": "1", "retry.backoff.max.ms": "1"}
    request = RangeRequest(OFFSETS, (), TOPIC_ID, poll_timeout=poll_timeout, fail_on_data_loss=fail)
    counter = RecordCounter(OFFSETS.topic, OFFSETS.partition, OFFSETS.from_offset, OFFSETS.until_offset)
    counts = counts if counts is not None else ReadCounts()
    loop = FetchLoop(*connection_settings(quick | names), request, cast("Replica", place), counter, counts)
    for _ in loop.run():
        pass
    return counter.records
