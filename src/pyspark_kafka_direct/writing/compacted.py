"""The first partition of a compacted topic: created, checked, and read to its end for certain.

Markers and the offset store keep the newest record of each key there. "There is none" is a strong statement, as work is
done again by it. So whatever cannot be read completely, up to the end that the log had when reading began, is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire.topics import create_topic, topic_config
from pyspark_kafka_direct.writing._keyed import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
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
"""How such a topic is created."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


@dataclass(frozen=True, slots=True)
class Wording:
    """How errors speak of the topic.

    Attributes:
        topic: What it is, such as "topic of markers".
        loss: What it loses where it is not compacted.
        content: What cannot be read.
        apart: How to keep out of the way of other writers.
        refusal: The error for a topic that is not compacted.
    """

    topic: str
    loss: str
    content: str
    apart: str
    refusal: type[KafkaDirectError]


class CompactedPartition:
    """The first partition of a compacted topic.

    Args:
        cluster: The cluster.
        topic: The topic.
        wording: How errors speak of it.

    Attributes:
        partition: The topic-partition.
    """

    def __init__(self, cluster: Cluster, topic: str, wording: Wording) -> None:
        self.partition = TopicPartition(topic, 0)
        self._cluster = cluster
        self._wording = wording

    def ensure(self, deadline: Deadline, configs: Mapping[str, str] = CONFIGS, *, replicas: int | None = None) -> None:
        """Create the topic if it is not there, and check that it keeps the newest record of each key.

        Args:
            deadline: End of the wait.
            configs: How to create it.
            replicas: How many; ``None``: as the cluster's default says.

        Raises:
            AuthorizationError: It is not there, and the principal may not create it.
            KafkaDirectError: It loses records by time or size (``Wording.refusal``), or could not be asked for.
        """
        topic = self.partition.topic
        try:
            if topic not in self._cluster.topics([topic], deadline=deadline):
                create_topic(self._cluster, topic, 1, configs, deadline, replicas=replicas)
        except AuthorizationError as error:
            raise AuthorizationError(
                f"The {self._wording.topic} may not be seen, or is not there and may not be created: {error.message} "
                "Grant the principal CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on it, or create it and grant "
                f"the others: {_command(topic, configs)}",
                topic=topic,
                broker=error.broker,
            ) from error
        self._check_policy(deadline)

    def start(self, deadline: Deadline) -> int:
        """Return where the log begins."""
        return self._cluster.offsets({self.partition: EARLIEST}, deadline=deadline)[self.partition]

    def end(self, deadline: Deadline, isolation: IsolationLevel = "read_uncommitted") -> int:
        """Return where the log ends now; with ``read_committed`` the last stable offset."""
        wanted = {self.partition: LATEST}
        return self._cluster.offsets(wanted, isolation_level=isolation, deadline=deadline)[self.partition]

    def stable_end(self, deadline: Deadline) -> int:
        """Return the end that the log has now, once nothing before it belongs to a transaction that is open.

        Raises:
            BrokerTimeoutError: A transaction of somebody else stayed open.
        """
        end = self.end(deadline)
        pause = _SHORTEST_PAUSE
        stable: int | None = None
        while True:
            try:
                stable = self.end(deadline, "read_committed")
            except BrokerTimeoutError as error:
                if stable is None:
                    raise
                # The question began too late to be answered: what is in the way is the transaction.
                raise self._held_up(stable, end, deadline) from error
            if stable >= end:
                return end
            if deadline.remaining() <= pause:
                raise self._held_up(stable, end, deadline)
            deadline.system.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def read(
        self,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets, oldest first: ``key``, ``value`` and ``offset``.

        Args:
            first: The first offset.
            until: The offset after the last one; all before it is stable, where committed records are read.
            deadline: End of the wait.
            isolation: Whether records of transactions that are open or aborted are seen.
            from_earliest: Whether ``first`` is where the log begins, which may move meanwhile.

        Raises:
            KafkaDirectError: The range could not be read to its end.
        """
        from pyspark_kafka_direct.reading.range_reader import read_range
        from pyspark_kafka_direct.reading.request import RangeRequest

        if first >= until:
            return
        request = RangeRequest(
            offsets=OffsetRange(*self.partition, first, until),
            columns=("key", "value", "offset"),
            from_earliest=from_earliest,
            poll_timeout=max(deadline.remaining(), _LONGEST_PAUSE),
        )
        cluster = self._cluster
        yield from read_range(cluster.settings, FetchSettings(isolation_level=isolation), request, pool=cluster.pool)

    def encode(self, records: Sequence[tuple[bytes, bytes | None]]) -> Iterator[EncodedBatch]:
        """Yield record batches, to be sent to the topic.

        Args:
            records: Keys and values; a value of ``None`` takes away what is there.
        """
        from pyspark_kafka_direct.records import create_encoder

        encoder = create_encoder(topic=self.partition.topic, partitions=1)
        yield from encoder.add(rows_of(records, self.partition.partition, self._cluster.pool.system))
        yield from encoder.flush()

    def _held_up(self, stable: int, end: int, deadline: Deadline) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._wording.content} cannot be read: a transaction of another writer is open from offset {stable} on, "
            f"before the end at {end} ({deadline.setting}). It ends with its writer's next commit, or by its "
            "transaction.timeout.ms; one that hangs is found and ended by kafka-transactions.sh. "
            f"{self._wording.apart}",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=stable,
        )

    def _check_policy(self, deadline: Deadline) -> None:
        from pyspark_kafka_direct.settings.sink import warn_once  # a process plans many batches

        topic, name = self.partition.topic, self._wording.topic
        try:
            policy = topic_config(self._cluster, topic, ["cleanup.policy"], deadline).get("cleanup.policy")
        except AuthorizationError as error:
            warn_once(
                f"It is not known whether the {name} {topic} is compacted: {error.message} Grant the principal "
                "DESCRIBE_CONFIGS on it."
            )
            return
        except TopicNotFoundError:
            # The broker that was asked may not know a new topic yet; what we created is as it should be.
            return
        if policy != "compact":
            raise self._wording.refusal(
                f"The {name} has cleanup.policy={policy}, and so loses {self._wording.loss}. Set it to compact: "
                f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
                "cleanup.policy=compact",
                topic=topic,
            )


def _command(topic: str, configs: Mapping[str, str]) -> str:
    given = " ".join(f"--config {name}={value}" for name, value in configs.items())
    return f"kafka-topics.sh --create --topic {topic} --partitions 1 {given}"
