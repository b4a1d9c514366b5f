"""A cluster that answers Produce requests by a script, in a time of its own."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.producer import ProduceRequest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError, TopicNotFoundError
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._idle_producers import IdleProducers
from pyspark_kafka_direct.wire.messages._writing import writer
from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.deadline import Deadline


class Answer(NamedTuple):
    """What a broker says: after how long (``None``: never), with which error code, and for how long it throttles."""

    after: float | None = 0.01
    code: int = 0
    throttle_ms: int = 0
    more: Mapping[str, Any] = {}


class Sent(NamedTuple):
    """A request that came: when, to which broker, and the values of its batches by partition."""

    at: float
    node: int
    batches: dict[int, bytes]


class World(Frozen):
    """Time goes on when somebody waits; an answer is there when its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[int, Line] = {}

    def readable(self, descriptor: int) -> bool:
        return self.lines[descriptor].ready_at <= self.now

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        first = min((self.lines[each].ready_at for each in descriptors), default=float("inf"))
        self.now = max(self.now, min(first, self.now + seconds))


class Brokers:
    """Stands in for a ``Cluster``.

    Attributes:
        script: Says what a broker answers to the request with a number, from 0 on.
        leader: Which broker metadata says leads all partitions; ``None``: none does.
        missing: How often metadata still denies the topic.
        lookups: How often metadata was asked for anew.
        partitions: How many each topic has.
        asked: The topics that were asked for.
        refuses: Brokers that cannot be connected with.
    """

    def __init__(self, script: Callable[[int], Answer] = lambda _: Answer(), **settings: Any) -> None:
        self.script = script
        self.world = World()
        self.settings = ConnectionSettings((("127.0.0.1", 1),), **{"retry_backoff_ms": 100, **settings})
        self.pool = SimpleNamespace(system=self.world, producers=IdleProducers())
        self.nodes = {number: Node(number, "b", number) for number in (1, 2)}
        self.cluster_id = "c"
        self.leader: int | None = 1
        self.missing = 0
        self.lookups = 0
        self.refuses: set[int] = set()
        self.partitions = {"t": 1}
        self.asked: list[str] = []
        self.sent: list[Sent] = []
        self.end: dict[int, int] = {}

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, fresh: object = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        self.lookups += fresh is not None
        if self.missing:
            self.missing -= 1
            raise TopicNotFoundError("denied", topic=next(iter(partitions)).topic)
        found = None if self.leader is None else PartitionLeader(self.nodes[self.leader], 0)
        return dict.fromkeys(partitions, found)

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        self.asked += names
        return {name: topic for name, topic in self.all_topics().items() if name in names}

    def all_topics(self, *, deadline: Deadline | None = None) -> dict[str, Any]:
        return {name: SimpleNamespace(partitions=range(count)) for name, count in self.partitions.items()}

    def ask_another(self) -> None:
        """Any will do."""

    def connect(self, node: Node, deadline: Deadline) -> Line:
        if node.id in self.refuses:
            raise BrokerUnreachableError("refused", broker=str(node))
        line = Line(self, node.id)
        self.world.lines[line.fileno()] = line
        return line

    def give_back(self, connection: Line) -> None:
        """Nobody uses it again."""


class Line:
    """A connection with one of them."""

    login_due = False

    def __init__(self, brokers: Brokers, node: int) -> None:
        self.broker = f"b:{node}"
        self.closed = False
        self._brokers = brokers
        self._node = node
        self._answers: deque[tuple[float, bytes]] = deque()

    @property
    def ready_at(self) -> float:
        return self._answers[0][0] if self._answers else float("inf")

    def fileno(self) -> int:
        return id(self)

    def version(self, api: messages.Api) -> int:
        return 12

    def has_answer(self) -> bool:
        return self.closed or self._brokers.world.readable(self.fileno())

    def close(self) -> None:
        self.closed = True

    def submit(
        self, api: messages.Api, values: Mapping[str, Any], deadline: Deadline, *, version: int, answered: bool
    ) -> None:
        brokers = self._brokers
        frame = messages.encode(api, version, 1, b"me", values)[4:]
        batches = {
            each.index: bytes(each.records)
            for topic in ProduceRequest.decode(frame, version=version, header=True).topic_data
            for each in topic.partition_data
        }
        answer = brokers.script(len(brokers.sent))
        brokers.sent.append(Sent(brokers.world.now, self._node, batches))
        after = float("inf") if answer.after is None else answer.after
        partitions = []
        for number, records in batches.items():
            offset = brokers.end.get(number, 0)
            if answer.code == 0:
                brokers.end[number] = offset + int.from_bytes(records[57:61], "big")
            partitions.append({"index": number, "error_code": answer.code, "base_offset": offset, **answer.more})
        body = bytearray(b"\0")
        told = {
            "responses": [{"name": values["topic_data"][0]["name"], "partition_responses": partitions}],
            "throttle_time_ms": answer.throttle_ms,
        }
        writer(api.response, version, flexible=True)(body, told)
        if answered:
            self._answers.append((max(brokers.world.now, self._last) + after, bytes(body)))

    def complete(self, api: messages.Api, deadline: Deadline, *, version: int) -> Any:
        if deadline.expired:
            self.closed = True
            raise BrokerTimeoutError("no answer", broker=self.broker)
        ready_at, body = self._answers.popleft()
        self._brokers.world.now = max(self._brokers.world.now, ready_at)
        return messages.decode(api, version, body)

    @property
    def _last(self) -> float:
        return self._answers[-1][0] if self._answers else 0.0
