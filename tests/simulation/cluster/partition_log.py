"""The log of one replica of a simulated partition, after Kafka's UnifiedLog and ProducerStateManager."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.cluster.stored_batch import StoredBatch

NO_EPOCH = -1
NO_OFFSET = -1
_ANY_OFFSET = 2**63
_RETAINED_BATCHES = 5  # per producer id, as in ProducerStateEntry


class AppendedBatch(NamedTuple):
    """One of the last batches of a producer id."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # after the marker


class ProducerEntry:
    """What a log remembers of a producer id."""

    __slots__ = ("batches", "epoch", "first_open_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[AppendedBatch] = deque(maxlen=_RETAINED_BATCHES)
        self.first_open_offset: int | None = None  # of the ongoing transaction

    @property
    def last_sequence(self) -> int:
        """The last sequence number in the current epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate_of(self, batch: StoredBatch) -> AppendedBatch | None:
        """Return the retained batch with the same epoch and sequence numbers."""
        if batch.producer_epoch == self.epoch:
            for appended in self.batches:
                if appended[:2] == (batch.base_sequence, batch.last_sequence):
                    return appended
        return None


class ReplicaLog:
    """Batches with ascending offsets, and what is derived from them."""

    __slots__ = (
        "_ends",
        "aborted",
        "batches",
        "end",
        "epoch_starts",
        "has_lost_start",
        "high_watermark",
        "local_start",
        "producers",
        "remote_until",
        "start",
        "undecided",
        "withheld_until",
    )

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self._ends: list[int] = []  # last offsets of the batches, for the binary search
        self.start = 0  # log start offset
        self.local_start = 0  # the first offset on the broker's own disk; below it, tiered storage
        self.end = 0  # log end offset
        self.high_watermark = 0
        self.epoch_starts: list[tuple[int, int]] = []  # leader epochs and their first offsets
        self.producers: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedTransaction] = []
        # First offset and marker offset of ended transactions whose marker was above the high watermark.
        self.undecided: list[tuple[int, int]] = []
        self.remote_until = 0.0  # tiered storage returns no records before this time
        self.withheld_until = 0.0  # nothing is returned before this time
        self.has_lost_start = False  # a deposed leader has deleted records that the current leader has

    # Appends.

    def append(self, batch: StoredBatch, epoch: int) -> StoredBatch:
        """Append at the end, as a leader with this epoch; return the batch with its offsets."""
        stored = batch.at(self.end, epoch)
        self.append_stored(stored)
        return stored

    def append_stored(self, batch: StoredBatch) -> None:
        """Append a batch that has its offsets, as a follower."""
        starts = self.epoch_starts
        while starts and starts[-1][0] > batch.epoch:  # this replica led an empty log with a later epoch
            starts.pop()
        if not starts or starts[-1][0] < batch.epoch:
            self._assign_epoch(batch.epoch, batch.base_offset)
        self.batches.append(batch)
        self._ends.append(batch.last_offset)
        self.end = batch.last_offset + 1
        if batch.producer_id >= 0:
            self._update_producer(batch)

    def assign_epoch_start(self, epoch: int) -> None:
        """Record that a leader with this epoch starts at the log's end (UnifiedLog.assignEpochStartOffset)."""
        self._assign_epoch(epoch, self.end)

    # Offsets.

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1."""
        return self.epoch_starts[-1][0] if self.epoch_starts else NO_EPOCH

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the first offset below it that belongs to an undecided transaction."""
        first = self.high_watermark
        for entry in self.producers.values():
            if entry.first_open_offset is not None and entry.first_open_offset < first:
                first = entry.first_open_offset
        for first_offset, _ in self.undecided:
            if first_offset < first:
                first = first_offset
        return max(first, self.start)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark; return whether it changed."""
        offset = min(offset, self.end)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.undecided:
            self.undecided = [each for each in self.undecided if each[1] >= offset]
        return True

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; (-1, -1) if undefined (LeaderEpochFileCache)."""
        starts = self.epoch_starts
        if epoch == NO_EPOCH or not starts or starts[-1][0] < epoch:
            return NO_EPOCH, NO_OFFSET
        if starts[-1][0] == epoch:
            return epoch, self.end
        index = bisect_right(starts, (epoch, _ANY_OFFSET))
        if index == 0:
            return epoch, starts[0][1]
        return starts[index - 1][0], starts[index][1]

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset, or -1."""
        found = NO_EPOCH
        for epoch, start in self.epoch_starts:
            if start > offset:
                break
            found = epoch
        return found

    # Reads.

    def read(self, offset: int, limit: int, max_bytes: int, *, at_least_one: bool) -> list[StoredBatch]:
        """Return the batches from the one that contains ``offset`` on, below the offset ``limit``.

        The last one may exceed the bytes; the first one only with ``at_least_one``.
        """
        index = bisect_left(self._ends, offset)
        found: list[StoredBatch] = []
        size = 0
        while offset < limit and index < len(self.batches):
            batch = self.batches[index]
            if batch.base_offset >= limit:
                break
            size += len(batch.data)
            if size > max_bytes and not found and not at_least_one:
                break
            found.append(batch)
            index += 1
            if size >= max_bytes:
                break
        return found

    def aborted_between(self, offset: int, until: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap with the offsets."""
        return [each for each in self.aborted if each.last_offset >= offset and each.first_offset < until]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record from a time on."""
        for batch in self.batches:
            if batch.max_timestamp >= timestamp:
                for offset, time in zip(batch.offsets, batch.timestamps, strict=True):
                    if time >= timestamp and offset >= self.start:
                        return time, offset
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return the largest timestamp and the first offset that has it."""
        newest = max(self.batches, key=lambda batch: batch.max_timestamp, default=None)
        if newest is None or newest.max_timestamp < 0:
            return None
        return newest.max_timestamp, newest.offsets[newest.timestamps.index(newest.max_timestamp)]

    # Removal.

    def truncate_to(self, offset: int) -> bool:
        """Remove all batches from an offset on; return whether there were any."""
        if offset >= self.end:
            return False
        index = bisect_left(self._ends, offset)
        if index < len(self.batches) and self.batches[index].base_offset < offset:
            offset = self.batches[index].base_offset
        del self.batches[index:]
        del self._ends[index:]
        self.end = offset
        self.epoch_starts = [each for each in self.epoch_starts if each[1] < offset]
        self.start = min(self.start, offset)
        self.local_start = min(self.local_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._rebuild_producers()
        return True

    def truncate_fully(self, offset: int) -> None:
        """Remove everything and start at an offset (a follower below the leader's log start)."""
        self.batches.clear()
        self._ends.clear()
        self.epoch_starts.clear()
        self.start = self.local_start = self.end = self.high_watermark = offset
        self._rebuild_producers()

    def advance_start(self, offset: int) -> bool:
        """Raise the log start offset, by DeleteRecords or retention; return whether it changed."""
        if offset <= self.start:
            return False
        self.start = offset
        self.local_start = max(self.local_start, offset)
        index = bisect_left(self._ends, offset)
        del self.batches[:index]
        del self._ends[:index]
        self.aborted = [each for each in self.aborted if each.last_offset >= offset]
        kept = [each for each in self.epoch_starts if each[1] > offset]
        if len(kept) < len(self.epoch_starts):
            newest = self.epoch_starts[len(self.epoch_starts) - len(kept) - 1]
            kept.insert(0, (newest[0], offset))
        self.epoch_starts = kept
        return True

    def replace_batches(self, batches: Iterable[StoredBatch]) -> None:
        """Replace the batches by compacted ones; offsets, epochs and producers stay."""
        self.batches = list(batches)
        self._ends = [batch.last_offset for batch in self.batches]

    def _assign_epoch(self, epoch: int, start: int) -> None:
        starts = self.epoch_starts
        while starts and (starts[-1][0] >= epoch or starts[-1][1] >= start):
            starts.pop()
        starts.append((epoch, start))

    # Replication.

    def follow(self, leader: ReplicaLog) -> None:
        """Truncate what the leader does not have, and copy what is missing here."""
        common = self._common_end(leader)
        if common is None or self.end < leader.start or self.has_lost_start:
            self.truncate_fully(leader.start)
            self.has_lost_start = False
        else:
            self.truncate_to(common)
        self.advance_start(min(leader.start, self.end))
        for batch in leader.batches[bisect_left(leader._ends, self.end) :]:
            self.append_stored(batch)
        self.local_start = max(self.start, min(leader.local_start, self.end))

    def _common_end(self, leader: ReplicaLog) -> int | None:
        """Return the end of what both logs have in common; None if that is unknown."""
        if self.end == leader.end and self.latest_epoch == leader.latest_epoch:
            return self.end
        if not self.batches and self.end == leader.start:
            return self.end
        epochs = {epoch for epoch, _ in leader.epoch_starts}
        for epoch, _ in reversed(self.epoch_starts):
            if epoch in epochs:  # one leader wrote all records of an epoch
                return min(self.end_offset_for_epoch(epoch)[1], leader.end_offset_for_epoch(epoch)[1])
        return None

    # Producers.

    def _update_producer(self, batch: StoredBatch) -> None:
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.producer_epoch)
        if entry.epoch != batch.producer_epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        if batch.commit is not None:
            self._end_transaction(entry, batch)
            return
        entry.batches.append(
            AppendedBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset)
        )
        if batch.is_transactional and entry.first_open_offset is None:
            entry.first_open_offset = batch.base_offset

    def _end_transaction(self, entry: ProducerEntry, marker: StoredBatch) -> None:
        first = entry.first_open_offset
        entry.first_open_offset = None
        if first is None:
            return
        if marker.base_offset >= self.high_watermark:
            self.undecided.append((first, marker.base_offset))
        if not marker.commit:
            open_offsets = [each.first_open_offset for each in self.producers.values()]
            stable = min((each for each in open_offsets if each is not None), default=marker.base_offset + 1)
            self.aborted.append(AbortedTransaction(marker.producer_id, first, marker.base_offset, stable))

    def _rebuild_producers(self) -> None:
        self.producers = {}
        self.aborted = []
        self.undecided = []
        for batch in self.batches:
            if batch.producer_id >= 0:
                self._update_producer(batch)
