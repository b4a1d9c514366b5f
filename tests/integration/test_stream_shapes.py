"""Streaming queries of many kinds: joins, unions, windows, transactions, columns, tasks, progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as f
from tests.integration.stream_queries import DEADLINE
from tests.integration.topics import wait_until_stable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka


def test_one_topic_twice_joined_with_itself(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, spark: SparkSession
) -> None:
    topic = make_topic(2)
    put(topic, range(4))
    query = stream(subscribe=topic, startingOffsets="earliest")
    left = query.load().select(f.col("value").cast("string").cast("int").alias("a"))
    right = query.load().select(f.col("value").cast("string").cast("int").alias("b"))
    joined = left.join(right, f.expr("b = a * 2")).select(f.expr("cast(a * 100 + b as string)").cast("binary"))
    query.run(joined.toDF("value"))
    assert query.values == ["0", "102"]
    put(topic, range(4, 7))
    query.run(joined.toDF("value"))
    assert query.values == ["0", "102", "204", "306"]


def test_one_frame_joined_with_itself(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    """A different plan than for two frames: Spark has one source twice."""
    topic = make_topic(2)
    put(topic, range(4))
    query = stream(subscribe=topic, startingOffsets="earliest")
    numbers = query.load().select(f.col("value").cast("string").cast("int").alias("number"))
    joined = numbers.alias("a").join(numbers.alias("b"), f.expr("b.number = a.number * 2"))
    pairs = joined.select(f.expr("cast(a.number * 100 + b.number as string)").cast("binary"))
    query.run(pairs.toDF("value"))
    assert query.values == ["0", "102"]
    put(topic, range(4, 7))
    query.run(pairs.toDF("value"))
    assert query.values == ["0", "102", "204", "306"]


def test_a_frame_joined_with_itself_reads_its_topic_once(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    """Spark reuses the exchange of one side for the other, as with its own source."""
    topic = make_topic(2)
    put(topic, range(4))
    query = stream(subscribe=topic, startingOffsets="earliest")
    values = query.load().selectExpr("cast(value AS STRING) AS value", "cast(value AS STRING) AS key")
    writer = values.join(values, "key").writeStream.format("noop").trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    assert running.awaitTermination(DEADLINE)
    assert sum(progress["numInputRows"] for progress in running.recentProgress) == 4
    assert {len(progress["sources"]) for progress in running.recentProgress} == {1}


SPARK_2_4 = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1547000000000,"conf":{"spark.sql.shuffle.partitions":"2",'
    '"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",'
    '"spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion":"2",'
    '"spark.sql.streaming.multipleWatermarkPolicy":"min"}}'
)
SPARK_2_1 = '{"batchWatermarkMs":0,"batchTimestampMs":1480981499528}'


@pytest.mark.parametrize(
    ("metadata", "finished"),
    [
        pytest.param(SPARK_2_4, True, id="2.4"),
        pytest.param(SPARK_2_4, False, id="2.4, the last batch is not finished"),
        pytest.param(SPARK_2_1, True, id="2.1"),
    ],
)
def test_a_checkpoint_of_spark_2(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, metadata: str, finished: bool
) -> None:
    topic = make_topic()
    put(topic, range(5))
    query = stream(subscribe=topic)
    files = {"metadata": '{"id":"dddc5e7f-1e71-454c-8362-de184444fb5a"}', "commits/0": "v1\n{}"}
    files["sources/0/0"] = f'\0v1\n{{"{topic}":{{"0":0}}}}'
    files |= {f"offsets/{batch}": f'v1\n{metadata}\n{{"{topic}":{{"0":{batch + 1}}}}}' for batch in (0, 1)}
    files |= {"commits/1": "v1\n{}"} if finished else {}
    for name, text in files.items():
        file = query.folder / "checkpoint" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    query.run()
    assert query.batches == {2: ["2", "3", "4"]} | ({} if finished else {1: ["1"]})


def test_two_queries_in_one_session(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    both, other = make_topic(2), make_topic(3)
    put(both, range(10))
    put(other, range(100, 110))
    one = stream(subscribe=both, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    two = stream(subscribe=f"{other},{both}", startingOffsets="earliest")
    for query in (one, two):
        query.start()
    one.wait_for(range(10))
    two.wait_for([*range(10), *range(100, 110)])
    one.stop()
    put(both, range(10, 13))
    put(other, [110])
    two.wait_for([*range(13), *range(100, 111)])
    one.start()
    one.wait_for(range(13))
    for query in (one, two):
        query.stop()


def test_a_long_topic_continues_when_a_short_one_is_exhausted(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    short, long = make_topic(), make_topic()
    put(short, range(100, 105))
    put(long, range(20))
    query = stream(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    both = query.load(subscribe=short).union(query.load(subscribe=long))
    assert query.run(both) == [10, 5, 5, 5]
    put(long, range(20, 25))
    assert query.run(both) == [5]
    assert query.values == sorted(map(str, [*range(25), *range(100, 105)]))


def test_a_window_with_a_watermark(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic()
    put(topic, ["1"], timestamp=1_700_000_003_000)
    put(topic, ["2"], timestamp=1_700_000_060_000)
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    windows = query.load().withWatermark("timestamp", "10 seconds").groupBy(f.window("timestamp", "5 seconds"))
    counted = windows.count().selectExpr("cast(concat(cast(window.start as bigint), ':', count) as binary) as value")
    query.run(counted)
    assert query.values == ["1700000000:1"]


def test_a_batch_read_twice_in_foreach_batch(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic(2)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    twice: list[tuple[int, int]] = []

    def read(batch: DataFrame, number: int) -> None:
        twice.append((batch.count(), batch.select("offset").distinct().count() + batch.count()))

    writer = query.load().writeStream.foreachBatch(read).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    assert running.awaitTermination(DEADLINE)
    assert twice == [(4, 6), (4, 6), (2, 3)]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(stream: Callable[..., Stream], make_topic: MakeTopic, kafka: EmbeddedKafka, level: str) -> None:
    topic = make_topic()
    # By default Kafka aborts transactions that are open for a minute, which may happen on a busy machine.
    patient = {"transactional.id": f"{topic}-{level}", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **patient})
    producer.init_transactions()

    def write(values: range, outcome: str) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value).encode())
        assert producer.flush(300) == 0
        if outcome == "commit":
            producer.commit_transaction(600)
        elif outcome == "abort":
            producer.abort_transaction(600)

    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3", kafka_isolation_level=level)
    write(range(5), "open")
    committed = level == "read_committed"
    assert query.run() == ([0] if committed else [3, 2]), "an open transaction"
    producer.commit_transaction(600)
    wait_until_stable(kafka.bootstrap_servers, topic, 6)
    sizes = query.run()
    assert sizes == ([3, 2] if committed else [0]), "offset 5 is the control record"
    write(range(6, 12), "abort")
    wait_until_stable(kafka.bootstrap_servers, topic, 13)
    assert query.run() == ([0, 0, 0] if committed else [3, 3, 0]), "aborted records are empty batches"
    write(range(20, 22), "commit")
    wait_until_stable(kafka.bootstrap_servers, topic, 16)
    query.run()
    expected = [*range(5), 20, 21] if committed else [*range(5), *range(6, 12), 20, 21]
    assert query.values == sorted(map(str, expected))


def test_headers_and_a_subset_of_the_columns(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, spark: SparkSession
) -> None:
    topic = make_topic()
    put(topic, [1], headers=[("h", b"x")])
    put(topic, [2])
    query = stream(subscribe=topic, startingOffsets="earliest", includeHeaders="true")
    full = query.load()
    assert full.columns[-1] == "headers"
    query.run(full.selectExpr("cast(concat(string(value), '-', coalesce(headers[0].key, 'null')) as binary) as value"))
    assert query.values == ["1-h", "2-null"]

    subset = stream(subscribe=topic, startingOffsets="earliest")
    reader = spark.readStream.format("kafka-direct").schema("value binary, offset long")
    df = reader.option("kafka.bootstrap.servers", subset.servers).options(**subset.options).load()
    assert df.columns == ["value", "offset"]
    subset.run(df)
    assert subset.values == ["1", "2"]


def test_more_tasks_than_partitions(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic(3)
    put(topic, range(10), partition=0)
    put(topic, range(10, 20), partition=1)
    put(topic, [20], partition=2)
    query = stream(subscribe=topic, startingOffsets="earliest", minPartitions="6")
    tasks: list[int] = []
    df = query.load()

    def read(batch: DataFrame, number: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        query._collect(batch, number)

    writer = df.writeStream.foreachBatch(read).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(query.folder / "checkpoint")).start().awaitTermination(DEADLINE)
    assert tasks[0] >= 6
    assert query.values == sorted(map(str, range(21)))


def test_the_progress_report_has_row_counts_and_latest_offsets(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(11)
    put(topic, range(22))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="11")
    query.run()
    assert query.query is not None
    batches = [progress for progress in query.query.recentProgress if progress["numInputRows"]]
    assert sum(progress["numInputRows"] for progress in batches) == 22
    source = batches[0]["sources"][0]
    everything = {topic: {str(number): 2 for number in range(11)}}
    assert json.loads(source["latestOffset"]) == everything
    assert json.loads(source["endOffset"]) != everything
    assert list(json.loads(source["endOffset"])[topic]) == [str(number) for number in range(11)]


def test_an_idle_query_runs_no_batches(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topics = [make_topic(12), make_topic(2)]
    put(topics[0], range(3))
    query = stream(subscribe=",".join(reversed(topics)), startingOffsets="earliest")
    running = query.start()
    query.wait_for(range(3))
    query.wait(lambda: running.status["message"] == "Waiting for data to arrive", "idleness")
    put(topics[1], [3])
    query.wait_for(range(4))
    query.wait(lambda: not running.status["isTriggerActive"], "idleness")
    query.stop()
    assert query.committed == 1
