"""A simulated cluster with a consumer group, for code that commits in background threads."""

from __future__ import annotations

from typing import Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode


class CommitCluster(UnitCluster):
    """One broker, which coordinates the group ``shop``."""

    def __init__(self, **cluster: Any) -> None:
        super().__init__({"t": 2, "u": 1}, **cluster)

    def group(self, group_id: str = "shop") -> ConsumerGroup:
        return ConsumerGroup(self.client(), group_id)

    def delay_commits(self, seconds: float | None) -> None:
        """Let the coordinator respond to commits so late; None ends it."""
        self.every("OffsetCommit", None if seconds is None else "delay_response", seconds=seconds)

    def reject_commits(self, repeats: int = 1) -> None:
        """Reject the next commits."""
        self.fault("OffsetCommit", "error", repeats=repeats, code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    @property
    def commits(self) -> list[dict[TopicPartition, int]]:
        """The offsets of all commit requests that the coordinator has accepted, in their order."""
        return [
            {
                TopicPartition(topic.name or self.topic_name(topic.topic_id), each.partition_index): (
                    each.committed_offset
                )
                for topic in request.topics
                for each in topic.partitions
            }
            for request in self.received("OffsetCommit")
        ]
