"""What ``write_arrow`` writes to a real broker, read by other clients byte for byte."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.integration.consumers import Consumed, consume

from pyspark_kafka_direct import read_arrow, write_arrow
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic
    from tests.integration.producers import Family

    from pyspark_kafka_direct.broker import EmbeddedKafka

FAMILIES: tuple[Family, ...] = ("librdkafka", "kafka-python")
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "timestamp": pa.timestamp("ms", "UTC"),
    }
)
_noise = random.Random(5)

RECORDS: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]] = [
    (b"key", b"value", (), 1_700_000_000_123),
    (None, b"no key", (), 1_700_000_000_124),
    (b"", b"empty key", (), 1_700_000_000_125),
    (b"null value", None, (), 1_700_000_000_126),
    (b"empty value", b"", (), 1_700_000_000_126),
    (None, None, (), 1_600_000_000_000),
    (b"\0", b"\0", (), 1),
    (bytes(range(256)), bytes(range(255, -1, -1)), (), 0),
    (b"headers", b"x", (("a", b"1"), ("b", None), ("a", b""), ("größe", b"\xff\0")), 1_700_000_000_000),
    (b"large", _noise.randbytes(900_000), (), 1_700_000_000_000),
    *((b"%d" % (n % 7), b"%d" % n * 10, (("n", b"%d" % n),), 1_700_000_000_000 + n) for n in range(3000)),
]


def batches(*topics: str) -> Iterator[pa.RecordBatch]:
    """Yield the records for each of some topics, a part in each batch."""
    for start in range(0, len(RECORDS), 1000):
        for topic in topics:
            rows = [
                {
                    "topic": topic,
                    "key": key,
                    "value": value,
                    "headers": [{"key": name, "value": content} for name, content in headers] or None,
                    "timestamp": timestamp,
                }
                for key, value, headers, timestamp in RECORDS[start : start + 1000]
            ]
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


@pytest.fixture
def topics(make_topic: MakeTopic) -> tuple[str, str]:
    return make_topic(1), make_topic(1)


def consumed(
    kafka: EmbeddedKafka, family: Family, topics: tuple[str, str], isolation: str = "read_uncommitted"
) -> list[list[Consumed]]:
    found = consume(family, kafka.bootstrap_servers, DEFAULT_VERSION, topics, isolation)
    return [found[topic] for topic in topics]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_other_clients_read_what_was_written(kafka: EmbeddedKafka, topics: tuple[str, str], codec: str) -> None:
    params = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
    result = write_arrow(None, batches(*topics), params)
    last = len(RECORDS) - 1
    assert result.records == 2 * len(RECORDS)
    assert {tp: (each.first_offset, each.last_offset) for tp, each in result.partitions.items()} == {
        TopicPartition(topic, 0): (0, last) for topic in topics
    }
    expected = [Consumed(offset, *record) for offset, record in enumerate(RECORDS)]
    for family in FAMILIES:
        assert consumed(kafka, family, topics) == [expected, expected]
    for topic in topics:
        written = pa.Table.from_batches(batches(topic)).drop_columns("topic").to_pylist()
        assert read_arrow(topic, params, columns=SCHEMA.names[1:]).read_all().to_pylist() == written


def test_a_transaction_is_committed_or_aborted(kafka: EmbeddedKafka, topics: tuple[str, str]) -> None:
    params = {"bootstrap.servers": kafka.bootstrap_servers, "batch.size": "20000"}
    transactional_id = f"write-{topics[0]}"

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(*topics)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        write_arrow(None, failing(), params, transactional_id=transactional_id)
    assert caught.value.__notes__ == ["The transaction was aborted, so no record is committed."]
    result = write_arrow(None, batches(*topics), params, transactional_id=transactional_id)
    for family in FAMILIES:
        committed = consumed(kafka, family, topics, "read_committed")
        assert [[record[1:] for record in each] for each in committed] == [RECORDS, RECORDS]
        assert [each[0].offset for each in committed] == [each.first_offset for each in result.partitions.values()]
        assert any(len(each) > len(RECORDS) for each in consumed(kafka, family, topics))
