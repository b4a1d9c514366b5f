"""The listener's half of ``commitGroupId``: commit where queries are, so that tools for consumer groups can see it.

Only batches that are done are committed: Spark reports progress after the sink has the batch and the checkpoint says
so. Whatever happens here is logged and changes nothing for the query.

The listener offers to commit when a query starts, and does so if the query's planner accepts, which
``runtime.commit_choice`` explains. A query that was started before ``enable(spark)`` got no offer: its planner commits.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.runtime.commit_choice import Offer, QueryGroup, group_of
from pyspark_kafka_direct.runtime.query_commits import GroupCommits, slowest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.monitor._lag import SourceBatch
    from pyspark_kafka_direct.runtime.query_commits import GroupOffsets, RunCommits

    Connect: TypeAlias = Callable[[Mapping[str, str], str], GroupOffsets]

_log = logging.getLogger("pyspark_kafka_direct.monitor")


class GroupCommitter:
    """Commits for the queries of a session; a ``BatchObserver``.

    Args:
        folder: Where listener and planners meet.
        connect: Finds a group's offsets, from a source's options and the group's name; called when something is
            committed, on a thread that may wait.
        groups: The groups of all sessions: a query may go on in another session while its last commit is under way.
    """

    def __init__(
        self, folder: Path, connect: Connect | None = None, groups: dict[QueryGroup, GroupCommits] | None = None
    ) -> None:
        self._folder = folder
        self._connect = connect or _connect
        self._lock = threading.Lock()
        self._all_groups = {} if groups is None else groups
        self._groups: dict[QueryGroup, GroupCommits] = {}
        self._runs: dict[tuple[str, QueryGroup], _Run] = {}

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Offer to commit; the planner of the query does not run yet."""
        for options in sources:
            group = _group_of(options)
            if group is None:
                continue
            with self._lock:
                if (run_id, group) not in self._runs:
                    commits = self._all_groups.setdefault(group, GroupCommits(group.group_id, _log))
                    self._groups[group] = commits
                    run = commits.of_run(partial(self._connect, options, group.group_id))
                    self._runs[run_id, group] = _Run(Offer(self._folder, group, run_id), run)

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """Commit the end of this batch, soon."""
        runs = self._of(run_id)
        batches: dict[QueryGroup, list[SourceBatch]] = {}
        for batch, options in sources if runs else ():
            group = _group_of(options)
            if group in runs:
                batches.setdefault(group, []).append(batch)
        for group, of_group in batches.items():
            if runs[group].reported():
                self._warn_of_two(group, runs[group])
                ends, starts = [each.end for each in of_group], [each.start for each in of_group]
                runs[group].commits.offer(slowest(ends), read_before=slowest(starts))

    def query_idle(self, run_id: str) -> None:
        """Commit where a query goes on that has found nothing to read yet."""
        for run in self._of(run_id).values():
            run.offer.end()
            run.offer_start()

    def query_ended(self, run_id: str) -> None:
        """Commit what is still to be committed for the query."""
        for group, run in self._of(run_id).items():
            run.offer_start()
            run.offer.close()
            with self._lock:
                del self._runs[run_id, group]

    def flush(self, seconds: float) -> bool:
        """Wait until all there is to commit for the groups of this session's queries was tried.

        Args:
            seconds: How long at most.

        Returns:
            Whether it was.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            groups = list(self._groups.values())
        return all(each.wait(max(deadline - time.monotonic(), 0)) for each in groups)

    def _of(self, run_id: str) -> dict[QueryGroup, _Run]:
        with self._lock:
            return {group: run for (run_of, group), run in self._runs.items() if run_of == run_id}

    def _warn_of_two(self, group: QueryGroup, run: _Run) -> None:
        with self._lock:
            others = [each for (_, of), each in self._runs.items() if of == group and each is not run]
        if not run.commits.offered and any(other.commits.offered for other in others):
            _log.warning(
                "two queries commit for the group %s, so its offsets are now those of one, now of the other; "
                "give each a commitGroupId of its own",
                group.group_id,
            )


class _Run:
    """A run of a query, and one of its groups."""

    def __init__(self, offer: Offer, commits: RunCommits) -> None:
        self.offer = offer
        self.commits = commits
        self._chosen = False
        self._reports = 0

    @property
    def chosen(self) -> bool:
        """Whether the listener commits, as a planner of the run has accepted; then it stays."""
        self._chosen = self._chosen or self.offer.accepted()
        return self._chosen

    def reported(self) -> bool:
        """Take in that a batch is done; return whether the listener commits."""
        # The first batch may be one of an earlier run, which Spark runs again without asking the sources that have
        # nothing in it: their planners have not begun. Before the second one all were asked.
        self._reports += 1
        if self._reports > 1:
            self.offer.end()
        return self.chosen

    def offer_start(self) -> None:
        if self.chosen and not self.commits.offered:
            start = slowest(self.offer.starts())
            if start:
                self.commits.offer(start, read_before=start)


def _group_of(options: Mapping[str, str]) -> QueryGroup | None:
    """Return the group for which a source commits, if any; no options are known where the query was not found."""
    from pyspark_kafka_direct.settings.source import parse_stream_options

    try:
        return group_of(parse_stream_options(options)) if options else None
    except OptionError:  # the planner refuses the query
        return None


def _connect(options: Mapping[str, str], group_id: str) -> GroupOffsets:
    from pyspark_kafka_direct.runtime.cluster import cluster_of
    from pyspark_kafka_direct.wire.groups import Group

    return Group(cluster_of(options), group_id)
