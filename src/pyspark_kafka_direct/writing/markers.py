"""Markers: the newest record of a key in a compacted topic, written within transactions and read back for certain.

"There is no marker" is a strong statement, as a batch is sent again by it. So whatever cannot be read completely, up to
the end that the log had when reading began, is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    DeliveryRefusedError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire.topics import create_topic, topic_config
from pyspark_kafka_direct.writing._keyed import rows_of, values_of

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline

# Small segments, cleaned soon: all of the topic is read when a query starts. A MiB is the least that Kafka 4 allows.
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
"""How a topic of markers is created."""

# A marker is one record and its transaction one more; the newest of a key is near the end where few queries write.
_NEAR_THE_END: Final = 200

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


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
        self.partition = TopicPartition(topic, 0)

    def ensure(self, deadline: Deadline | None = None) -> None:
        """Create the topic if it is not there, and check that it keeps the newest record of each key.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            AuthorizationError: It is not there, and the principal may not create it.
            DeliveryRefusedError: It loses records by time or size.
            BrokerError: The cluster could not be asked.
        """
        deadline = deadline or self._cluster.deadline()
        try:
            if self.topic not in self._cluster.topics([self.topic], deadline=deadline):
                create_topic(self._cluster, self.topic, 1, CONFIGS, deadline)
        except AuthorizationError as error:
            raise AuthorizationError(
                f"The topic of markers may not be seen, or is not there and may not be created: {error.message} Grant "
                "the principal CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on it, or create it and grant the "
                "others: "
                f"{self._command()}",
                topic=self.topic,
                broker=error.broker,
            ) from error
        self._check_policy(deadline)

    def read(self, key: str, deadline: Deadline | None = None) -> bytes | None:
        """Return the newest committed value of a key; see ``find``."""
        return self.find(key, deadline).value

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
        end = self._end(deadline)
        start = self._cluster.offsets({self.partition: EARLIEST}, deadline=deadline)[self.partition]
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
        from pyspark_kafka_direct.records import create_encoder

        row = rows_of(key.encode(), [value], self.partition.partition, self._cluster.pool.system)
        encoder = create_encoder(topic=self.topic, partitions=1)
        (batch,) = (*encoder.add(row), *encoder.flush())
        return batch

    def _end(self, deadline: Deadline) -> int:
        """Return the end of the log, once nothing before it belongs to a transaction that is open."""
        partition = self.partition
        end = self._cluster.offsets({partition: LATEST}, deadline=deadline)[partition]
        pause = _SHORTEST_PAUSE
        while True:
            wanted = {partition: LATEST}
            stable = self._cluster.offsets(wanted, isolation_level="read_committed", deadline=deadline)[partition]
            if stable >= end:
                return end
            if deadline.remaining() <= pause:
                raise BrokerTimeoutError(
                    f"What was sent last cannot be read: a transaction of another writer is open from offset {stable} "
                    f"on, before the end at {end} ({deadline.setting}). It ends with its writer's next commit, or by "
                    "its transaction.timeout.ms; one that hangs is found and ended by kafka-transactions.sh. A "
                    "markerTopic of its own keeps a query out of the way of others.",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=stable,
                )
            deadline.system.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

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
        from pyspark_kafka_direct.reading.request import RangeRequest

        if first >= until:
            return False, None
        request = RangeRequest(
            offsets=OffsetRange(self.topic, 0, first, until),
            columns=("key", "value"),
            from_earliest=from_earliest,
            poll_timeout=max(deadline.remaining(), _LONGEST_PAUSE),
        )
        fetch = FetchSettings(isolation_level=isolation)
        found: tuple[bool, bytes | None] = (False, None)
        for value in values_of(key, self._cluster, fetch, request):
            found = (True, value)
        return found

    def _check_policy(self, deadline: Deadline) -> None:
        from pyspark_kafka_direct.settings.sink import warn_once  # a process plans many batches

        try:
            policy = topic_config(self._cluster, self.topic, ["cleanup.policy"], deadline).get("cleanup.policy")
        except AuthorizationError as error:
            warn_once(
                f"It is not known whether the topic of markers {self.topic} is compacted: {error.message} Grant the "
                "principal DESCRIBE_CONFIGS on it."
            )
            return
        except TopicNotFoundError:
            # The broker that was asked may not know a new topic yet; what we created is as it should be.
            return
        if policy != "compact":
            raise DeliveryRefusedError(
                f"The topic of markers has cleanup.policy={policy}, and so loses the marker of a query that is quiet "
                "for a while. Set it to compact: kafka-configs.sh --alter --entity-type topics --entity-name "
                f"{self.topic} --add-config cleanup.policy=compact",
                topic=self.topic,
            )

    def _command(self) -> str:
        configs = " ".join(f"--config {name}={value}" for name, value in CONFIGS.items())
        return f"kafka-topics.sh --create --topic {self.topic} --partitions 1 {configs}"
