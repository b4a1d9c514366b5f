"""One offset range ``[from, until)`` becomes Arrow batches, fetched straight from the partition's leader."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.reading._fetch_loop import FetchLoop
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.records import create_decoder
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_log = logging.getLogger("pyspark_kafka_direct.reading")


def read_range(
    settings: ConnectionSettings,
    fetch: FetchSettings,
    request: RangeRequest,
    counts: ReadCounts | None = None,
    *,
    pool: ConnectionPool = POOL,
) -> Iterator[pa.RecordBatch]:
    """Read exactly the records of the range, each once, in offset order.

    Args:
        settings: How to reach the cluster.
        fetch: How to fetch.
        request: What to read.
        counts: Filled while reading, if given.
        pool: Has the connections, and the system where the brokers are.

    Yields:
        Arrow record batches with the requested columns; never an empty one.

    Raises:
        DataLossError: Records of the range are gone, and ``fail_on_data_loss`` is true.
        BrokerTimeoutError: No progress for ``poll_timeout`` seconds.
        BrokerError: The cluster refuses (authentication, authorization, protocol).
        RecordError: Bytes that are not valid records.
    """
    counts = counts if counts is not None else ReadCounts()
    offsets = request.offsets
    replica = Replica(settings, fetch, offsets.topic_partition, request.topic_id, request.leader, pool)
    decoding = _Decoding(fetch, request, counts)
    started = pool.system.monotonic()
    try:
        for _ in FetchLoop(settings, fetch, request, replica, decoding, counts, system=pool.system).run():
            while (batch := decoding.read()) is not None:
                if batch.num_rows:
                    yield batch
    finally:
        replica.drop()
        decoding.close()
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d): %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)


class _Decoding:
    """A decoder as the consumer of a fetch loop; a new one wherever offsets are skipped."""

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
        # A new decoder, for the batch at the offset may begin with records before it, which DeleteRecords has deleted
        # but not removed.
        self.close()
        self._decoder = self._decoder_from(offset)

    def read(self) -> pa.RecordBatch | None:
        return self._decoder.read()

    def close(self) -> None:
        self._counts.take(self._decoder.counts)

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
