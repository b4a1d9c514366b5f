"""One offset range ``[from, until)`` becomes Arrow batches, fetched straight from the partition's leader.

The loop, for as long as ``position < until``:

1. take the answer to the fetch request for ``position`` (sent earlier, or now);
2. hand its record batches to the decoder, which tells the next position from their headers, and send the next request
   *before* decoding, so that the broker works while we do;
3. decode, hand out Arrow batches, go on.

What can go wrong is of three kinds. *Trouble* (a broken connection, a moved leader, stale metadata) is retried with
back-off until ``poll_timeout`` has passed without progress. *Loss* (records that are gone) is decided by the leader
only, and follows ``fail_on_data_loss``. Everything else is an error at once, a wrong checksum too, as with Java's
consumer: TCP and TLS have checksums of their own, so it is the broker's disk, and Spark tries a failed task again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.reading._recovery import Recovery
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.records import AbortedTransaction, create_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.records import RecordDecoder
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.settings import ConnectionSettings

_log = logging.getLogger("pyspark_kafka_direct.reading")


def read_range(
    settings: ConnectionSettings, request: RangeRequest, counts: ReadCounts | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads exactly the records of the range, each once, in offset order.

    Args:
        settings: How to reach the cluster.
        request: What to read.
        counts: Filled while reading, if given.

    Yields:
        Arrow record batches with the requested columns; never an empty one.

    Raises:
        DataLossError: Records of the range are gone, and ``fail_on_data_loss`` is true.
        BrokerTimeoutError: No progress for ``poll_timeout`` seconds.
        BrokerError: The cluster refuses (authentication, authorization, protocol).
        RecordError: Bytes that are not valid records.
    """
    reader = _RangeReader(settings, request, counts if counts is not None else ReadCounts())
    try:
        yield from reader.batches()
    finally:
        reader.close()


class _RangeReader:
    def __init__(self, settings: ConnectionSettings, request: RangeRequest, counts: ReadCounts) -> None:
        self._settings = settings
        self._request = request
        self._counts = counts
        self._replica = Replica(settings, request.offsets.topic_partition, request.topic_id, request.leader)
        self._recovery = Recovery(settings, request, self._replica, counts)
        self._started = time.monotonic()
        self._decoder = self._decoder_from(request.offsets.from_offset)

    def batches(self) -> Iterator[pa.RecordBatch]:
        position, until = self._request.offsets.from_offset, self._request.offsets.until_offset
        while position < until:
            self._recovery.check_time()
            try:
                position = self._fetch_once(position)
            except TransientBrokerError as error:
                self._recovery.after_trouble(error)
                continue
            except TopicNotFoundError as error:
                position = self._go_on_from(position, self._recovery.after_missing(position, error))
                continue
            while (batch := self._decoder.read()) is not None:
                if batch.num_rows:
                    yield batch
                    self._recovery.progressed()  # whoever takes the batches may be slow: that is not the brokers' time

    def close(self) -> None:
        self._replica.drop()
        self._counts.take(self._decoder.counts)
        self._counts.total_seconds = time.monotonic() - self._started
        offsets = self._request.offsets
        _log.info("%s [%d, %d): %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, self._counts)

    def _fetch_once(self, position: int) -> int:
        """Feeds the decoder with the next answer, if it brings records; returns where to go on."""
        fetched = self._await_answer(position)
        if fetched.error_code:
            return self._go_on_from(position, self._recovery.after_code(position, fetched))
        self._decoder.feed(fetched.records, [AbortedTransaction(*entry) for entry in fetched.aborted])
        next_offset = self._decoder.next_offset
        if next_offset <= position:
            return self._go_on_from(position, self._recovery.after_empty(position, fetched))
        self._recovery.progressed()
        self._recovery.ask_ahead(next_offset)
        return next_offset

    def _await_answer(self, position: int) -> FetchedPartition:
        deadline = self._recovery.deadline
        started = time.monotonic()
        try:
            self._replica.ask(position, self._settings.max_partition_fetch_bytes, deadline)
            fetched = self._replica.answer(deadline)
        finally:
            self._counts.wait_seconds += time.monotonic() - started
        self._counts.fetched(self._replica.broker, len(fetched.records))
        return fetched

    def _go_on_from(self, position: int, next_offset: int) -> int:
        if next_offset != position:
            # Offsets were skipped. A new decoder, for the batch at next_offset may begin with records before it, which
            # DeleteRecords has deleted but not removed.
            self._counts.take(self._decoder.counts)
            self._decoder = self._decoder_from(next_offset)
        return next_offset

    def _decoder_from(self, offset: int) -> RecordDecoder:
        request = self._request
        return create_decoder(
            topic=request.offsets.topic,
            partition=request.offsets.partition,
            from_offset=offset,
            until_offset=request.offsets.until_offset,
            columns=request.columns,
            check_crcs=self._settings.check_crcs,
            max_rows=request.max_rows,
            max_bytes=request.max_bytes,
        )
