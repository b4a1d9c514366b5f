"""Metadata and offsets against a real broker: what is found, what is missing, and how many requests it takes."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.groups import commit
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError, ProtocolError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.settings.connection import ConnectionSettings


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> ConnectionSettings:
    return connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection


@pytest.fixture
def cluster(settings: ConnectionSettings) -> Cluster:
    return Cluster(settings)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the requests that are sent, by name."""
    counter: Counter[str] = Counter()
    write = Connection._write

    def counting(connection: Connection, name: str, frame: Any, deadline: Any) -> None:
        counter[name] += 1
        write(connection, name, frame, deadline)

    monkeypatch.setattr(Connection, "_write", counting)
    return counter


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted and nothing is ever said."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    with listener:
        yield listener.getsockname()[1]


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port where nobody listens, held so that nobody else gets it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def write(bootstrap: str, topic: str, partition: int, times: list[int]) -> None:
    """One record per timestamp."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for milliseconds in times:
        producer.produce(topic, b"value", partition=partition, timestamp=milliseconds)
    assert producer.flush(30) == 0


def test_a_topic_with_its_partitions(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(3)
    topic = cluster.topics([name])[name]
    assert topic.name == name
    assert topic.topic_id is not None
    assert not topic.internal
    assert sorted(topic.partitions) == [0, 1, 2]
    for number, partition in topic.partitions.items():
        assert partition.partition == number
        assert partition.leader in cluster.nodes
        assert partition.leader_epoch >= 0
        assert partition.replicas == partition.in_sync == (partition.leader,)
        assert partition.offline == ()
        assert cluster.leader(TopicPartition(name, number)) == cluster.nodes[partition.leader]


def test_the_racks_of_brokers_are_known(cluster: Cluster) -> None:
    cluster.all_topics()
    assert {node.rack for node in cluster.nodes.values()} == {"rack-1"}


def test_a_missing_topic_is_absent(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic()
    assert set(cluster.topics([name, "no-such-topic"])) == {name}
    assert cluster.topics([]) == {}


@pytest.mark.parametrize("name", ["two words", "x" * 250, "a/b"])
def test_a_name_no_topic_can_have_is_an_error(cluster: Cluster, name: str) -> None:
    with pytest.raises(TopicNotFoundError, match="249 of the characters") as caught:
        cluster.topics([name])
    assert caught.value.topic == name


def test_all_topics_with_the_brokers_word_on_which_are_internal(
    kafka: EmbeddedKafka, cluster: Cluster, make_topic: MakeTopic
) -> None:
    name = make_topic(prefix="__looks-internal")
    commit(kafka.bootstrap_servers, "g", name, 0)  # makes Kafka create its own topic
    topics = cluster.all_topics()
    assert topics["__consumer_offsets"].internal
    assert not topics[name].internal


def test_a_topic_created_anew_has_another_id(kafka: EmbeddedKafka, cluster: Cluster, make_topic: MakeTopic) -> None:
    from confluent_kafka.admin import NewTopic

    name = make_topic()
    first = cluster.topics([name])[name].topic_id
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name], operation_timeout=60)[name].result(60)
    wait_until(lambda: name not in cluster.topics([name]))
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=60)[name].result(60)
    wait_until(lambda: name in cluster.topics([name]))
    assert cluster.topics([name])[name].topic_id not in (None, first)


def test_offsets_at_both_ends(kafka: EmbeddedKafka, cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    write(kafka.bootstrap_servers, name, 1, [1000, 2000, 3000])
    partitions = [TopicPartition(name, 1), TopicPartition(name, 0)]
    ends = cluster.offsets(dict.fromkeys(partitions, LATEST))
    assert list(ends) == partitions
    assert list(ends.values()) == [3, 0]
    assert list(cluster.offsets(dict.fromkeys(partitions, EARLIEST)).values()) == [0, 0]
    mixed = cluster.offsets({partitions[0]: EARLIEST, partitions[1]: LATEST})
    assert list(mixed.values()) == [0, 0]
    assert cluster.offsets({}) == {}


@pytest.mark.parametrize(("milliseconds", "offset"), [(0, 0), (1000, 0), (1001, 1), (4000, 1), (5000, 1), (5001, -1)])
def test_offsets_by_time(
    kafka: EmbeddedKafka, cluster: Cluster, make_topic: MakeTopic, milliseconds: int, offset: int
) -> None:
    name = make_topic()
    write(kafka.bootstrap_servers, name, 0, [1000, 5000, 2000])  # times need not ascend
    partition = TopicPartition(name, 0)
    assert cluster.offsets({partition: milliseconds})[partition] == offset


def test_the_end_follows_the_isolation_level(
    kafka: EmbeddedKafka, settings: ConnectionSettings, make_topic: MakeTopic
) -> None:
    name = make_topic()
    partition = TopicPartition(name, 0)
    write(kafka.bootstrap_servers, name, 0, [1000])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    assert producer.flush(30) == 0
    cluster = Cluster(settings)
    uncommitted = cluster.offsets({partition: LATEST}, isolation_level="read_uncommitted")
    committed = cluster.offsets({partition: LATEST}, isolation_level="read_committed")
    producer.abort_transaction(30)
    assert (uncommitted, committed) == ({partition: 2}, {partition: 1})


@pytest.mark.parametrize("missing", [("no-such-topic", 0), (None, 7)])
def test_offsets_of_what_does_not_exist(
    cluster: Cluster, make_topic: MakeTopic, missing: tuple[str | None, int]
) -> None:
    name = make_topic()
    topic, number = missing[0] or name, missing[1]
    with pytest.raises(TopicNotFoundError) as caught:
        cluster.offsets({TopicPartition(name, 0): LATEST, TopicPartition(topic, number): LATEST})
    assert caught.value.topic == topic
    for question in (cluster.partition, cluster.leader):
        with pytest.raises(TopicNotFoundError):
            question(TopicPartition(topic, number))


def test_planning_a_thousand_partitions_takes_three_requests(
    settings: ConnectionSettings, make_topic: MakeTopic, sent: Counter[str]
) -> None:
    name = make_topic(1000)
    # A broker says UNKNOWN_TOPIC_OR_PARTITION while it still makes the logs; this waits until it has.
    Cluster(settings).offsets({TopicPartition(name, number): LATEST for number in range(1000)})
    POOL.clear()
    sent.clear()
    cluster = Cluster(settings)
    partitions = [TopicPartition(name, number) for number in cluster.topics([name])[name].partitions]
    assert len(partitions) == 1000
    assert len(cluster.offsets(dict.fromkeys(partitions, EARLIEST))) == 1000
    assert len(cluster.offsets(dict.fromkeys(partitions, LATEST))) == 1000
    assert sent == {"ApiVersions": 1, "Metadata": 1, "ListOffsets": 2}


def test_metadata_is_asked_again_when_it_is_old(
    settings: ConnectionSettings, make_topic: MakeTopic, sent: Counter[str]
) -> None:
    partition = TopicPartition(make_topic(), 0)
    Cluster(settings).offsets({partition: LATEST})  # waits until the broker has made the log, as above
    fresh, stale = Cluster(settings), Cluster(replace(settings, metadata_max_age_ms=0))
    for cluster, asked in ((fresh, 1), (stale, 3)):
        sent.clear()
        for _ in range(3):
            cluster.offsets({partition: LATEST})
        assert sent["Metadata"] == asked


def test_many_threads_may_ask_at_once(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(4)
    wanted = {TopicPartition(name, number): LATEST for number in range(4)}
    results: list[int] = []

    def ask() -> None:
        for _ in range(10):
            results.append(len(cluster.offsets(wanted)))
            results.append(len(cluster.topics([name])[name].partitions))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert results == [4] * 160


def test_a_dead_bootstrap_server_in_front_does_no_harm(
    settings: ConnectionSettings, dead_port: int, make_topic: MakeTopic
) -> None:
    name = make_topic()
    servers = (("127.0.0.1", dead_port), ("no-such-host.invalid", 9092), *settings.bootstrap_servers)
    assert name in Cluster(replace(settings, bootstrap_servers=servers)).topics([name])


def test_a_silent_bootstrap_server_in_front_costs_a_limited_time(
    settings: ConnectionSettings, silent_port: int, make_topic: MakeTopic
) -> None:
    name = make_topic()
    servers = (("127.0.0.1", silent_port), *settings.bootstrap_servers)
    patient = replace(settings, bootstrap_servers=servers, connect_timeout_ms=3000)  # for the one that answers too
    assert name in Cluster(patient).topics([name])


def test_no_bootstrap_server_answers(settings: ConnectionSettings, dead_port: int, silent_port: int) -> None:
    servers = (("127.0.0.1", dead_port), ("127.0.0.1", silent_port))
    hopeless = replace(settings, bootstrap_servers=servers, connect_timeout_ms=300, connect_timeout_max_ms=300)
    started = time.monotonic()
    with pytest.raises(BrokerUnreachableError) as caught:
        Cluster(hopeless).topics(["any"])
    assert time.monotonic() - started < 50
    for port in (dead_port, silent_port):
        assert f"127.0.0.1:{port}" in str(caught.value)


def test_a_single_silent_bootstrap_server_meets_the_deadline(settings: ConnectionSettings, silent_port: int) -> None:
    hopeless = replace(settings, bootstrap_servers=(("127.0.0.1", silent_port),), default_api_timeout_ms=400)
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError):
        Cluster(hopeless).all_topics()
    assert time.monotonic() - started < 50


def test_retries_can_be_limited(settings: ConnectionSettings, dead_port: int) -> None:
    hopeless = replace(settings, bootstrap_servers=(("127.0.0.1", dead_port),))
    with pytest.raises(BrokerUnreachableError) as caught:
        Cluster(hopeless, retries=2, retry_interval=0.01).all_topics()
    assert caught.value.__notes__ == ["Tried 3 times."]


def test_a_bootstrap_server_that_is_no_broker_is_named(settings: ConnectionSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_http, args=(listener,), daemon=True).start()
        servers = (("127.0.0.1", listener.getsockname()[1]),)
        with pytest.raises(ProtocolError, match="HTTP server answered"):
            Cluster(replace(settings, bootstrap_servers=servers)).all_topics()


def serve_http(listener: socket.socket) -> None:
    caller, _ = listener.accept()
    with caller:
        caller.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        caller.recv(65536)
