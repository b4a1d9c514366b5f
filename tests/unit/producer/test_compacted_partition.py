"""Waiting for the stable end of a compacted topic, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition, TopicErrorText

if TYPE_CHECKING:
    from collections.abc import Iterator

ERROR_TEXT = TopicErrorText("topic of things", "things", "What there is", "Stay apart.", OptionError)
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """The topic has four records, and five of an open transaction."""
    with UnitCluster({"t": 1}) as cluster:
        cluster.append(PARTITION, 4)
        cluster.append(PARTITION, 5, producer_id=7)
        yield cluster


def wait_for_stable_end(cluster: UnitCluster, seconds: float) -> int:
    partition = CompactedPartition(cluster.client(), "t", ERROR_TEXT)
    return partition.wait_for_stable_end(Deadline.after(seconds, system=cluster.process))


def test_open_transactions_are_waited_for(cluster: UnitCluster) -> None:
    """Records that are appended in between do not count."""
    cluster.after(1, lambda: cluster.append(PARTITION, 3))
    cluster.after(2, lambda: cluster.end_transaction(PARTITION, 7, commit=True))
    start = cluster.now
    assert wait_for_stable_end(cluster, 20) == 9
    assert 2 < cluster.now - start < 2.5


@pytest.mark.parametrize("is_down", [False, True])
def test_the_error_names_the_offset_of_a_transaction_that_stays_open(cluster: UnitCluster, is_down: bool) -> None:
    """Also if too little time is left for the last request."""
    if is_down:
        cluster.after(0.5, lambda: cluster.event("pause_broker", broker=0, seconds=100))
    with pytest.raises(BrokerTimeoutError, match=r"a transaction of another writer is open from offset 4 on") as caught:
        wait_for_stable_end(cluster, 1)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 4)


def test_a_request_timeout_is_raised_unchanged(cluster: UnitCluster) -> None:
    client = cluster.client()
    client.offsets({PARTITION: 0})
    cluster.fault("ListOffsets", "stall_request", repeats=10)
    with pytest.raises(BrokerTimeoutError, match="ListOffsets"):
        CompactedPartition(client, "t", ERROR_TEXT).wait_for_stable_end(Deadline.after(1, system=cluster.process))
