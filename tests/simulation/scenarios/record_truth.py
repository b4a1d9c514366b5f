"""What happened to each record of a history, with times: the model that checks of whole queries compare with.

It receives the cluster's reports in place of the oracle, and shares no code with the package.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.simulation.cluster.stored_batch import StoredBatch
    from tests.simulation.oracle import Oracle

PartitionKey = tuple[str, int, int]
"""Topic, generation and partition number."""


class LossEvent(NamedTuple):
    """Something that can remove records, or the metadata of a partition."""

    time: float
    kind: str  # "truncated", "log start", "deleted", "created"
    topic: str
    partition: int | None


_DELETED = frozenset(("deleted", "created"))
# Phrases of reports and errors, and the events that each can have.
_REASONS = (
    ("do not exist any more", _DELETED),
    ("deleted and recreated, its id", _DELETED),
    ("(topic or partition deleted)", _DELETED),
    ("(topic deleted and recreated)", _DELETED),
    ("offset was changed from", _DELETED | {"truncated"}),
    ("(beyond the end of the log)", _DELETED | {"truncated"}),
    ("(log truncated)", _DELETED | {"truncated"}),
    ("(aged out)", _DELETED | {"log start"}),
    ("does not start from offset zero", _DELETED | {"log start"}),
    ("were removed before they were read", _DELETED | {"log start"}),
)


class Version:
    """A record, or one that replaced it at the same offset after a truncation."""

    __slots__ = (
        "appended_at",
        "committed",
        "deposed",
        "epoch",
        "is_control",
        "marker",
        "offset",
        "producer_id",
        "readable_at",
        "reason",
        "removed_at",
        "timestamp",
        "value",
    )

    def __init__(
        self, offset: int, value: bytes | None, timestamp: int, batch: StoredBatch, now: float, *, deposed: bool
    ) -> None:
        self.offset = offset
        self.value = value
        self.timestamp = timestamp
        self.epoch = batch.epoch
        self.appended_at = now
        self.deposed = deposed  # appended by a leader that was replaced
        self.is_control = batch.is_control
        self.marker = batch.commit
        self.producer_id = batch.producer_id if batch.is_transactional else -1
        # None: the transaction is open.
        self.committed: bool | None = None if batch.is_transactional and not batch.is_control else True
        self.readable_at = math.inf  # when the high watermark passed it
        self.removed_at = now if deposed else math.inf
        self.reason = "deposed leader" if deposed else ""

    def is_readable(self, since: float, until: float) -> bool:
        """Whether every reader gets the record all the time from ``since`` to ``until``."""
        return self.readable_at <= since and self.removed_at > until

    def remove(self, reason: str, now: float) -> None:
        if self.removed_at > now:
            self.removed_at, self.reason = now, reason


class PartitionTruth:
    """All records that a partition of one generation ever had."""

    def __init__(self, created_at: float) -> None:
        self.created_at = created_at
        self.deleted_at = math.inf
        self.versions: dict[int, list[Version]] = {}  # by offset, in the order of appends
        self.alive: dict[int, Version] = {}  # the current log, by offset
        self._appended: dict[int, list[Version]] = {}  # by epoch
        self._epochs: dict[int, tuple[int, int]] = {0: (0, -1)}  # starts and parents
        self.epoch = 0
        self.starts: list[tuple[float, int]] = [(created_at, 0)]  # log start offsets
        self.high_watermark = 0
        self.watermarks: list[tuple[float, int]] = [(created_at, 0)]  # also of leaders that were replaced
        self.end = 0
        self._unreadable: deque[Version] = deque()  # above the high watermark
        # After unclean elections: offsets that readers may have passed in another log, records of such a log that came
        # back, and records whose transaction was decided again.
        self.lost: list[range] = []
        self.returned: set[Version] = set()
        self.decided_again: set[Version] = set()

    @property
    def start(self) -> int:
        return self.starts[-1][1]

    def stable_end(self) -> int:
        """Return the last stable offset."""
        open_offsets = [
            each.offset for each in self.alive.values() if each.committed is None and each.offset < self.high_watermark
        ]
        return min(open_offsets, default=self.high_watermark)

    def decided_end(self) -> int:
        """Return the offset before which no transaction is open; a new leader's high watermark may be lower."""
        open_offsets = [each.offset for each in self.alive.values() if each.committed is None]
        return min(open_offsets, default=self.end)

    def max_watermark(self, until: float) -> int:
        return max((offset for time, offset in self.watermarks if time <= until), default=0)

    def first_at(self, timestamp: int, asked_at: float, returned_at: float) -> int:
        """Return the highest offset that a timestamp could mean: that of the first record from then on, or the end."""
        offsets = [
            version.offset
            for versions in self.versions.values()
            for version in versions
            if version.timestamp >= timestamp and version.is_readable(asked_at, math.inf) and not version.is_control
        ]
        return min(offsets, default=max(self.end, self.max_watermark(returned_at)))

    def append(self, batch: StoredBatch, now: float) -> None:
        deposed = batch.epoch < self.epoch
        if batch.commit is not None and not deposed:
            # Also records that were deleted before their transaction ended: a broker that is cut off still has them.
            for versions in self.versions.values():
                for each in versions:
                    is_of_log = each.reason not in ("truncated", "deposed leader")
                    if each.producer_id == batch.producer_id and each.committed is None and is_of_log:
                        each.committed = batch.commit
        for offset, value, timestamp in zip(batch.offsets, batch.values, batch.timestamps, strict=True):
            version = Version(offset, value, timestamp, batch, now, deposed=deposed)
            self.versions.setdefault(offset, []).append(version)
            self._appended.setdefault(batch.epoch, []).append(version)
            if not deposed:
                self.alive[offset] = version
                self._unreadable.append(version)
        if not deposed:
            self.end = batch.last_offset + 1

    def raise_watermark(self, epoch: int, offset: int, now: float) -> None:
        self.watermarks.append((now, offset))
        if epoch < self.epoch:  # of a leader that was replaced
            branch = min(start for each, (start, _) in self._epochs.items() if each > epoch)
            self._lose(branch, offset)
            return
        self.high_watermark = offset
        while self._unreadable and self._unreadable[0].offset < offset:
            version = self._unreadable.popleft()
            if version.removed_at > now:
                version.readable_at = now

    def start_epoch(self, epoch: int, start: int, high_watermark: int, now: float, parent: int) -> bool:
        """Start a leader epoch; return whether readable records were lost."""
        self.epoch = epoch
        self._epochs[epoch] = (start, parent)
        log = {version.offset: version for version in self._log_of(epoch)}
        truncated = [version for offset, version in self.alive.items() if log.get(offset) is not version]
        returned = [version for offset, version in log.items() if self.alive.get(offset) is not version]
        lost = [each.offset for each in truncated if each.readable_at <= now]
        if lost:  # also the offsets between, whose records were compacted
            self._lose(min(start, *lost), max(lost) + 1)
        for version in truncated:
            version.remove("truncated", now)
        for version in returned:
            if version.reason in ("truncated", "deposed leader"):
                version.removed_at, version.reason, version.deposed = math.inf, "", False
                self.returned.add(version)
        self.alive = {offset: version for offset, version in log.items() if version.removed_at > now}
        self._unreadable = deque(each for each in self.alive.values() if each.readable_at > now)
        if truncated or returned:
            decided = {each: each.committed for each in self.alive.values()}
            self._decide_again()
            self.decided_again |= {
                each for each, committed in decided.items() if committed not in (None, each.committed)
            }
            # The new leader may still have records that expired at the former one, but not the end of a transaction.
            self.decided_again |= {each for each in log.values() if each.removed_at <= now}
        self.end = start
        self.high_watermark = high_watermark
        return bool(lost) or self.start > start

    def _lose(self, start: int, end: int) -> None:
        if start < end and not any(each.start <= start and end <= each.stop for each in self.lost):
            self.lost = [each for each in self.lost if each.start < start or end < each.stop]
            self.lost.append(range(start, end))

    def _log_of(self, epoch: int) -> list[Version]:
        """Return the versions in an epoch's log, in order."""
        start, parent = self._epochs.get(epoch, (0, -1))
        inherited = self._log_of(parent) if parent in self._epochs and parent != epoch else []
        return [each for each in inherited if each.offset < start] + self._appended.get(epoch, [])

    def _decide_again(self) -> None:
        """Decide again which transactions have ended, after their markers may be truncated or have come back."""
        undecided: dict[int, list[Version]] = {}
        for version in self.alive.values():
            if version.marker is not None:
                for each in undecided.pop(version.producer_id, ()):
                    each.committed = version.marker
            elif version.producer_id >= 0:
                version.committed = None
                undecided.setdefault(version.producer_id, []).append(version)

    def remove_below(self, offset: int, reason: str, now: float) -> None:
        self.starts.append((now, offset))
        for each in [version for version in self.alive.values() if version.offset < offset]:
            each.remove(reason, now)
            del self.alive[each.offset]

    def remove(self, offsets: list[int], reason: str, now: float) -> None:
        for offset in offsets:
            if offset in self.alive:
                self.alive.pop(offset).remove(reason, now)


class RecordTruth:
    """Implements the oracle's interface."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, PartitionTruth] = {}
        self.generations: dict[str, int] = {}  # the newest one of each topic
        self.events: list[LossEvent] = []
        self.has_new_partitions = False

    def current(self, topic: str, partition: int) -> PartitionTruth | None:
        """Return the partition of the newest generation, unless it is deleted."""
        truth = self.partitions.get((topic, self.generations.get(topic, 0), partition))
        return None if truth is None or truth.deleted_at < math.inf else truth

    def of(self, topic: str, partition: int) -> list[PartitionTruth]:
        """Return all generations of a partition, the oldest first."""
        return [truth for (name, _, index), truth in self.partitions.items() if (name, index) == (topic, partition)]

    def has_lost(self, topic: str, partition: int | None, until: float, kinds: tuple[str, ...] = ()) -> bool:
        """Whether something happened until a time that can make a topic or partition lose records."""
        return any(
            event.topic == topic
            and event.time <= until
            and (partition is None or event.partition in (None, partition))
            and (not kinds or event.kind in kinds)
            for event in self.events
        )

    def explains(self, text: str, until: float) -> bool:
        """Return whether something happened until a time that can be what a report about lost data means."""
        topics = [topic for topic in self.generations if topic in text] or list(self.generations)
        kinds = next((kinds for phrase, kinds in _REASONS if phrase in text), None)
        return any(
            event.topic in topics and event.time <= until and (kinds is None or event.kind in kinds)
            for event in self.events
        )

    # The oracle's interface.

    def topic_created(self, topic: str, generation: int, partitions: int, now: float) -> None:
        self.generations[topic] = generation
        for index in range(partitions):
            self.partitions[topic, generation, index] = PartitionTruth(now)
        if generation > 1:
            self.events.append(LossEvent(now, "created", topic, None))

    def topic_deleted(self, topic: str, generation: int, now: float) -> None:
        self.events.append(LossEvent(now, "deleted", topic, None))
        for (name, number, _), truth in self.partitions.items():
            if (name, number) == (topic, generation):
                truth.deleted_at = now
                truth.remove(list(truth.alive), "topic deleted", now)

    def partitions_added(self, topic: str, generation: int, partitions: int, now: float) -> None:
        self.has_new_partitions = True
        for index in range(partitions):
            self.partitions.setdefault((topic, generation, index), PartitionTruth(now))

    def appended(self, topic: str, generation: int, index: int, batch: StoredBatch, now: float) -> None:
        self.partitions[topic, generation, index].append(batch, now)

    def high_watermark(self, topic: str, generation: int, index: int, epoch: int, offset: int, now: float) -> None:
        self.partitions[topic, generation, index].raise_watermark(epoch, offset, now)

    def epoch_started(
        self,
        topic: str,
        generation: int,
        index: int,
        epoch: int,
        start: int,
        high_watermark: int,
        now: float,
        parent: int = -1,
    ) -> None:
        if self.partitions[topic, generation, index].start_epoch(epoch, start, high_watermark, now, parent):
            self.events.append(LossEvent(now, "truncated", topic, index))

    def log_start(self, topic: str, generation: int, index: int, offset: int, reason: str, now: float) -> None:
        self.partitions[topic, generation, index].remove_below(offset, reason, now)
        self.events.append(LossEvent(now, "log start", topic, index))

    def compacted(self, topic: str, generation: int, index: int, offsets: list[int], now: float) -> None:
        self.partitions[topic, generation, index].remove(offsets, "compacted", now)


def generation_of(value: bytes | None) -> int:
    """Return the topic generation that ``RecordWriter`` has written into a value."""
    assert value is not None
    return int(value.split(b"/")[1])


class TruthAndOracle:
    """Passes the cluster's reports to both models."""

    def __init__(self, truth: RecordTruth, oracle: Oracle) -> None:
        self._truth = truth
        self._oracle = oracle

    def __getattr__(self, name: str) -> Any:
        to_truth, to_oracle = getattr(self._truth, name, None), getattr(self._oracle, name)
        if to_truth is None:  # reported to the oracle only
            return to_oracle

        def report(*args: Any, **named: Any) -> None:
            to_truth(*args, **named)
            to_oracle(*args, **named)

        self.__dict__[name] = report
        return report
