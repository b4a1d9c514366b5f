"""The cluster as the planner of a stream sees it: ``planning.stream_view.ClusterView`` over real brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.stream_view import Assigned
from pyspark_kafka_direct.reading.sample import bytes_per_offset
from pyspark_kafka_direct.runtime.cluster import ask_topics, existing_partitions, open_cluster, select
from pyspark_kafka_direct.runtime.commit_choice import Acceptance, QueryGroup, accept, group_of
from pyspark_kafka_direct.runtime.query_commits import GroupCommits, RunCommits
from pyspark_kafka_direct.runtime.shared_folder import find_folder
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.settings.source import StreamOptions
    from pyspark_kafka_direct.wire.cluster import PartitionLeader
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_log = logging.getLogger("pyspark_kafka_direct.structured")

Commits: TypeAlias = Acceptance | RunCommits
"""Takes where the query is: tells the listener, or commits."""

_DEFAULT_INTERVAL = 1.0
_SAMPLING_SECONDS = 5.0


class LiveView:
    """Asks real brokers, over connections that are kept as long as the query runs.

    Args:
        options: The query's options; ends follow the isolation level of its tasks.
        pool: Has the connections, and the system where the brokers are.
    """

    def __init__(self, options: StreamOptions, pool: ConnectionPool = POOL) -> None:
        self._options = options
        self._cluster = open_cluster(options, pool)
        self._told: set[str] = set()

    def assigned(self, *, strict: bool) -> Assigned:
        """See ``ClusterView``."""
        topics = ask_topics(self._cluster, self._options.selection, strict=strict)
        selected = select(self._options.selection, topics, strict=strict)
        for warning in selected.warnings:
            self.warn(warning)
        names = {tp.topic for tp in selected.partitions}
        ids = {name: topic.topic_id for name, topic in topics.items() if name in names and topic.topic_id is not None}
        return Assigned(frozenset(selected.partitions), ids)

    def not_selected(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """See ``ClusterView``. It only chooses the words for a loss, so trouble is no reason to fail."""
        try:
            topics = self._cluster.topics({tp.topic for tp in partitions})
        except KafkaDirectError as error:
            _log.info("whether partitions that are missing still exist is not known: %s", error)
            return set()
        return set(existing_partitions(topics, partitions)) - set(
            select(self._options.selection, topics, strict=False).partitions
        )

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See ``ClusterView``."""
        return self._offsets(wanted, self._options.fetch.isolation_level)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``ClusterView``."""
        return self._offsets(dict.fromkeys(partitions, LATEST), "read_uncommitted")

    def bytes_per_offset(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """See ``ClusterView``."""
        leaders = self._cluster.known_leaders(begins)
        deadline, pool = self._cluster.deadline(_SAMPLING_SECONDS), self._cluster.pool
        sizes: dict[TopicPartition, float] = {}
        for tp, offset in begins.items():
            try:
                settings, fetch = self._options.connection, self._options.fetch
                size = bytes_per_offset(settings, fetch, tp, offset, deadline, leader=leaders.get(tp), pool=pool)
            except KafkaDirectError as error:
                # The sizes of before, or of other partitions, will do; if something is wrong, the tasks will say so.
                _log.info("no sample of %s: %s", tp, error)
                continue
            if size is not None:
                sizes[tp] = size
        return sizes

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return leaders as far as they are known, without asking."""
        return self._cluster.known_leaders(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``ClusterView``."""
        group_id = self._options.start_group_id
        return {} if group_id is None else Group(self._cluster, group_id).committed(partitions)

    def commits(self) -> Commits | None:
        """Return the commits for the group of ``commitGroupId``, if the user wants them."""
        group = group_of(self._options)
        return None if group is None else _accepted(group) or self._commits(group.group_id)

    def wait(self) -> None:
        """See ``ClusterView``."""
        self._cluster.ask_another()
        interval = self._options.fetch_retry_interval_ms
        self._cluster.pool.system.sleep(_DEFAULT_INTERVAL if interval is None else interval / 1000)

    def clock(self) -> float:
        """Return seconds on a clock that never goes back."""
        return self._cluster.pool.system.monotonic()

    def warn(self, message: str) -> None:
        """See ``ClusterView``."""
        if message not in self._told:
            self._told.add(message)
            _log.warning("%s", message)

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """Look up offsets of the partitions that exist; those that are gone are left out."""
        left = dict(wanted)
        while left:
            try:
                return self._cluster.offsets(left, isolation_level=isolation_level)
            except TopicNotFoundError as error:
                gone = [tp for tp in left if tp.topic == error.topic and error.partition in (None, tp.partition)]
                if not gone:
                    raise
                for tp in gone:
                    del left[tp]
        return {}

    def _commits(self, group_id: str) -> RunCommits:
        commits = GroupCommits(group_id, _log, self._cluster.pool.system)
        return commits.of_run(lambda: Group(self._cluster, group_id))


def _accepted(group: QueryGroup) -> Acceptance | None:
    try:
        folder = find_folder()
        return None if folder is None else accept(folder, group)
    except Exception as error:  # commits never fail a query
        _log.info("whether the listener offers to commit is not known, so the planner does: %r", error)
        return None
