"""The producer id and sequence number to use in each partition: assigned by the caller, or reused from the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.client.producer_state import (
    EPOCH_ENDED,
    IdempotentProducerState,
    PartitionSequence,
    ProducerIdAndEpoch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

_MAX_EPOCH: Final = 32_767


@dataclass(frozen=True, slots=True)
class AssignedProducerId:
    """A producer id that the caller manages, with the transactional id if records belong to a transaction."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


class ProducerIdManager:
    """Provides producer ids. The next producer of the process reuses an id that it requested."""

    def __init__(
        self, cluster: ClusterClient, settings: ProducerSettings, assigned_id: AssignedProducerId | None
    ) -> None:
        self.idempotent = assigned_id is not None or (settings.idempotent and settings.acks == -1)
        self.can_change_epoch = assigned_id is None
        self.transactional_id = None if assigned_id is None else assigned_id.transactional_id
        self._assigned_id = (
            None if assigned_id is None else ProducerIdAndEpoch(assigned_id.producer_id, assigned_id.epoch)
        )
        self._cluster = cluster
        # Both are set by the first `sequence_for`, unless the id is assigned.
        self._producer_state: IdempotentProducerState | None = None
        self._pool_key: tuple[object, ...] = ()

    def sequence_for(
        self, topic_partition: TopicPartition, previous: PartitionSequence | None, deadline: Deadline
    ) -> PartitionSequence:
        """Return the producer id and the first sequence number for a partition.

        ``previous`` is the sequence that cannot be continued, if any. Metadata must have been fetched before, because
        the cluster id is part of the key of reused producer ids.
        """
        if self._assigned_id is not None:
            return PartitionSequence(self._assigned_id, sequence=0)
        if self._producer_state is None:
            # Another cluster at the same address assigns the same ids to other producers.
            self._pool_key = (self._cluster.settings, self._cluster.cluster_id)
            self._producer_state = self._cluster.pool.idle_producers.acquire(self._pool_key) or IdempotentProducerState(
                self._request_id(deadline)
            )
        if previous is None:
            previous = self._producer_state.sequences.get(topic_partition)
            if previous is None:
                return PartitionSequence(self._producer_state.producer, sequence=0)
            if previous.sequence != EPOCH_ENDED:
                return previous
        # The next epoch fences the previous one: the leader rejects a request that arrives late (KIP-360).
        producer = previous.producer
        if producer.epoch < _MAX_EPOCH:
            return PartitionSequence(producer._replace(epoch=producer.epoch + 1), sequence=0)
        if producer.id == self._producer_state.producer.id:  # else another partition has needed a new id before
            self._producer_state.producer = self._request_id(deadline)
        return PartitionSequence(self._producer_state.producer, sequence=0)

    def save_sequences(self, partitions: Iterable[PartitionQueue]) -> None:
        """Save for the next producer with this id: the next sequence numbers, and which partitions need a new epoch."""
        if self._producer_state is None:
            return
        for partition in partitions:
            sequence = partition.partition_sequence
            if sequence is not None:
                # The leader may still receive a batch that is unacknowledged or was dropped. It rejects this late batch
                # if the next producer uses a higher epoch.
                may_continue = partition.is_complete and not partition.needs_producer_id
                self._producer_state.sequences[partition.topic_partition] = (
                    sequence if may_continue else sequence._replace(sequence=EPOCH_ENDED)
                )

    def release(self) -> None:
        """Let the next producer of the process use the producer id."""
        if self._producer_state is not None:
            self._cluster.pool.idle_producers.release(self._pool_key, self._producer_state)
            self._producer_state = None

    def _request_id(self, deadline: Deadline) -> ProducerIdAndEpoch:
        return request_producer_id(self._cluster, deadline)
