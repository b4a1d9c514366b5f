"""The columns of queries that decode keys or values."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE
from pyspark_kafka_direct.payloads.spark.payload_schema import decoded_columns, typed_schema
from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas

JSON = PayloadSettings(key=SidePayload("key", "string"), value=SidePayload("value", "json"))
NODE = '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}'
ERROR = from_arrow_type(ERROR_TYPE)
FLIGHT = StructType([StructField("origin", StringType()), StructField("delays", ArrayType(DoubleType()))])


def struct(*fields: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


@pytest.mark.parametrize(
    ("ddl", "type_ddl"),
    [
        ("id bigint, name string", "struct<id bigint, name string>"),
        ("STRUCT < id bigint, name string>", "STRUCT < id bigint, name string>"),
        ("VARIANT", "VARIANT"),
        ("variant string", "struct<variant string>"),
        ("payload variant", "struct<payload variant>"),
        ("array:int", "struct<array:int>"),
        ("map array<int>", "struct<map array<int>>"),
    ],
)
def test_the_columns_are_defined_by_value_schema(ddl: str, type_ddl: str) -> None:
    columns = typed_schema(kafka_schema(True), JSON.with_side(SidePayload("value", "json", ddl)))
    assert columns == (
        f"`key` string, `value` {type_ddl}, `topic` string, `partition` int, `offset` bigint, "
        "`timestamp` timestamp_ltz, `timestampType` int, `headers` array<struct<key:string,value:binary>>"
    )


def test_json_without_fields_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"valueFormat=json needs the wanted fields.*\.schema\(\).*valueSchema"):
        typed_schema(kafka_schema(False), JSON)


def test_types_follow_from_the_formats() -> None:
    schema = read_schema(struct(("key", StringType()), ("Value", FLIGHT), ("offset", LongType())), JSON)
    assert schema.columns == ("key", "value", "offset")
    assert pickle.loads(pickle.dumps(schema)).payloads == JSON


def test_errors_can_be_a_column() -> None:
    schema = read_schema(struct(("_ERROR", ERROR), ("value", FLIGHT)), JSON)
    assert schema.columns == ("_error", "value")
    assert ERROR.simpleString() == ("struct<side:string,stage:string,class:string,message:string,schema_id:int>")


def test_payloads_can_be_variants() -> None:
    json_only = PayloadSettings(key=SidePayload("key", "json"), value=SidePayload("value", "json"))
    schema = read_schema(
        struct(("key", struct(("id", LongType()), ("any", VariantType()))), ("value", VariantType())), json_only
    )
    assert schema.columns == ("key", "value")
    assert schema.payloads == json_only


def test_nothing_is_decoded_if_no_column_needs_it() -> None:
    assert read_schema(struct(("offset", LongType())), JSON).payloads is None
    assert read_schema(struct(("value", BinaryType())), PayloadSettings()).payloads is None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(("value", BinaryType())), "with valueFormat=json, column 'value' is a struct .* not binary"),
        (struct(("key", BinaryType())), "with keyFormat=string, column 'key' is string, not binary"),
        (struct(("value", FLIGHT, False)), "may be null"),
        (
            struct(("value", struct(("d", DayTimeIntervalType())))),
            "column 'value': field 'd' has the type duration.*as string, and cast",
        ),
        (struct(("value", struct(("a", struct(("b", DayTimeIntervalType())))))), r"field 'a\.b' has the type duration"),
        (struct(("value", struct(("a", StringType(), False)))), "field 'a' may be missing"),
        (struct(("value", struct(("_corrupt_record", LongType())))), "'_corrupt_record' .* must be a string"),
        (struct(("value", struct(("a", LongType()), ("a", LongType())))), "named twice"),
        (struct(("value", FLIGHT), ("_error", StringType())), "'_error' must be struct<side:string,"),
        (struct(("value", FLIGHT), ("_error", ERROR, False)), "'_error' must be struct<side:string,"),
        (struct(("value", FLIGHT), ("_error", CalendarIntervalType())), "'_error' must be struct<side:string,"),
        (struct(("value", FLIGHT), ("_error", NullType(), False)), "'_error' must be struct<side:string,"),
        (
            struct(("key", StringType()), ("_error", ERROR)),
            "there is none; set valueFormat=json, avro or protobuf and add",
        ),
    ],
)
def test_an_invalid_schema_is_rejected(schema: StructType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_schema(schema, JSON)


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (struct(("value", FLIGHT), ("_error", ERROR)), "_error"),
        (struct(("Value", struct(("a", LongType()), ("_corrupt_record", StringType())))), r"Value\._corrupt_record"),
        (struct(("value", struct(("_corrupt_record", BinaryType())))), r"value\._corrupt_record"),
    ],
)
def test_a_column_that_is_always_null_is_rejected(schema: StructType, name: str, mode: Any) -> None:
    with pytest.raises(OptionError, match=rf"'{name}' has malformed records.*mode={mode}.*set mode=PERMISSIVE"):
        read_schema(
            schema, PayloadSettings(key=SidePayload("key", "string"), value=SidePayload("value", "json"), mode=mode)
        )


def test_a_type_that_arrow_does_not_have_is_rejected_with_its_column() -> None:
    schema = struct(("value", struct(("a", struct(("b", CalendarIntervalType()))))))
    with pytest.raises(OptionError, match=r"column 'value': .*as string, and cast it"):
        read_schema(schema, JSON)


@pytest.mark.parametrize(
    ("ddl", "type_ddl", "kind"),
    [
        ("id bigint, d date", "struct<id bigint, d date>", struct(("id", LongType()), ("d", DateType()))),
        ("binary", "binary", BinaryType()),
        ("array<array<date>>", "array<array<date>>", ArrayType(ArrayType(DateType()))),
        ("variant", "variant", VariantType()),
    ],
)
def test_a_decoder_of_the_user_may_return_any_type(ddl: str, type_ddl: str, kind: DataType) -> None:
    settings = PayloadSettings(value=SidePayload("value", "my_decoders:make"))
    assert f"`value` {type_ddl}, " in typed_schema(
        kafka_schema(False), settings.with_side(SidePayload("value", "my_decoders:make", ddl))
    )
    assert read_schema(struct(("Value", kind)), settings).payloads == settings


def test_a_decoder_of_the_user_needs_a_type() -> None:
    payloads = PayloadSettings(key=SidePayload("key", "my_decoders:make"))
    with pytest.raises(OptionError, match=r"keyFormat=my_decoders:make needs the type .* or set keySchema"):
        typed_schema(kafka_schema(False), payloads)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(("value", StringType(), False)), "may be null"),
        (struct(("value", CalendarIntervalType())), "column 'value': "),
        (
            struct(("value", StringType()), ("_error", ERROR)),
            "there is none; set valueFormat=json, avro or protobuf and add",
        ),
    ],
)
def test_an_invalid_type_of_a_decoder_of_the_user_is_rejected(schema: StructType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_schema(schema, PayloadSettings(value=SidePayload("value", "my_decoders:make")))


@pytest.mark.parametrize("ddl", ["int", " STRING ", "decimal(10, 2)", "array<int>", "map<string, struct<a: int>>"])
def test_a_type_without_fields_is_rejected(ddl: str) -> None:
    payloads = JSON.with_side(SidePayload("value", "json", ddl))
    with pytest.raises(OptionError, match=r"valueSchema has the wanted fields and their types, such as .*variant"):
        typed_schema(kafka_schema(False), payloads)
    with pytest.raises(OptionError, match=r"valueSchema has the wanted fields and their types, such as .*variant"):
        decoded_columns(["value"], payloads)


def test_errors_need_a_format() -> None:
    with pytest.raises(OptionError, match="there is no column '_error'"):
        read_schema(struct(("value", BinaryType()), ("_error", ERROR)))


def test_a_struct_without_a_format_is_rejected_with_the_option_to_set() -> None:
    with pytest.raises(OptionError, match="set valueFormat=json"):
        read_schema(struct(("value", FLIGHT)), PayloadSettings())


@pytest.mark.parametrize("payload_format", ["json", "avro", "protobuf"])
def test_fields_at_the_top_of_the_schema_belong_into_the_column_with_a_format(payload_format: str) -> None:
    schema = struct(("carrier", StringType()), ("delay", DoubleType()))
    with pytest.raises(OptionError, match="there is no column 'carrier'") as caught:
        read_schema(schema, PayloadSettings().with_side(SidePayload("value", payload_format)))
    assert f"With valueFormat={payload_format}, the fields" in str(caught.value)
    assert '.schema("value struct<carrier:string>"), or set valueSchema.' in str(caught.value)
    assert "set valueFormat" not in str(caught.value)
    with pytest.raises(OptionError, match=r'With keyFormat=json.*\.schema\("key struct<carrier:string>"\)'):
        read_schema(schema, PayloadSettings().with_side(SidePayload("key", "json")))
    for settings in (PayloadSettings(), PayloadSettings().with_side(SidePayload("value", "string"))):
        with pytest.raises(OptionError, match="set valueFormat=json, avro or protobuf"):
            read_schema(schema, settings)
    with pytest.raises(OptionError, match="Did you mean 'value'"):
        read_schema(struct(("valeu", FLIGHT)), PayloadSettings().with_side(SidePayload("value", payload_format)))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"valueFormat": "avro", "valueSchema": NODE}, "change its type in valueSchema, or use spark.read or spark.re"),
        (
            {"valueFormat": "avro", "valueSchema": NODE, "schema.registry.url": "http://localhost:1"},
            "set valueSchema to the schema without the field",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": 'syntax = "proto3"; message Node { Node next = 1; }'},
            "set valueSchema to the schema without the field",
        ),
    ],
)
def test_what_to_do_about_a_field_without_a_type(options: dict[str, str], advice: str) -> None:
    """Only the data source has ``.schema()``."""
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **options}
    payloads = with_reader_schemas(parse_batch_options(given).payloads)
    reason = r"valueSchema: field '?next'?: the .* Node contains itself, .*; "
    with pytest.raises(OptionError, match=rf"{reason}name the wanted fields with \.schema\(\)$"):
        typed_schema(kafka_schema(False), payloads)
    with pytest.raises(OptionError, match=reason + re.escape(advice)):
        decoded_columns(["value"], payloads)
