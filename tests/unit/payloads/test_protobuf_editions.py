"""Files with an edition: as text and as descriptors, compared with Google's library."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.unit.payloads.protobuf_data import malformed

from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, parse_protobuf_schema
from pyspark_kafka_direct.payloads.protobuf.spark_types import spark_ddl

TEXT = """
edition = "2023";
package e;
option java_package = "e";
option features.field_presence = IMPLICIT;
option features.(pb.go).api_level = API_OPAQUE;
message M {
  option features = { utf8_validation: NONE, enum_type: OPEN; };
  int32 implicit = 1;
  int32 explicit = 2 [features.field_presence = EXPLICIT];
  repeated int32 packed = 3;
  repeated int32 expanded = 4 [deprecated = true, features.repeated_field_encoding = EXPANDED];
  string unchecked = 5;
  string checked = 6 [features.utf8_validation = VERIFY, json_name = "x"];
  Open open = 7;
  Closed closed = 8 [features.field_presence = EXPLICIT, default = TWO];
  Inner inner = 9;
  Inner delimited = 10 [features.message_encoding = DELIMITED];
  int32 needed = 11 [features.field_presence = LEGACY_REQUIRED];
  map<string, Inner> by_name = 12;
  oneof choice { option features.utf8_validation = VERIFY; int32 a = 13; string b = 14; }
  repeated Closed numbers = 15 [features = {repeated_field_encoding: EXPANDED}];
  reserved old, older;
  message Inner { int32 x = 1; }
  enum Open { ZERO = 0; }
  enum Closed { option features.enum_type = CLOSED; ONE = 1; TWO = 2; }
}
message Other { string checked = 1; M.Inner inner = 2; }
"""
_SCALARS = {"int32": 5, "string": 9}
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor that protoc makes of the text."""
    features = descriptor_pb2.FeatureSet
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="editions", edition="EDITION_2023")
    file.options.features.field_presence = features.IMPLICIT
    message = file.message_type.add(name="M")
    message.options.features.utf8_validation = features.NONE
    message.options.features.enum_type = features.OPEN
    message.oneof_decl.add(name="choice").options.features.utf8_validation = features.VERIFY

    def add(
        name: str, number: int, kind: str, *, repeated: bool = False, **more: Any
    ) -> descriptor_pb2.FieldDescriptorProto:
        field = message.field.add(name=name, number=number, label=_REPEATED if repeated else 1)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = field.TYPE_ENUM if kind in ("Open", "Closed") else field.TYPE_MESSAGE
            field.type_name = f".e.M.{kind}"
        for feature, value in more.items():
            setattr(field.options.features, feature, value)
        return field

    add("implicit", 1, "int32")
    add("explicit", 2, "int32", field_presence=features.EXPLICIT)
    add("packed", 3, "int32", repeated=True)
    add("expanded", 4, "int32", repeated=True, repeated_field_encoding=features.EXPANDED)
    add("unchecked", 5, "string")
    add("checked", 6, "string", utf8_validation=features.VERIFY)
    add("open", 7, "Open")
    add("closed", 8, "Closed", field_presence=features.EXPLICIT).default_value = "TWO"
    add("inner", 9, "Inner")
    add("delimited", 10, "Inner", message_encoding=features.DELIMITED)
    add("needed", 11, "int32", field_presence=features.LEGACY_REQUIRED)
    add("by_name", 12, "ByNameEntry", repeated=True)
    for name, number, kind in (("a", 13, "int32"), ("b", 14, "string")):
        add(name, number, kind).oneof_index = 0
    add("numbers", 15, "Closed", repeated=True, repeated_field_encoding=features.EXPANDED)
    message.nested_type.add(name="Inner").field.add(name="x", number=1, type=_SCALARS["int32"], label=1)
    entry = message.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_SCALARS["string"], label=1)
    entry.field.add(name="value", number=2, type=entry.field[0].TYPE_MESSAGE, type_name=".e.M.Inner", label=1)
    message.enum_type.add(name="Open").value.add(name="ZERO", number=0)
    closed = message.enum_type.add(name="Closed")
    closed.options.features.enum_type = features.CLOSED
    for number, name in enumerate(("ONE", "TWO"), 1):
        closed.value.add(name=name, number=number)
    other = file.message_type.add(name="Other")
    other.field.add(name="checked", number=1, type=_SCALARS["string"], label=1)
    other.field.add(name="inner", number=2, type=other.field[0].TYPE_MESSAGE, type_name=".e.M.Inner", label=1)
    return file


DESCRIPTORS = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file_descriptor()]).SerializeToString()).decode()


def google_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.mark.parametrize("text", [TEXT, DESCRIPTORS], ids=["text", "descriptors"])
def test_features_are_those_of_google(text: str) -> None:
    schema = parse_protobuf_schema(text)
    for name in ("e.M", "e.Other", "e.M.Inner", "e.M.ByNameEntry"):
        expected = google_class("e.M").DESCRIPTOR.file.pool.FindMessageTypeByName(name)
        message = schema.messages[name]
        assert [field.name for field in message.fields] == [field.name for field in expected.fields]
        for field in message.fields:
            other = expected.fields_by_name[field.name]
            assert field.has_presence == other.has_presence, field.name
            assert field.required == other.is_required, field.name
            assert (field.packed and field.type not in ("string", "message")) == other.is_packed, field.name
            assert (field.type == "group") == (other.type == other.TYPE_GROUP), field.name
            if other.enum_type is not None:
                assert schema.enums[other.enum_type.full_name].closed == other.enum_type.is_closed


@pytest.mark.parametrize("text", [TEXT, DESCRIPTORS], ids=["text", "descriptors"])
def test_messages_of_googles_library(text: str) -> None:
    message = google_class("e.M")(
        implicit=0,
        explicit=0,
        packed=[1, 2],
        expanded=[3, 4],
        checked="é",
        inner={"x": 5},
        delimited={"x": 6},
        needed=7,
        by_name={"k": {"x": 8}},
        b="z",
        numbers=[1, 2],
    )
    schema = parse_protobuf_schema(text)
    ddl = spark_ddl(schema, schema.message("M"))
    assert "`delimited`" not in ddl
    fields = {
        "implicit": pa.int32(),
        "explicit": pa.int32(),
        "packed": pa.list_(pa.int32()),
        "expanded": pa.list_(pa.int32()),
        "unchecked": pa.string(),
        "checked": pa.string(),
        "open": pa.string(),
        "closed": pa.string(),
        "inner": pa.struct({"x": pa.int32()}),
        "needed": pa.int32(),
        "numbers": pa.list_(pa.string()),
        "by_name": pa.map_(pa.string(), pa.struct({"x": pa.int32()})),
        "a": pa.int32(),
        "b": pa.string(),
    }
    column = ProtobufColumn(pa.struct(fields), ProtobufSource(text, "M"))
    data = message.SerializeToString()
    unknown = data + b"\x38\x05\x40\x05\x7a\x01\x02"  # numbers that the enums lack; and a packed one
    invalid = [data + b"\x2a\x01\xff", data + b"\x32\x01\xff", data + b"\x72\x01\xff"]
    decoded = column.decode(pa.array([data, unknown, *invalid], pa.binary()))
    first, second, *_ = decoded.values.to_pylist()
    assert first == {
        "implicit": None,
        "explicit": 0,
        "packed": [1, 2],
        "expanded": [3, 4],
        "unchecked": None,
        "checked": "é",
        "open": None,
        "closed": "TWO",
        "inner": {"x": 5},
        "needed": 7,
        "numbers": ["ONE", "TWO"],
        "by_name": [("k", {"x": 8})],
        "a": None,
        "b": "z",
    }
    assert second == {**first, "open": "UNKNOWN_ENUM_VALUE_Open_5", "numbers": ["ONE", "TWO", "TWO"]}
    assert [error is None for error in malformed(decoded)] == [True, True, True, False, False]


def test_features_end_with_what_they_are_in() -> None:
    closed, unchecked = "option features.enum_type = CLOSED;", "option features.utf8_validation = NONE;"
    schema = parse_protobuf_schema(
        f"""edition = "2023"; enum A {{ {closed} X = 0; }} enum B {{ Y = 0; }}
        message M {{ {closed} enum C {{ Z = 0; }} oneof o {{ {unchecked} string s = 1; }} string t = 2; }}
        message N {{ oneof o {{ string s = 1; }} enum D {{ {closed} V = 0; }} enum E {{ W = 0; }} }}
        enum F {{ U = 0; }}"""
    )
    is_closed = {name: enum.closed for name, enum in schema.enums.items()}
    assert is_closed == {"A": True, "B": False, "M.C": True, "N.D": True, "N.E": False, "F": False}
    checked = [field.checks_strings for name in "MN" for field in schema.messages[name].fields]
    assert checked == [False, True, True]


def test_fields_have_the_features_of_their_oneof() -> None:
    features = descriptor_pb2.FeatureSet
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="editions", edition="EDITION_2023")
    message = file.message_type.add(name="M")
    for number, validation in enumerate((features.VERIFY, features.NONE, features.VERIFY)):
        message.oneof_decl.add(name=f"o{number}").options.features.utf8_validation = validation
        message.field.add(name=f"s{number}", number=number + 1, label=1, type=_SCALARS["string"], oneof_index=number)
    schema = parse_protobuf_schema(base64.b64encode(file.SerializeToString()).decode())
    assert [field.checks_strings for field in schema.message("M").fields] == [True, False, True]


def test_the_edition_2024() -> None:
    text = """
    edition = "2024";
    import option "options.proto";
    export message M { local enum E { A = 0; } export message Inner { int32 local = 1; } Inner export = 1; E e = 2; }
    local enum Other { B = 0; }
    """
    schema = parse_protobuf_schema(text)
    assert spark_ddl(schema, schema.message("M")) == "struct<`export`: struct<`local`: int>,`e`: string>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('edition = "2022";', "the syntax 2022 is not supported; use proto2, proto3, or the edition 2023 or 2024"),
        ('syntax = "2023";', "the syntax 2023 is not supported"),
        ('edition = "2023"; message M {} option features.enum_type = OPEN;', "options of features come before"),
        ('edition = "2023"; message M { int32 x = 1; option features.enum_type = OPEN; }', "options of features come"),
    ],
)
def test_other_editions_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ProtobufSchemaError) as caught:
        parse_protobuf_schema(text)
    assert message in str(caught.value)


def test_descriptors_of_other_editions_are_rejected() -> None:
    file = file_descriptor()
    file.edition = 999
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(ProtobufSchemaError, match=r"the syntax of the edition 999 is not supported; use proto2"):
        parse_protobuf_schema(base64.b64encode(data).decode())
