"""Commit where a streaming query is, for the group of ``commitGroupId``, so that others see how far the query is.

Best effort: it never fails a batch, and a coordinator that does not answer never holds one up. Only the newest offsets
count, so what waits while a commit is under way is replaced by what comes later. All partitions are committed each
time, also those that stand still: Kafka forgets an offset that was not committed for long.

Never backwards: a process has one committer for a group, which sends offsets in the order in which it gets them, from
one run of a query to the next. It sends lower offsets only where the query itself went back, as one does that starts
again from an older checkpoint, or that reads a topic which was created anew.

The group also tells something to a query that goes on from its checkpoint. Kafka removes committed offsets together
with their topic, so a topic that has none any more may have been deleted and created again. May: nothing was committed
for a group that is new, and offsets expire. So that is a warning and not a verdict.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.runtime.committer import Committer, OffsetCommitter
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import System

_PATIENCE = 0.5  # seconds; a commit takes a few milliseconds, and a query that ends takes its planner with it


class GroupOffsets(OffsetCommitter, Protocol):
    """The offsets of one consumer group; ``wire.groups.Group`` is one."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the committed offsets there are."""


class GroupCommits:
    """Commits for one group, whichever run of a query has the offsets.

    Args:
        group_id: The group's name.
        log: Where what goes wrong is told: the first time in a run, and when it is over.
        system: Where its coordinator is; has the clock and the threads.
    """

    def __init__(self, group_id: str, log: logging.Logger, system: System = SYSTEM) -> None:
        self._group_id = group_id
        self._log = log
        self._committer = Committer(newest, self._send, lambda *_: None, system)

    def of_run(self, connect: Callable[[], GroupOffsets]) -> RunCommits:
        """Return where a run of a query offers its offsets.

        Args:
            connect: Finds the group's offsets; called once, on the thread that commits.
        """
        return RunCommits(self._committer, connect)

    def wait(self, seconds: float) -> bool:
        """Wait so long until all that was offered was tried; returns whether it was."""
        return self._committer.wait(seconds)

    def _send(self, offers: Sequence[Offered], deadline: Deadline | None) -> None:
        for offered in offers:
            try:
                self._commit(offered, deadline)
            except Exception as error:
                self._tell(offered.run, error)
            else:
                self._tell(offered.run, None)

    def _commit(self, offered: Offered, deadline: Deadline | None) -> None:
        group = offered.run.group()
        if offered.read_before:
            self._warn_of_forgotten(group, offered.read_before)
        group.commit(offered.offsets, deadline=deadline)

    def _tell(self, run: RunCommits, error: Exception | None) -> None:
        if error is not None:
            level = logging.DEBUG if run.failing else logging.WARNING
            message = "offsets of the group %s are not committed (commitGroupId); the query goes on: %s"
            self._log.log(level, message, self._group_id, error)
        elif run.failing:
            self._log.warning("offsets of the group %s are committed again", self._group_id)
        run.failing = error is not None

    def _warn_of_forgotten(self, group: GroupOffsets, read_before: Mapping[TopicPartition, int]) -> None:
        there = {tp.topic for tp in group.committed(read_before.keys())}
        forgotten = sorted({tp.topic for tp, offset in read_before.items() if offset > 0} - there)
        if forgotten:
            self._log.warning(
                "this query has read %s before, but the group %r (commitGroupId) has no offsets of it. Kafka removes "
                "them with their topic: if that was deleted and created again, records of the new topic are missed "
                "unless its log is shorter than what was read. It is nothing if the group is new, or has committed "
                "nothing for offsets.retention.minutes",
                ", ".join(forgotten),
                self._group_id,
            )


class RunCommits:
    """What one run of a query has to commit, in the order of its batches; not for several threads.

    Attributes:
        failing: Whether the last commit went wrong; for the thread that commits.
    """

    def __init__(self, committer: Committer[Offered, Sequence[Offered]], connect: Callable[[], GroupOffsets]) -> None:
        self.failing = False
        self._committer = committer
        self._connect = connect
        self._group: GroupOffsets | None = None
        self._last: Mapping[TopicPartition, int] | None = None
        self._late = False

    @property
    def offered(self) -> bool:
        """Whether there was anything to commit."""
        return self._last is not None

    def offer(
        self, offsets: Mapping[TopicPartition, int], *, read_before: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit these offsets soon, unless they were offered last.

        Args:
            offsets: Where the query is.
            read_before: Where an earlier run of the query has stopped; counts in the first offer.
        """
        if offsets == self._last:
            return
        self._late = self._late and not self._committer.wait(0)
        first = self._last is None
        self._last = dict(offsets)
        self._committer.add(Offered(self, self._last, read_before if first else None))
        self._committer.send()

    def settle(self) -> None:
        """Wait a moment for the commit under way; not again while the same one is late."""
        if not self._late:
            self._late = not self._committer.wait(_PATIENCE)

    def group(self) -> GroupOffsets:
        """Return the group's offsets, for the thread that commits."""
        self._group = self._group or self._connect()
        return self._group


@dataclass(frozen=True, slots=True)
class Offered:
    """Where a run of a query is.

    Attributes:
        run: The run.
        offsets: The next offset to read of each partition.
        read_before: Where an earlier run has stopped, if that is still to be compared with the group.
    """

    run: RunCommits
    offsets: Mapping[TopicPartition, int]
    read_before: Mapping[TopicPartition, int] | None = None


def newest(waiting: Sequence[Offered]) -> Sequence[Offered]:
    """Return what to commit: where each run is now, unless later runs say so of all its partitions.

    What a run had read before is still to be compared.
    """
    last: dict[RunCommits, Offered] = {}
    for each in waiting:
        first = last.pop(each.run, each)
        last[each.run] = replace(each, read_before=first.read_before)
    wanted: list[Offered] = []
    said: set[TopicPartition] = set()
    for each in reversed(last.values()):
        if not each.offsets.keys() <= said:
            wanted.insert(0, each)
        said |= each.offsets.keys()
    return wanted


def slowest(sources: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Return where a query is that may read a topic twice: where the slower of the two is."""
    least: dict[TopicPartition, int] = {}
    for offsets in sources:
        for tp, offset in offsets.items():
            least[tp] = min(offset, least.get(tp, offset))
    return least
