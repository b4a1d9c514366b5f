"""Encoding of Avro: bytes that fastavro reads as the same values; and what a schema does not allow."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payloads.avro_data import arrow_type, encode, parse, read, records, spark_value

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.derived_schema import derived_schema
from pyspark_kafka_direct.payloads.avro.encoder_program import AvroEncoderSettings, compile_encoder
from pyspark_kafka_direct.payloads.avro.schema import AvroSchema, parse_avro_schema
from pyspark_kafka_direct.payloads.column_encoder import (
    ColumnEncoder,
    InvalidRowError,
    SchemaMismatchError,
    check_encodable,
    encodable_type,
    encode_all,
)
from pyspark_kafka_direct.payloads.encoded_values import AvroEncoder, InvalidReason, InvalidValueError, PayloadEncoding
from pyspark_kafka_direct.payloads.json.json_types import encodable

UTC = dt.UTC


def written(schema: Any, values: pa.Array) -> list[bytes | None]:
    program = compile_encoder(parse(schema), values.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants, b"\1\2")
    datums = AvroEncoder(encoding).encode(values)
    datums.validate(full=True)
    prefixed: list[bytes | None] = datums.to_pylist()
    assert all(datum is None or datum.startswith(b"\1\2") for datum in prefixed)
    return [None if datum is None else datum[2:] for datum in prefixed]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def field(avro_type: Any, name: str = "v", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro_type, **more}


def struct_of(data_type: pa.DataType, *values: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(values, data_type)], ["v"])


@pytest.mark.slow
@given(st.data())
@settings(max_examples=100)
def test_fastavro_reads_what_was_written(data: st.DataObject) -> None:
    schema, values = data.draw(records())
    drawn = data.draw(st.lists(values, min_size=1, max_size=4))
    expected = [read(encode(schema, value), schema) for value in drawn]
    root = parse(schema)
    rows = [*(spark_value(root, value) for value in expected), None]
    column = pa.array(rows, arrow_type(root))
    datums = written(schema, column)
    assert datums[-1] is None
    assert [read(datum, schema) for datum in datums[:-1] if datum is not None] == expected
    start = data.draw(st.integers(0, len(rows)))
    assert written(schema, column.slice(start)) == datums[start:]


@pytest.mark.parametrize("null_first", [False, True])
def test_the_derived_schema_of_a_type_reads_its_values(null_first: bool) -> None:
    inner = pa.struct({"d": pa.decimal128(5, 2), "n": pa.int32()})
    data_type = pa.struct(
        {"v": inner, "l": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int64()), "z": pa.null()}
    )
    schema = json.loads(derived_schema(data_type, null_first=null_first))
    fields = {each["name"]: each for each in schema["fields"]}
    null, other = (0, 1) if null_first else (1, 0)
    for name in "vlm":
        assert fields[name]["type"][null] == "null"
        assert ("default" in fields[name]) == null_first
    assert fields["z"] == {"name": "z", "type": "null"}
    record_type = fields["v"]["type"][other]
    assert (record_type["name"], record_type["namespace"]) == ("v", "topLevelRecord")
    assert record_type["fields"][0]["type"][other]["name"] == "topLevelRecord.v.d.fixed"
    value = {"v": {"d": decimal.Decimal("1.25"), "n": None}, "l": ["x", None], "m": [("k", 1)], "z": None}
    (datum,) = written(schema, pa.array([value], data_type))
    assert datum is not None
    assert read(datum, schema) == {**value, "m": {"k": 1}}


DECIMAL = {"logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize(
    ("avro_type", "data_type", "value", "datum"),
    [
        ("boolean", pa.bool_(), True, b"\1"),
        ("int", pa.int8(), -1, b"\1"),
        ("int", pa.int16(), 64, b"\x80\1"),
        ("long", pa.int32(), -65, b"\x81\1"),
        ("long", pa.int64(), -(2**63), b"\xff" * 9 + b"\1"),
        ("long", pa.int64(), 2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\1"),
        ("double", pa.float32(), 0.5, b"\0\0\0\0\0\0\xe0\x3f"),
        ("string", pa.large_string(), "é", b"\4\xc3\xa9"),
        ("string", pa.dictionary(pa.int8(), pa.string()), "a", b"\2a"),
        ({"type": "string", "logicalType": "uuid"}, pa.string(), "", b"\0"),
        ("bytes", pa.large_binary(), b"", b"\0"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["B", "A"]}, pa.string(), "A", b"\2"),
        ({"type": "int", "logicalType": "date"}, pa.date32(), dt.date(1970, 1, 2), b"\2"),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32(), 1, b"\2"),
        # As in Spark, a long without a logical type has milliseconds. They are rounded down.
        ("long", pa.timestamp("us", "UTC"), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), b"\1"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ns", "Asia/Tokyo"), 1, b"\0"),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("ms", "UTC"), 1, b"\xd0\x0f"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), -1, b"\1"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), -1, b"\1"),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal("1.27"), b"\2\x7f"),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(9, 2), decimal.Decimal("1.28"), b"\4\0\x80"),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal("-1.28"), b"\2\x80"),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal("-1.29"), b"\4\xff\x7f"),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal(0), b"\2\0"),
        (
            {"type": "fixed", "name": "F", "size": 20, **DECIMAL},
            pa.decimal128(10, 2),
            decimal.Decimal("-0.01"),
            b"\xff" * 20,
        ),
        ({"type": "fixed", "name": "F", "size": 5, **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal(1), b"\0\0\0\0d"),
        (["null", "int"], pa.int32(), None, b"\0"),
        (["int", "null"], pa.int32(), None, b"\2"),
        (["int", "null"], pa.int32(), 1, b"\0\2"),
        (["int", "long", "null"], pa.int64(), 1, b"\2\2"),
        (["int", "null", {"type": "long", "logicalType": "timestamp-micros"}], pa.int64(), 1, b"\4\2"),
        (["int", "null", "string"], pa.struct({"member1": pa.string()}), {"member1": "a"}, b"\4\2a"),
        (["int", "null", "string"], pa.struct({"member1": pa.string()}), {}, b"\2"),
        (["int", "null", "string"], pa.struct({"member1": pa.string()}), None, b"\2"),
        (["null", "int"], pa.null(), None, b"\0"),
        (["int", "string", "null"], pa.null(), None, b"\4"),
        ("null", pa.null(), None, b""),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None], b"\4\2\2\0\0"),
        ({"type": "array", "items": "int"}, pa.large_list(pa.int32()), [], b"\0"),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), [("a", 1)], b"\2\2a\2\0"),
    ],
)
def test_a_value(avro_type: Any, data_type: pa.DataType, value: Any, datum: bytes) -> None:
    if pa.types.is_timestamp(data_type) and isinstance(value, int):
        column = pa.StructArray.from_arrays([pa.array([value], pa.int64()).view(data_type)], ["v"])
    else:
        column = struct_of(data_type, value)
    assert written(record(field(avro_type)), encodable(column)) == [datum]


@pytest.mark.parametrize(
    ("avro_type", "default", "datum"),
    [
        ("int", -1, b"\1"),
        (["null", "int"], None, b"\0"),
        (["int", "null"], 1, b"\0\2"),
        (["null", "int", "string"], "a", b"\4\2a"),
        ({"type": "array", "items": ["null", "int", "string"]}, ["a", None, 1], b"\6\4\2a\0\2\2\0"),
        ("double", 1, b"\0\0\0\0\0\0\xf0\x3f"),
        ("float", "-Infinity", b"\0\0\x80\xff"),
        (["double", "string"], "NaN", b"\0\0\0\0\0\0\0\xf8\x7f"),
        ("string", "é", b"\4\xc3\xa9"),
        ("bytes", "é", b"\2\xe9"),
        ({"type": "fixed", "name": "F", "size": 1}, "\xff", b"\xff"),
        ({"type": "enum", "name": "E", "symbols": ["B", "A"]}, "A", b"\2"),
        ({"type": "array", "items": "int"}, [1, 2], b"\4\2\4\0"),
        ({"type": "map", "values": "boolean"}, {"a": True, "b": False}, b"\4\2a\1\2b\0\0"),
        ({"type": "record", "name": "S", "fields": [field("int"), field("int", "w", default=3)]}, {"v": 1}, b"\2\6"),
    ],
)
def test_the_default_of_a_field_that_the_struct_lacks(avro_type: Any, default: Any, datum: bytes) -> None:
    schema = record(field(avro_type, default=default), field("int", "last"))
    assert written(schema, pa.StructArray.from_arrays([pa.array([5], pa.int32())], ["last"])) == [datum + b"\n"]


def test_defaults_that_contain_others_are_limited() -> None:
    nested: Any = "int"
    for level in range(8):
        default: list[Any] = [{} if level else 1] * 20
        nested = {**record(field({"type": "array", "items": nested}, default=default)), "name": f"R{level}"}
    with pytest.raises(AvroSchemaError, match="the defaults of the fields that the struct lacks are too large"):
        compile_encoder(parse(record(field(nested, default={}))), pa.struct([]), "value")


def test_a_derived_decimal_has_the_smallest_size_for_its_digits() -> None:
    for precision in range(1, 39):
        derived = json.loads(derived_schema(pa.struct({"d": pa.decimal128(precision, 0)}), null_first=True))
        decimal_type = derived["fields"][0]["type"][1]
        largest = 10**precision - 1
        assert decimal_type["size"] == next(size for size in range(1, 17) if largest < 1 << 8 * size - 1)


def test_fields_are_found_by_name_and_nullable_ones_may_be_missing() -> None:
    schema = record(field("int", "b"), field("string", "A"), field(["string", "null"], "c"))
    column = pa.array([{"a": "x", "b": 1}], pa.struct({"a": pa.string(), "b": pa.int32()}))
    assert written(schema, column) == [b"\2\2x\2"]


def test_a_column_of_the_type_null_has_nulls_and_no_datums() -> None:
    for schema in ("null", ["null", "string"], "string"):
        encoder_settings = AvroEncoderSettings(b"\0\0\0\0\1", schema=AvroSchema(json.dumps(schema), (), parse(schema)))
        check_encodable("key", encoder_settings, pa.null())
        assert ColumnEncoder("key", encoder_settings).encode(pa.nulls(2)).to_pylist() == [None, None]


def test_a_value_is_not_written_to_two_fields_whose_names_differ_in_case() -> None:
    schema = record(field("int", "id", default=0), field("int", "ID", default=7))
    assert written(schema, pa.array([{"id": 1}], pa.struct({"id": pa.int32()}))) == [b"\2\x0e"]
    assert written(schema, pa.array([{"ID": 1}], pa.struct({"ID": pa.int32()}))) == [b"\0\2"]


@pytest.mark.parametrize(
    ("schema", "data_type", "message"),
    [
        (record(field("int")), pa.struct({"v": pa.int64()}), "value.v is int64, which is not written as int"),
        (record(field("string")), pa.struct({"v": pa.binary()}), "value.v is binary, which is not written as string"),
        (record(field("int"), field("int", "w")), pa.struct({"v": pa.int32()}), "the struct lacks value.w, which has"),
        (
            record(field("int", default="x")),
            pa.struct([]),
            "the default of field 'v' does not have its type: \"x\"",
        ),
        (record(field("int")), pa.struct({"v": pa.int32(), "w": pa.int32()}), "R has no field for value.w"),
        (record(field("int")), pa.struct({"V": pa.int32(), "v": pa.int32()}), "R has no field for value.V"),
        (record(field("int", "V")), pa.struct([("v", pa.int32())] * 2), "value.V of the Avro schema R fits several"),
        (
            record(field("int", "id"), field("int", "ID")),
            pa.struct({"Id": pa.int32()}),
            "value.Id fits several fields of",
        ),
        (record(field("int")), pa.struct({"v": pa.null()}), "value.v is always null, but int in the Avro schema"),
        (
            record(field({"type": "array", "items": {**record(field("int")), "name": "S"}})),
            pa.struct({"v": pa.list_(pa.struct({"v": pa.bool_()}))}),
            "value.v.element.v is bool",
        ),
        (
            record(field({"type": "array", "items": "int"})),
            pa.struct({"v": pa.list_(pa.bool_())}),
            "value.v.element is bool",
        ),
        (
            record(field({"type": "bytes", **DECIMAL})),
            pa.struct({"v": pa.decimal128(11, 2)}),
            r"value.v is decimal128\(11, 2\), which is not written as bytes \(decimal\)",
        ),
        (
            record(field({"type": "long", "logicalType": "timestamp-micros"})),
            pa.struct({"v": pa.timestamp("us")}),
            r"value.v is timestamp\[us\], which is not written as long \(timestamp-micros\)",
        ),
        (record(field({"type": "map", "values": "int"})), pa.struct({"v": pa.map_(pa.int32(), pa.int32())}), "value.v"),
        (
            record(field(["int", "string"])),
            pa.struct({"v": pa.struct({"x": pa.int32()})}),
            r"value.v is struct<x: int32>, which is not written as \[int, string\]",
        ),
        (
            record(field(["int", "string"])),
            pa.struct({"v": pa.struct({"member0": pa.int32(), "x": pa.string()})}),
            "value.v is struct",
        ),
        (
            record(field({"type": "long", "logicalType": "timestamp-nanos"})),
            pa.struct({"v": pa.timestamp("us", "UTC")}),
            r"value.v is timestamp\[us, tz=UTC\], which is not written as long \(timestamp-nanos\)",
        ),
        (record(field("null")), pa.struct({"v": pa.int32()}), "value.v is int32, which is not written as null"),
        ("string", pa.struct({"v": pa.int32()}), "value is struct"),
    ],
)
def test_a_schema_that_does_not_fit_the_column(schema: Any, data_type: pa.DataType, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        compile_encoder(parse(schema), data_type, "value")


@pytest.mark.parametrize(
    ("avro_type", "data_type", "value", "node", "reason"),
    [
        ("int", pa.int32(), None, 1, 0),
        ({"type": "enum", "name": "E", "symbols": ["A", "C"]}, pa.string(), "B", 1, 1),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"abc", 1, 2),
        ({"type": "fixed", "name": "F", "size": 5, **DECIMAL}, pa.decimal128(10, 2), decimal.Decimal(10**14), 1, 2),
        (["int", "string"], pa.struct({"member0": pa.int32(), "member1": pa.string()}), (1, "a"), 1, 3),
        (["int", "string"], pa.struct({"member0": pa.int32(), "member1": pa.string()}), (None, None), 1, 0),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1, None], 2, 0),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), [("a", None)], 2, 0),
    ],
)
def test_a_value_that_the_schema_does_not_allow(
    avro_type: Any, data_type: pa.DataType, value: Any, node: int, reason: int
) -> None:
    if isinstance(value, decimal.Decimal):  # of more digits than the type has
        unchecked = pa.array([None, value], pa.decimal128(38, 2))
        column = pa.Array.from_buffers(data_type, 2, unchecked.buffers())
    else:
        column = pa.array([None, value], data_type)
    rows = pa.StructArray.from_arrays([column], ["v"], mask=pa.array([True, False]))
    program = compile_encoder(parse(record(field(avro_type))), rows.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants)
    encoder = AvroEncoder(encoding)
    with pytest.raises(InvalidValueError) as raised:
        encoder.encode(rows)
    assert (raised.value.row, raised.value.node, raised.value.reason) == (1, node, reason)


def test_a_type_that_is_a_struct_only_in_arrow_is_not_written() -> None:
    parts = [pa.field("srid", pa.int32(), metadata={"geometry": "true"}), pa.field("wkb", pa.binary())]
    data_type = pa.struct({"a": pa.struct({"x": pa.int32()}), "b": pa.struct(parts)})
    with pytest.raises(SchemaMismatchError, match=r"value\.b is geometry, .* convert it with st_asbinary"):
        encodable_type(data_type, "Avro")


def test_an_error_has_the_path_of_the_value() -> None:
    schema = record(field({"type": "array", "items": {"type": "record", "name": "S", "fields": [field("int", "n")]}}))
    text = json.dumps(schema)
    encoder = ColumnEncoder("value", AvroEncoderSettings(schema=AvroSchema(text, (), parse(schema))))
    column = struct_of(pa.list_(pa.struct({"n": pa.int32()})), [{"n": 1}], [{"n": None}])
    with pytest.raises(InvalidRowError, match=r"value\.v\.element\.n is null, which the Avro schema does") as raised:
        encoder.encode(column)
    assert raised.value.row == 1
    other = struct_of(pa.list_(pa.struct({"n": pa.int8()})), [{"n": None}])
    for values, row in ((other, 0), (column, 1)):
        with pytest.raises(InvalidRowError, match=r"value\.v\.element\.n is null") as raised:
            encoder.encode(values)
        assert raised.value.row == row
    two = json.dumps(record(field("int", default=0), field("int", "w", default=0)))
    encoder_of_two = ColumnEncoder("value", AvroEncoderSettings(schema=parse_avro_schema(two)))
    for names in (("v", "w"), ("w",), ("v",)):
        values = pa.array([dict.fromkeys(names)], pa.struct([(name, pa.int32()) for name in names]))
        with pytest.raises(InvalidRowError, match=rf"value\.{names[0]} is null"):
            encoder_of_two.encode(values)
    # The type may change from batch to batch.
    assert encoder.encode(struct_of(pa.list_(pa.struct({"n": pa.int8()})), [{"n": 1}])).to_pylist() == [b"\2\2\0"]


def test_a_large_fixed_type_does_not_fill_the_memory() -> None:
    schema = record(field({"type": "fixed", "name": "F", "size": 1 << 24, **DECIMAL}))
    column = struct_of(pa.decimal128(10, 2), *[decimal.Decimal(1)] * 20)
    program = compile_encoder(parse(schema), column.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants)
    encoder = AvroEncoder(encoding)
    with pytest.raises(InvalidValueError) as raised:
        encoder.encode(column)
    assert raised.value.reason is InvalidReason.LIMIT
    with pytest.raises(
        InvalidRowError, match=r"value\.v needs more than 128 MiB of Avro together with the rows"
    ) as row:
        ColumnEncoder("value", AvroEncoderSettings(schema=AvroSchema("", (), parse(schema)))).encode(column)
    assert "maxRecordsPerBatch" in row.value.advice


def test_the_items_of_a_row_have_a_limit() -> None:
    items = {"type": "record", "name": "I", "fields": [field("string", default="x" * 1000)]}
    column = struct_of(pa.list_(pa.struct([])), [{}] * 200)
    program = compile_encoder(parse(record(field({"type": "array", "items": items}))), column.type, "value")
    for max_bytes in (100_000, 300_000):
        encoding = PayloadEncoding(program.numbers, program.constants, b"", max_bytes)
        encoder = AvroEncoder(encoding)
        if max_bytes == 300_000:
            assert encoder.encode(column).nbytes > 200_000
            continue
        with pytest.raises(InvalidValueError) as raised:
            encoder.encode(column)
        assert raised.value.reason is InvalidReason.LIMIT


def test_a_large_column_is_encoded_in_parts() -> None:
    text = json.dumps(record(field("string")))
    encoder = ColumnEncoder("value", AvroEncoderSettings(schema=AvroSchema(text, (), parse(json.loads(text)))))
    column = struct_of(pa.string(), *("x" * 100_000 for _ in range(100)))
    assert [len(datum) for datum in encode_all(encoder, column).to_pylist()] == [100_003] * 100
