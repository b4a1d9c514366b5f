"""Partitions, a simulated cluster with a consumer of them, and helpers that poll the consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.consumer.partition_consumer import PolledBatch
    from pyspark_kafka_direct.options.settings import IsolationLevel

ONE, TWO, THREE = (TopicPartition("flights", number) for number in range(3))
OTHER = TopicPartition("ships", 0)


class ConsumerCluster(UnitCluster):
    """Two brokers and the topic ``flights``."""

    def __init__(
        self, partitions: int = 3, *, topics: Mapping[str, int] | None = None, brokers: int = 2, **fields: Any
    ) -> None:
        super().__init__({"flights": partitions, **(topics or {})}, brokers=brokers, **fields)

    def consumer(
        self,
        starts: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        fetch: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> PartitionConsumer:
        """Return a consumer of all partitions from offset 0 on, unless starts are given."""
        if starts is None:
            starts = {TopicPartition(*target.name): 0 for target in self.cluster.all_partitions()}
        settings = FetchSettings(isolation_level, **(fetch or {}))
        return PartitionConsumer(self.client(), settings, starts, **({"columns": ("offset", "value")} | fields))


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


def at_end(cluster: UnitCluster, consumer: PartitionConsumer) -> Callable[[], bool]:
    return lambda: all(position == cluster.log(tp).high_watermark for tp, position in consumer.positions.items())


def poll_until_error(consumer: PartitionConsumer, error_type: type[Exception], seconds: float = 600.0) -> Any:
    """Polls until an error of this type, and returns it."""
    limit = consumer._system.monotonic() + seconds
    while (now := consumer._system.monotonic()) < limit:
        try:
            consumer.poll(limit - now)
        except error_type as error:
            return error
    raise AssertionError(f"no {error_type.__name__}")
