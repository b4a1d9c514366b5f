"""What a log learns from the records that it sends, on a simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import LogCluster, tp

from pyspark_kafka_direct.log.log_worker import LogWorker
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from pyspark_kafka_direct.log import KafkaBasedLog
    from pyspark_kafka_direct.offsets import TopicPartition


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TopicPartition, int]]:
    """Partition and offset of the records that were reported to the log's thread."""
    reported: list[tuple[TopicPartition, int]] = []
    on_written = LogWorker.on_written

    def note(worker: LogWorker, partition: TopicPartition, offset: int, *more: Any) -> None:
        reported.append((partition, offset))
        on_written(worker, partition, offset, *more)

    monkeypatch.setattr(LogWorker, "on_written", note)
    return reported


def log_with(cluster: LogCluster, producer: AsyncProducer, **options: Any) -> KafkaBasedLog:
    return cluster.log_of(replace(cluster.clients(), produce=None, producer=producer), **options)


def test_the_first_record_of_each_state_of_the_log_is_reported(
    cluster: LogCluster, written: list[tuple[TopicPartition, int]]
) -> None:
    """Later ones have higher offsets, so they reveal nothing more. Other logs may share the producer."""
    producer = AsyncProducer(cluster.client(), ProducerSettings(), linger=1.0)
    with log_with(cluster, producer) as log, log_with(cluster, producer) as other:
        for sender in (log, log, other):
            sender.send(b"k", b"v")
        first = log.send_with_receipt(b"k", b"v").result(10)
        partition = tp(first.partition)
        assert sorted(written) == [(partition, 0), (partition, 2)]
        log.read_to_end().result(10)
        for _ in range(2):
            log.send(b"k", b"v")
        log.flush(10)
        assert written[2:] == [(partition, 4)]


def test_records_in_partitions_that_are_not_read(
    cluster: LogCluster, written: list[tuple[TopicPartition, int]]
) -> None:
    with cluster.log_of(partitions=lambda number: number == 0) as log:
        metadata = [log.send_with_receipt(b"k%d" % number, b"v").result(10) for number in range(9)]
        assert {each.partition for each in metadata} == {0, 1}
        assert {partition for partition, _ in written} == {tp(0)}


def test_an_offset_may_be_unknown(cluster: LogCluster, written: list[tuple[TopicPartition, int]]) -> None:
    producer = AsyncProducer(cluster.client(), ProducerSettings(acks=0, idempotent=False))
    with log_with(cluster, producer) as log:
        log.send(b"k", b"v")
        log.flush(10)
        cluster.sleep(1)
        log.read_to_end().result(10)
        assert [offset for _, offset in written] == [-1]
        assert (len(cluster.delivered), cluster.errors) == (1, [])
