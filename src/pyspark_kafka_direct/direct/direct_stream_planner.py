"""Plans the batches of the direct stream, and decides where it starts.

A batch starts where the previous one ended, and ends at the end of the logs or at its limit. Unlike the planner of a
streaming query (``datasource.micro_batch_planner``) it skips no partition: a deleted, truncated or recreated one fails
the batch, and the next batch starts at the same offsets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeAlias

from pyspark_kafka_direct.errors import InvalidOffsetsError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.planning.backpressure import clamp_ends
from pyspark_kafka_direct.planning.data_loss import (
    LostPartitions,
    find_lost_partitions,
    lower_end_offsets,
)
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.planning.offset_reader import (
    MAX_METADATA_RESPONSES,
    are_topic_ids_current,
    contradicting_metadata_error,
    topic_ids_by_partition,
)
from pyspark_kafka_direct.planning.read_limits import expired_log_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss

_log = logging.getLogger("pyspark_kafka_direct.direct")

OffsetResetStrategy: TypeAlias = Literal["earliest", "latest", "none"]

_RESTART_STREAM_ADVICE = "start the stream with a new checkpoint directory, or none, and an offset that exists"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The state of a stream between two batches."""

    offsets: Mapping[TopicPartition, int]  # the next offset to read
    topic_ids: Mapping[str, UUID]  # when the topics were first discovered, if the brokers have ids


@dataclass(frozen=True, slots=True)
class DirectBatchPlan:
    """The plan of a batch."""

    ranges: tuple[OffsetRange, ...]  # one for each partition, including empty ones
    topic_ids: Mapping[str, UUID]  # at planning, if the brokers have ids
    # Offsets in the ranges whose records are known to be deleted; tasks skip them. 0 if there is no limit, because log
    # starts are then unknown.
    deleted_offset_count: int = 0


class DirectOffsetReader(Protocol):
    """Reads offsets from the cluster; every call may raise ``BrokerError`` after its own retries."""

    def assigned(self, tracked: Collection[TopicPartition]) -> Mapping[TopicPartition, UUID | None]:
        """Return the partitions to read that exist now, with their topic ids if the brokers have these."""

    def known_topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """Return the topic ids of the metadata that the last offsets came with, as far as they are known."""

    def new_partition_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the start offsets of partitions that were created after the stream started."""

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of these partitions; raise ``TopicNotFoundError`` if one is missing."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return high watermarks: with ``read_committed`` they may lie after ``latest``."""

    def record_limits(
        self, from_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        """Return how many records a batch may have of each partition; ``None`` is no limit."""

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return log start offsets if tasks skip lost records, else an empty mapping."""

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
        """Return which of these partitions, with topic ids if known, brokers agree to be missing or recreated."""

    def wait(self) -> None:
        """Pause before a retry, and use another broker for it."""

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        """Read offsets only from leaders of the highest epoch that brokers report."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The offsets of a partition's log as its leader reports them."""

    start: int
    readable_end: int  # the last stable offset with read_committed, else the same as end
    end: int  # the high watermark

    def contains(self, offset: int) -> bool:
        """Return whether reading can start at an offset; at the end it waits for the next record."""
        return self.start <= offset <= self.end

    def __str__(self) -> str:
        return f"{self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """The first offset to read of each partition, and warnings to log."""

    offsets: dict[TopicPartition, int]
    warnings: tuple[str, ...] = ()


def plan_direct_batch(position: StreamPosition, offset_reader: DirectOffsetReader) -> DirectBatchPlan:
    """Return the ranges of the batch that starts at a position."""
    for _ in range(MAX_METADATA_RESPONSES):
        assigned = _confirmed_partitions(position, offset_reader)
        _check_not_lost(position, assigned)
        failure: KafkaDirectError
        try:
            batch = _plan_assigned(position, assigned, offset_reader)
        except TopicNotFoundError as error:  # it was deleted since the metadata refresh, or one broker lacks it
            failure = error
        else:
            if are_topic_ids_current(batch.topic_ids, offset_reader.known_topic_ids):
                return batch
            # A broker lags behind, or a topic was recreated: ids and offsets may be of different topics.
            failure = contradicting_metadata_error(assigned)
        offset_reader.wait()
    raise failure


def topic_ids_of(assigned: Mapping[TopicPartition, UUID | None]) -> dict[str, UUID]:
    """Return the ids of the topics, as far as they are known."""
    return {tp.topic: topic_id for tp, topic_id in assigned.items() if topic_id is not None}


def decide_start_offsets(
    explicit: Mapping[TopicPartition, int | None],  # every partition; None without an explicit offset
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogOffsets],
    *,
    reset: OffsetResetStrategy,
    group: str | None,  # for messages
) -> StartOffsets:
    """Decide where a new stream starts: at an explicit offset, a committed one, or by ``auto.offset.reset``.

    A committed offset outside the log is invalid: retention deleted its record, or the topic was recreated. Then
    ``auto.offset.reset`` applies as in Java's consumer, and with ``none`` the stream is rejected. Spark's own stream
    fails its first batch at such an offset.
    """
    offsets: dict[TopicPartition, int] = {}
    warnings: list[str] = []
    for tp, explicit_offset in sorted(explicit.items()):
        log = logs[tp]
        committed_offset = committed.get(tp)
        if explicit_offset is not None:
            _check_explicit(tp, explicit_offset, log)
            offsets[tp] = explicit_offset
        elif committed_offset is not None and log.contains(committed_offset):
            offsets[tp] = committed_offset
        elif reset != "none":
            offsets[tp] = log.start if reset == "earliest" else log.readable_end
            if committed_offset is not None:
                start = f"it starts at {offsets[tp]} (auto.offset.reset={reset})"
                warnings.append(f"{_out_of_range_text(tp, committed_offset, log, group)}; {start}")
        elif committed_offset is not None:
            _reject_committed(tp, committed_offset, log, group)
    missing = sorted(tp for tp in explicit if tp not in offsets)
    if missing:
        reason = "there is no group.id" if group is None else f"the group {group!r} has not committed one"
        raise InvalidOffsetsError(
            f"no offset to start at for {listed(missing)}: there is no explicit offset, {reason}, and "
            "auto.offset.reset is none; pass offsets to the consumer strategy, commit some, or set auto.offset.reset "
            "to earliest or latest",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )
    return StartOffsets(offsets, tuple(warnings))


def decide_new_partition_offsets(
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogOffsets],
    *,
    reset: OffsetResetStrategy,
    group: str | None,
) -> StartOffsets:
    """Decide where partitions created after the stream started begin: at committed offsets, else at the log start.

    ``auto.offset.reset=latest`` does not apply, because it would skip the records between the creation of a partition
    and its discovery, as Spark's stream does. A committed offset outside the log is invalid, as in
    ``decide_start_offsets``: with ``none`` it is rejected, otherwise the partition starts at the log start.
    """
    offsets: dict[TopicPartition, int] = {}
    warnings: list[str] = []
    for tp, log in sorted(logs.items()):
        committed_offset = committed.get(tp)
        if committed_offset is not None and log.contains(committed_offset):
            offsets[tp] = committed_offset
            continue
        offsets[tp] = log.start
        if committed_offset is not None:
            if reset == "none":
                _reject_committed(tp, committed_offset, log, group)
            reason = _out_of_range_text(tp, committed_offset, log, group)
            warnings.append(f"{reason}; it starts at {log.start} (the log start)")
        elif log.start > 0:
            warnings.append(
                f"data loss: the new partition {tp} starts at offset {log.start}, its records before that were removed "
                "before they were read"
            )
    return StartOffsets(offsets, tuple(warnings))


def _plan_assigned(
    position: StreamPosition, assigned: Mapping[TopicPartition, UUID | None], offset_reader: DirectOffsetReader
) -> DirectBatchPlan:
    """Plan a batch of partitions that exist; report ends below the position as data loss."""
    from_offsets: dict[TopicPartition, int] = {
        **position.offsets,
        **_start_new_partitions(position, assigned, offset_reader),
    }
    latest = offset_reader.latest(from_offsets)
    _report_lower_ends(from_offsets, latest, offset_reader)
    # A start may lie after the last stable offset: then the range is empty.
    readable_ends = {tp: max(end, from_offsets[tp]) for tp, end in latest.items()}
    end_offsets, later_log_starts = _limited_ends(from_offsets, readable_ends, offset_reader)
    # A range starts where the last one ended even if its first records are deleted: the task reports that, and users
    # who store offsets see no gap.
    ranges = tuple(
        OffsetRange(tp.topic, tp.partition, from_offsets[tp], end_offsets[tp]) for tp in sorted(from_offsets)
    )
    deleted_offset_count = sum(log_start - from_offsets[tp] for tp, log_start in later_log_starts.items())
    return DirectBatchPlan(ranges, topic_ids_of(assigned), deleted_offset_count)


def _limited_ends(
    from_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offset_reader: DirectOffsetReader
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the ends within the limits, and the log starts after the batch's start, which only a limit needs."""
    limits = offset_reader.record_limits(from_offsets, ends)
    if limits is None:
        return ends, {}  # saves the requests for log starts
    later_log_starts = expired_log_starts(from_offsets, ends, offset_reader.log_starts)
    if not later_log_starts:
        return clamp_ends(from_offsets, ends, limits), {}
    # A limit does not count deleted records, which tasks skip.
    existing = {**from_offsets, **later_log_starts}
    return clamp_ends(existing, ends, offset_reader.record_limits(existing, ends)), later_log_starts


def _confirmed_partitions(
    position: StreamPosition, offset_reader: DirectOffsetReader
) -> Mapping[TopicPartition, UUID | None]:
    """Return the partitions that exist; missing and recreated ones are confirmed by several brokers."""
    for _ in range(MAX_METADATA_RESPONSES):
        assigned = offset_reader.assigned(position.offsets)
        suspects = {tp: position.topic_ids.get(tp.topic) for tp in _lost_partitions(position, assigned).partitions}
        if not suspects or suspects.keys() <= set(offset_reader.confirm_missing(suspects)):
            return assigned
        offset_reader.wait()
    raise contradicting_metadata_error(position.offsets)


def _check_not_lost(position: StreamPosition, assigned: Mapping[TopicPartition, UUID | None]) -> None:
    """Raise DataLossError if a partition of the stream is missing, or its topic was recreated."""
    _losses().report_lost(
        _lost_partitions(position, assigned), topic_ids_by_partition(position.offsets, position.topic_ids)
    )


def _lost_partitions(position: StreamPosition, assigned: Mapping[TopicPartition, UUID | None]) -> LostPartitions:
    known_ids = topic_ids_by_partition(position.offsets, position.topic_ids)
    return find_lost_partitions(position.offsets, known_ids, assigned, topic_ids_of(assigned))


def _start_new_partitions(
    position: StreamPosition, assigned: Mapping[TopicPartition, UUID | None], offset_reader: DirectOffsetReader
) -> Mapping[TopicPartition, int]:
    new = sorted(tp for tp in assigned if tp not in position.offsets)
    if not new:
        return {}
    _log.info("new partitions: %s", listed(new))
    return offset_reader.new_partition_offsets(new)


def _report_lower_ends(
    from_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], offset_reader: DirectOffsetReader
) -> None:
    """Report high watermarks below the next offset to read as data loss; last stable offsets may lie there."""
    lower_ends = lower_end_offsets(from_offsets, latest).keys()
    if lower_ends and (lower := _lower_high_watermarks(from_offsets, lower_ends, offset_reader)):
        offset_reader.raise_epoch_floors({tp.topic for tp in lower})  # a deposed leader may have responded
        _losses().report_offsets_changed(from_offsets, _lower_high_watermarks(from_offsets, lower, offset_reader))


def _lower_high_watermarks(
    from_offsets: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    offset_reader: DirectOffsetReader,
) -> dict[TopicPartition, int]:
    """Return those of the partitions' high watermarks that lie before the next offset to read."""
    return lower_end_offsets(from_offsets, offset_reader.high_watermarks(partitions))


def _losses() -> LossReport:
    return LossReport(fail_on_data_loss=True, context=_FixedSelection(), advice=_RESTART_STREAM_ADVICE)


class _FixedSelection:
    """The context of a stream whose subscription never changes: a missing partition was deleted."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return ()

    def report_loss(self, loss: SkippedLoss) -> None:
        _log.warning("%s", loss.message)


def _check_explicit(tp: TopicPartition, offset: int, log: LogOffsets) -> None:
    if not log.contains(offset):
        _reject(
            tp,
            offset,
            f"the start offset {offset} is not in the log, which holds {log}; use an offset in the log, or none to "
            "start according to auto.offset.reset",
        )


def _reject_committed(tp: TopicPartition, offset: int, log: LogOffsets, group: str | None) -> NoReturn:
    _reject(
        tp,
        offset,
        f"{_out_of_range_text(tp, offset, log, group)}, and auto.offset.reset is none; commit an offset in the log, "
        "pass one to the consumer strategy, or set auto.offset.reset to earliest or latest",
    )


def _reject(tp: TopicPartition, offset: int, reason: str) -> NoReturn:
    raise InvalidOffsetsError(reason, topic=tp.topic, partition=tp.partition, offset=offset)


def _out_of_range_text(tp: TopicPartition, offset: int, log: LogOffsets, group: str | None) -> str:
    cause = (
        "retention deleted the records" if offset < log.start else "the topic was recreated, or its log was truncated"
    )
    return f"the committed offset {offset} of group {group!r} for {tp} is not in the log, which holds {log} ({cause})"
