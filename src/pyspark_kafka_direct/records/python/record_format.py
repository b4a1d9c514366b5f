"""The records of a format 2 batch.

Record::

    length          varint   bytes that follow
    attributes      int8     unused
    timestampDelta  varlong
    offsetDelta     varint
    keyLength       varint   negative: null
    key
    valueLength     varint   negative: null
    value
    headersCount    varint
    headers         each: keyLength varint, key (UTF-8), valueLength varint (negative: null), value

Varints are zig-zag, then seven bits a byte, the lowest first, a set top bit saying "more": at most five bytes for 32
bits, ten for 64.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_direct.records.scanned_batches import BadRecordError

_HEADER_OVERHEAD = 12  # bytes that a header takes in Arrow columns besides its content: offsets and validity
_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


class RawHeaders(NamedTuple):
    """The validated headers of a record, still as bytes: Python objects would take a hundred times the memory."""

    header_count: int
    data: bytes

    @property
    def extra_bytes(self) -> int:
        """The maximum size of the headers as Arrow columns, minus their encoded size.

        An invalid UTF-8 byte of a key becomes three bytes, and each header has an overhead.
        """
        return 2 * len(self.data) + _HEADER_OVERHEAD * self.header_count


def record_size(records: bytes, position: int) -> int | None:
    """Return the size of the record at ``position`` with its length field; None if that field is incomplete."""
    try:
        size, end = read_varint(records, position, len(records))
    except BadRecordError:
        if len(records) - position < _MAX_VARINT_BYTES:
            return None
        raise _length_error() from None
    if size < 0:
        raise _length_error()
    return end - position + size


def read_deltas(records: bytes, position: int) -> tuple[int, int, int, int]:
    """Read the fields that determine whether the record at ``position`` is in the range.

    Returns timestamp delta, offset delta, start position of the other fields, and end position of the record. It is a
    tuple without names, because the Python decoder's speed depends on this function.
    """
    try:
        size, position = read_varint(records, position, len(records))
    except BadRecordError:
        size = -1
    end = position + size
    if size < 0 or end > len(records):
        raise _length_error()
    timestamp_delta, position = read_varlong(records, position + 1, end)
    offset_delta, position = read_varint(records, position, end)
    return timestamp_delta, offset_delta, position, end


def read_fields(records: bytes, position: int, end: int) -> tuple[bytes | None, bytes | None, RawHeaders | None]:
    """Read key, value and headers (None if there are none), which must fill the record's length."""
    key, position = read_nullable(records, position, end)
    value, position = read_nullable(records, position, end)
    count, position = read_varint(records, position, end)
    if count < 0:
        raise _fields_error()
    if count == 0 and position == end:
        return key, value, None
    start = position
    for _ in range(count):
        name, position = read_nullable(records, position, end)
        if name is None:
            raise _fields_error()
        _, position = read_nullable(records, position, end)
    if position != end:
        raise _fields_error()
    return key, value, RawHeaders(count, records[start:end])


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a 32-bit varint; return the integer and the position after it."""
    if position + 1 < end:  # fast path: almost all varints have one or two bytes
        raw = data[position]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        second = data[position + 1]
        if second < 0x80:
            raw = raw & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
    raw, position = _read_raw_varint(data, position, end, _MAX_VARINT_BYTES)
    if raw >> 32:
        raise _fields_error()
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a 64-bit varint; return the integer and the position after it."""
    raw, position = _read_raw_varint(data, position, end, _MAX_VARLONG_BYTES)
    if raw >> 64:
        raise _fields_error()
    return (raw >> 1) ^ -(raw & 1), position


def read_nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes, None for a negative length; return them and the position after them."""
    length, position = read_varint(data, position, end)
    if length < 0:
        return None, position
    if position + length > end:
        raise _fields_error()
    return data[position : position + length], position + length


def _read_raw_varint(data: bytes, position: int, end: int, max_bytes: int) -> tuple[int, int]:
    raw = shift = 0
    while position < end and shift < 7 * max_bytes:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
    raise _fields_error()


def _length_error() -> BadRecordError:
    return BadRecordError("a record's length does not fit its batch")


def _fields_error() -> BadRecordError:
    return BadRecordError("a record's fields do not add up to its length")
