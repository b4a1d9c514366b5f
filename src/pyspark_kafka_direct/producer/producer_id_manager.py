"""The producer id and sequence number to use in each partition: assigned by the caller, or reused from the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.client.producer_state import IdempotentProducerState, PartitionSequence, ProducerIdAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.config.client_settings import ProducerSettings
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue


@dataclass(frozen=True, slots=True)
class AssignedProducerId:
    """A producer id that the caller manages, with the transactional id if records belong to a transaction."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


class ProducerIdManager:
    """Provides producer ids. An id that it requested is kept for the next producer of the process."""

    def __init__(
        self, cluster: ClusterClient, settings: ProducerSettings, assigned_id: AssignedProducerId | None
    ) -> None:
        self.idempotent = assigned_id is not None or (settings.idempotent and settings.acks == -1)
        self.can_renew_id = assigned_id is None
        self.transactional_id = None if assigned_id is None else assigned_id.transactional_id
        self._assigned_id = (
            None if assigned_id is None else ProducerIdAndEpoch(assigned_id.producer_id, assigned_id.epoch)
        )
        self._cluster = cluster
        self._idle_producer: IdempotentProducerState | None = None
        self._pool_key: tuple[object, ...] = ()

    def sequence_for(
        self, topic_partition: TopicPartition, previous: PartitionSequence | None, deadline: Deadline
    ) -> PartitionSequence:
        """Return the producer id and the first sequence number for a partition.

        ``previous`` is the sequence that the broker rejected, if any. Metadata must have been fetched before, because
        the cluster id is part of the key of reused producer ids.
        """
        if self._assigned_id is not None:
            return PartitionSequence(self._assigned_id, 0)
        if self._idle_producer is None:
            # Another cluster at the same address assigns the same ids to other producers.
            self._pool_key = (self._cluster.settings, self._cluster.cluster_id)
            self._idle_producer = self._cluster.pool.idle_producers.acquire(self._pool_key) or IdempotentProducerState(
                self._request_id(deadline)
            )
        if previous is None and topic_partition in self._idle_producer.sequences:
            return self._idle_producer.sequences[topic_partition]
        if previous is not None and previous.producer == self._idle_producer.producer:
            self._idle_producer.producer = self._request_id(deadline)
        return PartitionSequence(self._idle_producer.producer, 0)

    def release(self, partitions: Iterable[PartitionQueue]) -> None:
        """Let the next producer continue the sequences of the partitions; all batches must be acknowledged."""
        if self._idle_producer is None:
            return
        self._idle_producer.sequences.update(
            {
                partition.topic_partition: partition.partition_sequence
                for partition in partitions
                if partition.partition_sequence is not None
            }
        )
        self._cluster.pool.idle_producers.release(self._pool_key, self._idle_producer)
        self._idle_producer = None

    def _request_id(self, deadline: Deadline) -> ProducerIdAndEpoch:
        return request_producer_id(self._cluster, deadline)
