"""The record batches of a fetch response, as ``scan_batches`` reads them from their headers."""

from __future__ import annotations

from typing import NamedTuple


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
