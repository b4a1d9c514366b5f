"""The producer against brokers with logs like Kafka's, while leaders move and connections break."""

from __future__ import annotations

import random
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kafka.protocol.producer import ProduceRequest
from tests.unit.producer.fake_cluster import FakeCluster, FakeConnection

from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.batch_producer import AssignedProducerId, BatchProducer
from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.codec import compile_writer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import EncodedBatch, create_decoder, create_encoder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.client.deadline import Deadline

PARTITIONS = 3
MOST_RECORDS = 12

_HARMLESS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Log:
    """The log of one partition."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._next: dict[int, tuple[int, int]] = {}  # epochs and sequence numbers
        self._recent: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, data: bytes) -> tuple[int, int]:
        """Return the error code and the base offset."""
        producer, epoch, sequence, count = struct.unpack_from(">qhii", data, 43)
        known_epoch, expected = self._next.get(producer, (epoch, sequence))
        if epoch < known_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch > known_epoch:
            self._recent[producer].clear()
            expected = 0
        for first, records, offset in self._recent.get(producer, ()):
            if (first, records) == (sequence, count):
                return 0, offset
        if expected != sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self._next[producer] = (epoch, sequence + count)
        self._recent.setdefault(producer, deque(maxlen=5)).append((sequence, count, offset))
        decoder = create_decoder(topic="t", partition=0, from_offset=0, until_offset=count, columns=("value",))
        decoder.feed(memoryview(data))
        rows = decoder.read()
        assert rows is not None
        self.values += [int(value.as_py()) for value in rows.column(0)]
        return 0, offset


class FaultyCluster(FakeCluster):
    """Brokers with logs, random leader changes and connection failures."""

    def __init__(self, seed: int) -> None:
        super().__init__(retry_backoff_max_ms=200)
        self.chance = random.Random(seed)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.leader_ids = [1] * PARTITIONS

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, refresh_retry: object = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        stale = self.chance.random() < 0.2
        found: dict[TopicPartition, PartitionLeader | None] = {}
        for each in partitions:
            node = self.chance.choice([1, 2]) if stale else self.leader_ids[each.partition]
            found[each] = None if stale and self.chance.random() < 0.3 else PartitionLeader(self.nodes[node], 0)
        return found

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        if self.chance.random() < 0.1:
            raise BrokerUnreachableError("rejected", broker=str(node))
        connection = FaultyConnection(self, node.id)
        self.system.connections[connection.fileno()] = connection
        return connection


class FaultyConnection(FakeConnection):
    """A connection that breaks."""

    _cluster: FaultyCluster

    def submit(
        self,
        api: messages.ApiMessageType,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int,
        expects_response: bool,
    ) -> None:
        cluster, chance = self._cluster, self._cluster.chance
        fault = chance.choice(["good"] * 6 + ["lost", "unanswered", "silent", "moves"])
        if fault == "moves":
            cluster.leader_ids[chance.randrange(PARTITIONS)] = chance.choice([1, 2])
        if fault == "lost":
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
        response = {
            "responses": [{"name": "t", "partition_responses": partitions}],
            "throttle_time_ms": chance.choice([0, 0, 0, 500]),
        }
        compile_writer(api.response, version, flexible=True)(body, response)
        if fault == "unanswered":
            self._responses.append((cluster.system.now, b""))
            return
        after = float("inf") if fault == "silent" else chance.random()
        self._responses.append((max(cluster.system.now, self._last) + after, bytes(body)))

    def complete(self, api: messages.ApiMessageType, deadline: Deadline, *, version: int) -> Any:
        if self.closed or (self._responses and self._responses[0] == (self._responses[0][0], b"")):
            self.closed = True
            raise BrokerUnreachableError("broken", broker=self.broker)
        if self.ready_at == float("inf"):
            self.closed = True
            raise BrokerTimeoutError("no response", broker=self.broker)
        return super().complete(api, deadline, version=version)

    def _append(self, number: int, data: bytes) -> dict[str, Any]:
        cluster, chance = self._cluster, self._cluster.chance
        if cluster.leader_ids[number] != self._node:
            hint = {"leader_id": chance.choice([1, 2]), "leader_epoch": 1}
            return {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "base_offset": -1, "current_leader": hint}
        if int.from_bytes(data[57:61], "big") > MOST_RECORDS:
            return {"error_code": ErrorCode.MESSAGE_TOO_LARGE, "base_offset": -1}
        if chance.random() < 0.1:
            return {"error_code": chance.choice(_HARMLESS), "base_offset": -1}
        code, offset = cluster.logs[number].append(data)
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
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


def write(cluster: FaultyCluster, producer: BatchProducer, batches: int) -> list[int]:
    """Write consecutive numbers to each partition; return their counts."""
    counts = [len(log.values) for log in cluster.logs]
    for _ in range(batches):
        partition = cluster.chance.randrange(PARTITIONS)
        records = cluster.chance.choice([1, 2, 5, 9, 20, 50])
        producer.send("t", encoded(partition, counts[partition], records))
        counts[partition] += records
    written = producer.flush()
    for number, log in enumerate(cluster.logs):
        response = written.get(TopicPartition("t", number))
        if response is not None:
            assert response.next_offset == len(log.values)
            assert response.next_offset - response.first_offset == response.records
    assert producer.unacknowledged_bytes == 0
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("seed", range(30, 42))
def test_each_record_is_written_once_and_in_order(seed: int, transactional: bool) -> None:
    cluster = FaultyCluster(seed)
    assigned_id = AssignedProducerId(7, 1, "id") if transactional else None
    settings = ProducerSettings(max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=3_600_000)
    for _ in range(1 if transactional else 3):
        producer = BatchProducer(cluster, settings, assigned_id)  # type: ignore[arg-type]
        for _ in range(2):
            counts = write(cluster, producer, 20)
            assert [log.values for log in cluster.logs] == [list(range(count)) for count in counts]
        producer.close()
