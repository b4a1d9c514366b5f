"""``spark.read.format("kafka-direct")``: the columns, a custom schema, and how a query ends."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.smoke

SPARK_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    """Six records over two partitions: null and empty keys and values, headers of all kinds."""
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    records: list[dict[str, Any]] = [
        {"partition": 0, "key": b"AA", "value": b"one", "timestamp": 1_700_000_000_123},
        {"partition": 0, "key": None, "value": b"two", "timestamp": 1_700_000_000_124},
        {"partition": 0, "key": b"", "value": None, "timestamp": 1_700_000_000_125},
        {"partition": 0, "key": b"UA", "value": b"", "timestamp": 1_700_000_000_126, "headers": [("h", b"x")]},
        {"partition": 1, "value": b"five", "timestamp": 1_700_000_000_127, "headers": [("n", None), ("e", b"")]},
        {
            "partition": 1,
            "value": b"six",
            "timestamp": 1_700_000_000_128,
            "headers": [("twice", b"1"), ("twice", b"2")],
        },
    ]
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(300) == 0
    return topic


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka) -> Callable[..., DataFrame]:
    def read(topic: str, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", topic).options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    return read


def test_spark_finds_the_format_and_the_columns_are_sparks(read: Callable[..., DataFrame], flights: str) -> None:
    assert read(flights).schema.simpleString() == SPARK_SCHEMA
    with_headers = read(flights, includeHeaders="true").schema
    assert with_headers.simpleString() == SPARK_SCHEMA[:-1] + f",headers:{HEADERS}>"


def test_every_column_of_every_record(read: Callable[..., DataFrame], flights: str) -> None:
    rows = read(flights).orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset, row.key, row.value) for row in rows] == [
        (0, 0, b"AA", b"one"),
        (0, 1, None, b"two"),
        (0, 2, b"", None),
        (0, 3, b"UA", b""),
        (1, 0, None, b"five"),
        (1, 1, None, b"six"),
    ]
    assert {row.topic for row in rows} == {flights}
    assert {row.timestampType for row in rows} == {0}
    first = rows[0].timestamp.astimezone(datetime.UTC)
    assert first == datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)


def test_headers_are_null_if_a_record_has_none(read: Callable[..., DataFrame], flights: str) -> None:
    rows = read(flights, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [row.headers and [tuple(header) for header in row.headers] for row in rows] == [
        None,
        None,
        None,
        [("h", b"x")],
        [("n", None), ("e", b"")],
        [("twice", b"1"), ("twice", b"2")],
    ]


def test_a_schema_reads_only_its_columns_in_its_order(read: Callable[..., DataFrame], flights: str) -> None:
    df = read(flights, "value binary, offset long")
    assert df.schema.simpleString() == "struct<value:binary,offset:bigint>"
    assert sorted(tuple(row) for row in df.collect() if row.value) == [
        (b"five", 0),
        (b"one", 0),
        (b"six", 1),
        (b"two", 1),
    ]


def test_column_names_of_a_schema_are_case_insensitive_as_in_spark(
    read: Callable[..., DataFrame], flights: str
) -> None:
    df = read(flights, "TIMESTAMPTYPE int, `Value` binary, topic string not null")
    assert df.columns == ["TIMESTAMPTYPE", "Value", "topic"]
    assert df.count() == 6


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("valeu binary", "Did you mean 'value'"),
        ("value string", "column 'value' is binary, not string"),
        ("value binary, VALUE binary", "named twice"),
        ("key binary not null", "may be null"),
    ],
)
def test_an_unsupported_schema_is_rejected(
    read: Callable[..., DataFrame], flights: str, schema: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(flights, schema).collect()


def test_a_frame_joined_with_itself(read: Callable[..., DataFrame], flights: str) -> None:
    frame = read(flights)
    pairs = frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).select("a.value", "b.value").collect()
    assert sorted((left or b"", right or b"") for left, right in pairs) == sorted(
        (row.value or b"", row.value or b"") for row in frame.collect()
    )
    before = frame.select("partition", (frame["offset"] + 1).alias("offset"), "value")
    followed = before.join(frame.select("partition", "offset", frame.value.alias("next")), ["partition", "offset"])
    assert sorted((row.value, row.next) for row in followed.where("partition = 1").collect()) == [(b"five", b"six")]
    assert followed.count() == 4


def test_an_empty_topic_is_an_empty_frame(read: Callable[..., DataFrame], make_topic: Callable[..., str]) -> None:
    assert read(make_topic(partitions=3)).count() == 0
