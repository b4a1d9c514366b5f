"""The cluster that a source reads, from the source's options; and the ends of its partitions now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.cluster import Cluster


def open_cluster(options: Mapping[str, str]) -> Cluster:
    """Nothing is asked yet.

    Args:
        options: Of the source.
    """
    from pyspark_kafka_direct.options import parse_stream_options
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.settings import connection_settings

    given = parse_stream_options(options)
    return Cluster(connection_settings(given.kafka, oauth_token_provider=given.oauth_token_provider))


def ends_now(options: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Ends as the source sees them: with ``read_committed`` the last stable offsets.

    Args:
        options: Of the source.
        partitions: Which.

    Raises:
        KafkaDirectError: The cluster can't be asked, or a partition is gone.
    """
    return open_cluster(options).offsets(dict.fromkeys(partitions, LATEST))
