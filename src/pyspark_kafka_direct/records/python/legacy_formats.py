"""Message formats 0 and 1, which segments written before Kafka 0.11 still have.

Brokers before 3.0 also wrote them if ``log.message.format.version`` said so. All later brokers return them unchanged,
4.x too (KIP-724), and topics that are compacted or never deleted keep such segments. Spark's connector reads them.

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
have the wrapper's timestamp if that is the broker's, else their own (KIP-32).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.records.python import lz4_frame
from pyspark_kafka_direct.records.python.batch_format import (
    CODEC_BITS,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    Codec,
)
from pyspark_kafka_direct.records.python.batch_reader import DecodedRecord, checked_timestamp, record_too_large
from pyspark_kafka_direct.records.python.compression import decompress
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.records.interfaces import DecodeRequest
    from pyspark_kafka_direct.records.scanned_batches import ScannedBatch

_MESSAGE_HEADER = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC_START = 16


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


def read_legacy_batch(
    batch: bytes, extent: ScannedBatch, from_offset: int, request: DecodeRequest
) -> Iterator[DecodedRecord]:
    """Yield the message of format 0 or 1, or the messages inside it if it is compressed, that are in the range."""
    offset = extent.last_offset  # the one that errors name
    try:
        outer = _read_message(batch, 0, request)
        for message in _unwrap(outer, request) if outer.codec != Codec.NONE else [outer]:
            offset = message.offset
            if offset >= request.until_offset:
                return
            if offset >= from_offset:
                if message.size > request.max_batch_bytes:
                    raise record_too_large(request.max_batch_bytes)
                checked_timestamp(message.timestamp, request)
                yield _to_record(message)
            offset = extent.last_offset
    except BadRecordError as error:
        error.offset = offset
        raise


def _to_record(message: _Message) -> DecodedRecord:
    return DecodedRecord(
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
    """Yield the messages inside a wrapper, with absolute offsets and effective timestamps.

    A wrapper is decompressed as a whole, because the last message determines the offset of the first. Messages are
    yielded one by one, because small messages take many times their size as Python objects.
    """
    if wrapper.value is None:
        raise BadRecordError("a compressed message has no value")
    compressed = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        compressed = lz4_frame.fix_header_checksum(compressed)
    messages = b"".join(decompress(wrapper.codec, compressed, request.max_batch_bytes))
    if not messages:
        raise BadRecordError("a compressed message holds no messages")
    offset_shift = wrapper.offset - _last_offset(messages) if wrapper.magic == 1 else 0
    position, last_offset = 0, -1
    while position < len(messages):
        message = _read_message(messages, position, request)
        if message.magic != wrapper.magic or message.codec != Codec.NONE:
            raise BadRecordError("a message inside a compressed one has another format, or is compressed itself")
        position = message.end
        offset = message.offset + offset_shift
        if not last_offset < offset <= wrapper.offset:
            raise BadRecordError("the offsets inside a compressed message are out of order")
        last_offset = offset
        if wrapper.timestamp_type == LOG_APPEND_TIME:
            message = message._replace(timestamp=wrapper.timestamp, attributes=LOG_APPEND_TIME_BIT)
        yield message._replace(offset=offset)


def _last_offset(messages: bytes) -> int:
    """Return the offset of the last message in a message set."""
    position, last_offset = 0, -1
    while position < len(messages):
        if len(messages) - position < _MESSAGE_HEADER.size:
            raise _truncated_error()
        last_offset, size, *_ = _MESSAGE_HEADER.unpack_from(messages, position)
        if size < 0:
            raise _truncated_error()
        position += LOG_OVERHEAD + size
    return last_offset


def _read_message(data: bytes, position: int, request: DecodeRequest) -> _Message:
    """Read the message at a position; its fields must fill its size."""
    if len(data) - position < _MESSAGE_HEADER.size:
        raise _truncated_error()
    offset, size, crc, magic, attributes = _MESSAGE_HEADER.unpack_from(data, position)
    end = position + LOG_OVERHEAD + size
    if size < 0 or end > len(data):
        raise _truncated_error()
    if magic not in (0, 1):
        raise BadRecordError(f"a message has the unexpected format {magic}")
    if request.check_crcs and (computed := zlib.crc32(data[position + _CRC_START : end])) != crc:
        raise BadRecordError(
            f"the CRC of a message does not match its bytes: it says {crc:#010x}, the bytes give {computed:#010x}"
        )
    field_start = position + _MESSAGE_HEADER.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if field_start + _TIMESTAMP.size > end:
            raise _truncated_error()
        (timestamp,) = _TIMESTAMP.unpack_from(data, field_start)
        field_start += _TIMESTAMP.size
    key, field_start = _read_nullable(data, field_start, end)
    value, field_start = _read_nullable(data, field_start, end)
    if field_start != end:
        raise BadRecordError("a message's fields do not add up to its size")
    return _Message(offset, magic, attributes, timestamp, key, value, size, end)


def _read_nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > end:
        raise _truncated_error()
    (length,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if position + length > end:
        raise _truncated_error()
    return data[position : position + length], position + length


def _truncated_error() -> BadRecordError:
    return BadRecordError("a message is truncated inside its batch")
