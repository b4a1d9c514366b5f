"""The producer against brokers that keep a log as Kafka does, while leaders move and connections break."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kafka.protocol.producer import ProduceRequest
from tests.unit.writing.brokers import Brokers, Line

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import EncodedBatch, create_decoder, create_encoder
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.messages._writing import writer
from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader
from pyspark_kafka_direct.writing.producer import Identity, Producer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.wire.deadline import Deadline

PARTITIONS = 3
MOST_RECORDS = 12

_HARMLESS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Log:
    """One partition, as its replicas have it."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._next: dict[int, int] = {}
        self._recent: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, data: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        producer, sequence = int.from_bytes(data[43:51], "big"), int.from_bytes(data[53:57], "big")
        count = int.from_bytes(data[57:61], "big")
        for first, records, offset in self._recent.get(producer, ()):
            if (first, records) == (sequence, count):
                return 0, offset
        if self._next.get(producer, sequence) != sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self._next[producer] = sequence + count
        self._recent.setdefault(producer, deque(maxlen=5)).append((sequence, count, offset))
        decoder = create_decoder(topic="t", partition=0, from_offset=0, until_offset=count, columns=("value",))
        decoder.feed(memoryview(data))
        rows = decoder.read()
        assert rows is not None
        self.values += [int(value.as_py()) for value in rows.column(0)]
        return 0, offset


class Faulty(Brokers):
    """Brokers with logs."""

    def __init__(self, seed: int) -> None:
        super().__init__(retry_backoff_max_ms=200)
        self.chance = random.Random(seed)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.leads = [1] * PARTITIONS

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, fresh: object = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        stale = self.chance.random() < 0.2
        found: dict[TopicPartition, PartitionLeader | None] = {}
        for each in partitions:
            node = self.chance.choice([1, 2]) if stale else self.leads[each.partition]
            found[each] = None if stale and self.chance.random() < 0.3 else PartitionLeader(self.nodes[node], 0)
        return found

    def connect(self, node: Node, deadline: Deadline) -> Line:
        if self.chance.random() < 0.1:
            raise BrokerUnreachableError("refused", broker=str(node))
        line = FaultyLine(self, node.id)
        self.world.lines[line.fileno()] = line
        return line


class FaultyLine(Line):
    """A connection that breaks."""

    _brokers: Faulty

    def submit(
        self, api: messages.Api, values: Mapping[str, Any], deadline: Deadline, *, version: int, answered: bool
    ) -> None:
        brokers, chance = self._brokers, self._brokers.chance
        fate = chance.choice(["good"] * 6 + ["lost", "unanswered", "silent", "moves"])
        if fate == "moves":
            brokers.leads[chance.randrange(PARTITIONS)] = chance.choice([1, 2])
        if fate == "lost":
            self.closed = True
            raise BrokerUnreachableError("broken", broker=self.broker)
        frame = messages.encode(api, version, 1, b"me", values)[4:]
        partitions = [
            {"index": each.index, **self._append(each.index, bytes(each.records))}
            for topic in ProduceRequest.decode(frame, version=version, header=True).topic_data
            for each in topic.partition_data
        ]
        body = bytearray(b"\0")
        chance.shuffle(partitions)
        told = {
            "responses": [{"name": "t", "partition_responses": partitions}],
            "throttle_time_ms": chance.choice([0, 0, 0, 500]),
        }
        writer(api.response, version, flexible=True)(body, told)
        if fate == "unanswered":
            self._answers.append((brokers.world.now, b""))
            return
        after = float("inf") if fate == "silent" else chance.random()
        self._answers.append((max(brokers.world.now, self._last) + after, bytes(body)))

    def complete(self, api: messages.Api, deadline: Deadline, *, version: int) -> Any:
        if self.closed or (self._answers and self._answers[0] == (self._answers[0][0], b"")):
            self.closed = True
            raise BrokerUnreachableError("broken", broker=self.broker)
        if self.ready_at == float("inf"):
            self.closed = True
            raise BrokerTimeoutError("no answer", broker=self.broker)
        return super().complete(api, deadline, version=version)

    def _append(self, number: int, data: bytes) -> dict[str, Any]:
        brokers, chance = self._brokers, self._brokers.chance
        if brokers.leads[number] != self._node:
            hint = {"leader_id": chance.choice([1, 2]), "leader_epoch": 1}
            return {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "base_offset": -1, "current_leader": hint}
        if int.from_bytes(data[57:61], "big") > MOST_RECORDS:
            return {"error_code": ErrorCode.MESSAGE_TOO_LARGE, "base_offset": -1}
        if chance.random() < 0.1:
            return {"error_code": chance.choice(_HARMLESS), "base_offset": -1}
        code, offset = brokers.logs[number].append(data)
        if code == 0 and chance.random() < 0.1:
            code, offset = ErrorCode.REQUEST_TIMED_OUT, -1
        return {"error_code": code, "base_offset": offset}


def encoded(partition: int, first: int, records: int) -> EncodedBatch:
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % (first + number) for number in range(records)], pa.binary()),
            "partition": pa.array([partition] * records, pa.int32()),
            "timestamp": pa.array([1_000] * records, pa.int64()),
        }
    )
    encoder = create_encoder(topic="t", partitions=PARTITIONS)
    (batch,) = (*encoder.add(rows), *encoder.flush())
    return batch


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", lambda *_: ProducerId(next(ids), 0))


def write(brokers: Faulty, producer: Producer, batches: int) -> list[int]:
    """Write numbers to each partition; return how many."""
    counts = [len(log.values) for log in brokers.logs]
    for _ in range(batches):
        partition = brokers.chance.randrange(PARTITIONS)
        records = brokers.chance.choice([1, 2, 5, 9, 20, 50])
        producer.send("t", encoded(partition, counts[partition], records))
        counts[partition] += records
    written = producer.flush()
    for number, log in enumerate(brokers.logs):
        told = written.get(TopicPartition("t", number))
        if told is not None:
            assert told.next_offset == len(log.values)
            assert told.next_offset - told.first_offset == told.records
    assert producer.unacknowledged_bytes == 0
    return counts


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("seed", range(30, 42))
def test_each_record_is_written_once_and_in_order(seed: int, transactional: bool) -> None:
    brokers = Faulty(seed)
    identity = Identity(7, 1, "id") if transactional else None
    settings = ProduceSettings(max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=3_600_000)
    for _ in range(1 if transactional else 3):
        producer = Producer(brokers, settings, identity)  # type: ignore[arg-type]
        for _ in range(2):
            counts = write(brokers, producer, 40)
            assert [log.values for log in brokers.logs] == [list(range(count)) for count in counts]
        producer.close()
