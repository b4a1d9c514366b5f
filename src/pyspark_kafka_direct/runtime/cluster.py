"""The cluster as planning asks it, for batches and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.select import Selected, SubscribePattern, select_partitions
from pyspark_kafka_direct.planning.stream_select import existing
from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options import ReadOptions
    from pyspark_kafka_direct.planning.select import Selection
    from pyspark_kafka_direct.wire.cluster import TopicMetadata
    from pyspark_kafka_direct.wire.settings import ConnectionSettings


def open_cluster(settings: ConnectionSettings, options: ReadOptions) -> Cluster:
    """A cluster that tries as often as the options say."""
    tries, interval = options.fetch_tries, options.fetch_retry_interval_ms
    return Cluster(
        settings,
        retries=None if tries is None else tries - 1,
        retry_interval=None if interval is None else interval / 1000,
    )


def ask_topics(cluster: Cluster, selection: Selection, *, strict: bool = True) -> dict[str, TopicMetadata]:
    """Metadata of the topics a selection may mean: all there are for a pattern, else the named ones that exist.

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
    """The assigned partitions.

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
    """Partition numbers by topic."""
    return {name: set(topic.partitions) for name, topic in topics.items()}
