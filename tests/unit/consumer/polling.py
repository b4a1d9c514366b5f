"""Partitions, and helpers that poll a consumer of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.consumer.fake_cluster import FakeCluster

    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer, PolledBatch

ONE, TWO, THREE = (TopicPartition("flights", number) for number in range(3))
OTHER = TopicPartition("ships", 0)


def offsets(polled: list[PolledBatch]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for partition, rows in polled:
        assert rows.num_rows
        found.setdefault(partition, []).extend(rows.column("offset").to_pylist())
    return found


def poll_until(
    consumer: PartitionConsumer, until: Callable[[], bool], seconds: float = 120.0
) -> dict[TopicPartition, list[int]]:
    """Polls until a condition holds, and returns the offsets."""
    found: dict[TopicPartition, list[int]] = {}
    for _ in range(10_000):
        if until():
            return found
        for partition, more_offsets in offsets(consumer.poll(seconds)).items():
            found.setdefault(partition, []).extend(more_offsets)
    raise AssertionError(f"the condition never held: {consumer.positions}, {consumer.transient_errors}")


def at_end(cluster: FakeCluster, consumer: PartitionConsumer) -> Callable[[], bool]:
    return lambda: all(position == cluster.logs[tp].high_watermark for tp, position in consumer.positions.items())


def poll_until_error(consumer: PartitionConsumer, error_type: type[Exception], seconds: float = 600.0) -> Any:
    """Polls until an error of this type, and returns it."""
    limit = consumer._system.monotonic() + seconds
    while consumer._system.monotonic() < limit:
        try:
            consumer.poll(limit - consumer._system.monotonic())
        except error_type as error:
            return error
    raise AssertionError(f"no {error_type.__name__}")
