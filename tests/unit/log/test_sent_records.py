"""What a log learns from the records that it sends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, tp

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.log.kafka_based_log import SentRecords
from pyspark_kafka_direct.log.log_state import LogState
from pyspark_kafka_direct.log.pending_reads import LogFuture, PendingReads
from pyspark_kafka_direct.producer.accumulator import DeliveryReport, PendingRecord

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition


class Worker:
    """Notes what is reported to it."""

    def __init__(self) -> None:
        self.state = LogState(generation=1, positions={tp(0): 7})
        self.written: list[tuple[Any, ...]] = []
        self.wakes = 0
        self.pending_reads = PendingReads(SYSTEM)

    def on_written(self, partition: TopicPartition, offset: int, before: LogState) -> None:
        self.written.append((partition, offset, before.positions.get(partition), before.generation))

    def wake(self) -> None:
        self.wakes += 1


@pytest.fixture
def worker() -> Worker:
    return Worker()


def sent_records(worker: Any, producer: Any = None) -> SentRecords:
    return SentRecords(producer, worker, lambda number: number != 2)


def record(sent: SentRecords, worker: Worker, partition: int = 0) -> PendingRecord:
    return PendingRecord(
        TOPIC,
        None,
        None,
        headers=(),
        partition=partition,
        timestamp=0,
        created_at=0.0,
        size_bound=0,
        listener=sent,
        context=worker.state,
    )


def test_the_first_record_of_each_state_of_the_log_is_reported(worker: Worker) -> None:
    """Later ones have higher offsets, so they reveal nothing more."""
    sent = sent_records(worker)
    records = [record(sent, worker), record(sent, worker)]
    worker.state = replace(worker.state, positions={tp(0): 9})
    records += [record(sent, worker), record(sent_records(worker), worker)]
    worker.state = worker.state.of_next_generation({tp(0): 9})
    records += [record(sent, worker), record(sent, worker)]
    sent.on_acknowledged(DeliveryReport(records, 5))
    assert worker.written == [(tp(0), 5, 7, 1), (tp(0), 7, 9, 1), (tp(0), 9, 9, 2)]


def test_records_in_partitions_that_are_not_read(worker: Worker) -> None:
    sent = sent_records(worker)
    sent.on_acknowledged(DeliveryReport([record(sent, worker, 2)], 5))
    assert worker.written == []
    sent.on_acknowledged(DeliveryReport([record(sent, worker, 1)], 5))
    assert worker.written == [(tp(1), 5, None, 1)], "it was added"


def test_an_offset_may_be_unknown(worker: Worker) -> None:
    sent = sent_records(worker)
    sent.on_acknowledged(DeliveryReport([record(sent, worker)] * 2))
    assert worker.written == [(tp(0), -1, 7, 1)]


def test_the_worker_is_woken_for_reads_that_may_be_activated(worker: Worker) -> None:
    producer = SimpleNamespace(completed_count=2)
    sent = sent_records(worker, producer)
    sent.on_completed()
    read = LogFuture(lambda: False, SYSTEM)
    worker.pending_reads.add_read_to_end(read, 3)
    sent.on_completed()
    assert worker.wakes == 0
    producer.completed_count = 3
    sent.on_completed()
    assert worker.wakes == 1
