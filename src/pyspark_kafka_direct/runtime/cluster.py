"""Open the cluster of a query, and ask it about the topics that the query reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.select import Selected, SubscribePattern, select_partitions
from pyspark_kafka_direct.planning.stream_select import existing
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.select import Selection
    from pyspark_kafka_direct.settings.source import ReadOptions
    from pyspark_kafka_direct.wire.cluster import TopicMetadata
    from pyspark_kafka_direct.wire.pool import ConnectionPool


def open_cluster(options: ReadOptions, pool: ConnectionPool = POOL) -> Cluster:
    """Return a cluster that tries as often as the options say; nothing is asked yet."""
    tries, interval = options.fetch_tries, options.fetch_retry_interval_ms
    return Cluster(
        options.connection,
        retries=None if tries is None else tries - 1,
        retry_interval=None if interval is None else interval / 1000,
        pool=pool,
    )


def cluster_of(options: Mapping[str, str]) -> Cluster:
    """Return the cluster of a stream from nothing but the options of its source, as Spark has them.

    Raises:
        OptionError: An option's value cannot be used.
    """
    from pyspark_kafka_direct.settings.source import parse_stream_options

    return open_cluster(parse_stream_options(options))


def ends_now(options: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of partitions as a stream sees them: with ``read_committed`` the last stable offsets.

    Args:
        options: Options of the stream's source, as Spark has them.
        partitions: Which.

    Raises:
        KafkaDirectError: The cluster can't be asked, or a partition is gone.
    """
    from pyspark_kafka_direct.settings.source import parse_stream_options

    given = parse_stream_options(options)
    wanted = dict.fromkeys(partitions, LATEST)
    return open_cluster(given).offsets(wanted, isolation_level=given.fetch.isolation_level)


def ask_topics(cluster: Cluster, selection: Selection, *, strict: bool = True) -> dict[str, TopicMetadata]:
    """Return metadata of the topics a selection may mean: all for a pattern, else the named ones that exist.

    Args:
        cluster: The cluster.
        selection: What the user asked for.
        strict: A named topic that does not exist will be an error; then all others come too, for its hint.

    Raises:
        KafkaDirectError: The cluster can't be asked.
    """
    if isinstance(selection, SubscribePattern):
        return cluster.all_topics()
    topics = cluster.topics(selection.topics)
    if strict and len(topics) < len(selection.topics):
        return {**cluster.all_topics(), **topics}
    return topics


def select(selection: Selection, topics: Mapping[str, TopicMetadata], *, strict: bool = True) -> Selected:
    """Return the assigned partitions.

    Args:
        selection: What the user asked for.
        topics: Metadata from ``ask_topics``.
        strict: Raise for a named topic or partition that does not exist, instead of leaving it out.

    Raises:
        TopicNotFoundError: See ``strict``.
    """
    numbers = partition_numbers(topics)
    internal = {name for name, topic in topics.items() if topic.internal}
    return select_partitions(selection if strict else existing(selection, numbers), numbers, internal)


def partition_numbers(topics: Mapping[str, TopicMetadata]) -> dict[str, set[int]]:
    """Return partition numbers by topic."""
    return {name: set(topic.partitions) for name, topic in topics.items()}


def existing_partitions(
    topics: Mapping[str, TopicMetadata], partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return those of some partitions that the brokers have."""
    return [tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
