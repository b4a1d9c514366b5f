"""Data loss: what happened, what to say, and where reading goes on.

Records are lost when an offset that was asked for lies below the log start offset or beyond the end of the log. They
are lost when the topic is gone, and when what was read is no longer what the log holds. Six things can happen to
offsets, and only the first four are loss:

    aged out        retention (or DeleteRecords) moved the log start offset past what was asked for
    deleted         the topic or the partition does not exist any more
    recreated       the topic was deleted and created again: its topic id changed, or its log is shorter than what
                    was asked for (a log cut by an unclean leader election looks the same, and is told the same)
    cut back        an unclean leader election removed the end of the log after it was read, and a broker tells so
    compacted       holes that compaction left between existing records: normal
    transactional   control records and aborted records: normal

``failOnDataLoss=true`` turns loss into ``DataLossError``; ``false`` reads what is left. The facts must come from the
partition's leader at its current epoch, after retries, and never from a follower. Right after an election the end of
the log may still lag (KIP-207), so that is no fact yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import DataLossError, OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.resolve import Bound

_SKIP_ADVICE = "set failOnDataLoss=false to go on without them"


class LossEvent(Enum):
    """What made records unavailable."""

    AGED_OUT = "aged out"
    DELETED = "topic or partition deleted"
    RECREATED = "topic deleted and recreated"
    BEYOND_END = "beyond the end of the log"
    CUT = "log cut back"


@dataclass(frozen=True, slots=True)
class LogState:
    """What a partition's leader says of its log.

    Attributes:
        start: Log start offset.
        end: High watermark (also under ``read_committed``: an open transaction is not loss).
        topic_id: The topic's id now; ``None`` where the broker has none (before Kafka 2.8).
    """

    start: int
    end: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where to go on reading, and what was lost on the way.

    Attributes:
        next_offset: Offset to fetch next; equal to the range's ``until_offset`` when nothing is left of it.
        lost: Number of offsets skipped, or read and then replaced; 0 when nothing was lost.
        event: What happened; ``None`` when nothing was lost.
        message: The warning to log; ``None`` when nothing was lost.
    """

    next_offset: int
    lost: int = 0
    event: LossEvent | None = None
    message: str | None = None


def judge(
    wanted: OffsetRange,
    position: int,
    log: LogState | None,
    *,
    planned_topic_id: UUID | None = None,
    from_earliest: bool = False,
    fail_on_data_loss: bool = True,
) -> Verdict:
    """Decide what an offset out of range, an exhausted log or a vanished partition means for a range being read.

    Args:
        wanted: The planned range.
        position: The next offset to read, within the range.
        log: The partition's log now; ``None`` when topic or partition does not exist.
        planned_topic_id: The topic's id when the range was planned, if known.
        from_earliest: The range begins at the log start offset, because that was asked for and not a number. As long as
            nothing of it was read, a later log start is no loss: it is what ``earliest`` means now. After that
            the records would be missing between others.
        fail_on_data_loss: The option.

    Returns:
        ``next_offset`` equal to ``position`` means that the offset is there: fetch it (again).

    Raises:
        DataLossError: Records are lost and ``fail_on_data_loss`` is true.
    """
    until = wanted.until_offset
    if position >= until:
        return Verdict(position)
    if log is None:
        return _lost(wanted, position, until, LossEvent.DELETED, "", fail_on_data_loss)
    if planned_topic_id is not None and log.topic_id is not None and planned_topic_id != log.topic_id:
        detail = f": it had the id {planned_topic_id} and has {log.topic_id} now"
        return _lost(wanted, position, until, LossEvent.RECREATED, detail, fail_on_data_loss)
    if position < log.start:
        next_offset = min(log.start, until)
        if from_earliest and position == wanted.from_offset:
            return Verdict(next_offset)
        return _lost(wanted, position, next_offset, LossEvent.AGED_OUT, _span(log), fail_on_data_loss)
    if position >= log.end:
        return _lost(wanted, position, until, LossEvent.BEYOND_END, _span(log), fail_on_data_loss)
    return Verdict(position)


def judge_cut(wanted: OffsetRange, position: int, cut_at: int, *, fail_on_data_loss: bool = True) -> Verdict:
    """Decide what it means that a log was cut back under a read (KIP-320), which only an unclean leader election does.

    Records that were handed out are gone then, and others may have come at their offsets. Those are not read: each
    offset is handed out once. So reading goes on where it was.

    Args:
        wanted: The planned range.
        position: The next offset to read, within the range.
        cut_at: Where the leader says that the common part of the log ends. Not before ``position`` if the logs parted
            more than once; then all that was read of the range is in doubt.
        fail_on_data_loss: The option.

    Raises:
        DataLossError: ``fail_on_data_loss`` is true.
    """
    first = max(wanted.from_offset, cut_at) if cut_at < position else wanted.from_offset
    text = _lost_text(wanted.topic_partition, first, position, LossEvent.CUT, f": it was cut at offset {cut_at}")
    if fail_on_data_loss:
        raise DataLossError(
            f"{text}; read the range again to have what the log holds now, or set failOnDataLoss=false to go on",
            topic=wanted.topic,
            partition=wanted.partition,
            offset=position,
        )
    return Verdict(position, position - first, LossEvent.CUT, f"{text}; reading goes on (failOnDataLoss=false)")


def clip(
    tp: TopicPartition,
    start: Bound,
    end: Bound,
    log_start: int,
    log_end: int | None,
    *,
    fail_on_data_loss: bool = True,
) -> tuple[OffsetRange, list[str]]:
    """Fit a planned start and end into the log as it is at planning.

    Args:
        tp: The partition.
        start: Resolved start.
        end: Resolved end.
        log_start: Log start offset.
        log_end: High watermark; ``None`` when only the last stable offset is known (``read_committed``): offsets
            beyond it are no loss, the records may just not be committed yet.
        fail_on_data_loss: The option.

    Returns:
        The range to read, and the warnings to give.

    Raises:
        DataLossError: Offsets given by number lie outside the log and ``fail_on_data_loss`` is true.
        OffsetPlanError: The start lies after an end that was asked for (Spark's
            RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET).
    """
    first, until = start.offset, end.offset
    warnings: list[str] = []

    def lose(lost_from: int, lost_until: int, event: LossEvent, detail: str) -> None:
        text = _lost_text(tp, lost_from, lost_until, event, detail)
        if fail_on_data_loss:
            raise DataLossError(f"{text}; {_SKIP_ADVICE}", topic=tp.topic, partition=tp.partition)
        warnings.append(f"{text}; they are skipped (failOnDataLoss=false)")

    if first > until:
        if start.origin == "earliest":
            warnings.append(f"{tp}: the log starts at offset {first}, after the given end {until}: nothing to read")
        elif end.origin != "latest":
            raise OffsetPlanError(
                f"the resolved start offset {first} ({start.origin}) is greater than the resolved end offset {until} "
                f"({end.origin}); check both positions, and whether the topic was deleted and created again",
                topic=tp.topic,
                partition=tp.partition,
            )
        elif log_end is None:
            warnings.append(f"{tp}: the start {first} lies after the last stable offset {until}: nothing to read yet")
        else:
            lose(until, first, LossEvent.BEYOND_END, f": it ends at {log_end}")
        return OffsetRange(tp.topic, tp.partition, until, until), warnings
    if first < min(log_start, until):
        lose(first, min(log_start, until), LossEvent.AGED_OUT, f": it starts at {log_start}")
        first = min(log_start, until)
    if log_end is not None and max(first, log_end) < until:
        lose(max(first, log_end), until, LossEvent.BEYOND_END, f": it ends at {log_end}")
        until = max(first, log_end)
    return OffsetRange(tp.topic, tp.partition, first, until), warnings


def _lost(
    wanted: OffsetRange, position: int, next_offset: int, event: LossEvent, detail: str, fail_on_data_loss: bool
) -> Verdict:
    text = _lost_text(wanted.topic_partition, position, next_offset, event, detail)
    if fail_on_data_loss:
        raise DataLossError(f"{text}; {_SKIP_ADVICE}", topic=wanted.topic, partition=wanted.partition, offset=position)
    message = f"{text}; they are skipped (failOnDataLoss=false)"
    return Verdict(next_offset, next_offset - position, event, message)


def _lost_text(tp: TopicPartition, first: int, until: int, event: LossEvent, detail: str) -> str:
    what = {
        LossEvent.AGED_OUT: "were removed by retention before they were read",
        LossEvent.DELETED: "are gone: the topic or the partition was deleted",
        LossEvent.RECREATED: "are gone: the topic was deleted and created again",
        LossEvent.BEYOND_END: "lie beyond the end of the log: the number is wrong, or the topic was deleted and "
        "created again, or its log was cut by an unclean leader election",
        LossEvent.CUT: "were read before an unclean leader election removed them from the log; what may have come in "
        "their place is not read",
    }[event]
    return f"data loss ({event.value}): offsets [{first}, {until}) of {tp} {what}{detail}"


def _span(log: LogState) -> str:
    return f": the log now holds [{log.start}, {log.end})"
