"""Where the complete record batches of a fetch response end, by their headers."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import (
    HEADER,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
)

_UP_TO_MAGIC = struct.Struct(">qiib")
_LEADER_EPOCH = struct.Struct(">i")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LEAST_OLD_LENGTH = 14  # crc, magic, attributes, key length, value length
_LAST_OF_ALL = (1 << 63) - 1


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
    """Walk the headers, up to the first batch that is cut off or malformed, or until ``until`` is reached."""
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
    """Return the offset after the last complete batch in ``records``, or ``position`` if that is later."""
    return scan(records, position).next_offset


def scan_leader_epoch(records: memoryview | bytearray | bytes) -> int:
    """Return the leader epoch of the last complete batch; -1 if there is none, or if its format is older than 2."""
    extents = scan(records, 0).extents
    if not extents or extents[-1].magic < MAGIC:
        return NO_LEADER_EPOCH
    epoch: int = _LEADER_EPOCH.unpack_from(records, extents[-1].start + LEADER_EPOCH_AT)[0]
    return epoch


def _extent(records: memoryview | bytearray | bytes, start: int) -> Extent | None:
    """Return the extent of the batch at ``start``, or None when it is cut off."""
    rest = len(records) - start
    if rest < _UP_TO_MAGIC.size:
        return None
    base_offset, length, _, magic = _UP_TO_MAGIC.unpack_from(records, start)
    if not 0 <= magic <= MAGIC:
        raise BadRecordError(f"a record batch has the unknown message format {magic}")
    if length < (HEADER.size - LOG_OVERHEAD if magic == MAGIC else _LEAST_OLD_LENGTH):
        raise BadRecordError(f"a record batch claims an impossible length of {length} bytes")
    if rest < LOG_OVERHEAD + length:
        return None
    delta: int = _LAST_OFFSET_DELTA.unpack_from(records, start + LAST_OFFSET_DELTA_AT)[0] if magic == MAGIC else 0
    if base_offset < 0 or delta < 0 or base_offset + delta >= _LAST_OF_ALL:
        raise BadRecordError(f"a record batch claims impossible offsets: base {base_offset}, last offset delta {delta}")
    return Extent(start, start + LOG_OVERHEAD + length, base_offset, base_offset + delta, magic)
