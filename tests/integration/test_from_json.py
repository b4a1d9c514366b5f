"""The JSON decoder against Spark's ``from_json`` on the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import col, from_json
from pyspark.sql.types import StructType
from tests.integration.from_json_cases import DIFFERENCES, SCHEMA, VALUES

from pyspark_kafka_direct import MalformedPayloadError, error_of, functions
from pyspark_kafka_direct.options.payload_settings import DEFAULT_CORRUPT_RECORD
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> tuple[pa.Schema, list[dict[str, Any] | None]]:
    """The schema, and what Spark reads."""
    rows = [(number, bytearray(value)) for number, value in enumerate(VALUES)]
    frame = spark.createDataFrame(rows, "number int, value binary").coalesce(1)
    read = frame.select("number", from_json(col("value").cast("string"), SCHEMA).alias("struct"))
    structs = [row.struct and row.struct.asDict(True) for row in sorted(read.collect(), key=lambda row: row.number)]
    data_type = read.schema["struct"].dataType
    assert isinstance(data_type, StructType)
    return arrow_schema_in_utc(data_type), structs


def test_the_decoder_reads_what_spark_reads(expected: tuple[pa.Schema, list[dict[str, Any] | None]]) -> None:
    schema, structs = expected
    decoded = JsonDecoder(schema, DEFAULT_CORRUPT_RECORD).decode(pa.array(VALUES, pa.binary()))
    pairs = list(zip(VALUES, structs, decoded.values.to_pylist(), strict=True))
    differing = {value: (spark, ours) for value, spark, ours in pairs if repr(spark) != repr(ours)}  # NaN is not itself
    assert {value: found for value, found in differing.items() if value not in DIFFERENCES} == {}
    assert DIFFERENCES.keys() - differing.keys() == set()


def test_the_function_reads_what_spark_reads(
    spark: SparkSession, expected: tuple[pa.Schema, list[dict[str, Any] | None]]
) -> None:
    _, structs = expected
    rows = [(number, bytearray(value)) for number, value in enumerate(VALUES)]
    frame = spark.createDataFrame(rows, "number int, value binary").coalesce(1)
    text = col("value").cast("string")
    read = frame.select("number", functions.from_json("value", SCHEMA), functions.from_json(text, SCHEMA))
    assert read.columns[1] == "from_json(value)"
    for row in read.collect():
        value = VALUES[row.number]
        assert repr(row[1]) == repr(row[2])
        if value not in DIFFERENCES:
            assert repr(row[1] and row[1].asDict(True)) == repr(structs[row.number]), value


def test_the_function_fails_at_the_first_malformed_value(spark: SparkSession) -> None:
    frame = spark.createDataFrame([('{"i":1}',), ('{"i":',)], "value string").coalesce(1)
    read = frame.select(functions.from_json("value", "i int", {"mode": "failfast"}))
    with pytest.raises(
        Exception, match="A value cannot be decoded as JSON: the JSON is incomplete, at byte 5"
    ) as caught:
        read.collect()
    assert isinstance(error_of(caught.value), MalformedPayloadError)


def test_malformed_values_are_those_with_a_corrupt_record(
    expected: tuple[pa.Schema, list[dict[str, Any] | None]],
) -> None:
    schema, structs = expected
    decoded = JsonDecoder(schema, DEFAULT_CORRUPT_RECORD).decode(pa.array(VALUES, pa.binary()))
    assert decoded.malformed is not None
    for value, struct, reason in zip(VALUES, structs, decoded.malformed.reasons.to_pylist(), strict=True):
        if value not in DIFFERENCES:
            assert (reason is not None) == (struct is not None and struct[DEFAULT_CORRUPT_RECORD] is not None), value
