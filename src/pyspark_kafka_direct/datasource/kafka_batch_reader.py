"""The batch reader of ``kafka-direct``: it plans offset ranges on the driver, and each task reads one."""

from __future__ import annotations

import contextlib
import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark.sql.datasource import DataSourceReader

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.datasource.batch_planner import BatchPlan, plan_explicit_ranges, plan_offset_specs
from pyspark_kafka_direct.datasource.kept_plan import KeptPlan
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition, KafkaReader
from pyspark_kafka_direct.datasource.pushed_filters import PushedFilters, push_filters
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.offset_specs import Latest
from pyspark_kafka_direct.options.subscription import SubscribePatternStrategy
from pyspark_kafka_direct.planning.offset_resolution import start_may_change
from pyspark_kafka_direct.spark.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.spark.query_metadata import (
    assigned_partitions,
    fetch_topics,
    open_cluster,
    partitions_by_topic,
)
from pyspark_kafka_direct.spark.worker_lifecycle import end_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from pyspark.sql.datasource import Filter, InputPartition

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, PartitionLeader, TopicMetadata
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.datasource.batch_planner import OffsetLookup
    from pyspark_kafka_direct.datasource.partition_reader import KafkaPartitionReader
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.options.offset_specs import OffsetSpec
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss

_log = logging.getLogger("pyspark_kafka_direct.datasource")


class PlannedBatch(NamedTuple):
    """A batch plan, with metadata that tasks can use."""

    plan: BatchPlan
    topic_ids: dict[str, UUID]  # as far as they are known
    leaders: dict[TopicPartition, PartitionLeader]


def plan_batch_query(settings: ReadSettings, pushed: PushedFilters | None, pool: ConnectionPool = POOL) -> PlannedBatch:
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
        source.end or Latest(),
        selected.partitions,
        fetch_offsets,
        settings,
        pushed=pushed,
        raise_epoch_floors=cluster.raise_epoch_floors,
    )
    plan = _confirmed_plan(plan_once, cluster, {tp.topic for tp in selected.partitions})
    warnings = [*selected.warnings, *plan.warnings]
    if settings.fetch.read_committed:
        BlockedPartitionWarnings(cluster, warnings.append).check(plan.latest)  # adds a warning for them
    plan = replace(plan, warnings=tuple(warnings))
    return PlannedBatch(plan, _topic_ids(cluster, topics), _leaders(cluster, plan))


class KafkaBatchReader(KafkaReader, DataSourceReader):
    _pushed_filters: PushedFilters | None = None

    def _partition_reader(self) -> KafkaPartitionReader:
        reader, source = super()._partition_reader(), self._settings.source
        if source.offset_ranges is not None or not start_may_change(source.end or Latest()):
            return reader  # the end is fixed
        selection = source.selection
        names = selection.pattern.text if isinstance(selection, SubscribePatternStrategy) else listed(selection.topics)
        return reader._replace(kept_plan=KeptPlan(POOL.system.nonce(), names))

    def partitions(self) -> list[InputPartition]:
        plan, topic_ids, leaders = plan_batch_query(self._settings, self._pushed_filters)
        for warning in plan.warnings:
            _log.warning("%s", warning)
        if plan.losses:
            self._report_losses(plan.losses)
        end_task()  # the planning process is a worker of the daemon, too
        return [
            KafkaInputPartition(
                RangeTask(
                    offset_range,
                    topic_id=offset_range.topic_id or topic_ids.get(offset_range.topic),
                    leader=leaders.get(offset_range.topic_partition),
                    from_earliest=offset_range in plan.from_earliest,
                )
            )
            for offset_range in plan.ranges
        ]

    def _report_losses(self, losses: Sequence[SkippedLoss]) -> None:
        from pyspark_kafka_direct.client.system import SYSTEM
        from pyspark_kafka_direct.spark.loss_counts import LossCounter

        counter = LossCounter(SYSTEM)
        for loss in losses:
            _log.warning("%s", loss.message)
            counter.add(loss.cause, loss.offsets)


class FilterPushdownBatchReader(KafkaBatchReader):
    """A batch reader with filter pushdown."""

    # Spark rejects a reader that defines ``pushFilters`` unless spark.sql.python.filterPushdown.enabled is set, and
    # Python cannot see that setting. So this class is used only if the option ``pushDownFilters`` is set.
    #
    # Spark (up to 4.3.0) keeps one plan per ``load()``, and each push of filters replaces it. If the
    # same frame is used again with other filters, it returns the rows that match the filters pushed last. The reader is
    # not called in that case, so it can only warn in advance.

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrow the plan by pushed filters, and return those that Spark has to evaluate."""
        from pyspark_kafka_direct.datasource import filter_translation  # needs Spark 4.1

        _warn_of_one_plan_per_load()
        self._pushed_filters = push_filters([filter_translation.translate_filter(pushed) for pushed in filters])
        return [
            pushed
            for pushed, is_enforced in zip(filters, self._pushed_filters.enforced, strict=True)
            if not is_enforced
        ]


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


@functools.cache
def _warn_of_one_plan_per_load() -> None:
    _log.warning(
        "pushDownFilters: Spark keeps one plan per load(). Use each loaded DataFrame in one query with one set of "
        "filters, and call load() again for another query. Otherwise it may silently return the rows of this one."
    )
