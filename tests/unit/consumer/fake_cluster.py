"""A fake cluster and clock for ``PartitionConsumer``: logs are in memory, and brokers respond like Kafka's.

Fetch requests and responses are real bytes, which kafka-python reads and writes on this side. Background tasks run at
once, unless the test holds them.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse
from tests.unit.client.fake_witnesses import FakeAbsenceCheck
from tests.unit.records.batches import CONTROL, TRANSACTIONAL, Batch, Rec, marker

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import Node, PartitionMetadata, TopicMetadata, topic_report
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.config.client_settings import ConnectionSettings, FetchSettings
from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.system import WakeupSignal
    from pyspark_kafka_direct.config.client_settings import IsolationLevel
    from pyspark_kafka_direct.planning.data_loss import TopicReport

Topic = FetchResponse.FetchableTopicResponse
PartitionData = Topic.PartitionData

LATENCY = 0.001


class FakeSystem(RealSystem):
    """A clock with scheduled actions; descriptors are counters."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.hold_background = False  # background tasks wait until ``run_background``
        self.waits: list[float] = []
        self._busy_iterations = 0
        self._background: deque[Callable[[], None]] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = iter(range(100, 10**9))
        self._readable: dict[int, Callable[[], bool]] = {}

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"the consumer slept for {seconds} s, which wakeup_fds cannot interrupt")

    def schedule(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), action))

    def descriptor(self, readable: Callable[[], bool]) -> int:
        number = next(self._numbers)
        self._readable[number] = readable
        return number

    def readable(self, descriptor: int) -> bool:
        return self._readable[descriptor]()

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        assert all(number in self._readable for number in descriptors)
        self.waits.append(seconds)
        self._busy_iterations = self._busy_iterations + 1 if seconds <= 0 else 0
        assert self._busy_iterations < 1000, "a busy loop"
        until = self.now + seconds
        while not any(self.readable(number) for number in descriptors):
            if not self._events or self._events[0][0] > until:
                self.now = until
                return
            self.now = max(self.now, self._events[0][0])
            heapq.heappop(self._events)[2]()

    def wakeup_signal(self) -> WakeupSignal:
        return _FakeSignal(self)

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        self._background.append(run)
        if not self.hold_background:
            self.run_background()

    def run_background(self) -> None:
        while self._background:
            self._background.popleft()()


class _FakeSignal:
    def __init__(self, system: FakeSystem) -> None:
        self._is_set = False
        self._number = system.descriptor(lambda: self._is_set)

    def fileno(self) -> int:
        return self._number

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def close(self) -> None:
        self._is_set = False


@dataclass
class FakeLog:
    """A partition's log, with epochs and offsets as in Kafka."""

    leader: int = 1
    epoch: int = 5
    start: int = 0
    batches: list[Batch] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # producer id to the first offset of its transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, its marker's offset
    uncommitted: int = 0  # offsets between the high watermark and the end
    empty_until: int = 0  # a gap at the end

    @property
    def end(self) -> int:
        return max(last_offset(self.batches[-1]) + 1 if self.batches else 0, self.start, self.empty_until)

    @property
    def high_watermark(self) -> int:
        return self.end - self.uncommitted

    @property
    def last_stable_offset(self) -> int:
        return min([self.high_watermark, *self.open.values()])

    def append(self, count: int, *, producer_id: int = -1, size: int = 0) -> None:
        first = self.end
        if producer_id >= 0:
            self.open.setdefault(producer_id, first)
        records = tuple(Rec(b"%d-%d" % (self.epoch, first + index) + b"." * size) for index in range(count))
        attributes = TRANSACTIONAL if producer_id >= 0 else 0
        self.batches.append(
            Batch(records, first, leader_epoch=self.epoch, producer_id=producer_id, attributes=attributes)
        )

    def finish(self, producer_id: int, *, commit: bool) -> None:
        first = self.open.pop(producer_id)
        if not commit:
            self.aborted.append((producer_id, first, self.end))
        self.batches.append(replace(marker(self.end, producer_id, commit=commit), leader_epoch=self.epoch))

    def truncate(self, offset: int) -> None:
        """Truncates the log before the first batch with a later offset, and starts a new epoch."""
        self.batches = [batch for batch in self.batches if last_offset(batch) < offset]
        self.open = {producer: first for producer, first in self.open.items() if first < self.end}
        self.aborted = [each for each in self.aborted if each[2] < self.end]
        self.epoch += 1

    def readable(self, *, committed: bool) -> list[tuple[int, bytes | None]]:
        """Offsets and values that a reader gets, from the log start on."""
        found = []
        for batch in self.batches:
            if batch.attributes & CONTROL or (committed and last_offset(batch) >= self.last_stable_offset):
                continue
            if committed and any(
                producer == batch.producer_id and first <= batch.base_offset < end
                for producer, first, end in self.aborted
            ):
                continue
            found += [(batch.base_offset + index, record.value) for index, record in enumerate(batch.records)]
        return [(offset, value) for offset, value in found if offset >= self.start]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and its end offset (as OffsetsForLeaderEpoch)."""
        known = {batch.leader_epoch for batch in self.batches} | {self.epoch}
        later = [batch.base_offset for batch in self.batches if batch.leader_epoch > epoch]
        return max((each for each in known if each <= epoch), default=epoch), min(later, default=self.end)


class FakeCluster:
    """A cluster with the interface of ``ClusterClient``."""

    def __init__(self, partitions: Iterable[TopicPartition], *, cluster: int = 1, **fields: Any) -> None:
        self.system = FakeSystem()
        self.pool = self
        self.settings = ConnectionSettings((("fake", 9092),), **fields)
        self.nodes = {number: Node(number, f"broker-{number}", 9092) for number in range(1, cluster + 1)}
        self.logs = {name: FakeLog() for name in partitions}
        self.topic_ids = {name.topic: UUID(int=index + 1) for index, name in enumerate(self.logs)}
        self.versions = {1: (4, 17), 2: (1, 11)}
        self.fetched_offsets: list[tuple[TopicPartition, int]] = []  # in the order of the requests
        self.requests: list[Any] = []
        self.connections: list[FakeConnection] = []
        self.released: list[FakeConnection] = []
        self.down: set[int] = set()  # ids of unreachable brokers
        self.returns_leaders = False  # whether other brokers return the leader (KIP-951)
        self.metadata_requests = 0
        self.broker_switches = 0
        self.metadata_error: Callable[[str], Exception | None] = lambda _: None
        self.error: Callable[[TopicPartition], int] = lambda _: 0  # the error code of a partition's responses
        self.throttled = 0  # how many more responses are throttled
        self.first_local_offset: int | None = 0
        self.floor_requests = 0
        self.deposed: set[TopicPartition] = set()  # their leaders were deposed and do not know it
        self._encoded: dict[int, tuple[Batch, bytes]] = {}

    def consumer(
        self,
        starts: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        fetch: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> PartitionConsumer:
        settings = FetchSettings(isolation_level, **(fetch or {}))
        starts = dict.fromkeys(self.logs, 0) if starts is None else starts
        return PartitionConsumer(
            cast("ClusterClient", self), settings, starts, **({"columns": ("offset", "value")} | fields)
        )

    # The interface of ``ClusterClient``.

    def absence_check(self, suspects: Mapping[TopicPartition, UUID | None]) -> FakeAbsenceCheck:
        def report(tp: TopicPartition) -> TopicReport:
            return topic_report(1, self.topics([tp.topic], deadline=self.deadline(), retry=None).get(tp.topic))

        return FakeAbsenceCheck(suspects, report, self.system)

    def raise_epoch_floors(
        self, names: Collection[str], *, partitions: Collection[TopicPartition] = (), deadline: Deadline | None = None
    ) -> None:
        self.floor_requests += 1

    def check_leader(self, partition: TopicPartition, topic_id: UUID | None, epoch: int) -> None:
        self.raise_epoch_floors([partition.topic])
        if partition in self.deposed or epoch < self.logs[partition].epoch:
            raise error_for(ErrorCode.FENCED_LEADER_EPOCH, "fetching")

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self.system)

    def use_next_broker(self) -> None:
        self.broker_switches += 1

    def topics(self, names: Collection[str], *, deadline: Deadline, retry: object) -> dict[str, TopicMetadata]:
        self.metadata_requests += 1
        if self.down >= self.nodes.keys():
            raise BrokerUnreachableError("all brokers are down")
        found = {}
        for name in names:
            if (error := self.metadata_error(name)) is not None:
                raise error
            partitions = {
                tp.partition: PartitionMetadata(
                    tp.partition, None if log.leader in self.down else log.leader, log.epoch
                )
                for tp, log in self.logs.items()
                if tp.topic == name
            }
            if partitions:
                found[name] = TopicMetadata(name, self.topic_ids[name], False, partitions)
        return found

    def log_bounds(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.raise_epoch_floors({tp.topic for tp in partitions})
        logs = {tp: self.logs[tp] for tp in partitions}
        if any(log.leader in self.down for log in logs.values()):
            raise BrokerUnreachableError("the leader is down")
        return {tp: (log.start, log.high_watermark) for tp, log in logs.items()}

    def local_log_start(self, partition: TopicPartition) -> int | None:
        if self.logs[partition].leader in self.down:
            raise BrokerUnreachableError("the leader is down")
        return self.first_local_offset

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        if node.id in self.down:
            raise BrokerUnreachableError("the broker is down", broker=str(node))
        self.connections.append(FakeConnection(self, node))
        return self.connections[-1]

    def release(self, connection: FakeConnection) -> None:
        self.released.append(connection)
        if connection.in_flight:
            connection.close()

    # For tests.

    def encoded(self, batch: Batch) -> bytes:
        """The bytes of a batch, encoded once."""
        if id(batch) not in self._encoded:
            self._encoded[id(batch)] = (batch, batch.encode())
        return self._encoded[id(batch)][1]

    def respond_to_waiting_fetches(self) -> None:
        """Responds to fetches that wait for records."""
        for connection in self.connections:
            connection.respond_if_due()

    def break_connections(self, node: int | None = None) -> None:
        for connection in self.connections:
            if node in (None, connection.node.id):
                connection.broken = True

    def recreate(self, topic: str) -> None:
        self.topic_ids[topic] = UUID(int=self.topic_ids[topic].int + 1000)
        for name in self.logs:
            if name.topic == topic:
                self.logs[name] = FakeLog()
        self.respond_to_waiting_fetches()


class FakeConnection:
    """A connection with at most one fetch in flight."""

    def __init__(self, cluster: FakeCluster, node: Node) -> None:
        self.settings = cluster.settings
        self.system = cluster.system
        self.api_versions = cluster.versions
        self.node = node
        self.broker = str(node)
        self.broken = False
        self.closed = False
        self.received_bytes = 0
        self.buffer_size = 0
        self.in_flight = False
        self.reauthentication_due = False
        self._cluster = cluster
        self._request: Any = None
        self._response: bytes | None = None
        self._number = self.system.descriptor(self.has_response)

    def fileno(self) -> int:
        return self._number

    def reserve_buffer(self, size: int) -> None:
        self.buffer_size = size

    def throttle(self, milliseconds: int) -> None:
        """Ignored: the fake broker throttles."""

    def send(self, api_key: int, version: int, name: str, body: bytes, *, flexible: bool, deadline: Deadline) -> None:
        assert api_key == 1
        assert not self.in_flight
        assert not self.closed
        if self.broken:
            raise BrokerUnreachableError("the connection is broken", broker=self.broker)
        request = FetchRequest.decode(body, version=version)
        self._request, self._version = request, version
        self.in_flight = True
        self._cluster.requests.append(request)
        for tp, requested in self._requested_partitions():
            if tp is not None:
                self._cluster.fetched_offsets.append((tp, requested.fetch_offset))
        self._until = self.system.now + request.max_wait_ms / 1000
        self.system.schedule(self._until, self.respond_if_due)
        self.respond_if_due()

    def has_response(self) -> bool:
        return self._response is not None or self.broken

    def read_available(self) -> bool:
        assert self.in_flight
        if self.broken:
            self.close()
            raise BrokerUnreachableError("the connection broke", broker=self.broker)
        self.received_bytes = 0 if self._response is None else len(self._response)
        return self._response is not None

    def receive(self, deadline: Deadline) -> memoryview:
        assert self._response is not None
        response, self._response, self.in_flight, self.received_bytes = self._response, None, False, 0
        return memoryview(response)

    def close(self) -> None:
        self.closed = True
        self.in_flight = False
        self._request = None

    def respond_if_due(self) -> None:
        """Responds if there are records or errors, or if the wait is over."""
        if self._request is None or self.broken or self.node.id in self._cluster.down:
            return
        responses, respond_now = self._partition_responses()
        if not respond_now and self.system.now < self._until:
            return
        self._request = None
        self.system.schedule(self.system.now + LATENCY, lambda: self._arrive(self._encode(responses)))

    def _arrive(self, response: bytes) -> None:
        if not self.closed:
            self._response = response

    def _requested_partitions(self) -> list[tuple[TopicPartition | None, Any]]:
        names = {number: name for name, number in self._cluster.topic_ids.items()}
        found: list[tuple[TopicPartition | None, Any]] = []
        for topic in self._request.topics:
            name = names.get(topic.topic_id) if self._version >= 13 else topic.topic
            found += [
                (None if name is None else TopicPartition(name, requested.partition), requested)
                for requested in topic.partitions
            ]
        return found

    def _partition_responses(self) -> tuple[list[tuple[Any, dict[str, Any]]], bool]:
        cluster = self._cluster
        if cluster.throttled:
            cluster.throttled -= 1
            return [], True
        remaining_bytes = self._request.max_bytes
        names = {id(requested): name for name, requested in self._requested_partitions()}
        responses = []
        first, respond_now = True, False
        for topic in self._request.topics:
            entries = []
            for requested in topic.partitions:
                fields = self._partition(names[id(requested)], requested, remaining_bytes, first)
                size = len(fields["records"])
                first = first and not size
                remaining_bytes = max(remaining_bytes - size, 0)
                respond_now = respond_now or bool(size) or fields["error_code"] != 0 or "diverging_epoch" in fields
                entries.append(fields | {"partition_index": requested.partition})
            responses.append((topic, {"partitions": entries}))
        return responses, respond_now

    def _partition(
        self, name: TopicPartition | None, requested: Any, remaining_bytes: int, first: bool
    ) -> dict[str, Any]:
        cluster = self._cluster
        empty_fields: dict[str, Any] = {
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": b"",
        }
        if name is None:
            return empty_fields | {"error_code": 100}
        log = cluster.logs.get(name)
        if log is None:
            return empty_fields | {"error_code": 3}
        leader_fields: dict[str, Any] = {}
        if cluster.returns_leaders and self._version >= 12:
            leader_fields["current_leader"] = PartitionData.LeaderIdAndEpoch(
                version=self._version, leader_id=log.leader, leader_epoch=log.epoch
            )
        if (code := cluster.error(name)) != 0:
            return empty_fields | leader_fields | {"error_code": code}
        if log.leader != self.node.id:
            return empty_fields | leader_fields | {"error_code": 6}
        if 0 <= requested.current_leader_epoch != log.epoch:
            return (
                empty_fields | leader_fields | {"error_code": 74 if requested.current_leader_epoch < log.epoch else 75}
            )
        success_fields = empty_fields | {
            "error_code": 0,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "log_start_offset": log.start,
        }
        if self._version >= 12 and requested.last_fetched_epoch >= 0:
            epoch, end = log.end_of_epoch(requested.last_fetched_epoch)
            if epoch < requested.last_fetched_epoch or end < requested.fetch_offset:
                return success_fields | {
                    "diverging_epoch": PartitionData.EpochEndOffset(version=self._version, epoch=epoch, end_offset=end)
                }
        if not log.start <= requested.fetch_offset <= log.end:
            return empty_fields | {"error_code": 1}
        committed = self._request.isolation_level == 1
        readable = log.last_stable_offset if committed else log.high_watermark
        records = b""
        last = -1
        max_bytes = min(requested.partition_max_bytes, remaining_bytes)
        for batch in log.batches:
            if last_offset(batch) < requested.fetch_offset or batch.base_offset >= readable:
                continue
            encoded = cluster.encoded(batch)
            if len(records) + len(encoded) > max_bytes and not (first and not records):
                break
            records += encoded
            last = last_offset(batch)
        aborted = [
            PartitionData.AbortedTransaction(version=self._version, producer_id=producer, first_offset=begin)
            for producer, begin, end in log.aborted
            if committed and end >= requested.fetch_offset and begin <= last
        ]
        return success_fields | {"records": records, "aborted_transactions": aborted if committed else None}

    def _encode(self, responses: list[tuple[Any, dict[str, Any]]]) -> bytes:
        version = self._version
        topics = [
            Topic(
                version=version,
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[PartitionData(version=version, **fields) for fields in response["partitions"]],
            )
            for topic, response in responses
        ]
        response = FetchResponse(
            version=version,
            throttle_time_ms=0 if responses else 50,
            error_code=0,
            session_id=0,
            responses=topics,
        )
        response.with_header(correlation_id=1)
        return bytes(response.encode(header=True))[4:]


def last_offset(batch: Batch) -> int:
    """The offset of a batch's last record."""
    delta = len(batch.records) - 1 if batch.last_offset_delta is None else batch.last_offset_delta
    return batch.base_offset + delta
