"""Counts the records of an offset range by the headers of their batches.

A format 2 header says how many records its batch has, also after compaction. So only a batch that the range cuts is
decoded, and the message formats before 2, whose wrappers do not tell. Nothing else is decompressed, and no checksum
is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.records import create_decoder
from pyspark_kafka_direct.records._failures import record_error
from pyspark_kafka_direct.records._protocol import DEFAULT_LARGEST_BATCH
from pyspark_kafka_direct.records._python._aborted import AbortedTransactions
from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import HEADER, MAGIC, read_header
from pyspark_kafka_direct.records._python._batch_reader import is_abort
from pyspark_kafka_direct.records._python._batch_scan import Scan, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.records import AbortedTransaction
    from pyspark_kafka_direct.records._python._batch_scan import Extent


class RecordCounter:
    """Counts what a ``RecordDecoder`` of the same range would hand out.

    Args:
        topic: Topic, for errors.
        partition: Partition, likewise.
        from_offset: First offset of the range.
        until_offset: Offset after its last one.
        max_batch_bytes: Most bytes that a record batch may decompress to.

    Attributes:
        records: Records counted so far.
        next_offset: The next offset to fetch: the one after the last complete batch fed.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        max_batch_bytes: int = DEFAULT_LARGEST_BATCH,
    ) -> None:
        self.records = 0
        self.next_offset = from_offset
        self._topic = topic
        self._partition = partition
        self._until = until_offset
        self._max_batch_bytes = max_batch_bytes

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset; what lies between holds no records."""
        self.next_offset = offset

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Count the records of one fetch response.

        Args:
            records: The response's record bytes for this partition; they are not kept.
            aborted: The response's aborted transactions, with ``read_committed``; else nothing.

        Raises:
            RecordError: Malformed bytes.
        """
        found = scan(records, self.next_offset, self._until)
        try:
            self._count(memoryview(records), found, AbortedTransactions(aborted))
        except BadRecordError as error:
            offset = self.next_offset if error.offset is None else error.offset
            place = {"topic": self._topic, "partition": self._partition}
            raise record_error(error.kind, error.message, offset=offset, **place) from None  # type: ignore[arg-type]
        self.next_offset = found.next_offset

    def _count(self, records: memoryview, found: Scan, aborted: AbortedTransactions) -> None:
        to_decode: list[Extent] = []  # neighbours, so that they are decoded together
        for extent in found.extents:
            if extent.magic < MAGIC:
                to_decode.append(extent)
                continue
            header = read_header(bytes(records[extent.start : extent.start + HEADER.size]))
            aborted.advance_to(extent.last_offset)
            if header.is_control:
                if aborted and header.records:
                    batch = bytes(records[extent.start : extent.end])
                    if is_abort(header, batch, self._max_batch_bytes):
                        aborted.end(header.producer_id)
            elif extent.last_offset < self.next_offset or (header.is_transactional and header.producer_id in aborted):
                pass
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
        if found.error is not None:
            raise found.error

    def _decode(self, records: memoryview, extents: Sequence[Extent]) -> None:
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
