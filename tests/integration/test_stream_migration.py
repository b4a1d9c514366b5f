"""Change the format name, keep the checkpoint: between Spark's own ``kafka`` source and ``kafka-direct``, both ways.

The real JVM connector takes part, so its jars are fetched once (3 MB and what they need).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from tests.integration.stream_queries import Stream, produce

from pyspark_kafka_direct.broker._jars import jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.conftest import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # 4.2.0's is not published
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)

JVM, DIRECT = "kafka", "kafka-direct"


@pytest.fixture(scope="module")
def session(make_spark: SparkSessions) -> Iterator[SparkSession]:
    yield make_spark(jars=jars(CONNECTOR, transitive=False))
    make_spark.stop_jvm()


@pytest.mark.parametrize("formats", [[JVM, DIRECT, JVM, DIRECT], [DIRECT, JVM, DIRECT, JVM]])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_checkpoint_moves_both_ways(
    session: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    formats: list[str],
    start: str,
) -> None:
    topic = make_topic(12)  # enough for partitions that sort differently as texts
    numbers = itertools.count()
    written: list[int] = []

    def put(count: int) -> None:
        values = list(itertools.islice(numbers, count))
        produce(kafka.bootstrap_servers, topic, values)
        written.extend(values)

    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "maxOffsetsPerTrigger": "30"})
    stream.options["startingOffsets"] = start
    if start == "earliest":
        put(50)
    for turn in formats:
        stream.format = turn
        stream.run()
        assert stream.values == sorted(map(str, written)), f"after {turn}"
        put(40)
    stream.format = formats[0]
    stream.run()
    assert stream.values == sorted(map(str, written))


@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), (DIRECT, JVM)])
def test_a_batch_that_was_planned_and_not_finished_is_read_by_the_other_source(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str, second: str
) -> None:
    topic = make_topic(3)
    produce(kafka.bootstrap_servers, topic, range(30))
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
    stream.options["maxOffsetsPerTrigger"] = "15"
    stream.format = first
    stream.run()
    last = stream.committed
    before = stream.batches.pop(last)
    stream.undo_commit()
    stream.format = second
    stream.run()
    assert stream.batches[last] == before
    assert stream.values == sorted(map(str, range(30)))


@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), (DIRECT, JVM)])
def test_a_stateful_query_keeps_its_state(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str, second: str
) -> None:
    topic = make_topic(2)
    counts: dict[str, int] = {}

    def counted(stream: Stream) -> DataFrame:
        return stream.load().groupBy(f.col("value").cast("string").alias("word")).count()

    def collect(batch: DataFrame, number: int) -> None:
        counts.update({row.word: row["count"] for row in batch.collect()})

    def run(source: str) -> None:
        stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic}, source)
        stream.options["startingOffsets"] = "earliest"
        writer = counted(stream).writeStream.foreachBatch(collect).outputMode("update")
        query: Any = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    produce(kafka.bootstrap_servers, topic, ["a", "b", "a"])
    run(first)
    assert counts == {"a": 2, "b": 1}
    produce(kafka.bootstrap_servers, topic, ["a", "c"])
    run(second)
    assert counts == {"a": 3, "b": 1, "c": 1}
    produce(kafka.bootstrap_servers, topic, ["b", "b"])
    run(first)
    assert counts == {"a": 3, "b": 3, "c": 1}
