"""Brokers that restart, leaders that move, listeners of another kind, sessions that end: on clusters of their own."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as AclResource
from tests import kafka_python
from tests.integration.waiting import wait_until
from tests.lending import lend

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.reading.range_reader import read_range
from pyspark_kafka_direct.reading.request import RangeRequest
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.messages import METADATA
from pyspark_kafka_direct.wire.pool import POOL, ConnectionPool
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.messages import Api

    TopicsOn = Callable[[str], MakeTopic]

# Less than request.timeout.ms (30 s), which whoever waits for a silent broker waits out.
HANG = 25.0

LIFETIME = 5.0  # seconds of a login; it is renewed when 85% are over, and a busy machine may need some of the rest


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """One broker with TLS and logins, ACLs, short sessions, few quota windows, and topics created on demand."""
    properties = {
        "connections.max.reauth.ms": str(int(LIFETIME * 1000)),
        "quota.window.num": "2",
        "quota.window.size.seconds": "4",
        "auto.create.topics.enable": "true",
    }
    with EmbeddedKafka(security=["SASL_PLAINTEXT", "SSL"], authorizer=True, properties=properties) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster


def plain(kafka: EmbeddedKafka, **params: str) -> ConnectionSettings:
    return connection_settings({"bootstrap.servers": kafka.bootstrap_servers, **params}).connection


def logged_in(kafka: EmbeddedKafka, name: str = "alice", password: str = "alice-secret") -> ConnectionSettings:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return connection_settings(
        {
            "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{name}" password="{password}";',
        }
    ).connection


class CountsConnections(RealSystem):
    connections = 0

    def dial(self, *address: Any) -> socket.socket:
        self.connections += 1
        return super().dial(*address)


def soon() -> Deadline:
    return Deadline.after(60)


def write(bootstrap: str, topic: str, partition: int, count: int, value: bytes = b"value") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(count):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def create(kafka: EmbeddedKafka, topics_on: TopicsOn, partitions: int, *, replication: int) -> str:
    """A topic that every broker has heard of."""
    topic = topics_on(kafka.bootstrap_servers)(partitions, replication=replication)
    alone = [replace(plain(kafka), bootstrap_servers=(each,)) for each in plain(kafka).bootstrap_servers]
    wait_until(lambda: all(topic in Cluster(settings).topics([topic]) for settings in alone))
    return topic


def test_a_restarted_broker_is_found_again(guarded: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = topics_on(guarded.bootstrap_servers)()
    write(guarded.bootstrap_servers, topic, 0, 3)
    partition = TopicPartition(topic, 0)
    cluster = Cluster(plain(guarded))
    assert cluster.offsets({partition: LATEST})[partition] == 3
    guarded.kill_broker(1)
    guarded.start_broker(1)
    # The pooled connection is dead; nobody has looked at it since.
    assert cluster.offsets({partition: LATEST})[partition] == 3
    assert cluster.topics([topic])[topic].partitions[0].leader == 1


def test_a_broker_that_comes_back_in_time_is_waited_for(guarded: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = topics_on(guarded.bootstrap_servers)()
    partition = TopicPartition(topic, 0)
    cluster = Cluster(replace(plain(guarded), default_api_timeout_ms=200_000))  # a start may take a while
    cluster.offsets({partition: LATEST})
    guarded.kill_broker(1)
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(cluster.offsets({partition: EARLIEST})[partition]))
    asking.start()
    guarded.start_broker(1)
    asking.join(240)
    assert found == [0]


def test_a_broker_that_stays_away_is_given_up(guarded: EmbeddedKafka, topics_on: TopicsOn) -> None:
    partition = TopicPartition(topics_on(guarded.bootstrap_servers)(), 0)
    cluster = Cluster(replace(plain(guarded), default_api_timeout_ms=5000))
    cluster.offsets({partition: LATEST})
    guarded.kill_broker(1)
    try:
        with pytest.raises(BrokerUnreachableError) as caught:
            cluster.offsets({partition: LATEST})
        assert guarded.bootstrap_servers in str(caught.value)
    finally:
        guarded.start_broker(1)


def test_asking_for_a_missing_topic_does_not_create_it(guarded: EmbeddedKafka) -> None:
    name = f"missing-{uuid.uuid4().hex[:6]}"
    cluster = Cluster(plain(guarded))
    for _ in range(2):
        assert cluster.topics([name]) == {}
    assert name not in cluster.all_topics()
    # The broker would create it for whoever does not say no.
    producer = Producer({"bootstrap.servers": guarded.bootstrap_servers, "allow.auto.create.topics": True})
    producer.produce(name, b"value")
    assert producer.flush(60) == 0
    wait_until(lambda: name in cluster.topics([name]))


def test_a_client_without_login_is_told_so(guarded: EmbeddedKafka) -> None:
    bare = connection_settings({"bootstrap.servers": guarded.listener("SASL_PLAINTEXT")}).connection
    with pytest.raises(BrokerUnreachableError, match="does the listener want a login"):
        Cluster(bare, retries=1).all_topics()


def test_a_client_without_tls_is_told_so(guarded: EmbeddedKafka) -> None:
    bare = connection_settings({"bootstrap.servers": guarded.listener("SSL")}).connection
    with pytest.raises(BrokerError, match=r"(speaks TLS|TLS listener).*kafka\.security\.protocol"):
        Cluster(bare, retries=1).all_topics()


def test_a_client_with_tls_on_a_plain_listener_is_told_so(guarded: EmbeddedKafka) -> None:
    # A broker that restarts hangs up in the handshake too, so this is tried again for a while.
    secured = connection_settings(
        {
            "bootstrap.servers": guarded.bootstrap_servers,
            "security.protocol": "SSL",
            "socket.connection.setup.timeout.ms": "1500",
        }
    ).connection
    with pytest.raises(BrokerUnreachableError, match="listener without TLS"):
        Cluster(secured).all_topics()


def test_a_wrong_password_is_not_tried_twice(guarded: EmbeddedKafka) -> None:
    system = CountsConnections()
    with pytest.raises(AuthenticationError) as caught:
        Cluster(logged_in(guarded, password="hunter2"), pool=ConnectionPool(system)).all_topics()
    assert system.connections == 1
    assert "hunter2" not in str(caught.value)


def test_a_topic_without_permission_is_named(guarded: EmbeddedKafka, topics_on: TopicsOn) -> None:
    make = topics_on(guarded.bootstrap_servers)
    allowed, forbidden = make(prefix="allowed"), make(prefix="forbidden")
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    rule = AclBinding(
        AclResource.TOPIC,
        "allowed",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(30)
    cluster = Cluster(logged_in(guarded))
    wait_until(lambda: allowed in cluster.all_topics())
    assert set(cluster.topics([allowed])) == {allowed}
    assert cluster.offsets({TopicPartition(allowed, 0): LATEST})[TopicPartition(allowed, 0)] == 0
    assert forbidden not in cluster.all_topics()
    with pytest.raises(AuthorizationError, match="READ") as caught:
        cluster.topics([allowed, forbidden])
    assert caught.value.topic == forbidden


@pytest.mark.parametrize("renewed", [True, False])
def test_a_session_is_renewed_before_it_ends(
    guarded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    from pyspark_kafka_direct.wire.security import sasl

    logins: list[float | None] = []
    authenticate = sasl.authenticate

    def counting(connection: Connection, deadline: Deadline) -> float | None:
        logins.append(authenticate(connection, deadline))
        return logins[-1] if renewed else None

    monkeypatch.setattr(sasl, "authenticate", counting)
    settings = logged_in(guarded)
    host, port = settings.bootstrap_servers[0]
    connection = Connection.open(settings, host, port, soon())
    assert logins == [pytest.approx(LIFETIME, abs=1)]
    end = time.monotonic() + (2 * LIFETIME if renewed else 60)
    try:
        while time.monotonic() < end:
            connection.call(METADATA, {"allow_auto_topic_creation": False}, soon())
            time.sleep(0.1)
    except BrokerUnreachableError:
        assert not renewed  # the broker ends sessions that are not renewed, without a word (KIP-368)
    else:
        assert renewed
        assert len(logins) >= 2
    finally:
        connection.close()


def test_the_pool_does_not_hand_out_what_the_broker_closed(guarded: EmbeddedKafka) -> None:
    settings = plain(guarded)
    host, port = settings.bootstrap_servers[0]
    first = POOL.borrow(settings, host, port, soon())
    POOL.give_back(first)
    again = POOL.borrow(settings, host, port, soon())
    assert again is first
    POOL.give_back(again)
    guarded.kill_broker(1)
    guarded.start_broker(1)
    fresh = POOL.borrow(settings, host, port, soon())
    assert fresh is not first
    assert first.closed
    POOL.give_back(fresh)


def test_a_throttled_client_is_told_and_served(guarded: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = topics_on(guarded.bootstrap_servers)()
    write(guarded.bootstrap_servers, topic, 0, 1, bytes(100_000))
    client = f"slow-{uuid.uuid4().hex[:6]}"
    # The answer after a throttled one may take longer than request.timeout.ms alone would allow.
    settings = replace(plain(guarded), client_id=client, request_timeout_ms=1600)
    cluster = Cluster(settings)
    host, port = settings.bootstrap_servers[0]
    with lend(POOL, settings, host, port, soon()) as connection:
        topic_id = cluster.topics([topic])[topic].topic_id
        # The broker looks back over 4 to 8 s (its two windows), and lets an answer pass when its bytes fit in. One of
        # 100,000 does after 6.3 s at this rate, two never. Where one takes all 8 s, it may be refused again and again.
        limit_rate(connection, client, 16_000)
        channel = FetchChannel(connection, topic=topic, topic_id=topic_id, partition=0, settings=FetchSettings())
        longest, served_after = 0, False
        deadline = Deadline.after(120)
        while longest <= settings.request_timeout_ms or not served_after:
            assert not deadline.expired, longest
            channel.request(0, max_bytes=1)
            fetched = channel.response(soon())
            assert fetched.error_code == 0
            # A throttled answer is empty (KIP-219); the records come when the time is over.
            assert bool(fetched.records) == (fetched.throttle_ms == 0)
            served_after = longest > settings.request_timeout_ms and len(fetched.records) > 0
            longest = max(longest, fetched.throttle_ms)


def limit_rate(connection: Connection, client: str, bytes_per_second: float) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    limit = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
        ops=[entry.OpData(key="consumer_byte_rate", value=float(bytes_per_second), remove=False)],
    )
    answer = kafka_python.ask(connection, AlterClientQuotasRequest(entries=[limit], validate_only=False), soon())
    assert [result.error_code for result in answer.entries] == [0]


def test_each_leader_gets_one_request(
    three: EmbeddedKafka, topics_on: TopicsOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(three, topics_on, 12, replication=3)
    cluster = Cluster(plain(three))
    wanted = {TopicPartition(topic, number): LATEST for number in range(12)}
    leaders = {cluster.leader(partition).id for partition in wanted}
    assert leaders == {1, 2, 3}
    wait_until(lambda: len(cluster.offsets(wanted)) == 12)
    sent: Counter[tuple[str, str]] = Counter()
    submit = Connection.submit

    def counting(connection: Connection, api: Api, values: Mapping[str, Any], deadline: Deadline) -> None:
        sent[connection.broker, api.name] += 1
        submit(connection, api, values, deadline)

    monkeypatch.setattr(Connection, "submit", counting)
    cluster.offsets(wanted)
    assert sent == {(str(node), "ListOffsets"): 1 for node in cluster.nodes.values()}


def test_a_broker_that_does_not_lead_says_who_does(three: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three, topics_on, 1, replication=1)
    settings = plain(three)
    cluster = Cluster(settings)
    found = cluster.topics([topic])[topic]
    partition = found.partitions[0]
    other = next(node for node in cluster.nodes.values() if node.id != partition.leader)
    with lend(POOL, settings, other.host, other.port, soon()) as connection:
        fetch = FetchSettings()
        channel = FetchChannel(connection, topic=topic, topic_id=found.topic_id, partition=0, settings=fetch)
        channel.request(0, partition.leader_epoch)
        fetched = channel.response(soon())
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched.current_leader == (partition.leader, partition.leader_epoch)  # KIP-951


def test_a_reader_in_a_rack_is_sent_to_the_replica_there(three: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three, topics_on, 1, replication=3)
    write(three.bootstrap_servers, topic, 0, 5)
    cluster = Cluster(plain(three))
    found = cluster.topics([topic])[topic]
    partition = found.partitions[0]
    leader = cluster.leader(TopicPartition(topic, 0))
    near = cluster.nodes[next(replica for replica in partition.replicas if replica != leader.id)]
    settings, fetch = plain(three), FetchSettings(client_rack=near.rack or "")

    def fetch_from(host: str, port: int) -> tuple[int, int, bytes]:
        with lend(POOL, settings, host, port, soon()) as connection:
            channel = FetchChannel(connection, topic=topic, topic_id=found.topic_id, partition=0, settings=fetch)
            channel.request(0, partition.leader_epoch)
            fetched = channel.response(soon())
            return fetched.error_code, fetched.preferred_read_replica, bytes(fetched.records)

    # The leader sends readers there once it knows that the follower has the records.
    wait_until(lambda: fetch_from(leader.host, leader.port)[1] == near.id)
    # And the follower gives them once it has heard that they are committed.
    wait_until(lambda: fetch_from(near.host, near.port)[2] != b"")
    code, preferred, records = fetch_from(near.host, near.port)
    assert (code, preferred) == (0, -1)
    assert b"value" in records


def test_offsets_follow_a_leader_that_moves(three: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three, topics_on, 3, replication=3)
    for number in range(3):
        write(three.bootstrap_servers, topic, number, number + 1)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    cluster = Cluster(plain(three))
    before = cluster.offsets(dict.fromkeys(partitions, LATEST))
    gone = cluster.leader(partitions[1]).id
    three.stop_broker(gone)
    try:
        # The metadata is old, the pooled connection dead, and the partition led by another broker.
        after = cluster.offsets(dict.fromkeys(partitions, LATEST))
        assert list(after.values()) == list(before.values()) == [1, 2, 3]
        assert cluster.leader(partitions[1]).id != gone
    finally:
        three.start_broker(gone)


def test_a_partition_without_a_leader_is_named(three: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = create(three, topics_on, 1, replication=1)
    partition = TopicPartition(topic, 0)
    patient = Cluster(plain(three))
    home = patient.leader(partition).id
    hasty = Cluster(replace(plain(three), default_api_timeout_ms=5000))
    three.stop_broker(home)
    try:
        wait_until(lambda: patient.topics([topic])[topic].partitions[0].leader is None)
        with pytest.raises(TransientBrokerError, match="LEADER_NOT_AVAILABLE") as caught:
            hasty.offsets({partition: LATEST})
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE"):
            hasty.leader(partition)
    finally:
        three.start_broker(home)
    assert patient.offsets({partition: LATEST})[partition] == 0


def test_a_frozen_broker_holds_up_only_what_it_leads(
    three: EmbeddedKafka, topics_on: TopicsOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped: it takes connections and requests, and answers none. It is the first to be asked."""
    topic = create(three, topics_on, 3, replication=3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for number in range(3):
        write(three.bootstrap_servers, topic, number, number + 1)
    planner = Cluster(plain(three))  # as planning has it
    ends = planner.offsets(dict.fromkeys(partitions, LATEST))
    assert list(ends.values()) == [1, 2, 3]
    leaders = planner.known_leaders(partitions)
    frozen = leaders[partitions[0]].node
    others = {partition: LATEST for partition in partitions if leaders[partition].node != frozen}
    assert others
    addresses = [(node.host, node.port) for node in planner.nodes.values()]
    monkeypatch.setattr(POOL, "rotation", (addresses.index((frozen.host, frozen.port)) + 0.5) / 3)
    bootstrap = sorted(plain(three).bootstrap_servers, key=lambda address: address[1] != frozen.port)
    stranger = replace(plain(three), bootstrap_servers=tuple(bootstrap))

    os.kill(three.pids[frozen.id], signal.SIGSTOP)
    try:
        with at_most(HANG, "planning what others lead"):
            assert planner.topics([topic])
            assert planner.offsets(others) == {partition: ends[partition] for partition in others}
        POOL.clear()
        with at_most(HANG, "reading what others lead, in a new process"):
            for partition in others:
                ranged = OffsetRange(topic, partition.partition, 0, ends[partition])
                batches = list(read_range(stranger, FetchSettings(), RangeRequest(ranged, ("offset",))))
                assert sum(batch.num_rows for batch in batches) == ends[partition]
        with at_most(60, "planning what it led, by the leaders elected meanwhile"):
            assert planner.offsets(dict.fromkeys(partitions, LATEST)) == ends
        assert planner.leader(partitions[0]) != frozen
    finally:
        os.kill(three.pids[frozen.id], signal.SIGCONT)


@contextmanager
def at_most(seconds: float, what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds, what
