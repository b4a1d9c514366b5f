"""Reads of an offset range of a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.settings import task_settings
from tests.unit.consumer.polling import ONE

from pyspark_kafka_direct.client.cluster_client import PartitionLeader
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.consumer.polling import ConsumerCluster

    from pyspark_kafka_direct.offsets import TopicPartition


class Read:
    """A read of the first offsets of a partition, with what it has counted."""

    def __init__(
        self, cluster: ConsumerCluster, *, poll_timeout: float = 30.0, tp: TopicPartition = ONE, **fetch: Any
    ) -> None:
        self.cluster = cluster
        self.poll_timeout = poll_timeout
        self.fetch = FetchSettings(**fetch)
        self.counts = ReadCounts()
        self.tp = tp
        self.topic_id = cluster.topic_id(tp.topic)
        self.leader: PartitionLeader | None = None
        self.seconds = 0.0

    def plan_leader(self, *, epoch: int | None = None) -> None:
        """Plan as the driver does; with an epoch, it has seen that one."""
        client = self.cluster.client()
        client.topics([self.tp.topic])
        node, known_epoch = client.known_leaders([self.tp])[self.tp]
        self.leader = PartitionLeader(node, known_epoch if epoch is None else epoch)

    def run(self, *, fail: bool = True, until: int = 20) -> list[int]:
        """Return the offsets."""
        started = self.cluster.now
        try:
            return [offset for offsets in self.parts(fail=fail, until=until) for offset in offsets]
        finally:
            self.seconds = self.cluster.now - started

    def parts(self, *, fail: bool = True, until: int = 20, max_rows: int = 32_768) -> Iterator[list[int]]:
        """Yield the offsets of each Arrow batch."""
        client = self.cluster.client()
        config = task_settings(client.settings, self.fetch, poll_timeout=self.poll_timeout, fail_on_data_loss=fail)
        task = RangeTask(OffsetRange(*self.tp, 0, until), self.topic_id, self.leader)
        for batch in read_range(*config, task, ("offset",), self.counts, max_rows=max_rows, pool=client.pool):
            yield batch.column("offset").to_pylist()
