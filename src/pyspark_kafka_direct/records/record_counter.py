"""Counts the records of an offset range by the headers of their batches.

A format 2 header contains the number of records, also after compaction. So only a batch that is partly in the range is
decoded, and the message formats before 2, whose wrappers have no count. Nothing else is decompressed, and no checksum
is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.config.client_settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records import create_decoder
from pyspark_kafka_direct.records.python.batch_format import HEADER, MAGIC, BadRecordError, read_header
from pyspark_kafka_direct.records.python.batch_reader import AbortedProducers, is_abort_marker
from pyspark_kafka_direct.records.python.batch_scan import BatchScan, scan_batches
from pyspark_kafka_direct.records.record_errors import record_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.records import AbortedTransaction
    from pyspark_kafka_direct.records.python.batch_scan import BatchExtent


class RecordCounter:
    """Counts the records that a ``RecordDecoder`` of the same range would return."""

    def __init__(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,
    ) -> None:
        self.records = 0
        self.next_offset = from_offset  # after the last complete batch fed
        self._topic = topic
        self._partition = partition
        self._until = until_offset
        self._max_batch_bytes = max_batch_bytes

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset, because there are no records before it."""
        self.next_offset = offset

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Count the records of one fetch response, and update ``next_offset``."""
        scanned = scan_batches(records, self.next_offset, self._until)
        try:
            self._count(memoryview(records), scanned, AbortedProducers(aborted))
        except BadRecordError as error:
            offset = self.next_offset if error.offset is None else error.offset
            tp = {"topic": self._topic, "partition": self._partition}
            raise record_error(error.kind, error.message, offset=offset, **tp) from None  # type: ignore[arg-type]
        self.next_offset = scanned.next_offset

    def _count(self, records: memoryview, scanned: BatchScan, aborted: AbortedProducers) -> None:
        to_decode: list[BatchExtent] = []  # consecutive batches, which are decoded together
        for extent in scanned.extents:
            if extent.magic < MAGIC:
                to_decode.append(extent)
                continue
            header = read_header(bytes(records[extent.start : extent.start + HEADER.size]))
            aborted.advance_to(extent.last_offset)
            if header.is_control:
                if aborted and header.records:
                    batch = bytes(records[extent.start : extent.end])
                    if is_abort_marker(header, batch, self._max_batch_bytes):
                        aborted.end(header.producer_id)
            elif extent.last_offset < self.next_offset or (header.is_transactional and header.producer_id in aborted):
                pass  # before the range, or aborted: none of its records count
            elif self.next_offset <= extent.base_offset and extent.last_offset < self._until:
                if header.records < 0:
                    raise BadRecordError(f"a record batch claims {header.records} records", offset=extent.base_offset)
                self.records += header.records
            else:
                to_decode.append(extent)
                continue
            self._decode(records, to_decode)
            to_decode = []
        self._decode(records, to_decode)
        if scanned.error is not None:
            raise scanned.error

    def _decode(self, records: memoryview, extents: Sequence[BatchExtent]) -> None:
        """Decode consecutive batches to count their records in the range."""
        if not extents:
            return
        decoder = create_decoder(
            topic=self._topic,
            partition=self._partition,
            from_offset=self.next_offset,
            until_offset=self._until,
            columns=(),
            max_batch_bytes=self._max_batch_bytes,
        )
        decoder.feed(records[extents[0].start : extents[-1].end])
        while decoder.read() is not None:
            pass
        self.records += decoder.counts.records
