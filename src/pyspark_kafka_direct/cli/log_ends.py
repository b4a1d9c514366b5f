"""The ends of logs for commands that compare them with offsets of queries and groups, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition


def log_ends(
    cluster: ClusterClient, partitions: Collection[TopicPartition], *, with_stable_ends: bool = False
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the ends of the partitions that exist, and the last stable offsets if they are wanted."""
    from pyspark_kafka_direct.offsets import LATEST

    deadline = cluster.deadline()
    topics = cluster.topics({tp.topic for tp in partitions}, deadline=deadline) if partitions else {}
    existing = [tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
    if not existing:
        return {}
    latest = dict.fromkeys(existing, LATEST)
    ends = cluster.offsets(latest, deadline=deadline)
    stable = cluster.offsets(latest, isolation_level="read_committed", deadline=deadline) if with_stable_ends else {}
    return {tp: (ends[tp], stable.get(tp)) for tp in existing}


def behind_log_end(positions: Iterable[str]) -> str:
    """Return what to say of a query that continues behind the end of a log, at positions such as ``flights-0 at 3``."""
    return (
        f"The query continues behind the end of the log: {listed(positions)}. The checkpoint is that of another query "
        "or cluster, or the topic was recreated: use the checkpoint of this query, or a new one."
    )


def not_in_cluster(partitions: Iterable[TopicPartition]) -> str:
    """Return what to say of partitions of a checkpoint that do not exist."""
    return (
        f"No longer in the cluster: {listed(sorted(partitions))}. The topics were deleted, or the checkpoint is that "
        "of another query or cluster. What the query would do: kafka-direct checkpoint preflight"
    )
