"""How large records are, by sample, and what a limit in bytes makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.reading.sample import measure, take_sample
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.structured.source import KafkaDirectSource
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

SIZE, COUNT = 1000, 2000


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    name = make_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "batch.num.messages": 10})
    for number in range(COUNT):
        producer.produce(name, bytes(SIZE), partition=number % 2)
    assert producer.flush(30) == 0
    return name


@pytest.mark.parametrize("offset", [0, 5, 500, COUNT // 2 - 1])
def test_the_size_of_records(kafka: EmbeddedKafka, topic: str, offset: int) -> None:
    settings = connection_settings({"bootstrap.servers": kafka.bootstrap_servers})
    sample = take_sample(*settings, TopicPartition(topic, 0), offset, Deadline.after(30))
    assert sample is not None
    assert SIZE < sample.per_offset < SIZE * 1.2


def test_what_is_no_batch_has_no_size() -> None:
    assert measure(b"", 0) is None
    assert measure(bytes(11), 0) is None
    assert measure((0).to_bytes(8, "big") + (500).to_bytes(4, "big") + bytes(100), 0) is None


def test_a_stream_takes_about_so_many_bytes(kafka: EmbeddedKafka, topic: str) -> None:
    source = KafkaDirectSource(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(200 * SIZE),
        }
    )
    stream = source.streamReader(source.schema())
    limits = pytest.importorskip("pyspark.sql.streaming.datasource")  # Spark 4.2
    end = stream.latestOffset(stream.initialOffset(), limits.ReadMaxRows(1))
    assert 160 <= sum(end[topic].values()) <= 200
