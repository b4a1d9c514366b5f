"""``commitGroupId``: commits where a query is, so that tools for consumer groups can see it.

Only batches that are done are committed: Spark reports progress after the sink has the batch and the checkpoint says
so. Whatever happens here is logged and changes nothing for the query.

The query's planner, a process of its own, commits too: each batch's start, which is the end of the one before. It is
never too far, and may be ahead of a report that is late. So offsets only go forward here: what the group has is looked
up first. (If the planner gets in between, a moment later the report of the batch that it was ahead by sets that right.)
Where they must go back, as for a new query in an old group, the planner does it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.monitor._lag import SourceBatch
    from pyspark_kafka_direct.offsets import TopicPartition

    Connect: TypeAlias = Callable[[Mapping[str, str], str], "Offsets"]

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_OPTION = "commitgroupid"


class Offsets(Protocol):
    """The offsets of one group: ``wire.groups.Group``."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Those there are."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit."""


class GroupCommitter:
    """Commits for all queries of a session, each group on a thread of its own; a ``BatchObserver``.

    Args:
        connect: Finds a group's offsets, from a source's options and the group's name; called on that thread.
    """

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect or _connect
        self._lock = threading.Lock()
        self._workers: dict[tuple[str, str], _Worker] = {}
        self._ending: list[_Worker] = []

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """Commit the end of this batch, soon."""
        ends: dict[str, dict[str, Mapping[TopicPartition, int]]] = {}
        options: dict[str, Mapping[str, str]] = {}
        for batch, given in sources:
            if group := given.get(_OPTION):
                ends.setdefault(group, {})[batch.description] = batch.end
                options[group] = given
        for group, of_sources in ends.items():
            self._worker(run_id, group, options[group]).put(of_sources)

    def query_ended(self, run_id: str) -> None:
        """What the query still has to commit is committed."""
        with self._lock:
            for key in [key for key in self._workers if key[0] == run_id]:
                worker = self._workers.pop(key)
                worker.end()
                self._ending.append(worker)

    def flush(self, seconds: float) -> bool:
        """Wait until all there is to commit was tried.

        Args:
            seconds: How long at most.

        Returns:
            Whether it was.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            workers = [*self._workers.values(), *self._ending]
        return all(worker.wait(max(deadline - time.monotonic(), 0)) for worker in workers)

    def _worker(self, run_id: str, group: str, options: Mapping[str, str]) -> _Worker:
        with self._lock:
            self._ending = [worker for worker in self._ending if worker.busy]
            worker = self._workers.get((run_id, group))
            if worker is None:
                if any(other == group for _, other in self._workers):
                    _log.warning(
                        "two queries commit for the group %s, so its offsets are now those of one, now of the other; "
                        "give each a commitGroupId of its own",
                        group,
                    )
                worker = self._workers[run_id, group] = _Worker(group, lambda: self._connect(options, group))
            return worker


class _Worker:
    """One thread that commits the newest offsets there are; older ones that were not committed yet are passed over."""

    def __init__(self, group: str, connect: Callable[[], Offsets]) -> None:
        self._group = group
        self._connect = connect
        self._changed = threading.Condition()
        self._sources: dict[str, Mapping[TopicPartition, int]] = {}
        self._waiting = False
        self._committing = False
        self._ended = False
        self._failing = False
        threading.Thread(target=self._run, name=f"kafka-direct-commit-{group}", daemon=True).start()

    @property
    def busy(self) -> bool:
        with self._changed:
            return self._waiting or self._committing

    def put(self, ends: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        with self._changed:
            self._sources.update(ends)
            self._waiting = True
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._committing), seconds)

    def _run(self) -> None:
        group: Offsets | None = None
        while (offsets := self._next()) is not None:
            try:
                group = group or self._connect()
                there = group.committed(offsets.keys())
                further = {tp: offset for tp, offset in offsets.items() if offset > there.get(tp, -1)}
                if further:
                    group.commit(further)
            except Exception as error:
                level = logging.DEBUG if self._failing else logging.WARNING
                self._failing = True
                _log.log(level, "offsets of the group %s are not committed; the query goes on: %s", self._group, error)
            else:
                if self._failing:
                    _log.warning("offsets of the group %s are committed again", self._group)
                self._failing = False
            with self._changed:
                self._committing = False
                self._changed.notify_all()

    def _next(self) -> dict[TopicPartition, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            self._waiting, self._committing = False, True
            return _least(self._sources.values())


def _least(sources: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Where a query is that reads a topic twice: where the slower of the two is."""
    least: dict[TopicPartition, int] = {}
    for ends in sources:
        for tp, offset in ends.items():
            least[tp] = min(offset, least.get(tp, offset))
    return least


def _connect(options: Mapping[str, str], group: str) -> Offsets:
    from pyspark_kafka_direct.runtime.cluster import cluster_of
    from pyspark_kafka_direct.wire.groups import Group

    return Group(cluster_of(options), group)
