"""The leader epochs of record batches, and where they begin (KIP-101, KIP-320).

    RecordBatch => BaseOffset INT64, BatchLength INT32, PartitionLeaderEpoch INT32, Magic INT8, ...

``BatchLength`` counts the bytes after itself. Only format 2 (``Magic``) has a leader epoch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN_EPOCH: Final = -1

_UP_TO_MAGIC: Final = struct.Struct(">qiib")
_LOG_OVERHEAD: Final = 12  # base offset and length
_MAGIC: Final = 2


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    offset: int


class EpochHistory:
    """The leader epochs of the records that were read; both epochs and offsets grow. Java: ``LeaderEpochFileCache``."""

    def __init__(self) -> None:
        self._starts: list[EpochStart] = []

    @property
    def last(self) -> int:
        """The epoch of the last record."""
        return self._starts[-1].epoch if self._starts else UNKNOWN_EPOCH

    def add(self, start: EpochStart) -> None:
        if start.epoch > self.last:
            self._starts.append(start)

    def add_batches(self, records: memoryview | bytearray | bytes, position: int) -> None:
        """Add the batches of a response to a fetch from ``position``, which may begin before it."""
        for epoch, offset in _scan_batches(records):
            self.add(EpochStart(epoch, max(offset, position)))

    def last_before(self, offset: int) -> int:
        """Return the epoch of the last record before an offset."""
        return next((start.epoch for start in reversed(self._starts) if start.offset < offset), UNKNOWN_EPOCH)

    def truncate(self, offset: int) -> None:
        """Forget the records from an offset on."""
        while self._starts and self._starts[-1].offset >= offset:
            self._starts.pop()

    def diverges_at(self, epoch: int, end_offset: int) -> int:
        """Return the first offset where the records may differ from a log; in it, their common epoch ends at an offset.

        All records of later epochs differ, also those before ``end_offset``.
        """
        first_later = next((start.offset for start in self._starts if start.epoch > epoch), end_offset)
        return min(first_later, end_offset)


def _scan_batches(records: memoryview | bytearray | bytes) -> Iterator[EpochStart]:
    position = 0
    while position + _UP_TO_MAGIC.size <= len(records):
        base_offset, length, epoch, magic = _UP_TO_MAGIC.unpack_from(records, position)
        position += _LOG_OVERHEAD + length
        if length <= 0 or position > len(records):
            return  # malformed or incomplete
        if magic == _MAGIC:
            yield EpochStart(epoch, base_offset)
