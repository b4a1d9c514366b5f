"""Decisions of a continuous query: who reads what, what an epoch adds up to, when to start again.

A *run* is one Spark job of long-running tasks. An *epoch* ends when every task has flushed its sink and reported its
positions, which are the next offsets to read. A run ends when something fails, or when other partitions are to be read;
the next one goes on where the last whole epoch ended.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

Assignment: TypeAlias = tuple[tuple[TopicPartition, ...], ...]
"""The partitions of each task, sorted; the place in the tuple is the task's number."""

_NAMED = 5  # how many partitions or tasks an error names


def assign(
    partitions: Collection[TopicPartition],
    tasks_max: int | None = None,
    before: Sequence[Collection[TopicPartition]] = (),
) -> Assignment:
    """Return which task reads what: no two tasks differ by more than one partition, and none has nothing to do.

    Args:
        partitions: All that is to be read.
        tasks_max: Most tasks; ``None`` for one task for each partition.
        before: What the tasks of the last run read, each partition once. As many as possible stay where they were.

    Raises:
        ValueError: ``tasks_max`` is not at least 1.
    """
    if tasks_max is not None and tasks_max < 1:
        raise ValueError(f"tasks_max must be at least 1, got {tasks_max}")
    wanted = set(partitions)
    count = len(wanted) if tasks_max is None else min(len(wanted), tasks_max)
    if not count:
        return ()
    stay = [sorted(wanted.intersection(task)) for task in before[:count]]
    stay += [[] for _ in range(count - len(stay))]
    least, larger = divmod(len(wanted), count)
    # Those that have most keep one partition more.
    by_size = sorted(range(count), key=lambda task: (-len(stay[task]), task))
    room = dict.fromkeys(by_size, least) | dict.fromkeys(by_size[:larger], least + 1)
    tasks = [stay[task][: room[task]] for task in range(count)]
    open_tasks = [(len(tasks[task]), task) for task in range(count) if len(tasks[task]) < room[task]]
    heapq.heapify(open_tasks)
    for partition in sorted(wanted.difference(*tasks)):
        size, task = heapq.heappop(open_tasks)
        tasks[task].append(partition)
        if size + 1 < room[task]:
            heapq.heappush(open_tasks, (size + 1, task))
    return tuple(tuple(sorted(task)) for task in tasks)


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a query may start again: so many times within so many seconds.

    Attributes:
        most: Restarts that are allowed within the window; 0 for none.
        seconds: How long the window is.
        failures: When the failures were that still count, the oldest first, on a clock that never goes back.
    """

    most: int
    seconds: float
    failures: tuple[float, ...] = ()

    def after_failure(self, now: float) -> Restarts | None:
        """Return what is left after one more failure; ``None`` where the query must end."""
        failures = (*(each for each in self.failures if now - each < self.seconds), now)
        return None if len(failures) > self.most else replace(self, failures=failures)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task has done in an epoch.

    Attributes:
        task: The task's number.
        epoch: The epoch that has ended.
        offsets: The next offset to read of each of its partitions.
        rows: How many rows it has written.
        bytes: How many bytes of records it has read.
        flush_ms: How long its sink took to flush, in milliseconds.
        rows_read: How many rows it has read.
        sought: Where it went on in partitions whose logs no longer hold what was read before.
        anew: The ids of the topics that it has found created anew, by the partitions in which it reads these now.
    """

    task: int
    epoch: int
    offsets: Mapping[TopicPartition, int]
    rows: int
    bytes: int
    flush_ms: float
    rows_read: int = 0
    sought: Mapping[TopicPartition, int] = field(default_factory=dict)
    anew: Mapping[TopicPartition, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """A whole epoch.

    Attributes:
        epoch: Its number.
        offsets: The next offset to read of every partition.
        rows: How many rows all tasks have written.
        bytes: How many bytes of records they have read.
        flush_ms: How long the slowest sink took to flush, in milliseconds.
        last: Whether it ended by a mark that stops the run.
        rows_read: How many rows all tasks have read.
        anew: The ids of topics that were created anew, by the partitions whose offsets are of these from now on.
    """

    epoch: int
    offsets: Mapping[TopicPartition, int]
    rows: int
    bytes: int
    flush_ms: float
    last: bool = False
    rows_read: int = 0
    anew: Mapping[TopicPartition, UUID] = field(default_factory=dict)

    def and_then(self, following: EpochResult) -> EpochResult:
        """Return this and the epoch after it, which has the same number, as one."""
        return replace(
            following,
            rows=self.rows + following.rows,
            bytes=self.bytes + following.bytes,
            flush_ms=max(self.flush_ms, following.flush_ms),
            rows_read=self.rows_read + following.rows_read,
            anew={**self.anew, **following.anew},
        )


def add_up(
    epoch: int,
    assignment: Assignment,
    before: Mapping[TopicPartition, int],
    reports: Iterable[TaskReport],
    *,
    last: bool = False,
) -> EpochResult:
    """Return what the reports of all tasks make together.

    Args:
        epoch: The epoch that was marked.
        assignment: Who reads what.
        before: Where the epoch began. A partition that is not in it may be anywhere.
        reports: The reports, in any order.
        last: Whether the mark was one that stops the run.

    Raises:
        RunFailedError: A task did not report, or reported twice, for another epoch, on partitions that are not just its
            own, or a position that went back although the log still holds what was read.
    """
    by_task: dict[int, TaskReport] = {}
    for report in reports:
        if report.task in by_task:
            raise _wrong(epoch, f"task {report.task} reported twice", report.task)
        by_task[report.task] = report
        _check(epoch, assignment, before, report)
    if missing := [task for task in range(len(assignment)) if task not in by_task]:
        raise _wrong(epoch, f"no report of task {named(missing)}", missing[0] if len(missing) == 1 else None)
    reported = by_task.values()
    offsets = {partition: offset for report in reported for partition, offset in report.offsets.items()}
    return EpochResult(
        epoch,
        dict(sorted(offsets.items())),
        sum(report.rows for report in reported),
        sum(report.bytes for report in reported),
        max((report.flush_ms for report in reported), default=0.0),
        last,
        sum(report.rows_read for report in reported),
        {partition: topic_id for report in reported for partition, topic_id in report.anew.items()},
    )


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """What a look at the cluster has found, compared with what a run reads.

    Attributes:
        new: Partitions that nobody reads.
        missing: Partitions that are read and were not found.
        drain: Whether to end the run at an epoch, and to start another one.
    """

    new: frozenset[TopicPartition]
    missing: frozenset[TopicPartition]
    drain: bool


def compare(
    reading: Collection[TopicPartition], found: Collection[TopicPartition], last: PartitionLook | None = None
) -> PartitionLook:
    """Decide whether other partitions mean to drain and to start again.

    New ones do at once. Deleted ones do when two looks in a row have missed the same one, because a broker that has
    just started may not know all topics yet. What their deletion means is decided when the next run starts.

    Args:
        reading: What the run reads.
        found: What there is now, of the topics that the query subscribes to.
        last: The look before, of the same run.
    """
    new, missing = frozenset(found).difference(reading), frozenset(reading).difference(found)
    deleted = missing & last.missing if last is not None else frozenset()
    return PartitionLook(new, missing, drain=bool(new or deleted))


def next_mark(due: float, interval: float, now: float) -> float:
    """Return when the mark after that of ``due`` is due: a whole number of intervals later, and after now."""
    following = due + interval
    if following > now:
        return following
    # Rounding must not make it due at once, over and over.
    return max(due + interval * (math.floor((now - due) / interval) + 1), now + interval * 1e-3)


def named(things: Collection[object]) -> str:
    """Return the first few as text, and how many more there are."""
    texts = [str(thing) for _, thing in zip(range(_NAMED), things, strict=False)]
    more = len(things) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _check(epoch: int, assignment: Assignment, before: Mapping[TopicPartition, int], report: TaskReport) -> None:
    task = report.task
    if not 0 <= task < len(assignment):
        raise _wrong(epoch, f"there is no task {task}: the run has {len(assignment)}", task)
    if report.epoch != epoch:
        raise _wrong(epoch, f"task {task} reported epoch {report.epoch}", task)
    own = set(assignment[task])
    if missing := sorted(own - report.offsets.keys()):
        raise _wrong(epoch, f"task {task} did not report {named(missing)}", task)
    if others := sorted(report.offsets.keys() - own):
        raise _wrong(epoch, f"task {task} reported {named(others)}, which it does not read", task)
    for partition, offset in sorted(report.offsets.items()):
        least = report.sought.get(partition, before.get(partition, 0))
        if offset < least:
            error = _wrong(epoch, f"task {task} went back from offset {least} to {offset}", task)
            error.topic, error.partition, error.offset = *partition, offset
            raise error


def _wrong(epoch: int, what: str, task: int | None) -> RunFailedError:
    error = RunFailedError(f"The reports of epoch {epoch} do not add up: {what}. Nothing of the epoch is committed.")
    error.task = task
    return error
