"""Sampling the size of records, and limits in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.record_size import measure_batches, sample_record_size
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.offsets import TopicPartition

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
    assert producer.flush(300) == 0
    return name


@pytest.mark.parametrize("offset", [0, 5, 500, COUNT // 2 - 1])
def test_record_size_is_sampled(kafka: EmbeddedKafka, topic: str, offset: int) -> None:
    settings = parse_client_params({"bootstrap.servers": kafka.bootstrap_servers})
    sample = sample_record_size(*settings, TopicPartition(topic, 0), offset, Deadline.after(30))
    assert sample is not None
    assert SIZE < sample.bytes_per_offset < SIZE * 1.2


def test_sampling_does_not_wait_for_the_minimum_of_a_fetch(kafka: EmbeddedKafka, topic: str) -> None:
    params = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "fetch.min.bytes": "50000000",
        "fetch.max.wait.ms": "600000",
    }
    deadline = Deadline.after(40)
    sample = sample_record_size(*parse_client_params(params), TopicPartition(topic, 0), COUNT // 2 - 1, deadline)
    assert sample is not None
    assert deadline.remaining() > 20, "a fetch that waits returns after half of the remaining time"


def test_incomplete_batch_has_no_size() -> None:
    assert measure_batches(b"", 0) is None
    assert measure_batches(bytes(11), 0) is None
    assert measure_batches((0).to_bytes(8, "big") + (500).to_bytes(4, "big") + bytes(100), 0) is None


def test_max_bytes_limits_stream_batches(kafka: EmbeddedKafka, topic: str) -> None:
    source = KafkaSourceProvider(
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
