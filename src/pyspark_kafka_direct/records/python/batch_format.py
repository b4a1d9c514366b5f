"""The layout of a record batch, and its constants.

Message format 2 (KIP-98; ``DefaultRecordBatch`` in Kafka), big-endian::

     0  baseOffset            int64
     8  batchLength           int32   bytes that follow this field
    12  partitionLeaderEpoch  int32
    16  magic                 int8    2
    17  crc                   uint32  CRC32C of everything from `attributes` on
    21  attributes            int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
    23  lastOffsetDelta       int32
    27  baseTimestamp         int64   (the delete horizon if bit 6 is set; deltas are relative to it all the same)
    35  maxTimestamp          int64
    43  producerId            int64
    51  producerEpoch         int16
    53  baseSequence          int32
    57  recordsCount          int32
    61  records, compressed as a whole if there is a codec

The layout of a single record is in ``record_format``. Message formats 0 and 1 share the first twelve bytes, the
position of the magic, and the constants here; the rest of their layout is in ``legacy_formats``.

A control batch contains one record, the marker that ends a transaction. Its key is version int16, type int16.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_OVERHEAD = 12
"""Bytes up to and including ``batchLength``, which does not count them."""
CRC_AT = 17
CRC_START = 21
PRODUCER_AT = 43

MAGIC = 2
"""The message format of this layout."""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP_TYPE = -1
"""Spark's values of ``timestampType``; the last one is for message format 0, which has no timestamps."""

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_SEQUENCE = -1

PRODUCER = struct.Struct(">qhi")
"""Producer id, producer epoch and base sequence."""

MARKER_KEY = struct.Struct(">hh")
ABORT_MARKER = 0
"""The type of the marker that ends an aborted transaction."""


class Codec(IntEnum):
    """The codec bits of a batch's attributes; the names are those of ``compression.type``, in capitals."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The fields of a format 2 header."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_offset(self) -> int:
        """The last offset of the batch, even if that record was compacted away."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The codec number, which ``Codec`` may not contain."""
        return self.attributes & CODEC_BITS

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the broker's time, ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether its records are transaction markers."""
        return bool(self.attributes & CONTROL_BIT)


def read_header(batch: bytes) -> BatchHeader:
    return BatchHeader(*HEADER.unpack_from(batch))
