"""Metadata and offsets against a real broker, and the number of requests."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.groups import commit
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> ConnectionSettings:
    return parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection


@pytest.fixture
def cluster(settings: ConnectionSettings) -> ClusterClient:
    return ClusterClient(settings)


@pytest.fixture
def request_counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests that are sent, by name."""
    counter: Counter[str] = Counter()
    write = Connection._write

    def count_and_write(connection: Connection, name: str, frame: Any, deadline: Any) -> None:
        counter[name] += 1
        write(connection, name, frame, deadline)

    monkeypatch.setattr(Connection, "_write", count_and_write)
    return counter


def write(bootstrap: str, topic: str, partition: int, times: list[int]) -> None:
    """Write one record per timestamp."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for milliseconds in times:
        producer.produce(topic, b"value", partition=partition, timestamp=milliseconds)
    assert producer.flush(300) == 0


def test_a_topic_with_its_partitions(cluster: ClusterClient, make_topic: MakeTopic) -> None:
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
        assert partition.replicas == partition.in_sync_replicas == (partition.leader,)
        assert partition.offline_replicas == ()
        assert cluster.leader(TopicPartition(name, number)) == cluster.nodes[partition.leader]


def test_brokers_have_racks(cluster: ClusterClient) -> None:
    cluster.all_topics()
    assert {node.rack for node in cluster.nodes.values()} == {"rack-1"}


def test_missing_topic_is_omitted(cluster: ClusterClient, make_topic: MakeTopic) -> None:
    name = make_topic()
    assert set(cluster.topics([name, "no-such-topic"])) == {name}
    assert cluster.topics([]) == {}


@pytest.mark.parametrize("name", ["two words", "x" * 250, "a/b"])
def test_invalid_topic_name_raises(cluster: ClusterClient, name: str) -> None:
    with pytest.raises(TopicNotFoundError, match="249 of the characters") as caught:
        cluster.topics([name])
    assert caught.value.topic == name


def test_all_topics_with_internal_flag(kafka: EmbeddedKafka, cluster: ClusterClient, make_topic: MakeTopic) -> None:
    name = make_topic(prefix="__looks-internal")
    commit(kafka.bootstrap_servers, "g", name, 0)  # makes Kafka create its internal topic
    topics = cluster.all_topics()
    assert topics["__consumer_offsets"].internal
    assert not topics[name].internal


def test_recreated_topic_has_another_id(kafka: EmbeddedKafka, cluster: ClusterClient, make_topic: MakeTopic) -> None:
    from confluent_kafka.admin import NewTopic

    name = make_topic()
    first = cluster.topics([name])[name].topic_id
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name], operation_timeout=600)[name].result(600)
    wait_until(lambda: name not in cluster.topics([name]))
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=600)[name].result(600)
    wait_until(lambda: name in cluster.topics([name]))
    assert cluster.topics([name])[name].topic_id not in (None, first)


def test_offsets_at_both_ends(kafka: EmbeddedKafka, cluster: ClusterClient, make_topic: MakeTopic) -> None:
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
    kafka: EmbeddedKafka, cluster: ClusterClient, make_topic: MakeTopic, milliseconds: int, offset: int
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
    producer.init_transactions(600)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    assert producer.flush(300) == 0
    cluster = ClusterClient(settings)
    uncommitted = cluster.offsets({partition: LATEST}, isolation_level="read_uncommitted")
    committed = cluster.offsets({partition: LATEST}, isolation_level="read_committed")
    producer.abort_transaction(600)
    assert (uncommitted, committed) == ({partition: 2}, {partition: 1})


@pytest.mark.parametrize("missing", [("no-such-topic", 0), (None, 7)])
def test_offsets_of_missing_topic_or_partition(
    cluster: ClusterClient, make_topic: MakeTopic, missing: tuple[str | None, int]
) -> None:
    name = make_topic()
    topic, number = missing[0] or name, missing[1]
    with pytest.raises(TopicNotFoundError) as caught:
        cluster.offsets({TopicPartition(name, 0): LATEST, TopicPartition(topic, number): LATEST})
    assert caught.value.topic == topic
    for request in (cluster.partition, cluster.leader):
        with pytest.raises(TopicNotFoundError):
            request(TopicPartition(topic, number))


def test_planning_two_hundred_partitions_takes_three_requests(
    settings: ConnectionSettings, make_topic: MakeTopic, request_counts: Counter[str]
) -> None:
    name = make_topic(200)
    # A broker returns UNKNOWN_TOPIC_OR_PARTITION until it has created the logs; this waits for them.
    ClusterClient(settings).offsets({TopicPartition(name, number): LATEST for number in range(200)})
    POOL.clear()
    request_counts.clear()
    cluster = ClusterClient(settings)
    partitions = [TopicPartition(name, number) for number in cluster.topics([name])[name].partitions]
    assert len(partitions) == 200
    assert len(cluster.offsets(dict.fromkeys(partitions, EARLIEST))) == 200
    assert len(cluster.offsets(dict.fromkeys(partitions, LATEST))) == 200
    # The second request for versions verifies that the leader is the expected broker (KIP-1242).
    assert request_counts == {"ApiVersions": 2, "Metadata": 1, "ListOffsets": 2}


def test_cluster_client_is_thread_safe(cluster: ClusterClient, make_topic: MakeTopic) -> None:
    name = make_topic(4)
    wanted = {TopicPartition(name, number): LATEST for number in range(4)}
    results: list[int] = []

    def send_requests() -> None:
        for _ in range(10):
            results.append(len(cluster.offsets(wanted)))
            results.append(len(cluster.topics([name])[name].partitions))

    threads = [threading.Thread(target=send_requests) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()
    assert results == [4] * 160
