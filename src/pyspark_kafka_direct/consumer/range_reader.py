"""Reads one offset range ``[from, until)`` into Arrow batches."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetcher import Fetcher, ReadReplica
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.records import RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.records import AbortedTransaction

_log = logging.getLogger("pyspark_kafka_direct.consumer")


def read_range(
    connection: ConnectionSettings,
    fetch: FetchSettings,
    task: RangeTask,
    columns: tuple[str, ...],  # some of ``records.COLUMNS``, in the wanted order
    counts: ReadCounts | None = None,
    *,
    max_rows: int = 32_768,  # of an Arrow batch
    max_bytes: int = 4 << 20,  # of keys, values and headers in an Arrow batch
    pool: ConnectionPool = POOL,
) -> Iterator[pa.RecordBatch]:
    """Yield non-empty Arrow batches with exactly the records of the range, in offset order."""
    counts = counts if counts is not None else ReadCounts()
    offsets = task.offsets
    replica = ReadReplica(
        connection, fetch, offsets.topic_partition, task.topic_id, planned_leader=task.leader, pool=pool
    )
    new_decoder = functools.partial(
        RecordDecoder,
        topic=offsets.topic,
        partition=offsets.partition,
        until_offset=offsets.until_offset,
        columns=columns,
        check_crcs=fetch.check_crcs,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_batch_bytes=fetch.max_record_batch_bytes,
    )
    handler = _DecodingHandler(new_decoder, offsets.from_offset, counts)
    started = pool.system.monotonic()
    try:
        for _ in Fetcher(task, replica, handler, counts, system=pool.system).run():
            while (batch := handler.read()) is not None:
                if batch.num_rows:
                    yield batch
    finally:
        replica.release()
        handler.count_decoded()
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d): %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)


class _DecodingHandler:
    """Decodes the fetched record batches; a new decoder is created wherever offsets are skipped."""

    def __init__(self, new_decoder: Callable[..., RecordDecoder], from_offset: int, counts: ReadCounts) -> None:
        self._new_decoder = new_decoder
        self._counts = counts
        self._decoder = new_decoder(from_offset=from_offset)

    @property
    def next_offset(self) -> int:
        return self._decoder.next_offset

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction]) -> None:
        self._decoder.feed(records, aborted)

    def skip_to(self, offset: int) -> None:
        # A new decoder starts exactly at the offset. The batch there may begin with earlier records: DeleteRecords
        # moves the log start, but does not change batches.
        self.count_decoded()
        self._decoder = self._new_decoder(from_offset=offset)

    def read(self) -> pa.RecordBatch | None:
        return self._decoder.read()

    def count_decoded(self) -> None:
        """Add what the current decoder has counted to the counts of the range."""
        self._counts.add_decoded(self._decoder.counts)
