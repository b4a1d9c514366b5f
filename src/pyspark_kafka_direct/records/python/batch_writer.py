"""Writes record batches of message format 2 (see ``batch_format`` and ``record_format``)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records.python.batch_format import (
    CRC_AT,
    CRC_START,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    Codec,
    read_header,
)
from pyspark_kafka_direct.records.python.compression import compress, decompress
from pyspark_kafka_direct.records.python.crc32c import crc32c
from pyspark_kafka_direct.records.python.record_format import read_deltas
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.records.interfaces import WritableBytes

_MAX_BYTES = (1 << 31) - 1
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")


class BatchWriter:
    """A record batch under construction."""

    def __init__(self, codec: Codec, level: int | None = None) -> None:
        self.records = 0
        self._codec = codec
        self._level = level
        self._body = bytearray()
        self._first_timestamp = 0
        self._max_timestamp = 0

    @property
    def uncompressed_bytes(self) -> int:
        return len(self._body)

    def encode_record(self, timestamp: int, content: bytes) -> bytes:
        """Return the record encoded as the next one of this batch; ``content`` is from ``encode_fields``."""
        delta = _int64(timestamp - self._first_timestamp) if self.records else 0
        body = b"\0" + encode_varint(delta) + encode_varint(self.records) + content
        return encode_varint(len(body)) + body

    def append(self, timestamp: int, record: bytes) -> None:
        """Append a record that ``encode_record`` returned for this timestamp."""
        if self.records == 0:
            self._first_timestamp = self._max_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._body += record
        self.records += 1

    def finish(self) -> bytearray:
        """Return the complete batch: base offset 0, no leader epoch, no producer; it needs at least one record."""
        compressed = compress(self._codec, self._level, self._body)
        batch = bytearray(HEADER.size)
        HEADER.pack_into(
            batch,
            0,
            0,
            HEADER.size - LOG_OVERHEAD + len(compressed),
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            self._codec,
            self.records - 1,
            self._first_timestamp,
            self._max_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self.records,
        )
        batch += compressed
        _CRC.pack_into(batch, CRC_AT, _crc(batch))
        return batch


def set_producer_state(
    data: WritableBytes, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> None:
    """Write producer id, epoch and base sequence (-1: none) into a complete batch, and adjust its CRC.

    A CRC that was wrong stays wrong, so a damaged batch is still detected.
    """
    if len(data) < HEADER.size:
        raise _not_a_batch(data)
    previous_crc = _crc(data)
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
    attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(data, CRC_START, attributes)
    PRODUCER.pack_into(data, PRODUCER_AT, producer_id, epoch, sequence)
    (crc,) = _CRC.unpack_from(data, CRC_AT)
    _CRC.pack_into(data, CRC_AT, crc ^ previous_crc ^ _crc(data))


def is_valid_batch(data: bytes | bytearray | memoryview) -> bool:
    """Return whether these bytes are one record batch of message format 2 with a valid CRC."""
    if len(data) < HEADER.size:
        return False
    header = read_header(bytes(data[: HEADER.size]))
    return header.magic == MAGIC and header.length == len(data) - LOG_OVERHEAD and header.crc == _crc(data)


def split_batch(data: bytes | bytearray | memoryview) -> tuple[bytearray, bytearray]:
    """Return two batches without a producer, each with half of the records, in the same codec at its default level."""
    batch = bytes(data)
    if len(batch) < HEADER.size:
        raise _not_a_batch(batch)
    header = read_header(batch)
    if not is_valid_batch(batch):
        raise ValueError("The record batch to split is damaged: its length or its CRC is wrong.")
    if header.records < 2:
        raise ValueError("A record batch of one record cannot be split.")
    try:
        codec = Codec(header.codec)
        records = batch[HEADER.size :]
        if codec != Codec.NONE:
            records = b"".join(decompress(codec, records, _MAX_BYTES))
        halves = BatchWriter(codec), BatchWriter(codec)
        record_start = 0
        for index in range(header.records):
            timestamp_delta, _, fields_start, record_end = read_deltas(records, record_start)
            half = halves[index >= (header.records + 1) // 2]
            timestamp = _int64(header.base_timestamp + timestamp_delta)
            half.append(timestamp, half.encode_record(timestamp, records[fields_start:record_end]))
            record_start = record_end
    except BadRecordError as error:
        raise ValueError(f"The record batch to split is damaged: {error}.") from error
    return halves[0].finish(), halves[1].finish()


def encode_fields(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Return key, value and headers in the encoding of a record."""
    parts = [_encode_nullable(key), _encode_nullable(value), encode_varint(len(headers))]
    for name, content in headers:
        parts += (_encode_nullable(name), _encode_nullable(content))
    return b"".join(parts)


def encode_varint(integer: int) -> bytes:
    """Return an integer of at most 64 bits as a varint."""
    zigzag = (integer << 1) ^ (integer >> 63)
    if zigzag < 0x80:
        return bytes((zigzag,))
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _encode_nullable(data: bytes | None) -> bytes:
    return b"\x01" if data is None else encode_varint(len(data)) + data


def _int64(integer: int) -> int:
    """Wrap an integer to 64 bits; adding the base timestamp in 64 bits, as Java does, gives the original."""
    return (integer + (1 << 63)) % (1 << 64) - (1 << 63)


def _crc(batch: bytes | bytearray | memoryview) -> int:
    return crc32c(bytes(memoryview(batch)[CRC_START:]))


def _not_a_batch(data: bytes | WritableBytes) -> ValueError:
    return ValueError(f"{len(data)} bytes are too short for a record batch: its header has {HEADER.size}.")
