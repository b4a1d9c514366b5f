"""Headers of record batches, and where the complete batches of a fetch response end.

Record batch, message format 2 (KIP-98; ``DefaultRecordBatch`` in Kafka), big-endian::

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

from pyspark_kafka_direct.records._python._bad_record import BadRecordError

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_OVERHEAD = 12
CRC_FROM = 21

_UP_TO_MAGIC = struct.Struct(">qiib")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_LEAST_OLD_LENGTH = 14  # crc, magic, attributes, key length, value length
_LAST_OF_ALL = (1 << 63) - 1


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


class Extent(NamedTuple):
    """A complete batch: from ``start`` to ``end``, with its last offset and message format."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    magic: int


class Scan(NamedTuple):
    """What the headers of a fetch response say: complete batches, the next offset, and what is wrong behind them."""

    extents: list[Extent]
    next_offset: int
    error: BadRecordError | None


def scan(records: memoryview | bytearray | bytes, position: int, until: int = _LAST_OF_ALL) -> Scan:
    """Walks the headers, up to the first batch that is cut off or malformed, or until ``until`` is reached."""
    extents: list[Extent] = []
    start = 0
    next_offset = position
    while next_offset < until:
        try:
            extent = _extent(records, start)
        except BadRecordError as error:
            error.offset = next_offset
            return Scan(extents, next_offset, error)
        if extent is None:
            break
        extents.append(extent)
        start = extent.end
        next_offset = max(next_offset, extent.last_offset + 1)
    return Scan(extents, next_offset, None)


def scan_next_offset(records: memoryview | bytearray | bytes, position: int) -> int:
    """Returns the offset after the last complete batch in ``records``, or ``position`` if that is later."""
    return scan(records, position).next_offset


def scan_leader_epoch(records: memoryview | bytearray | bytes) -> int:
    """Returns the leader epoch of the last complete batch; -1 if there is none, or if its format is older than 2."""
    extents = scan(records, 0).extents
    if not extents or extents[-1].magic < 2:
        return -1
    epoch: int = _LEADER_EPOCH.unpack_from(records, extents[-1].start + _LEADER_EPOCH_AT)[0]
    return epoch


def _extent(records: memoryview | bytearray | bytes, start: int) -> Extent | None:
    """The batch at ``start``, or None when it is cut off."""
    rest = len(records) - start
    if rest < _UP_TO_MAGIC.size:
        return None
    base_offset, length, _, magic = _UP_TO_MAGIC.unpack_from(records, start)
    if not 0 <= magic <= 2:
        raise BadRecordError(f"a record batch has the unknown message format {magic}")
    if length < (HEADER.size - LOG_OVERHEAD if magic == 2 else _LEAST_OLD_LENGTH):
        raise BadRecordError(f"a record batch claims an impossible length of {length} bytes")
    if rest < LOG_OVERHEAD + length:
        return None
    delta: int = _LAST_OFFSET_DELTA.unpack_from(records, start + _LAST_OFFSET_DELTA_AT)[0] if magic == 2 else 0
    if base_offset < 0 or delta < 0 or base_offset + delta >= _LAST_OF_ALL:
        raise BadRecordError(f"a record batch claims impossible offsets: base {base_offset}, last offset delta {delta}")
    return Extent(start, start + LOG_OVERHEAD + length, base_offset, base_offset + delta, magic)
