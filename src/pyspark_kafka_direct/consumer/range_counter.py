"""Counts the records of one offset range from the batch headers of fetch responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.consumer.fetcher import Fetcher
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.options.settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records import RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.records import AbortedTransaction

_log = logging.getLogger("pyspark_kafka_direct.consumer")


def count_range(
    connection: ConnectionSettings,
    fetch: FetchSettings,
    task: RangeTask,
    *,
    limit: int | None = None,
    counts: ReadCounts | None = None,
    pool: ConnectionPool = POOL,
) -> int:
    """Count the records that ``read_range`` would read; stop after the fetch with which the count reaches ``limit``."""
    counts = counts if counts is not None else ReadCounts()
    offsets = task.offsets
    if limit is not None and limit <= 0:
        return 0
    replica = ReadReplica(
        connection, fetch, offsets.topic_partition, task.topic_id, planned_leader=task.leader, pool=pool
    )
    counter = RecordCounter(
        offsets.topic, offsets.partition, offsets.from_offset, offsets.until_offset, fetch.max_record_batch_bytes
    )
    started = pool.system.monotonic()
    try:
        fetcher = Fetcher(task, replica, counter, counts, limit=limit, system=pool.system)
        for _ in fetcher.run():
            if limit is not None and counter.records >= limit:
                break
    finally:
        replica.release()
        counts.records = counter.records
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d) counted: %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)
    return counter.records


class RecordCounter:
    """Counts the records that a ``RecordDecoder`` of the same range would return, by the headers of their batches.

    A format 2 header contains the number of records, also after compaction. So only a batch that is partly in the range
    is decoded, and the message formats before 2, whose wrappers have no count. Nothing else is decompressed, and no
    other checksum is computed.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,
    ) -> None:
        self.records = 0
        self._topic = topic
        self._partition = partition
        self._until = until_offset
        self._max_batch_bytes = max_batch_bytes
        self._decoder = self._new_decoder(from_offset)

    @property
    def next_offset(self) -> int:
        """The offset after the last complete batch fed."""
        return self._decoder.next_offset

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset, because there are no records before it."""
        self._decoder = self._new_decoder(offset)

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Count the records of one fetch response, and update ``next_offset``."""
        before = self._decoder.counts.records
        self._decoder.feed(records, aborted)
        while self._decoder.read() is not None:
            pass
        self.records += self._decoder.counts.records - before

    def _new_decoder(self, from_offset: int) -> RecordDecoder:
        return RecordDecoder(
            topic=self._topic,
            partition=self._partition,
            from_offset=from_offset,
            until_offset=self._until,
            columns=(),
            max_batch_bytes=self._max_batch_bytes,
            count_only=True,
        )
