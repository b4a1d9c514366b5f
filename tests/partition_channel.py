"""Fetches of one partition, for tests of requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel, FetchRequestPartition
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.options.settings import FetchSettings


class PartitionChannel:
    """A fetch channel of a client with a rack, for one partition."""

    def __init__(
        self, connection: Connection, topic: str, topic_id: UUID | None, partition: int, settings: FetchSettings
    ) -> None:
        self.channel = FetchChannel(connection, settings, follow_rack=True)
        self._partition = TopicPartition(topic, partition)
        self._topic_id = topic_id
        self._max_bytes = settings.max_partition_fetch_bytes

    @property
    def version(self) -> int:
        return self.channel.versions[self._topic_id is not None]

    @version.setter
    def version(self, version: int) -> None:
        self.channel.versions[self._topic_id is not None] = version

    def request(
        self,
        offset: int,
        leader_epoch: int = -1,
        max_bytes: int | None = None,
        *,
        last_fetched_epoch: int = -1,
        max_wait_ms: int | None = None,
    ) -> None:
        topic, partition = self._partition
        requested = FetchRequestPartition(
            topic,
            self._topic_id,
            partition,
            offset,
            self._max_bytes if max_bytes is None else max_bytes,
            leader_epoch,
            last_fetched_epoch,
        )
        self.channel.request([requested], Deadline.after(600), max_wait_ms=max_wait_ms)

    def response(self, deadline: Deadline) -> FetchResponsePartition:
        return self.channel.response(deadline).partition(self._partition)
