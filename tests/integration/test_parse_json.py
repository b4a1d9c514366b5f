"""The VARIANT decoder against Spark's ``parse_json``, and against its ``from_json`` for a VARIANT within a struct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import col, from_json, try_parse_json
from pyspark.sql.types import StructType, VariantVal
from tests.integration.parse_json_cases import DIFFERENCES, STRUCT_DIFFERENCES, STRUCT_SCHEMA, STRUCT_VALUES, VALUES

from pyspark_kafka_direct.options.payload_settings import DEFAULT_CORRUPT_RECORD
from pyspark_kafka_direct.payloads.json.json_values import HALF_PAIR, JsonDecoder
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


def read_by_spark(spark: SparkSession, values: Sequence[bytes], read: Column) -> tuple[list[Any], DataType]:
    rows = [(number, bytearray(value)) for number, value in enumerate(values)]
    frame = spark.createDataFrame(rows, "number int, value binary").coalesce(1).select("number", read.alias("read"))
    return [row.read for row in sorted(frame.collect(), key=lambda row: row.number)], frame.schema["read"].dataType


def plain(value: Any) -> Any:
    """Return a value of Spark as PyArrow returns it."""
    if isinstance(value, VariantVal):
        return {"value": bytes(value.value), "metadata": bytes(value.metadata)}
    if isinstance(value, dict):
        return {name: plain(field) for name, field in value.items()}
    return [plain(element) for element in value] if isinstance(value, list) else value


def unlike_older_spark(decoded: DecodedValues, values: Sequence[bytes]) -> set[bytes]:
    """Values that Spark before 4.2 may read in another way: halves of surrogate pairs, and VARIANTs over 16 MiB."""
    assert decoded.malformed is not None
    reasons = zip(values, decoded.malformed.reasons.to_pylist(), strict=True)
    return {value for value, reason in reasons if reason == HALF_PAIR or len(value) > 16 << 20}


@pytest.fixture(scope="module")
def variants(spark: SparkSession) -> list[Any]:
    return [plain(variant) for variant in read_by_spark(spark, VALUES, try_parse_json(col("value").cast("string")))[0]]


def test_variants_are_those_of_parse_json(variants: list[Any]) -> None:
    decoded = JsonDecoder(None, DEFAULT_CORRUPT_RECORD).decode(pa.array(VALUES, pa.binary()))
    assert_differing(VALUES, variants, decoded, DIFFERENCES)
    assert decoded.malformed is not None
    assert decoded.malformed.reasons.is_valid().equals(decoded.values.is_null())


def test_variants_in_structs_are_those_of_from_json(spark: SparkSession) -> None:
    read = from_json(col("value").cast("string"), STRUCT_SCHEMA)
    structs, data_type = read_by_spark(spark, STRUCT_VALUES, read)
    assert isinstance(data_type, StructType)
    decoder = JsonDecoder(arrow_schema_in_utc(data_type), DEFAULT_CORRUPT_RECORD)
    decoded = decoder.decode(pa.array(STRUCT_VALUES, pa.binary()))
    decoded.values.validate(full=True)
    expected = [plain(struct and struct.asDict(True)) for struct in structs]
    assert_differing(STRUCT_VALUES, expected, decoded, STRUCT_DIFFERENCES)


def assert_differing(
    values: Sequence[bytes], expected: list[Any], decoded: DecodedValues, differences: Mapping[bytes, str]
) -> None:
    """Assert that these values, and only these, have other results than Spark's."""
    pairs = zip(values, expected, decoded.values.to_pylist(), strict=True)
    differing = {value: (spark, ours) for value, spark, ours in pairs if repr(spark) != repr(ours)}
    known = {*differences}
    if not spark_features().has_read_limits:  # before 4.2
        known |= unlike_older_spark(decoded, values)
    assert {value: pair for value, pair in differing.items() if value not in known} == {}
    assert differences.keys() - differing.keys() == set()
