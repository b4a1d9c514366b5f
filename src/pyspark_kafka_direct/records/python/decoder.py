"""The decoder in Python, step by step the same as the native one (``rust/kernel/src/decoder.rs``)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records.columns import arrow_schema, binary_column, integer_column, validity
from pyspark_kafka_direct.records.interfaces import DecodeCounts
from pyspark_kafka_direct.records.python.batch_format import MAGIC, read_header
from pyspark_kafka_direct.records.python.batch_reader import (
    AbortedProducers,
    DecodedRecord,
    is_abort_marker,
    read_batch,
    validate_batch,
)
from pyspark_kafka_direct.records.python.batch_scan import scan_batches
from pyspark_kafka_direct.records.python.legacy_formats import read_legacy_batch
from pyspark_kafka_direct.records.python.record_format import read_nullable
from pyspark_kafka_direct.records.record_errors import record_error
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import RecordError
    from pyspark_kafka_direct.records.interfaces import AbortedTransaction, DecodeRequest
    from pyspark_kafka_direct.records.scanned_batches import BatchScan


class PythonDecoder:
    """A ``RecordDecoder`` in Python."""

    def __init__(self, request: DecodeRequest) -> None:
        self._request = request
        self._next_offset = request.from_offset
        self._progress = _Progress(request.from_offset)
        self._rows: Iterator[DecodedRecord] | None = None
        self._pending: DecodedRecord | None = None  # read, but it did not fit the last Arrow batch
        self._failure: RecordError | None = None

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        if self._rows is not None or self._failure is not None:
            raise RuntimeError("feed() before read() returned None")
        scanned = scan_batches(records, self._next_offset, self._request.until_offset)
        try:
            complete = bytes(memoryview(records)[: scanned.batches[-1].end]) if scanned.batches else b""
        except MemoryError:
            raise self._out_of_memory(self._next_offset) from None
        self._next_offset = scanned.next_offset
        if scanned.batches or scanned.error:
            self._rows = _read_response(complete, scanned, AbortedProducers(aborted), self._request, self._progress)

    def read(self) -> pa.RecordBatch | None:
        rows: list[DecodedRecord] = []
        batch_start = self._progress.position
        memory_bytes = 0
        try:
            while (row := self._next_row()) is not None:
                exceeds_max_bytes = memory_bytes + row.memory_bytes > self._request.max_bytes
                if rows and (len(rows) == self._request.max_rows or exceeds_max_bytes):
                    self._pending = row
                    break
                rows.append(row)
                memory_bytes += row.memory_bytes
        except MemoryError:
            self._rows = None
            self._failure = self._out_of_memory(rows[-1].offset + 1 if rows else self._progress.position)
        except BadRecordError as error:
            self._rows = None
            offset = error.offset if error.offset is not None else self._progress.position
            request = self._request
            self._failure = record_error(
                error.kind, error.message, topic=request.topic, partition=request.partition, offset=offset
            )
        if rows:
            self._progress.position = max(self._progress.position, rows[-1].offset + 1)
            self._progress.records += len(rows)
            self._progress.bytes += sum(row.size for row in rows)
            try:
                return build_arrow_batch(rows, self._request)
            except MemoryError:
                self._rows = self._pending = None
                self._failure = self._out_of_memory(batch_start)
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def next_offset(self) -> int:
        return self._next_offset

    @property
    def done(self) -> bool:
        return self._next_offset >= self._request.until_offset and self._rows is None and self._failure is None

    @property
    def counts(self) -> DecodeCounts:
        progress = self._progress
        processed = min(progress.position, self._request.until_offset) - self._request.from_offset
        gaps = max(processed - progress.records - progress.control - progress.aborted, 0)
        return DecodeCounts(progress.records, progress.bytes, progress.control, progress.aborted, gaps)

    def _out_of_memory(self, offset: int) -> RecordError:
        request = self._request
        message = "there is not enough memory for the records"
        return record_error("memory", message, topic=request.topic, partition=request.partition, offset=offset)

    def _next_row(self) -> DecodedRecord | None:
        row, self._pending = self._pending, None
        if row is None and self._rows is not None:
            row = next(self._rows, None)
            if row is None:
                self._rows = None
        return row


@dataclass(slots=True)
class _Progress:
    """The position of a decoder, and its counters (as in ``DecodeCounts``)."""

    position: int  # all earlier offsets were decoded or skipped
    records: int = 0
    bytes: int = 0
    control: int = 0
    aborted: int = 0


def _read_response(
    records: bytes, scanned: BatchScan, aborted: AbortedProducers, request: DecodeRequest, progress: _Progress
) -> Iterator[DecodedRecord]:
    """Yield the rows of one fetch response that are in the range; move ``progress`` over skipped batches."""
    until = request.until_offset
    for extent in scanned.batches:
        if extent.base_offset >= until and extent.magic == MAGIC:
            progress.position = max(progress.position, until)
            return
        batch = records[extent.start : extent.end]
        end_position = max(min(extent.last_offset + 1, until), progress.position)
        if extent.magic < MAGIC:
            if extent.last_offset >= progress.position:
                yield from read_legacy_batch(batch, extent, progress.position, request)
            progress.position = max(progress.position, end_position)
            continue
        aborted.advance_to(extent.last_offset)
        header = read_header(batch)
        # A marker before the start of the range may still end a transaction.
        may_end_transaction = header.is_control and bool(aborted)
        if extent.last_offset < progress.position and not may_end_transaction:
            continue
        whole = extent.base_offset >= progress.position and extent.last_offset < until
        counted = request.count_only and whole and not header.is_control
        validate_batch(header, batch, crc=request.check_crcs and not counted)
        # If the batch is not decoded, its records count, at most one for each of its offsets in the range.
        skipped = min(header.records, max(end_position - max(progress.position, header.base_offset), 0))
        if header.is_control:
            if may_end_transaction and header.records and is_abort_marker(batch, request.max_batch_bytes):
                aborted.end(header.producer_id)
            progress.control += skipped
        elif header.is_transactional and header.producer_id in aborted:
            progress.aborted += skipped
        elif counted:
            progress.records += skipped
        elif header.records:
            yield from read_batch(header, batch, progress.position, request)
        progress.position = max(progress.position, end_position)
    if scanned.error is not None:
        raise scanned.error


def build_arrow_batch(rows: Sequence[DecodedRecord], request: DecodeRequest) -> pa.RecordBatch:
    """Return the rows with the columns of the request."""
    import pyarrow as pa

    schema = arrow_schema(request.columns)
    if not schema.names:
        # Of a batch without columns, Arrow has the number of rows only if it is created from a struct array.
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), len(rows), [None]))
    return pa.RecordBatch.from_arrays([_column(field, rows, request) for field in schema], schema=schema)


def _column(field: pa.Field, rows: Sequence[DecodedRecord], request: DecodeRequest) -> pa.Array:
    match field.name:
        case "key":
            return binary_column([row.key for row in rows])
        case "value":
            return binary_column([row.value for row in rows])
        case "topic":
            return binary_column([request.topic.encode()] * len(rows)).cast(field.type)
        case "partition":
            return integer_column(array("i", [request.partition]) * len(rows))
        case "offset":
            return integer_column(array("q", [row.offset for row in rows]))
        case "timestamp":
            return integer_column(array("q", [row.timestamp * 1000 for row in rows])).view(field.type)
        case "timestampType":
            return integer_column(array("i", [row.timestamp_type for row in rows]))
        case "headers":
            return _header_lists(rows, field.type)
        case _:
            unknown = [index for index, row in enumerate(rows) if row.leader_epoch < 0]
            return integer_column(array("i", [row.leader_epoch for row in rows]), unknown)


def _header_lists(rows: Sequence[DecodedRecord], kind: pa.ListType) -> pa.Array:
    """Build the headers column from bytes, without a Python object for each header."""
    import pyarrow as pa

    ends, key_ends, value_ends = array("i", [0]), array("i", [0]), array("i", [0])
    keys, values = bytearray(), bytearray()
    null_rows, null_values = array("i"), array("i")
    for row_index, row in enumerate(rows):
        if row.headers is None:
            null_rows.append(row_index)
        else:
            header_count, data = row.headers
            position = 0
            for _ in range(header_count):
                name, position = read_nullable(data, position, len(data))
                content, position = read_nullable(data, position, len(data))
                # Like Java's String(bytes, UTF_8) in Kafka's client, replace invalid UTF-8 by U+FFFD.
                keys += (name or b"").decode("utf-8", "replace").encode()
                key_ends.append(len(keys))
                if content is None:
                    null_values.append(len(value_ends) - 1)
                else:
                    values += content
                value_ends.append(len(values))
        ends.append(len(key_ends) - 1)
    count = len(key_ends) - 1
    key_buffers = [None, pa.py_buffer(key_ends), pa.py_buffer(keys)]
    value_buffers = [validity(null_values, count), pa.py_buffer(value_ends), pa.py_buffer(values)]
    children = [
        pa.Array.from_buffers(pa.string(), count, key_buffers),
        pa.Array.from_buffers(pa.binary(), count, value_buffers),
    ]
    pairs = pa.Array.from_buffers(kind.value_type, count, [None], children=children)
    buffers = [validity(null_rows, len(rows)), pa.py_buffer(ends)]
    return pa.Array.from_buffers(kind, len(rows), buffers, children=[pairs])
