"""The same requests against Kafka 3.9, whose newest versions are not ours: they are negotiated broker by broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.wire import fetch
from pyspark_kafka_direct.wire._deadline import Deadline
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.pool import POOL
from pyspark_kafka_direct.wire.settings import connection_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic


@pytest.fixture(scope="module")
def kafka39() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(version="3.9.2") as cluster:
        yield cluster


def test_metadata_offsets_and_records(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> None:
    topic = topics_on(kafka39.bootstrap_servers)(2)
    producer = Producer({"bootstrap.servers": kafka39.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"value %d" % number, partition=1, timestamp=1000 * (number + 1))
    assert producer.flush(30) == 0
    settings = connection_settings({"bootstrap.servers": kafka39.bootstrap_servers})
    cluster = Cluster(settings)
    found = cluster.topics([topic, "no-such-topic"])
    assert list(found) == [topic]
    assert sorted(found[topic].partitions) == [0, 1]
    partition = TopicPartition(topic, 1)
    positions = {EARLIEST: 0, LATEST: 5, 2500: 2, 9000: -1}
    for position, offset in positions.items():
        assert cluster.offsets({partition: position})[partition].offset == offset
    leader = cluster.leader(partition)
    deadline = Deadline.after(30)
    with POOL.lend(settings, leader.host, leader.port, deadline) as connection:
        channel = FetchChannel(connection, topic=topic, topic_id=found[topic].topic_id, partition=1, settings=settings)
        # The broker decides: 4.3 speaks Fetch up to 18, 3.9 does not.
        assert channel.version == connection.api_versions[fetch.API_KEY][1] < fetch.NEWEST_VERSION
        channel.request(0, cluster.partition(partition).leader_epoch)
        fetched = channel.response(deadline)
        assert (fetched.error_code, fetched.high_watermark) == (0, 5)
        assert all(b"value %d" % number in bytes(fetched.records) for number in range(5))
