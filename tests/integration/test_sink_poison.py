"""Rows that a schema does not allow, in every kind of write of Spark; continuous queries have their own test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.integration.exactly_once import PARTITIONS, Pipe
from tests.integration.transactional_batches import committed

from pyspark_kafka_direct import ColumnError, error_of, foreach_batch_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

SCHEMAS = {
    "avro": json.dumps({"type": "record", "name": "Number", "fields": [{"name": "n", "type": "int"}]}),
    "protobuf": 'syntax = "proto2"; message Number { required int32 n = 1; }',
}
NUMBER = "try_cast(value AS int)"
STRUCT = f"struct({NUMBER} AS n) AS value"


@pytest.fixture
def pipe(payload: str, spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Pipe:
    pipe = Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")
    pipe.options = {"valueFormat": payload, "valueSchema": SCHEMAS[payload]}
    return pipe


def written(pipe: Pipe) -> list[int]:
    """Return the numbers in the target. The last byte of a value has the number."""
    factor = 2 if pipe.options["valueFormat"] == "avro" else 1  # zigzag
    return sorted(value[-1] // factor for value in committed(pipe.servers, pipe.target, PARTITIONS))


def at_least_once(pipe: Pipe) -> dict[str, str]:
    return {"kafka.bootstrap.servers": pipe.servers, "topic": pipe.target, **pipe.options}


def stream_at_least_once(pipe: Pipe, frame: DataFrame) -> None:
    writer = frame.writeStream.format("kafka-direct").options(**at_least_once(pipe))
    query = writer.option("checkpointLocation", str(pipe.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(600)


def stream_exactly_once(pipe: Pipe, frame: DataFrame) -> None:
    pipe.run(frame)


def foreach_exactly_once(pipe: Pipe, frame: DataFrame) -> None:
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options()), frame=frame)


def check_error(pipe: Pipe, write: Callable[[], None]) -> None:
    format_name = pipe.options["valueFormat"].capitalize()
    message = (
        f"A row for topic {pipe.target} cannot be written as {format_name}: value.n is null.*Filter out such rows, "
        "or write with a schema that allows the value"
    )
    with pytest.raises(Exception, match=message) as raised:
        write()
    assert isinstance(error_of(raised.value), ColumnError)


@pytest.mark.parametrize(
    ("payload", "run"),
    [
        ("protobuf", stream_at_least_once),
        ("avro", stream_exactly_once),
        ("protobuf", foreach_exactly_once),
        pytest.param("avro", stream_at_least_once, marks=pytest.mark.soak),
        pytest.param("protobuf", stream_exactly_once, marks=pytest.mark.soak),
        pytest.param("avro", foreach_exactly_once, marks=pytest.mark.soak),
    ],
)
def test_a_stream_fails_and_can_continue_without_the_row(pipe: Pipe, run: Callable[[Pipe, DataFrame], None]) -> None:
    pipe.produce_numbers(1)
    run(pipe, pipe.frame().selectExpr(STRUCT))
    pipe.produce_numbers(2, "poison", 3)
    check_error(pipe, lambda: run(pipe, pipe.frame().selectExpr(STRUCT)))
    numbers = written(pipe)
    assert numbers[:1] == [1]
    if run is not stream_at_least_once:
        assert numbers == [1]
    run(pipe, pipe.frame().where(f"{NUMBER} IS NOT NULL").selectExpr(STRUCT))
    assert sorted(set(written(pipe))) == [1, 2, 3]
    if run is not stream_at_least_once:
        assert len(written(pipe)) == 3


@pytest.mark.parametrize("payload", SCHEMAS)
def test_a_batch_fails(pipe: Pipe) -> None:
    frame = pipe.spark.createDataFrame([("1",), ("poison",), ("2",)], "value string").repartition(3).selectExpr(STRUCT)
    writer = frame.write.format("kafka-direct").mode("append")
    check_error(pipe, writer.options(**pipe.sink_options()).save)
    assert written(pipe) == []  # exactly-once writes all rows or none
    writer = frame.write.format("kafka-direct").mode("append")
    check_error(pipe, writer.options(**at_least_once(pipe)).save)
    assert set(written(pipe)) <= {1, 2}
