"""Scans the batch headers of a fetch response."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pyspark_kafka_direct.records.python.batch_format import (
    HEADER,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    BadRecordError,
)

_UP_TO_MAGIC = struct.Struct(">qiib")
_LEADER_EPOCH = struct.Struct(">i")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_MIN_LEGACY_LENGTH = 14  # crc, magic, attributes, key length, value length
_MAX_OFFSET = (1 << 63) - 1


class BatchExtent(NamedTuple):
    """Position, offsets and message format of a complete batch."""

    start: int  # byte position in the response
    end: int
    base_offset: int
    last_offset: int
    magic: int


class BatchScan(NamedTuple):
    """The complete batches of a fetch response."""

    extents: list[BatchExtent]
    next_offset: int  # after the last complete batch
    error: BadRecordError | None  # of a malformed batch after them


def scan_batches(records: memoryview | bytearray | bytes, position: int, until: int = _MAX_OFFSET) -> BatchScan:
    """Scan the headers of a response to a fetch from ``position``.

    Stop at the first incomplete or malformed batch, or at the offset ``until``.
    """
    extents: list[BatchExtent] = []
    start = 0
    next_offset = position
    while next_offset < until:
        try:
            extent = _read_extent(records, start)
        except BadRecordError as error:
            error.offset = next_offset
            return BatchScan(extents, next_offset, error)
        if extent is None:
            break
        extents.append(extent)
        start = extent.end
        next_offset = max(next_offset, extent.last_offset + 1)
    return BatchScan(extents, next_offset, None)


def scan_next_offset(records: memoryview | bytearray | bytes, position: int) -> int:
    """Return the offset after the last complete batch, or ``position`` if that is later."""
    return scan_batches(records, position).next_offset


def scan_leader_epoch(records: memoryview | bytearray | bytes) -> int:
    """Return the leader epoch of the last complete batch; -1 if there is none, or if its message format is below 2."""
    extents = scan_batches(records, 0).extents
    if not extents or extents[-1].magic < MAGIC:
        return NO_LEADER_EPOCH
    epoch: int = _LEADER_EPOCH.unpack_from(records, extents[-1].start + LEADER_EPOCH_AT)[0]
    return epoch


def _read_extent(records: memoryview | bytearray | bytes, start: int) -> BatchExtent | None:
    """Return the extent of the batch at ``start``; None if it is incomplete."""
    available = len(records) - start
    if available < _UP_TO_MAGIC.size:
        return None
    base_offset, length, _, magic = _UP_TO_MAGIC.unpack_from(records, start)
    if not 0 <= magic <= MAGIC:
        raise BadRecordError(f"a record batch has the unknown message format {magic}")
    if length < (HEADER.size - LOG_OVERHEAD if magic == MAGIC else _MIN_LEGACY_LENGTH):
        raise BadRecordError(f"a record batch claims an impossible length of {length} bytes")
    if available < LOG_OVERHEAD + length:
        return None
    last_offset_delta: int = (
        _LAST_OFFSET_DELTA.unpack_from(records, start + LAST_OFFSET_DELTA_AT)[0] if magic == MAGIC else 0
    )
    if base_offset < 0 or last_offset_delta < 0 or base_offset + last_offset_delta >= _MAX_OFFSET:
        raise BadRecordError(
            f"a record batch claims impossible offsets: base {base_offset}, last offset delta {last_offset_delta}"
        )
    return BatchExtent(start, start + LOG_OVERHEAD + length, base_offset, base_offset + last_offset_delta, magic)
