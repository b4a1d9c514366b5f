"""Sink state records: one per transactional id in a compacted topic, written in the transactions of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, TransactionStateError
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition, TopicErrorText, values_with_key

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.config.client_settings import IsolationLevel
    from pyspark_kafka_direct.records import EncodedBatch

# Each write takes two offsets: the record and the control record of its transaction. If few queries share the topic,
# the newest record of a key is among the last offsets, which are read first.
_LAST_OFFSETS: Final = 200

_ERROR_TEXT: Final = TopicErrorText(
    topic="sink state topic",
    loss="the sink state record of a query that writes nothing for a while",
    content="The sink state record of the last batch",
    isolation_advice="Set another sinkStateTopic to isolate the query from others.",
    error_type=TransactionStateError,
)


class SinkStateRecord(NamedTuple):
    value: bytes | None  # None: a tombstone


class StoredSinkState(NamedTuple):
    """The newest sink state of a key."""

    value: bytes | None  # None: no record, or a tombstone
    read_until: int  # the offset after the last one that was read


class SinkStateStore:
    """The sink state records in partition 0 of one topic."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._log = CompactedPartition(cluster, topic, _ERROR_TEXT)
        self.partition = self._log.partition

    def ensure_topic(self, deadline: Deadline | None = None) -> None:
        """Create the topic if it does not exist, and check that it is compacted."""
        self._log.ensure_topic(deadline or self._cluster.deadline())

    def read_newest(self, key: str, deadline: Deadline | None = None) -> StoredSinkState:
        """Return the newest committed value of a key, after waiting for open transactions of other writers.

        The result may be stale if the responding broker no longer leads the partition; ``check_newest`` detects that.
        """
        deadline = deadline or self._cluster.deadline()
        end = self._log.wait_for_stable_end(deadline)
        start = self._log.start(deadline)
        middle = max(start, end - _LAST_OFFSETS)
        for first, until in ((middle, end), (start, middle)):
            newest = self._find_newest(key.encode(), first, until, deadline, from_earliest=first == start)
            if newest is not None:
                return StoredSinkState(newest.value, end)
        return StoredSinkState(None, end)

    def check_newest(self, key: str, stored: StoredSinkState, offset: int, deadline: Deadline | None = None) -> None:
        """Raise unless the uncommitted record at ``offset`` directly follows the stored one among the key's records.

        All in-sync replicas have the new record, so the real leader assigned its offset. Between ``stored.read_until``
        and this offset there may only be records of other keys.
        """
        read_until = stored.read_until
        if offset == read_until:
            return
        deadline = deadline or self._cluster.deadline()
        # Earlier writers of the key are fenced, so uncommitted records of it count too.
        if offset > read_until:
            newest = self._find_newest(key.encode(), read_until, offset, deadline, "read_uncommitted")
            if newest is None:
                return
        raise BrokerError(
            f"The sink state topic was read up to offset {read_until}, but the new record at offset {offset} does not "
            "directly follow the one that was read. The broker that returned it no longer leads the partition, or the "
            "log was truncated. Nothing was committed. Restart the query when all brokers are healthy.",
            topic=self.topic,
            partition=self.partition.partition,
            offset=offset,
        )

    def encode(self, key: str, value: bytes | None) -> EncodedBatch:
        """Return a record batch with one sink state record; a value of ``None`` is a tombstone."""
        (batch,) = self._log.encode([(key.encode(), value)])
        return batch

    def _find_newest(
        self,
        key: bytes,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,
    ) -> SinkStateRecord | None:
        """Return the newest record of a key in a range of offsets, or ``None`` if there is none."""
        newest: SinkStateRecord | None = None
        records = self._log.read(first, until, deadline, isolation, from_earliest=from_earliest)
        for value in values_with_key(key, records):
            newest = SinkStateRecord(value)
        return newest
