"""Decides where the next micro-batch ends, and which offset ranges it consists of.

Spark keeps each end offset in the checkpoint and starts the next batch there. It plans an unfinished batch again from
the same two offsets, so an end is decided once and the ranges follow from start and end.

The start of a query must be resolved once only. Spark's own source writes it into the checkpoint. Here the end of the
first batch records it (``record_first_start``), so Spark's offset log makes it durable. If the query fails in that
batch, Spark replans it, perhaps with other start options: the recorded start applies. If the start can change
(``latest``, times, the last offsets), the first batch is empty, because other sources ignore the record. A first batch
without a recorded start was planned by another source. Its start is resolved again if that gives the same offsets, else
the batch is rejected.

A start that does not match the topics is rejected when the first end is requested. It is not rejected when a batch
whose end is in the checkpoint is planned, because the topics may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, OffsetRange
from pyspark_kafka_direct.planning.data_loss import (
    check_fixed_end_offsets,
    check_latest_offsets,
    check_not_recreated,
    find_lost_partitions,
    later_log_starts,
    lower_end_offsets,
)
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.planning.offset_range_calculator import split_ranges
from pyspark_kafka_direct.planning.offset_reader import (
    MAX_METADATA_RESPONSES,
    OffsetHistory,
    OffsetMetadata,
    SnapshotReader,
    are_topic_ids_current,
    confirmed_starts,
    contradicting_metadata_error,
    topic_ids_by_partition,
)
from pyspark_kafka_direct.planning.offset_resolution import (
    resolve_known_start_offsets,
    resolve_start_offsets,
    start_is_reproducible,
    start_may_change,
    starts_at_earliest,
    unused_start_warning,
)
from pyspark_kafka_direct.planning.read_limits import (
    MinOffsetsGate,
    byte_limit,
    count_new_offsets,
    expired_log_starts,
    merge_samples,
    rate_limit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadLimits, ReadSettings
    from pyspark_kafka_direct.planning.data_loss import LostPartitions
    from pyspark_kafka_direct.planning.offset_reader import OffsetReader, OffsetSnapshot
    from pyspark_kafka_direct.planning.read_limits import RecordSizeSample

# Seconds between the beginnings of refreshes while there is nothing to read: Spark polls up to 100 times a second. Not
# longer, because Spark waits for all sources of a query, one after another, with a lock that processAllAvailable needs.
# An idle planner takes 1.5 % of a core (1 partition), 5 % (300), 7 % (1,000) or 12 % (1,000 topics of a pattern), and
# the broker 6 to 8 %. Spark's own source, which sends requests at each poll, takes 25 to 30 % and 13 to 17 %.
_IDLE_REFRESH_SECONDS = 0.1

# How long an idle query uses metadata of many partitions: decoding it takes most of the time of a refresh.
_MANY_PARTITIONS = 300
_IDLE_METADATA_SECONDS = 1.0

_MAX_SAMPLED_PARTITIONS = 16
_DEFAULT_RECORD_BYTES = 1024

_TRIGGER_ONCE_REJECTED = (
    "a query whose start can change (startingOffsets=latest or committed, a time, or last N) cannot start with a "
    "single batch, because its first batch is empty and only makes the start durable. Spark runs a single batch for "
    "Trigger.Once, and for Trigger.AvailableNow if another source of the query does not support that trigger. Start "
    "from earliest or from explicit offsets; or use Trigger.AvailableNow if all sources support it; or run the query "
    "first with another trigger, then resume it with this one"
)

_UNKNOWN_FIRST_BATCH = (
    "this source's first batch was not finished, and another source (Spark's own kafka source?) or another start "
    "planned it. Its start is not known, and a start that can change (startingOffsets=latest, committed or -1h) would "
    "skip records. Set startingOffsets to the start of that batch; Spark's own source keeps it in the last line of the "
    "checkpoint's file sources/NAME/0, where NAME is the name of the source, or else its position in the query, from 0"
)


@dataclass(frozen=True, slots=True)
class MicroBatchPlan:
    """The plan of a micro-batch."""

    ranges: tuple[OffsetRange, ...] = ()  # one per task, none empty, ordered by topic, partition, offset
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)  # when the batch's end was decided, as far as known


class _IdleRefresh(NamedTuple):
    """The last refresh, if it found no batch."""

    start: dict[TopicPartition, int]
    began_at: float
    metadata_expires_at: float


class MicroBatchPlanner:
    """Plans the micro-batches of one query one after the other; not thread-safe."""

    def __init__(
        self,
        settings: ReadSettings,
        offset_reader: OffsetReader,
        clock: Callable[[], float],  # monotonic seconds
        *,
        # Returns the maximum number of offsets of the batch with this start, from the durations of earlier batches.
        backpressure_limit: Callable[[Mapping[TopicPartition, int]], int | None] | None = None,
    ) -> None:
        self._source = settings.source
        self._fetch = settings.fetch
        self._offset_reader = offset_reader
        self._clock = clock
        self._losses = LossReport(settings.fetch.fail_on_data_loss, offset_reader)
        self._limiter = BatchLimiter(settings.source.limits, offset_reader, clock, backpressure_limit)
        self._history = OffsetHistory()
        self._snapshots = SnapshotReader(
            offset_reader,
            self._history,
            max_attempts=settings.source.confirmations,
            read_committed=settings.fetch.read_committed,
        )
        self._initial_offsets: dict[TopicPartition, int] | None = None  # None if not requested, as in a resumed query
        self._start_error: InvalidOffsetsError | TopicNotFoundError | None = None  # why a new query cannot start
        self._end_was_requested = False
        # Whether the first batch was planned before an end was requested: then its end is from the checkpoint.
        self._logged_batch_was_planned = False
        self._idle_refresh: _IdleRefresh | None = None

    @property
    def known_latest(self) -> Mapping[TopicPartition, int] | None:
        """The latest end offsets, for the progress report; ``None`` before the first metadata refresh."""
        return self._snapshots.known_latest

    @property
    def resumed(self) -> bool:
        """Whether the query resumes after a finished batch: then Spark does not request the initial offsets."""
        return self._initial_offsets is None

    def initial_offsets(self) -> dict[TopicPartition, int]:
        """Return the start offsets of a new query, as far as they can be resolved; later calls return the same."""
        if self._initial_offsets is None:
            self._initial_offsets = self._resolve_initial_offsets()
        return dict(self._initial_offsets)

    def is_first_start(self, start: Mapping[TopicPartition, int]) -> bool:
        """Return whether this run has planned nothing yet and ``start`` is the start of a new query."""
        return not self._end_was_requested and not self._logged_batch_was_planned and start == self._initial_offsets

    def fix_end_offsets(self) -> None:
        """Limit the query to the records that exist now (Trigger.AvailableNow)."""
        self._snapshots.fix_end_offsets()

    def next_end_offsets(
        self,
        start: Mapping[TopicPartition, int],
        *,
        unlimited: bool = False,  # Trigger.Once ignores limits
    ) -> dict[TopicPartition, int]:
        """Return the end of the batch that starts at ``start``; equal to ``start`` if there is nothing to read yet."""
        start = dict(start)
        if self.resumed and not self._end_was_requested and (warning := unused_start_warning(self._source.start)):
            self._offset_reader.warn(warning)
        self._losses.begin_batch(start)
        is_first = self.is_first_start(start)
        if is_first and self._start_error is not None:
            raise self._start_error
        is_empty_first_batch = is_first and start_may_change(self._source.start)
        if is_empty_first_batch and unlimited:
            raise OptionError(_TRIGGER_ONCE_REJECTED)
        self._end_was_requested = True  # after the checks, so that a repeated call is rejected, too
        if is_empty_first_batch:
            return start
        if not unlimited and self._is_still_idle(start):
            return start
        began_at = self._clock()
        end = self._decide_end_offsets(start, unlimited=unlimited)
        has_many_partitions = self._snapshots.described_partitions > _MANY_PARTITIONS
        metadata_expires_at = began_at + (_IDLE_METADATA_SECONDS if has_many_partitions else 0.0)
        self._idle_refresh = _IdleRefresh(start, began_at, metadata_expires_at) if end == start else None
        return end

    def plan(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        recorded_start: Mapping[TopicPartition, int] | None = None,  # in the end of a first batch
    ) -> MicroBatchPlan:
        """Return the ranges of a batch; the same offsets give the same records, as far as these still exist."""
        # Before this run has decided an end, Spark plans only a batch whose end is in the checkpoint.
        end_is_logged = not self._end_was_requested
        self._logged_batch_was_planned = self._logged_batch_was_planned or end_is_logged
        is_logged_first_batch = end_is_logged and start == self._initial_offsets
        if recorded_start is not None:
            start = recorded_start
        elif is_logged_first_batch and not start_is_reproducible(self._source.start):
            raise OptionError(_UNKNOWN_FIRST_BATCH)
        if start == end:
            return MicroBatchPlan()
        self._losses.begin_batch(start)
        metadata = self._history.get(end)
        if metadata is None or not metadata.planned_by_this_run:
            return self._replan(
                start,
                end,
                is_first_batch=is_logged_first_batch or recorded_start is not None,
                is_start_recorded=not is_logged_first_batch or recorded_start is not None,
            )
        if self._snapshots.fixed_end_offsets is not None:
            self._check_available_now(end, self._snapshots.fixed_end_offsets, metadata)
        return self._plan_decided(start, end, metadata)

    def _plan_decided(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], metadata: OffsetMetadata
    ) -> MicroBatchPlan:
        """Plan a batch whose end this run decided, from the metadata of that moment."""
        from_offsets = {
            tp: max(offset, metadata.log_starts.get(tp, offset))
            for tp, offset in start.items()
            if tp.topic not in metadata.recreated_topics  # their offsets are those of the old topic
        }
        # Those of a topic that was recreated with fewer partitions were reported with it.
        self._losses.report_missing(
            {tp for tp in start.keys() - end.keys() if tp.topic not in metadata.recreated_topics}
        )
        ends_without_start = {tp: offset for tp, offset in end.items() if tp not in from_offsets}
        added = ends_without_start.keys() - start.keys()  # the others are of recreated topics
        from_offsets.update(self._start_added_partitions(ends_without_start, added))
        return self._create_plan(from_offsets, end, metadata.topic_ids)

    def _check_available_now(
        self, end: Mapping[TopicPartition, int], fixed_ends: Mapping[TopicPartition, int], metadata: OffsetMetadata
    ) -> None:
        """Raise DataLossError if the batch lies beyond the ends of Trigger.AvailableNow, or its records are lost."""
        check_fixed_end_offsets(end, fixed_ends)
        snapshot = self._snapshots.fetch_latest(end)
        check_latest_offsets(end, snapshot.latest)
        known_ids = topic_ids_by_partition(end, metadata.topic_ids)
        check_not_recreated(find_lost_partitions(end, known_ids, snapshot.latest, snapshot.topic_ids))

    def _is_still_idle(self, start: Mapping[TopicPartition, int]) -> bool:
        """Pause after an idle refresh, and return whether the ends alone show that there is still nothing to read."""
        idle = self._idle_refresh
        if idle is None or idle.start != start:
            return False
        remaining = idle.began_at + _IDLE_REFRESH_SECONDS - self._clock()
        if remaining > 0:
            self._offset_reader.sleep(remaining)
        began_at = self._clock()
        if began_at >= idle.metadata_expires_at:
            return False  # the caller refreshes the metadata, too
        self._idle_refresh = idle._replace(began_at=began_at)
        return self._snapshots.is_at_end(start)

    def _replan(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        *,
        is_first_batch: bool,
        is_start_recorded: bool,  # in the checkpoint; otherwise it was resolved again
    ) -> MicroBatchPlan:
        """Plan a batch whose end an earlier run decided."""
        assigned = self._snapshots.fetch_assigned(start.keys() | end.keys())
        topic_ids = assigned.topic_ids
        if is_start_recorded:
            without_end = start.keys() - end.keys()
            self._losses.report_missing(without_end - assigned.partitions)
            self._losses.report_left_out(without_end & assigned.partitions)
        from_offsets = dict(start)
        if is_first_batch:
            # Since the end was logged, log starts may have passed it and partitions may have been created: limit the
            # start to the logged end. If the start was resolved again, a partition only in the logged end is not
            # reported as added: the metadata may be incomplete.
            from_offsets = {tp: min(offset, end[tp]) for tp, offset in start.items() if tp in end}
            from_offsets.update(self._starts_after_retention(from_offsets, end))
        added = {tp: offset for tp, offset in end.items() if tp not in from_offsets}
        from_offsets.update(self._start_added_partitions(added, added.keys() if is_start_recorded else ()))
        # Those of the metadata that the log starts came with are newer.
        current_ids = self._offset_reader.known_topic_ids(topic_ids)
        return self._create_plan(from_offsets, end, {**topic_ids, **current_ids})

    def _starts_after_retention(
        self, from_offsets: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return where an unfinished first batch starts now, for partitions whose first records were deleted since."""
        initial_offsets = self._initial_offsets or {}  # of this run; a later one shows that the log start has moved
        suspects = [
            tp
            for tp, offset in from_offsets.items()
            if initial_offsets.get(tp, offset) > offset and starts_at_earliest(self._source.start, tp)
        ]
        log_starts = self._snapshots.fetch_log_starts(suspects) if suspects else {}
        expired = later_log_starts(from_offsets, log_starts, end)
        for tp, log_start in sorted(expired.items()):
            self._offset_reader.warn(
                f"offsets [{from_offsets[tp]}, {log_start}) of {tp} were removed by retention since the first batch "
                "was planned; they are skipped, because the query starts at earliest"
            )
        return expired

    def _create_plan(
        self,
        from_offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID],
    ) -> MicroBatchPlan:
        """Report partitions that end before they start as data loss, and split the others into ranges."""
        lower_ends = lower_end_offsets(from_offsets, end_offsets)
        self._losses.report_offsets_changed(from_offsets, lower_ends)
        # The callers have reported the partitions that lack a start or an end.
        readable = (from_offsets.keys() & end_offsets.keys()) - lower_ends.keys()
        ranges = [OffsetRange(tp.topic, tp.partition, from_offsets[tp], end_offsets[tp]) for tp in sorted(readable)]
        split = split_ranges(ranges, self._source.min_partitions, self._source.max_records_per_partition)
        return MicroBatchPlan(tuple(split), topic_ids)

    def _start_added_partitions(
        self,
        ends: Mapping[TopicPartition, int],
        added: Collection[TopicPartition],  # of which to report that they do not start at offset 0
    ) -> dict[TopicPartition, int]:
        """Return log starts, at most the ends, of partitions that are read from their start; without missing ones."""
        if not ends:
            return {}
        earliest = self._snapshots.fetch_log_starts(ends)
        self._losses.report_start_not_found(ends.keys() - earliest.keys())
        self._losses.report_added_late({tp: offset for tp, offset in earliest.items() if tp in added})
        return {tp: min(offset, ends[tp]) for tp, offset in earliest.items()}

    def _decide_end_offsets(self, start: dict[TopicPartition, int], *, unlimited: bool) -> dict[TopicPartition, int]:
        """Decide the end from a snapshot of the cluster, and remember it with the metadata by which it is planned."""
        snapshot = self._snapshots.available_offsets(start)
        start_metadata = self._history.get(start)
        if start_metadata is None:  # the start is from the checkpoint, which has no topic ids
            start_metadata = OffsetMetadata(snapshot.topic_ids)
            self._history.put(start, start_metadata)
        lost, lower_ends = self._report_lost(start, start_metadata, snapshot)
        recreated_topics = frozenset(tp.topic for tp in lost.recreated)

        unread_starts, max_ends = self._start_unread_partitions(start, snapshot.latest, recreated_topics)
        from_offsets = {tp: start[tp] for tp in max_ends if tp not in unread_starts} | unread_starts
        expired = self._expired_log_starts(from_offsets, max_ends)
        # After a loss, the batch runs immediately: until its end is in the checkpoint, records of a new log count as
        # read.
        immediately = bool(lost.partitions or lower_ends)
        end = (
            max_ends
            if unlimited
            else self._limited_ends(start, {**from_offsets, **expired}, max_ends, immediately=immediately)
        )
        if not end:
            return start  # an empty end would drop the positions of the other partitions (SPARK-41375)
        if end == start:  # there is no new batch, so the end still is that of the previous one
            metadata = OffsetMetadata(
                dict(snapshot.topic_ids), start_metadata.planned_by_this_run, start_metadata.recreated_topics
            )
        else:
            self._report_skipped(start, from_offsets, unread_starts, expired)
            metadata = OffsetMetadata(
                snapshot.topic_ids, planned_by_this_run=True, recreated_topics=recreated_topics, log_starts=expired
            )
        self._history.put(end, metadata)
        return end

    def _report_lost(
        self, start: Mapping[TopicPartition, int], start_metadata: OffsetMetadata, snapshot: OffsetSnapshot
    ) -> tuple[LostPartitions, Mapping[TopicPartition, int]]:
        """Report and return missing and recreated partitions, and the ends of the others that lie below the start."""
        known_ids = topic_ids_by_partition(start, start_metadata.topic_ids)
        lost = find_lost_partitions(start, known_ids, snapshot.latest, snapshot.topic_ids)
        lower_ends = lower_end_offsets({tp: start[tp] for tp in start.keys() - lost.partitions}, snapshot.latest)
        self._losses.report_lost(lost, known_ids)
        self._losses.report_offsets_changed(start, lower_ends)
        return lost, lower_ends

    def _report_skipped(
        self,
        start: Mapping[TopicPartition, int],
        from_offsets: Mapping[TopicPartition, int],
        unread_starts: Mapping[TopicPartition, int],
        expired: Mapping[TopicPartition, int],
    ) -> None:
        """Report expired records when a batch skips them: earlier calls, without a batch, may find them, too."""
        self._losses.report_added_late({tp: offset for tp, offset in unread_starts.items() if tp not in start})
        for tp, log_start in sorted(expired.items()):
            self._losses.report_aged_out(tp, from_offsets[tp], log_start)

    def _start_unread_partitions(
        self,
        start: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        recreated_topics: Collection[str],
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return where new partitions and those of recreated topics start, and up to where the batch may read."""
        unread_ends = {tp: end for tp, end in latest.items() if tp not in start or tp.topic in recreated_topics}
        unread_starts = self._start_added_partitions(unread_ends, ())  # reported with the batch that reads them
        deleted = unread_ends.keys() - unread_starts.keys()  # since their ends were fetched
        max_ends = {tp: end for tp, end in latest.items() if tp not in deleted}
        for tp in unread_starts.keys() & start.keys():  # those of recreated topics
            if unread_starts[tp] != start[tp]:
                # This batch reads nothing of a recreated topic, and only records the topic's start in the checkpoint.
                # Otherwise a restart would plan this batch again without the old topic id, and so without noticing
                # that the topic was recreated: it would read from the old offset.
                max_ends[tp] = unread_starts[tp]
        return unread_starts, max_ends

    def _limited_ends(
        self,
        start: Mapping[TopicPartition, int],
        from_offsets: Mapping[TopicPartition, int],
        max_ends: Mapping[TopicPartition, int],
        *,
        immediately: bool,
    ) -> dict[TopicPartition, int]:
        """Return the ends within all limits; the start itself if the batch waits for more records."""
        # With fixed ends no new records count, so minOffsetsPerTrigger would delay the last batch forever.
        if self._snapshots.fixed_end_offsets is None and self._limiter.should_wait(
            start, from_offsets, max_ends, immediately=immediately
        ):
            return dict(start)
        return self._limiter.limit_ends(start, from_offsets, max_ends)

    def _expired_log_starts(
        self, from_offsets: Mapping[TopicPartition, int], max_ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return log starts after the batch's start: there it begins, and what expired is reported.

        Empty with ``failOnDataLoss``: the task that reads there fails.
        """
        if self._fetch.fail_on_data_loss:
            return {}

        def fetch_log_starts(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            return self._offset_reader.offsets(dict.fromkeys(partitions, EARLIEST))

        def fetch_expired() -> Mapping[TopicPartition, int]:
            return expired_log_starts(from_offsets, max_ends, fetch_log_starts)

        return confirmed_starts(fetch_expired, self._offset_reader.raise_epoch_floors)

    def _resolve_initial_offsets(self) -> dict[TopicPartition, int]:
        """Resolve the start as far as possible, and store the error of a start that does not match the topics."""
        try:
            initial_offsets, topic_ids = self._resolve_initial_offsets_strictly()
        except (InvalidOffsetsError, TopicNotFoundError) as error:
            # A new query is rejected when Spark calls next_end_offsets. If an earlier run failed in its first batch,
            # Spark calls plan instead, with the end in the checkpoint.
            self._start_error = error
            assigned = self._offset_reader.assigned(strict=False)  # the existing ones
            topic_ids = assigned.topic_ids
            initial_offsets = resolve_known_start_offsets(self._source.start, assigned.partitions, self._offset_reader)
        self._history.put(initial_offsets, OffsetMetadata(topic_ids))
        return initial_offsets

    def _resolve_initial_offsets_strictly(self) -> tuple[dict[TopicPartition, int], Mapping[str, UUID]]:
        """Return the start offsets with the topics' ids; raise if the start does not match the assigned partitions."""
        max_attempts = self._source.confirmations
        responses = 0  # with topic ids that other metadata contradicts
        while True:
            try:
                assigned = self._offset_reader.assigned(strict=True)
                self._snapshots.fix_added_end_offsets(assigned)
                fixed_ends = self._snapshots.fixed_end_offsets
                partitions = assigned.partitions if fixed_ends is None else frozenset(fixed_ends)
                offsets = resolve_start_offsets(self._source.start, partitions, self._offset_reader, fixed_ends)
            except TopicNotFoundError:
                # A broker may not have the metadata of a new topic yet.
                max_attempts -= 1
                if max_attempts <= 0:
                    raise
            else:
                if are_topic_ids_current(assigned.topic_ids, self._offset_reader.known_topic_ids):
                    return offsets, assigned.topic_ids
                responses += 1
                if responses == MAX_METADATA_RESPONSES:
                    raise contradicting_metadata_error(assigned.partitions)
            self._offset_reader.wait()


class BatchLimiter:
    """Limits a micro-batch by the options, by the durations of earlier batches and by sampled record sizes."""

    def __init__(
        self,
        limits: ReadLimits,
        offset_reader: OffsetReader,
        clock: Callable[[], float],
        backpressure_limit: Callable[[Mapping[TopicPartition, int]], int | None] | None,
    ) -> None:
        self._limits = limits
        self._offset_reader = offset_reader
        self._clock = clock
        self._backpressure_limit = backpressure_limit
        self._gate = None if limits.min_offsets is None else MinOffsetsGate(limits.min_offsets, limits.max_delay)
        self._samples: dict[TopicPartition, RecordSizeSample] = {}  # merged with those of earlier batches
        self._sizes: dict[TopicPartition, float] = {}  # bytes per offset, from the samples

    def should_wait(
        self,
        start: Mapping[TopicPartition, int],
        from_offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int],
        *,
        immediately: bool,  # the batch must not wait, however small it is
    ) -> bool:
        """Return whether a batch would be too small and can wait for more records; otherwise begin the next delay."""
        if self._gate is None:
            return False
        known = {tp: offset for tp, offset in from_offsets.items() if tp in start}  # new ones count from 0, as in Spark
        return not self._gate.admit(count_new_offsets(known, end_offsets), self._clock(), immediately=immediately)

    def limit_ends(
        self,
        start: Mapping[TopicPartition, int],
        from_offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of the next batch."""
        by_duration = None if self._backpressure_limit is None else self._backpressure_limit(start)
        by_bytes = self._byte_limit(from_offsets, end_offsets)
        max_offsets = [limit for limit in (self._limits.max_offsets, by_duration, by_bytes) if limit is not None]
        return rate_limit(min(max_offsets), from_offsets, end_offsets) if max_offsets else dict(end_offsets)

    def _byte_limit(
        self, from_offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
    ) -> int | None:
        """Return how many offsets have about ``maxBytesPerTrigger`` bytes; ``None``: there is no such limit, or
        all new records fit."""
        max_bytes = self._limits.max_bytes
        lags = {tp: end - from_offsets[tp] for tp, end in end_offsets.items() if end > from_offsets[tp]}
        if max_bytes is None or not lags:
            return None
        # Samples of deleted topics would accumulate with a pattern.
        self._samples = {tp: sample for tp, sample in self._samples.items() if tp in end_offsets}
        self._sizes = {tp: size for tp, size in self._sizes.items() if tp in end_offsets}
        # Sample only the partitions with the most to read: sampling many takes too long.
        sampled_partitions = sorted(lags, key=lambda tp: (-lags[tp], tp))[:_MAX_SAMPLED_PARTITIONS]
        for tp, sample in self._offset_reader.samples({tp: from_offsets[tp] for tp in sampled_partitions}).items():
            merged = self._samples[tp] = merge_samples(sample, self._samples.get(tp))
            # A sample seldom contains the few huge records among tiny ones; if it does, its own mean size applies.
            self._sizes[tp] = max(sample.bytes_per_offset, merged.bytes_per_offset)
        # Sizes of other partitions are an estimate, if the partitions to read have none.
        sizes = {tp: size for tp, size in self._sizes.items() if tp in lags} or self._sizes
        if not sizes:
            self._offset_reader.warn(
                f"no record could be sampled for maxBytesPerTrigger; assuming {_DEFAULT_RECORD_BYTES} bytes per record"
            )
            sizes = dict.fromkeys(sampled_partitions, float(_DEFAULT_RECORD_BYTES))
        return byte_limit(max_bytes, from_offsets, end_offsets, sizes)
