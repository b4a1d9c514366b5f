"""``df.writeStream.format("kafka-direct")``: topics, output modes, progress, errors. Read back by kafka-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from tests.integration.exactly_once import package_error_line
from tests.integration.read_back import consume, values
from tests.integration.stream_queries import DEADLINE
from tests.integration.waiting import wait_until

import pyspark_kafka_direct
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def source(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Callable[..., None]) -> Source:
    return Source(spark, kafka, make_topic(2), put)


class Source:
    """A stream of the numbers passed to ``put``, as strings in the column ``value``."""

    def __init__(self, spark: SparkSession, kafka: EmbeddedKafka, topic: str, put: Callable[..., None]) -> None:
        self._topic, self._put = topic, put
        reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        loaded = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        self.frame = loaded.selectExpr("cast(value as string) value")

    def put(self, *numbers: int) -> None:
        self._put(self._topic, numbers)


@pytest.fixture
def run(kafka: EmbeddedKafka, tmp_path: Path) -> Callable[..., StreamingQuery]:
    """Runs a query with ``availableNow``: ``run(frame, topic="t")``; the same ``name`` resumes its checkpoint."""

    def run(frame: DataFrame, mode: str = "append", name: str = "query", /, **options: str) -> StreamingQuery:
        given = {each.replace("_", "."): text for each, text in options.items()}
        writer = frame.writeStream.format("kafka-direct").outputMode(mode)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).options(**given)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(DEADLINE), "the query did not end"
        return query

    return run


def error_of_run(run: Callable[..., Any], *given: Any, **options: str) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(*given, **options)
    return package_error_line(caught.value)


@pytest.mark.smoke
def test_the_topic_may_be_a_column_or_an_option_which_takes_precedence(
    source: Source, run: Callable[..., StreamingQuery], kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    column, option, both = make_topic(), make_topic(), make_topic()
    for numbers in ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]):
        source.put(*numbers)
        run(source.frame.withColumn("topic", f.lit(column)), "append", "column")
        run(source.frame, "append", "option", topic=option)
        run(source.frame.withColumn("topic", f.lit("foo")), "append", "both", topic=both)
    for topic in (column, option, both):
        assert values(kafka.bootstrap_servers, topic) == sorted(map(str, range(1, 11)))


def test_the_progress_counts_the_rows(
    source: Source, run: Callable[..., StreamingQuery], make_topic: MakeTopic
) -> None:
    source.put(1, 2, 3)
    query = run(source.frame, topic=make_topic())
    assert [progress["sink"]["numOutputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [3]


def test_complete_writes_the_whole_result_again(
    source: Source, run: Callable[..., StreamingQuery], kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    counts = source.frame.groupBy("value").count().selectExpr("value key", "cast(count as string) value")
    source.put(1, 1, 2)
    run(counts, "complete", topic=topic)
    source.put(2)
    run(counts, "complete", topic=topic)
    found = sorted((each.key, each.value) for each in consume(kafka.bootstrap_servers, topic))
    assert found == [(b"1", b"2"), (b"1", b"2"), (b"2", b"1"), (b"2", b"2")]


def test_update_mode_is_rejected_by_spark_and_works_with_foreach_batch(
    source: Source, run: Callable[..., StreamingQuery], kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    counts = source.frame.groupBy("value").count().selectExpr("value key", "cast(count as string) value")
    source.put(1, 1, 2)
    assert "kafka-direct does not support Update mode" in error_of_run(run, counts, "update", topic=topic)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "stampBatch": "true"}
    to_kafka = pyspark_kafka_direct.foreach_batch_writer(options)
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "update"))
    for number in range(2):
        source.put(2)
        query = writer.foreachBatch(to_kafka).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)
        written = {(each.key, each.value) for each in consume(kafka.bootstrap_servers, topic)}
        assert written == {(b"1", b"2"), (b"2", b"2"), *([(b"2", b"3")] if number else [])}
    stamps = [dict(each.headers) for each in consume(kafka.bootstrap_servers, topic)]
    assert {stamp["spark.query.id"] for stamp in stamps} == {str(query.id).encode()}
    assert {stamp["spark.batch.id"] for stamp in stamps} == {b"0", b"1"}


def test_foreach_batch_writer_validates_its_options_at_once() -> None:
    with pytest.raises(pyspark_kafka_direct.OptionError, match=r"kafka\.acks must be"):
        pyspark_kafka_direct.foreach_batch_writer({"kafka.bootstrap.servers": "b:1", "kafka.acks": "2"})


def test_a_stamp_identifies_query_and_batch(
    source: Source, run: Callable[..., StreamingQuery], kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    for number in range(2):
        source.put(number)
        query = run(source.frame.coalesce(1), topic=topic, stampBatch="true")
    wanted = [
        [
            ("spark.query.id", str(query.id).encode()),
            ("spark.batch.id", b"%d" % number),
            ("spark.partition.id", b"0"),
            ("spark.attempt", b"0"),
        ]
        for number in range(2)
    ]
    assert [each.headers for each in consume(kafka.bootstrap_servers, topic)] == wanted


def test_a_rerun_batch_is_written_again(
    source: Source, run: Callable[..., StreamingQuery], kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """At least once: batches that are missing in the commit log are written again, and none is skipped."""
    topic = make_topic()
    source.put(1, 2)
    run(source.frame, topic=topic)
    for file in (tmp_path / "query" / "commits").glob("*0*"):
        file.unlink()
    (tmp_path / "query" / "commits" / ".0.crc").unlink(missing_ok=True)
    source.put(3)
    run(source.frame, topic=topic)
    assert values(kafka.bootstrap_servers, topic) == ["1", "1", "2", "2", "3"]


def test_written_records_are_reported(
    spark: SparkSession,
    source: Source,
    run: Callable[..., StreamingQuery],
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
) -> None:
    """Records, bytes and offsets of each partition, for streams, foreachBatch and batches (SPARK-24647)."""
    monitor = pyspark_kafka_direct.enable(spark)
    topic = make_topic(2)
    for number in range(2):
        source.put(*range(10))
        query = run(source.frame.selectExpr("value", "cast(value % 2 as int) as partition"), topic=topic)
        written = monitor.written(query)
        assert written is not None
        assert (written.query_id, written.batch_id, written.records) == (str(query.id), number, 10)
        offsets = {each.partition: (part.first_offset, part.next_offset) for each, part in written.partitions.items()}
        assert offsets == {0: (5 * number, 5 * number + 5), 1: (5 * number, 5 * number + 5)}
        assert written.bytes > 100
    wait_until(lambda: any(each.query == str(query.id) for each in monitor.sink_totals), "the sums")
    wait_until(lambda: [each.records for each in monitor.sink_totals if each.topic == topic] == [20], "all of them")
    writer = spark.range(7).selectExpr("cast(id as string) value", "0 partition").write.format("kafka-direct")
    writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", topic).mode("append").save()
    job = monitor.written()
    assert job is not None
    assert (job.query_id, job.batch_id, job.records) == (None, None, 7)
    ((place, part),) = job.partitions.items()
    assert (place, part.first_offset, part.next_offset) == (TopicPartition(topic, 0), 10, 17)


def test_invalid_writes_fail_the_query(
    source: Source, run: Callable[..., StreamingQuery], make_topic: MakeTopic
) -> None:
    """One of each kind; ``test_sink.py`` tries each column and option in a batch."""
    topic = make_topic()
    source.put(1)

    def error_of(*columns: str, **options: str) -> str:
        return error_of_run(run, source.frame.selectExpr(*columns), **options)

    assert error_of("value").startswith("ColumnError: topic option required when no 'topic' attribute is present")
    assert "key must be a(n) string or binary" in error_of("1 key", "value", topic=topic)
    assert error_of("value", topic="missing-topic").startswith(
        "TopicNotFoundError: Topic 'missing-topic' does not exist"
    )
    message = error_of("value", topic=topic, kafka_value_serializer="foo")
    assert message.startswith("OptionError: the option kafka.value.serializer cannot be used here")
