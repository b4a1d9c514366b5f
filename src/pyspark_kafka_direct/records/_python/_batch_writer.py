"""Writes record batches of message format 2. The layout is in ``_batch_format``, that of a record in ``_record``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import (
    CRC_AT,
    CRC_FROM,
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
from pyspark_kafka_direct.records._python._codecs import decompress
from pyspark_kafka_direct.records._python._compress import compress
from pyspark_kafka_direct.records._python._crc32c import crc32c
from pyspark_kafka_direct.records._python._record import read_head

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BYTES = (1 << 31) - 1
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")


class BatchWriter:
    """A batch under construction: takes records, gives the whole batch.

    Args:
        codec: How its records will be compressed.
        level: The codec's level; None: its default.
    """

    def __init__(self, codec: Codec, level: int | None = None) -> None:
        self.records = 0
        self._codec = codec
        self._level = level
        self._body = bytearray()
        self._first_timestamp = 0
        self._max_timestamp = 0

    @property
    def raw_bytes(self) -> int:
        """The size of its records, before compression."""
        return len(self._body)

    def record(self, timestamp: int, content: bytes) -> bytes:
        """Return the next record, as it would be here; ``content`` is what ``fields`` made."""
        delta = _int64(timestamp - self._first_timestamp) if self.records else 0
        whole = b"\0" + varint(delta) + varint(self.records) + content
        return varint(len(whole)) + whole

    def append(self, timestamp: int, record: bytes) -> None:
        """Append what ``record`` returned for that timestamp."""
        if self.records == 0:
            self._first_timestamp = self._max_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._body += record
        self.records += 1

    def finish(self) -> bytearray:
        """Return the whole batch: base offset 0, no leader epoch, no producer. There has to be a record in it."""
        packed = compress(self._codec, self._level, self._body)
        batch = bytearray(HEADER.size)
        HEADER.pack_into(
            batch,
            0,
            0,
            HEADER.size - LOG_OVERHEAD + len(packed),
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
        batch += packed
        _CRC.pack_into(batch, CRC_AT, _crc(batch))
        return batch


def stamp(data: bytearray, producer_id: int, epoch: int, sequence: int, *, transactional: bool) -> None:
    """Write into a batch who sends it, and make its CRC right; a batch that was damaged before stays wrong.

    Args:
        data: A whole batch; it is changed in place.
        producer_id: The producer's id; -1 for none.
        epoch: The id's epoch; -1 for none.
        sequence: Sequence number of the first record; -1 for none.
        transactional: Whether the batch belongs to a transaction.

    Raises:
        ValueError: It is too short to be a batch.
    """
    if len(data) < HEADER.size:
        raise _no_batch(data)
    before = _crc(data)
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(data, CRC_FROM, attributes)
    PRODUCER.pack_into(data, PRODUCER_AT, producer_id, epoch, sequence)
    (crc,) = _CRC.unpack_from(data, CRC_AT)
    _CRC.pack_into(data, CRC_AT, crc ^ before ^ _crc(data))


def split(data: bytes | bytearray | memoryview) -> tuple[bytearray, bytearray]:
    """Return two batches with the first and the second half of a batch's records, in its codec at its default level.

    Nobody's stamp is on them.

    Raises:
        ValueError: There is one record only, or this is no batch, or a damaged one.
    """
    batch = bytes(data)
    if len(batch) < HEADER.size:
        raise _no_batch(batch)
    header = read_header(batch)
    if header.magic != MAGIC or header.length != len(batch) - LOG_OVERHEAD or header.crc != _crc(batch):
        raise ValueError("The record batch to split is damaged: its length or its CRC is wrong.")
    if header.records < 2:
        raise ValueError("A record batch of one record cannot be split.")
    try:
        codec = Codec(header.codec)
        plain = batch[HEADER.size :]
        if codec != Codec.NONE:
            plain = b"".join(decompress(codec, plain, _MOST_BYTES))
        halves = BatchWriter(codec), BatchWriter(codec)
        at = 0
        for place in range(header.records):
            delta, _, start, end = read_head(plain, at)
            half = halves[place >= (header.records + 1) // 2]
            timestamp = _int64(header.base_timestamp + delta)
            half.append(timestamp, half.record(timestamp, plain[start:end]))
            at = end
    except BadRecordError as error:
        raise ValueError(f"The record batch to split is damaged: {error}.") from error
    return halves[0].finish(), halves[1].finish()


def fields(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Return key, value and headers as they are in a record."""
    parts = [_sized(key), _sized(value), varint(len(headers))]
    for name, content in headers:
        parts += (_sized(name), _sized(content))
    return b"".join(parts)


def varint(number: int) -> bytes:
    """Return a number of at most 64 bits as a varint."""
    raw = (number << 1) ^ (number >> 63)
    if raw < 0x80:
        return bytes((raw,))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else varint(len(data)) + data


def _int64(number: int) -> int:
    """Return the number as 64-bit arithmetic wraps it, which Java's clients undo."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _crc(batch: bytes | bytearray) -> int:
    return crc32c(bytes(memoryview(batch)[CRC_FROM:]))


def _no_batch(data: bytes | bytearray) -> ValueError:
    return ValueError(f"{len(data)} bytes are no record batch: its header alone has {HEADER.size}.")
