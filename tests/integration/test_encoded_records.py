"""Other clients read the encoded records byte for byte, in every codec."""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.consumers import Consumed, consume
from tests.integration.producers import CODECS, FAMILIES
from tests.kafka_python import ask
from tests.settings import parse_client_params
from tests.unit.records.encoding import Row, encode

from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import set_producer_state, split_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import MakeTopic
    from tests.integration.producers import Family

    from pyspark_kafka_direct.broker import EmbeddedKafka

_noise = random.Random(3)
_NOW = int(time.time() * 1000)

UNUSUAL = [
    Row(b"plain", b"key", timestamp=_NOW),
    Row(b"no key", timestamp=_NOW - 5),
    Row(b"empty key", b"", timestamp=_NOW),
    Row(b"", b"empty value", timestamp=_NOW),
    Row(None, b"null value", timestamp=_NOW),
    Row(None, None, timestamp=_NOW),
    Row(bytes(range(256)), bytes(range(255, -1, -1)), timestamp=_NOW),
    Row(b"the first millisecond", timestamp=0),
    Row(b"headers", headers=(("name", b"content"), ("empty", b""), ("null", None), ("", b"nameless")), timestamp=_NOW),
    Row(b"the same name twice", headers=(("twice", b"1"), ("größe", b"2"), ("twice", b"\xff")), timestamp=_NOW),
    Row(b"many headers", headers=tuple((f"h{number}", b"%d" % number * 50) for number in range(1000)), timestamp=_NOW),
    Row(b"large and compressible" * 10_000, b"large", timestamp=_NOW),
    Row(_noise.randbytes(300_000), b"large and random", timestamp=_NOW),
    *(Row(b'{"flight":%d,"origin":"JFK"}' % n, b"%d" % (n % 7), timestamp=_NOW + n) for n in range(3000)),
]
BEFORE_1970 = [Row(b"long before 1970", timestamp=-86_400_000_000), Row(b"a second before", timestamp=-1000)]


def send(servers: str, topic: str, batches: Sequence[bytes | bytearray | memoryview]) -> None:
    """Sends record batches unchanged to partition 0, with kafka-python's request."""
    from kafka.protocol.producer import ProduceRequest as Request

    cluster = ClusterClient(parse_client_params({"bootstrap.servers": servers}).connection)
    node = cluster.leader(TopicPartition(topic, 0))
    topic_id = cluster.topics([topic])[topic].topic_id
    with closing(Connection.open(cluster.settings, node.host, node.port, Deadline.after(30))) as connection:
        for data in batches:
            partition = Request.TopicProduceData.PartitionProduceData(index=0, records=bytes(data))
            target = Request.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
            request = Request(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[target])
            response: Any = ask(connection, request, Deadline.after(60))
            (partition_response,) = response.responses[0].partition_responses
            assert partition_response.error_code == 0, partition_response


def expected(rows: Sequence[Row]) -> list[Consumed]:
    return [
        Consumed(offset, row.key, row.value, row.headers or (), row.timestamp)  # type: ignore[arg-type]
        for offset, row in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def written(kafka: EmbeddedKafka, make_topic: MakeTopic) -> dict[str, list[Row]]:
    """A topic for each codec, with its rows."""
    topics = {}
    for codec in CODECS:
        topic = make_topic(prefix=codec)
        batches = encode(UNUSUAL, codec=codec, batch_bytes=200_000)
        halves = split_batch(batches[-1].data)
        send(kafka.bootstrap_servers, topic, [*(batch.data for batch in batches[:-1]), *halves])
        topics[topic] = UNUSUAL
    return topics


@pytest.mark.parametrize("family", FAMILIES)
def test_every_client_reads_encoded_records(
    kafka: EmbeddedKafka, written: dict[str, list[Row]], family: Family
) -> None:
    consumed = consume(family, kafka.bootstrap_servers, DEFAULT_VERSION, list(written))
    for topic, rows in written.items():
        assert consumed[topic] == expected(rows), topic


@pytest.fixture(scope="module")
def large(kafka: EmbeddedKafka, make_topic: MakeTopic) -> dict[str, list[Row]]:
    """A topic with records of 10 MB in every codec, with its rows."""
    compressible = b"".join(
        b"%07d departures, mean delay %03d minutes\n" % (n, n * n % 997) for n in range(10_000_000 // 40)
    )
    rows = [Row(compressible, b"large", timestamp=_NOW), Row(_noise.randbytes(10_000_000), timestamp=_NOW)]
    topic = make_topic(max_message_bytes=12 << 20)
    batches = [batch.data for codec in CODECS for batch in encode(rows, codec=codec, max_record_bytes=11 << 20)]
    send(kafka.bootstrap_servers, topic, batches)
    return {topic: rows * len(CODECS)}


@pytest.mark.parametrize("family", FAMILIES)
def test_records_of_10_mb(kafka: EmbeddedKafka, large: dict[str, list[Row]], family: Family) -> None:
    consumed = consume(family, kafka.bootstrap_servers, DEFAULT_VERSION, list(large))
    for topic, sent in large.items():
        assert consumed[topic] == expected(sent)


def test_timestamps_before_1970(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for codec in CODECS:
        send(kafka.bootstrap_servers, topic, [batch.data for batch in encode(BEFORE_1970, codec=codec)])
    consumed = consume("librdkafka", kafka.bootstrap_servers, DEFAULT_VERSION, [topic])[topic]
    assert [each.timestamp for each in consumed] == [row.timestamp for row in BEFORE_1970] * len(CODECS)


def test_batch_with_producer_state_is_accepted_once(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """The broker checks the producer state: a batch sent again is acknowledged as a duplicate and not stored."""
    topic = make_topic()
    first, second = (encode(UNUSUAL[start : start + 5], codec="lz4")[0].data for start in (0, 5))
    producer_id = random.SystemRandom().randrange(1 << 40, 1 << 50)
    set_producer_state(first, producer_id, 0, 0, transactional=False)
    set_producer_state(second, producer_id, 0, 5, transactional=False)
    send(kafka.bootstrap_servers, topic, [first, first, second, second, first])
    consumed = consume("kafka-python", kafka.bootstrap_servers, DEFAULT_VERSION, [topic])[topic]
    assert consumed == expected(UNUSUAL[:10])
