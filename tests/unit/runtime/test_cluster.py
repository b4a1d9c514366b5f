"""The cluster of a query, from the options of its source alone."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.cluster import cluster_of, existing_partitions
from pyspark_kafka_direct.wire.metadata import PartitionMetadata, TopicMetadata


def test_options_as_spark_has_them_are_all_that_is_needed() -> None:
    cluster = cluster_of(
        {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "commitgroupid": "shop",
            "fetchoffset.numretries": "5",
            "fetchoffset.retryintervalms": "250",
        }
    )
    assert cluster.settings.bootstrap_servers == (("b", 1),)
    assert (cluster._retries, cluster._retry_interval) == (4, 0.25), "as often as the planner tries"


def test_options_that_no_source_could_have_are_refused() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        cluster_of({"subscribe": "t"})


def test_partitions_that_exist() -> None:
    topics = {"t": TopicMetadata("t", None, False, {0: PartitionMetadata(0, leader=1)})}
    asked = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)]
    assert existing_partitions(topics, asked) == [TopicPartition("t", 0)]
