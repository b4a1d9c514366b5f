"""Which columns of a frame are written: Spark's rules."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.runtime.write_schema import WriteSchema, write_schema
from pyspark_kafka_direct.structured._schema import full_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refusal(schema: StructType, topic: str | None = None) -> str:
    with pytest.raises(ColumnError) as caught:
        write_schema(schema, topic)
    return str(caught.value)


def test_all_columns_in_any_order_beside_others() -> None:
    schema = frame(
        offset=LongType(),
        timestamp=TimestampType(),
        value=StringType(),
        more=MapType(StringType(), StringType()),
        topic=StringType(),
        headers=HEADERS,
        key=BinaryType(),
        partition=IntegerType(),
    )
    assert write_schema(schema, None) == WriteSchema(value=2, key=6, topic=4, headers=5, partition=7, timestamp=1)


def test_a_frame_that_was_read_can_be_written() -> None:
    found = write_schema(full_schema(include_headers=True), None)
    assert found == WriteSchema(value=1, key=0, topic=2, headers=7, partition=3, timestamp=5)


def test_the_option_comes_before_the_column() -> None:
    assert write_schema(frame(value=BinaryType(), topic=StringType()), "t") == WriteSchema(value=0)
    # As in Spark, the column is not even looked at.
    assert write_schema(frame(value=BinaryType(), topic=IntegerType()), "t") == WriteSchema(value=0)


def test_what_is_required() -> None:
    missing = refusal(frame(value=StringType()))
    assert missing.startswith("topic option required when no 'topic' attribute is present")
    missing = refusal(frame(topic=StringType(), body=StringType()))
    assert missing.startswith("Required attribute 'value' not found among the columns topic, body")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("topic", IntegerType(), "topic attribute unsupported type int. topic must be a(n) string"),
        ("topic", BinaryType(), "topic attribute unsupported type binary. topic must be a(n) string"),
        ("value", IntegerType(), "value attribute unsupported type int. value must be a(n) string or binary"),
        ("value", NullType(), "value attribute unsupported type void. value must be a(n) string or binary"),
        ("key", LongType(), "key attribute unsupported type bigint. key must be a(n) string or binary"),
        ("partition", StringType(), "partition attribute unsupported type string. partition must be a(n) int"),
        ("partition", LongType(), "partition attribute unsupported type bigint. partition must be a(n) int"),
        ("timestamp", LongType(), "timestamp attribute unsupported type bigint. timestamp must be a(n) double or"),
        ("timestamp", TimestampNTZType(), "timestamp attribute unsupported type timestamp_ntz."),
        ("headers", MapType(StringType(), BinaryType()), "headers attribute unsupported type map<string,binary>."),
        ("headers", ArrayType(StringType()), "headers must be a(n) array<struct<key:string,value:binary>>"),
        (
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())])),
            "headers attribute unsupported type array<struct<key:string,value:string>>.",
        ),
        (
            "headers",
            # Arrow goes by names: another spelling would give nulls.
            ArrayType(StructType([StructField("Key", StringType()), StructField("value", BinaryType())])),
            "headers attribute unsupported type array<struct<Key:string,value:binary>>.",
        ),
    ],
)
def test_wrong_types(name: str, kind: DataType, words: str) -> None:
    columns: dict[str, DataType] = {"topic": StringType(), "value": StringType(), name: kind}
    assert refusal(frame(**columns)).startswith(words) or words in refusal(frame(**columns))


def test_types_may_differ_in_nulls_and_collations() -> None:
    strict = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), False)])
    schema = frame(value=StringType("UNICODE_CI"), headers=ArrayType(strict, False), timestamp=DoubleType())
    assert write_schema(schema, "t") == WriteSchema(value=0, headers=1, timestamp=2)


def test_the_letter_case_of_columns() -> None:
    assert write_schema(frame(VALUE=StringType(), Topic=StringType()), None) == WriteSchema(value=0, topic=1)
    assert write_schema(frame(Value=StringType(), value=StringType()), "t") == WriteSchema(value=1)
    assert refusal(frame(Value=StringType(), VALUE=StringType()), "t").startswith("value attribute is there 2 times")


def test_other_columns_of_one_name_are_refused_before_spark_does() -> None:
    fields = [StructField(name, StringType()) for name in ("id", "value", "id", "ID")]
    assert refusal(StructType(fields), "t").startswith("Columns of the same name: id. Spark cannot hand them to Python")
    assert write_schema(StructType(fields[1:]), "t") == WriteSchema(value=0)
