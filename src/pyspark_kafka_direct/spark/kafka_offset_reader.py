"""Access of a planner to brokers."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.consumer.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.consumer.query_metadata import (
    assigned_partitions,
    existing_partitions,
    fetch_topics,
    open_cluster,
)
from pyspark_kafka_direct.consumer.record_size import sample_record_size
from pyspark_kafka_direct.errors import KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions, contradiction_pause
from pyspark_kafka_direct.spark.loss_counts import LossCounter

if TYPE_CHECKING:
    import logging
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, PartitionLeader
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import IsolationLevel, ReadSettings
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause, SkippedLoss
    from pyspark_kafka_direct.planning.read_limits import RecordSizeSample

_DEFAULT_RETRY_SECONDS = 1.0
_SAMPLING_SECONDS = 5.0
_REMEMBERED_WARNINGS = 1000  # messages of losses contain offsets, so there are new ones for as long as a query runs


class KafkaOffsetReader:
    """Implements ``planning.offset_reader.OffsetReader``, which describes most methods, for the time of a query."""

    def __init__(self, settings: ReadSettings, log: logging.Logger, pool: ConnectionPool | None = None) -> None:
        self.cluster: ClusterClient = open_cluster(settings, pool)
        self._settings = settings
        self._log = log
        self._warn_once = lru_cache(maxsize=_REMEMBERED_WARNINGS)(partial(log.warning, "%s"))
        self._loss_counter = LossCounter(self.cluster.pool.system)
        self._blocked_warnings = BlockedPartitionWarnings(self.cluster, self.warn)

    def assigned(self, *, strict: bool) -> AssignedPartitions:
        topics = fetch_topics(self.cluster, self._settings.source.selection, strict=strict)
        selected = assigned_partitions(self._settings, topics, strict=strict)
        for warning in selected.warnings:
            self.warn(warning)
        names = {tp.topic for tp in selected.partitions}
        ids = {name: topic.topic_id for name, topic in topics.items() if name in names and topic.topic_id is not None}
        return AssignedPartitions(
            frozenset(selected.partitions),
            topic_ids=ids,
            described_partitions=sum(len(topic.partitions) for topic in topics.values()),
        )

    def not_selected(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        # The result only selects the message for a data loss, so an error is no reason to fail.
        try:
            topics = self.cluster.topics({tp.topic for tp in partitions})
        except KafkaDirectError as error:
            self._log.info("cannot check whether missing partitions still exist: %s", error)
            return set()
        selected = assigned_partitions(self._settings, topics, strict=False)
        return set(existing_partitions(topics, partitions)) - set(selected.partitions)

    def known_topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        return self.cluster.known_topic_ids(topics)

    def offsets(self, requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        isolation_level = self._settings.fetch.isolation_level
        offsets = self._offsets(requested, isolation_level)
        if isolation_level == "read_committed":
            last_stable_offsets = {tp: offsets[tp] for tp in offsets if requested[tp] == LATEST}
            self._blocked_warnings.check(last_stable_offsets)
        return offsets

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, LATEST), "read_uncommitted")

    def samples(self, from_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, RecordSizeSample]:
        leaders = self.cluster.known_leaders(from_offsets)
        topic_ids = self.cluster.known_topic_ids({tp.topic for tp in from_offsets})
        connection, fetch = self._settings.connection, self._settings.fetch
        deadline, pool = self.cluster.deadline(_SAMPLING_SECONDS), self.cluster.pool
        samples: dict[TopicPartition, RecordSizeSample] = {}
        for tp, offset in from_offsets.items():
            topic_id, leader = topic_ids.get(tp.topic), leaders.get(tp)
            try:
                sample = sample_record_size(
                    connection, fetch, tp, offset, deadline, topic_id=topic_id, leader=leader, pool=pool
                )
            except KafkaDirectError as error:
                # Earlier samples, or those of other partitions, are sufficient; the tasks report persistent errors.
                self._log.info("cannot sample the record size of %s: %s", tp, error)
                continue
            if sample is not None:  # None: the leader returned no complete batch
                samples[tp] = sample
        return samples

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return leaders from cached metadata."""
        return self.cluster.known_leaders(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        group_id = self._settings.source.start_group_id
        return {} if group_id is None else ConsumerGroup(self.cluster, group_id).committed(partitions)

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> set[TopicPartition]:
        return self.cluster.confirm_missing(suspects)

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        self.cluster.raise_epoch_floors(topics)

    def wall_time_ms(self) -> int:
        return int(self.cluster.pool.system.wall_time() * 1000)

    def sleep(self, seconds: float) -> None:
        self.cluster.pool.system.sleep(seconds)

    def wait(self) -> None:
        self.cluster.use_next_broker()
        interval = self._settings.source.offset_fetch_retry_interval_ms
        self.sleep(contradiction_pause(_DEFAULT_RETRY_SECONDS if interval is None else interval / 1000))

    def clock(self) -> float:
        return self.cluster.pool.system.monotonic()

    def warn(self, message: str) -> None:
        self._warn_once(message)

    def report_loss(self, loss: SkippedLoss) -> None:
        self.warn(loss.message)
        self.count_loss(loss.cause, loss.offsets)

    def count_loss(self, cause: DataLossCause, offsets: Mapping[TopicPartition, int]) -> None:
        """Count a loss that is logged elsewhere."""
        self._loss_counter.add(cause, offsets)

    def count_malformed(
        self, mode: str, records: Mapping[TopicPartition, int], schema_errors: Mapping[TopicPartition, int]
    ) -> None:
        """Count malformed records that tasks have read or dropped, and those whose schema could not be used."""
        self._loss_counter.add_malformed(mode, records, schema_errors)

    def _offsets(
        self, requested: Mapping[TopicPartition, int], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """Fetch offsets of the partitions that exist: repeat the request without those that are missing."""
        remaining = dict(requested)
        while remaining:
            try:
                return self.cluster.offsets(remaining, isolation_level=isolation_level)
            except TopicNotFoundError as error:
                missing = [
                    tp for tp in remaining if tp.topic == error.topic and error.partition in (None, tp.partition)
                ]
                if not missing:
                    raise  # the request would be the same
                for tp in missing:
                    del remaining[tp]
        return {}
