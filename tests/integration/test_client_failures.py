"""Broker restarts, moved leaders, wrong listeners and expired sessions."""

from __future__ import annotations

import os
import signal
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as AclResource
from tests import kafka_python
from tests.integration.waiting import suspend, wait_until
from tests.logins import jaas_text
from tests.partition_channel import PartitionChannel
from tests.pooled_connections import pooled_connection
from tests.settings import parse_client_params
from tests.shards.brokers import SESSION

from pyspark_kafka_direct.broker import Credentials
from pyspark_kafka_direct.client import broker_selection
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL, ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    TlsError,
)
from pyspark_kafka_direct.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings

    TopicsOn = Callable[[str], MakeTopic]


def plain(kafka: EmbeddedKafka, **params: str) -> ConnectionSettings:
    return parse_client_params({"bootstrap.servers": kafka.bootstrap_servers, **params}).connection


def with_sasl(kafka: EmbeddedKafka, name: str = "alice", password: str = "alice-secret") -> ConnectionSettings:
    return parse_client_params(
        {
            "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas_text("PLAIN", Credentials(name, password)),
        }
    ).connection


class CountingSystem(RealSystem):
    connections = 0

    def connect_tcp(self, *address: Any) -> socket.socket:
        self.connections += 1
        return super().connect_tcp(*address)


def soon() -> Deadline:
    return Deadline.after(600)


def write(bootstrap: str, topic: str, partition: int, count: int, value: bytes = b"value") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(count):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(300) == 0


def create(kafka: EmbeddedKafka, topics_on: TopicsOn, partitions: int, *, replication: int) -> str:
    """Create a topic and wait until every broker has its metadata."""
    topic = topics_on(kafka.bootstrap_servers)(partitions, replication=replication)
    single_brokers = [replace(plain(kafka), bootstrap_servers=(each,)) for each in plain(kafka).bootstrap_servers]
    wait_until(lambda: all(topic in ClusterClient(settings).topics([topic]) for settings in single_brokers))
    return topic


@pytest.mark.soak
def test_client_recovers_from_broker_restart(stoppable_kafka: EmbeddedKafka, topics_on: TopicsOn) -> None:
    """Pooled connections are broken, which was not detected yet. The pool closes them."""
    kafka, settings = stoppable_kafka, plain(stoppable_kafka)
    topic = topics_on(kafka.bootstrap_servers)()
    write(kafka.bootstrap_servers, topic, 0, 3)
    partition = TopicPartition(topic, 0)
    cluster = ClusterClient(settings)
    assert cluster.offsets({partition: LATEST})[partition] == 3
    host, port = settings.bootstrap_servers[0]
    other = replace(settings, client_id="other")
    first = POOL.acquire(other, host, port, soon())
    POOL.release(first)
    reused = POOL.acquire(other, host, port, soon())
    assert reused is first
    POOL.release(reused)
    kafka.kill_broker(1)
    kafka.start_broker(1)
    assert cluster.offsets({partition: LATEST})[partition] == 3
    assert cluster.topics([topic])[topic].partitions[0].leader == 1
    fresh = POOL.acquire(other, host, port, soon())
    assert fresh is not first
    assert first.closed
    POOL.release(fresh)


def test_metadata_request_does_not_create_missing_topic(secured_kafka: EmbeddedKafka) -> None:
    name = f"missing-{uuid.uuid4().hex[:6]}"
    cluster = ClusterClient(plain(secured_kafka))
    for _ in range(2):
        assert cluster.topics([name]) == {}
    assert name not in cluster.all_topics()
    # The broker creates it for clients that do not disable automatic creation.
    producer = Producer({"bootstrap.servers": secured_kafka.bootstrap_servers, "allow.auto.create.topics": True})
    producer.produce(name, b"value")
    assert producer.flush(300) == 0
    wait_until(lambda: name in cluster.topics([name]))


def test_client_without_sasl_on_sasl_listener(secured_kafka: EmbeddedKafka) -> None:
    plaintext = parse_client_params({"bootstrap.servers": secured_kafka.listener("SASL_PLAINTEXT")}).connection
    with pytest.raises(BrokerUnreachableError, match="if the listener requires a login"):
        ClusterClient(plaintext, retries=1).all_topics()


def test_client_without_tls_on_tls_listener(secured_kafka: EmbeddedKafka) -> None:
    plaintext = parse_client_params({"bootstrap.servers": secured_kafka.listener("SSL")}).connection
    with pytest.raises(BrokerError, match=r"(uses TLS|TLS listener).*kafka\.security\.protocol"):
        ClusterClient(plaintext, retries=1).all_topics()
    port = secured_kafka.listener("SSL").rpartition(":")[2]
    several = parse_client_params({"bootstrap.servers": f"localhost:{port},127.0.0.1:{port}"}).connection
    with pytest.raises(BrokerError, match=r"(uses TLS|TLS listener).*kafka\.security\.protocol"):
        ClusterClient(several, retries=1).all_topics()


def test_client_with_tls_on_plaintext_listener(secured_kafka: EmbeddedKafka) -> None:
    # A broker that restarts also closes connections in the handshake, but this one responds without TLS.
    tls_settings = parse_client_params(
        {
            "bootstrap.servers": secured_kafka.bootstrap_servers,
            "security.protocol": "SSL",
        }
    ).connection
    system = CountingSystem()
    with pytest.raises(TlsError, match=r"does not use TLS: it responds to requests without TLS"):
        ClusterClient(tls_settings, pool=ConnectionPool(system)).all_topics()
    assert system.connections == 2, "one of them without TLS"


def test_wrong_password_is_not_retried(secured_kafka: EmbeddedKafka) -> None:
    system = CountingSystem()
    with pytest.raises(AuthenticationError) as caught:
        ClusterClient(with_sasl(secured_kafka, password="hunter2"), pool=ConnectionPool(system)).all_topics()
    assert system.connections == 1
    assert "hunter2" not in str(caught.value)


def test_a_topic_without_permission_is_named(secured_kafka: EmbeddedKafka, topics_on: TopicsOn) -> None:
    make = topics_on(secured_kafka.bootstrap_servers)
    allowed, forbidden = make(prefix="allowed"), make(prefix="forbidden")
    admin = AdminClient({"bootstrap.servers": secured_kafka.bootstrap_servers})
    rule = AclBinding(
        AclResource.TOPIC,
        "allowed",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(600)
    cluster = ClusterClient(with_sasl(secured_kafka))
    wait_until(lambda: allowed in cluster.all_topics())
    assert set(cluster.topics([allowed])) == {allowed}
    assert cluster.offsets({TopicPartition(allowed, 0): LATEST})[TopicPartition(allowed, 0)] == 0
    assert forbidden not in cluster.all_topics()
    with pytest.raises(AuthorizationError, match="READ") as caught:
        cluster.topics([allowed, forbidden])
    assert caught.value.topic == forbidden


@pytest.mark.parametrize("renewed", [True, False])
def test_a_session_is_renewed_before_it_ends(
    secured_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    from pyspark_kafka_direct.client.security import sasl_authenticator

    logins: list[float | None] = []
    authenticate = sasl_authenticator.authenticate

    def counting(connection: Connection, deadline: Deadline) -> float | None:
        logins.append(authenticate(connection, deadline))
        return logins[-1] if renewed else None

    monkeypatch.setattr(sasl_authenticator, "authenticate", counting)
    settings = with_sasl(secured_kafka)
    host, port = settings.bootstrap_servers[0]
    connection = Connection.open(settings, host, port, soon())
    assert logins == [pytest.approx(SESSION, abs=1)]
    end = time.monotonic() + (2 * SESSION if renewed else 600)
    try:
        while time.monotonic() < end:
            connection.call(METADATA, {"allow_auto_topic_creation": False}, soon())
            time.sleep(0.1)
    except BrokerUnreachableError:
        assert not renewed  # the broker closes expired sessions without a reason (KIP-368)
    else:
        assert renewed
        assert len(logins) >= 2
    finally:
        connection.close()


def test_throttled_client_is_served(secured_kafka: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = topics_on(secured_kafka.bootstrap_servers)()
    write(secured_kafka.bootstrap_servers, topic, 0, 1, bytes(100_000))
    client = f"slow-{uuid.uuid4().hex[:6]}"
    # The response after a throttled one may take longer than request.timeout.ms.
    settings = replace(plain(secured_kafka), client_id=client, request_timeout_ms=1600)
    cluster = ClusterClient(settings)
    host, port = settings.bootstrap_servers[0]
    with pooled_connection(POOL, settings, host, port, soon()) as connection:
        topic_id = cluster.topics([topic])[topic].topic_id
        # The broker measures the rate over 4 to 8 s (its two windows). At this rate a response of 100,000 bytes is
        # within the quota after 6.3 s, two never are. One that required all 8 s could be throttled repeatedly.
        limit_rate(connection, client, 16_000)
        channel = PartitionChannel(connection, topic=topic, topic_id=topic_id, partition=0, settings=FetchSettings())
        max_throttle_ms, served_after_throttling = 0, False
        deadline = Deadline.after(600)
        while max_throttle_ms <= settings.request_timeout_ms or not served_after_throttling:
            assert not deadline.expired, max_throttle_ms
            channel.request(0, max_bytes=1)
            fetched = channel.response(soon())
            assert fetched.error_code == 0
            # A throttled response is empty (KIP-219); records follow after the throttle time.
            assert bool(fetched.records) == (fetched.throttle_ms == 0)
            served_after_throttling = max_throttle_ms > settings.request_timeout_ms and len(fetched.records) > 0
            max_throttle_ms = max(max_throttle_ms, fetched.throttle_ms)


def limit_rate(connection: Connection, client: str, bytes_per_second: float) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    limit = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
        ops=[entry.OpData(key="consumer_byte_rate", value=float(bytes_per_second), remove=False)],
    )
    response = kafka_python.ask(connection, AlterClientQuotasRequest(entries=[limit], validate_only=False), soon())
    assert [result.error_code for result in response.entries] == [0]


def test_non_leader_returns_the_current_leader(three_brokers: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three_brokers, topics_on, 1, replication=1)
    settings = plain(three_brokers)
    cluster = ClusterClient(settings)
    metadata = cluster.topics([topic])[topic]
    partition = metadata.partitions[0]
    other = next(node for node in cluster.nodes.values() if node.id != partition.leader)
    with pooled_connection(POOL, settings, other.host, other.port, soon()) as connection:
        fetch = FetchSettings()
        channel = PartitionChannel(connection, topic=topic, topic_id=metadata.topic_id, partition=0, settings=fetch)
        channel.request(0, partition.leader_epoch)
        fetched = channel.response(soon())
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched.current_leader == (partition.leader, partition.leader_epoch)  # KIP-951


def test_consumer_in_a_rack_is_referred_to_its_replica(three_brokers: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three_brokers, topics_on, 1, replication=3)
    write(three_brokers.bootstrap_servers, topic, 0, 5)
    cluster = ClusterClient(plain(three_brokers))
    metadata = cluster.topics([topic])[topic]
    partition = metadata.partitions[0]
    leader = cluster.leader(TopicPartition(topic, 0))
    near = cluster.nodes[next(replica for replica in partition.replicas if replica != leader.id)]
    settings, fetch = plain(three_brokers), FetchSettings(client_rack=near.rack or "")

    def fetch_from(host: str, port: int) -> tuple[int, int, bytes]:
        with pooled_connection(POOL, settings, host, port, soon()) as connection:
            channel = PartitionChannel(connection, topic=topic, topic_id=metadata.topic_id, partition=0, settings=fetch)
            channel.request(0, partition.leader_epoch)
            fetched = channel.response(soon())
            return fetched.error_code, fetched.preferred_read_replica, bytes(fetched.records)

    # The leader refers consumers to the follower once that has the records.
    wait_until(lambda: fetch_from(leader.host, leader.port)[1] == near.id)
    # The follower returns them once it knows that they are committed.
    wait_until(lambda: fetch_from(near.host, near.port)[2] != b"")
    code, preferred, records = fetch_from(near.host, near.port)
    assert (code, preferred) == (0, -1)
    assert b"value" in records


def test_frozen_broker_delays_only_its_partitions(
    three_brokers: EmbeddedKafka, topics_on: TopicsOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped: it accepts connections and requests but does not respond. It is called first."""
    topic = create(three_brokers, topics_on, 3, replication=3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for number in range(3):
        write(three_brokers.bootstrap_servers, topic, number, number + 1)
    # A request to the unresponsive broker that does not fail over takes an hour.
    hour_ms, first_attempt = 3_600_000, 3 / 3600  # s
    monkeypatch.setattr(broker_selection, "_FIRST_ATTEMPT_FRACTION", first_attempt)
    settings = replace(plain(three_brokers), request_timeout_ms=hour_ms, default_api_timeout_ms=hour_ms)
    planner = ClusterClient(settings)  # as in planning
    ends = planner.offsets(dict.fromkeys(partitions, LATEST))
    assert list(ends.values()) == [1, 2, 3]
    leaders = planner.known_leaders(partitions)
    frozen = leaders[partitions[0]].node
    others = {partition: LATEST for partition in partitions if leaders[partition].node != frozen}
    assert others
    addresses = [(node.host, node.port) for node in planner.nodes.values()]
    monkeypatch.setattr(POOL, "rotation", (addresses.index((frozen.host, frozen.port)) + 0.5) / 3)
    bootstrap = sorted(settings.bootstrap_servers, key=lambda address: address[1] != frozen.port)
    reader_settings = replace(settings, bootstrap_servers=tuple(bootstrap))

    suspend(three_brokers.pids[frozen.id])
    try:
        assert planner.topics([topic])
        assert planner.offsets(others) == {partition: ends[partition] for partition in others}
        POOL.clear()
        for partition in others:  # without pooled connections
            task = RangeTask(OffsetRange(topic, partition.partition, 0, ends[partition]))
            batches = list(read_range(reader_settings, FetchSettings(), task, ("offset",)))
            assert sum(batch.num_rows for batch in batches) == ends[partition]
        assert planner.offsets(dict.fromkeys(partitions, LATEST)) == ends, "after the election of new leaders"
        assert planner.leader(partitions[0]) != frozen
    finally:
        os.kill(three_brokers.pids[frozen.id], signal.SIGCONT)
