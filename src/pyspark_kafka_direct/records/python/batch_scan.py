"""Scans the batch headers of a fetch response."""

from __future__ import annotations

import struct

from pyspark_kafka_direct.records.python.batch_format import (
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    read_header,
)
from pyspark_kafka_direct.records.scanned_batches import BadRecordError, BatchScan, ScannedBatch

_UP_TO_MAGIC = struct.Struct(">qiib")
_MIN_LEGACY_LENGTH = 14  # crc, magic, attributes, key length, value length
_MAX_OFFSET = (1 << 63) - 1


def scan_batches(records: memoryview | bytearray | bytes, position: int, until: int = _MAX_OFFSET) -> BatchScan:
    """Scan the headers of a response to a fetch from ``position``.

    Stop at the first incomplete or malformed batch, or at the offset ``until``.
    """
    batches: list[ScannedBatch] = []
    start = 0
    next_offset = position
    while next_offset < until:
        try:
            batch = _read_batch(records, start)
        except BadRecordError as error:
            error.offset = next_offset
            return BatchScan(batches, next_offset, error)
        if batch is None:
            break
        batches.append(batch)
        start = batch.end
        next_offset = max(next_offset, batch.last_offset + 1)
    return BatchScan(batches, next_offset, None)


def scan_leader_epoch(records: memoryview | bytearray | bytes) -> int:
    """Return the leader epoch of the last complete batch; -1 if there is none, or if its message format is below 2."""
    batches = scan_batches(records, 0).batches
    return batches[-1].leader_epoch if batches else NO_LEADER_EPOCH


def _read_batch(records: memoryview | bytearray | bytes, start: int) -> ScannedBatch | None:
    """Return the batch at ``start``; None if it is incomplete."""
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
    end = start + LOG_OVERHEAD + length
    header = read_header(bytes(records[start : start + HEADER.size])) if magic == MAGIC else None
    last_offset_delta = header.last_offset_delta if header else 0
    last_offset = base_offset + last_offset_delta
    if base_offset < 0 or last_offset_delta < 0 or last_offset >= _MAX_OFFSET:
        raise BadRecordError(
            f"a record batch claims impossible offsets: base {base_offset}, last offset delta {last_offset_delta}"
        )
    if header is None:
        return ScannedBatch(
            start, end, base_offset, last_offset, magic, NO_LEADER_EPOCH, NO_PRODUCER_ID, False, False, -1
        )
    return ScannedBatch(
        start,
        end,
        base_offset,
        last_offset,
        magic,
        header.leader_epoch,
        header.producer_id,
        header.is_transactional,
        header.is_control,
        header.records,
    )
