"""An independent model of what a history did to topics; it shares no code with the package.

A partition's truth follows from two lists: the batches appended at each leader epoch, and the starts of the leader
epochs. The log of epoch n (its *path*) has the records of epoch n after those of its parent up to the start; the parent
is the newest epoch in the log of its leader at the election. The log of the newest epoch is the truth. A deposed leader
may still serve the log of its own epoch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.record_attributes import RecordAttributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.simulation.cluster.stored_batch import StoredBatch

TopicAndIndex = tuple[str, int]
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_NEVER = float("inf")
_TODAY = 1e300  # after everything that has happened


class Entry(NamedTuple):
    """One record of a path; a marker's value is None."""

    offset: int
    epoch: int
    value: bytes | None
    key: bytes | None
    producer_id: int
    is_transactional: bool
    commit: bool | None  # of a marker; None for data
    appended_at: float


class EpochStart(NamedTuple):
    epoch: int
    start: int  # the end of the new leader's log
    at: float
    parent: int  # the newest epoch in the new leader's log before; -1 if it was empty


class Truncation(NamedTuple):
    """An election that lost the records of some offsets, which were below the high watermark."""

    epoch: int
    at: float
    first: int
    end: int


class LogStart(NamedTuple):
    offset: int
    at: float
    reason: str  # DeleteRecords or retention


class PartitionTruth:
    """Everything that happened to a partition of one topic generation."""

    __slots__ = (
        "_ancestors_of",
        "_paths",
        "_starts_of",
        "applied",
        "batches",
        "compacted",
        "created_at",
        "deleted_at",
        "epochs",
        "high_watermarks",
        "starts",
        "visible",
    )

    def __init__(self, created_at: float) -> None:
        self.created_at = created_at
        self.deleted_at = _NEVER  # with its topic
        self.batches: dict[int, list[tuple[StoredBatch, float]]] = {}  # by epoch
        self.epochs: list[EpochStart] = []
        self.high_watermarks: list[tuple[float, int]] = [(created_at, 0)]  # of the newest epoch
        self.applied: dict[int, list[tuple[float, int]]] = {}  # by replica: when it applied which leader epoch
        self.visible: dict[int, int] = {}  # by epoch: the highest high watermark of its leader
        self.starts: list[LogStart] = []
        self.compacted: dict[Entry, float] = {}  # with times; an earlier leader's log may have another record there
        self._paths: dict[int, list[Entry]] = {}
        self._starts_of: dict[int, EpochStart] = {}  # by epoch: the first one
        self._ancestors_of: dict[int, dict[int, int]] = {}

    # Questions.

    def epoch(self, at: float = _TODAY) -> int:
        """The newest leader epoch at a time."""
        return max((each.epoch for each in self.epochs if each.at <= at), default=0)

    def path(self, epoch: int) -> list[Entry]:
        """The records and markers of an epoch's log, in order, with all that was appended so far."""
        path = self._paths.get(epoch)
        if path is None:
            started = self._starts_of.get(epoch)
            path = []
            if started is not None:
                parent = self.path(started.parent)
                path = parent[: bisect_left(parent, started.start, key=_offset)] + list(self._entries(epoch))
            self._paths[epoch] = path
        return path

    def path_end(self, epoch: int) -> int:
        """The end offset of an epoch's log."""
        path = self.path(epoch)
        started = self._starts_of.get(epoch)
        return max(path[-1].offset + 1 if path else 0, 0 if started is None else started.start)

    def log_start(self, at: float = _TODAY) -> int:
        return max((each.offset for each in self.starts if each.at <= at), default=0)

    def high_watermark(self, at: float = _TODAY) -> int:
        index = bisect_right(self.high_watermarks, (at, 2**63))
        return self.high_watermarks[index - 1][1] if index else 0

    def end_offset(self, isolation: int, at: float = _TODAY) -> int:
        """The high watermark, or the last stable offset for read_committed: a marker counts once it is replicated."""
        end = self.high_watermark(at)
        if isolation == READ_COMMITTED:
            outcomes = self.outcomes(self.epoch(at), at, end)
            end = min((offset for offset, outcome in outcomes.items() if outcome is None and offset < end), default=end)
        return end

    def outcomes(self, epoch: int, at: float = _TODAY, end: float = math.inf) -> dict[int, bool | None]:
        """Of transactional records by offset: committed (True), aborted (False), or undecided before ``end`` (None)."""
        outcomes: dict[int, bool | None] = {}
        open_offsets: dict[int, list[int]] = {}
        for entry in self.path(epoch):
            is_marker = entry.commit is not None
            if not entry.is_transactional or entry.appended_at > at or (is_marker and entry.offset >= end):
                continue
            if entry.commit is None:
                outcomes[entry.offset] = None
                open_offsets.setdefault(entry.producer_id, []).append(entry.offset)
            else:
                for offset in open_offsets.pop(entry.producer_id, ()):
                    outcomes[offset] = entry.commit
        return outcomes

    def records(self, start: int, end: int, isolation: int, at: float, epoch: int | None = None) -> list[Entry]:
        """What a reader of an epoch's log must return at a time, in order."""
        epoch = self.epoch(at) if epoch is None else epoch
        path = self.path(epoch)
        start = max(start, self.log_start(at))
        outcomes = self.outcomes(epoch, at) if isolation == READ_COMMITTED else {}
        found = []
        for index in range(bisect_left(path, start, key=_offset), len(path)):
            entry = path[index]
            if entry.offset >= end:
                break
            if (
                entry.commit is None
                and entry.appended_at <= at
                and self.compacted.get(entry, _NEVER) > at
                and (isolation != READ_COMMITTED or not entry.is_transactional or outcomes.get(entry.offset))
            ):
                found.append(entry)
        return found

    def truncations(self, until: float = _TODAY) -> list[Truncation]:
        """Elections that lost records below a high watermark."""
        found = []
        for index, current in enumerate(self.epochs):
            if current.at <= until:
                for previous in self.epochs[:index]:
                    visible = self.visible.get(previous.epoch, 0)
                    if visible > 0 and visible > (common := self.common_end(previous.epoch, current.epoch)):
                        found.append(Truncation(current.epoch, current.at, common, visible))
        return found

    def served_until(self, epoch: int) -> float:
        """When the last replica stopped serving the logs of earlier epochs."""
        return max(
            (next((at for at, each in applied if each >= epoch), _NEVER) for applied in self.applied.values()),
            default=0.0,
        )

    # Reports.

    def add_batch(self, batch: StoredBatch, now: float) -> None:
        self.batches.setdefault(batch.epoch, []).append((batch, now))
        self._paths.clear()

    def add_epoch(self, epoch: int, start: int, high_watermark: int, now: float, parent: int) -> None:
        if parent < 0 and start > 0:  # all records of the log have expired, and with them what tells their epochs
            parent = self.epochs[-1].epoch
        self.epochs.append(EpochStart(epoch, start, now, parent))
        self._starts_of.setdefault(epoch, self.epochs[-1])
        self._ancestors_of.clear()
        self.advance_high_watermark(epoch, high_watermark, now)
        self._paths.clear()

    def advance_high_watermark(self, epoch: int, offset: int, now: float) -> None:
        self.visible[epoch] = offset
        if epoch == self.epochs[-1].epoch:
            self.high_watermarks.append((now, offset))

    def _entries(self, epoch: int) -> Iterable[Entry]:
        for batch, at in self.batches.get(epoch, ()):
            for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
                is_marker = batch.commit is not None
                yield Entry(
                    offset,
                    epoch,
                    None if is_marker else value,
                    key,
                    batch.producer_id,
                    batch.is_transactional,
                    batch.commit,
                    at,
                )

    def _ancestors(self, epoch: int) -> dict[int, int]:
        """Return the epochs in a path, and the offsets below which their records are in it."""
        if epoch in self._ancestors_of:
            return self._ancestors_of[epoch]
        limits = self._ancestors_of[epoch] = {}
        limit = 2**63
        started = self._starts_of.get(epoch)
        while started is not None:
            limits[started.epoch] = limit
            limit = min(limit, started.start)
            started = self._starts_of.get(started.parent)
        return limits

    def common_end(self, epoch: int, other: int) -> int:
        """Return the offset below which two paths are equal."""
        limits, others = self._ancestors(epoch), self._ancestors(other)
        newest = max((each for each in limits if each in others), default=None)
        return 0 if newest is None else min(limits[newest], others[newest])


class Oracle:
    """The truth about all generations of all topics."""

    def __init__(self) -> None:
        self.truths: dict[tuple[str, int, int], PartitionTruth] = {}  # by topic, generation and partition
        self.attributes: dict[
            tuple[str, int, bytes], RecordAttributes
        ] = {}  # by topic, partition and value: of the newest copy
        self.generations: dict[str, int] = {}  # the newest of each topic
        self.created_at: dict[tuple[str, int], float] = {}
        self.deleted_at: dict[tuple[str, int], float] = {}

    # Reports of the cluster.

    def topic_created(self, topic: str, generation: int, partitions: int, now: float) -> None:
        self.generations[topic] = generation
        self.created_at[topic, generation] = now
        self.partitions_added(topic, generation, partitions, now)

    def partitions_added(self, topic: str, generation: int, partitions: int, now: float) -> None:
        for index in range(partitions):
            if (topic, generation, index) not in self.truths:
                self.truths[topic, generation, index] = PartitionTruth(now)

    def topic_deleted(self, topic: str, generation: int, now: float) -> None:
        self.deleted_at[topic, generation] = now
        for (name, number, _), truth in self.truths.items():
            if (name, number) == (topic, generation):
                truth.deleted_at = now

    def appended(self, topic: str, generation: int, index: int, batch: StoredBatch, now: float) -> None:
        truth = self.truths[topic, generation, index]
        truth.add_batch(batch, now)
        is_deposed = batch.epoch < truth.epoch()  # the leader, which does not know it yet
        for key, value, timestamp, headers in zip(
            batch.keys, batch.values, batch.timestamps, batch.headers, strict=True
        ):
            if value is None or batch.is_control or (is_deposed and (topic, index, value) in self.attributes):
                continue
            self.attributes[topic, index, value] = RecordAttributes(key, timestamp, headers)

    def high_watermark(self, topic: str, generation: int, index: int, epoch: int, offset: int, now: float) -> None:
        self.truths[topic, generation, index].advance_high_watermark(epoch, offset, now)

    def epoch_started(
        self,
        topic: str,
        generation: int,
        index: int,
        epoch: int,
        start: int,
        high_watermark: int,
        now: float,
        *,
        parent: int = -1,
    ) -> None:
        """Report an election; ``parent`` is the newest epoch in the new leader's log before."""
        self.truths[topic, generation, index].add_epoch(epoch, start, high_watermark, now, parent)

    def epoch_applied(self, topic: str, generation: int, index: int, broker: int, epoch: int, now: float) -> None:
        """Report that a replica acts on a leader epoch; -1 before it has any."""
        applied = self.truths[topic, generation, index].applied.setdefault(broker, [])
        if epoch >= 0:
            applied.append((now, epoch))

    def log_start(self, topic: str, generation: int, index: int, offset: int, reason: str, now: float) -> None:
        self.truths[topic, generation, index].starts.append(LogStart(offset, now, reason))

    def compacted(self, topic: str, generation: int, index: int, offsets: Sequence[int], now: float) -> None:
        truth = self.truths[topic, generation, index]
        removed = set(offsets)
        for entry in truth.path(truth.epoch()):
            if entry.offset in removed:
                truth.compacted.setdefault(entry, now)

    # Questions.

    def truth(self, partition: TopicAndIndex, generation: int | None = None) -> PartitionTruth:
        """The truth about a partition, by default of the newest generation of its topic."""
        topic, index = partition
        return self.truths[topic, self.generations[topic] if generation is None else generation, index]

    def records(
        self,
        partition: TopicAndIndex,
        start: int,
        end: int,
        isolation: int,
        *,
        at: float = _TODAY,
        generation: int | None = None,
    ) -> list[tuple[int, bytes | None]]:
        """Offsets and values that a reader must return at a time, in order."""
        found = self.truth(partition, generation).records(start, end, isolation, at)
        return [(entry.offset, entry.value) for entry in found]

    def was_in_log(
        self, partition: TopicAndIndex, generation: int, record: tuple[int, bytes | None], since: float, until: float
    ) -> bool:
        """Return whether a log had a record all the time: several unclean elections may remove it and bring it back."""
        offset = record[0]
        elections = (each.at for each in self.truth(partition, generation).epochs if since < each.at <= until)
        return all(
            record in self.records(partition, offset, offset + 1, READ_UNCOMMITTED, at=at, generation=generation)
            for at in (since, *elections, until)
        )

    def may_be_missing(
        self, partition: TopicAndIndex, offset: int, *, at: float = _TODAY, generation: int | None = None
    ) -> str | None:
        """Return why a reader may have no record with an offset (read_committed), or None if it must have one."""
        truth = self.truth(partition, generation)
        if truth.deleted_at <= at:
            return "the topic was deleted"
        for each in truth.starts:
            if offset < each.offset and each.at <= at:
                return f"{each.reason} raised the log start offset to {each.offset}"
        epoch = truth.epoch(at)
        entry = next((each for each in truth.path(epoch) if each.offset == offset and each.appended_at <= at), None)
        if entry is not None and truth.compacted.get(entry, _NEVER) <= at:
            return "it was compacted away"
        if entry is None:
            for lost in truth.truncations(at):
                if lost.first <= offset < lost.end:
                    return f"the leader of epoch {lost.epoch} lacked the offsets {lost.first} to {lost.end}"
            return "nothing was appended there"
        if entry.commit is not None:
            return "it is a marker"
        if entry.is_transactional and not truth.outcomes(epoch, at)[offset]:
            return "its transaction was not committed"
        return None

    def loss_reasons(
        self,
        partition: TopicAndIndex,
        start: int,
        end: int,
        *,
        since: float = 0.0,
        until: float = _TODAY,
        generation: int | None = None,
        with_log_starts: bool = True,
    ) -> list[str]:
        """Return the events up to a time that justify an error about lost data in a range, or a skip.

        A log start offset in the range counts even if it is older than ``since``. A truncation counts if a deposed
        leader may have served the old log after ``since``.
        """
        truth = self.truth(partition, generation)
        reasons = []
        if truth.deleted_at <= until:
            reasons.append("the topic was deleted")
        reasons += [
            f"{each.reason} raised the log start offset to {each.offset}"
            for each in truth.starts
            if with_log_starts and start < each.offset and each.at <= until
        ]
        reasons += [
            f"the leader of epoch {lost.epoch} lacked the offsets {lost.first} to {lost.end}"
            for lost in truth.truncations(until)
            if lost.first < end and truth.served_until(lost.epoch) >= since
        ]
        return reasons

    def was_deposed(self, topic: str, since: float, until: float) -> bool:
        """Return whether a deposed leader of a partition may have responded in a time."""
        return any(
            started.epoch > 0 and started.at <= until and truth.served_until(started.epoch) >= since
            for (name, _, _), truth in self.truths.items()
            if name == topic
            for started in truth.epochs
        )

    def replaced_from(self, partition: TopicAndIndex, end: int, *, since: float, at: float, generation: int) -> int:
        """Return where records begin that replaced those of a former leader without a reader noticing.

        The log reaches an end again, or the former leader still served its own log after ``since``.
        """
        truth = self.truth(partition, generation)
        if truth.high_watermark(at) >= end:
            lost = truth.truncations(at)
        else:
            lost = [each for each in truth.truncations(since) if truth.served_until(each.epoch) >= since]
        return min((each.first for each in lost), default=end)

    def empty_offsets(self, partition: TopicAndIndex, isolation: int, *, at: float, generation: int) -> set[int]:
        """Return the offsets of the log for which a reader gets nothing: control records and aborted ones."""
        truth = self.truth(partition, generation)
        epoch = truth.epoch(at)
        outcomes = truth.outcomes(epoch, at) if isolation == READ_COMMITTED else {}
        return {
            entry.offset
            for entry in truth.path(epoch)
            if entry.appended_at <= at and (entry.commit is not None or outcomes.get(entry.offset) is False)
        }

    def check_offsets(
        self,
        partition: TopicAndIndex,
        start: int,
        end: int,
        isolation: int,
        *,
        started_at: float,
        ended_at: float,
        oldest_generation: int,
    ) -> list[str]:
        """Return violations of a log's start and end, which brokers reported one after the other.

        A broker that lags may have reported those of an older generation, as old as the oldest that any of them knew.
        A deposed leader may have reported anything.
        """
        topic, index = partition
        if self.was_deposed(topic, started_at, ended_at):
            return []
        generations = range(oldest_generation, self.generations[topic] + 1)
        truths = [found for each in generations if (found := self.truths.get((topic, each, index))) is not None]
        starts = [(truth.log_start(started_at), truth.log_start(ended_at)) for truth in truths]
        ends = [
            # The first records of an open transaction may be deleted.
            tuple(max(truth.end_offset(isolation, at), truth.log_start(at)) for at in (started_at, ended_at))
            for truth in truths
        ]
        return [
            f"{name} of {topic}-{index} is {offset}, and those of its logs were {known}"
            for name, offset, known in (("the start", start, starts), ("the end", end, ends))
            if not any(first <= offset <= last for first, last in known)
        ]

    def check_range(
        self,
        partition: TopicAndIndex,
        generation: int | None,
        start: int,
        end: int,
        returned: Sequence[tuple[int, bytes | None]],
        isolation: int,
        started_at: float,
        ended_at: float,
        *,
        is_prefix: bool = False,
        may_lack_records: bool = False,
        may_mix_epochs: bool = False,
    ) -> list[str]:
        """Return violations of a read of the offsets from ``start`` to before ``end``.

        Every record that existed throughout the read is required, once and in order. All records must be of one
        epoch's log. With ``read_committed`` none is of a transaction that was not committed by the end of the read.
        With ``is_prefix`` the read ended early, such as with an error: it may lack records after the last one returned.
        With ``may_lack_records`` it may lack any, such as those that a truncation removed. With ``may_mix_epochs`` it
        reported a truncation and continued, so each record may be of another epoch's log, and any may be lacking.
        """
        violations = _check_order(start, end, returned)
        truth = self.truth(partition, generation)
        if may_mix_epochs:
            for row in returned:
                by_epoch = [
                    _check_records(truth, each.epoch, start, [row], isolation, ended_at) for each in truth.epochs
                ]
                if all(by_epoch):
                    violations += by_epoch[-1]
            return violations
        limit = (returned[-1][0] + 1 if returned else start) if is_prefix else end
        newest = truth.epoch(ended_at)

        def check_path(epoch: int) -> list[str]:
            found = _check_records(truth, epoch, start, returned, isolation, ended_at)
            if not may_lack_records:
                found += _find_missing(truth, epoch, start, limit, returned, isolation, started_at, ended_at)
            return found

        found = check_path(newest)
        if found:
            # A deposed leader may have served the read, if it did not know its successor when the read began, and its
            # log reaches the end of the range.
            for each in truth.epochs:
                was_served = truth.served_until(each.epoch + 1) >= started_at
                is_candidate = each.epoch < newest and was_served and truth.path_end(each.epoch) >= limit
                if is_candidate and not check_path(each.epoch):
                    found = []
                    break
        return violations + found


def _check_order(start: int, end: int, returned: Sequence[tuple[int, bytes | None]]) -> list[str]:
    violations = []
    previous = start - 1
    for offset, _ in returned:
        if offset == previous:
            violations.append(f"offset {offset} is returned twice")
        elif offset < previous:
            violations.append(f"offset {offset} is returned after {previous}")
        elif offset >= end:
            violations.append(f"offset {offset} is at or after the end {end}")
        previous = max(previous, offset)
    if returned and returned[0][0] < start:
        violations.append(f"offset {returned[0][0]} is before the start {start}")
    return violations


def _check_records(
    truth: PartitionTruth,
    epoch: int,
    start: int,
    returned: Sequence[tuple[int, bytes | None]],
    isolation: int,
    ended_at: float,
) -> list[str]:
    """Return which returned records differ from those of an epoch's log."""
    violations = []
    path = truth.path(epoch)
    entries = {entry.offset: entry for entry in path[bisect_left(path, start, key=_offset) :]}
    outcomes = truth.outcomes(epoch, ended_at) if isolation == READ_COMMITTED else {}
    for offset, value in returned:
        entry = entries.get(offset)
        if entry is None or entry.appended_at > ended_at:
            violations.append(f"offset {offset} is returned, but the log of epoch {epoch} has no such record")
        elif entry.commit is not None:
            violations.append(f"offset {offset} is returned, but it is a marker")
        elif entry.value != value:
            violations.append(f"offset {offset} has the value {value!r} instead of {entry.value!r} of epoch {epoch}")
        elif isolation == READ_COMMITTED and entry.is_transactional and not outcomes.get(offset):
            state = "undecided" if outcomes.get(offset) is None else "aborted"
            violations.append(f"offset {offset} is returned, but its transaction is {state}")
    return violations


def _find_missing(
    truth: PartitionTruth,
    epoch: int,
    start: int,
    end: int,
    returned: Sequence[tuple[int, bytes | None]],
    isolation: int,
    started_at: float,
    ended_at: float,
) -> list[str]:
    """Return which records of an epoch's log a read lacks."""
    offsets = {offset for offset, _ in returned}
    return [
        f"offset {entry.offset} is missing ({entry.value!r}, epoch {entry.epoch}, appended at {entry.appended_at:.3f})"
        for entry in truth.records(start, end, isolation, ended_at, epoch)
        if entry.offset not in offsets and not _replaced_since(truth, entry, started_at, ended_at)
    ]


def _replaced_since(truth: PartitionTruth, entry: Entry, started_at: float, ended_at: float) -> bool:
    """Whether a truncation during the read put this record where the reader may have been before."""
    return entry.appended_at > started_at and any(
        started_at <= each.at <= ended_at and each.first <= entry.offset < each.end
        for each in truth.truncations(ended_at)
    )


def _offset(entry: Entry) -> int:
    return entry.offset
