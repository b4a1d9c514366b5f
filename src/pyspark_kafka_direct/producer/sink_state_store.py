"""Sink state records and tickets in a compacted topic: one record per transactional id, written with its batches.

A ticket is the offset of a record that a driver appends when it plans a batch. It is never read. It is a tombstone, so
compaction deletes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, TransactionStateError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import Ticket
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.producer.compacted_partition import (
    COMPACTED_TOPIC_CONFIGS,
    CompactedPartition,
    TopicErrorText,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.producer.transactional_records import KeyRecord
    from pyspark_kafka_direct.records import EncodedBatch

# Each batch takes three offsets: its ticket, its record, and the control record of its transaction. If few queries
# share the topic, the newest record of a key is among the last offsets, which are read first.
_LAST_OFFSETS: Final = 300

_REPLICAS: Final = 3  # if there are as many brokers; the topic then tolerates the loss of one
_MIN_IN_SYNC: Final = {"min.insync.replicas": "2"}

_ERROR_TEXT: Final = TopicErrorText(
    topic="sink state topic",
    loss="the sink state record of a query that writes nothing for a while",
    content="The sink state record of the last batch",
    isolation_advice="Set another sinkStateTopic to isolate the query from others.",
    error_type=TransactionStateError,
)


class StoredSinkState(NamedTuple):
    """The newest record of a key, and the offset up to which the topic was read."""

    newest: KeyRecord | None  # None: no committed record
    undecided: KeyRecord | None  # a newer record whose transaction has not ended
    read_until: int

    @property
    def value(self) -> bytes | None:
        """The newest value; ``None`` if there is no record, or only a tombstone."""
        return None if self.newest is None else self.newest.value


class SinkStateStore:
    """The sink state records in partition 0 of one topic."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._log = CompactedPartition(cluster, topic, _ERROR_TEXT)
        self.partition = self._log.partition

    def ensure_topic(self, deadline: Deadline | None = None) -> None:
        """Create the topic if it does not exist, and check that it is compacted."""
        deadline = deadline or self._cluster.deadline()
        if not self._cluster.nodes:
            self._cluster.refresh_brokers(deadline=deadline)
        replicas = min(_REPLICAS, len(self._cluster.nodes))
        configs = COMPACTED_TOPIC_CONFIGS | (_MIN_IN_SYNC if replicas == _REPLICAS else {})
        self._log.ensure_topic(deadline, configs, replicas=replicas)

    def append_ticket(self, key: str) -> Ticket:
        """Append a ticket, without a transaction, so that no other writer can delay or abort it."""
        # A ticket that is appended twice does no harm, so it needs no producer id.
        producer = BatchProducer(self._cluster, ProducerSettings(idempotent=False))
        try:
            for batch in self._log.encode([(f"{key}/ticket".encode(), None)]):
                producer.send(self.topic, batch)
            offset = producer.flush()[self.partition].first_offset
        finally:
            producer.close()
        if offset < 0:
            raise BrokerError("The broker did not return the offset of a record in the sink state topic.")
        topic_id = self._cluster.known_topic_ids([self.topic]).get(self.topic)  # a new client did not know it before
        return Ticket("" if topic_id is None else topic_id.hex, offset)

    def read(self, key: str, deadline: Deadline | None = None) -> StoredSinkState:
        """Return the newest committed record of a key, without waiting for open transactions.

        The result may be stale if the responding broker no longer leads the partition; ``check_newest`` detects that.
        """
        deadline = deadline or self._cluster.deadline()
        end = self._log.end(deadline)
        start = self._log.start(deadline)
        # Most keys have a record among the last offsets. Otherwise everything is read.
        for first in sorted({max(start, end - _LAST_OFFSETS), start}, reverse=True):
            found = self._log.find_newest(key.encode(), first, end, deadline, from_earliest=first == start)
            if found.newest is not None:
                break
        return StoredSinkState(found.newest, found.undecided, end)

    def read_decided(self, key: str, earlier: StoredSinkState | None = None) -> StoredSinkState:
        """Return the newest record of a key whose earlier writers are fenced, or raise if its outcome is unknown.

        ``earlier`` is an earlier result of ``read``, which is still right if nothing was appended since.
        """
        stored = earlier
        if stored is None or stored.undecided or self._log.end(self._cluster.deadline()) != stored.read_until:
            stored = self.read(key)
        if stored.undecided is not None:
            raise BrokerError(
                "The newest sink state record belongs to a transaction that has no control record, although its writer "
                "is fenced. The broker that returned it no longer leads the partition, or the transaction hangs: "
                "kafka-transactions.sh finds and aborts hanging transactions. Nothing was committed.",
                topic=self.topic,
                partition=self.partition.partition,
                offset=stored.undecided.offset,
            )
        return stored

    def check_newest(self, key: str, stored: StoredSinkState, offset: int, deadline: Deadline | None = None) -> None:
        """Raise unless the uncommitted record at ``offset`` is the next one of its key after the stored one."""

        def has_own_records() -> bool:
            limit = deadline or self._cluster.deadline()
            between = self._log.find_newest(key.encode(), stored.read_until, offset, limit)
            return between.newest is not None or between.undecided is not None

        self._log.check_follows(stored.read_until, offset, has_own_records)

    def encode(self, key: str, value: bytes | None) -> EncodedBatch:
        """Return a record batch with one record; a value of ``None`` is a tombstone."""
        (batch,) = self._log.encode([(key.encode(), value)])
        return batch
