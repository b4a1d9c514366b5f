"""The columns of a frame that are written, by Spark's rules."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
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
    VariantType,
    YearMonthIntervalType,
)

from pyspark_kafka_direct.datasource.read_schema import kafka_schema
from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.write_schema import resolve_write_schema
from pyspark_kafka_direct.payloads.write_schema import WriteSchema
from pyspark_kafka_direct.payloads.write_schema import resolve_write_schema as resolve_arrow_write_schema
from pyspark_kafka_direct.records import COLUMNS, arrow_schema

NAMES = pa.dictionary(pa.int32(), pa.string())
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def error_message(schema: StructType, topic: str | None = None) -> str:
    with pytest.raises(ColumnError) as caught:
        resolve_write_schema(schema, topic)
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
    assert resolve_write_schema(schema, None) == WriteSchema(
        value=2, key=6, topic=4, headers=5, partition=7, timestamp=1
    )


def test_a_frame_that_was_read_can_be_written() -> None:
    found = resolve_write_schema(kafka_schema(include_headers=True), None)
    assert found == WriteSchema(value=1, key=0, topic=2, headers=7, partition=3, timestamp=5)


def test_the_option_overrides_the_column() -> None:
    assert resolve_write_schema(frame(value=BinaryType(), topic=StringType()), "t") == WriteSchema(value=0)
    # As in Spark, the type of the column does not matter then.
    assert resolve_write_schema(frame(value=BinaryType(), topic=IntegerType()), "t") == WriteSchema(value=0)


def test_what_is_required() -> None:
    missing = error_message(frame(value=StringType()))
    assert missing.startswith("topic option required when no 'topic' attribute is present")
    missing = error_message(frame(topic=StringType(), body=StringType()))
    assert missing.startswith("Required attribute 'value' not found among the columns topic, body")


@pytest.mark.parametrize(
    ("name", "column_type", "message"),
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
            # Arrow matches fields by name: another spelling would give nulls.
            ArrayType(StructType([StructField("Key", StringType()), StructField("value", BinaryType())])),
            "headers attribute unsupported type array<struct<Key:string,value:binary>>.",
        ),
    ],
)
def test_wrong_types(name: str, column_type: DataType, message: str) -> None:
    columns: dict[str, DataType] = {"topic": StringType(), "value": StringType(), name: column_type}
    assert message in error_message(frame(**columns))


def test_types_may_differ_in_nulls_and_collations() -> None:
    strict = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), False)])
    schema = frame(value=StringType("UNICODE_CI"), headers=ArrayType(strict, False), timestamp=DoubleType())
    assert resolve_write_schema(schema, "t") == WriteSchema(value=0, headers=1, timestamp=2)


def test_column_names_are_case_insensitive() -> None:
    assert resolve_write_schema(frame(VALUE=StringType(), Topic=StringType()), None) == WriteSchema(value=0, topic=1)
    assert resolve_write_schema(frame(Value=StringType(), value=StringType()), "t") == WriteSchema(value=1)
    assert error_message(frame(Value=StringType(), VALUE=StringType()), "t").startswith(
        "value attribute occurs 2 times"
    )


def test_duplicate_columns_are_rejected() -> None:
    fields = [StructField(name, StringType()) for name in ("id", "value", "id", "ID")]
    assert error_message(StructType(fields), "t").startswith(
        "Columns of the same name: id. Spark cannot pass them to Python"
    )
    assert error_message(StructType([fields[1], fields[0], fields[2]]), "t").startswith("Columns of the same name: id.")
    assert resolve_write_schema(StructType(fields[1:]), "t") == WriteSchema(value=0)


class TestArrow:
    """Arrow rows that do not come from a frame."""

    def test_all_columns_that_can_be_read(self) -> None:
        schema = arrow_schema(COLUMNS)
        assert resolve_arrow_write_schema(schema, None) == WriteSchema(
            value=1, key=0, topic=2, headers=7, partition=3, timestamp=5
        )
        assert resolve_arrow_write_schema(schema, "t").topic is None

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
            ("headers", pa.list_(pa.struct([("key", NAMES), ("value", pa.binary())]), 2)),
            ("value", pa.map_(NAMES, NAMES)),
        ],
        ids=str,
    )
    def test_types_that_can_be_written(self, name: str, kind: pa.DataType) -> None:
        schema = pa.schema({"value": pa.binary()} | {name: kind})
        assert getattr(resolve_arrow_write_schema(schema, "t"), name) == schema.get_field_index(name)

    @pytest.mark.parametrize(
        ("name", "arrow_type", "type_name"),
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
    def test_other_types_are_rejected_with_the_message_of_the_sink(
        self, name: str, arrow_type: pa.DataType, type_name: str
    ) -> None:
        with pytest.raises(ColumnError) as caught:
            resolve_arrow_write_schema(
                pa.schema({"value": pa.binary(), "topic": pa.string()} | {name: arrow_type}), None
            )
        assert str(caught.value).startswith(f"{name} attribute unsupported type {type_name}. {name} must be a(n) ")

    def test_what_is_required(self) -> None:
        with pytest.raises(ColumnError, match="topic option required when no 'topic' attribute is present"):
            resolve_arrow_write_schema(pa.schema({"value": pa.binary()}), None)
        with pytest.raises(ColumnError, match="Required attribute 'value' not found among the columns key, more"):
            resolve_arrow_write_schema(pa.schema({"key": pa.binary(), "more": pa.uint8()}), "t")
        with pytest.raises(ColumnError, match="value attribute occurs 2 times"):
            resolve_arrow_write_schema(pa.schema([("value", pa.binary()), ("value", pa.string())]), "t")

    def test_other_columns_may_be_of_any_type_and_name(self) -> None:
        schema = pa.schema([("x", pa.uint64()), ("x", pa.string_view()), ("Value", pa.binary())])
        assert resolve_arrow_write_schema(schema, "t") == WriteSchema(value=2)


JSON_TYPES = StructType(
    [
        StructField("scalars", StructType([StructField("n", NullType()), StructField("d", DoubleType())])),
        StructField("list", ArrayType(ArrayType(BinaryType()))),
        StructField("map", MapType(TimestampType(), MapType(StringType(), TimestampNTZType()))),
    ]
)


@pytest.mark.parametrize("kind", [JSON_TYPES, ArrayType(LongType()), MapType(StringType(), JSON_TYPES)])
def test_nested_columns_are_written_as_json(kind: DataType) -> None:
    schema = frame(value=kind, key=kind)
    assert resolve_write_schema(schema, "t") == WriteSchema(value=0, key=1)
    assert resolve_arrow_write_schema(arrow_schema_in_utc(schema), "t") == WriteSchema(value=0, key=1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (StructType([StructField("v", VariantType())]), r"value\.v is variant, which is not written as JSON: cast it"),
        (
            StructType([StructField("n", LongType()), StructField("v", VariantType())]),
            r"value\.v is variant, which is not written as JSON: cast it",
        ),
        (ArrayType(DayTimeIntervalType()), r"value\.element is interval day to second, which is not written as JSON"),
        (MapType(StringType(), DayTimeIntervalType()), r"value\.value is interval"),
        # These have no Arrow type.
        (
            StructType([StructField("a", ArrayType(StructType([StructField("y", YearMonthIntervalType())])))]),
            r"value\.a\.element\.y is interval year to month, which is not written as JSON: cast it to string",
        ),
        (
            StructType([StructField("n", LongType()), StructField("y", YearMonthIntervalType())]),
            r"value\.y is interval year to month, which is not written as JSON",
        ),
        (MapType(StringType(), CharType(3)), r"value\.value is char\(3\), which is not written as JSON"),
        (CalendarIntervalType(), "value attribute unsupported type interval. value must be a"),
        (MapType(BinaryType(), LongType()), "the keys of the map value are binary, .* cast them to string"),
        (MapType(ArrayType(LongType()), LongType()), "the keys of the map value are array<bigint>"),
    ],
)
def test_nested_columns_that_json_cannot_have_are_rejected(kind: DataType, message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        resolve_write_schema(frame(value=kind), "t")
