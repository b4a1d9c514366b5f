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

from pyspark_kafka_direct.records._python._bad_record import BadRecordError

Headers = list[tuple[str, bytes | None]]


def read_head(records: bytes, at: int) -> tuple[int, int, int, int]:
    """Reads what tells whether the record that starts at ``at`` is wanted at all.

    Returns timestamp delta, offset delta, where the other fields start, and where the record ends: a bare tuple, since
    the Python decoder's speed is that of this file.
    """
    try:
        size, at = read_varint(records, at, len(records))
    except BadRecordError:
        size = -1
    end = at + size
    if size < 0 or end > len(records):
        raise BadRecordError("a record's length does not fit its batch")
    timestamp_delta, at = read_varlong(records, at + 1, end)
    offset_delta, at = read_varint(records, at, end)
    return timestamp_delta, offset_delta, at, end


def read_fields(records: bytes, at: int, end: int) -> tuple[bytes | None, bytes | None, Headers | None]:
    """Reads key, value and headers (None when there are none); they have to add up to the record's length."""
    key, at = _nullable(records, at, end)
    value, at = _nullable(records, at, end)
    count, at = read_varint(records, at, end)
    if count < 0:
        raise _malformed()
    if count == 0 and at == end:
        return key, value, None
    headers: Headers = []
    for _ in range(count):
        name, at = _nullable(records, at, end)
        if name is None:
            raise _malformed()
        content, at = _nullable(records, at, end)
        # Java's String(bytes, UTF_8), which Kafka's client uses, puts U+FFFD for what is no UTF-8.
        headers.append((name.decode("utf-8", "replace"), content))
    if at != end:
        raise _malformed()
    return key, value, headers


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads a 32-bit varint; returns it and where it ends."""
    if at + 1 < end:  # one or two bytes, as almost all are, are worth a short cut
        raw = data[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        second = data[at + 1]
        if second < 0x80:
            raw = raw & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    raw, at = _raw(data, at, end, 5)
    if raw >> 32:
        raise _malformed()
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads a 64-bit varint; returns it and where it ends."""
    raw, at = _raw(data, at, end, 10)
    if raw >> 64:
        raise _malformed()
    return (raw >> 1) ^ -(raw & 1), at


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


def _nullable(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at, end)
    if length < 0:
        return None, at
    if at + length > end:
        raise _malformed()
    return data[at : at + length], at + length


def _malformed() -> BadRecordError:
    return BadRecordError("a record's fields do not add up to its length")
