"""The cluster of a query, and the metadata of the topics that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.options.subscription import SubscribePatternStrategy
from pyspark_kafka_direct.planning.subscription import SelectedPartitions, restrict_to_existing, select_partitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import TopicMetadata
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy
    from pyspark_kafka_direct.options.token_clusters import TokenCluster


def open_cluster(settings: ReadSettings, pool: ConnectionPool | None = None) -> ClusterClient:
    """Return a client with the query's number of attempts; it sends no request."""
    attempts, interval = settings.source.offset_fetch_attempts, settings.source.offset_fetch_retry_interval_ms
    return ClusterClient(
        settings.connection,
        retries=None if attempts is None else attempts - 1,
        retry_interval=None if interval is None else interval / 1000,
        pool=pool,
    )


def open_stream_cluster(options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = ()) -> ClusterClient:
    """Return a client for a stream from the options of its source, as Spark stores them."""
    from pyspark_kafka_direct.options.read_options import parse_stream_options

    return open_cluster(parse_stream_options(options, token_clusters))


def fetch_end_offsets(
    options: Mapping[str, str],
    partitions: Collection[TopicPartition],
    token_clusters: Sequence[TokenCluster] = (),
) -> dict[TopicPartition, int]:
    """Return where the logs of a stream end: the high watermarks, with any isolation level."""
    return open_stream_cluster(options, token_clusters).offsets(dict.fromkeys(partitions, LATEST))


def fetch_topics(
    cluster: ClusterClient, selection: SubscriptionStrategy, *, strict: bool = True
) -> dict[str, TopicMetadata]:
    """Return metadata of all topics for a pattern, else of the named topics that exist.

    An error of a topic that is not selected is ignored.
    """
    if isinstance(selection, SubscribePatternStrategy):
        pattern = selection.pattern
        return cluster.all_topics(required=lambda name: bool(pattern.occurs_in([name])))
    topics = cluster.topics(selection.topics)
    # The error about a missing topic suggests similar names, so it needs all topics.
    if strict and len(topics) < len(selection.topics):
        return {**cluster.all_topics(required=selection.topics.__contains__), **topics}
    return topics


def assigned_partitions(
    settings: ReadSettings, topics: Mapping[str, TopicMetadata], *, strict: bool = True
) -> SelectedPartitions:
    """Return the partitions that a query reads; if ``strict``, a missing topic or partition is an error."""
    selection = settings.source.selection
    existing = partitions_by_topic(topics)
    internal = {name for name, topic in topics.items() if topic.internal}
    return select_partitions(
        selection if strict else restrict_to_existing(selection, existing),
        existing,
        internal,
        servers=settings.connection.bootstrap_string,
    )


def partitions_by_topic(topics: Mapping[str, TopicMetadata]) -> dict[str, set[int]]:
    return {name: set(topic.partitions) for name, topic in topics.items()}


def existing_partitions(
    topics: Mapping[str, TopicMetadata], partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    return [tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
