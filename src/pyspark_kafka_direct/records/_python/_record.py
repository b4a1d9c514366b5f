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

from pyspark_kafka_direct.records._python._bad_record import BadRecordError

_HEADER_SLOT = 12  # what a header takes beside its bytes, as columns: two ends and a null
_LONGEST_VARINT = 5
_LONGEST_VARLONG = 10


class Headers(NamedTuple):
    """The headers of a record, checked but not taken apart: Python objects would take a hundred times their bytes."""

    number: int
    data: bytes

    @property
    def extra(self) -> int:
        """The most memory they take as columns, beyond their bytes.

        A byte of a key that is no UTF-8 becomes three, and each header needs its slot.
        """
        return 2 * len(self.data) + _HEADER_SLOT * self.number


def record_size(records: bytes, at: int) -> int | None:
    """Return the size of the record at ``at``, its length field included; None when that field is cut off.

    Raises:
        BadRecordError: It is no size.
    """
    try:
        size, end = read_varint(records, at, len(records))
    except BadRecordError:
        if len(records) - at < _LONGEST_VARINT:
            return None
        raise _too_long() from None
    if size < 0:
        raise _too_long()
    return end - at + size


def read_head(records: bytes, at: int) -> tuple[int, int, int, int]:
    """Read what tells whether the record that starts at ``at`` is wanted at all.

    Returns timestamp delta, offset delta, where the other fields start, and where the record ends: a bare tuple, since
    the Python decoder's speed is that of this file.
    """
    try:
        size, at = read_varint(records, at, len(records))
    except BadRecordError:
        size = -1
    end = at + size
    if size < 0 or end > len(records):
        raise _too_long()
    timestamp_delta, at = read_varlong(records, at + 1, end)
    offset_delta, at = read_varint(records, at, end)
    return timestamp_delta, offset_delta, at, end


def read_fields(records: bytes, at: int, end: int) -> tuple[bytes | None, bytes | None, Headers | None]:
    """Read key, value and headers (None when there are none); they have to add up to the record's length."""
    key, at = read_nullable(records, at, end)
    value, at = read_nullable(records, at, end)
    count, at = read_varint(records, at, end)
    if count < 0:
        raise _malformed()
    if count == 0 and at == end:
        return key, value, None
    start = at
    for _ in range(count):
        name, at = read_nullable(records, at, end)
        if name is None:
            raise _malformed()
        _, at = read_nullable(records, at, end)
    if at != end:
        raise _malformed()
    return key, value, Headers(count, records[start:end])


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a 32-bit varint; return it and where it ends."""
    if at + 1 < end:  # one or two bytes, as almost all are, are worth a short cut
        raw = data[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        second = data[at + 1]
        if second < 0x80:
            raw = raw & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    raw, at = _raw(data, at, end, _LONGEST_VARINT)
    if raw >> 32:
        raise _malformed()
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a 64-bit varint; return it and where it ends."""
    raw, at = _raw(data, at, end, _LONGEST_VARLONG)
    if raw >> 64:
        raise _malformed()
    return (raw >> 1) ^ -(raw & 1), at


def read_nullable(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes, None for a negative length; return them and where they end."""
    length, at = read_varint(data, at, end)
    if length < 0:
        return None, at
    if at + length > end:
        raise _malformed()
    return data[at : at + length], at + length


def _raw(data: bytes, at: int, end: int, most: int) -> tuple[int, int]:
    raw = shift = 0
    while at < end and shift < 7 * most:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
        shift += 7
    raise _malformed()


def _too_long() -> BadRecordError:
    return BadRecordError("a record's length does not fit its batch")


def _malformed() -> BadRecordError:
    return BadRecordError("a record's fields do not add up to its length")
