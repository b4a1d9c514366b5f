"""A fake cluster with scripted responses to Produce requests, in simulated time."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.producer import ProduceRequest
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.fake_witnesses import FakeAbsenceCheck

from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.client.producer_state import IdleProducerPool
from pyspark_kafka_direct.config.client_settings import ConnectionSettings
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError, TopicNotFoundError
from pyspark_kafka_direct.planning.data_loss import TopicReport
from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.codec import compile_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition


class FakeResponse(NamedTuple):
    """A response of a broker."""

    delay: float | None = 0.01  # seconds; None: never
    code: int = 0
    throttle_ms: int = 0
    more: Mapping[str, Any] = {}


class ReceivedRequest(NamedTuple):
    """A request that a broker received, with its batches by partition."""

    at: float
    node: int
    batches: dict[int, bytes]


class SimulatedSystem(FakeTimeSystem):
    """Time advances only while the caller waits; a response is readable from its time on."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: dict[int, FakeConnection] = {}

    def readable(self, descriptor: int) -> bool:
        return self.connections[descriptor].ready_at <= self.now

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        first = min((self.connections[each].ready_at for each in descriptors), default=float("inf"))
        self.now = max(self.now, min(first, self.now + seconds))


class FakeCluster:
    """Stands in for a ``ClusterClient``.

    Attributes:
        script: Returns the response to the request with an index.
        was_reached: Whether any broker has responded.
        leader: The leader of all partitions in metadata; ``None``: there is none.
        missing: How many more metadata responses lack the topic.
        metadata_refreshes: How often metadata was refreshed.
        partitions: The number of partitions of each topic.
        requested_topics: The topics of all metadata requests.
        unreachable: Brokers that reject connections.
        topic_id: Of all topics, as far as it is known.
    """

    def __init__(self, script: Callable[[int], FakeResponse] = lambda _: FakeResponse(), **settings: Any) -> None:
        self.script = script
        self.system = SimulatedSystem()
        self.settings = ConnectionSettings((("127.0.0.1", 1),), **{"retry_backoff_ms": 100, **settings})
        self.pool = SimpleNamespace(system=self.system, idle_producers=IdleProducerPool(self.system))
        self.nodes = {number: Node(number, "b", number) for number in (1, 2)}
        self.cluster_id = "c"
        self.was_reached = True
        self.leader: int | None = 1
        self.missing = 0
        self.metadata_refreshes = 0
        self.unreachable: set[int] = set()
        self.partitions = {"t": 1}
        self.requested_topics: list[str] = []
        self.sent: list[ReceivedRequest] = []
        self.end: dict[int, int] = {}
        self.topic_id: UUID | None = None

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, refresh_retry: object = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        self.metadata_refreshes += refresh_retry is not None
        if self.missing:
            self.missing -= 1
            raise TopicNotFoundError("unknown topic", topic=next(iter(partitions)).topic)
        found = None if self.leader is None else PartitionLeader(self.nodes[self.leader], 0)
        return dict.fromkeys(partitions, found)

    def known_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        epoch = -1 if self.topic_id is None else 4
        return {} if self.leader is None else dict.fromkeys(partitions, PartitionLeader(self.nodes[self.leader], epoch))

    def known_topic_ids(self, names: Collection[str]) -> dict[str, UUID]:
        return {} if self.topic_id is None else dict.fromkeys(names, self.topic_id)

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        self.requested_topics += names
        return {name: topic for name, topic in self.all_topics().items() if name in names}

    def all_topics(self, *, deadline: Deadline | None = None) -> dict[str, Any]:
        return {name: SimpleNamespace(partitions=range(count)) for name, count in self.partitions.items()}

    def absence_check(self, suspects: Mapping[TopicPartition, UUID | None]) -> FakeAbsenceCheck:
        def report(tp: TopicPartition) -> TopicReport:
            exists = not self.missing and tp.partition < self.partitions.get(tp.topic, 0)
            return TopicReport(1, None, {tp.partition: 0} if exists else None)

        return FakeAbsenceCheck(suspects, report, self.system)

    def confirm_missing(
        self, suspects: Mapping[TopicPartition, UUID | None], *, deadline: Deadline | None = None
    ) -> set[TopicPartition]:
        return {tp for tp in suspects if tp.topic not in self.partitions}

    def use_next_broker(self) -> None:
        """All brokers return the same metadata."""

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        if node.id in self.unreachable:
            raise BrokerUnreachableError("rejected", broker=str(node))
        connection = FakeConnection(self, node.id)
        self.system.connections[connection.fileno()] = connection
        return connection

    def release(self, connection: FakeConnection) -> None:
        """The connection is not used again."""


class FakeConnection:
    """A connection to a broker of the fake cluster."""

    reauthentication_due = False

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.broker = f"b:{node}"
        self.closed = False
        self._cluster = cluster
        self._node = node
        self._responses: deque[tuple[float, bytes]] = deque()

    @property
    def ready_at(self) -> float:
        return self._responses[0][0] if self._responses else float("inf")

    def fileno(self) -> int:
        return id(self)

    def version(self, api: messages.ApiMessageType) -> int:
        return 12

    def has_response(self) -> bool:
        return self.closed or self._cluster.system.readable(self.fileno())

    def close(self) -> None:
        self.closed = True

    def submit(
        self,
        api: messages.ApiMessageType,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int,
        expects_response: bool,
    ) -> None:
        cluster = self._cluster
        frame = messages.encode(api, version, 1, b"me", values)[4:]
        batches = {
            each.index: bytes(each.records)
            for topic in ProduceRequest.decode(frame, version=version, header=True).topic_data
            for each in topic.partition_data
        }
        response = cluster.script(len(cluster.sent))
        cluster.sent.append(ReceivedRequest(cluster.system.now, self._node, batches))
        delay = float("inf") if response.delay is None else response.delay
        partitions = []
        for number, records in batches.items():
            offset = cluster.end.get(number, 0)
            if response.code == 0:
                cluster.end[number] = offset + int.from_bytes(records[57:61], "big")
            partitions.append({"index": number, "error_code": response.code, "base_offset": offset, **response.more})
        body = bytearray(b"\0")
        response_values = {
            "responses": [{"name": values["topic_data"][0]["name"], "partition_responses": partitions}],
            "throttle_time_ms": response.throttle_ms,
        }
        compile_writer(api.response, version, flexible=True)(body, response_values)
        if expects_response:
            self._responses.append((max(cluster.system.now, self._last) + delay, bytes(body)))

    def complete(self, api: messages.ApiMessageType, deadline: Deadline, *, version: int) -> Any:
        if deadline.expired:
            self.closed = True
            raise BrokerTimeoutError("no response", broker=self.broker)
        ready_at, body = self._responses.popleft()
        self._cluster.system.now = max(self._cluster.system.now, ready_at)
        return messages.decode(api, version, body)

    @property
    def _last(self) -> float:
        return self._responses[-1][0] if self._responses else 0.0
