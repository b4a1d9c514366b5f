"""Reads one offset range ``[from, until)`` into Arrow batches, fetched from the partition's leader."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetcher import Fetcher, ReadReplica
from pyspark_kafka_direct.consumer.range_request import ReadCounts
from pyspark_kafka_direct.records import create_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.config.client_settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.consumer.range_request import RangeRequest
    from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder

_log = logging.getLogger("pyspark_kafka_direct.consumer")


def read_range(
    settings: ConnectionSettings,
    fetch: FetchSettings,
    request: RangeRequest,
    counts: ReadCounts | None = None,
    *,
    pool: ConnectionPool = POOL,
) -> Iterator[pa.RecordBatch]:
    """Yield non-empty Arrow batches with exactly the records of the range, in offset order."""
    counts = counts if counts is not None else ReadCounts()
    offsets = request.offsets
    replica = ReadReplica(settings, fetch, offsets.topic_partition, request.topic_id, request.leader, pool)
    handler = _DecodingHandler(fetch, request, counts)
    started = pool.system.monotonic()
    try:
        for _ in Fetcher(settings, fetch, request, replica, handler, counts, system=pool.system).run():
            while (batch := handler.read()) is not None:
                if batch.num_rows:
                    yield batch
    finally:
        replica.release()
        handler.close()
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d): %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)


class _DecodingHandler:
    """Decodes the fetched record batches; a new decoder is created wherever offsets are skipped."""

    def __init__(self, fetch: FetchSettings, request: RangeRequest, counts: ReadCounts) -> None:
        self._check_crcs = fetch.check_crcs
        self._request = request
        self._counts = counts
        self._decoder = self._decoder_from(request.offsets.from_offset)

    @property
    def next_offset(self) -> int:
        return self._decoder.next_offset

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction]) -> None:
        self._decoder.feed(records, aborted)

    def skip_to(self, offset: int) -> None:
        # A new decoder starts exactly at the offset. The batch there may begin with earlier records: DeleteRecords
        # moves the log start, but does not change batches.
        self.close()
        self._decoder = self._decoder_from(offset)

    def read(self) -> pa.RecordBatch | None:
        return self._decoder.read()

    def close(self) -> None:
        self._counts.add_decoded(self._decoder.counts)

    def _decoder_from(self, offset: int) -> RecordDecoder:
        request = self._request
        return create_decoder(
            topic=request.offsets.topic,
            partition=request.offsets.partition,
            from_offset=offset,
            until_offset=request.offsets.until_offset,
            columns=request.columns,
            check_crcs=self._check_crcs,
            max_rows=request.max_rows,
            max_bytes=request.max_bytes,
            max_batch_bytes=request.max_batch_bytes,
        )
