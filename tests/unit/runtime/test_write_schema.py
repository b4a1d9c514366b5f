"""Which columns of a frame are written: Spark's rules."""

from __future__ import annotations

import pyarrow as pa
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
from pyspark_kafka_direct.records import COLUMNS, arrow_schema
from pyspark_kafka_direct.runtime.write_schema import WriteSchema, arrow_write_schema, write_schema
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


class TestArrow:
    """Rows that never were a frame."""

    def test_all_columns_that_can_be_read(self) -> None:
        schema = arrow_schema(COLUMNS)
        assert arrow_write_schema(schema, None) == WriteSchema(
            value=1, key=0, topic=2, headers=7, partition=3, timestamp=5
        )
        assert arrow_write_schema(schema, "t").topic is None

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("value", pa.string()),
            ("value", pa.large_string()),
            ("key", pa.large_binary()),
            ("key", pa.binary(3)),
            ("partition", pa.int32()),
            ("timestamp", pa.float64()),
            ("timestamp", pa.timestamp("s")),
            ("timestamp", pa.timestamp("ns", "Europe/Berlin")),
            ("headers", pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))),
        ],
        ids=str,
    )
    def test_types_that_can_be_written(self, name: str, kind: pa.DataType) -> None:
        schema = pa.schema({"value": pa.binary()} | {name: kind})
        assert getattr(arrow_write_schema(schema, "t"), name) == schema.get_field_index(name)

    @pytest.mark.parametrize(
        ("name", "kind", "called"),
        [
            ("value", pa.int64(), "bigint"),
            ("value", pa.uint32(), "uint32"),
            ("value", pa.string_view(), "string_view"),
            ("key", pa.dictionary(pa.int32(), pa.string()), "dictionary<values=string, indices=int32, ordered=0>"),
            ("topic", pa.binary(), "binary"),
            ("partition", pa.int64(), "bigint"),
            ("timestamp", pa.int64(), "bigint"),
            ("headers", pa.map_(pa.string(), pa.binary()), "map<string,binary>"),
            (
                "headers",
                pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())])),
                "array<struct<k:string,v:binary>>",
            ),
        ],
        ids=str,
    )
    def test_others_are_refused_in_the_words_of_the_sink(self, name: str, kind: pa.DataType, called: str) -> None:
        with pytest.raises(ColumnError) as caught:
            arrow_write_schema(pa.schema({"value": pa.binary(), "topic": pa.string()} | {name: kind}), None)
        assert str(caught.value).startswith(f"{name} attribute unsupported type {called}. {name} must be a(n) ")

    def test_what_is_required(self) -> None:
        with pytest.raises(ColumnError, match="topic option required when no 'topic' attribute is present"):
            arrow_write_schema(pa.schema({"value": pa.binary()}), None)
        with pytest.raises(ColumnError, match="Required attribute 'value' not found among the columns key, more"):
            arrow_write_schema(pa.schema({"key": pa.binary(), "more": pa.uint8()}), "t")
        with pytest.raises(ColumnError, match="value attribute is there 2 times"):
            arrow_write_schema(pa.schema([("value", pa.binary()), ("value", pa.string())]), "t")

    def test_other_columns_may_be_of_any_type_and_name(self) -> None:
        schema = pa.schema([("x", pa.uint64()), ("x", pa.string_view()), ("Value", pa.binary())])
        assert arrow_write_schema(schema, "t") == WriteSchema(value=2)
