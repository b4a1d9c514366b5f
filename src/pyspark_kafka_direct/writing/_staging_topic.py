"""Staging in a topic: frames of a task attempt are the values of records, all in one partition, under its name as key.

The task's message has the offsets between which they lie. Records of others lie there too, so the key is looked at.
Retention removes them some time after they have been sent; a compacted topic would lose some before.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.topics import topic_config
from pyspark_kafka_direct.writing._frames import Sum, frames
from pyspark_kafka_direct.writing._keyed import rows_of, values_of
from pyspark_kafka_direct.writing.producer import Producer
from pyspark_kafka_direct.writing.staging import InTopic, Staged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.system import System

# A record is well below the default of max.message.bytes, which is 1 MiB.
_RECORD: Final = 512 << 10


class TopicLocation:
    """A topic for staged batches.

    Args:
        cluster: The cluster.
        topic: The topic.
        settings: How records are written to it; by default as idempotent producers do.
        poll_timeout: Seconds without any progress after which reading fails.
    """

    def __init__(
        self, cluster: Cluster, topic: str, settings: ProduceSettings | None = None, poll_timeout: float = 60.0
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._settings = settings or ProduceSettings()
        self._poll_timeout = poll_timeout

    def prepare(self) -> None:
        """Check that the topic is there.

        Raises:
            OptionError: It is not, or it is compacted.
            BrokerError: The cluster could not be asked.
        """
        if self.topic not in self._cluster.topics([self.topic]):
            raise OptionError(
                f"stagingLocation is topic:{self.topic}, and there is no such topic: create it, with "
                "cleanup.policy=delete, a retention longer than any batch takes, and about as many partitions as tasks "
                "run at once."
            )
        with contextlib.suppress(AuthorizationError):
            policy = topic_config(self._cluster, self.topic, ["cleanup.policy"]).get("cleanup.policy")
            if policy is not None and "compact" in policy:
                raise OptionError(
                    f"stagingLocation is topic:{self.topic}, which is compacted and so loses records before they are "
                    "sent: set its cleanup.policy to delete, or name another topic."
                )

    def check(self) -> None:
        """See ``Location``: it is the same topic for all."""

    def spill(self, name: str) -> _TopicSpill:
        """See ``Location``."""
        topics = self._cluster.topics([self.topic])
        if self.topic not in topics:
            raise TopicNotFoundError(
                "The topic of stagingLocation does not exist, or may not be seen.", topic=self.topic
            )
        key = name.encode()
        partition = zlib.crc32(key) % len(topics[self.topic].partitions)
        return _TopicSpill(
            Producer(self._cluster, self._settings),
            TopicPartition(self.topic, partition),
            key,
            self._cluster.pool.system,
        )

    def read(self, staged: Staged) -> Iterator[tuple[str, EncodedBatch]]:
        """See ``Location``."""
        assert isinstance(staged, InTopic)
        where = f"{staged.topic}-{staged.partition} at offsets {staged.from_offset} to {staged.until_offset - 1}"
        yield from frames(self._values(staged), staged.sum, where)

    def discard(self, staged: Sequence[Staged]) -> None:
        """Leave it to the topic's retention."""

    def sweep(self, superseded: Collection[str], system: System) -> int:
        """Leave it to the topic's retention."""
        return 0

    def _values(self, staged: InTopic) -> Iterator[bytes]:
        from pyspark_kafka_direct.reading.range_reader import read_range
        from pyspark_kafka_direct.reading.request import RangeRequest

        request = RangeRequest(
            offsets=OffsetRange(staged.topic, staged.partition, staged.from_offset, staged.until_offset),
            columns=("key", "value"),
            poll_timeout=self._poll_timeout,
        )
        cluster = self._cluster
        batches = read_range(cluster.settings, FetchSettings(), request, pool=cluster.pool)
        for value in values_of(staged.key, batches):
            yield value or b""


class _TopicSpill:
    """Records that are being written."""

    def __init__(self, producer: Producer, partition: TopicPartition, key: bytes, system: System) -> None:
        from pyspark_kafka_direct.records import create_encoder

        self._producer = producer
        self._partition = partition
        self._key = key
        self._system = system
        self._encoder = create_encoder(
            topic=partition.topic, partitions=partition.partition + 1, batch_bytes=_RECORD, max_record_bytes=2 * _RECORD
        )

    def write(self, data: bytes) -> None:
        parts = [(self._key, data[start : start + _RECORD]) for start in range(0, len(data), _RECORD)]
        rows = rows_of(parts, self._partition.partition, self._system)
        for batch in self._encoder.add(rows):
            self._producer.send(self._partition.topic, batch)

    def finish(self, sum: Sum, records: int) -> InTopic:
        for batch in self._encoder.flush():
            self._producer.send(self._partition.topic, batch)
        written = self._producer.flush()[self._partition]
        self._producer.close()
        if written.first_offset < 0 or written.next_offset < 0:
            raise BrokerError(
                "The broker did not tell at which offsets it has staged records; the task can be tried again.",
                topic=self._partition.topic,
                partition=self._partition.partition,
            )
        return InTopic(*self._partition, written.first_offset, written.next_offset, self._key, sum, records)

    def abandon(self) -> None:
        self._producer.close()
