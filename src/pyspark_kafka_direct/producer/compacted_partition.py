"""Partition 0 of a compacted topic, which keeps the newest record of each key: creates, checks and reads the topic.

Sink state records and the offset store are kept in such topics. A missing record makes a query send or read records
again, so a log that cannot be read completely, up to the end it had when reading started, is an error.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.admin import create_topic, describe_topic_config
from pyspark_kafka_direct.client.deadline import Backoff
from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, BrokerTimeoutError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.records.columns import binary_column, integer_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.producer.transactional_records import TransactionalRecords
    from pyspark_kafka_direct.records import EncodedBatch

# Small segments are compacted early, because queries read the whole topic at their start. Kafka 4 allows 1 MiB or more.
COMPACTED_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}

_BACKOFF = Backoff(0.005, 0.2)


@dataclass(frozen=True, slots=True)
class TopicErrorText:
    """Phrases for error messages about the topic."""

    topic: str  # such as "sink state topic"
    loss: str  # what the topic loses unless it is compacted
    content: str  # what cannot be read
    isolation_advice: str  # how to avoid waiting for other writers
    error_type: type[KafkaDirectError]  # raised for a topic that is not compacted


class CompactedPartition:
    """Partition 0 of a compacted topic."""

    def __init__(self, cluster: ClusterClient, topic: str, error_text: TopicErrorText) -> None:
        self.partition = TopicPartition(topic, 0)
        self._cluster = cluster
        self._error_text = error_text

    def ensure_topic(
        self,
        deadline: Deadline,
        configs: Mapping[str, str] = COMPACTED_TOPIC_CONFIGS,
        *,
        replicas: int | None = None,  # None: default.replication.factor of the cluster
    ) -> None:
        """Create the topic if it does not exist, and check that it is compacted."""
        topic = self.partition.topic
        try:
            if topic not in self._cluster.topics([topic], deadline=deadline):
                create_topic(self._cluster, topic, 1, configs, deadline, replicas=replicas)
        except AuthorizationError as error:
            raise AuthorizationError(
                f"The {self._error_text.topic} does not exist or is not visible, and the principal may not create it: "
                f"{error.message} Grant the principal CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on it, or "
                f"create it and grant the others: {_create_command(topic, configs)}",
                topic=topic,
                broker=error.broker,
            ) from error
        self._check_policy(deadline)

    def start(self, deadline: Deadline) -> int:
        """Return the log start offset."""
        return self._cluster.offsets({self.partition: EARLIEST}, deadline=deadline)[self.partition]

    def end(self, deadline: Deadline, isolation: IsolationLevel = "read_uncommitted") -> int:
        """Return the high watermark, or with ``read_committed`` the last stable offset."""
        requested = {self.partition: LATEST}
        return self._cluster.offsets(requested, isolation_level=isolation, deadline=deadline)[self.partition]

    def wait_for_stable_end(self, deadline: Deadline) -> int:
        """Return the current high watermark after all transactions before it have ended."""
        end = self.end(deadline)
        tries = 0
        last_stable: int | None = None
        while True:
            try:
                last_stable = self.end(deadline, "read_committed")
            except BrokerTimeoutError as error:
                if last_stable is None:  # no open transaction is known, so this error has another cause
                    raise
                # Too little time was left for this request; the open transaction is the cause.
                raise self._blocked_error(last_stable, end, deadline) from error
            if last_stable >= end:
                return end
            pause = _BACKOFF.pause(tries, deadline.system)
            if deadline.remaining() <= pause:
                raise self._blocked_error(last_stable, end, deadline)
            deadline.system.sleep(pause)
            tries += 1

    def read(
        self,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,  # `first` is the log start offset, which may advance
    ) -> Iterator[pa.RecordBatch]:
        """Yield ``key``, ``value`` and ``offset`` of all records in a range of offsets, or raise."""
        from pyspark_kafka_direct.consumer.fetcher import read_range
        from pyspark_kafka_direct.consumer.range_task import RangeTask

        if first >= until:
            return
        task = RangeTask(OffsetRange(*self.partition, first, until), from_earliest=from_earliest)
        fetch = self._fetch_settings(deadline, isolation)
        yield from read_range(self._cluster.settings, fetch, task, ("key", "value", "offset"), pool=self._cluster.pool)

    def find_newest(
        self, key: bytes, first: int, until: int, deadline: Deadline, *, from_earliest: bool = False
    ) -> TransactionalRecords:
        """Return the records of a key in a range of offsets, whose transactions may be open, or raise."""
        from pyspark_kafka_direct.producer.transactional_records import read_key

        fetch = self._fetch_settings(deadline, "read_uncommitted")
        offsets = OffsetRange(*self.partition, first, until)
        return read_key(self._cluster, fetch, key, offsets, from_earliest=from_earliest)

    def check_follows(
        self,
        read_until: int,
        offset: int,
        has_own_records: Callable[[], bool],  # reads the offsets between the two
    ) -> None:
        """Raise unless a new record at ``offset`` follows what was read: only records of others may lie between.

        All in-sync replicas have the new record, so the real leader assigned its offset. The broker that was read from
        may have been deposed.
        """
        if offset == read_until or (offset > read_until and not has_own_records()):
            return
        raise BrokerError(
            f"The {self._error_text.topic} was read up to offset {read_until}, but the new record at offset {offset} "
            "does not directly follow what was read. The broker that returned it no longer leads the partition, or the "
            "log was truncated. Nothing was committed. Restart the query when all brokers are healthy.",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=offset,
        )

    def encode(self, records: Sequence[tuple[bytes, bytes | None]]) -> Iterator[EncodedBatch]:
        """Yield record batches of keys and values for the topic; a value of ``None`` is a tombstone."""
        from pyspark_kafka_direct.records import RecordEncoder

        encoder = RecordEncoder(topic=self.partition.topic, partitions=1)
        yield from encoder.add(keyed_rows(records, self.partition.partition, self._cluster.pool.system))
        yield from encoder.flush()

    def _fetch_settings(self, deadline: Deadline, isolation: IsolationLevel) -> FetchSettings:
        timeout = max(deadline.remaining(), _BACKOFF.maximum)  # an expired deadline must not make it 0
        return FetchSettings(isolation_level=isolation, poll_timeout_ms=math.ceil(timeout * 1000))

    def _blocked_error(self, last_stable: int, end: int, deadline: Deadline) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._error_text.content} cannot be read: a transaction of another writer is open from offset "
            f"{last_stable} on, and the log ends at {end} ({deadline.setting}). It ends with the writer's next commit, "
            "or after its transaction.timeout.ms; kafka-transactions.sh finds and aborts hanging transactions. "
            f"{self._error_text.isolation_advice}",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=last_stable,
        )

    def _check_policy(self, deadline: Deadline) -> None:
        from pyspark_kafka_direct.options.option_messages import warn_once  # this runs for each batch

        topic, description = self.partition.topic, self._error_text.topic
        try:
            policy = describe_topic_config(self._cluster, topic, ["cleanup.policy"], deadline).get("cleanup.policy")
        except AuthorizationError as error:
            warn_once(
                f"Cannot check whether the {description} {topic} is compacted: {error.message} Grant the principal "
                "DESCRIBE_CONFIGS on it."
            )
            return
        except TopicNotFoundError:
            # The topic was just created with the right policy, and this broker does not have it yet.
            return
        if policy != "compact":
            raise self._error_text.error_type(
                f"The {description} has cleanup.policy={policy}, and so loses {self._error_text.loss}. Set it to "
                f"compact: kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
                "cleanup.policy=compact",
                topic=topic,
            )


def keyed_rows(records: Sequence[tuple[bytes, bytes | None]], partition: int, system: System) -> pa.RecordBatch:
    """Return keys and values as rows for a ``RecordEncoder``, with the current timestamp."""
    import pyarrow as pa

    now = int(system.wall_time() * 1000)
    count = len(records)
    return pa.record_batch(
        {
            "key": binary_column([key for key, _ in records]),
            "value": binary_column([value for _, value in records]),
            "partition": integer_column(array("i", [partition]) * count),
            "timestamp": integer_column(array("q", [now]) * count),
        }
    )


def _create_command(topic: str, configs: Mapping[str, str]) -> str:
    config_arguments = " ".join(f"--config {name}={value}" for name, value in configs.items())
    return f"kafka-topics.sh --create --topic {topic} --partitions 1 {config_arguments}"
