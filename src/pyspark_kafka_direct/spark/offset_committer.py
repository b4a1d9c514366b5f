"""Asynchronous commits of the offsets of streaming queries for the group of ``commitGroupId``.

Best effort: commits never fail a batch, and an unresponsive coordinator delays none. Only the latest offsets matter, so
later ones replace those that wait while a commit is in flight. Each commit contains all partitions, also unchanged
ones, because Kafka expires offsets that were not committed for long.

Never backwards: a process has one committer for a group, which sends offsets in the order in which it gets them, over
all runs of a query. It sends lower offsets only if the query itself went back: it restarted from an older checkpoint,
or reads a recreated topic.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from pyspark_kafka_direct.client.system import SYSTEM, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition

    Offsets: TypeAlias = Mapping[TopicPartition, int]
    """The next offset to read of each partition."""

_Item = TypeVar("_Item")
_Commit = TypeVar("_Commit")

_WAIT_SECONDS = 0.5  # a commit takes milliseconds, and the planner ends with its query


class GroupOffsetCommitter:
    """Commits for one group on behalf of all runs of queries."""

    def __init__(self, group_id: str, log: logging.Logger, system: System = SYSTEM) -> None:
        self._group_id = group_id
        self._log = log
        self._async_committer = AsyncOffsetCommitter(latest_commits, self._send, lambda *_: None, system)

    def for_run(self, connect: Callable[[], ConsumerGroup]) -> RunOffsetCommitter:
        """Return the committer of a run; ``connect`` is called once, in the thread that commits."""
        return RunOffsetCommitter(self._async_committer, connect)

    def wait(self, timeout: float) -> bool:
        return self._async_committer.wait(timeout)

    def _send(self, commits: Sequence[PendingCommit], deadline: Deadline | None) -> None:
        for pending in commits:
            try:
                self._commit(pending, deadline)
            except Exception as error:
                self._log_outcome(pending.run, error)
            else:
                self._log_outcome(pending.run, None)

    def _commit(self, pending: PendingCommit, deadline: Deadline | None) -> None:
        group = pending.run.group()
        if pending.resumed_from:
            self._warn_of_missing_offsets(group, pending.resumed_from)
        group.commit(pending.offsets, deadline=deadline)

    def _log_outcome(self, run: RunOffsetCommitter, error: Exception | None) -> None:
        if error is not None:
            level = logging.DEBUG if run.failing else logging.WARNING
            message = "cannot commit offsets of the group %s (commitGroupId); the query continues: %s"
            self._log.log(level, message, self._group_id, error)
        elif run.failing:
            self._log.warning("offsets of the group %s are committed again", self._group_id)
        run.failing = error is not None

    def _warn_of_missing_offsets(self, group: ConsumerGroup, resumed_from: Mapping[TopicPartition, int]) -> None:
        # Kafka deletes committed offsets with their topic, so a topic without any may have been recreated. They are
        # also missing for a new group, and after they expired. So this is a warning only.
        committed_topics = {tp.topic for tp in group.committed(resumed_from.keys())}
        missing = sorted({tp.topic for tp, offset in resumed_from.items() if offset > 0} - committed_topics)
        if missing:
            self._log.warning(
                "this query has read %s before, but the group %r (commitGroupId) has no offsets of it. Kafka deletes "
                "them with the topic: if the topic was recreated, the query skips records of the new topic unless its "
                "log is shorter than the offsets that were read. Ignore this if the group is new, or has committed "
                "nothing for offsets.retention.minutes",
                ", ".join(missing),
                self._group_id,
            )


class RunOffsetCommitter:
    """Passes the offsets of one run of a query to the process's committer, in the order of its batches.

    One thread uses it, except ``failing`` and ``group()``, which belong to the thread that commits.
    """

    def __init__(
        self,
        committer: AsyncOffsetCommitter[PendingCommit, Sequence[PendingCommit]],
        connect: Callable[[], ConsumerGroup],
    ) -> None:
        self.failing = False  # whether the last commit failed
        self._shared_committer = committer
        self._connect = connect
        self._group: ConsumerGroup | None = None
        self._last_offsets: Mapping[TopicPartition, int] | None = None
        self._commit_was_slow = False

    @property
    def has_commits(self) -> bool:
        return self._last_offsets is not None

    def commit_async(
        self, offsets: Mapping[TopicPartition, int], *, resumed_from: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit these offsets soon, unless they are those of the previous call.

        The first call warns if the group has no offsets of a topic in ``resumed_from``, the checkpoint's offsets.
        """
        if offsets == self._last_offsets:
            return
        # A slow commit that is finished by now does not matter for the next one.
        self._commit_was_slow = self._commit_was_slow and not self._shared_committer.wait(0)
        is_first = self._last_offsets is None
        self._last_offsets = dict(offsets)
        self._shared_committer.add(PendingCommit(self, self._last_offsets, resumed_from if is_first else None))
        self._shared_committer.send()

    def wait_for_commit(self) -> None:
        """Wait briefly for the commit in flight; do not wait for it again if it is slow."""
        if not self._commit_was_slow:
            self._commit_was_slow = not self._shared_committer.wait(_WAIT_SECONDS)

    def group(self) -> ConsumerGroup:
        """Return the group's offsets, in the thread that commits."""
        self._group = self._group or self._connect()
        return self._group


@dataclass(frozen=True, slots=True)
class PendingCommit:
    run: RunOffsetCommitter
    offsets: Mapping[TopicPartition, int]
    resumed_from: Mapping[TopicPartition, int] | None = (
        None  # topics in it without offsets in the group cause a warning
    )


def latest_commits(pending: Sequence[PendingCommit]) -> Sequence[PendingCommit]:
    """Return the latest offsets of each run, unless later runs cover all its partitions."""
    last_by_run: dict[RunOffsetCommitter, PendingCommit] = {}
    for pending_commit in pending:
        # Popped and inserted again, so that the runs are in the order of their last commits. Only the first commit of a
        # run has ``resumed_from``.
        earlier = last_by_run.pop(pending_commit.run, pending_commit)
        last_by_run[pending_commit.run] = replace(pending_commit, resumed_from=earlier.resumed_from)
    commits: list[PendingCommit] = []
    covered_partitions: set[TopicPartition] = set()
    for pending_commit in reversed(last_by_run.values()):
        if not pending_commit.offsets.keys() <= covered_partitions:
            commits.insert(0, pending_commit)
        covered_partitions |= pending_commit.offsets.keys()
    return commits


def min_offsets(sources: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Return the lowest offset of each partition, for queries that read a topic twice."""
    lowest: dict[TopicPartition, int] = {}
    for offsets in sources:
        for tp, offset in offsets.items():
            lowest[tp] = min(offset, lowest.get(tp, offset))
    return lowest


class AsyncOffsetCommitter(Generic[_Item, _Commit]):
    """Commits items of this process to one group in a background thread; thread-safe.

    The thread merges all waiting items with ``merge`` and sends the result. Only one request is in flight at a time, so
    no commit overtakes an earlier one.
    """

    def __init__(
        self,
        merge: Callable[[Sequence[_Item]], _Commit],
        send: Callable[[_Commit, Deadline | None], None],
        on_complete: Callable[[Sequence[_Item], _Commit, Exception | None], None],
        system: System = SYSTEM,
    ) -> None:
        self._merge = merge
        self._send = send
        self._on_complete = on_complete
        self._system = system
        self._changed = system.condition()
        self._added_items: list[_Item] = []  # since the last ``send``
        self._ready_items: list[_Item] = []  # to be committed by the thread
        self._running = False  # whether the thread exists
        self._sync_commit_count = 0  # calls of commit_sync in flight; each one sends the items that waited
        self._deadline: Deadline | None = None  # of the last ``send``
        self._commit_lock = system.lock()  # one request at a time

    def add(self, item: _Item) -> None:
        """Store an item until the next ``send``."""
        with self._changed:
            self._added_items.append(item)

    def send(self, deadline: Deadline | None = None) -> None:
        """Start to commit the added items; return at once."""
        # Without a deadline each request has default.api.timeout.ms.
        with self._changed:
            self._deadline = deadline
            self._ready_items += self._added_items
            self._added_items.clear()
            if not self._ready_items or self._running:
                return
            self._running = True
            try:
                self._system.start_thread(self._run, "pyspark-kafka-direct-commits")
                return
            except RuntimeError:  # the interpreter is shutting down (Python 3.12), so it starts no threads
                pass
        self._run()  # in this thread

    def wait(self, timeout: float) -> bool:
        """Wait until all items are sent and ``on_complete`` was called; return false after a timeout."""
        with self._changed:
            return wait_until(
                self._system, self._changed, lambda: not (self._running or self._sync_commit_count), timeout
            )

    def commit_sync(self, item: _Item) -> None:
        """Commit an item and all that wait, and return when the coordinator has responded."""
        with self._changed:
            self._sync_commit_count += 1
        try:
            with self._commit_lock:
                with self._changed:
                    # Earlier items must not be sent after this one, so they are sent with it.
                    earlier = [*self._ready_items, *self._added_items]
                    self._ready_items, self._added_items = [], []
                commit, error = self._commit([*earlier, item], None)
            self._on_complete(earlier, commit, error)
        finally:
            with self._changed:
                self._sync_commit_count -= 1
                self._changed.notify_all()
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._commit_lock:
                with self._changed:
                    ready, self._ready_items = self._ready_items, []
                    deadline = self._deadline
                    if not ready:
                        self._running = False
                        self._changed.notify_all()
                        return
                commit, error = self._commit(ready, deadline)
            self._on_complete(ready, commit, error)

    def _commit(self, items: Sequence[_Item], deadline: Deadline | None) -> tuple[_Commit, Exception | None]:
        """Merge and send the items; return the merged commit, and the error if it failed."""
        commit = self._merge(items)
        try:
            self._send(commit, deadline)
        except Exception as error:
            return commit, error
        return commit, None
