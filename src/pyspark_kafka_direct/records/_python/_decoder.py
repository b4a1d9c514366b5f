"""The decoder in Python, step by step the same as the native one (``rust/kernel/src/decoder.rs``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records._failures import record_error
from pyspark_kafka_direct.records._protocol import DecodeCounts
from pyspark_kafka_direct.records._python._aborted import AbortedTransactions
from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import MAGIC, read_header
from pyspark_kafka_direct.records._python._batch_reader import Row, check_batch, is_abort, rows_of_batch
from pyspark_kafka_direct.records._python._batch_scan import Scan, scan
from pyspark_kafka_direct.records._python._old_formats import rows_of_old_batch
from pyspark_kafka_direct.records._python._rows import build

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import RecordError
    from pyspark_kafka_direct.records._protocol import AbortedTransaction, DecodeRequest


class PythonDecoder:
    """A ``RecordDecoder`` in Python."""

    def __init__(self, request: DecodeRequest) -> None:
        self._request = request
        self._next_offset = request.from_offset
        self._progress = _Progress(request.from_offset)
        self._rows: Iterator[Row] | None = None
        self._pending: Row | None = None  # read already, but the last Arrow batch had no room for it
        self._failure: RecordError | None = None

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """See ``RecordDecoder``."""
        if self._rows is not None or self._failure is not None:
            raise RuntimeError("feed() before read() returned None")
        found = scan(records, self._next_offset, self._request.until_offset)
        try:
            complete = bytes(memoryview(records)[: found.extents[-1].end]) if found.extents else b""
        except MemoryError:
            raise self._no_memory(self._next_offset) from None
        self._next_offset = found.next_offset
        if found.extents or found.error:
            self._rows = _rows(complete, found, AbortedTransactions(aborted), self._request, self._progress)

    def read(self) -> pa.RecordBatch | None:
        """See ``RecordDecoder``."""
        rows: list[Row] = []
        first = self._progress.position
        cost = 0
        try:
            while (row := self._next_row()) is not None:
                if rows and (len(rows) == self._request.max_rows or cost + row.cost > self._request.max_bytes):
                    self._pending = row
                    break
                rows.append(row)
                cost += row.cost
        except MemoryError:
            self._rows = None
            self._failure = self._no_memory(rows[-1].offset + 1 if rows else self._progress.position)
        except BadRecordError as error:
            self._rows = None
            offset = error.offset if error.offset is not None else self._progress.position
            place = self._request
            self._failure = record_error(
                error.kind, error.message, topic=place.topic, partition=place.partition, offset=offset
            )
        if rows:
            self._progress.position = max(self._progress.position, rows[-1].offset + 1)
            self._progress.records += len(rows)
            self._progress.bytes += sum(row.size for row in rows)
            try:
                return build(rows, self._request)
            except MemoryError:
                self._rows = self._pending = None
                self._failure = self._no_memory(first)
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def next_offset(self) -> int:
        """See ``RecordDecoder``."""
        return self._next_offset

    @property
    def done(self) -> bool:
        """See ``RecordDecoder``."""
        return self._next_offset >= self._request.until_offset and self._rows is None and self._failure is None

    @property
    def counts(self) -> DecodeCounts:
        """See ``RecordDecoder``."""
        so_far = self._progress
        passed = min(so_far.position, self._request.until_offset) - self._request.from_offset
        holes = max(passed - so_far.records - so_far.control - so_far.aborted, 0)
        return DecodeCounts(so_far.records, so_far.bytes, so_far.control, so_far.aborted, holes)

    def _no_memory(self, offset: int) -> RecordError:
        place = self._request
        what = "there is not enough memory for the records"
        return record_error("memory", what, topic=place.topic, partition=place.partition, offset=offset)

    def _next_row(self) -> Row | None:
        row, self._pending = self._pending, None
        if row is None and self._rows is not None:
            row = next(self._rows, None)
            if row is None:
                self._rows = None
        return row


@dataclass(slots=True)
class _Progress:
    """How far a decoder is (all offsets before ``position`` are dealt with), and what it met on the way."""

    position: int
    records: int = 0
    bytes: int = 0
    control: int = 0
    aborted: int = 0


def _rows(
    records: bytes, found: Scan, aborted: AbortedTransactions, request: DecodeRequest, progress: _Progress
) -> Iterator[Row]:
    """Yield the wanted rows of one fetch response; move ``progress`` over batches that have none."""
    until = request.until_offset
    for extent in found.extents:
        if extent.base_offset >= until and extent.magic == MAGIC:
            progress.position = max(progress.position, until)
            return
        batch = records[extent.start : extent.end]
        after = max(min(extent.last_offset + 1, until), progress.position)
        if extent.magic < MAGIC:
            if extent.last_offset >= progress.position:
                yield from rows_of_old_batch(batch, extent, progress.position, request)
            progress.position = max(progress.position, after)
            continue
        aborted.advance_to(extent.last_offset)
        header = read_header(batch)
        # A marker before the wanted offset may still end a transaction.
        marker = header.is_control and bool(aborted)
        if extent.last_offset < progress.position and not marker:
            continue
        check_batch(header, batch, crc=request.check_crcs)
        # What a batch that is passed over counts for: its records, as far as its part of the range goes.
        passed = min(header.records, max(after - max(progress.position, header.base_offset), 0))
        if header.is_control:
            if marker and header.records and is_abort(header, batch, request.max_batch_bytes):
                aborted.end(header.producer_id)
            progress.control += passed
        elif header.is_transactional and header.producer_id in aborted:
            progress.aborted += passed
        elif header.records:
            yield from rows_of_batch(header, batch, progress.position, request)
        progress.position = max(progress.position, after)
    if found.error is not None:
        raise found.error
