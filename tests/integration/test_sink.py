"""``df.write.format("kafka-direct")``: columns, topics, partitions, modes and errors. Read back by kafka-python."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f
from tests.integration.exactly_once import package_error_line
from tests.integration.read_back import Consumed, consume, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

HEADERS = "array<struct<key:string,value:binary>>"
TO = {"topic": "t"}


@pytest.fixture(scope="module")
def write(spark: SparkSession, kafka: EmbeddedKafka) -> Callable[..., None]:
    """Writes a frame: ``write(df, topic="t", kafka_acks="1")``."""

    def write(frame: DataFrame, mode: str = "append", /, **options: str) -> None:
        given = {name.replace("_", "."): text for name, text in options.items()}
        writer = frame.write.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer.options(**given).mode(mode).save()

    return write


@pytest.fixture
def read(kafka: EmbeddedKafka) -> Callable[[str], list[Consumed]]:
    return lambda topic: consume(kafka.bootstrap_servers, topic)


@pytest.mark.smoke
def test_every_column(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)
    long_ago = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    rows = [
        (topic, 2, b"k", b"v", [("h", b"x"), ("h", None), ("", b"")], when),
        (topic, 2, None, None, None, when),
        (topic, 0, b"", b"", [], long_ago),
        (topic, 1, b"k", b"v" * 100_000, [(f"{number}", b"%d" % number) for number in range(100)], when),
    ]
    schema = f"topic string, partition int, key binary, value binary, headers {HEADERS}, timestamp timestamp"
    write(spark.createDataFrame(rows, schema).coalesce(1))
    found = {(each.partition, each.offset): each for each in read(topic)}
    assert found == {
        (2, 0): Consumed(2, 0, b"k", b"v", [("h", b"x"), ("h", None), ("", b"")], 1_767_323_045_678),
        (2, 1): Consumed(2, 1, None, None, [], 1_767_323_045_678),
        (0, 0): Consumed(0, 0, b"", b"", [], 0),
        (1, 0): Consumed(1, 0, b"k", b"v" * 100_000, [(str(n), b"%d" % n) for n in range(100)], 1_767_323_045_678),
    }


def test_strings_are_written_as_utf8_with_the_current_time(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    before = int(time.time() * 1000)
    rows = [("kůň", "žluťoučký", None)]
    write(spark.createDataFrame(rows, "key string, value string, timestamp timestamp"), topic=topic)
    write(spark.createDataFrame([("plain",)], "value string"), topic=topic)
    first, second = read(topic)
    assert (first.key, first.value) == ("kůň".encode(), "žluťoučký".encode())
    assert (second.key, second.value, second.headers) == (None, b"plain", [])
    assert before <= first.timestamp <= second.timestamp <= time.time() * 1000


def test_a_double_is_a_timestamp_in_seconds(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    rows = [("a", 1.5), ("b", 1_700_000_000.1239), ("c", 0.0)]
    write(spark.createDataFrame(rows, "value string, timestamp double").coalesce(1), topic=topic)
    assert [each.timestamp for each in read(topic)] == [1500, 1_700_000_000_123, 0]


def test_the_topic_option_overrides_the_topic_column(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topics = [make_topic(2), make_topic(1), make_topic(3)]
    names = f.element_at(f.array(*map(f.lit, topics)), (f.col("id") % 3 + 1).cast("int"))
    frame = spark.range(300).select(f.col("id").cast("string").alias("value"), names.alias("topic"))
    write(frame)
    for number, topic in enumerate(topics):
        found = sorted(int(each.value or b"") for each in read(topic))
        assert found == list(range(number, 300, 3))
    alone = make_topic()
    write(frame, topic=alone)
    assert sorted(int(each.value or b"") for each in read(alone)) == list(range(300))


def test_the_partition_is_chosen_by_column_then_key_then_batch(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    given, keyed, loose = make_topic(4), make_topic(4), make_topic(4)
    frame = spark.range(0, 100, 1, 1).select(f.col("id").cast("string").alias("value"), f.lit("k").alias("key"))
    write(frame.withColumn("partition", (f.col("value") % 3).cast("int")), topic=given)
    assert all(int(each.value or b"") % 3 == each.partition for each in read(given))
    write(frame.withColumn("partition", f.lit(None).cast("int")), topic=keyed)
    write(frame, topic=keyed)
    (place,) = {each.partition for each in read(keyed)}  # both by the key
    assert [int(each.value or b"") for each in read(keyed)] == [*range(100), *range(100)]
    write(frame.drop("key"), topic=loose)
    assert len({each.partition for each in read(loose)}) == 1
    write(frame, topic=loose, kafka_partitioner_ignore_keys="true", kafka_batch_size="50")
    assert {each.partition for each in read(loose)} == {0, 1, 2, 3}
    assert place in range(4)


def test_small_writes_without_keys_use_all_partitions(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    frame = spark.range(0, 2000, 1, 1).selectExpr("concat('row ', id, repeat('x', 90)) AS value")
    for _ in range(12):
        write(frame, topic=topic)
    counts = Counter(each.partition for each in read(topic))
    assert set(counts) == set(range(6))
    assert min(counts.values()) > 2000  # of 4000 on average; partitions of the JVM sink get 3100 to 4900


def test_the_order_of_a_task_is_kept_in_each_partition(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    frame = spark.range(0, 30_000, 1, 1).select(
        f.col("id").cast("string").alias("value"), (f.col("id") % 7).cast("string").alias("key")
    )
    write(frame, topic=topic, kafka_batch_size="2000", kafka_compression_type="lz4")
    found = read(topic)
    assert len(found) == 30_000
    for partition in range(3):
        numbers = [int(each.value or b"") for each in found if each.partition == partition]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_codecs_and_acknowledgements(
    spark: SparkSession,
    write: Callable[..., None],
    read: Callable[[str], list[Consumed]],
    make_topic: MakeTopic,
    codec: str,
    acks: str,
) -> None:
    topic = make_topic()
    frame = spark.range(500).selectExpr("repeat(cast(id as string), 20) value")
    write(frame, topic=topic, kafka_compression_type=codec, kafka_acks=acks)
    expected = sorted(str(number) * 20 for number in range(500))
    assert sorted((each.value or b"").decode() for each in read(topic)) == expected


def test_big_data_in_a_small_buffer(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    frame = spark.range(0, 1000, 1, 2).selectExpr("repeat(lpad(cast(id as string), 10, '0'), 1500) value")
    write(frame, topic=topic, kafka_buffer_memory="16384")
    found = read(topic)
    assert {len(each.value or b"") for each in found} == {15_000}
    assert sorted(int((each.value or b"")[:10]) for each in found) == list(range(1000))


def test_two_hundred_partitions(
    spark: SparkSession, write: Callable[..., None], kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(200)
    frame = spark.range(0, 5000, 1, 2).selectExpr("cast(id as string) value", "cast(id % 200 as int) partition")
    write(frame, topic=topic, kafka_buffer_memory="65536")
    found = consume(kafka.bootstrap_servers, topic)
    assert sorted(int(each.value or b"") for each in found) == list(range(5000))
    assert all(int(each.value or b"") % 200 == each.partition for each in found)


def test_nothing_to_write(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(spark.range(0).selectExpr("cast(id as string) value"), topic=topic)
    assert read(topic) == []


def test_read_records_can_be_written(
    spark: SparkSession,
    write: Callable[..., None],
    read: Callable[[str], list[Consumed]],
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
) -> None:
    first, second = make_topic(2), make_topic(2)
    rows = [(f"k{number}", f"v{number}", [("h", b"%d" % number)], number % 2) for number in range(20)]
    write(spark.createDataFrame(rows, f"key string, value string, headers {HEADERS}, partition int"), topic=first)
    reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    write(reader.option("subscribe", first).option("includeHeaders", "true").load(), topic=second)
    assert read(second) == read(first)
    assert len(read(second)) == 20


def test_analyzed_plans_are_used(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    """SPARK-20496: optimization of a frame must not change the columns."""
    topic = make_topic()
    frame = spark.range(10).selectExpr("struct(cast(id as string) as value, 'x' as other) as s")
    write(frame.selectExpr("s.value").filter("value >= 5").orderBy("value"), topic=topic)
    write(frame.selectExpr("s.*").groupBy("value").count().selectExpr("value"), topic=topic)
    found = [int(each.value or b"") for each in read(topic)]
    assert sorted(found) == sorted([*range(5, 10), *range(10)])


def test_a_stamp_identifies_the_task_of_a_record(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    rows = [("v", [("own", b"x")]), ("w", None)]
    frame = spark.createDataFrame(rows, f"value string, headers {HEADERS}").coalesce(1)
    write(frame, topic=topic, stampBatch="true")
    stamp = [("spark.partition.id", b"0"), ("spark.attempt", b"0")]
    assert [each.headers for each in read(topic)] == [[("own", b"x"), *stamp], stamp]


def test_a_null_topic(spark: SparkSession, write: Callable[..., None], make_topic: MakeTopic) -> None:
    rows = [("a", make_topic()), ("b", None)]
    frame = spark.createDataFrame(rows, "value string, topic string").coalesce(1)
    with pytest.raises(PythonException) as caught:
        write(frame)
    assert package_error_line(caught.value).startswith(
        "ColumnError: The Kafka message data sent to the producer contains a null topic."
    )
    assert package_error_line(caught.value).endswith("row 1 of the task")


def test_an_unknown_topic_is_not_created(spark: SparkSession, write: Callable[..., None], kafka: EmbeddedKafka) -> None:
    started_at = time.monotonic()
    with pytest.raises(PythonException) as caught:
        write(
            spark.range(3).selectExpr("cast(id as string) value"),
            topic="missing-topic",
            kafka_delivery_timeout_ms="600000",
            kafka_default_api_timeout_ms="600000",
        )
    assert package_error_line(caught.value).startswith(
        "TopicNotFoundError: Topic 'missing-topic' does not exist, and writing does not create topics"
    )
    assert time.monotonic() - started_at < 120
    with pytest.raises(AssertionError, match="there is no topic missing-topic"):
        values(kafka.bootstrap_servers, "missing-topic")


def test_a_partition_that_the_topic_does_not_have(
    spark: SparkSession, write: Callable[..., None], make_topic: MakeTopic
) -> None:
    frame = spark.createDataFrame([("a", 0), ("b", 2)], "value string, partition int").coalesce(1)
    with pytest.raises(PythonException) as caught:
        write(frame, topic=make_topic(2))
    assert package_error_line(caught.value).startswith(
        "ColumnError: Row 1 names partition 2, but the topic has the partitions 0 to 1."
    )


def test_a_record_that_is_too_large(spark: SparkSession, write: Callable[..., None], make_topic: MakeTopic) -> None:
    frame = spark.range(1).selectExpr("repeat('x', 2000000) value")
    with pytest.raises(PythonException) as caught:
        write(frame, topic=make_topic())
    assert package_error_line(caught.value).startswith("RecordTooLargeError: ")
    assert "max.request.size" in package_error_line(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "words"),  # the frame has a string column v
    [
        (["v value"], {}, "ColumnError: topic option required when no 'topic' attribute is present"),
        (["v body"], TO, "ColumnError: Required attribute 'value' not found among the columns body"),
        (["v value", "1 topic"], {}, "ColumnError: topic attribute unsupported type int. topic must be a(n) string"),
        (["1 value"], TO, "ColumnError: value attribute unsupported type int. value must be a(n) string or binary"),
        (["v value", "1 key"], TO, "ColumnError: key attribute unsupported type int. key must be a(n) string or"),
        (["v value", "v partition"], TO, "ColumnError: partition attribute unsupported type string."),
        (["v value", "map(v, v) headers"], TO, "ColumnError: headers attribute unsupported type map<string,string>."),
        (["v value"], {**TO, "kafka_key_serializer": "x"}, "OptionError: the option kafka.key.serializer cannot"),
        (["v value"], {**TO, "kafka_value_serializer": "x"}, "OptionError: the option kafka.value.serializer cannot"),
        (["v value"], {**TO, "kafka_transactional_id": "x"}, "OptionError: the option kafka.transactional.id cannot"),
        (["v value"], {**TO, "kafka_acks": "most"}, "OptionError: kafka.acks must be all, -1, 1 or 0, got 'most'"),
    ],
)
def test_invalid_writes_are_rejected_before_any_task_starts(
    spark: SparkSession, write: Callable[..., None], columns: list[str], options: dict[str, str], words: str
) -> None:
    def unreached(batches: Any) -> Any:
        raise AssertionError("a task ran")

    frame = spark.range(1).mapInArrow(unreached, "v string").selectExpr(*columns)
    with pytest.raises(AnalysisException) as caught:
        write(frame, **options)
    assert package_error_line(caught.value).startswith(words)
    assert "Traceback" not in str(caught.value)


def test_modes(spark: SparkSession, write: Callable[..., None], make_topic: MakeTopic) -> None:
    topic = make_topic()
    frame = spark.range(3).selectExpr("cast(id as string) value")
    with pytest.raises(AnalysisException) as caught:
        write(frame, "overwrite", topic=topic)
    assert package_error_line(caught.value).startswith("OptionError: mode overwrite is not supported")
    for mode in ("error", "ignore"):
        with pytest.raises(AnalysisException) as caught:
            write(frame, mode, topic=topic)
        assert caught.value.getCondition() == "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"


def test_a_failed_write_can_be_repeated_without_loss(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    """At least once: local tasks are not retried, so the user repeats the write."""
    topic = make_topic()
    frame = spark.range(0, 20_000, 1, 1).selectExpr("cast(if(id = 15000, raise_error('half-way'), id) as string) value")
    with pytest.raises(Exception, match="half-way"):
        write(frame, topic=topic, kafka_batch_size="1000")
    written = [int(each.value or b"") for each in read(topic)]
    assert written == list(range(len(written)))
    write(spark.range(0, 20_000, 1, 1).selectExpr("cast(id as string) value"), topic=topic)
    assert {int(each.value or b"") for each in read(topic)} == set(range(20_000))


def test_a_user_thread_needs_an_active_session(
    spark: SparkSession, write: Callable[..., None], read: Callable[[str], list[Consumed]], make_topic: MakeTopic
) -> None:
    """Spark resolves a Python sink in the thread's active session; docs/sink.md explains how a thread gets one."""
    topic = make_topic()
    frame = spark.range(1).selectExpr("'v' AS value")
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            thread.submit(write, frame, topic=topic).result()
        thread.submit(spark.createDataFrame, [], "n int").result()
        thread.submit(write, frame, topic=topic).result()
    assert [each.value for each in read(topic)] == [b"v"]
