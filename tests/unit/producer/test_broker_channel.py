"""The connection of a producer to one broker."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.unit.client.fake_broker import VERSIONS, FakeBroker
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import Node
from pyspark_kafka_direct.errors import UnsupportedBrokerError
from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
from pyspark_kafka_direct.producer.broker_channel import BrokerChannel
from pyspark_kafka_direct.protocol.messages import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.producer.produce_channel import ProduceChannel


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    pool.close()


def test_a_connection_to_a_broker_without_zstd_is_released(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, PRODUCE.key, (0, 6))
    with FakeBroker() as broker:
        for _ in range(3):
            settings = ProducerSettings(codec="zstd")
            node = Node(1, "127.0.0.1", broker.port)
            link = BrokerChannel(ClusterClient(broker.settings, pool=pool), node, settings, None, adds_partitions=True)
            with pytest.raises(UnsupportedBrokerError, match="zstd"):
                link.connect(Deadline.after(120))
            link.close()
        assert broker.connections == 1, "the released connection is reused"


def test_a_closed_channel_releases_its_connection(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, PRODUCE.key, (3, 11))
    with FakeBroker() as broker:
        cluster = ClusterClient(broker.settings, pool=pool)
        for release in (BrokerChannel.close, BrokerChannel.disconnect):
            channel = BrokerChannel(
                cluster, Node(1, "127.0.0.1", broker.port), ProducerSettings(), None, adds_partitions=True
            )
            for _ in range(2):
                channel.connect(Deadline.after(120))
                release(channel)
        assert broker.connections == 1


def test_a_slow_broker_that_responds_does_not_time_out() -> None:
    """It handles the requests of a connection one after the other, so each one waits for those before it."""
    system = FakeTimeSystem()
    cluster = ClusterClient(ConnectionSettings((("b", 1),)), pool=ConnectionPool(system))
    channel = BrokerChannel(cluster, Node(1, "b", 1), ProducerSettings(), None, adds_partitions=True)
    connection = SimpleNamespace(has_response=lambda: False)
    channel._channel = cast(
        "ProduceChannel",
        SimpleNamespace(connection=connection, request=lambda *_: None, response=lambda _: ({}, 0)),
    )
    for _ in range(5):
        channel.send({}, math.inf)
    for _ in range(4):
        system.now += 20  # of request.timeout.ms, 30 s
        assert not channel.timed_out
        channel.receive()
    system.now += 29
    assert not channel.timed_out
    system.now += 1
    assert channel.timed_out
