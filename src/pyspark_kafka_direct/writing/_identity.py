"""Who writes: a producer id for each partition, handed over from elsewhere or one of the process's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.wire._idle_producers import IdleProducer, Place, ProducerId
from pyspark_kafka_direct.wire.producer_ids import new_producer_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.writing._partition import Partition


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id that somebody else takes care of.

    Attributes:
        producer_id: The id.
        epoch: Its epoch.
        transactional_id: Of the transaction that the records belong to, if they do.
    """

    producer_id: int
    epoch: int
    transactional_id: str | None = None


class Identities:
    """Gives out producer ids, and keeps its own for the next producer of the process.

    Args:
        cluster: The cluster; its metadata must have been asked for before the first ``place``.
        settings: Whether there are sequence numbers.
        identity: The only one, if there is one.

    Attributes:
        numbered: Whether record batches have producer ids and sequence numbers.
        renewable: Whether there is another producer id where one is worn out.
        transactional_id: Of the transaction that the records belong to.
    """

    def __init__(self, cluster: Cluster, settings: ProduceSettings, identity: Identity | None) -> None:
        self.numbered = identity is not None or (settings.idempotent and settings.acks == -1)
        self.renewable = identity is None
        self.transactional_id = None if identity is None else identity.transactional_id
        self._given = None if identity is None else ProducerId(identity.producer_id, identity.epoch)
        self._cluster = cluster
        self._own: IdleProducer | None = None
        self._key: tuple[object, ...] = ()

    def place(self, name: TopicPartition, worn_out: Place | None, deadline: Deadline) -> Place:
        """Return with which id, and from which sequence number on, to write to a partition.

        Args:
            name: The partition.
            worn_out: What was used there until now, if there was something.
            deadline: End of the wait for a new id.

        Raises:
            BrokerError: No broker gave one.
        """
        if self._given is not None:
            return Place(self._given, 0)
        if self._own is None:
            # Another cluster at the same address gives the same ids to others, even if it comes there meanwhile.
            self._key = (self._cluster.settings, self._cluster.cluster_id)
            self._own = self._cluster.pool.producers.take(self._key) or IdleProducer(self._new(deadline))
        if worn_out is None and name in self._own.places:
            return self._own.places[name]
        if worn_out is not None and worn_out.producer == self._own.newest:
            self._own.newest = self._new(deadline)
        return Place(self._own.newest, 0)

    def keep(self, partitions: Iterable[Partition]) -> None:
        """Let the next producer go on where the partitions are; everything that was sent is acknowledged."""
        if self._own is None:
            return
        self._own.places.update({each.name: each.place for each in partitions if each.place is not None})
        self._cluster.pool.producers.keep(self._key, self._own)
        self._own = None

    def _new(self, deadline: Deadline) -> ProducerId:
        return new_producer_id(self._cluster, deadline)
