"""The header of a record batch, message format 2 (KIP-98; ``DefaultRecordBatch`` in Kafka), big-endian.

::

     0  baseOffset            int64
     8  batchLength           int32   bytes that follow this field
    12  partitionLeaderEpoch  int32
    16  magic                 int8    2
    17  crc                   uint32  CRC32C of everything from `attributes` on
    21  attributes            int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
    23  lastOffsetDelta       int32
    27  baseTimestamp         int64   (the delete horizon where bit 6 is set; deltas count from it all the same)
    35  maxTimestamp          int64
    43  producerId            int64
    51  producerEpoch         int16
    53  baseSequence          int32
    57  recordsCount          int32
    61  records, compressed as a whole where there is a codec

Formats 0 and 1 share the first twelve bytes and have their magic at 16, too; the rest is in ``_old_formats``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_OVERHEAD = 12
CRC_FROM = 21


class Header(NamedTuple):
    """A format 2 header, field by field."""

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
        """The last offset the batch occupies, compacted away or not."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Number of the codec; 0 is none."""
        return self.attributes & 0x07

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the broker's time, ``max_timestamp``."""
        return bool(self.attributes & 0x08)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Whether its records are transaction markers."""
        return bool(self.attributes & 0x20)


def read_header(batch: bytes) -> Header:
    """Reads the header of a complete batch."""
    return Header(*HEADER.unpack_from(batch))
