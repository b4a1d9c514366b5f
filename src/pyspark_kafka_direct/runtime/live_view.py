"""The cluster as the planner of a query sees it: ``planning.stream_view.ClusterView`` over real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.stream_view import Assigned
from pyspark_kafka_direct.reading.sample import take_sample
from pyspark_kafka_direct.runtime.cluster import ask_topics, existing_partitions, open_cluster, select
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    import logging
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.limits import Sample
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.settings.source import ContinuousOptions, StreamOptions
    from pyspark_kafka_direct.wire.cluster import Cluster, PartitionLeader
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_DEFAULT_INTERVAL = 1.0
_SAMPLING_SECONDS = 5.0


class LiveView:
    """Asks real brokers, over connections that are kept as long as the query runs.

    Args:
        options: The query's options; ends follow the isolation level of its tasks.
        log: Where the user is told something.
        pool: Has the connections, and the system where the brokers are.

    Attributes:
        cluster: The cluster.
    """

    def __init__(
        self, options: StreamOptions | ContinuousOptions, log: logging.Logger, pool: ConnectionPool = POOL
    ) -> None:
        self.cluster: Cluster = open_cluster(options, pool)
        self._options = options
        self._log = log
        self._told: set[str] = set()

    def assigned(self, *, strict: bool) -> Assigned:
        """See ``ClusterView``."""
        topics = ask_topics(self.cluster, self._options.selection, strict=strict)
        selected = select(self._options.selection, topics, strict=strict)
        for warning in selected.warnings:
            self.warn(warning)
        names = {tp.topic for tp in selected.partitions}
        ids = {name: topic.topic_id for name, topic in topics.items() if name in names and topic.topic_id is not None}
        return Assigned(frozenset(selected.partitions), ids)

    def not_selected(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """See ``ClusterView``. It only chooses the words for a loss, so trouble is no reason to fail."""
        try:
            topics = self.cluster.topics({tp.topic for tp in partitions})
        except KafkaDirectError as error:
            self._log.info("whether partitions that are missing still exist is not known: %s", error)
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

    def samples(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, Sample]:
        """See ``ClusterView``."""
        leaders = self.cluster.known_leaders(begins)
        deadline, pool = self.cluster.deadline(_SAMPLING_SECONDS), self.cluster.pool
        samples: dict[TopicPartition, Sample] = {}
        for tp, offset in begins.items():
            try:
                settings, fetch = self._options.connection, self._options.fetch
                sample = take_sample(settings, fetch, tp, offset, deadline, leader=leaders.get(tp), pool=pool)
            except KafkaDirectError as error:
                # The sizes of before, or of other partitions, will do; if something is wrong, the tasks will say so.
                self._log.info("no sample of %s: %s", tp, error)
                continue
            if sample is not None:
                samples[tp] = sample
        return samples

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return leaders as far as they are known, without asking."""
        return self.cluster.known_leaders(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``ClusterView``."""
        group_id = self._options.start_group_id
        return {} if group_id is None else Group(self.cluster, group_id).committed(partitions)

    def wait(self) -> None:
        """See ``ClusterView``."""
        self.cluster.ask_another()
        interval = self._options.fetch_retry_interval_ms
        self.cluster.pool.system.sleep(_DEFAULT_INTERVAL if interval is None else interval / 1000)

    def clock(self) -> float:
        """Return seconds on a clock that never goes back."""
        return self.cluster.pool.system.monotonic()

    def warn(self, message: str) -> None:
        """See ``ClusterView``."""
        if message not in self._told:
            self._told.add(message)
            self._log.warning("%s", message)

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """Look up offsets of the partitions that exist; those that are gone are left out."""
        left = dict(wanted)
        while left:
            try:
                return self.cluster.offsets(left, isolation_level=isolation_level)
            except TopicNotFoundError as error:
                gone = [tp for tp in left if tp.topic == error.topic and error.partition in (None, tp.partition)]
                if not gone:
                    raise
                for tp in gone:
                    del left[tp]
        return {}
