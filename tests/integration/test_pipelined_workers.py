"""``spark.python.udf.pipelined.enabled`` of Spark 4.3: a thread of the worker reads the next batch of its input."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING

import pyspark.worker
import pytest
from pyarrow import RecordBatch
from tests.integration.exactly_once import PARTITIONS, Pipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.smoke

# Spark before 4.3 ignores the setting.
SUPPORTED = "SPARK_PIPELINED_UDF" in inspect.getsource(pyspark.worker)


@pytest.fixture(scope="module")
def pipelined_spark(make_spark: SparkSessions) -> SparkSession:
    # Small Arrow batches, so that a task has many of them.
    settings = {"spark.python.udf.pipelined.enabled": "true", "spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
    return make_spark(settings)


@pytest.fixture
def pipe(pipelined_spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Pipe:
    topics = make_topic(PARTITIONS), make_topic(PARTITIONS)
    return Pipe(pipelined_spark, kafka.bootstrap_servers, *topics, tmp_path / "checkpoint")


def test_workers_are_pipelined_if_spark_supports_it(pipelined_spark: SparkSession) -> None:
    def variable(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            value = os.environ.get("SPARK_PIPELINED_UDF", "")
            yield RecordBatch.from_pylist([{"value": value}] * batch.num_rows)

    rows = pipelined_spark.range(1).mapInArrow(variable, "value string").collect()
    assert [row.value for row in rows] == ["1" if SUPPORTED else ""]


def test_an_exactly_once_query_copies_each_record_once(pipe: Pipe) -> None:
    for first in (0, 2000):
        pipe.produce_numbers(*range(first, first + 2000))
        pipe.run()
    pipe.check(range(4000))


def test_a_limit_ends_the_query_early_and_the_next_one_reads_everything(pipe: Pipe) -> None:
    pipe.produce_numbers(*range(4000))
    reader = pipe.spark.read.format("kafka-direct").option("kafka.bootstrap.servers", pipe.servers)
    frame = reader.option("subscribe", pipe.source).load().selectExpr("cast(cast(value as string) as int) value")
    assert len(frame.limit(10).collect()) == 10
    assert sorted(row.value for row in frame.collect()) == list(range(4000))
