"""Message formats 0 and 1, which segments written before Kafka 0.11 still have.

A message is a batch of one; a compressed one wraps a whole message set as its value. Big-endian::

     0  offset      int64   of a wrapper: its last message's
     8  size        int32   bytes that follow this field
    12  crc         uint32  CRC-32 (not CRC32C) of everything from `magic` on
    16  magic       int8    0 or 1
    17  attributes  int8    bits 0-2 codec, 3 log-append time (format 1)
    18  timestamp   int64   format 1 only
        key         int32 length (-1: null), bytes
        value       int32 length (-1: null), bytes

In a wrapper of format 0 the inner offsets are absolute, in one of format 1 they count from 0 (KIP-31). Inner messages
have the wrapper's time where that is the broker's, else their own (KIP-32).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.records._python import _lz4_frame
from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import (
    CODEC_BITS,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    Codec,
)
from pyspark_kafka_direct.records._python._batch_reader import Row, checked_timestamp
from pyspark_kafka_direct.records._python._codecs import decompress
from pyspark_kafka_direct.records._python._plain import too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.records._protocol import DecodeRequest
    from pyspark_kafka_direct.records._python._batch_scan import Extent

_HEAD = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC_FROM = 16


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size: int
    end: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return int(bool(self.attributes & LOG_APPEND_TIME_BIT))


def rows_of_old_batch(batch: bytes, extent: Extent, from_offset: int, request: DecodeRequest) -> Iterator[Row]:
    """Yield the messages of a format 0 or 1 message, wrapper or not, that are in the range.

    Raises:
        BadRecordError: They are malformed.
    """
    offset = extent.last_offset
    try:
        outer = _read(batch, 0, request)
        for message in _unwrap(outer, request) if outer.codec != Codec.NONE else [outer]:
            offset = message.offset
            if offset >= request.until_offset:
                return
            if offset >= from_offset:
                if message.size > request.max_batch_bytes:
                    raise too_large(request.max_batch_bytes)
                checked_timestamp(message.timestamp, request)
                yield _row(message)
            offset = extent.last_offset
    except BadRecordError as error:
        error.offset = offset
        raise


def _row(message: _Message) -> Row:
    return Row(
        message.offset,
        message.timestamp,
        message.timestamp_type,
        NO_LEADER_EPOCH,
        message.key,
        message.value,
        None,
        message.size,
        message.size,
    )


def _unwrap(wrapper: _Message, request: DecodeRequest) -> Iterator[_Message]:
    """Yield the messages inside a wrapper, with absolute offsets and the time that counts.

    A wrapper is decompressed as a whole, since the last message tells the offset of the first. Messages are made one
    by one: as Python objects, small ones take many times their bytes.
    """
    if wrapper.value is None:
        raise BadRecordError("a compressed message has no value")
    packed = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        packed = _lz4_frame.with_right_checksum(packed)
    plain = b"".join(decompress(wrapper.codec, packed, request.max_batch_bytes))
    if not plain:
        raise BadRecordError("a compressed message holds no messages")
    shift = wrapper.offset - _last_offset(plain) if wrapper.magic == 1 else 0
    at, last = 0, -1
    while at < len(plain):
        message = _read(plain, at, request)
        if message.magic != wrapper.magic or message.codec != Codec.NONE:
            raise BadRecordError("a message inside a compressed one has another format, or is compressed itself")
        at = message.end
        offset = message.offset + shift
        if not last < offset <= wrapper.offset:
            raise BadRecordError("the offsets inside a compressed message are out of order")
        last = offset
        if wrapper.timestamp_type == LOG_APPEND_TIME:
            message = message._replace(timestamp=wrapper.timestamp, attributes=LOG_APPEND_TIME_BIT)
        yield message._replace(offset=offset)


def _last_offset(messages: bytes) -> int:
    at, last = 0, -1
    while at < len(messages):
        if len(messages) - at < _HEAD.size:
            raise _cut_off()
        last, size, *_ = _HEAD.unpack_from(messages, at)
        if size < 0:
            raise _cut_off()
        at += LOG_OVERHEAD + size
    return last


def _read(data: bytes, at: int, request: DecodeRequest) -> _Message:
    """Read one message, which has to fill its size."""
    if len(data) - at < _HEAD.size:
        raise _cut_off()
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, at)
    end = at + LOG_OVERHEAD + size
    if size < 0 or end > len(data):
        raise _cut_off()
    if magic not in (0, 1):
        raise BadRecordError(f"a message has the unexpected format {magic}")
    if request.check_crcs and (computed := zlib.crc32(data[at + _CRC_FROM : end])) != crc:
        raise BadRecordError(
            f"the CRC of a message does not match its bytes: it says {crc:#010x}, the bytes give {computed:#010x}"
        )
    where = at + _HEAD.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if where + _TIMESTAMP.size > end:
            raise _cut_off()
        (timestamp,) = _TIMESTAMP.unpack_from(data, where)
        where += _TIMESTAMP.size
    key, where = _nullable(data, where, end)
    value, where = _nullable(data, where, end)
    if where != end:
        raise BadRecordError("a message's fields do not add up to its size")
    return _Message(offset, magic, attributes, timestamp, key, value, size, end)


def _nullable(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    if at + _LENGTH.size > end:
        raise _cut_off()
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if at + length > end:
        raise _cut_off()
    return data[at : at + length], at + length


def _cut_off() -> BadRecordError:
    return BadRecordError("a message is cut off inside its batch")
