"""Exactly-once commits while the network and the brokers fail; read back by librdkafka."""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest
from tests import proxy
from tests.integration.transactional_batches import batch_of, cluster_of, committed
from tests.proxy import Fault, Network
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import BrokerError, KafkaDirectError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
from pyspark_kafka_direct.producer.exactly_once import ExactlyOnceOptions, check_exactly_once, commit_batch
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

PARTITIONS = 4
BATCHES = 25
WRITING = {proxy.PRODUCE, proxy.INIT_PRODUCER_ID, proxy.ADD_PARTITIONS_TO_TXN, proxy.END_TXN}


class RestartingQuery:
    """Commits batches in order, as a driver that is restarted after each error."""

    def __init__(self, servers: str, topic: str, make_cluster: Callable[[], ClusterClient]) -> None:
        name = uuid.uuid4().hex[:8]
        self.options = ExactlyOnceOptions(f"prefix-{name}", 60_000)
        self.sink_state_topic = f"sink-state-{name}"
        self.topic = topic
        self.restarts = 0
        self.committed_values: list[bytes] = []
        self._batch = 0
        self._make_cluster = make_cluster
        cluster = cluster_of(servers)
        check_exactly_once(cluster, SinkStateStore(cluster, self.sink_state_topic), self.options)

    def run(self, batches: int, *, seconds: float = 600) -> None:
        """Commit some more batches."""
        deadline = time.monotonic() + seconds
        for _ in range(batches):
            while True:
                assert time.monotonic() < deadline, f"batch {self._batch} is not committed after {seconds} s"
                try:
                    self._commit(self._batch)
                    break
                except BrokerError:
                    self.restarts += 1
            self.committed_values += self.values(self._batch)
            self._batch += 1

    def values(self, batch: int) -> list[bytes]:
        return [b"%d-%d-%d" % (batch, part, row) for part in range(PARTITIONS) for row in range(20)]

    def _commit(self, batch: int) -> None:
        cluster = self._make_cluster()
        store = SinkStateStore(cluster, self.sink_state_topic)
        ticket = store.append_ticket(self.options.query_transactional_id)
        attempt = BatchAttempt("stream", "query", f"run-{self.restarts}", batch, ticket, f"offsets of {batch}")
        values = self.values(batch)
        parts = [(self.topic, values[20 * part : 20 * part + 20], part) for part in range(PARTITIONS)]
        commit_batch(
            cluster,
            ProducerSettings(delivery_timeout_ms=120_000),
            store,
            self.options,
            attempt,
            batches=lambda: ((topic, batch_of(some, part)) for topic, some, part in parts),
        )


@pytest.mark.parametrize("version", ["4.4", "3.9"])
def test_network_faults_neither_lose_nor_duplicate_records(
    request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic], version: str
) -> None:
    """Two in five write requests are cut in half, or their responses are lost or cut in half."""
    kafka = request.getfixturevalue("kafka" if version == "4.4" else "kafka39")
    servers: str = kafka.bootstrap_servers
    topic = topics_on(servers)(PARTITIONS)
    chance = random.Random(20261122)

    def fault(api_key: int) -> Fault:
        injected = api_key in WRITING and chance.random() < 0.4
        return chance.choice([Fault.HALF_REQUEST, Fault.NO_RESPONSE, Fault.HALF_RESPONSE]) if injected else Fault.PASS

    settings = parse_client_params(
        {"bootstrap.servers": servers, "retry.backoff.ms": "10", "retry.backoff.max.ms": "100"}
    ).connection
    with Network(fault) as network:
        pool = network.pool()
        query = RestartingQuery(servers, topic, lambda: ClusterClient(settings, pool=pool))
        query.run(BATCHES)
        assert sum(network.faults[each] for each in Fault if each is not Fault.PASS) > BATCHES
    assert query.restarts == 0  # all faults are handled internally
    assert sorted(committed(servers, topic, PARTITIONS)) == sorted(query.committed_values)


@pytest.mark.soak
def test_killed_brokers_neither_lose_nor_duplicate_records(
    three_brokers: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]
) -> None:
    """Two brokers are killed at random steps; coordinators and leaders move. ``make soak-sink`` kills more."""
    servers = three_brokers.bootstrap_servers
    topic = topics_on(servers)(PARTITIONS, replication=3)
    query = RestartingQuery(servers, topic, lambda: cluster_of(servers, request_timeout_ms=5000))
    done = threading.Event()
    killed_brokers: list[int] = []

    def kill() -> None:
        chance = random.Random(11)
        while not done.is_set():
            node = 1 + len(killed_brokers) % 3
            time.sleep(chance.uniform(0.5, 2))
            (three_brokers.kill_broker if chance.random() < 0.7 else three_brokers.stop_broker)(node)
            killed_brokers.append(node)
            time.sleep(chance.uniform(0.2, 2))
            three_brokers.start_broker(node)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while len(killed_brokers) < 2:
            query.run(10)
    finally:
        done.set()
        killer.join()
    assert sorted(committed(servers, topic, PARTITIONS)) == sorted(query.committed_values)
    print(f"{len(query.committed_values)} records, {query.restarts} restarts, {len(killed_brokers)} brokers killed")


def test_an_unreachable_cluster_fails_early() -> None:
    settings = parse_client_params({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "600000"}).connection
    cluster = ClusterClient(settings)
    started_at = time.monotonic()
    with pytest.raises(KafkaDirectError):
        commit_batch(
            cluster,
            ProducerSettings(delivery_timeout_ms=600_000),
            SinkStateStore(cluster, "m"),
            ExactlyOnceOptions("p"),
            BatchAttempt("stream", "q", "r", 0, Ticket("id", 1)),
            batches=lambda: (),
        )
    assert time.monotonic() - started_at < 120
