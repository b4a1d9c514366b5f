"""A fake ``ReadReplica`` that returns the responses of a test's script.

A script states which response follows which, such as thousands of empty ones before a divergence of a deposed leader.
Brokers return such sequences only over several elections; the scenario ``range_reads`` draws these.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tests.settings import parse_client_params, task_settings
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.fake_witnesses import FakeAbsenceCheck
from tests.unit.records.batches import Batch, Rec

from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition, ReadReplica
from pyspark_kafka_direct.consumer.fetcher import Fetcher
from pyspark_kafka_direct.consumer.range_counter import RecordCounter
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.data_loss import LeaderLogState, TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

TOPIC_ID = UUID(int=1)
OFFSETS = OffsetRange("flights", 3, 10, 50)


def response(code: int = 0, **fields: Any) -> FetchResponsePartition:
    """A fetch response, by default the empty one of a log with the end offset 100."""
    defaults: dict[str, Any] = {
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
    return FetchResponsePartition(**(defaults | fields))


def records(first: int, until: int, *, epoch: int = 3, **fields: Any) -> FetchResponsePartition:
    """A response with one batch of the offsets ``[first, until)`` and that leader epoch."""
    batch = Batch(tuple(Rec() for _ in range(first, until)), first, leader_epoch=epoch)
    return response(records=memoryview(batch.encode()), **fields)


class ScriptedReplica:
    """Records calls, and returns the scripted responses, or raises the scripted errors, in order."""

    connection_settings: ConnectionSettings
    fetch_settings: FetchSettings

    def __init__(self, *script: FetchResponsePartition | Exception) -> None:
        self.on_leader = True
        self.broker = "broker:9092"
        self.end_may_be_stale = False
        self.calls: list[str] = []
        self.confirmed_epochs: list[int] = []
        self.fetched_offsets: list[int] = []
        self.sizes: list[int] = []
        self.epochs: list[int] = []
        self.log = LeaderLogState(0, 100, TOPIC_ID)
        self.first_local_offset: int | None = 0
        self.reports: Callable[[], TopicReport] = lambda: TopicReport(1)  # of a broker about the topic
        self.is_deposed = False
        self.response_seconds = 0.0
        self.system = FakeTimeSystem()
        self.empty_before = 0  # fetches below this offset return ``empty_response``
        self.empty_response = response()
        self._script = deque(script)
        self._in_flight = False

    def send_fetch(self, offset: int, max_bytes: int, _: object, *, last_fetched_epoch: int = -1) -> None:
        if not self._in_flight:
            self.fetched_offsets.append(offset)
            self.sizes.append(max_bytes)
            self.epochs.append(last_fetched_epoch)
            if self._script and isinstance(self._script[0], TopicNotFoundError):  # found by a metadata refresh
                raise self._script.popleft()  # type: ignore[misc]
        self._in_flight = True

    def receive_fetch(self, _: object) -> FetchResponsePartition:
        self._in_flight = False
        self.system.now += self.response_seconds
        if self.fetched_offsets[-1] < self.empty_before:
            return self.empty_response
        scripted = self._script.popleft()
        if isinstance(scripted, Exception):
            raise scripted
        return scripted

    def release(self) -> None:
        self.calls.append("release")

    def switch_to_leader(self) -> None:
        self.calls.append("leader")
        self.on_leader = True

    def switch_to_replica(self, broker_id: int) -> None:
        self.calls.append(f"replica {broker_id}")
        self.on_leader = False

    def note_later_epoch(self, epoch: int, _: object) -> None:
        self.confirmed_epochs.append(epoch)

    def fetch_log_state(self, _: object) -> LeaderLogState:
        return self.log

    def local_log_start(self, _: object) -> int | None:
        return self.first_local_offset

    def check_leader(self, _: object) -> None:
        if self.is_deposed:
            raise TransientBrokerError("fenced")

    def absence_check(self) -> FakeAbsenceCheck:
        return FakeAbsenceCheck({OFFSETS.topic_partition: TOPIC_ID}, lambda _: self.reports(), self.system)


def count(
    replica: ScriptedReplica,
    counts: ReadCounts | None = None,
    *,
    poll_timeout: float = 30.0,
    fail: bool = True,
    **kafka: str,
) -> int:
    """Counts the records of ``OFFSETS`` that the replica returns, with a real ``Fetcher`` and the replica's clock."""
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    quick_retries = {"bootstrap.servers": "broker:9092", "retry.backoff.ms": "10", "retry.backoff.max.ms": "10"}
    counter = RecordCounter(OFFSETS.topic, OFFSETS.partition, OFFSETS.from_offset, OFFSETS.until_offset)
    counts = counts if counts is not None else ReadCounts()
    config = task_settings(
        *parse_client_params(quick_retries | settings), poll_timeout=poll_timeout, fail_on_data_loss=fail
    )
    replica.connection_settings, replica.fetch_settings = config
    fetcher = Fetcher(
        RangeTask(OFFSETS, TOPIC_ID),
        cast("ReadReplica", replica),
        counter,
        counts,
        system=replica.system,
    )
    for _ in fetcher.run():
        pass
    return counter.records
