"""Reads the records of a format 2 batch."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.records.python.batch_format import (
    ABORT_MARKER,
    CRC_START,
    CREATE_TIME,
    HEADER,
    LOG_APPEND_TIME,
    MARKER_KEY,
    BatchHeader,
    Codec,
    read_header,
)
from pyspark_kafka_direct.records.python.compression import CHUNK_BYTES, decompress
from pyspark_kafka_direct.records.python.crc32c import crc32c
from pyspark_kafka_direct.records.python.record_format import RawHeaders, read_deltas, read_fields, record_size
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_kafka_direct.records.interfaces import AbortedTransaction, DecodeRequest

_MAX_MILLISECONDS = (1 << 63) // 1000  # less than this, either way, fits 64-bit microseconds


class DecodedRecord(NamedTuple):
    """A record with its batch's attributes."""

    offset: int
    timestamp: int  # milliseconds
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders | None
    size: int  # bytes in its decompressed batch
    memory_bytes: int  # the same, and the additional size of selected headers as columns


def validate_batch(header: BatchHeader, batch: bytes, *, crc: bool) -> None:
    """Check the CRC and the record count before the records are read."""
    if crc:
        computed = crc32c(batch[CRC_START:])
        if computed != header.crc:
            raise BadRecordError(
                "the CRC of the record batch does not match its bytes: "
                f"it says {header.crc:#010x}, the bytes give {computed:#010x}",
                offset=header.base_offset,
            )
    if header.records < 0:
        raise BadRecordError(f"a record batch claims {header.records} records", offset=header.base_offset)


def is_abort_marker(batch: memoryview | bytearray | bytes, max_bytes: int) -> bool:
    """Return whether a control batch contains an ABORT marker; ``max_bytes`` limits its decompressed size."""
    batch = bytes(batch)
    header = read_header(batch)
    try:
        records = DecompressedRecords(header, batch, max_bytes).first_chunk()
        _, _, fields_start, end = read_deltas(records, 0)
        key, _, _ = read_fields(records, fields_start, end)
        if key is None or len(key) < MARKER_KEY.size:
            raise BadRecordError("a control record's key is shorter than its version and type")
    except BadRecordError as error:
        error.offset = header.base_offset
        raise
    return bool(MARKER_KEY.unpack_from(key)[1] == ABORT_MARKER)


def read_batch(header: BatchHeader, batch: bytes, from_offset: int, request: DecodeRequest) -> Iterator[DecodedRecord]:
    """Yield the records of a batch from ``from_offset`` up to ``request.until_offset`` (exclusive)."""
    error_offset = header.base_offset  # of the record that is being decoded
    try:
        decompressed = DecompressedRecords(header, batch, request.max_batch_bytes)
        records = decompressed.first_chunk()
        wants_headers = "headers" in request.columns
        append_time = header.is_log_append_time
        timestamp_type = LOG_APPEND_TIME if append_time else CREATE_TIME
        last_delta, end = -1, 0
        for _ in range(header.records):
            # Until a record's offset is decoded, errors name the offset after the previous record's.
            error_offset = header.base_offset + last_delta + 1
            start = end
            try:
                timestamp_delta, delta, fields_start, end = read_deltas(records, start)
            except BadRecordError:
                # The record may only be incomplete so far: decompress more, and try again.
                records, start = decompressed.complete_record(records, start), 0
                timestamp_delta, delta, fields_start, end = read_deltas(records, start)
            if not last_delta < delta <= header.last_offset_delta:
                raise BadRecordError(
                    f"a record's offset delta {delta} is not after its predecessor's ({last_delta}) "
                    f"or beyond its batch's last ({header.last_offset_delta})"
                )
            last_delta = delta
            offset = header.base_offset + delta
            if offset >= request.until_offset:
                return
            if offset < from_offset:
                continue
            error_offset = offset
            key, value, headers = read_fields(records, fields_start, end)
            size = end - start
            memory_bytes = size + (headers.extra_bytes if headers and wants_headers else 0)
            if memory_bytes > request.max_batch_bytes:
                raise record_too_large(request.max_batch_bytes)
            timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
            if not -_MAX_MILLISECONDS < timestamp < _MAX_MILLISECONDS:
                timestamp = checked_timestamp(timestamp, request)
            yield DecodedRecord(
                offset, timestamp, timestamp_type, header.leader_epoch, key, value, headers, size, memory_bytes
            )
        if end != len(records) or decompressed.has_more():
            error_offset = header.last_offset
            raise BadRecordError("a record batch has bytes after its last record")
    except BadRecordError as error:
        error.offset = error_offset if error.offset is None else error.offset
        raise


def checked_timestamp(milliseconds: int, request: DecodeRequest) -> int:
    """Return a timestamp wrapped to 64 bits, as in Java; raise if it does not fit Spark's microseconds."""
    milliseconds = (milliseconds + (1 << 63)) % (1 << 64) - (1 << 63)
    if "timestamp" in request.columns and not -(1 << 63) <= milliseconds * 1000 < 1 << 63:
        raise BadRecordError(
            f"the timestamp {milliseconds} ms does not fit Spark's 64-bit microseconds", kind="timestamp"
        )
    return milliseconds


class DecompressedRecords:
    """Returns a batch's records in chunks that begin with a record, decompressed while they are read."""

    def __init__(self, header: BatchHeader, batch: bytes, max_bytes: int) -> None:
        records = batch[HEADER.size :]
        self._base_offset = header.base_offset
        self._max_bytes = max_bytes
        self._chunks: Iterator[bytes] = (
            decompress(header.codec, records, max_bytes) if header.codec != Codec.NONE else iter((records,))
        )

    def first_chunk(self) -> bytes:
        return self._read_at_least(b"", CHUNK_BYTES)

    def complete_record(self, records: bytes, record_start: int) -> bytes:
        """Return the bytes from ``record_start`` on, decompressed further until the record there is complete."""
        records = records[record_start:]
        size = record_size(records, 0)
        if size is None:
            records = self._read_at_least(records, CHUNK_BYTES)
            size = record_size(records, 0) or 0
        if size > len(records):
            if size > self._max_bytes and not self._is_exhausted():
                raise record_too_large(self._max_bytes)
            records = self._read_at_least(records, size)
        return records

    def has_more(self) -> bool:
        """Return whether there are more bytes; at the end, this also verifies the codec's checksums."""
        chunk = self._next_chunk()
        if chunk:
            self._chunks = chain((chunk,), self._chunks)
        return bool(chunk)

    def _is_exhausted(self) -> bool:
        """Return whether all bytes were read; an error in later bytes counts as more bytes."""
        try:
            return not self.has_more()
        except BadRecordError:
            return False

    def _read_at_least(self, records: bytes, min_bytes: int) -> bytes:
        """Append chunks until there are ``min_bytes`` bytes, or no chunks are left."""
        chunks, length = [records], len(records)
        while length < min_bytes and (chunk := self._next_chunk()):
            chunks.append(chunk)
            length += len(chunk)
        return b"".join(chunks)

    def _next_chunk(self) -> bytes:
        """Return the next chunk that is not empty, or no bytes at the end."""
        try:
            return next(filter(None, self._chunks), b"")
        except BadRecordError as error:
            error.offset = self._base_offset  # the error belongs to no record
            raise


def record_too_large(max_bytes: int) -> BadRecordError:
    return BadRecordError(f"a record takes more than {max_bytes} bytes", kind="large")


class AbortedProducers:
    """Tracks the aborted transactions (KIP-98) in the batches of one fetch response.

    With ``read_committed``, a fetch response lists aborted transactions by producer id and first offset. The producer's
    transactional batches are skipped from that offset up to the ABORT control record that ends the transaction.
    """

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._pending = sorted(
            ((first_offset, producer_id) for producer_id, first_offset in transactions), reverse=True
        )
        self._open: set[int] = set()  # ids of producers whose aborted transaction has begun and not ended

    def __bool__(self) -> bool:
        return bool(self._pending or self._open)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._open

    def advance_to(self, last_offset: int) -> None:
        """Open the transactions that begin up to ``last_offset``, the last offset of the next batch."""
        while self._pending and self._pending[-1][0] <= last_offset:
            self._open.add(self._pending.pop()[1])

    def end(self, producer_id: int) -> None:
        """Close a producer's transaction, at its ABORT control record."""
        self._open.discard(producer_id)
