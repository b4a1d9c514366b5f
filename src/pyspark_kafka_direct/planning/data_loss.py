"""Decides whether records were lost, what the error says, and where reading resumes.

A loss is an offset below the log start offset or beyond the end of the log, a deleted or recreated topic, or a log that
was truncated after it was read. Compaction gaps, control records and aborted records are normal. The facts must come
from the partition's leader at its current epoch: right after an election the end of the log may lag (KIP-207).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.offset_resolution import ResolvedOffset

_SKIP_ADVICE = "set failOnDataLoss=false to continue without them"


class DataLossCause(Enum):
    """The reason why records are unavailable."""

    AGED_OUT = "aged out"
    DELETED = "topic or partition deleted"
    RECREATED = "topic deleted and recreated"
    BEYOND_END = "beyond the end of the log"
    TRUNCATED = "log truncated"


@dataclass(frozen=True, slots=True)
class LeaderLogState:
    """The log of a partition as its leader reports it."""

    start: int
    end: int  # the high watermark, also with read_committed: an open transaction is not loss
    topic_id: UUID | None = None  # None if the broker has no topic ids (before Kafka 2.8)


@dataclass(frozen=True, slots=True)
class LossDecision:
    """Where to resume reading, and what was lost before that offset."""

    next_offset: int  # the range's until_offset if nothing is left to read
    lost: int = 0  # offsets skipped, or read and then replaced
    cause: DataLossCause | None = None
    message: str | None = None


def evaluate_loss(
    planned_range: OffsetRange,
    position: int,
    log: LeaderLogState | None,  # None if the topic or the partition does not exist
    *,
    planned_topic_id: UUID | None = None,
    from_earliest: bool = False,  # the range starts at the log start offset, not at an explicit offset
    fail_on_data_loss: bool = True,
) -> LossDecision:
    """Decide where to resume a range if its position may not be in the log; raise ``DataLossError`` for a loss.

    With ``fail_on_data_loss=False``, skip the lost offsets.
    """
    until = planned_range.until_offset
    if position >= until:
        return LossDecision(position)
    if log is None:
        return _loss_decision(planned_range, position, until, DataLossCause.DELETED, "", fail_on_data_loss)
    if planned_topic_id is not None and log.topic_id is not None and planned_topic_id != log.topic_id:
        detail = f": its id was {planned_topic_id} and is {log.topic_id} now"
        return _loss_decision(planned_range, position, until, DataLossCause.RECREATED, detail, fail_on_data_loss)
    if position < log.start:
        next_offset = min(log.start, until)
        # No loss before the first record is read: "earliest" means the current log start.
        if from_earliest and position == planned_range.from_offset:
            return LossDecision(next_offset)
        return _loss_decision(
            planned_range, position, next_offset, DataLossCause.AGED_OUT, _log_range_text(log), fail_on_data_loss
        )
    if position >= log.end:
        return _loss_decision(
            planned_range, position, until, DataLossCause.BEYOND_END, _log_range_text(log), fail_on_data_loss
        )
    return LossDecision(position)


def evaluate_truncation(
    planned_range: OffsetRange, position: int, truncated_to: int, *, fail_on_data_loss: bool = True
) -> LossDecision:
    """Decide how to continue after an unclean leader election truncated a log that was read (KIP-320).

    New records may have replaced the truncated ones. They are not read, because each offset is returned once.
    """
    # If the logs diverged more than once, truncated_to may lie after position. Then all records read may be replaced.
    first = max(planned_range.from_offset, truncated_to) if truncated_to < position else planned_range.from_offset
    message = _loss_message(
        planned_range.topic_partition,
        first,
        position,
        DataLossCause.TRUNCATED,
        f": it was truncated to offset {truncated_to}",
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{message}; read the range again to get the current records, or set failOnDataLoss=false to continue",
            topic=planned_range.topic,
            partition=planned_range.partition,
            offset=position,
        )
    return LossDecision(
        position, position - first, DataLossCause.TRUNCATED, f"{message}; reading continues (failOnDataLoss=false)"
    )


def clip_to_log(
    tp: TopicPartition,
    start: ResolvedOffset,
    end: ResolvedOffset,
    log_start: int,
    log_end: int | None,  # None with read_committed, because offsets after the last stable offset are only uncommitted
    *,
    fail_on_data_loss: bool = True,
) -> tuple[OffsetRange, list[str]]:
    """Clip a resolved start and end to the current log; return the range, and warnings of what was skipped."""
    first, until = start.offset, end.offset
    warnings: list[str] = []

    def report_loss(lost_from: int, lost_until: int, cause: DataLossCause, detail: str) -> None:
        message = _loss_message(tp, lost_from, lost_until, cause, detail)
        if fail_on_data_loss:
            raise DataLossError(f"{message}; {_SKIP_ADVICE}", topic=tp.topic, partition=tp.partition)
        warnings.append(f"{message}; they are skipped (failOnDataLoss=false)")

    if first > until:
        if start.origin == "earliest":
            warnings.append(f"{tp}: the log starts at offset {first}, after the requested end {until}: nothing to read")
        elif end.origin != "latest":
            raise InvalidOffsetsError(
                f"the resolved start offset {first} ({start.origin}) is greater than the resolved end offset {until} "
                f"({end.origin}); check both options, and whether the topic was deleted and recreated",
                topic=tp.topic,
                partition=tp.partition,
            )
        elif log_end is None:
            warnings.append(
                f"{tp}: the start offset {first} lies after the last stable offset {until}: nothing to read yet"
            )
        else:
            report_loss(until, first, DataLossCause.BEYOND_END, f": it ends at {log_end}")
        return OffsetRange(tp.topic, tp.partition, until, until), warnings
    if first < min(log_start, until):
        report_loss(first, min(log_start, until), DataLossCause.AGED_OUT, f": it starts at {log_start}")
        first = min(log_start, until)
    if log_end is not None and max(first, log_end) < until:
        report_loss(max(first, log_end), until, DataLossCause.BEYOND_END, f": it ends at {log_end}")
        until = max(first, log_end)
    return OffsetRange(tp.topic, tp.partition, first, until), warnings


def _loss_decision(
    planned_range: OffsetRange,
    position: int,
    next_offset: int,
    cause: DataLossCause,
    detail: str,
    fail_on_data_loss: bool,
) -> LossDecision:
    message = _loss_message(planned_range.topic_partition, position, next_offset, cause, detail)
    if fail_on_data_loss:
        raise DataLossError(
            f"{message}; {_SKIP_ADVICE}", topic=planned_range.topic, partition=planned_range.partition, offset=position
        )
    warning = f"{message}; they are skipped (failOnDataLoss=false)"
    return LossDecision(next_offset, next_offset - position, cause, warning)


def _loss_message(tp: TopicPartition, first: int, until: int, cause: DataLossCause, detail: str) -> str:
    description = {
        DataLossCause.AGED_OUT: "were removed by retention before they were read",
        DataLossCause.DELETED: "are lost: the topic or the partition was deleted",
        DataLossCause.RECREATED: "are lost: the topic was deleted and recreated",
        DataLossCause.BEYOND_END: "lie beyond the end of the log: the offset is wrong, or the topic was deleted and "
        "recreated, or an unclean leader election truncated its log",
        DataLossCause.TRUNCATED: "were read before an unclean leader election removed them from the log; records "
        "that replaced them are not read",
    }[cause]
    return f"data loss ({cause.value}): offsets [{first}, {until}) of {tp} {description}{detail}"


def _log_range_text(log: LeaderLogState) -> str:
    return f": the log now holds [{log.start}, {log.end})"
