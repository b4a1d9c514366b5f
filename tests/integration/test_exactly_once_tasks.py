"""Exactly-once writes with failing and speculative tasks; read back by librdkafka with read_committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from tests.integration.exactly_once import PARTITIONS, Pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

ROWS = 4000
ARROW_ROWS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
PAUSE = 4.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1",  # start with both hosts
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


@pytest.fixture
def new_pipe(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Callable[..., Pipe]:
    def make(spark: object, **options: str) -> Pipe:
        topics = make_topic(4), make_topic(PARTITIONS)
        return Pipe(spark, kafka.bootstrap_servers, *topics, tmp_path / "checkpoint", options)  # type: ignore[arg-type]

    return make


def write(frame: DataFrame, pipe: Pipe, **more: str) -> None:
    frame.write.format("kafka-direct").options(**pipe.sink_options(**more)).mode("append").save()


def hurt(frame: DataFrame, folder: Path, pause: float = 0) -> DataFrame:
    """Let every second task fail in the middle of its first attempt; each attempt leaves a file.

    With ``pause``, one task pauses instead, until its second attempt runs and for some seconds more. Only one pauses,
    because the second attempt needs a free slot. The function is nested because executors cannot import this module.
    """

    def some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task = f"{context.stageId()}-{context.partitionId()}"
        (folder / f"{task}-{context.attemptNumber()}").touch()
        for number, batch in enumerate(batches):
            if number == 2 and context.attemptNumber() == 0:
                if not pause and context.partitionId() % 2:
                    raise RuntimeError("half-way")
                if pause and context.partitionId() == 1:
                    deadline = time.monotonic() + 600
                    while not (folder / f"{task}-1").exists() and time.monotonic() < deadline:
                        time.sleep(0.05)
                    time.sleep(pause)
            yield batch

    return frame.mapInArrow(some, "value string")


def attempts(folder: Path) -> list[int]:
    return sorted(int(file.name.rsplit("-", 1)[1]) for file in folder.iterdir())


def test_tasks_that_fail_halfway_are_written_once(
    make_spark: SparkSessions, new_pipe: Callable[..., Pipe], tmp_path: Path
) -> None:
    spark = make_spark(ARROW_ROWS, master="local[2,4]")
    staging, tried = tmp_path / "staging", tmp_path / "tried"
    tried.mkdir()
    # With small record batches and a low threshold, half of the task's output is staged when it fails.
    pipe = new_pipe(spark, stagingLocation=str(staging), stagingThreshold="500", kafka_batch_size="400")
    numbers = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) value")
    write(hurt(numbers, tried), pipe)
    assert attempts(tried) == [0, 0, 0, 0, 1, 1]
    pipe.check(range(ROWS))
    assert [file.name for file in staging.rglob("*") if file.is_file()] == ["driver.probe"]

    pipe = new_pipe(spark, stagingLocation=str(staging), stagingThreshold="500", kafka_batch_size="400")
    pipe.produce_numbers(*range(ROWS))
    pipe.run(hurt(pipe.frame(), tried))
    pipe.check(range(ROWS))
    assert attempts(tried) == [0] * 8 + [1] * 4


@pytest.mark.spark_app
def test_speculative_tasks_are_written_once(
    make_spark: SparkSessions, standalone: str, new_pipe: Callable[..., Pipe], tmp_path: Path
) -> None:
    tried = tmp_path / "tried"
    tried.mkdir()
    # Two hosts, because Spark does not run the same task twice on one.
    spark = make_spark({**ARROW_ROWS, **SPECULATION}, master=standalone)
    options = {"stagingLocation": str(tmp_path / "staging"), "stagingThreshold": "500", "kafka_batch_size": "400"}
    pipe = new_pipe(spark, **options)
    numbers = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) value")
    numbers.mapInArrow(lambda batches: batches, "value string").count()  # both hosts start a Python worker
    write(hurt(numbers, tried, PAUSE), pipe)
    pipe.check(range(ROWS))
    speculated = attempts(tried).count(1)
    assert speculated > 0

    pipe = new_pipe(spark, **options)
    pipe.produce_numbers(*range(ROWS))
    pipe.run(hurt(pipe.frame(), tried, PAUSE))
    pipe.check(range(ROWS))
    assert attempts(tried).count(1) > speculated
