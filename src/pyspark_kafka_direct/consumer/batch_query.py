"""Plans a bounded read: metadata and offsets from the brokers, and the offset ranges of its tasks."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.consumer.query_metadata import (
    assigned_partitions,
    fetch_topics,
    open_cluster,
    partitions_by_topic,
)
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError
from pyspark_kafka_direct.options.offset_specs import AT_LATEST
from pyspark_kafka_direct.planning.batch_planner import BatchPlan, plan_explicit_ranges, plan_offset_specs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, PartitionLeader, TopicMetadata
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.options.offset_specs import OffsetSpec
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.planning.offset_resolution import OffsetLookup
    from pyspark_kafka_direct.planning.pushed_filters import PushedFilters


class PlannedBatch(NamedTuple):
    """A batch plan, with metadata that tasks can use."""

    plan: BatchPlan
    topic_ids: dict[str, UUID]  # as far as they are known
    leaders: dict[TopicPartition, PartitionLeader]

    def tasks(self) -> list[RangeTask]:
        """Return the tasks of the ranges, in their order."""
        return [
            RangeTask(
                offset_range,
                topic_id=offset_range.topic_id or self.topic_ids.get(offset_range.topic),
                leader=self.leaders.get(offset_range.topic_partition),
                from_earliest=offset_range in self.plan.from_earliest,
            )
            for offset_range in self.plan.ranges
        ]


def plan_batch_query(
    settings: ReadSettings, *, pushed: PushedFilters | None = None, pool: ConnectionPool = POOL
) -> PlannedBatch:
    """Plan a batch with a constant number of requests per broker."""
    cluster = open_cluster(settings, pool)
    # With read_committed, a log ends at its last stable offset.
    fetch_offsets = functools.partial(cluster.offsets, isolation_level=settings.fetch.isolation_level)
    if settings.source.offset_ranges is not None:
        return _plan_offset_ranges(settings.source.offset_ranges, settings, pushed, cluster, fetch_offsets)
    return _plan_subscription(settings, pushed, cluster, fetch_offsets)


def _plan_offset_ranges(
    ranges: Sequence[OffsetRange],
    settings: ReadSettings,
    pushed: PushedFilters | None,
    cluster: ClusterClient,
    fetch_offsets: OffsetLookup,
) -> PlannedBatch:
    """Plan the ranges of the option ``offsetRanges``."""
    topics = cluster.topics(offset_range.topic for offset_range in ranges)
    plan_once = functools.partial(
        plan_explicit_ranges,
        ranges,
        partitions_by_topic(topics),
        {name: topic.topic_id for name, topic in topics.items()},
        fetch_offsets,
        settings,
        pushed=pushed,
    )
    plan = _confirmed_plan(plan_once, cluster, {offset_range.topic for offset_range in ranges})
    return PlannedBatch(plan, _topic_ids(cluster, topics), _leaders(cluster, plan))


def _plan_subscription(
    settings: ReadSettings, pushed: PushedFilters | None, cluster: ClusterClient, fetch_offsets: OffsetLookup
) -> PlannedBatch:
    """Plan the selected partitions from the start to the end of the options."""
    source = settings.source
    topics = fetch_topics(cluster, source.selection)
    selected = assigned_partitions(settings, topics)
    plan_once = functools.partial(
        plan_offset_specs,
        cast("OffsetSpec", source.start),  # a batch has no committed start
        source.end or AT_LATEST,
        selected.partitions,
        fetch_offsets,
        settings,
        now_ms=int(cluster.pool.system.wall_time() * 1000),  # once: both ends, and a second plan, have the same one
        pushed=pushed,
        raise_epoch_floors=cluster.raise_epoch_floors,
    )
    plan = _confirmed_plan(plan_once, cluster, {tp.topic for tp in selected.partitions})
    warnings = [*selected.warnings, *plan.warnings]
    if settings.fetch.read_committed:
        BlockedPartitionWarnings(cluster, warnings.append).check(plan.latest)  # adds a warning for them
    plan = replace(plan, warnings=tuple(warnings))
    return PlannedBatch(plan, _topic_ids(cluster, topics), _leaders(cluster, plan))


def _confirmed_plan(plan_once: Callable[[], BatchPlan], cluster: ClusterClient, topics: Collection[str]) -> BatchPlan:
    """Plan, and plan again after a loss, a warning or invalid offsets: a deposed leader may have responded."""
    with contextlib.suppress(DataLossError, InvalidOffsetsError):
        first = plan_once()
        if not first.warnings and not first.losses:
            return first
    cluster.raise_epoch_floors(topics)  # so that deposed leaders do not respond to the second plan
    return plan_once()


def _topic_ids(cluster: ClusterClient, topics: Mapping[str, TopicMetadata]) -> dict[str, UUID]:
    """Return the topic ids of the latest metadata: that of the first request may have come from a broker that lags."""
    first_ids = {name: topic.topic_id for name, topic in topics.items() if topic.topic_id is not None}
    return first_ids | cluster.known_topic_ids(topics)


def _leaders(cluster: ClusterClient, plan: BatchPlan) -> dict[TopicPartition, PartitionLeader]:
    return cluster.known_leaders({offset_range.topic_partition for offset_range in plan.ranges})
