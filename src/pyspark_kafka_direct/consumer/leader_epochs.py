"""The leader epochs of record batches, and where they begin (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH
from pyspark_kafka_direct.records import scan_batches


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
        for batch in scan_batches(records, position).batches:
            self.add(EpochStart(batch.leader_epoch, max(batch.base_offset, position)))

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
