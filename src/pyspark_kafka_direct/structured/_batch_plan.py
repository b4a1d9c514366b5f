"""Planning a batch against the cluster: the look-ups behind ``planning.batch``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.planning.batch import BatchPlan, Tuning, plan_given_ranges, plan_positions
from pyspark_kafka_direct.runtime.cluster import ask_topics, open_cluster, partition_numbers, select
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.pushdown import Pushdown
    from pyspark_kafka_direct.settings.source import BatchOptions
    from pyspark_kafka_direct.wire.cluster import Cluster, PartitionLeader, TopicMetadata
    from pyspark_kafka_direct.wire.pool import ConnectionPool


class PlannedBatch(NamedTuple):
    """A plan, and what planning learnt of the cluster that the tasks can use.

    Attributes:
        plan: The ranges.
        topics: Metadata of the topics in it.
        leaders: Who leads the partitions in it.
    """

    plan: BatchPlan
    topics: dict[str, TopicMetadata]
    leaders: dict[TopicPartition, PartitionLeader]


def plan_batch(options: BatchOptions, pushed: Pushdown | None, pool: ConnectionPool = POOL) -> PlannedBatch:
    """Plan a batch with a handful of requests, whatever the number of partitions.

    Args:
        options: The batch's options; ends follow the isolation level of its tasks.
        pushed: What filters of Spark leave.
        pool: Has the connections, and the system where the brokers are.

    Raises:
        KafkaDirectError: The cluster can't be asked, or the positions do not fit what it has.
    """
    cluster = open_cluster(options, pool)
    isolation_level = options.fetch.isolation_level
    tuning = Tuning(
        fail_on_data_loss=options.fail_on_data_loss,
        read_committed=isolation_level == "read_committed",
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    offsets = functools.partial(cluster.offsets, isolation_level=isolation_level)
    if options.offset_ranges is not None:
        topics = cluster.topics(wanted.topic for wanted in options.offset_ranges)
        plan = plan_given_ranges(options.offset_ranges, partition_numbers(topics), offsets, tuning, pushed)
        return PlannedBatch(plan, topics, _leaders(cluster, plan))
    topics = ask_topics(cluster, options.selection)
    selected = select(options.selection, topics)
    plan = plan_positions(options.start, options.end, selected.partitions, offsets, tuning, pushed)
    plan = BatchPlan(plan.ranges, plan.from_earliest, selected.warnings + plan.warnings)
    return PlannedBatch(plan, topics, _leaders(cluster, plan))


def _leaders(cluster: Cluster, plan: BatchPlan) -> dict[TopicPartition, PartitionLeader]:
    return cluster.known_leaders({wanted.topic_partition for wanted in plan.ranges})
