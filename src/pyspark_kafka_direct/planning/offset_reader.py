"""Reading of offsets by planners, and the metadata that they remember with the offsets they returned."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    are_lower_ends_confirmed,
    find_lost_partitions,
    lower_end_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss
    from pyspark_kafka_direct.planning.read_limits import RecordSizeSample

# After so many metadata responses in a row that several brokers contradict, planning fails.
MAX_METADATA_RESPONSES: Final = 30

_MIN_PAUSE: Final = 2 * CONFIRMATION_SECONDS / MAX_METADATA_RESPONSES  # brokers that lag need time, not only requests


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    """The existing partitions that the subscription selects."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)  # empty before Kafka 2.8
    described_partitions: int = 0  # in the metadata, also of topics that the pattern does not select


class OffsetReader(Protocol):
    """Reads offsets from the cluster; every call may raise ``BrokerError`` after its own retries."""

    def assigned(self, *, strict: bool) -> AssignedPartitions:
        """Return the assigned partitions; raise ``TopicNotFoundError`` if one is missing and ``strict`` is set."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions that exist but that the subscription does not select."""

    def known_topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """Return the topic ids of the metadata that the last offsets came with, as far as they are known."""

    def offsets(self, requested: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offset for ``EARLIEST``, ``LATEST`` or a timestamp in ms, without missing partitions."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks, with any isolation level, without missing partitions."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets that the query's consumer group has committed, without partitions that have none."""

    def samples(self, from_offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, RecordSizeSample]:
        """Sample the size of a few records from these offsets, without partitions that cannot be sampled."""

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
        """Return which of these partitions, with topic ids if known, brokers agree to be missing or recreated."""

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        """Read offsets only from leaders of the highest epoch that brokers report."""

    def wall_time_ms(self) -> int:
        """Return the clock of this process, in milliseconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Pause before the next request that is not a retry."""

    def wait(self) -> None:
        """Pause before a retry, and use another broker for it."""

    def warn(self, message: str) -> None:
        """Log a warning, unless it is one of the last messages."""

    def report_loss(self, loss: SkippedLoss) -> None:
        """Log and count a loss that is skipped."""


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """The metadata of the cluster when an offset was returned."""

    topic_ids: Mapping[str, UUID]
    planned_by_this_run: bool = False  # as a batch's end; else it is the initial offset or from a checkpoint
    recreated_topics: frozenset[str] = frozenset()  # recreated since the batch's start
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)  # those that lie after the batch's start


def topic_ids_by_partition(
    partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, UUID]:
    """Return the topic ids of partitions, as far as they are known."""
    return {tp: topic_ids[tp.topic] for tp in partitions if tp.topic in topic_ids}


def contradiction_pause(users_pause: float = 0.0) -> float:
    """Return the seconds before the next request if brokers contradict each other: at least a minimum."""
    return max(users_pause, _MIN_PAUSE)


def are_topic_ids_current(
    topic_ids: Mapping[str, UUID], known_topic_ids: Callable[[Collection[str]], Mapping[str, UUID]]
) -> bool:
    """Return whether offsets came with the metadata that these ids are from.

    Otherwise the ids came from a broker that lags, or some offsets are those of a topic that was recreated since.
    """
    return all(topic_ids.get(name, topic_id) == topic_id for name, topic_id in known_topic_ids(topic_ids).items())


def confirmed_starts(
    fetch_starts: Callable[[], Mapping[TopicPartition, int]], raise_epoch_floors: Callable[[Collection[str]], None]
) -> Mapping[TopicPartition, int]:
    """Return where partitions start, from leaders that several brokers confirm if some start after offset 0.

    Retention of a deposed leader may have deleted records that the current leader still has.
    """
    starts = fetch_starts()
    later = {tp.topic for tp, offset in starts.items() if offset != 0}
    if not later:
        return starts
    raise_epoch_floors(later)
    return fetch_starts()


class OffsetHistory:
    """The metadata of the last few offsets; a batch's start is the end of the previous one."""

    _CAPACITY = 16

    def __init__(self) -> None:
        self._metadata: OrderedDict[frozenset[tuple[TopicPartition, int]], OffsetMetadata] = OrderedDict()

    def get(self, offsets: Mapping[TopicPartition, int]) -> OffsetMetadata | None:
        """Return the metadata of an offset, if it is remembered."""
        return self._metadata.get(frozenset(offsets.items()))

    def put(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        """Remember the metadata of an offset, and evict the oldest."""
        key = frozenset(offsets.items())
        self._metadata[key] = metadata
        self._metadata.move_to_end(key)
        while len(self._metadata) > self._CAPACITY:
            self._metadata.popitem(last=False)


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """The assigned partitions with their end offsets, and their topics' ids as far as they are known."""

    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID]


class SnapshotReader:
    """Reads snapshots, and keeps the end offsets that Trigger.AvailableNow fixes at the start of the query.

    A response that contradicts known offsets is not accepted at once. Missing and recreated partitions are confirmed by
    several brokers; an end below a known offset is requested again from the leader with the highest known epoch. Before
    Kafka 2.2 a new leader's end may lag (KIP-207), so one response is not enough.
    """

    def __init__(
        self, offset_reader: OffsetReader, history: OffsetHistory, *, max_attempts: int, read_committed: bool
    ) -> None:
        self._offset_reader = offset_reader
        self._history = history
        self._max_attempts = max_attempts
        self._read_committed = read_committed
        self._fixed_topic_ids: Mapping[str, UUID] = {}
        self.fixed_end_offsets: dict[TopicPartition, int] | None = None  # None: not Trigger.AvailableNow
        self.known_latest: Mapping[TopicPartition, int] | None = None  # for the progress report
        self.described_partitions = 0  # in the last metadata

    def fix_end_offsets(self) -> None:
        """Limit the query to the records that exist now."""
        snapshot = self.fetch_latest({})
        self.fixed_end_offsets, self._fixed_topic_ids = dict(snapshot.latest), snapshot.topic_ids
        self.known_latest = self.fixed_end_offsets

    def fix_added_end_offsets(self, assigned: AssignedPartitions) -> None:
        """Fix the ends of partitions that ``fix_end_offsets`` missed."""
        if self.fixed_end_offsets is None:
            return
        missed = assigned.partitions - self.fixed_end_offsets.keys()
        if missed:
            self.fixed_end_offsets.update(self._offset_reader.offsets(dict.fromkeys(missed, LATEST)))
            self._fixed_topic_ids = {**assigned.topic_ids, **self._fixed_topic_ids}  # the first ids stay

    def available_offsets(self, start: Mapping[TopicPartition, int]) -> OffsetSnapshot:
        """Return the fixed end offsets, or else the latest ones."""
        if self.fixed_end_offsets is None:
            snapshot = self.fetch_latest(start)
            self.known_latest = snapshot.latest
            return snapshot
        partitions_behind = {tp for tp, offset in start.items() if self.fixed_end_offsets.get(tp, -1) < offset}
        if partitions_behind:
            # The fixed ends were read too early or from a stale broker, or records were lost: fetch the ends again.
            snapshot = self.fetch_latest(start)
            self._fixed_topic_ids = {**snapshot.topic_ids, **self._fixed_topic_ids}  # the first ids stay
            for tp in sorted(partitions_behind & snapshot.latest.keys()):
                end = snapshot.latest[tp]
                # An end that was fixed too low becomes the start, or the end of a log that ends before it. One that is
                # missing becomes the present end.
                self.fixed_end_offsets[tp] = min(end, start[tp]) if tp in self.fixed_end_offsets else end
        return OffsetSnapshot(self.fixed_end_offsets, self._fixed_topic_ids)

    def fetch_latest(self, known: Mapping[TopicPartition, int]) -> OffsetSnapshot:
        """Return assigned partitions and their ends.

        Partitions of ``known`` are missing, and ends lie below its offsets, only if that is confirmed: the latter by
        as many responses as ``max_attempts``.
        """
        known_metadata = self._history.get(known)
        known_topic_ids = {} if known_metadata is None else topic_ids_by_partition(known, known_metadata.topic_ids)
        confirmed_missing: set[TopicPartition] = set()
        lower_end_responses = 0
        for _ in range(MAX_METADATA_RESPONSES):
            assigned = self._offset_reader.assigned(strict=False)
            self.described_partitions = assigned.described_partitions
            latest = dict(self._offset_reader.offsets(dict.fromkeys(assigned.partitions, LATEST)))
            if not are_topic_ids_current(assigned.topic_ids, self._offset_reader.known_topic_ids):
                self._offset_reader.wait()
                continue
            # Recreated partitions count as missing, too: their known offsets belong to the old topic.
            lost = find_lost_partitions(known, known_topic_ids, latest, assigned.topic_ids)
            missing = lost.partitions - confirmed_missing
            if missing:
                confirmed = self._confirm_missing(missing, known_topic_ids)
                confirmed_missing.update(confirmed)
                if missing - confirmed:
                    self._offset_reader.wait()
                continue  # in the seconds of a confirmation, a deleted topic may have been recreated
            lower_ends = lower_end_offsets(known, latest).keys() - confirmed_missing
            if lower_ends and self._read_committed:
                uncommitted = self._uncommitted_offsets(known, lower_ends)
                latest.update(uncommitted)
                lower_ends.difference_update(uncommitted)
            lower_end_responses += bool(lower_ends)
            max_attempts = min(self._max_attempts, MAX_METADATA_RESPONSES)
            if not lower_ends or are_lower_ends_confirmed(lower_end_responses, max_attempts):
                return OffsetSnapshot(latest, assigned.topic_ids)
            # A deposed leader may have responded.
            self._offset_reader.raise_epoch_floors({tp.topic for tp in lower_ends})
            self._offset_reader.wait()
        raise contradicting_metadata_error(known)

    def _uncommitted_offsets(
        self, known: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the known offsets that are not beyond the log, but only after its last stable offset."""
        high_watermarks = self._offset_reader.high_watermarks(partitions)
        return {tp: known[tp] for tp, end in high_watermarks.items() if end >= known[tp]}

    def is_at_end(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether these are the ends of their partitions now; anything else needs ``fetch_latest``."""
        return self._offset_reader.offsets(dict.fromkeys(offsets, LATEST)) == offsets

    def fetch_assigned(self, known: Collection[TopicPartition]) -> AssignedPartitions:
        """Return the assigned partitions; those of ``known`` are missing only if that is confirmed."""
        for _ in range(MAX_METADATA_RESPONSES):
            assigned = self._offset_reader.assigned(strict=False)
            missing = set(known) - assigned.partitions
            if not missing or missing <= self._confirm_missing(missing, {}):
                # The leaders respond only if the metadata is that of the current topics: tasks get its topic ids.
                self._offset_reader.offsets(dict.fromkeys(assigned.partitions.intersection(known), EARLIEST))
                if are_topic_ids_current(assigned.topic_ids, self._offset_reader.known_topic_ids):
                    return assigned
            self._offset_reader.wait()
        raise contradicting_metadata_error(known)

    def _confirm_missing(
        self, suspects: Collection[TopicPartition], topic_ids: Mapping[TopicPartition, UUID]
    ) -> set[TopicPartition]:
        """Return the partitions that are missing, recreated or not selected; the others are missing in one response."""
        not_selected = set(self._offset_reader.not_selected(suspects))
        others = {tp: topic_ids.get(tp) for tp in suspects if tp not in not_selected}
        return not_selected.union(self._offset_reader.confirm_missing(others) if others else ())

    def fetch_log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return log start offsets, without partitions that are confirmed to be missing."""
        confirmed_topics: set[str] = set()  # whose leaders have the highest epoch that brokers report
        for _ in range(MAX_METADATA_RESPONSES):
            log_starts = self._offset_reader.offsets(dict.fromkeys(partitions, EARLIEST))
            missing = dict.fromkeys(set(partitions) - log_starts.keys())  # with unknown topic ids
            if missing and not missing.keys() <= set(self._offset_reader.confirm_missing(missing)):
                self._offset_reader.wait()
                self._offset_reader.assigned(strict=False)  # refreshes the metadata that offsets() uses
                continue
            expired_topics = {tp.topic for tp, offset in log_starts.items() if offset > 0}
            if expired_topics <= confirmed_topics:
                return log_starts
            self._offset_reader.raise_epoch_floors(expired_topics)  # a deposed leader may have responded
            confirmed_topics = expired_topics
        raise contradicting_metadata_error(partitions)


def contradicting_metadata_error(partitions: Iterable[TopicPartition]) -> BrokerTimeoutError:
    """Return the error for partitions that some brokers repeatedly lack although others have them."""
    return BrokerTimeoutError(
        f"some brokers do not know all of {listed(sorted(partitions))}, although others do, in "
        f"{MAX_METADATA_RESPONSES} responses. Check whether each broker can reach the controller."
    )
