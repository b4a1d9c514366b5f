"""The cluster client of a query, from the options of its source."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.client.metadata import PartitionMetadata, TopicMetadata
from pyspark_kafka_direct.consumer.query_metadata import (
    assigned_partitions,
    existing_partitions,
    open_stream_cluster,
)
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.read_options import parse_batch_options


def test_the_client_is_created_from_options_with_lower_case_names() -> None:
    cluster = open_stream_cluster(
        {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "commitgroupid": "shop",
            "fetchoffset.numretries": "5",
            "fetchoffset.retryintervalms": "250",
        }
    )
    assert cluster.settings.bootstrap_servers == (("b", 1),)
    assert (cluster._retries, cluster._retry_interval) == (4, 0.25), "as many attempts as the planner"


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        open_stream_cluster({"subscribe": "t"})


def test_partitions_that_exist() -> None:
    topics = {name: TopicMetadata(name, None, False, {0: PartitionMetadata(0, leader=1)}) for name in "tu"}
    partitions = [TopicPartition(*each) for each in (("t", 0), ("t", 1), ("missing", 0), ("u", 0))]
    assert existing_partitions(topics, partitions) == [TopicPartition("t", 0), TopicPartition("u", 0)]


def test_a_pattern_selects_no_internal_topic() -> None:
    names = {"__consumer_offsets": True, "__transaction_state": True, "__ours": False}
    topics = {
        name: TopicMetadata(name, None, internal, {0: PartitionMetadata(0, leader=1)})
        for name, internal in names.items()
    }
    settings = parse_batch_options({"kafka.bootstrap.servers": "b:1", "subscribePattern": "__.*"})
    assert assigned_partitions(settings, topics).partitions == (TopicPartition("__ours", 0),)
