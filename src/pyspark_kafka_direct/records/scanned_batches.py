"""The record batches of a fetch response, as ``scan_batches`` reads them from their headers."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_direct.records.native_kernel import native


class BadRecordError(Exception):
    """Bytes that cannot be decoded; the caller adds topic, partition and, unless it is set, the offset."""

    # ``kind`` is a key of ``record_errors._ERRORS``.
    def __init__(self, message: str, *, kind: str = "corrupt", offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.offset = offset


class ScannedBatch(NamedTuple):
    """A complete record batch; before format 2, a message with all messages inside it."""

    start: int  # byte position in the response
    end: int
    base_offset: int
    last_offset: int  # even if that record was compacted away
    magic: int  # message format
    leader_epoch: int  # -1 before format 2, like the producer id and the number of records
    producer_id: int
    is_transactional: bool
    is_control: bool
    records: int  # as the header claims


class BatchScan(NamedTuple):
    """The complete record batches up to an offset."""

    batches: list[ScannedBatch]
    next_offset: int  # after the last complete batch, or the position of the fetch if that is later
    error: BadRecordError | None  # of a malformed batch after them


def scan_batches(records: memoryview | bytearray | bytes, position: int, until: int = (1 << 63) - 1) -> BatchScan:
    """Scan the headers of a response to a fetch from ``position``, up to the first incomplete or malformed batch."""
    batches, next_offset, error = native.scan_batches(records, position, until)
    return BatchScan([ScannedBatch(*batch) for batch in batches], next_offset, error and _bad_record(*error))


def is_abort_marker(batch: memoryview | bytearray | bytes, max_bytes: int) -> bool:
    """Return whether a control batch contains an ABORT marker; ``max_bytes`` limits its decompressed size."""
    try:
        return native.is_abort_marker(batch, max_bytes)
    except native.DecodeError as error:
        raise _bad_record(*error.args) from None


def _bad_record(kind: str, message: str, offset: int) -> BadRecordError:
    return BadRecordError(message, kind=kind, offset=offset)
