"""``valueFormat=module:factory``: a decoder of the user in batches, streams, RDDs and continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct import OptionError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.integration.stream_queries import Stream
    from tests.integration.workbench import Workbench

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc


class Csv:
    @staticmethod
    def of_two(data_type):
        if data_type != pa.struct({"name": pa.string(), "n": pa.int32()}):
            raise TypeError(f"this decoder returns no {data_type}")

        def decode(values):
            parts = pc.split_pattern(values.cast(pa.string()), ",", max_splits=1)
            name, number = pc.list_element(parts, 0), pc.list_element(parts, 1).cast(pa.int32())
            return pa.StructArray.from_arrays([name, number], fields=list(data_type), mask=values.is_null())

        return decode


def reversed_text(data_type):
    return lambda values: pc.binary_reverse(values).cast(data_type)


def too_short(data_type):
    return lambda values: pa.nulls(len(values) - 1, data_type)
"""
VALUES = [b"one,1", None, b"two,2"]
ROWS = [("one", 1), None, ("two", 2)]
CSV: Any = {"valueFormat": "payload_decoders:Csv.of_two", "valueSchema": "name string, n int"}


@pytest.fixture
def decoders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Install the module on the executors; ``conftest.py`` allows its functions."""
    file: Path = tmp_path_factory.mktemp("decoders") / "payload_decoders.py"
    file.write_text(MODULE)
    spark.sparkContext.addPyFile(str(file))


@pytest.fixture
def topic(bench: Workbench) -> str:
    topic = bench.make_topic()
    bench.write(topic, VALUES)
    return topic


@pytest.mark.smoke
@pytest.mark.usefixtures("decoders")
def test_values_of_a_batch_are_decoded(spark: SparkSession, bench: Workbench, topic: str) -> None:
    reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", bench.bootstrap_servers)
    frame = reader.option("subscribe", topic).options(**CSV).load().orderBy("offset")
    assert frame.schema["value"].dataType.simpleString() == "struct<name:string,n:int>"
    assert [row.value and tuple(row.value) for row in frame.collect()] == ROWS
    reader = reader.option("valueFormat", "payload_decoders:reversed_text")
    assert [row.value for row in reader.schema("value string").load().collect()] == ["1,eno", None, "2,owt"]


@pytest.mark.usefixtures("decoders")
def test_values_of_a_stream_are_decoded(stream: Callable[..., Stream], topic: str) -> None:
    query = stream(subscribe=topic, startingOffsets="earliest", **CSV)
    query.run(query.load().where("value.n > 0").selectExpr("CAST(value.name AS binary) AS value"))
    assert [value for batch in query.batches.values() for value in batch] == ["one", "two"]


@pytest.mark.usefixtures("decoders")
def test_values_of_an_rdd_are_decoded(spark: SparkSession, bench: Workbench, topic: str) -> None:
    params = {"bootstrap.servers": bench.bootstrap_servers}
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 0, 3)])
    (batch,) = rdd.arrow(["value", "offset"], **CSV).collect()
    assert [row and tuple(row.values()) for row in batch.column("value").to_pylist()] == ROWS
    with pytest.raises(OptionError, match=r"needs the type that its decoder returns.*valueSchema"):
        rdd.arrow(["value"], valueFormat="payload_decoders:Csv.of_two")
    (batch,) = rdd.arrow(["value"], valueFormat="payload_decoders:reversed_text", valueSchema="string").collect()
    assert batch.column(0).to_pylist() == ["1,eno", None, "2,owt"]


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("payload_decoders:too_short", r"payload_decoders:too_short: .* got 2 rows for 3 values; return null for"),
        ("missing_decoders:make", r"cannot be imported on .* importable on every executor \(install it there"),
        ("payload_decoders:none", "the module payload_decoders has no none"),
        (
            "other:make",
            r"valueFormat: 'other:make' is not allowed.*PYSPARK_KAFKA_DIRECT_PAYLOAD_DECODERS of the driver",
        ),
    ],
)
@pytest.mark.usefixtures("decoders")
def test_a_decoder_that_cannot_be_used_fails_the_query(
    spark: SparkSession, bench: Workbench, topic: str, decoder: str, message: str
) -> None:
    reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", bench.bootstrap_servers)
    with pytest.raises(Exception, match=message) as caught:
        reader.options(subscribe=topic, valueFormat=decoder, valueSchema="string").load().collect()
    assert isinstance(error_of(caught.value), OptionError)
