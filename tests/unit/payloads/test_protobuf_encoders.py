"""Encoding of Protobuf: bytes that Google's library reads as the same messages, and what is an error."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.payloads.protobuf_data import ALL_TYPES, PROTO2, as_integers, decode, message_class, plain
from tests.unit.payloads.random_messages import random_message

from pyspark_kafka_direct.payloads.column_encoder import ColumnEncoder, InvalidRowError, SchemaMismatchError, encode_all
from pyspark_kafka_direct.payloads.encoded_values import (
    InvalidReason,
    InvalidValueError,
    PayloadEncoding,
    ProtobufEncoder,
)
from pyspark_kafka_direct.payloads.json.json_types import encodable
from pyspark_kafka_direct.payloads.protobuf.encoder_program import ProtobufEncoderSettings, compile_encoder
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, parse_protobuf_schema

_slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

UTC = dt.UTC
PREFIX = b"\0\0\0\0\7\0"


def encode(text: str, values: pa.Array, *, max_bytes: int = 128 << 20) -> list[bytes | None]:
    """Encode structs as messages of the first type."""
    schema = parse_protobuf_schema(text)
    values = encodable(values, "Protobuf")
    program = compile_encoder(schema, schema.message(None), values.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants, PREFIX, max_bytes)
    encoded = ProtobufEncoder(encoding).encode(values)
    encoded.validate(full=True)
    messages: list[bytes | None] = encoded.to_pylist()
    assert all(message is None or message.startswith(PREFIX) for message in messages)
    return [None if message is None else message[len(PREFIX) :] for message in messages]


def proto3(fields: str, *others: str) -> str:
    return f'syntax = "proto3"; message M {{ {fields} }} {" ".join(others)}'


def struct_of(data_type: pa.DataType, *values: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(values, data_type)], ["v"])


@pytest.mark.slow
@_slow
@given(st.integers(0, 1 << 32), st.integers(0, 3))
@pytest.mark.parametrize(("text", "name"), [(ALL_TYPES, "test.all.Everything"), (PROTO2, "test.two.Legacy")])
def test_google_reads_what_was_decoded_and_encoded(text: str, name: str, seed: int, start: int) -> None:
    source, cls = random.Random(seed), message_class(text, name)
    messages = [random_message(cls, source) for _ in range(3)]
    if text is PROTO2:
        for message in messages:
            message.id = 5
    decoded = decode(text, [*(message.SerializeToString() for message in messages), None]).values
    encoded = encode(text, decoded)
    assert encoded[3] is None
    for message, data in zip(messages, encoded[:3], strict=True):
        assert data is not None
        assert plain(cls.FromString(data)) == plain(message)
    assert repr(as_integers(decode(text, encoded).values)) == repr(as_integers(decoded))
    assert encode(text, decoded.slice(start)) == encoded[start:]


TIME = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


@pytest.mark.parametrize(
    ("field", "data_type", "value", "message"),
    [
        ("int32 v = 1;", pa.int8(), -1, b"\x08" + b"\xff" * 9 + b"\1"),
        ("int32 v = 1;", pa.int64(), 1 << 30, b"\x08\x80\x80\x80\x80\4"),
        ("int32 v = 1;", pa.int32(), 0, b""),
        ("int32 v = 1;", pa.int32(), None, b""),
        ("optional int32 v = 1;", pa.int32(), 0, b"\x08\0"),
        ("oneof o { int32 v = 1; }", pa.int32(), 0, b"\x08\0"),
        ("uint32 v = 1;", pa.int32(), -1, b"\x08\xff\xff\xff\xff\x0f"),
        ("uint32 v = 1;", pa.int64(), (1 << 32) - 1, b"\x08\xff\xff\xff\xff\x0f"),
        ("uint64 v = 1;", pa.int64(), -1, b"\x08" + b"\xff" * 9 + b"\1"),
        ("uint64 v = 1;", pa.decimal128(20, 0), decimal.Decimal((1 << 64) - 1), b"\x08" + b"\xff" * 9 + b"\1"),
        ("fixed64 v = 1;", pa.decimal128(20, 0), decimal.Decimal((1 << 64) - 1), b"\x09" + b"\xff" * 8),
        ("sint32 v = 1;", pa.int16(), -2, b"\x08\3"),
        ("sint64 v = 1;", pa.int64(), -(1 << 63), b"\x08" + b"\xff" * 9 + b"\1"),
        ("fixed32 v = 1;", pa.int32(), -1, b"\x0d\xff\xff\xff\xff"),
        ("fixed32 v = 1;", pa.int32(), 0, b""),
        ("sfixed32 v = 1;", pa.int32(), -2, b"\x0d\xfe\xff\xff\xff"),
        ("double v = 1;", pa.float64(), 0.0, b""),
        ("double v = 1;", pa.float64(), -0.0, b"\x09" + b"\0" * 7 + b"\x80"),
        ("float v = 16;", pa.float32(), 0.5, b"\x85\1\0\0\0\x3f"),
        ("bool v = 1;", pa.bool_(), True, b"\x08\1"),
        ("string v = 1;", pa.large_string(), "é", b"\x0a\2\xc3\xa9"),
        ("string v = 1;", pa.string(), "", b""),
        ("string v = 1;", pa.string(), "\0", b"\x0a\1\0"),
        ("string v = 1;", pa.binary(), b"a", b"\x0a\1a"),
        ("bytes v = 1;", pa.string(), "a", b"\x0a\1a"),
        ("bytes v = 1;", pa.binary(), b"\xff" * 200, b"\x0a\xc8\1" + b"\xff" * 200),
        ("E v = 1;", pa.string(), "B", b"\x08\5"),
        ("E v = 1;", pa.string(), "A", b""),
        ("E v = 1;", pa.string(), "UNKNOWN_ENUM_VALUE_E_7", b"\x08\7"),
        ("E v = 1;", pa.int32(), 7, b"\x08\7"),
        ("repeated int32 v = 1;", pa.list_(pa.int32()), [0, 300], b"\x0a\3\0\xac\2"),
        ("repeated int32 v = 1;", pa.list_(pa.int32()), [], b""),
        ("repeated int32 v = 1;", pa.list_(pa.int32()), None, b""),
        ("repeated int32 v = 1 [packed = false];", pa.large_list(pa.int32()), [0, 1], b"\x08\0\x08\1"),
        ("repeated int32 v = 1;", pa.list_(pa.int32()), [1] * 200, b"\x0a\xc8\1" + b"\1" * 200),
        ("repeated string v = 1;", pa.list_(pa.string()), ["", "a"], b"\x0a\0\x0a\1a"),
        ("map<string, int32> v = 1;", pa.map_(pa.string(), pa.int32()), [("", 0)], b"\x0a\4\x0a\0\x10\0"),
        ("map<string, int32> v = 1;", pa.map_(pa.binary(), pa.int32()), [(b"a", 0)], b"\x0a\5\x0a\1a\x10\0"),
        ("map<bool, I> v = 1;", pa.map_(pa.bool_(), pa.struct({"i": pa.int32()})), [(True, {})], b"\x0a\4\x08\1\x12\0"),
        ("I v = 1;", pa.struct({"i": pa.int32()}), {"i": 0}, b"\x0a\0"),
        ("I v = 1;", pa.struct({"i": pa.int32()}), None, b""),
        ("I v = 1;", pa.null(), None, b""),
        ("google.protobuf.Int64Value v = 1;", pa.int64(), 0, b"\x0a\0"),
        ("google.protobuf.Int64Value v = 1;", pa.int64(), 1, b"\x0a\2\x08\1"),
        ("google.protobuf.StringValue v = 1;", pa.struct({"value": pa.string()}), {"value": "a"}, b"\x0a\3\x0a\1a"),
        # Nanoseconds of a time are never negative, and those of a duration have the sign of its seconds.
        (
            "google.protobuf.Timestamp v = 1;",
            pa.timestamp("us", "Asia/Tokyo"),
            TIME,
            b"\x0a\x11\x08" + b"\xff" * 9 + b"\1\x10\x98\x8c\xeb\xdc\3",
        ),
        (
            "google.protobuf.Duration v = 1;",
            pa.duration("ns"),
            dt.timedelta(microseconds=-1),
            b"\x0a\x0b\x10\x98\xf8" + b"\xff" * 7 + b"\1",
        ),
        ("google.protobuf.Duration v = 1;", pa.duration("us"), dt.timedelta(), b"\x0a\0"),
    ],
)
def test_a_value(field: str, data_type: pa.DataType, value: Any, message: bytes) -> None:
    imports = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "duration", "wrappers"))
    text = proto3(field, "message I { int32 i = 1; }", "enum E { A = 0; B = 5; }")
    text = text.replace("message M", f"{imports} message M")
    assert encode(text, struct_of(data_type, value)) == [message]


def test_a_struct_whose_fields_have_another_order_and_case() -> None:
    values = pa.array([{"B": 1, "a": 2}], pa.struct({"B": pa.int32(), "a": pa.int32()}))
    assert encode(proto3("int32 c = 3; int32 b = 2; int32 a = 1;"), values) == [b"\x08\2\x10\1"]


ONEOF = proto3("oneof o { int32 a = 1; string b = 2; } int32 v = 3;")


@pytest.mark.parametrize(
    ("text", "data_type", "message"),
    [
        (proto3("int32 v = 1;"), pa.struct({"w": pa.int32()}), "the message M has no field for value.w"),
        (proto3("int32 v = 1;"), pa.struct({"V": pa.int32(), "v": pa.int32()}), "has no field for value.V"),
        (proto3("int32 v = 1;"), pa.struct({"v": pa.string()}), "value.v is string, which is not written as int32"),
        (proto3("int32 v = 1;"), pa.int32(), "value is int32, but a struct is written as the message M"),
        (proto3("uint32 v = 1;"), pa.struct({"v": pa.int8()}), "value.v is int8, which is not written as uint32"),
        (proto3("repeated int32 v = 1;"), pa.struct({"v": pa.int32()}), "not written as repeated int32"),
        (
            proto3("map<int32, int32> v = 1;"),
            pa.struct({"v": pa.map_(pa.string(), pa.int32())}),
            "value.v.key is string",
        ),
        (proto3("M v = 1;"), pa.struct({"v": pa.string()}), "value.v is string, which is not written as M"),
        (
            PROTO2,
            pa.struct({"name": pa.string()}),
            "the struct lacks value.id, which the message test.two.Legacy requires",
        ),
        (
            "message M { optional int32 v = 1; required int32 w = 2; }",
            pa.struct({"v": pa.int32()}),
            "the struct lacks value.w, which the message M requires",
        ),
        (
            "message M { required group G = 1 { optional int32 x = 1; } optional int32 v = 2; }",
            pa.struct({"v": pa.int32()}),
            "value.g is a group, which is not written, but required by the message M",
        ),
        (PROTO2, pa.struct({"id": pa.int32(), "part": pa.struct({"size": pa.int32()})}), "value.part is a group"),
    ],
)
def test_a_schema_that_does_not_fit_the_column(text: str, data_type: pa.DataType, message: str) -> None:
    schema = parse_protobuf_schema(text)
    with pytest.raises(ProtobufSchemaError) as raised:
        compile_encoder(schema, schema.message(None), data_type, "value")
    assert message in str(raised.value)


def test_each_number_of_a_closed_enum_is_written() -> None:
    text = "message M { enum E { A = 0; B = 5; C = -1; } optional E v = 1; repeated E w = 2; }"
    row = pa.array([{"v": 5, "w": [-1, 0, 5]}], pa.struct({"v": pa.int32(), "w": pa.list_(pa.int32())}))
    names = pa.array([{"v": "B", "w": ["C", "A", "B"]}], pa.struct({"v": pa.string(), "w": pa.list_(pa.string())}))
    minus_one = b"\x10" + b"\xff" * 9 + b"\1"
    assert encode(text, row) == encode(text, names) == [b"\x08\5" + minus_one + b"\x10\0\x10\5"]


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        (ONEOF, {"a": 0, "b": "x"}, "value.a and value.b both have values, but are in the same oneof"),
        (proto3("repeated int32 v = 1;"), {"v": [1, None]}, "value.v.element is null, which the Protobuf schema does"),
        (proto3("repeated string v = 1;"), {"v": ["", None]}, "value.v.element is null"),
        (proto3("map<string, int32> v = 1;"), {"v": [("a", None)]}, "value.v.value is null"),
        (proto3("int32 v = 1;"), {"v": 1 << 31}, "value.v does not fit the type of the field"),
        (proto3("fixed32 v = 1;"), {"v": -1}, "value.v does not fit the type of the field"),
        (proto3("uint64 v = 1;"), {"v": decimal.Decimal(-1)}, "value.v does not fit the type of the field"),
        (proto3("E v = 1;", "enum E { A = 0; }"), {"v": "B"}, "value.v is not a symbol of the enum"),
        (proto3("E v = 1;", "enum E { A = 0; }"), {"v": "UNKNOWN_ENUM_VALUE_E_+1"}, "value.v is not a symbol"),
        (proto3("E v = 1;", "enum E { A = 0; }"), {"v": "UNKNOWN_ENUM_VALUE_E_2147483648"}, "value.v is not a symbol"),
        (proto3("string v = 1;"), {"v": b"\xff"}, "value.v is not valid UTF-8"),
        (PROTO2, {"id": None}, "value.id is null"),
        (PROTO2, {"id": 1, "level": "UNKNOWN_ENUM_VALUE_Level_7"}, "value.level is not a symbol of the enum"),
        (PROTO2, {"id": 1, "levels": [7]}, "value.levels.element is not a symbol of the enum"),
        (proto3("M v = 1; int32 w = 2;"), {"v": {"w": 1 << 31}}, "value.v.w does not fit"),
    ],
)
def test_a_value_that_the_schema_does_not_allow(text: str, row: dict[str, Any], message: str) -> None:
    schema = parse_protobuf_schema(text)
    types = {name: _type(name, value) for name, value in row.items()}
    values = pa.array([None, row], pa.struct(types))
    program = compile_encoder(schema, schema.message(None), values.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants)
    encoder = ProtobufEncoder(encoding)
    with pytest.raises(InvalidValueError) as raised:
        encoder.encode(values)
    assert raised.value.row == 1
    assert raised.value.message(program.paths, "Protobuf").startswith(message)


def test_a_null_list_may_hide_elements() -> None:
    offsets, hidden = pa.array([0, 2, 3], pa.int32()), pa.array([True, False])
    numbers, texts = pa.array([1, 2, 3], pa.int32()), pa.array(["a", "b", "c"])
    columns = {
        "packed": pa.ListArray.from_arrays(offsets, numbers, mask=hidden),
        "repeated": pa.ListArray.from_arrays(offsets, texts, mask=hidden),
        "map": pa.MapArray.from_arrays(offsets, numbers, texts, mask=hidden),
    }
    fields = {"packed": "repeated int32", "repeated": "repeated string", "map": "map<int32, string>"}
    for name, column in columns.items():
        text = proto3(f"{fields[name]} {name} = 1;")
        values = pa.StructArray.from_arrays([column], [name])
        only = pa.StructArray.from_arrays([column.slice(1)], [name])
        assert encode(text, values) == [b"", *encode(text, only)]


def test_two_of_many_members_of_a_oneof() -> None:
    names = "abcde"
    members = " ".join(f"int32 {name} = {number};" for number, name in enumerate(names, 4))
    text = proto3(f"oneof p {{ int32 v = 1; int32 w = 2; }} int32 n = 3; oneof o {{ {members} }}")
    for first, second in itertools.combinations(names, 2):
        row = {"v": 1, "n": 2, **dict.fromkeys(names), second: 0, first: 5}
        values = pa.array(
            [{**row, first: None}, row, row], pa.struct(dict.fromkeys([*"wvn", *reversed(names)], pa.int32()))
        )
        expected = f"value.{first} and value.{second} both have values, but are in the same oneof"
        encoder = ColumnEncoder("value", ProtobufEncoderSettings(schema=ProtobufSource(text)))
        with pytest.raises(InvalidRowError) as raised:
            encoder.encode(values)
        assert (raised.value.row, raised.value.reason) == (1, expected)
        assert encoder.encode(values.slice(0, 1)).null_count == 0


_SECOND = 1_000_000
_FIRST_TIME, _LAST_TIME = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND - 1
_LONGEST = 315_576_000_000 * _SECOND + 999_999


@pytest.mark.parametrize(
    ("name", "data_type", "first", "last"),
    [
        ("Timestamp", pa.timestamp("us", "UTC"), _FIRST_TIME, _LAST_TIME),
        ("Duration", pa.duration("us"), -_LONGEST, _LONGEST),
    ],
)
def test_times_and_durations_have_the_range_of_google(name: str, data_type: pa.DataType, first: int, last: int) -> None:
    imported = f'import "google/protobuf/{name.lower()}.proto"; message'
    text = proto3(f"google.protobuf.{name} v = 1;").replace("message", imported, 1)
    for micros, message in zip((first, last), encode(text, _micros(data_type, first, last)), strict=True):
        google = {"Timestamp": Timestamp, "Duration": Duration}[name]()
        google.FromMicroseconds(micros)
        assert message == b"\x0a%c" % len(google.SerializeToString()) + google.SerializeToString()
    for micros in (first - 1, last + 1, -(1 << 63), (1 << 63) - 1):
        values = _micros(data_type, 0, micros)
        schema = parse_protobuf_schema(text)
        program = compile_encoder(schema, schema.message(None), values.type, "value")
        encoding = PayloadEncoding(program.numbers, program.constants)
        encoder = ProtobufEncoder(encoding)
        with pytest.raises(InvalidValueError) as raised:
            encoder.encode(values)
        assert raised.value.row == 1
        assert raised.value.message(program.paths, "Protobuf") == "value.v does not fit the type of the field"
    assert encode(text, _micros(data_type, None)) == [b""]


def _micros(data_type: pa.DataType, *micros: int | None) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(micros, pa.int64()).view(data_type)], ["v"])


def _type(name: str, value: Any) -> pa.DataType:
    if isinstance(value, decimal.Decimal):
        return pa.decimal128(20, 0)
    if name == "id":
        return pa.int32()
    if isinstance(value, list) and isinstance(value[0], tuple):
        return pa.map_(pa.string(), pa.int32())
    if name == "levels":
        return pa.list_(pa.int32())
    return pa.array([value]).type


@pytest.mark.parametrize(("max_bytes", "is_limited"), [(1 + 3 * 108, False), (3 * 108, True), (250, True), (0, True)])
def test_the_messages_of_a_column_have_a_limit(max_bytes: int, is_limited: bool) -> None:
    values = struct_of(pa.list_(pa.string()), ["a" * 98] * 1, ["b" * 98], ["c" * 98])
    if not is_limited:
        assert len(encode(proto3("repeated string v = 1;"), values, max_bytes=max_bytes)) == 3
        return
    schema = parse_protobuf_schema(proto3("repeated string v = 1;"))
    program = compile_encoder(schema, schema.message(None), values.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants, PREFIX, 100 if max_bytes == 3 * 108 else max_bytes)
    encoder = ProtobufEncoder(encoding)
    with pytest.raises(InvalidValueError) as raised:
        encoder.encode(values)
    assert raised.value.reason is InvalidReason.LIMIT


def test_one_large_value_is_limited() -> None:
    values = struct_of(pa.string(), None, "x" * 300)
    schema = parse_protobuf_schema(proto3("string v = 1;"))
    program = compile_encoder(schema, schema.message(None), values.type, "value")
    with pytest.raises(InvalidValueError) as raised:
        ProtobufEncoder(PayloadEncoding(program.numbers, program.constants, b"", 302)).encode(values)
    assert (raised.value.row, raised.value.reason) == (1, InvalidReason.LIMIT)
    assert len(ProtobufEncoder(PayloadEncoding(program.numbers, program.constants, b"", 303)).encode(values)) == 2


def test_an_error_has_the_path_of_the_value_and_the_type_may_change() -> None:
    encoder_settings = ProtobufEncoderSettings(PREFIX, schema=ProtobufSource(proto3("M v = 1; repeated int32 n = 2;")))
    encoder = ColumnEncoder("value", encoder_settings)
    with pytest.raises(InvalidRowError, match=r"value\.v\.n\.element is null") as raised:
        encoder.encode(struct_of(pa.struct({"n": pa.list_(pa.int32())}), {"n": []}, {"n": [None]}))
    assert raised.value.row == 1
    assert encoder.encode(struct_of(pa.struct({"n": pa.list_(pa.int8())}), {"n": [1]})).to_pylist() == [
        PREFIX + b"\x0a\3\x12\1\1"
    ]
    assert encoder.encode(pa.nulls(2)).to_pylist() == [None, None]
    with pytest.raises(SchemaMismatchError, match="no field for value"):
        encoder.encode(struct_of(pa.struct({"m": pa.int8()}), {"m": 1}))


def test_a_large_column_is_encoded_in_parts() -> None:
    encoder = ColumnEncoder("value", ProtobufEncoderSettings(schema=ProtobufSource(proto3("string v = 1;"))))
    values = struct_of(pa.string(), *("x" * 100_000 for _ in range(100)))
    assert [len(value) for value in encode_all(encoder, values).to_pylist()] == [100_004] * 100
    assert encode_all(encoder, values.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("field", "data_type", "value"),
    [
        ("repeated int32 v = 1;", pa.list_(pa.int32()), [1, 2]),
        ("repeated string v = 1;", pa.large_list(pa.string()), ["a", None]),
        ("repeated M v = 1; repeated bytes w = 2;", pa.list_(pa.struct({"w": pa.list_(pa.binary())})), [{"w": [b"x"]}]),
        ("map<string, int32> v = 1;", pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", 2)]),
    ],
)
def test_a_small_slice_does_not_cost_as_much_as_the_column(field: str, data_type: pa.DataType, value: Any) -> None:
    values = struct_of(data_type, [], *[value] * 99_998, None).slice(10, 99_990)
    part = encodable(values.slice(99_980), "Protobuf")
    assert part.get_total_buffer_size() < 2_000
    assert part.to_pylist() == values.slice(99_980).to_pylist()
    if None not in value:
        assert encode(proto3(field), part) == [*encode(proto3(field), struct_of(data_type, value)) * 9, b""]
    whole = encodable(values, "Protobuf")  # is not copied
    assert data_type != whole.type.field(0).type or whole.field(0).buffers()[1].address == (
        values.field(0).buffers()[1].address
    )


def test_large_values_next_to_each_other_are_encoded_in_parts() -> None:
    encoder = ColumnEncoder("value", ProtobufEncoderSettings(schema=ProtobufSource(proto3("string v = 1;"))))
    encoded = encode_all(encoder, struct_of(pa.string(), *["x"] * 9_900, *["y" * (2 << 20)] * 66))
    assert [len(encoded[row].as_buffer()) for row in (0, 9_899, 9_900, 9_965)] == [3, 3, (2 << 20) + 5, (2 << 20) + 5]


def test_a_row_that_is_too_large_alone() -> None:
    encoder = ColumnEncoder("value", ProtobufEncoderSettings(schema=ProtobufSource(proto3("bytes v = 1;"))))
    large = pa.array([b"x" * (128 << 20)], pa.binary())
    values = pa.StructArray.from_arrays([pa.concat_arrays([pa.array([b"a"], pa.binary()), large])], ["v"])
    for part, row in ((values, 1), (values.slice(1), 0)):
        with pytest.raises(InvalidRowError) as raised:
            encoder.encode(part)
        assert raised.value.row == row
        assert str(raised.value) == "value needs more than 128 MiB of Protobuf"
        assert raised.value.advice == "Filter out such rows, or write smaller values."


def test_programs_that_are_not_valid_are_rejected() -> None:
    values, field = struct_of(pa.int32(), 1), [11, 1, 1, 0, -1, 0]
    others = ([11, 1, 0, 0, -1, 0, 1, 0], [11, 1, 1, 4, -1, 0, 1, 0], [11, 1, 1, 0, -1, 5, 1, 0], [*field, 3, 9])
    for numbers in ([], [11], [99], [1, 0], field, *others):
        with pytest.raises(ValueError, match="not a program for Protobuf"):
            ProtobufEncoder(PayloadEncoding(tuple(numbers))).encode(values)


def test_a_message_of_a_deep_type() -> None:
    data_type, value = pa.struct({"i": pa.int32()}), {"i": 1}
    for _ in range(50):
        data_type, value = pa.struct({"m": data_type}), {"m": value}  # type: ignore[dict-item]
    (message,) = encode(proto3("M m = 1; int32 i = 2;"), pa.array([value], data_type))
    assert message is not None
    assert message.endswith(b"\x0a\2\x10\1")
