"""The same requests against older brokers: Kafka 3.9, and today's Kafka addressed in the versions of each release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.lending import lend

from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire import fetch
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.settings.client import ClientSettings
    from pyspark_kafka_direct.wire.messages import Api
    from pyspark_kafka_direct.wire.metadata import TopicMetadata


def write(kafka: EmbeddedKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"value %d" % number, partition=1, timestamp=1000 * (number + 1))
    assert producer.flush(30) == 0


def check(settings: ClientSettings, topic: str) -> tuple[FetchChannel, TopicMetadata]:
    """Read metadata, offsets and records of what ``write`` wrote."""
    cluster = Cluster(settings.connection)
    found = cluster.topics([topic, "no-such-topic"])
    assert list(found) == [topic]
    assert sorted(found[topic].partitions) == [0, 1]
    assert topic in cluster.all_topics()
    partition = TopicPartition(topic, 1)
    for position, offset in {EARLIEST: 0, LATEST: 5, 2500: 2, 9000: -1}.items():
        found_at = cluster.offsets({partition: position}, isolation_level=settings.fetch.isolation_level)
        assert found_at == {partition: offset}
    leader = cluster.leader(partition)
    deadline = Deadline.after(30)
    with lend(POOL, settings.connection, leader.host, leader.port, deadline) as connection:
        topic_id = found[topic].topic_id
        channel = FetchChannel(connection, topic=topic, topic_id=topic_id, partition=1, settings=settings.fetch)
        channel.request(0, cluster.partition(partition).leader_epoch)
        fetched = channel.response(deadline)
        assert (fetched.error_code, fetched.high_watermark) == (0, 5)
        assert all(b"value %d" % number in bytes(fetched.records) for number in range(5))
    return channel, found[topic]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_kafka_3_9(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], level: str) -> None:
    topic = topics_on(kafka39.bootstrap_servers)(2)
    write(kafka39, topic)
    settings = connection_settings({"bootstrap.servers": kafka39.bootstrap_servers, "isolation.level": level})
    channel, _ = check(settings, topic)
    # The broker decides: 4.3 speaks Fetch up to 18, 3.9 does not.
    assert channel.version == channel.connection.api_versions[fetch.API_KEY][1] < fetch.NEWEST_VERSION


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    name = make_topic(2)
    write(kafka, name)
    return name


# Newest versions that brokers of some releases speak: Fetch, ListOffsets, Metadata.
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
    newest = dict(zip((1, 2, 3), RELEASES[release], strict=True))
    used: dict[int, int] = {}
    ask_versions, submit = Connection._ask_versions, Connection.submit

    def limited(connection: Connection, deadline: Deadline) -> None:
        ask_versions(connection, deadline)
        for key, limit in newest.items():
            connection.api_versions[key] = (connection.api_versions[key][0], limit)

    def watched(connection: Connection, api: Api, values: Mapping[str, Any], deadline: Deadline) -> None:
        submit(connection, api, values, deadline)
        used[api.key] = connection.version(api)

    monkeypatch.setattr(Connection, "_ask_versions", limited)
    monkeypatch.setattr(Connection, "submit", watched)
    settings = connection_settings(
        {"bootstrap.servers": kafka.bootstrap_servers, "client.id": f"as-{release}", "isolation.level": level}
    )
    channel, metadata = check(settings, topic)
    used[fetch.API_KEY] = channel.version
    assert {key: used[key] for key in newest} == newest
    assert (metadata.topic_id is None) == (newest[3] < 10)
    assert (metadata.partitions[0].leader_epoch == -1) == (newest[3] < 9)
