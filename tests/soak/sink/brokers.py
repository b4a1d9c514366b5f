"""Faults of a cluster of three brokers: one restarts, or all leaders move."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from tests.soak.writer import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka.admin import PartitionMetadata

    from pyspark_kafka_direct.broker import EmbeddedKafka

REPLICAS = 3
PROPERTIES = {
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
}  # acknowledged records survive the loss of one broker

_DEADLINE = 120.0
_PREFERRED = 0


class Brokers:
    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka = kafka

    @property
    def servers(self) -> str:
        return self._kafka.bootstrap_servers

    def restart(self, broker: int, *, clean: bool) -> None:
        """Kill or stop a broker once all replicas are in sync, and start it again."""
        self._await(lambda now: all(len(each.isrs) == len(each.replicas) for each in now.values()), "in sync")
        if clean:
            self._kafka.stop_broker(broker)
        else:
            self._kafka.kill_broker(broker)
        self._kafka.start_broker(broker)

    def move_leaders(self) -> None:
        """Move the leaders of all partitions, and with them the coordinators."""
        before = self._partitions()
        rotated = {partition: [*each.replicas[1:], each.replicas[0]] for partition, each in before.items()}
        admin = KafkaAdminClient(bootstrap_servers=self.servers.split(","), request_timeout_ms=30_000)
        try:
            admin.alter_partition_reassignments(rotated)
            self._await(
                lambda now: all(now[partition].replicas == rotated[partition] for partition in rotated), "reassigned"
            )
            admin.elect_leaders(_PREFERRED, timeout_ms=30_000, raise_errors=False)
            self._await(
                lambda now: all(now[partition].leader == rotated[partition][0] for partition in rotated),
                "led by others",
            )
        finally:
            admin.close()

    def _await(self, condition: Callable[[Mapping[TopicPartition, PartitionMetadata]], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition(self._partitions()):
            assert time.monotonic() < deadline, f"the partitions are not {what} after {_DEADLINE:.0f} s"
            time.sleep(0.1)

    def _partitions(self) -> dict[TopicPartition, PartitionMetadata]:
        admin = AdminClient({"bootstrap.servers": self.servers}, logger=quiet())
        topics = admin.list_topics(timeout=30).topics
        return {
            TopicPartition(topic, number): partition
            for topic, each in topics.items()
            for number, partition in each.partitions.items()
        }
