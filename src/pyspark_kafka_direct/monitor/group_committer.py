"""The listener's part of ``commitGroupId``: commits the offsets of queries, so that consumer group tools show them.

Only completed batches are committed: Spark reports progress after the sink and the checkpoint have the batch. Errors
are logged and do not affect the query. When a query starts, the listener offers to commit, and commits if the query's
planner accepts (see ``spark.commit_offer``). A query that started before ``enable(spark)`` has no offer, so its planner
commits.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.spark.commit_offer import CommitGroup, CommitOffer, commit_group
from pyspark_kafka_direct.spark.offset_committer import GroupOffsetCommitter, min_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.monitor.consumer_lag import SourceBatch
    from pyspark_kafka_direct.spark.offset_committer import RunOffsetCommitter

    GroupConnector: TypeAlias = Callable[[Mapping[str, str], str], ConsumerGroup]

_log = logging.getLogger("pyspark_kafka_direct.monitor")


class GroupCommitter:
    """Commits the offsets of the queries of a session; a ``BatchObserver``."""

    def __init__(
        self,
        folder: Path,
        connect: GroupConnector | None = None,
        groups: WeakValueDictionary[CommitGroup, GroupOffsetCommitter] | None = None,
    ) -> None:
        self._folder = folder  # shared by the listener and the planners
        self._connect = connect or _connect_group  # called at the first commit, on a thread that may block
        self._lock = threading.Lock()
        # The groups of all sessions: a query may resume in another session while its last commit is in flight. A group
        # is referenced by its runs, and by the thread that commits.
        self._all_groups = WeakValueDictionary() if groups is None else groups
        self._groups: WeakValueDictionary[CommitGroup, GroupOffsetCommitter] = WeakValueDictionary()  # of this session
        self._runs: dict[tuple[str, CommitGroup], _CommittedRun] = {}  # by run id and group

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Offer to commit, before the planner of the query runs."""
        for options in sources:
            group = _parse_commit_group(options)
            if group is None:
                continue
            with self._lock:
                if (run_id, group) not in self._runs:  # else another source of the query commits for it
                    committer = self._all_groups.setdefault(group, GroupOffsetCommitter(group.group_id, _log))
                    self._groups[group] = committer
                    commits = committer.for_run(partial(self._connect, options, group.group_id))
                    self._runs[run_id, group] = _CommittedRun(CommitOffer(self._folder, group, run_id), commits)

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """Start to commit the end offsets of this batch."""
        runs = self._committed_runs(run_id)
        if not runs:
            return
        batches: dict[CommitGroup, list[SourceBatch]] = {}
        for batch, options in sources:
            group = _parse_commit_group(options)
            if group in runs:
                batches.setdefault(group, []).append(batch)
        for group, group_batches in batches.items():
            run = runs[group]
            run.count_report()
            if run.listener_commits:
                self._warn_before_first_commit(group, run)
                # Several sources may read a partition: the lowest offset has been read by all.
                end = min_offsets([batch.end for batch in group_batches])
                start = min_offsets([batch.start for batch in group_batches])
                run.commits.commit_async(end, resumed_from=start)

    def query_idle(self, run_id: str) -> None:
        """Commit the start offsets of a resumed query that has found nothing to read yet."""
        for run in self._committed_runs(run_id).values():
            run.offer.withdraw()  # all planners of an idle query have started
            run.commit_start()

    def query_ended(self, run_id: str) -> None:
        """Commit the start offsets of a query that had no batch, and close its offer."""
        for group, run in self._committed_runs(run_id).items():
            run.commit_start()
            run.offer.close()
            with self._lock:
                del self._runs[run_id, group]

    def flush(self, seconds: float) -> bool:
        """Wait for the commits of this session's queries; returns false if the timeout passes first."""
        deadline = time.monotonic() + seconds
        with self._lock:
            groups = list(self._groups.values())
        return all(group.wait(max(deadline - time.monotonic(), 0)) for group in groups)

    def _committed_runs(self, run_id: str) -> dict[CommitGroup, _CommittedRun]:
        """Return the commits of a run by group: its sources may commit for different ones."""
        with self._lock:
            return {group: run for (each_run_id, group), run in self._runs.items() if each_run_id == run_id}

    def _warn_before_first_commit(self, group: CommitGroup, run: _CommittedRun) -> None:
        """Warn once for each run, before its first commit, if another run has committed to the group."""
        if run.commits.has_commits:
            return
        with self._lock:
            others = [
                other for (_, other_group), other in self._runs.items() if other_group == group and other is not run
            ]
        if any(other.commits.has_commits for other in others):
            _log.warning(
                "two queries commit to the group %s, so its offsets alternate between the two. Set a different "
                "commitGroupId for each query",
                group.group_id,
            )


class _CommittedRun:
    """The commits of one run of a query for one of its groups."""

    def __init__(self, offer: CommitOffer, commits: RunOffsetCommitter) -> None:
        self.offer = offer
        self.commits = commits
        self._listener_commits = False
        self._report_count = 0

    @property
    def listener_commits(self) -> bool:
        """Whether a planner of this run has accepted the offer, so that the listener commits; never false again."""
        self._listener_commits = self._listener_commits or self.offer.is_accepted()
        return self._listener_commits

    def count_report(self) -> None:
        """Count the report of a batch; the second one ends the offer."""
        # The first batch may be one that an earlier run planned. Spark runs such a batch again without starting the
        # planners of sources that have no records in it. Before the second batch, all planners have started.
        self._report_count += 1
        if self._report_count > 1:
            self.offer.withdraw()

    def commit_start(self) -> None:
        """Commit the offsets from which the run resumed, unless a batch was already committed."""
        if self.listener_commits and not self.commits.has_commits:
            start = min_offsets(self.offer.resume_offsets())
            if start:
                self.commits.commit_async(start, resumed_from=start)


def _parse_commit_group(options: Mapping[str, str]) -> CommitGroup | None:
    """Return the group for which a source commits, if any; options are empty if the query was not found."""
    from pyspark_kafka_direct.options.read_options import parse_stream_options
    from pyspark_kafka_direct.spark.token_file import token_clusters

    try:
        return commit_group(parse_stream_options(options, token_clusters())) if options else None
    except OptionError:  # the planner rejects the query
        return None


def _connect_group(options: Mapping[str, str], group_id: str) -> ConsumerGroup:
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.consumer.query_metadata import open_stream_cluster
    from pyspark_kafka_direct.spark.token_file import token_clusters

    return ConsumerGroup(open_stream_cluster(options, token_clusters()), group_id)
