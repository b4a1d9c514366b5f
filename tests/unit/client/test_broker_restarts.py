"""A client whose only broker is down, on a simulated cluster."""

from __future__ import annotations

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

PARTITION = TopicPartition("flights", 0)


def test_client_waits_for_a_returning_broker() -> None:
    with UnitCluster({"flights": 1}) as cluster:
        client = cluster.client()
        cluster.append(PARTITION, 3)
        assert client.offsets({PARTITION: LATEST}) == {PARTITION: 3}
        cluster.event("stop_broker", broker=0, seconds=20)
        start = cluster.now
        assert client.offsets({PARTITION: EARLIEST}) == {PARTITION: 0}
        assert 20 < cluster.now - start < 22


def test_absent_broker_raises_at_the_deadline() -> None:
    with UnitCluster({"flights": 1}, connection={"default_api_timeout_ms": 5000}) as cluster:
        client = cluster.client()
        client.offsets({PARTITION: LATEST})
        cluster.event("stop_broker", broker=0, seconds=100)
        start = cluster.now
        with pytest.raises(BrokerUnreachableError, match="broker-1:9092"):
            client.offsets({PARTITION: LATEST})
        assert 4 < cluster.now - start < 6
