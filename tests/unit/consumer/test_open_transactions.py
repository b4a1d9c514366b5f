"""Warnings about open transactions, with simulated brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.consumer.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.errors import UnsupportedBrokerError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PARTITIONS = (T0, T1, U0)
SINCE = "is blocked since 20"
PRODUCER_7 = " by producer id 7 (epoch 0): 501 offsets from 10 on"
NO_PRODUCER = " UTC: 501 offsets from 10 on"


class Query:
    """The checks of a query in a simulated cluster with two topics."""

    def __init__(self, cluster: UnitCluster) -> None:
        self.cluster = cluster
        self.client: ClusterClient = cluster.client()
        self.messages: list[str] = []
        self._warnings = BlockedPartitionWarnings(self.client, self.messages.append)

    def check(self, partitions: Sequence[TopicPartition] = PARTITIONS) -> None:
        ends = self.client.offsets(dict.fromkeys(partitions, LATEST), isolation_level="read_committed")
        self._warnings.check(ends)

    def check_for(self, seconds: float) -> None:
        """Check as often as Spark polls an idle source."""
        until = self.cluster.now + seconds
        while self.cluster.now < until:
            self.check()
            self.cluster.sleep(0.1)


def two_topics(**settings: Any) -> UnitCluster:
    return UnitCluster({"t": 2, "u": 1}, brokers=2, **settings)


def block(cluster: UnitCluster, tp: TopicPartition, producer_id: int = 7) -> None:
    """Leave a transaction open at offset 10, with 500 more records after its only one."""
    cluster.append(tp, 10)
    cluster.append(tp, 1, producer_id=producer_id)
    cluster.append(tp, 500)
    cluster.sleep(1)  # the followers replicate


def test_the_transaction_that_blocks_a_partition_is_named_once() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        query.check()
        cluster.elect(U0, 2)
        block(cluster, T0)
        block(cluster, U0, producer_id=8)
        query.check_for(60)
        (message,) = query.messages
        assert message.count(SINCE) == 2
        assert f"t-0 {SINCE}" in message
        assert PRODUCER_7 in message
        assert PRODUCER_7.replace("id 7", "id 8") in message
        assert cluster.sent("DescribeProducers") == 2, "one request to each leader"
        # Two ListOffsets requests for each check of two leaders; the high watermarks at most every five seconds.
        high_watermarks = [each for each in cluster.received("ListOffsets") if each.isolation_level == 0]
        assert len(high_watermarks) <= 2 * 14


def test_a_transaction_that_ends_soon_is_not_reported() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        query.check()
        for round_number in range(10):
            cluster.append(T0, 5, producer_id=7)
            query.check_for(6)
            cluster.end_transaction(T0, 7, commit=round_number % 2 == 0)
        assert query.messages == []
        assert cluster.sent("DescribeProducers") == 0


def test_the_next_transaction_is_reported_again() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        block(cluster, T0)
        query.check_for(30)
        cluster.end_transaction(T0, 7, commit=True)
        cluster.append(T0, 1, producer_id=9)
        query.check_for(30)
        first, second = query.messages
        assert PRODUCER_7 in first
        assert "by producer id 9 (epoch 0): 1 offsets from 512 on" in second


def test_a_broker_without_describe_producers() -> None:
    """Kafka before 2.8."""
    with two_topics(newest_versions={"DescribeProducers": -1}) as cluster:
        query = Query(cluster)
        block(cluster, T0)
        query.check_for(30)
        (message,) = query.messages
        assert SINCE in message
        assert NO_PRODUCER in message
        with pytest.raises(UnsupportedBrokerError, match="does not support the request DescribeProducers"):
            query.client.open_transactions([T0])


@pytest.mark.parametrize("fault", [("error", {"code": 29}), ("stall_response", {})])
def test_a_principal_or_a_broker_that_does_not_allow_it(fault: tuple[str, dict[str, int]]) -> None:
    """TOPIC_AUTHORIZATION_FAILED, and no response."""
    with two_topics() as cluster:
        query = Query(cluster)
        block(cluster, T0)
        cluster.every("DescribeProducers", fault[0], **fault[1])
        started = cluster.now
        query.check()
        assert cluster.now - started < 6, "the query waits for this request"
        (message,) = query.messages
        assert NO_PRODUCER in message


def test_a_leader_that_moved_is_asked_again() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        block(cluster, T0)
        query.client.offsets({T0: LATEST})
        cluster.fault("DescribeProducers", "error", draw=0)
        assert query.client.open_transactions([T0, T1]) == {T0: (OpenTransaction(7, 0, 10),), T1: ()}
        assert cluster.sent("DescribeProducers") == 2


def test_a_producer_whose_transaction_has_ended_is_not_named() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        cluster.append(T0, 1, producer_id=5)
        cluster.end_transaction(T0, 5, commit=True)
        cluster.append(T0, 1, producer_id=7)
        cluster.sleep(1)  # the followers replicate
        query.check()
        (message,) = query.messages
        assert "by producer id 7 (epoch 0): " in message
        assert "producer id 5" not in message


def test_an_error_of_the_check_does_not_affect_the_query() -> None:
    with two_topics() as cluster:
        query = Query(cluster)
        ends = query.client.offsets(dict.fromkeys(PARTITIONS, LATEST), isolation_level="read_committed")
        block(cluster, T0)
        cluster.every("ListOffsets", "lose_request")
        warnings = BlockedPartitionWarnings(query.client, query.messages.append)
        started = cluster.now
        warnings.check({**ends, T0: 10})
        assert query.messages == []
        assert cluster.now - started < 6, "the query waits for this request"
        cluster.every("ListOffsets", None)
        cluster.sleep(20)
        warnings.check({**ends, T0: 10})
        assert len(query.messages) == 1
