"""Decides whether records were lost: what counts as evidence, and where reading resumes.

A loss is an offset below the log start offset or beyond the end of the log, a deleted or recreated topic, or a log that
was truncated after it was read. Compaction gaps, control records and aborted records are normal. Planners, tasks,
continuous queries, the direct stream and the log follow the same rules:

1. Only the leader of the highest known epoch reports on its log (``EpochFloors``). A leader that was deposed while it
   was paused still responds, and a broker that lags behind still names it.
2. A topic or partition is missing, or was recreated, if all brokers that can be reached say so, at most three at a
   time, for at least five seconds (``AbsenceEvidence``).
3. An empty response below the high watermark proves a gap only if the broker reports where its local log begins
   (``evaluate_gap``), because records in tiered storage (KIP-405) can take any time.
4. What is skipped is logged with its evidence, and counted.

``loss_errors`` has the errors, and ``loss_report`` raises or counts what planners find.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    DataLossError,
    InvalidOffsetsError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.loss_errors import (
    SKIP_ADVICE,
    DataLossCause,
    SkippedLoss,
    error_context,
    fixed_ends_error,
    fixed_partitions_error,
    latest_ends_error,
    latest_partitions_error,
    loss_message,
    missing_error,
    recreated_error,
    recreated_topics_error,
    truncated_at_unknown_offset_error,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.offset_specs import ResolvedOffset

MAX_WITNESSES: Final = 3  # how many brokers get a request at once
CONFIRMATION_SECONDS: Final = 5.0  # metadata of a healthy broker lags by less
CONFIRMATION_STEP_SECONDS: Final = 1.0  # the longest pause between two requests for evidence
UNPROVEN_GAP_SECONDS: Final = 60.0  # other brokers return nothing while they fetch old records from slow storage

# A leader older than Kafka 2.2 returns too low a log end right after its election. So a log end before the fetch offset
# is confirmed by this many responses in a row. Newer leaders return an error until their end is reliable (KIP-207).
STALE_ENDS_TO_CONFIRM: Final = 5

# If all brokers report a lower leader epoch than was seen before for this share of default.api.timeout.ms, the cluster
# has lost its epochs. Metadata of a broker lags by seconds at most, and the other half remains for the request.
STALE_EPOCH_SHARE: Final = 0.5

MAX_EPOCH_FLOORS: Final = 20_000

_CONFIRMATION_SLACK: Final = CONFIRMATION_SECONDS  # for requests, and pauses between them


def confirmation_seconds(error: KafkaDirectError) -> float:
    """Return how long brokers need to confirm the loss of which an error is evidence; 0 if it is none."""
    return max(CONFIRMATION_SECONDS if isinstance(error, TopicNotFoundError) else 0.0, error.confirmation_seconds)


def confirmation_timeout(seconds: float) -> float:
    """Return the timeout of a confirmation that needs so many seconds; a user's timeout does not limit it."""
    return seconds + _CONFIRMATION_SLACK if seconds else 0.0


def lost_epochs_seconds(api_timeout: float) -> float:
    """Return for how long all brokers have to report lower leader epochs until these are accepted."""
    return max(STALE_EPOCH_SHARE * api_timeout, CONFIRMATION_SECONDS)


class EpochFloors:
    """The highest leader epoch seen of each partition, for as long as its topic id stays the same.

    A lower epoch belongs to a leader that was replaced. Without topic ids (before Kafka 2.8) a lower epoch can also be
    that of a recreated topic, and without epochs (-1, before Kafka 2.4) nothing is known: then there is no floor.
    Floors of deleted topics are evicted as those that were used least recently. Without a floor, witnesses decide.
    """

    def __init__(self, capacity: int = MAX_EPOCH_FLOORS) -> None:
        self._capacity = capacity
        self._floors: OrderedDict[tuple[UUID, TopicPartition], int] = OrderedDict()  # the last used one at the end
        self._stale_since: dict[tuple[UUID, TopicPartition], float] = {}  # only of partitions with a floor

    def raise_to(self, tp: TopicPartition, topic_id: UUID | None, epoch: int) -> None:
        """Remember an epoch, unless a higher one is known."""
        if topic_id is None or epoch < 0:
            return
        self._floors[topic_id, tp] = max(epoch, self._floors.get((topic_id, tp), -1))
        self._floors.move_to_end((topic_id, tp))
        if len(self._floors) > self._capacity:
            evicted, _ = self._floors.popitem(last=False)
            self._stale_since.pop(evicted, None)

    def is_stale(self, tp: TopicPartition, topic_id: UUID | None, epoch: int) -> bool:
        """Return whether an epoch is lower than one that was seen before."""
        return topic_id is not None and 0 <= epoch < self._floors.get((topic_id, tp), -1)

    def track_stale(self, tp: TopicPartition, topic_id: UUID | None, received_epoch: int, now: float) -> float | None:
        """Record an epoch, and return since when all received ones are stale; ``None`` if this one is not stale.

        Epochs that remain stale for long mean that the cluster has lost its epochs, and not that a broker lags behind.
        """
        if topic_id is None:  # has no floor, so it is never stale
            return None
        if not self.is_stale(tp, topic_id, received_epoch):  # also -1, from a broker that reports no epochs
            self._stale_since.pop((topic_id, tp), None)
            return None
        return self._stale_since.setdefault((topic_id, tp), now)

    def has_only_stale(self, tp: TopicPartition) -> bool:
        """Return whether the last received epoch of the partition was stale."""
        return any(stale == tp for _, stale in self._stale_since)

    def highest_if_all_stale(
        self, tp: TopicPartition, topic_id: UUID, reports: Collection[TopicReport], broker_count: int
    ) -> int | None:
        """Return the highest epoch that witnesses report, if there are enough of them and all epochs are stale."""
        # A report of another topic, or without the partition, gives -1, which is not stale: it lowers no floor.
        epochs = [
            (report.leader_epochs or {}).get(tp.partition, -1) if report.topic_id == topic_id else -1
            for report in reports
        ]
        # One broker that responds may be cut off from the others, with the leader that was deposed.
        if len(epochs) < min(broker_count // 2 + 1, MAX_WITNESSES):
            return None
        return max(epochs) if all(self.is_stale(tp, topic_id, epoch) for epoch in epochs) else None

    def drop(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Accept lower epochs: the cluster has lost its epochs, for example because it was restored."""
        self._floors.pop((topic_id, tp), None)
        self._stale_since.pop((topic_id, tp), None)


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A report of one broker's metadata about a topic."""

    node_id: int
    topic_id: UUID | None = None  # None without topic ids (before Kafka 2.8)
    leader_epochs: Mapping[int, int] | None = None  # by partition; None if the broker lacks the topic
    error_code: int = 0  # any but UNKNOWN_TOPIC_OR_PARTITION: the topic may exist

    def has(self, partition: int, topic_id: UUID | None) -> bool:
        """Return whether the partition exists or may exist, with this topic id if both are known."""
        return self.error_code != 0 or (
            self.leader_epochs is not None
            and partition in self.leader_epochs
            and not is_other_topic(topic_id, self.topic_id)
        )


def is_other_topic(known_id: UUID | None, found_id: UUID | None) -> bool:
    """Return whether a topic of the same name has another id; without ids (before Kafka 2.8) nothing is known."""
    return known_id is not None and found_id is not None and known_id != found_id


class Presence(Enum):
    """Reports of brokers about a partition that seemed to be missing."""

    PRESENT = "present"  # a broker has it: the other metadata was stale
    UNCONFIRMED = "unconfirmed"  # missing, but not for long enough, or brokers disagree how
    ABSENT = "absent"
    RECREATED = "recreated"


class AbsenceEvidence:
    """Collects reports about one partition that seems to be missing, until they suffice."""

    def __init__(self, tp: TopicPartition, topic_id: UUID | None) -> None:
        self._tp = tp
        self._topic_id = topic_id
        self._first_absent_at: float | None = None  # None while a broker has the partition
        self._agreed_since: float | None = None  # since when brokers agree how it is missing; None as above
        self._last_statement: tuple[Presence, UUID | None] | None = None  # None if brokers disagree
        self.new_topic_id: UUID | None = None  # of the recreated topic

    def add(self, reports: Iterable[TopicReport], now: float) -> Presence:
        """Add the reports that different brokers gave at one time; without any, nothing is confirmed."""
        reports = list(reports)
        if any(report.has(self._tp.partition, self._topic_id) for report in reports):
            self._agreed_since = self._first_absent_at = self._last_statement = None
            return Presence.PRESENT
        statements = {self._statement(report) for report in reports}
        statement = statements.pop() if len(statements) == 1 else None
        if self._agreed_since is None or statement is None or statement != self._last_statement:
            self._agreed_since = now  # the time of the confirmation starts, or starts again
            self._first_absent_at = now if self._first_absent_at is None else self._first_absent_at
        self._last_statement = statement
        if statement is None or now - self._agreed_since < CONFIRMATION_SECONDS:
            return Presence.UNCONFIRMED
        presence, self.new_topic_id = statement
        return presence

    @property
    def confirmation_seconds(self) -> float:
        """The time of the confirmation after the first report: longer if the topic was recreated meanwhile."""
        if self._agreed_since is None or self._first_absent_at is None:
            return CONFIRMATION_SECONDS
        return min(self._agreed_since - self._first_absent_at, CONFIRMATION_SECONDS) + CONFIRMATION_SECONDS

    def _statement(self, report: TopicReport) -> tuple[Presence, UUID | None]:
        """Return how the partition is missing, and the id of the topic that replaced its own."""
        if report.leader_epochs is not None and is_other_topic(self._topic_id, report.topic_id):
            return Presence.RECREATED, report.topic_id
        return Presence.ABSENT, None


class LostPartitions(NamedTuple):
    """The known partitions whose offsets no longer apply."""

    recreated: Mapping[TopicPartition, UUID]  # with the new topic ids
    missing: frozenset[TopicPartition]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return self.missing | self.recreated.keys()


def find_lost_partitions(
    known: Iterable[TopicPartition],
    known_ids: Mapping[TopicPartition, UUID],
    found: Container[TopicPartition],
    found_ids: Mapping[str, UUID],
) -> LostPartitions:
    """Compare known partitions with metadata; one response is no evidence until witnesses confirm it."""
    known = frozenset(known)
    recreated = {tp: found_ids[tp.topic] for tp in known if is_other_topic(known_ids.get(tp), found_ids.get(tp.topic))}
    return LostPartitions(recreated, frozenset(tp for tp in known if tp not in found and tp not in recreated))


def lower_end_offsets(
    known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end offsets that lie below known offsets: the log was truncated, or a deposed leader responded."""
    return {tp: end for tp, end in ends.items() if tp in known and end < known[tp]}


def has_later_leader(
    epochs: Mapping[TopicPartition, int], topic_id: UUID | None, reports: Iterable[TopicReport]
) -> bool:
    """Return whether brokers report a later leader of a partition than the one whose epoch is given."""
    reported = [report.leader_epochs for report in reports if report.topic_id == topic_id and report.leader_epochs]
    return any(
        0 <= epoch < by_partition.get(tp.partition, -1) for by_partition in reported for tp, epoch in epochs.items()
    )


def are_lower_ends_confirmed(responses: int, max_attempts: int) -> bool:
    """Return whether so many responses with lower ends suffice; the first one precedes the requests to witnesses."""
    return responses >= max(2, max_attempts)


def later_log_starts(
    from_offsets: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the log starts, at most the ends, that lie after the offsets to read from: records in between expired."""
    return {tp: min(offset, ends[tp]) for tp, offset in log_starts.items() if offset > from_offsets[tp]}


# Trigger.AvailableNow checks every batch against the end offsets fixed at the start of the query, as Spark's
# KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow does (SPARK-41996). Another check finds a recreated topic
# whose new log is as long as the old one. The checks ignore failOnDataLoss: a query that has to end could otherwise
# wait forever for deleted records. A batch that an earlier run planned is not checked (SPARK-53560).


def check_fixed_end_offsets(end: Mapping[TopicPartition, int], fixed_ends: Mapping[TopicPartition, int]) -> None:
    """Check a batch's end against the end offsets fixed at the start of the query."""
    if end.keys() != fixed_ends.keys():
        raise fixed_partitions_error(end, fixed_ends)
    if lower_end_offsets(end, fixed_ends):
        raise fixed_ends_error(end, fixed_ends)


def check_latest_offsets(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
    """Check that the records of a batch still exist."""
    if not end.keys() <= latest.keys():
        raise latest_partitions_error(end, latest)
    if lower_end_offsets(end, latest):
        raise latest_ends_error(end, latest)


def check_not_recreated(lost: LostPartitions) -> None:
    """Check that no topic of a batch was recreated."""
    if lost.recreated:
        raise recreated_topics_error({tp.topic for tp in lost.recreated})


class GapDecision(Enum):
    """Kinds of offsets below the high watermark for which the leader returns no records."""

    RETRY = "retry"
    GAP = "gap"  # there are no records
    UNKNOWN = "unknown"  # there may be records: ``failOnDataLoss`` decides


def evaluate_gap(position: int, local_log_start: int | None, no_data_seconds: float) -> GapDecision:
    """Decide about empty responses at a position; ``local_log_start`` is None if the broker does not report it."""
    if local_log_start is None:
        return GapDecision.UNKNOWN if no_data_seconds >= UNPROVEN_GAP_SECONDS else GapDecision.RETRY
    if position < local_log_start:
        return GapDecision.RETRY  # the records are in tiered storage, and arrive however long that takes
    # One response may be empty for a moment, for example while the leader reassigns its log to another disk.
    return GapDecision.GAP if no_data_seconds >= CONFIRMATION_SECONDS else GapDecision.RETRY


@dataclass(frozen=True, slots=True)
class LeaderLogState:
    """The log of a partition as its leader reports it."""

    start: int
    end: int  # the high watermark, also with read_committed: an open transaction is not loss
    topic_id: UUID | None = None  # None if the broker has no topic ids (before Kafka 2.8)

    @property
    def range_message(self) -> str:
        return f": the log now holds [{self.start}, {self.end})"

    def is_end_unconfirmed(self, needed_end: int, *, end_may_be_stale: bool, responses: int) -> bool:
        """Return whether an end below the needed one has to be reported again, after so many responses."""
        return self.end < needed_end and end_may_be_stale and responses < STALE_ENDS_TO_CONFIRM


@dataclass(frozen=True, slots=True)
class LossDecision:
    """The offset to resume at, and what was lost before it."""

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

    def lost_until(next_offset: int, cause: DataLossCause, detail: str) -> LossDecision:
        message = loss_message(planned_range.topic_partition, position, next_offset, cause, detail)
        if fail_on_data_loss:
            raise DataLossError(f"{message}; {SKIP_ADVICE}", **error_context(planned_range.topic_partition, position))
        warning = f"{message}; they are skipped (failOnDataLoss=false)"
        return LossDecision(next_offset, next_offset - position, cause, warning)

    if position >= until:  # all records of the range are read
        return LossDecision(position)
    if log is None:
        return lost_until(until, DataLossCause.DELETED, detail="")
    if is_other_topic(planned_topic_id, log.topic_id):
        detail = f": its id was {planned_topic_id} and is {log.topic_id} now"
        return lost_until(until, DataLossCause.RECREATED, detail)
    if position < log.start:
        next_offset = min(log.start, until)
        # No loss before the first record is read: "earliest" means the current log start.
        if from_earliest and position == planned_range.from_offset:
            return LossDecision(next_offset)
        return lost_until(next_offset, DataLossCause.AGED_OUT, log.range_message)
    if position >= log.end:
        return lost_until(until, DataLossCause.BEYOND_END, log.range_message)
    return LossDecision(position)


def evaluate_truncation(
    planned_range: OffsetRange, position: int, truncated_to: int, *, fail_on_data_loss: bool = True
) -> LossDecision:
    """Decide how to continue after an unclean leader election truncated a log that was read (KIP-320).

    New records may have replaced the truncated ones. They are not read, because each offset is returned once.
    """
    # If the logs diverged more than once, truncated_to may lie after position. Then all records read may be replaced.
    first = max(planned_range.from_offset, truncated_to) if truncated_to < position else planned_range.from_offset
    message = loss_message(
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


def out_of_range_error(
    tp: TopicPartition,
    position: int,
    log: LeaderLogState,
    *,
    served_by_leader: bool,  # whether a leader returned data before: then a log that ends earlier was truncated
) -> DataLossError:
    """Return the error of a read without an end whose position is not in the log."""
    log_range = f"the log now contains [{log.start}, {log.end})"
    if position < log.start:
        return DataLossError(
            f"offsets [{position}, {log.start}) were deleted by retention or DeleteRecords before they were read; "
            f"{log_range}. To continue, resume at the log start {log.start}.",
            **error_context(tp, position),
        )
    if served_by_leader:
        return truncated_at_unknown_offset_error(tp, position)
    return DataLossError(
        f"the offset lies beyond the end of the log: {log_range}. The offset is wrong or of another cluster, the "
        "log was truncated, or the topic was recreated.",
        **error_context(tp, position),
    )


def topic_error(tp: TopicPartition, known_id: UUID | None, report: TopicReport) -> TopicNotFoundError | None:
    """Return the error if a broker reports that the partition does not exist or that its topic was recreated."""
    if report.leader_epochs is None:
        return missing_error(tp)
    if is_other_topic(known_id, report.topic_id):
        return recreated_error(tp, known_id, report.topic_id)
    if tp.partition not in report.leader_epochs:
        return TopicNotFoundError(
            f"The topic has no such partition; it has {len(report.leader_epochs)}.",
            topic=tp.topic,
            partition=tp.partition,
        )
    return None


def resume_offset(error: DataLossError | TopicNotFoundError, position: int, start: int, end: int) -> int:
    """Return where a query resumes after a loss, in a log with these bounds; no offset is read twice."""
    if isinstance(error, TopicRecreatedError):
        return start
    if isinstance(error, DataLossError) and error.resume_offset is not None:  # that of `unproven_gap_error`
        return error.resume_offset
    return max(min(position, end), start)


def loss_cause(error: DataLossError | TopicNotFoundError, position: int, start: int, end: int) -> DataLossCause | None:
    """Return the cause of a loss in a log with these bounds; None if the log has the position by now."""
    if isinstance(error, TopicNotFoundError):
        return DataLossCause.RECREATED if isinstance(error, TopicRecreatedError) else DataLossCause.DELETED
    if error.resume_offset is not None:  # only that of `unproven_gap_error`: no bound of the log shows such a gap
        return DataLossCause.UNPROVEN_GAP
    if isinstance(error, TruncatedError):
        return DataLossCause.TRUNCATED
    if position < start:
        return DataLossCause.AGED_OUT
    return DataLossCause.BEYOND_END if position > end else None


def reread_offset(
    error: DataLossError, position: int, start: int, end: int, *, read_committed: bool = False
) -> int | None:
    """Return from where a log's records may differ from those read, so that a copy rereads it; None: nowhere."""
    if error.resume_offset is not None:  # that of `unproven_gap_error`: the records read before the gap are the same
        return None
    if not isinstance(error, TruncatedError):  # an end before the position means another log
        return start if position > end else None
    if read_committed:  # earlier records may belong to a transaction whose marker was truncated, and may end otherwise
        return start
    return error.truncated_to if error.truncated_to is not None and error.truncated_to < position else start


def clip_to_log(
    tp: TopicPartition,
    start: ResolvedOffset,
    end: ResolvedOffset,
    log_start: int,
    log_end: int | None,  # None with read_committed, because offsets after the last stable offset are only uncommitted
    *,
    fail_on_data_loss: bool = True,
) -> tuple[OffsetRange, list[str], list[SkippedLoss]]:
    """Clip a resolved start and end to the current log; return the range, warnings, and what was skipped."""
    first, until = start.offset, end.offset
    warnings: list[str] = []
    losses: list[SkippedLoss] = []

    def report_loss(lost_from: int, lost_until: int, cause: DataLossCause, detail: str) -> None:
        message = loss_message(tp, lost_from, lost_until, cause, detail)
        if fail_on_data_loss:
            raise DataLossError(f"{message}; {SKIP_ADVICE}", topic=tp.topic, partition=tp.partition)
        skipped = {tp: lost_until - lost_from}
        losses.append(SkippedLoss(f"{message}; they are skipped (failOnDataLoss=false)", cause, skipped))

    if first > until:
        if start.origin == "earliest":  # retention has passed the end, and records before "earliest" are no loss
            warnings.append(f"{tp}: the log starts at offset {first}, after the requested end {until}: nothing to read")
        elif end.origin != "latest":  # two options contradict each other
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
        return OffsetRange(tp.topic, tp.partition, until, until), warnings, losses
    first_existing = min(log_start, until)
    if first < first_existing:
        report_loss(first, first_existing, DataLossCause.AGED_OUT, f": it starts at {log_start}")
        first = first_existing
    if log_end is not None and (existing_end := max(first, log_end)) < until:
        report_loss(existing_end, until, DataLossCause.BEYOND_END, f": it ends at {log_end}")
        until = existing_end
    return OffsetRange(tp.topic, tp.partition, first, until), warnings, losses
