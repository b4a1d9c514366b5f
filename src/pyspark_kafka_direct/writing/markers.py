"""Markers: the newest record of a key in a compacted topic, written within transactions and read back for certain.

"There is no marker" is a strong statement, as a batch is sent again by it: see ``compacted.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, DeliveryRefusedError
from pyspark_kafka_direct.writing._keyed import values_of
from pyspark_kafka_direct.writing.compacted import CompactedPartition, Wording

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline

# A marker is one record and its transaction one more; the newest of a key is near the end where few queries write.
_NEAR_THE_END: Final = 200

_WORDING: Final = Wording(
    topic="topic of markers",
    loss="the marker of a query that is quiet for a while",
    content="What was sent last",
    apart="A markerTopic of its own keeps a query out of the way of others.",
    refusal=DeliveryRefusedError,
)


class Found(NamedTuple):
    """The marker of a key, as it was read.

    Attributes:
        value: The marker; ``None`` if there is none.
        end: Up to which offset the log was read.
    """

    value: bytes | None
    end: int


class MarkerStore:
    """The markers in one topic, of which the first partition is used.

    Args:
        cluster: The cluster.
        topic: The topic.

    Attributes:
        topic: The topic.
        partition: The partition.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._log = CompactedPartition(cluster, topic, _WORDING)
        self.partition = self._log.partition

    def ensure(self, deadline: Deadline | None = None) -> None:
        """Create the topic if it is not there, and check that it keeps the newest record of each key.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            AuthorizationError: It is not there, and the principal may not create it.
            DeliveryRefusedError: It loses records by time or size.
            BrokerError: The cluster could not be asked.
        """
        self._log.ensure(deadline or self._cluster.deadline())

    def find(self, key: str, deadline: Deadline | None = None) -> Found:
        """Return the newest committed value of a key; none if it has none, which is certain.

        Certain as far as the broker that was asked leads the partition. One that was cut off may still believe so
        although there is a new leader: see ``check_newest``.

        Reading goes up to the end that the log has now, also where transactions of others are open there: then it waits
        for their ends.

        Args:
            key: The key.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            BrokerTimeoutError: A transaction of somebody else stayed open.
            TopicNotFoundError: There is no such topic.
            AuthorizationError: The principal may not read it.
            KafkaDirectError: It could not be read to its end.
        """
        deadline = deadline or self._cluster.deadline()
        end = self._log.stable_end(deadline)
        start = self._log.start(deadline)
        middle = max(start, end - _NEAR_THE_END)
        for first, until in ((middle, end), (start, middle)):
            found, value = self._newest(key.encode(), first, until, deadline, from_earliest=first == start)
            if found:
                return Found(value, end)
        return Found(None, end)

    def check_newest(self, key: str, found: Found, offset: int, deadline: Deadline | None = None) -> None:
        """Make sure that a marker that was written follows the one that was found.

        All replicas in sync have the new one, so its offset was given by the true leader. Where it is not the end that
        was seen, somebody else's markers must be all that lies in between.

        Args:
            key: The key.
            found: What ``find`` said before.
            offset: The offset of the new marker, which is not committed yet.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            BrokerError: The marker that was found was not the newest.
            KafkaDirectError: What lies in between could not be read.
        """
        if offset == found.end:
            return
        deadline = deadline or self._cluster.deadline()
        # Whether committed or not: the key is ours alone since we have taken over.
        if offset > found.end and not self._newest(key.encode(), found.end, offset, deadline, "read_uncommitted")[0]:
            return
        raise BrokerError(
            f"The marker of what was sent last was read up to offset {found.end} and written at {offset}, and is not "
            "the next one: a broker that no longer leads the partition was asked, or the log was cut back. Nothing "
            "was committed; start the query again when all brokers are well.",
            topic=self.topic,
            partition=self.partition.partition,
            offset=offset,
        )

    def encode(self, key: str, value: bytes | None) -> EncodedBatch:
        """Return a record batch with one marker, to be sent to ``topic``.

        Args:
            key: The key.
            value: The marker; ``None`` takes the one that is there away.
        """
        (batch,) = self._log.encode([(key.encode(), value)])
        return batch

    def _newest(
        self,
        key: bytes,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,
    ) -> tuple[bool, bytes | None]:
        """Return whether a range has a record of the key, and the newest one's value."""
        found: tuple[bool, bytes | None] = (False, None)
        for value in values_of(key, self._log.read(first, until, deadline, isolation, from_earliest=from_earliest)):
            found = (True, value)
        return found
