"""Exactly-once deliveries while the network and the brokers fail; read back by librdkafka."""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest
from tests import proxy
from tests.integration.deliveries import batch_of, cluster_of, committed
from tests.proxy import Fate, Network

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError, KafkaDirectError
from pyspark_kafka_direct.planning.delivery import Attempt
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.writing.exactly_once import Delivery, deliver, prepare
from pyspark_kafka_direct.writing.markers import MarkerStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic

PARTITIONS = 4
BATCHES = 25
WRITING = {proxy.PRODUCE, proxy.INIT_PRODUCER_ID, proxy.ADD_PARTITIONS_TO_TXN, proxy.END_TXN}


class Query:
    """Delivers batch after batch, as a driver that is started again after each error."""

    def __init__(self, servers: str, topic: str, make_cluster: Callable[[], Cluster]) -> None:
        name = uuid.uuid4().hex[:8]
        self.delivery = Delivery(f"prefix-{name}", 60_000)
        self.markers = f"markers-{name}"
        self.topic = topic
        self.restarts = 0
        self.delivered: list[bytes] = []
        self._batch = 0
        self._make_cluster = make_cluster
        cluster = cluster_of(servers)
        prepare(cluster, MarkerStore(cluster, self.markers), self.delivery)

    def run(self, batches: int, *, seconds: float = 240) -> None:
        """Delivers so many more batches."""
        deadline = time.monotonic() + seconds
        for _ in range(batches):
            while True:
                assert time.monotonic() < deadline, f"batch {self._batch} is not delivered after {seconds} s"
                try:
                    self._deliver(self._batch)
                    break
                except BrokerError:
                    self.restarts += 1
            self.delivered += self.values(self._batch)
            self._batch += 1

    def values(self, batch: int) -> list[bytes]:
        return [b"%d-%d-%d" % (batch, part, row) for part in range(PARTITIONS) for row in range(20)]

    def _deliver(self, batch: int) -> None:
        cluster = self._make_cluster()
        attempt = Attempt("stream", "query", f"run-{self.restarts}", batch, f"offsets of {batch}")
        values = self.values(batch)
        parts = [(self.topic, values[20 * part : 20 * part + 20], part) for part in range(PARTITIONS)]
        deliver(
            cluster,
            ProduceSettings(delivery_timeout_ms=30_000),
            MarkerStore(cluster, self.markers),
            self.delivery,
            attempt,
            lambda: ((topic, batch_of(some, part)) for topic, some, part in parts),
        )


@pytest.mark.parametrize("version", ["4.3", "3.9"])
def test_an_unclean_network_neither_loses_nor_doubles(
    request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic], version: str
) -> None:
    """Requests cut in half, answers lost or cut in half: of two in five requests that write."""
    kafka = request.getfixturevalue("kafka" if version == "4.3" else "kafka39")
    servers: str = kafka.bootstrap_servers
    topic = topics_on(servers)(PARTITIONS)
    chance = random.Random(20261122)

    def fate(api_key: int) -> Fate:
        strikes = api_key in WRITING and chance.random() < 0.4
        return chance.choice([Fate.HALF_REQUEST, Fate.NO_ANSWER, Fate.HALF_ANSWER]) if strikes else Fate.PASS

    settings = connection_settings(
        {"bootstrap.servers": servers, "retry.backoff.ms": "10", "retry.backoff.max.ms": "100"}
    ).connection
    with Network(fate) as network:
        pool = network.pool()
        query = Query(servers, topic, lambda: Cluster(settings, pool=pool))
        query.run(BATCHES)
        assert sum(network.fates[each] for each in Fate if each is not Fate.PASS) > BATCHES
    assert query.restarts == 0  # all of it is mended without the user
    assert sorted(committed(servers, topic, PARTITIONS)) == sorted(query.delivered)


def test_brokers_that_are_killed_neither_lose_nor_double(topics_on: Callable[[str], MakeTopic]) -> None:
    """One after the other, at any step; coordinators and leaders move."""
    with EmbeddedKafka(3, properties={"default.replication.factor": "3", "min.insync.replicas": "2"}) as kafka:
        servers = kafka.bootstrap_servers
        topic = topics_on(servers)(PARTITIONS, replication=3)
        query = Query(servers, topic, lambda: cluster_of(servers, request_timeout_ms=5000))
        done = threading.Event()
        killed: list[int] = []

        def kill() -> None:
            chance = random.Random(11)
            while not done.is_set():
                node = 1 + len(killed) % 3
                time.sleep(chance.uniform(0.5, 2))
                (kafka.kill_broker if chance.random() < 0.7 else kafka.stop_broker)(node)
                killed.append(node)
                time.sleep(chance.uniform(0.2, 2))
                kafka.start_broker(node)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while len(killed) < 4:
                query.run(10)
        finally:
            done.set()
            killer.join()
        assert sorted(committed(servers, topic, PARTITIONS)) == sorted(query.delivered)
    print(f"{len(query.delivered)} records, {query.restarts} restarts, {len(killed)} brokers killed")


def test_a_cluster_that_is_not_there_is_given_up_soon() -> None:
    settings = connection_settings(
        {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "500"}
    ).connection
    cluster = Cluster(settings)
    began = time.monotonic()
    with pytest.raises(KafkaDirectError):
        deliver(
            cluster,
            ProduceSettings(),
            MarkerStore(cluster, "m"),
            Delivery("p"),
            Attempt("stream", "q", "r"),
            lambda: (),
        )
    assert time.monotonic() - began < 20
