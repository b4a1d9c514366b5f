"""Actions that share the plan of one ``load()``: what they read, the warning about it, and the documented workarounds.

Spark keeps the plan of a Python data source for all actions on a DataFrame or view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.integration.sessions import setting
from tests.integration.stream_queries import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka

Load: TypeAlias = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, kafka: EmbeddedKafka) -> Load:
    def load(topic: str, session: SparkSession = spark, **options: str) -> DataFrame:
        reader = session.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return reader.options(subscribe=topic, **options).load()

    return load


@pytest.fixture(autouse=True)
def _collect_logs(spark: SparkSession) -> Iterator[None]:
    with setting(spark, "spark.sql.pyspark.worker.logging.enabled", "true"):
        yield


def warnings(spark: SparkSession, topic: str) -> list[str]:
    """Return the warnings about a kept plan of a topic, by tasks of a session."""
    logs = spark.tvf.python_worker_logs().select("level", "msg").collect()
    return [row.msg for row in logs if row.level == "WARNING" and row.msg.startswith(f"this action reads {topic} up")]


def test_a_second_action_reads_the_offsets_of_the_first_and_logs_it_once(
    spark: SparkSession, load: Load, make_topic: MakeTopic, put: Any
) -> None:
    topic, empty = make_topic(), make_topic()
    put(topic, range(3))
    df, nothing = load(topic), load(empty)
    assert (df.count(), nothing.count()) == (3, 0)
    assert warnings(spark, topic) == warnings(spark, empty) == []
    put(topic, [3])
    put(empty, [0])
    assert (df.count(), len(df.where("offset > 0").collect()), nothing.count()) == (3, 2, 0)
    assert len(warnings(spark, topic)) == len(warnings(spark, empty)) == 1
    assert (load(topic).count(), load(empty).count()) == (4, 1)


def test_one_action_reads_a_plan_several_times_without_a_warning(
    spark: SparkSession, load: Load, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """A self-join, a union, a sorted write, which samples its input first, and stages that adaptive execution adds."""
    topic, other = make_topic(2), make_topic(2)
    put(topic, range(20))
    put(other, range(20))
    df, join, sort = load(topic), load(other), load(other)
    with setting(spark, "spark.sql.adaptive.enabled", "true"):
        assert df.union(df).groupBy("partition").count().orderBy("partition").collect()[0]["count"] == 20
        keys = join.select("partition", "offset")
        assert join.join(keys, ["partition", "offset"]).repartition(3).count() == 20
        sort.selectExpr("offset").orderBy("offset").write.parquet(str(tmp_path / "sorted"))
    assert warnings(spark, topic) == warnings(spark, other) == []


def test_a_cached_frame_is_read_once(spark: SparkSession, load: Load, make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic()
    put(topic, range(3))
    df = load(topic).cache()
    try:
        assert [df.count(), len(df.collect()), df.count()] == [3, 3, 3]
        assert warnings(spark, topic) == []
    finally:
        df.unpersist()


def test_views_and_their_workaround(
    spark: SparkSession, kafka: EmbeddedKafka, load: Load, make_topic: MakeTopic, put: Any
) -> None:
    of_frame, of_sql = make_topic(), make_topic()
    create = (
        "CREATE OR REPLACE TEMPORARY VIEW kept_sql USING `kafka-direct` "
        f"OPTIONS (`kafka.bootstrap.servers` '{kafka.bootstrap_servers}', subscribe '{of_sql}')"
    )
    put(of_frame, range(3))
    put(of_sql, range(3))
    load(of_frame).createOrReplaceTempView("kept_frame")
    spark.sql(create)
    counts = {name: spark.table(name).count() for name in ("kept_frame", "kept_sql")}
    put(of_frame, [3])
    put(of_sql, [3])
    counts_later = {name: spark.sql(f"SELECT * FROM {name}").count() for name in counts}
    assert counts == counts_later == {"kept_frame": 3, "kept_sql": 3}
    assert len(warnings(spark, of_frame)) == len(warnings(spark, of_sql)) == 1
    load(of_frame).createOrReplaceTempView("kept_frame")
    spark.sql(create)
    assert {name: spark.table(name).count() for name in counts} == {"kept_frame": 4, "kept_sql": 4}


def test_foreach_batch_and_its_workaround(
    spark: SparkSession, stream: Callable[..., Stream], load: Load, make_topic: MakeTopic, put: Any
) -> None:
    topic, static = make_topic(), make_topic()
    put(topic, range(3))
    put(static, range(10))
    outer = load(static)
    counts: list[tuple[int, int, int]] = []

    def read(batch: DataFrame, number: int) -> None:
        put(static, [number])
        counts.append((batch.count() + len(batch.collect()), outer.count(), load(static, batch.sparkSession).count()))
        assert warnings(batch.sparkSession, topic) == [], "a micro-batch may be read several times"

    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    writer = query.load().writeStream.foreachBatch(read).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    assert running.awaitTermination(DEADLINE)
    assert counts == [(2, 11, 11), (2, 11, 12), (2, 11, 13)]
    assert len(warnings(spark, static)) == 1


def test_a_stream_static_join(stream: Callable[..., Stream], load: Load, make_topic: MakeTopic, put: Any) -> None:
    topic, static = make_topic(), make_topic()
    put(topic, [0, 0])
    put(static, [0])
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    joined = query.load().select("value").join(load(static).select("value"), "value")
    rows: list[int] = []
    logged: list[int] = []

    def read(batch: DataFrame, number: int) -> None:
        rows.append(batch.count())
        put(static, [0])
        logged.append(len(warnings(batch.sparkSession, static)))

    writer = joined.writeStream.foreachBatch(read).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    assert running.awaitTermination(DEADLINE)
    assert rows == [1, 1]
    assert logged == [0, 1]
