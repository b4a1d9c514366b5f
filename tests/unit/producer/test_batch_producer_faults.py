"""The producer on a simulated cluster with random faults of requests and brokers: each record once, and in order."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.faults import REQUEST_FAULTS, draw_fault
from tests.unit.producer.encoded_batches import encoded
from tests.unit.producer.producer_cluster import ProducerCluster

from pyspark_kafka_direct.errors import InvalidRecordError, KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

PARTITIONS = 3
REQUESTS = 200  # more than a test sends
EVENTS = ("elect_leader", "lose_leader", "stop_broker", "pause_broker", "stick_image")


class FaultyCluster(ProducerCluster):
    """Leaders move, brokers stop, connections break, responses are lost, and a batch has at most 12 records."""

    def __init__(self, seed: int, *, rejections: float = 0.0) -> None:
        super().__init__(connection={"retry_backoff_max_ms": 200}, metadata_lag=0.3, replication_delay=0.01)
        self.chance = chance = random.Random(seed)
        self.cluster.topics["t"].configs["max.message.bytes"] = "200"
        for number in range(REQUESTS):
            if chance.random() < rejections:
                self.fault("Produce", "error", number=number, code=ErrorCode.INVALID_RECORD)
            elif chance.random() < 0.15:  # the records are written, so that the next batches are too
                self.fault("Produce", "error", number=number, code=ErrorCode.REQUEST_TIMED_OUT, is_handled=True)
            elif chance.random() < 0.3:
                fault = draw_fault(chance, REQUEST_FAULTS)
                self.fault("Produce", fault.kind, number=number, **fault.arguments)
        for _ in range(20):
            self.after(chance.random() * 100, lambda: self._disturb(chance.choice(EVENTS)))

    def _disturb(self, kind: str) -> None:
        seconds = self.chance.random() * 3
        if kind in ("elect_leader", "lose_leader"):
            partition = {"topic": "t", "partition": self.chance.randrange(PARTITIONS)}
            self.event(kind, **partition, **({"seconds": seconds} if kind == "lose_leader" else {}))
        else:
            self.event(kind, broker=self.chance.randrange(2), seconds=seconds)


def write(cluster: FaultyCluster, producer: BatchProducer, counts: list[int], batches: int) -> None:
    """Write consecutive numbers to each partition, and add them to the counts."""
    for _ in range(batches):
        partition = cluster.chance.randrange(PARTITIONS)
        records = cluster.chance.choice([1, 2, 5, 9, 20, 50])
        producer.send("t", encoded(partition, counts[partition], records))
        counts[partition] += records
    written = producer.flush()
    assert producer.unacknowledged_bytes == 0
    for number, count in enumerate(counts):
        assert cluster.values(number) == list(range(count))
        response = written.get(TopicPartition("t", number))
        if response is not None:
            assert (response.next_offset, response.next_offset - response.first_offset) == (count, response.records)


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("seed", range(30, 34))
def test_each_record_is_written_once_and_in_order(seed: int, transactional: bool) -> None:
    with FaultyCluster(seed) as cluster:
        assigned_id = cluster.transactional_id() if transactional else None
        counts = [0] * PARTITIONS
        for _ in range(1 if transactional else 2):
            producer = cluster.producer(
                assigned_id, max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=3_600_000
            )
            for _ in range(2):
                write(cluster, producer, counts, 20)
            producer.close()


class RecordOutcomes:
    """The outcome of each record of a batch."""

    def __init__(self, first: int, records: int) -> None:
        self.first = first
        self.outcomes: list[Any] = [None] * records

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        for index in range(first_index, first_index + record_count):
            assert self.outcomes[index] is None
            self.outcomes[index] = base_offset + index - first_index

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        for index in range(first_index, first_index + record_count):
            assert self.outcomes[index] is None
            self.outcomes[index] = error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 68))
def test_each_record_is_reported_once_and_correctly_despite_faults(seed: int) -> None:
    """Records are rejected too, and timeouts are short."""
    outcomes = report_each_once(seed, 100)
    assert outcomes["written"] > outcomes["rejected"] > 0
    assert outcomes["unknown"] > 0


def test_the_records_of_a_few_batches_are_reported_once_and_correctly() -> None:
    outcomes = sum((report_each_once(seed, 12) for seed in range(200, 206)), Counter[str]())
    assert min(outcomes[kind] for kind in ("written", "rejected", "unknown", "not written")) > 0


def report_each_once(seed: int, count: int) -> Counter[str]:
    """Send so many batches, check the outcome of each record, and return the numbers of outcomes."""
    outcomes = Counter[str]()
    with FaultyCluster(seed, rejections=0.1) as cluster:
        producer = cluster.producer(max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=12_000)
        counts = [0] * PARTITIONS
        sent: list[list[RecordOutcomes]] = [[] for _ in range(PARTITIONS)]
        for _ in range(count):
            partition = cluster.chance.randrange(PARTITIONS)
            number = cluster.chance.choice([1, 2, 5, 9, 20, 50])
            records = RecordOutcomes(counts[partition], number)
            sent[partition].append(records)
            created_at = cluster.now - cluster.chance.choice([0, 0, 0, 8])
            producer.send("t", encoded(partition, counts[partition], number), records, created_at=created_at)
            counts[partition] += number
            limit = cluster.chance.choice([110, 150, 200])  # an administrator changes it
            cluster.cluster.topics["t"].configs["max.message.bytes"] = str(limit)
        producer.flush()
        assert producer.unacknowledged_bytes == 0
        cluster.sleep(100)  # late requests arrive
        for partition, batches in enumerate(sent):
            check(batches, cluster.values(partition), outcomes)
    return outcomes


def check(batches: list[RecordOutcomes], log: list[int], outcomes: Counter[str]) -> None:
    assert log == sorted(set(log)), "in order, and none twice"
    for records in batches:
        for value, outcome in enumerate(records.outcomes, records.first):
            if isinstance(outcome, int):
                outcomes["written"] += 1
                assert log[outcome] == value
                continue
            assert isinstance(outcome, KafkaDirectError)
            unknown = outcome.message.endswith(" The records may have been written.")
            assert unknown != outcome.message.endswith(" The records were not written.")
            assert unknown or value not in log
            outcomes["rejected"] += isinstance(outcome, InvalidRecordError)
            outcomes["unknown" if unknown else "not written"] += 1
