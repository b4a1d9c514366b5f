"""Pushed filters change what is read, never the result."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, TypeAlias

import pytest
from confluent_kafka import Producer
from pyspark.sql import datasource as filters

from pyspark_kafka_direct.datasource.kafka_batch_reader import FilterPushdownBatchReader
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

    Row: TypeAlias = tuple[int, int, bytes | None, datetime.datetime]

T0 = 1_700_000_000_000
# Milliseconds, not in order, because producers set them; with extremes: 1970, 2200.
TIMESTAMPS = {
    0: [T0 + 100 * number for number in range(40)],
    1: [T0 + 100 * ((number * 7) % 40) for number in range(40)],
    2: [1, T0 + 300, T0 + 300, T0 + 301, 7_258_118_400_000, T0 + 299, 2, T0 + 1_000, T0],
    3: [],
}

FILTERS = [
    "partition = 1",
    "partition <> 1",
    "partition < 1",
    "partition <= 1 and partition > 0",
    "partition in (0, 2, 7)",
    "partition in (0, null)",
    "partition not in (0, 2)",
    "partition = null",
    "partition <=> null",
    "partition <=> 2",
    "partition is null",
    "partition is not null",
    "partition = -1",
    "partition > 2147483646",
    "not (partition = 1)",
    "partition + 0 = 1",
    "partition = '1'",
    "partition = 1.5",
    "offset = 5",
    "offset >= 5 and offset < 8",
    "offset > 37",
    "offset <= 0",
    "offset < 0",
    "offset in (3, 4, 5)",
    "offset in (3, 30)",
    "offset in (3, null)",
    "offset > 9223372036854775806",
    "offset between 10 and 12 and partition in (0, 1)",
    "offset = 5 or partition = 2",
    "offset = 5 and key is null",
    "timestamp >= timestamp_millis(1700000001000)",
    "timestamp > timestamp_millis(1700000001000)",
    "timestamp <= timestamp_millis(1700000001000)",
    "timestamp < timestamp_millis(1700000001000)",
    "timestamp = timestamp_millis(1700000000300)",
    "timestamp <=> timestamp_millis(1700000000300)",
    "timestamp <=> null",
    "timestamp in (timestamp_millis(1700000000300), timestamp_millis(1700000003900))",
    "timestamp in (timestamp_millis(1700000000300), null)",
    "timestamp >= timestamp_micros(1700000000300001)",
    "timestamp > timestamp_micros(1700000000299999)",
    "timestamp = timestamp_micros(1700000000300001)",
    "timestamp between timestamp_millis(1700000000250) and timestamp_millis(1700000000350)",
    "timestamp >= timestamp_millis(0)",
    "timestamp >= timestamp_millis(2)",
    "timestamp >= timestamp '1960-01-01'",
    "timestamp < timestamp '1960-01-01'",
    "timestamp >= timestamp '2199-01-01'",
    "timestamp >= timestamp '9999-12-31'",
    "timestamp > timestamp_ntz '2023-11-14 22:13:21'",
    "timestamp > '2023-11-14 22:13:21'",
    "date(timestamp) = '2023-11-14'",
    "timestamp >= timestamp_millis(1700000000300) and partition = 2 and offset > 1",
    "timestamp >= timestamp_millis(1700000000300) or offset = 0",
    "timestamp is not null",
    "key = X'31'",
    "key is null",
    "key is null and partition = 0",
    "key > X'35' and offset < 9",
    "topic like 'test%' and partition = 0",
    "timestampType = 0 and offset = 1",
    "true",
    "false",
    "cast(null as boolean)",
    "rand() < 2",
]


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    return make_spark({"spark.sql.python.filterPushdown.enabled": "true", "spark.sql.session.timeZone": "UTC"})


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    name = make_topic(partitions=len(TIMESTAMPS), message_timestamp_after_max_ms=(1 << 63) - 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, timestamps in TIMESTAMPS.items():
        for number, timestamp in enumerate(timestamps):
            key = b"%d" % (number % 10) if number % 3 else None
            producer.produce(name, b"%d" % number, key, partition=partition, timestamp=timestamp)
    assert producer.flush(300) == 0
    return name


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> Callable[..., DataFrame]:
    def read(**options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return reader.options(subscribe=topic, **options).load()

    return read


@pytest.fixture(scope="module")
def unpushed(read: Callable[..., DataFrame]) -> DataFrame:
    """All records, cached by Spark: it evaluates the filters itself."""
    frame = read().cache()
    assert frame.count() == sum(len(timestamps) for timestamps in TIMESTAMPS.values())
    return frame


def rows(frame: DataFrame) -> list[Row]:
    return sorted(tuple(row) for row in frame.select("partition", "offset", "value", "timestamp").collect())


def test_the_result_never_differs(read: Callable[..., DataFrame], unpushed: DataFrame) -> None:
    from pyspark.sql.functions import expr

    matches = [expr(condition).alias(f"match{number}") for number, condition in enumerate(FILTERS)]
    judged = unpushed.select("partition", "offset", "value", "timestamp", *matches).collect()
    some = 0
    for number, condition in enumerate(FILTERS):
        expected = sorted(tuple(row[:4]) for row in judged if row[4 + number])
        some += 0 < len(expected) < len(judged)
        assert rows(read(pushDownFilters="true").where(condition)) == expected, condition
    assert some > len(FILTERS) / 2


def test_filters_stack_up(read: Callable[..., DataFrame], unpushed: DataFrame) -> None:
    def stacked(frame: DataFrame) -> DataFrame:
        return frame.where("offset > 3").select("partition", "offset", "value", "timestamp").where("partition = 0")

    assert rows(stacked(read(pushDownFilters="true", minPartitions="9"))) == rows(stacked(unpushed))
    ranged = read(pushDownFilters="true", startingTimestamp=str(T0 + 250), startingOffsetsByTimestampStrategy="latest")
    plain = read(startingTimestamp=str(T0 + 250), startingOffsetsByTimestampStrategy="latest")
    condition = "timestamp >= timestamp_millis(1700000000300)"
    assert rows(ranged.where(condition)) == rows(plain.where(condition))


def test_fewer_tasks(read: Callable[..., DataFrame]) -> None:
    pushed = read(pushDownFilters="true")
    assert pushed.rdd.getNumPartitions() == 3
    assert pushed.where("partition = 1").rdd.getNumPartitions() == 1
    assert pushed.where("offset >= 9").rdd.getNumPartitions() == 2
    assert read().where("partition = 1").rdd.getNumPartitions() == 3


def test_one_load_is_for_one_filter(read: Callable[..., DataFrame], unpushed: DataFrame) -> None:
    """A pitfall of Spark, up to 4.3.0 at least; see docs/coming-from-the-jvm-connector.md.

    Spark keeps one plan per ``load()``, and pushed filters replace it, for every other use of that frame as well. If
    this test fails, Spark is fixed (``PythonScanBuilder`` keeps the plan itself) and the warnings can be removed.
    """
    frame = read(pushDownFilters="true")
    assert rows(frame.where("partition = 1")) == rows(unpushed.where("partition = 1"))
    assert rows(frame) == rows(unpushed.where("partition = 1"))
    both = frame.where("partition = 0").union(frame.where("partition = 2"))
    assert rows(both) == sorted(rows(unpushed.where("partition = 2")) * 2)
    # Separate frames are safe.
    both = read(pushDownFilters="true").where("partition = 0").union(read(pushDownFilters="true").where("offset > 20"))
    assert rows(both) == sorted(rows(unpushed.where("partition = 0")) + rows(unpushed.where("offset > 20")))


def test_fewer_offsets_are_planned(kafka: EmbeddedKafka, topic: str) -> None:
    def moment(milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)

    def planned(*pushed: filters.Filter) -> tuple[dict[int, tuple[int, int]], list[filters.Filter]]:
        source = KafkaSourceProvider(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "pushdownfilters": "true"}
        )
        reader = source.reader(source.schema())
        assert isinstance(reader, FilterPushdownBatchReader)
        left = list(reader.pushFilters(list(pushed)))
        found = {}
        for planned in reader.partitions():
            assert isinstance(planned, KafkaInputPartition)
            offsets = planned.task.offsets
            found[offsets.partition] = (offsets.from_offset, offsets.until_offset)
        return found, left

    everything = {0: (0, 40), 1: (0, 40), 2: (0, 9)}
    assert planned() == (everything, [])
    assert planned(filters.EqualTo(("partition",), 1), filters.GreaterThan(("offset",), 20)) == ({1: (21, 40)}, [])
    # A lower time bound narrows the ranges, but Spark still evaluates the filter.
    late = filters.GreaterThanOrEqual(("timestamp",), moment(T0 + 3_000))
    assert planned(late) == ({0: (30, 40), 1: (5, 40), 2: (4, 9)}, [late])
    # An upper bound does not.
    early = filters.LessThan(("timestamp",), moment(T0 + 100))
    assert planned(early) == (everything, [early])
    no_record = filters.GreaterThan(("timestamp",), moment(9_000_000_000_000))
    assert planned(no_record) == ({}, [no_record])
    assert planned(filters.In(("partition",), (9, 10))) == ({}, [])
    unknown = filters.StringStartsWith(("topic",), "t")
    assert planned(unknown) == (everything, [unknown])
