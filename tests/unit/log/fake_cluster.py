"""A fake cluster with one topic and simulated time, and a worker that reads it without threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import pyarrow as pa
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.fake_witnesses import FakeAbsenceCheck

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.client.witnesses import ReplicaReports
from pyspark_kafka_direct.config.client_settings import ConnectionSettings
from pyspark_kafka_direct.errors import TransientBrokerError
from pyspark_kafka_direct.log.log_worker import LogWorker
from pyspark_kafka_direct.log.pending_reads import LogFuture
from pyspark_kafka_direct.log.record_callbacks import LOG_COLUMNS, LogCallbacks
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import TopicReport
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log.log_clients import ResumePoint
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

TOPIC = "settings"


def tp(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


END_OFFSET_REQUESTS = ["end", "replicas"]
"""The requests that fetch end offsets: the offsets, then leader epochs and the topic id of all replicas' brokers."""


class FakeTime(FakeTimeSystem):
    """Waiting for descriptors takes its full time."""

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
        stable: Last stable offsets, if lower.
        topic_id: ``None``: the topic does not exist.
        failures: Each of the next requests raises one of them.
        requests: The requests in order: "topics", "start", "end", "replicas".
        timeouts: The timeouts of the requests in seconds.
        consumers: All that were opened.
        on_floors: Called when brokers are asked for the leader.
        cleanup_policy: The topic's.
        max_records: Of consumers that are opened.
        on_request: Called after each request was recorded.
        reports: What the brokers of replicas report next, instead of the current state; the last one remains.
        unresolved: Why the reports do not suffice.
    """

    def __init__(self, partitions: int = 1, *, start: int = 0) -> None:
        self.settings = ConnectionSettings((("127.0.0.1", 1),))
        self.system = FakeTime()
        self.pool = SimpleNamespace(system=self.system)
        self.starts = dict.fromkeys(map(tp, range(partitions)), start)
        self.ends = dict(self.starts)
        self.stable: dict[TopicPartition, int] = {}
        self.topic_id: UUID | None = UUID(int=1)
        self.failures: list[BaseException] = []
        self.requests: list[str] = []
        self.timeouts: list[float] = []
        self.consumers: list[FakeLogConsumer] = []
        self.on_floors: Callable[[], object] = lambda: None
        self.max_records = 1000
        self.was_reached = True
        self.nodes = {1: Node(1, "broker", 1)}
        self.cleanup_policy = "compact"
        self.on_request: Callable[[], object] = lambda: None
        self.epochs = dict.fromkeys(self.starts, 3)
        self.reports: list[list[TopicReport]] = []
        self.unresolved: TransientBrokerError | None = None

    def deadline(self, seconds: float) -> Deadline:
        self.timeouts.append(seconds)
        return Deadline.after(seconds, system=self.system)

    def absence_check(self, suspects: Mapping[TopicPartition, UUID | None]) -> FakeAbsenceCheck:
        def report(_: TopicPartition) -> TopicReport:
            return TopicReport(
                1, self.topic_id, None if self.topic_id is None else {each.partition: 0 for each in self.ends}
            )

        return FakeAbsenceCheck(suspects, report, self.system)

    def raise_epoch_floors(
        self, names: Collection[str], *, partitions: Collection[TopicPartition] = (), deadline: Deadline | None = None
    ) -> None:
        self.on_floors()

    def replica_witnesses(self) -> Self:
        return self

    def request_reports(
        self, topic_ids: Mapping[str, UUID | None], partitions: object, deadline: Deadline
    ) -> ReplicaReports:
        self._record_request("replicas")
        [(topic, topic_id)] = topic_ids.items()
        if self.reports:
            reports = self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
            return ReplicaReports({topic: reports}, self.unresolved)
        unresolved = self.unresolved
        if self.topic_id not in (None, topic_id):
            unresolved = TransientBrokerError("another topic id")
        epochs = {each.partition: self.epochs.get(each, 0) for each in self.ends}
        report = TopicReport(1, self.topic_id, None if self.topic_id is None else epochs)
        return ReplicaReports({topic: [report]}, unresolved)

    def known_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        return {each: PartitionLeader(Node(1, "broker", 1), self.epochs.get(each, 0)) for each in partitions}

    def call_any_broker(self, call: object, deadline: Deadline, tries: int) -> dict[str, str]:
        self._record_request("config")
        return {"cleanup.policy": self.cleanup_policy}

    def use_next_broker(self) -> None:
        pass

    def topics(self, names: Collection[str], *, deadline: Deadline) -> dict[str, Any]:
        self._record_request("topics")
        if self.topic_id is None:
            return {}
        partitions = {each.partition: None for each in self.ends}
        return {TOPIC: SimpleNamespace(topic_id=self.topic_id, partitions=partitions)}

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted", deadline: Deadline
    ) -> dict[TopicPartition, int]:
        start = set(wanted.values()) == {EARLIEST}
        self._record_request("start" if start else "end")
        assert isolation_level == "read_uncommitted"
        return {each: (self.starts if start else self.ends)[each] for each in wanted}

    def log_bounds(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.raise_epoch_floors({each.topic for each in partitions})
        starts = self.offsets(dict.fromkeys(partitions, EARLIEST), deadline=deadline)
        ends = self.offsets(dict.fromkeys(partitions, LATEST), deadline=deadline)
        return {each: (starts[each], ends[each]) for each in partitions}

    def _record_request(self, request: str) -> None:
        self.requests.append(request)
        self.on_request()
        if self.failures:
            raise self.failures.pop(0)

    def write(self, count: int = 1, partition: int = 0) -> None:
        self.ends[tp(partition)] += count

    def add_partition(self, *, start: int = 0, end: int = 0) -> None:
        added = tp(len(self.ends))
        self.starts[added], self.ends[added] = start, end

    def recreate(self, partitions: int = 1) -> None:
        assert self.topic_id is not None
        self.topic_id = UUID(int=self.topic_id.int + 1)
        self.starts = dict.fromkeys(map(tp, range(partitions)), 0)
        self.ends = dict(self.starts)

    def open_consumer(self, start: ResumePoint) -> FakeLogConsumer:
        self.consumers.append(FakeLogConsumer(self, start))
        return self.consumers[-1]


class FakeLogConsumer:
    """Returns at most ``max_records`` of each partition per poll.

    Attributes:
        failures: Each of the next polls raises one of them.
        before_poll: Called at the beginning of each poll.
    """

    def __init__(self, cluster: FakeCluster, start: ResumePoint) -> None:
        self._cluster = cluster
        self.start = start
        self.topic_id = cluster.topic_id
        self.positions: dict[TopicPartition, int] = dict(start.offsets)
        self.last_epochs: dict[TopicPartition, int] = dict.fromkeys(start.offsets, 2)
        self.transient_errors: dict[TopicPartition, KafkaDirectError] = {}
        self.failures: list[BaseException] = []
        self.before_poll: Callable[[], None] = lambda: None
        self.polls: list[float] = []
        self.max_records = cluster.max_records
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
            until = min(readable, position + self.max_records)
            if until > position:
                found.append((partition, batch(range(position, until))))
                self.positions[partition] = until
        if not found:
            self._cluster.system.now += seconds
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def assign(self, starts: Mapping[TopicPartition, int], topic_ids: Mapping[TopicPartition, UUID]) -> None:
        self.positions.update(starts)

    def close(self) -> None:
        self.closed = True


def batch(offsets: range) -> pa.RecordBatch:
    rows = [
        {"key": b"k%d" % each, "value": b"v%d" % each, "offset": each, "timestamp": each * 1000, "headers": None}
        for each in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(LOG_COLUMNS))


class WorkerHarness:
    """A worker whose iterations the test runs.

    Attributes:
        delivered: Partition and offset of the records that were delivered.
    """

    def __init__(
        self, cluster: FakeCluster, partition_filter: Callable[[int], bool] | None = None, **callbacks: Any
    ) -> None:
        self.cluster = cluster
        self.delivered: list[tuple[int, int]] = []
        self.errors: list[BaseException] = []
        self.resets: list[BaseException] = []
        self.completed_count = 0
        self.losses: list[tuple[DataLossCause, dict[TopicPartition, int]]] = []
        given: dict[str, Any] = {
            "on_record": lambda record: self.delivered.append((record.partition, record.offset)),
            "on_error": self.errors.append,
            "on_reset": self.resets.append,
            **callbacks,
        }
        self.worker = LogWorker(
            TOPIC,
            cluster,  # type: ignore[arg-type]
            partition_filter,
            cluster.open_consumer,  # type: ignore[arg-type]
            LogCallbacks(**given),
            lambda: self.completed_count,
            lambda cause, offsets: self.losses.append((cause, dict(offsets))),
        )
        self.pending_reads = self.worker.pending_reads

    def read_to_end(self, sent_count: int = 0) -> LogFuture:
        future = LogFuture(lambda: False, SYSTEM)
        self.pending_reads.add_read_to_end(future, sent_count)
        return future

    def add_read_past(self, offsets: Mapping[TopicPartition, int]) -> LogFuture:
        future = LogFuture(lambda: False, SYSTEM)
        self.pending_reads.add_read_past(future, offsets)
        return future

    def run_times(self, count: int = 1) -> None:
        for _ in range(count):
            self.worker.run_once()

    def run_until_done(self, *futures: LogFuture, max_runs: int = 200) -> None:
        for _ in range(max_runs):
            if all(future.done() for future in futures):
                return
            self.worker.run_once()
        raise AssertionError("not done")

    @property
    def consumer(self) -> FakeLogConsumer:
        return self.cluster.consumers[-1]


def read_five(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(5)
    harness.run_until_done(harness.read_to_end())
    harness.delivered.clear()
