"""The parser of ``.proto`` files and of descriptors, and the types that follow from them."""

from __future__ import annotations

import base64
import time
from typing import Any, SupportsIndex

import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2
from tests.unit.payloads.protobuf_data import ALL_TYPES, PROTO2, file_descriptor, message_class

from pyspark_kafka_direct.payloads.protobuf.proto_parser import parse_proto
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema
from pyspark_kafka_direct.payloads.protobuf.spark_types import TypeOptions, spark_ddl


def ddl(text: str, name: str | None = None, options: TypeOptions | None = None) -> str:
    schema = parse_protobuf_schema(text)
    return spark_ddl(schema, schema.message(name), options or TypeOptions())


def chain(length: int) -> str:
    """Return a schema in which each message has the next one."""
    messages = [f"message M{number} {{ optional M{number + 1} next = 1; }}" for number in range(length)]
    return " ".join((*messages, f"message M{length} {{ optional int32 x = 1; }}"))


@pytest.mark.parametrize("text", [ALL_TYPES, PROTO2])
def test_text_and_descriptors_have_the_same_types(text: str) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.append(file_descriptor(text))
    of_text = parse_protobuf_schema(text)
    of_descriptors = parse_protobuf_schema(base64.b64encode(files.SerializeToString()).decode())
    for name, message in of_text.messages.items():
        if name.startswith("test."):
            assert of_descriptors.messages[name] == message
    assert of_descriptors.enums.items() >= of_text.enums.items()


def test_types() -> None:
    text = ALL_TYPES.replace("    Inner deeper = 4 [deprecated = true];\n", "")
    inner = "struct<`number`: int,`text`: string,`numbers`: array<bigint>,`counts`: map<string,int>>"
    found = ddl(text)
    for part in (
        "`a_uint32`: int,",
        "`a_fixed64`: bigint,",
        "`a_color`: string,",
        f"`an_inner`: {inner},",
        f"`inners_by_name`: map<string,{inner}>,",
        "`a_time`: timestamp_ltz,`a_duration`: interval day to second,`a_wrapped`: struct<`value`: bigint>,",
    ):
        assert part in found
    found = ddl(text, None, TypeOptions(upcasts_unsigned=True, enums_as_ints=True, unwraps=True))
    for part in ("`a_uint32`: bigint,", "`a_fixed64`: decimal(20,0),", "`a_color`: int,", "`a_wrapped`: bigint,"):
        assert part in found


def test_names_are_resolved_from_the_innermost_scope() -> None:
    text = """
    package a.b;
    message One { message Two { optional Three x = 1; optional a.b.Three y = 2; optional .a.b.One.Three z = 3; }
      message Three { optional int32 inner = 1; } optional Two two = 1; }
    message Three { optional int32 outer = 1; }
    """
    schema = parse_protobuf_schema(text)
    names = [field.type_name for field in schema.message("a.b.One.Two").fields]
    assert names == ["a.b.One.Three", "a.b.Three", "a.b.One.Three"]
    assert schema.message("One") is schema.message(None)
    assert schema.message_at((0, 1)) is schema.messages["a.b.One.Three"]
    assert schema.message_at((2,)) is None


NESTED = """
message M {
  repeated group Part = 1 { message Deep { optional int32 d = 1; } }
  map<string, int32> tags = 2;
  message Inner { optional int32 i = 1; }
}
"""


def test_message_indexes_of_a_text_count_neither_groups_nor_the_entries_of_maps() -> None:
    schema = parse_protobuf_schema(NESTED)
    assert schema.message_indexes("M.Inner") == (0, 0)
    assert schema.message_at((0, 0)) is schema.messages["M.Inner"]
    assert schema.message_at((0, 1)) is None
    assert schema.message_indexes("M.Part") is None
    assert schema.message_indexes("M.Part.Deep") is None


def test_message_indexes_of_descriptors_count_each_nested_type_as_confluents_serializer() -> None:
    schema = parse_protobuf_schema(base64.b64encode(file_descriptor(NESTED).SerializeToString()).decode())
    for name, indexes in {"M.Part": (0, 0), "M.Part.Deep": (0, 0, 0), "M.Inner": (0, 2)}.items():
        assert schema.message_indexes(name) == indexes
        assert schema.message_at(indexes) is schema.messages[name]
        assert _create_index_array(message_class(NESTED, name).DESCRIPTOR) == list(indexes)


def test_message_indexes_of_names_that_begin_with_another_one() -> None:
    text = 'syntax = "proto3"; message A { message B { } message BC { message D { } } } message AB { message C { } }'
    schema = parse_protobuf_schema(text)
    with pytest.raises(ProtobufSchemaError, match=r"no message type B; it has A, AB$"):
        schema.message("B")
    for name, indexes in {
        "A": (0,),
        "A.B": (0, 0),
        "A.BC": (0, 1),
        "A.BC.D": (0, 1, 0),
        "AB": (1,),
        "AB.C": (1, 0),
    }.items():
        assert schema.message_indexes(name) == indexes
        assert schema.message_at(indexes) is schema.messages[name]


def test_confluents_java_library_writes_maps_as_messages_that_are_entries() -> None:
    text = """
    syntax = "proto3";
    message M {
      repeated TagsEntry tags = 1;
      message TagsEntry { option map_entry = true; string key = 1; int32 value = 2; }
      message Inner { int32 i = 1; }
    }
    """
    schema = parse_protobuf_schema(text)
    assert spark_ddl(schema, schema.message("M")) == "struct<`tags`: map<string,int>>"
    assert schema.message_indexes("M.Inner") == (0, 1)
    assert schema.message_at((0, 1)) is schema.messages["M.Inner"]


def test_imports() -> None:
    main = 'import public "other.proto"; message M { optional o.Other other = 1; }'
    other = """
    syntax = "proto3"; package o; import "google/protobuf/any.proto"; message Other { google.protobuf.Any any = 1; }
    """
    schema = parse_protobuf_schema(main, [("other.proto", other)])
    assert spark_ddl(schema, schema.message("M")) == (
        "struct<`other`: struct<`any`: struct<`type_url`: string,`value`: binary>>>"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message M {", "line 1 of the Protobuf schema: the schema ends within a definition"),
        ('syntax = "proto4";', "line 1 of the Protobuf schema: the syntax proto4 is not supported"),
        ('edition = "1999";', "the syntax 1999 is not supported; use proto2, proto3, or"),
        (
            "message M {\n  optional Lacking x = 1; }",
            "field x of the message M has the type Lacking, which is not defined",
        ),
        ("message M {\n  optional int32 x = 0; }", "line 2 of the Protobuf schema: 0 is not a number from 1 to"),
        ("message M { optional int32 x = 536870912; }", "536870912 is not a number from 1 to 536870911"),
        ("message M { optional string x = 1 [default = {}]; }", "unexpected '{'"),
        (
            "message M { optional int32 x = 1; optional int32 y = 1; }",
            "two fields of the message M have the same number",
        ),
        ("message M { map<float, int32> x = 1; }", "float cannot be the type of the keys of a map"),
        ("message M { optional int32 x = 1 }", "expected ';', not '}'"),
        ("message M \x00", "unexpected"),
        ("}", "unexpected '}'"),
        ("schemas/flight.proto", "unexpected 'schemas'; the schema is the text of a .proto file, not its path"),
        ("message M {} option x = ];", "unexpected ']'"),
        ("message M { enum E {} }", "the enum M.E has no values"),
        ("message A { " * 60 + "}" * 60, "types are nested more than 50 levels deep"),
        ("QUJD", "the descriptors have no file"),
        ("CgUK", "it is not a set of descriptors"),
        ("QUJD=x", "line 1 of the Protobuf schema"),
        ("message M {} // " + "x" * (1 << 20), "the schema has more than"),
    ],
)
def test_invalid_schemas_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ProtobufSchemaError) as caught:
        parse_protobuf_schema(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"type": 11, "type_name": ""}, "field x of the message M has the type , which is not defined"),
        ({"type": 11, "type_name": ".E"}, "field x of the message M has the type .E, which is not defined"),
        ({"type": 14, "type_name": ".M"}, "field x of the message M has the type .M, which is not defined"),
        ({"name": "y"}, "two fields of the message M have the same name"),
        ({"name": "x` int"}, "the message M has a field with the invalid name 'x` int'"),
        ({"oneof_index": 0}, "field x is in a oneof that its message lacks"),
        ({"oneof_index": -1}, "field x is in a oneof that its message lacks"),
    ],
)
def test_invalid_descriptors_are_rejected(damage: dict[str, Any], message: str) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="m.proto")
    file.enum_type.add(name="E").value.add(name="A", number=0)
    fields = file.message_type.add(name="M").field
    for number, name in enumerate("xy", 1):
        fields.add(name=name, number=number, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32)
    for attribute, value in damage.items():
        setattr(fields[0], attribute, value)
    with pytest.raises(ProtobufSchemaError) as caught:
        parse_protobuf_schema(base64.b64encode(files.SerializeToString()).decode())
    assert message in str(caught.value)


def test_each_file_of_a_set_may_import_files_that_the_set_lacks() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    imported = {"one": timestamp_pb2.DESCRIPTOR.name, "two": duration_pb2.DESCRIPTOR.name}
    types = {"one": ".google.protobuf.Timestamp", "two": ".google.protobuf.Duration"}
    for name, other in imported.items():
        file = files.file.add(name=f"{name}.proto", dependency=[other])
        field = file.message_type.add(name=name).field.add(name="at", number=1, type_name=types[name])
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    schema = parse_protobuf_schema(base64.b64encode(files.SerializeToString()).decode())
    assert schema.message(None).name == "two", "the last file is the main one"
    assert [spark_ddl(schema, schema.message(name)) for name in imported] == [
        "struct<`at`: timestamp_ltz>",
        "struct<`at`: interval day to second>",
    ]


def test_the_entry_of_a_map_has_a_key_and_a_value() -> None:
    file = file_descriptor('syntax = "proto3"; message M { map<string, int32> m = 1; }')
    assert parse_protobuf_schema(base64.b64encode(file.SerializeToString()).decode()).message("M")
    del file.message_type[0].nested_type[0].field[1]
    with pytest.raises(ProtobufSchemaError, match=r"the message M\.MEntry is not a valid entry of a map"):
        parse_protobuf_schema(base64.b64encode(file.SerializeToString()).decode())


def test_the_value_of_a_map_is_no_group() -> None:
    file = file_descriptor('syntax = "proto3"; message M { map<string, N> m = 1; } message N { int32 i = 1; }')
    file.message_type[0].nested_type[0].field[1].type = descriptor_pb2.FieldDescriptorProto.TYPE_GROUP
    with pytest.raises(ProtobufSchemaError, match=r"the message M\.MEntry is not a valid entry of a map"):
        parse_protobuf_schema(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize("damage", ["no field", "another number", "itself", "two fields"])
def test_wrappers_have_one_field(damage: str) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(wrappers_pb2.DESCRIPTOR.serialized_pb)
    wrapper = next(message for message in files.file[0].message_type if message.name == "Int64Value")
    match damage:
        case "no field":
            del wrapper.field[:]
        case "two fields":
            wrapper.field.add(name="more", number=2, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32)
        case "another number":
            wrapper.field[0].number = 2
        case "itself":
            wrapper.field[0].type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            wrapper.field[0].type_name = ".google.protobuf.Int64Value"
    with pytest.raises(ProtobufSchemaError, match=r"the message google\.protobuf\.Int64Value is not that of Google"):
        parse_protobuf_schema(base64.b64encode(files.SerializeToString()).decode())


def test_types_that_spark_lacks_are_rejected() -> None:
    with pytest.raises(ProtobufSchemaError, match=r"the message type test\.all\.Everything\.Inner contains itself"):
        ddl(ALL_TYPES)
    with pytest.raises(ProtobufSchemaError, match="the message type Empty has no fields"):
        ddl("message Empty { extensions 1 to 5; reserved 7; }")
    with pytest.raises(ProtobufSchemaError, match="the message type M has no fields but groups, which are not decoded"):
        ddl("message M { optional group G = 1 { optional int32 x = 1; } }")
    with pytest.raises(ProtobufSchemaError, match="the message type M has no fields but groups, which are not decoded"):
        ddl("message M { optional E e = 1; optional group G = 2 { optional int32 x = 1; } } message E { }", "M")
    with pytest.raises(ProtobufSchemaError, match="the schema has no message type Other; it has M"):
        ddl("message M { optional int32 x = 1; }", "Other")
    with pytest.raises(ProtobufSchemaError, match="the schema has no message type"):
        ddl("enum E { A = 1; }")
    with pytest.raises(ProtobufSchemaError, match="the message type M0 has more than 60 levels of messages"):
        ddl(chain(1000))


def test_the_time_for_white_space_is_proportional_to_its_size() -> None:
    text = "message A" + " " * 900_000 + "{ optional int32 a = 1; }"
    start = time.process_time()
    assert parse_protobuf_schema(text).message("A").fields[0].name == "a"
    assert time.process_time() - start < 120  # in quadratic time, it takes an hour


class CopiedText(str):
    """A text that counts the characters that are copied from it."""

    copied = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        self.copied += len(found)
        return found


def test_empty_statements_do_not_copy_the_rest_of_the_text() -> None:
    """With a megabyte of them, the copies take a minute."""
    text = CopiedText("enum E { X = 0;" + ";" * 10_000 + "} message A { optional int32 a = 1; }")
    assert parse_proto(text).messages[0].fields[0].name == "a"
    assert text.copied <= len(text)
