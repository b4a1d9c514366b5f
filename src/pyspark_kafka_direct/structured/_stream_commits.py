"""Who commits where a stream is, for the group of ``commitGroupId``: the listener on the driver, or the planner."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.runtime.commit_choice import Acceptance, QueryGroup, accept, group_of
from pyspark_kafka_direct.runtime.query_commits import GroupCommits, RunCommits
from pyspark_kafka_direct.runtime.shared_folder import find_folder
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.source import StreamOptions
    from pyspark_kafka_direct.wire.cluster import Cluster

_log = logging.getLogger("pyspark_kafka_direct.structured")

Commits: TypeAlias = Acceptance | RunCommits
"""Takes where the query is: tells the listener, or commits."""


def commits_of(options: StreamOptions, cluster: Cluster) -> Commits | None:
    """Return the commits for the group of ``commitGroupId``, if the user wants them.

    Args:
        options: The query's options.
        cluster: Where the group is.
    """
    group = group_of(options)
    return None if group is None else _accepted(group) or _own(group.group_id, cluster)


def _own(group_id: str, cluster: Cluster) -> RunCommits:
    commits = GroupCommits(group_id, _log, cluster.pool.system)
    return commits.of_run(lambda: Group(cluster, group_id))


def _accepted(group: QueryGroup) -> Acceptance | None:
    try:
        folder = find_folder()
        return None if folder is None else accept(folder, group)
    except Exception as error:  # commits never fail a query
        _log.info("whether the listener offers to commit is not known, so the planner does: %r", error)
        return None
