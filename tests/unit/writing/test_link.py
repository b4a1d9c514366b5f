"""The connection of a producer with one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import VERSIONS, Broker

from pyspark_kafka_direct.errors import UnsupportedBrokerError
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.messages import PRODUCE
from pyspark_kafka_direct.wire.metadata import Node
from pyspark_kafka_direct.wire.pool import ConnectionPool
from pyspark_kafka_direct.writing._link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    pool.close()


def test_a_broker_that_takes_no_zstd_keeps_no_connection(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, PRODUCE.key, (0, 6))
    with Broker() as broker:
        for _ in range(3):
            settings = ProduceSettings(codec="zstd")
            node = Node(1, "127.0.0.1", broker.port)
            link = Link(Cluster(broker.settings, pool=pool), node, settings, None, adds_partitions=True)
            with pytest.raises(UnsupportedBrokerError, match="zstd"):
                link.connect()
            link.close()
        assert broker.connections == 1, "what nobody needs is lent again"
