"""Decisions of a continuous query: which task reads what, what the reports of an epoch add up to, when to restart.

A *run* is one Spark job of long-running tasks. An *epoch* ends when every task has flushed its sink and reported its
positions, the next offsets to read. A run ends when something fails or the set of partitions changes; the next run
resumes at the end of the last completed epoch.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    CheckpointFencedError,
    ColumnError,
    DataLossError,
    InvalidOffsetsError,
    KafkaDirectError,
    MalformedPayloadError,
    OptionError,
    QueryRunError,
    SchemaError,
    TimestampOverflowError,
    TlsError,
    TransactionStateError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

# The sorted partitions of each task, by task index.
TaskAssignment: TypeAlias = tuple[tuple[TopicPartition, ...], ...]

_MAX_LISTED = 5  # partitions or tasks that an error names

# Errors that a restart cannot resolve.
_FINAL_ERRORS: Final = (
    AuthenticationError,
    AuthorizationError,
    CheckpointFencedError,
    ColumnError,
    DataLossError,
    TransactionStateError,
    InvalidOffsetsError,
    MalformedPayloadError,
    OptionError,
    SchemaError,
    TimestampOverflowError,
    TlsError,
    UnsupportedBrokerError,
)
JOB_CANCELLED: Final = "SPARK_JOB_CANCELLED"  # Spark's error class: a user has cancelled the job, such as in the UI


def assign_partitions(
    partitions: Collection[TopicPartition],
    tasks_max: int | None = None,
    previous: Sequence[Collection[TopicPartition]] = (),  # by task of the last run, each partition once
) -> TaskAssignment:
    """Assign partitions to tasks; no task is empty, and their partition counts differ by at most one.

    As many partitions as possible stay with the task that read them in the last run. ``None`` for ``tasks_max`` means
    one task per partition.
    """
    if tasks_max is not None and tasks_max < 1:
        raise ValueError(f"tasks_max must be at least 1, got {tasks_max}")
    assigned = set(partitions)
    task_count = len(assigned) if tasks_max is None else min(len(assigned), tasks_max)
    if not task_count:
        return ()
    # What each task read in the last run, and may continue to read.
    retained = [sorted(assigned.intersection(task)) for task in previous[:task_count]]
    retained += [[] for _ in range(task_count - len(retained))]
    smaller_size, larger_count = divmod(len(assigned), task_count)
    # The tasks with the most retained partitions get one partition more.
    by_size = sorted(range(task_count), key=lambda task: (-len(retained[task]), task))
    capacity = dict.fromkeys(by_size, smaller_size) | dict.fromkeys(by_size[:larger_count], smaller_size + 1)
    tasks = [retained[task][: capacity[task]] for task in range(task_count)]
    # Each of the other partitions goes to the task with the fewest partitions.
    by_fewest = [(len(partitions_of_task), task) for task, partitions_of_task in enumerate(tasks)]
    heapq.heapify(by_fewest)
    for partition in sorted(assigned.difference(*tasks)):
        size, task = by_fewest[0]
        tasks[task].append(partition)
        heapq.heapreplace(by_fewest, (size + 1, task))
    return tuple(tuple(sorted(task)) for task in tasks)


@dataclass(frozen=True, slots=True)
class RestartBudget:
    """A failure-rate limit: how many restarts are allowed within a time window."""

    max_restarts: int  # within the window; 0 for none
    window_seconds: float
    failures: tuple[float, ...] = ()  # monotonic times of those within the window, the oldest first

    def after_failure(self, now: float) -> RestartBudget | None:
        """Return the remaining restart budget, or ``None`` if the query has to stop."""
        failures = (*(failure for failure in self.failures if now - failure < self.window_seconds), now)
        return None if len(failures) > self.max_restarts else replace(self, failures=failures)


@dataclass(frozen=True, slots=True)
class EpochReport:
    """A task has flushed: its sink has written the output of everything before ``offsets``.

    Its sizes, and what was lost, are those since the last report.
    """

    epoch: int
    offsets: Mapping[TopicPartition, int]  # the next offset to read of each partition of the task
    rows: int  # written
    bytes: int  # of records read
    flush_ms: float  # of the sink
    rows_read: int = 0

    # Where the task resumed after data loss. Only these partitions may move to a lower offset.
    reset_positions: Mapping[TopicPartition, int] = field(default_factory=dict)

    # The ids of recreated topics that were detected, by the partitions that read them now.
    recreated_topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)

    # How many offsets were skipped by data loss, 0 if that is unknown.
    skipped_offsets: Mapping[DataLossCause, Mapping[TopicPartition, int]] = field(default_factory=dict)

    malformed_records: Mapping[TopicPartition, int] = field(default_factory=dict)
    schema_errors: Mapping[TopicPartition, int] = field(default_factory=dict)  # records whose schema cannot be used


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The result of a completed epoch."""

    epoch: int
    offsets: Mapping[TopicPartition, int]  # the next offset to read of every partition
    rows: int  # written by all tasks
    bytes: int  # of records read
    flush_ms: float  # of the slowest sink
    last: bool = False  # whether the run ends with this epoch
    rows_read: int = 0
    recreated_topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)  # of topics that are now read
    # One entry for each report and cause.
    skipped_offsets: tuple[tuple[DataLossCause, Mapping[TopicPartition, int]], ...] = ()
    # One entry for each report with any: malformed records, and those whose schema cannot be used.
    malformed_records: tuple[tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], ...] = ()

    def merged_with(self, next_epoch: EpochResult) -> EpochResult:
        """Merge this result with a later one, which ends the same epoch at later offsets."""
        return replace(
            next_epoch,
            rows=self.rows + next_epoch.rows,
            bytes=self.bytes + next_epoch.bytes,
            flush_ms=max(self.flush_ms, next_epoch.flush_ms),
            rows_read=self.rows_read + next_epoch.rows_read,
            recreated_topic_ids={**self.recreated_topic_ids, **next_epoch.recreated_topic_ids},
            skipped_offsets=(*self.skipped_offsets, *next_epoch.skipped_offsets),
            malformed_records=(*self.malformed_records, *next_epoch.malformed_records),
        )


def merge_task_reports(
    epoch: int,
    assignment: TaskAssignment,
    start_offsets: Mapping[TopicPartition, int],  # a partition without a start may report any offset
    reports: Mapping[int, EpochReport],  # by task
    *,
    last: bool = False,
) -> EpochResult:
    """Return the result of an epoch from the reports of all tasks.

    Raise ``QueryRunError`` if a report is missing or inconsistent, or if a position moved backwards without a data
    loss.
    """
    for task, report in reports.items():
        _check_report(epoch, assignment, start_offsets, task, report)
    if missing := [task for task in range(len(assignment)) if task not in reports]:
        only_task = missing[0] if len(missing) == 1 else None
        raise _report_error(epoch, f"no report of task {abbreviated(missing)}", only_task)
    reported = reports.values()
    offsets = {tp: offset for report in reported for tp, offset in report.offsets.items()}
    return EpochResult(
        epoch=epoch,
        offsets=dict(sorted(offsets.items())),
        rows=sum(report.rows for report in reported),
        bytes=sum(report.bytes for report in reported),
        flush_ms=max((report.flush_ms for report in reported), default=0.0),
        last=last,
        rows_read=sum(report.rows_read for report in reported),
        recreated_topic_ids={
            tp: topic_id for report in reported for tp, topic_id in report.recreated_topic_ids.items()
        },
        skipped_offsets=tuple(entry for report in reported for entry in report.skipped_offsets.items()),
        malformed_records=tuple(
            (report.malformed_records, report.schema_errors)
            for report in reported
            if report.malformed_records or report.schema_errors
        ),
    )


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The partitions of the cluster compared with those that a run reads."""

    new: frozenset[TopicPartition]  # that no task reads
    missing: frozenset[TopicPartition]  # that tasks read, but the metadata lacks
    end_run: bool  # end the run at an epoch, and start another one


def detect_partition_changes(
    reading: Collection[TopicPartition],  # by the tasks of the run
    existing: Collection[TopicPartition],
    previous: PartitionChanges | None = None,  # at the last refresh of the same run
) -> PartitionChanges:
    """Decide whether changed partitions end the run and start another one.

    New partitions do so immediately. A deleted one does if it is missing in two refreshes in a row, because a broker
    that has just started may lack metadata. The next run decides whether a deletion is data loss.
    """
    new, missing = frozenset(existing).difference(reading), frozenset(reading).difference(existing)
    deleted = missing & previous.missing if previous is not None else frozenset()
    return PartitionChanges(new, missing, end_run=bool(new or deleted))


def next_epoch_request_time(due: float, interval: float, now: float) -> float:
    """Return when the next epoch request is due: whole intervals after ``due``, and after ``now``."""
    next_due = due + interval
    if next_due > now:
        return next_due
    # By rounding, the result could be ``now``, and requests would follow without a pause.
    return max(due + interval * (math.floor((now - due) / interval) + 1), now + interval * 1e-3)


def abbreviated(items: Collection[object]) -> str:
    """Return the first few items, separated by commas, and how many more there are."""
    strings = [str(item) for _, item in zip(range(_MAX_LISTED), items, strict=False)]
    more = len(items) - len(strings)
    return ", ".join(strings) + (f" and {more} more" if more else "")


def final_error(error: BaseException) -> KafkaDirectError | None:
    """Return the error that ends a query; ``None`` if a restart may resolve it.

    A task reports only the class name of its error, so for its report the result is a new error of that class.
    """
    if isinstance(error, _FINAL_ERRORS):
        return error
    if not isinstance(error, QueryRunError) or error.cause_class is None:  # no report of a task
        return None
    if error.cause_class == JOB_CANCELLED:
        return error
    error_class = next((candidate for candidate in _error_classes() if candidate.__name__ == error.cause_class), None)
    if error_class is None or not issubclass(error_class, _FINAL_ERRORS):
        return None
    typed_error = error_class(
        error.message, topic=error.topic, partition=error.partition, offset=error.offset, broker=error.broker
    )
    typed_error.__cause__ = error
    return typed_error


def _check_report(
    epoch: int,
    assignment: TaskAssignment,
    start_offsets: Mapping[TopicPartition, int],
    task: int,
    report: EpochReport,
) -> None:
    if not 0 <= task < len(assignment):
        raise _report_error(epoch, f"there is no task {task}: the run has {len(assignment)}", task)
    if report.epoch != epoch:
        raise _report_error(epoch, f"task {task} reported epoch {report.epoch}", task)
    assigned = set(assignment[task])
    if missing := sorted(assigned - report.offsets.keys()):
        raise _report_error(epoch, f"task {task} did not report {abbreviated(missing)}", task)
    if unassigned := sorted(report.offsets.keys() - assigned):
        raise _report_error(epoch, f"task {task} reported {abbreviated(unassigned)}, which it does not read", task)
    for tp, offset in sorted(report.offsets.items()):
        min_offset = report.reset_positions.get(tp, start_offsets.get(tp, 0))
        if offset < min_offset:
            error = _report_error(epoch, f"task {task} moved back from offset {min_offset} to {offset}", task)
            error.topic, error.partition, error.offset = tp.topic, tp.partition, offset
            raise error


def _report_error(epoch: int, problem: str, task: int | None) -> QueryRunError:
    error = QueryRunError(f"The reports of epoch {epoch} do not add up: {problem}. Nothing of the epoch is committed.")
    error.task_index = task
    return error


def _error_classes() -> Iterator[type[KafkaDirectError]]:
    for member in vars(errors).values():
        if isinstance(member, type) and issubclass(member, KafkaDirectError):
            yield member
