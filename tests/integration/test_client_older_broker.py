"""The same requests against older brokers: Kafka 3.9, and the newest Kafka with the API versions of each release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.partition_channel import PartitionChannel
from tests.pooled_connections import pooled_connection
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer import fetch_channel
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conftest import MakeTopic
    from tests.settings import TaskSettings

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.client.metadata import TopicMetadata
    from pyspark_kafka_direct.protocol.messages import ApiMessageType


def write(kafka: EmbeddedKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"value %d" % number, partition=1, timestamp=1000 * (number + 1))
    assert producer.flush(300) == 0


def check(settings: TaskSettings, topic: str) -> tuple[PartitionChannel, TopicMetadata]:
    """Read metadata, offsets and records written by ``write``."""
    cluster = ClusterClient(settings.connection)
    topics = cluster.topics([topic, "no-such-topic"])
    assert list(topics) == [topic]
    assert sorted(topics[topic].partitions) == [0, 1]
    assert topic in cluster.all_topics()
    partition = TopicPartition(topic, 1)
    for position, offset in {EARLIEST: 0, LATEST: 5, 2500: 2, 9000: -1}.items():
        offsets = cluster.offsets({partition: position}, isolation_level=settings.fetch.isolation_level)
        assert offsets == {partition: offset}
    leader = cluster.leader(partition)
    deadline = Deadline.after(30)
    with pooled_connection(POOL, settings.connection, leader.host, leader.port, deadline) as connection:
        topic_id = topics[topic].topic_id
        channel = PartitionChannel(connection, topic=topic, topic_id=topic_id, partition=1, settings=settings.fetch)
        channel.request(0, cluster.partition(partition).leader_epoch)
        fetched = channel.response(deadline)
        assert (fetched.error_code, fetched.high_watermark) == (0, 5)
        assert all(b"value %d" % number in bytes(fetched.records) for number in range(5))
    return channel, topics[topic]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_kafka_3_9(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], level: str) -> None:
    topic = topics_on(kafka39.bootstrap_servers)(2)
    write(kafka39, topic)
    settings = parse_client_params({"bootstrap.servers": kafka39.bootstrap_servers, "isolation.level": level})
    channel, _ = check(settings, topic)
    # The broker's maximum applies: 4.3 supports Fetch up to 18, 3.9 does not.
    assert (
        channel.version
        == channel.channel.connection.api_versions[fetch_channel.API_KEY][1]
        < fetch_channel.NEWEST_VERSION
    )


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    name = make_topic(2)
    write(kafka, name)
    return name


# Newest versions that brokers of some releases support: Fetch, ListOffsets, Metadata.
RELEASES = {
    "0.11": (5, 2, 4),
    "1.0": (6, 2, 5),
    "1.1": (7, 2, 5),
    "2.0": (8, 3, 6),
    "2.1": (10, 4, 7),
    "2.3": (11, 5, 8),
    "2.4": (11, 5, 9),
    "2.7": (12, 5, 9),
    "2.8": (12, 6, 11),
    "3.1": (13, 7, 12),
    "3.5": (15, 8, 12),
    "3.7": (16, 8, 12),
    "4.0": (17, 10, 13),
    "4.3": (18, 11, 13),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_versions_of_each_release(
    kafka: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch, release: str, level: str
) -> None:
    newest_versions = dict(zip((1, 2, 3), RELEASES[release], strict=True))
    used_versions: dict[int, int] = {}
    negotiate_versions, submit = Connection.negotiate_versions, Connection.submit

    def limit_versions(connection: Connection, deadline: Deadline) -> None:
        negotiate_versions(connection, deadline)
        for key, limit in newest_versions.items():
            connection.api_versions[key] = (connection.api_versions[key][0], limit)

    def record_versions(
        connection: Connection, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline
    ) -> None:
        submit(connection, api, values, deadline)
        used_versions[api.key] = connection.version(api)

    monkeypatch.setattr(Connection, "negotiate_versions", limit_versions)
    monkeypatch.setattr(Connection, "submit", record_versions)
    settings = parse_client_params(
        {"bootstrap.servers": kafka.bootstrap_servers, "client.id": f"as-{release}", "isolation.level": level}
    )
    channel, metadata = check(settings, topic)
    used_versions[fetch_channel.API_KEY] = channel.version
    assert {key: used_versions[key] for key in newest_versions} == newest_versions
    assert (metadata.topic_id is None) == (newest_versions[3] < 10)
    assert (metadata.partitions[0].leader_epoch == -1) == (newest_versions[3] < 9)
