"""A made-up world for tails: time is a number, brokers keep logs in memory and answer as Kafka does.

Fetch requests and answers are real bytes, written and read by kafka-python on this side. Errands run at once, unless
the world is told to hold them.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse
from tests.unit.records.batches import CONTROL, TRANSACTIONAL, Batch, Rec, marker

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.reading.tail import Tail
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.metadata import Node, PartitionMetadata, TopicMetadata
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.system import Signal

Topic = FetchResponse.FetchableTopicResponse
Answered = Topic.PartitionData

LATENCY = 0.001


class World(RealSystem):
    """Time, and what happens when; descriptors are numbers.

    Attributes:
        now: The time.
        holding: Whether errands wait until ``run_errands``.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.holding = False
        self.waits: list[float] = []
        self._circles = 0
        self._errands: deque[Callable[[], None]] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = iter(range(100, 10**9))
        self._readable: dict[int, Callable[[], bool]] = {}

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a tail slept for {seconds} s, where no wake is noticed")

    def at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def descriptor(self, readable: Callable[[], bool]) -> int:
        number = next(self._numbers)
        self._readable[number] = readable
        return number

    def readable(self, descriptor: int) -> bool:
        return self._readable[descriptor]()

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        assert all(number in self._readable for number in descriptors)
        self.waits.append(seconds)
        self._circles = self._circles + 1 if seconds <= 0 else 0
        assert self._circles < 1000, "a wait in circles"
        until = self.now + seconds
        while not any(self.readable(number) for number in descriptors):
            if not self._events or self._events[0][0] > until:
                self.now = until
                return
            self.now = max(self.now, self._events[0][0])
            heapq.heappop(self._events)[2]()

    def signal(self) -> Signal:
        return _Given(self)

    def start(self, run: Callable[[], None], name: str) -> None:
        self._errands.append(run)
        if not self.holding:
            self.run_errands()

    def run_errands(self) -> None:
        while self._errands:
            self._errands.popleft()()


class _Given:
    def __init__(self, world: World) -> None:
        self._given = False
        self._number = world.descriptor(lambda: self._given)

    def fileno(self) -> int:
        return self._number

    def give(self) -> None:
        self._given = True

    def take(self) -> None:
        self._given = False

    def close(self) -> None:
        self._given = False


@dataclass
class Log:
    """A partition's log; epochs and offsets as Kafka has them."""

    leader: int = 1
    epoch: int = 5
    start: int = 0
    batches: list[Batch] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # producer id to the first offset of its transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, its marker's offset
    hidden: int = 0  # how much the high watermark lies behind the end
    empty_until: int = 0  # a hole at the end

    @property
    def end(self) -> int:
        return max(last_offset(self.batches[-1]) + 1 if self.batches else 0, self.start, self.empty_until)

    @property
    def high_watermark(self) -> int:
        return self.end - self.hidden

    @property
    def stable(self) -> int:
        return min([self.high_watermark, *self.open.values()])

    def append(self, count: int, *, producer_id: int = -1, size: int = 0) -> None:
        first = self.end
        if producer_id >= 0:
            self.open.setdefault(producer_id, first)
        records = tuple(Rec(b"%d-%d" % (self.epoch, first + place) + b"." * size) for place in range(count))
        attributes = TRANSACTIONAL if producer_id >= 0 else 0
        self.batches.append(
            Batch(records, first, leader_epoch=self.epoch, producer_id=producer_id, attributes=attributes)
        )

    def finish(self, producer_id: int, *, commit: bool) -> None:
        first = self.open.pop(producer_id)
        if not commit:
            self.aborted.append((producer_id, first, self.end))
        self.batches.append(replace(marker(self.end, producer_id, commit=commit), leader_epoch=self.epoch))

    def cut(self, offset: int) -> None:
        """Cuts the log back at the first batch that reaches beyond the offset, and begins another epoch."""
        self.batches = [batch for batch in self.batches if last_offset(batch) < offset]
        self.open = {producer: first for producer, first in self.open.items() if first < self.end}
        self.aborted = [each for each in self.aborted if each[2] < self.end]
        self.epoch += 1

    def visible(self, *, committed: bool) -> list[tuple[int, bytes | None]]:
        """Offsets and values that a reader gets, from the log's start on."""
        found = []
        for batch in self.batches:
            if batch.attributes & CONTROL or (committed and last_offset(batch) >= self.stable):
                continue
            if committed and any(
                producer == batch.producer_id and first <= batch.base_offset < end
                for producer, first, end in self.aborted
            ):
                continue
            found += [(batch.base_offset + place, record.value) for place, record in enumerate(batch.records)]
        return [(offset, value) for offset, value in found if offset >= self.start]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends; of one before all others, where these begin."""
        known = {batch.leader_epoch for batch in self.batches} | {self.epoch}
        later = [batch.base_offset for batch in self.batches if batch.leader_epoch > epoch]
        return max((each for each in known if each <= epoch), default=epoch), min(later, default=self.end)


class Brokers:
    """A cluster: what ``Cluster`` is to a tail.

    Attributes:
        logs: By partition.
        topic_ids: By topic.
        asked: What fetch requests named, in order: partition and offset.
        hints: Whether a broker that does not lead says who does.
        down: Ids of the brokers that nobody reaches.
        lookups: How often metadata was asked for.
        room: Most bytes of an answer.
        error: Says with which code partitions are answered instead.
        throttled: How many answers tell that a quota is used up.
    """

    def __init__(self, partitions: Iterable[TopicPartition], *, brokers: int = 1, **fields: Any) -> None:
        self.world = World()
        self.pool = self
        self.system = self.world
        self.settings = ConnectionSettings((("made-up", 9092),), **fields)
        self.nodes = {number: Node(number, f"broker-{number}", 9092) for number in range(1, brokers + 1)}
        self.logs = {name: Log() for name in partitions}
        self.topic_ids = {name.topic: UUID(int=index + 1) for index, name in enumerate(self.logs)}
        self.versions = {1: (4, 17), 2: (1, 11)}
        self.asked: list[tuple[TopicPartition, int]] = []
        self.requests: list[Any] = []
        self.connections: list[Wire] = []
        self.given_back: list[Wire] = []
        self.down: set[int] = set()
        self.hints = False
        self.lookups = 0
        self.turns = 0
        self.metadata_error: Callable[[str], Exception | None] = lambda _: None
        self.error: Callable[[TopicPartition], int] = lambda _: 0
        self.throttled = 0
        self.local_start = 0
        self._encoded: dict[int, tuple[Batch, bytes]] = {}

    def tail(
        self,
        starts: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        fetch: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Tail:
        settings = FetchSettings(isolation_level, **(fetch or {}))
        starts = dict.fromkeys(self.logs, 0) if starts is None else starts
        return Tail(cast("Cluster", self), settings, starts, **({"columns": ("offset", "value")} | fields))

    # What a tail asks of its cluster.

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self.world)

    def ask_another(self) -> None:
        self.turns += 1

    def topics(self, names: Collection[str], *, deadline: Deadline, retry: object) -> dict[str, TopicMetadata]:
        self.lookups += 1
        if self.down >= self.nodes.keys():
            raise BrokerUnreachableError("nobody is there")
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

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted", deadline: Deadline
    ) -> dict[TopicPartition, int]:
        assert isolation_level == "read_uncommitted"
        found = {}
        for name, position in wanted.items():
            log = self.logs[name]
            if log.leader in self.down:
                raise BrokerUnreachableError("the leader is not there")
            places = {EARLIEST: log.start, LATEST: log.high_watermark, -4: self.local_start}
            found[name] = places[position]
        return found

    def connect(self, node: Node, deadline: Deadline) -> Wire:
        if node.id in self.down:
            raise BrokerUnreachableError("the broker is not there", broker=str(node))
        self.connections.append(Wire(self, node))
        return self.connections[-1]

    def give_back(self, connection: Wire) -> None:
        self.given_back.append(connection)
        if connection.under_way:
            connection.close()

    # What a test does with it.

    def encoded(self, batch: Batch) -> bytes:
        """The bytes of a batch, made once."""
        if id(batch) not in self._encoded:
            self._encoded[id(batch)] = (batch, batch.encode())
        return self._encoded[id(batch)][1]

    def changed(self) -> None:
        """Answers requests that wait for records."""
        for wire in self.connections:
            wire.look()

    def break_connections(self, node: int | None = None) -> None:
        for wire in self.connections:
            if node in (None, wire.node.id):
                wire.broken = True

    def recreate(self, topic: str) -> None:
        self.topic_ids[topic] = UUID(int=self.topic_ids[topic].int + 1000)
        for name in self.logs:
            if name.topic == topic:
                self.logs[name] = Log()
        self.changed()


class Wire:
    """A connection, with at most one fetch request under way."""

    def __init__(self, brokers: Brokers, node: Node) -> None:
        self.settings = brokers.settings
        self.system = brokers.world
        self.api_versions = brokers.versions
        self.node = node
        self.broker = str(node)
        self.broken = False
        self.closed = False
        self.gathered = 0
        self.room = 0
        self.under_way = False
        self.login_due = False
        self._brokers = brokers
        self._request: Any = None
        self._answer: bytes | None = None
        self._number = self.system.descriptor(self.has_answer)

    def fileno(self) -> int:
        return self._number

    def keep_room(self, size: int) -> None:
        self.room = size

    def throttle(self, milliseconds: int) -> None:
        """The broker's affair."""

    def send(self, api_key: int, version: int, name: str, body: bytes, *, flexible: bool, deadline: Deadline) -> None:
        assert api_key == 1
        assert not self.under_way
        assert not self.closed
        if self.broken:
            raise BrokerUnreachableError("the connection is broken", broker=self.broker)
        request = FetchRequest.decode(body, version=version)
        self._request, self._version = request, version
        self.under_way = True
        self._brokers.requests.append(request)
        for tp, asked in self._named():
            if tp is not None:
                self._brokers.asked.append((tp, asked.fetch_offset))
        self._until = self.system.now + request.max_wait_ms / 1000
        self.system.at(self._until, self.look)
        self.look()

    def has_answer(self) -> bool:
        return self._answer is not None or self.broken

    def gather(self) -> bool:
        assert self.under_way
        if self.broken:
            self.close()
            raise BrokerUnreachableError("the connection broke", broker=self.broker)
        self.gathered = 0 if self._answer is None else len(self._answer)
        return self._answer is not None

    def receive(self, deadline: Deadline) -> memoryview:
        assert self._answer is not None
        answer, self._answer, self.under_way, self.gathered = self._answer, None, False, 0
        return memoryview(answer)

    def close(self) -> None:
        self.closed = True
        self.under_way = False
        self._request = None

    def look(self) -> None:
        """Answers the request if there is something to say, or its time is over."""
        if self._request is None or self.broken or self.node.id in self._brokers.down:
            return
        answers, worth_it = self._answers()
        if not worth_it and self.system.now < self._until:
            return
        self._request = None
        self.system.at(self.system.now + LATENCY, lambda: self._arrive(self._encode(answers)))

    def _arrive(self, answer: bytes) -> None:
        if not self.closed:
            self._answer = answer

    def _named(self) -> list[tuple[TopicPartition | None, Any]]:
        names = {number: name for name, number in self._brokers.topic_ids.items()}
        found: list[tuple[TopicPartition | None, Any]] = []
        for topic in self._request.topics:
            name = names.get(topic.topic_id) if self._version >= 13 else topic.topic
            found += [
                (None if name is None else TopicPartition(name, asked.partition), asked) for asked in topic.partitions
            ]
        return found

    def _answers(self) -> tuple[list[tuple[Any, dict[str, Any]]], bool]:
        brokers = self._brokers
        if brokers.throttled:
            brokers.throttled -= 1
            return [], True
        room = self._request.max_bytes
        names = {id(asked): name for name, asked in self._named()}
        answers = []
        first, worth_it = True, False
        for topic in self._request.topics:
            entries = []
            for asked in topic.partitions:
                fields = self._partition(names[id(asked)], asked, room, first)
                size = len(fields["records"])
                first = first and not size
                room = max(room - size, 0)
                worth_it = worth_it or bool(size) or fields["error_code"] != 0 or "diverging_epoch" in fields
                entries.append(fields | {"partition_index": asked.partition})
            answers.append((topic, {"partitions": entries}))
        return answers, worth_it

    def _partition(self, name: TopicPartition | None, asked: Any, room: int, first: bool) -> dict[str, Any]:
        brokers = self._brokers
        nothing: dict[str, Any] = {
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": b"",
        }
        if name is None:
            return nothing | {"error_code": 100}
        log = brokers.logs.get(name)
        if log is None:
            return nothing | {"error_code": 3}
        told: dict[str, Any] = {}
        if brokers.hints and self._version >= 12:
            told["current_leader"] = Answered.LeaderIdAndEpoch(
                version=self._version, leader_id=log.leader, leader_epoch=log.epoch
            )
        if (code := brokers.error(name)) != 0:
            return nothing | told | {"error_code": code}
        if log.leader != self.node.id:
            return nothing | told | {"error_code": 6}
        if 0 <= asked.current_leader_epoch != log.epoch:
            return nothing | told | {"error_code": 74 if asked.current_leader_epoch < log.epoch else 75}
        usual = nothing | {
            "error_code": 0,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.stable,
            "log_start_offset": log.start,
        }
        if self._version >= 12 and asked.last_fetched_epoch >= 0:
            epoch, end = log.epoch_end(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                return usual | {
                    "diverging_epoch": Answered.EpochEndOffset(version=self._version, epoch=epoch, end_offset=end)
                }
        if not log.start <= asked.fetch_offset <= log.end:
            return nothing | {"error_code": 1}
        committed = self._request.isolation_level == 1
        visible = log.stable if committed else log.high_watermark
        records = b""
        last = -1
        most = min(asked.partition_max_bytes, room)
        for batch in log.batches:
            if last_offset(batch) < asked.fetch_offset or batch.base_offset >= visible:
                continue
            encoded = brokers.encoded(batch)
            if len(records) + len(encoded) > most and not (first and not records):
                break
            records += encoded
            last = last_offset(batch)
        aborted = [
            Answered.AbortedTransaction(version=self._version, producer_id=producer, first_offset=begin)
            for producer, begin, end in log.aborted
            if committed and end >= asked.fetch_offset and begin <= last
        ]
        return usual | {"records": records, "aborted_transactions": aborted if committed else None}

    def _encode(self, answers: list[tuple[Any, dict[str, Any]]]) -> bytes:
        version = self._version
        topics = [
            Topic(
                version=version,
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[Answered(version=version, **fields) for fields in answer["partitions"]],
            )
            for topic, answer in answers
        ]
        response = FetchResponse(
            version=version,
            throttle_time_ms=0 if answers else 50,
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
