"""What cannot be read in a Protobuf schema matters only for a wanted field."""

from __future__ import annotations

import base64
import importlib
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.unit.payloads.protobuf_data import file_descriptor, malformed

from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.protobuf.encoder_program import compile_encoder
from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
from pyspark_kafka_direct.payloads.protobuf.registry_messages import WriterMessages
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, parse_protobuf_schema
from pyspark_kafka_direct.payloads.protobuf.spark_types import spark_ddl
from pyspark_kafka_direct.payloads.protobuf.well_known_types import WELL_KNOWN_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fake_registry import FakeRegistry

LACKING = """
syntax = "proto3";
import "buf/validate/validate.proto";
import "other.proto";
message M {
  int32 id = 1 [(buf.validate.field).int32.gt = 0];
  o.Other other = 2;
  repeated o.Other list = 3;
  map<string, o.Other> by_name = 4;
  oneof choice { o.Other one = 5; string two = 6; }
  Inner inner = 7;
  message Inner { o.Other deep = 1; int32 x = 2; }
}
"""


def descriptors_without_imports() -> str:
    text = LACKING.replace("[(buf.validate.field).int32.gt = 0]", "").replace('import "other.proto";', "package o;")
    file = file_descriptor(text.replace('import "buf/validate/validate.proto";', "") + "message Other { int32 i = 1; }")
    other = file.message_type.pop(1)
    assert other.name == "Other"
    file.dependency.append("other.proto")
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()


@pytest.mark.parametrize("form", ["text", "descriptors"])
def test_types_of_files_that_are_missing(form: str) -> None:
    text = LACKING if form == "text" else descriptors_without_imports()
    source = ProtobufSource(text)
    schema = parse_protobuf_schema(text)
    data = b"\x08\x07\x12\x02\x08\x01\x1a\x00\x22\x05\x0a\x01k\x12\x00\x2a\x02\x08\x01\x3a\x06\x0a\x02\x08\x01\x10\x05"
    fields = {"id": pa.int32(), "inner": pa.struct({"x": pa.int32()}), "two": pa.string()}
    decoded = ProtobufColumn(pa.struct(fields), source).decode(pa.array([data, data + b"\x32\x01z"], pa.binary()))
    assert malformed(decoded) == [None, None]
    first = {"id": 7, "inner": {"x": 5}, "two": None}
    assert decoded.values.to_pylist() == [first, {**first, "two": "z"}]
    message = schema.message(None)
    inner = pa.struct({"i": pa.int32()})
    wanted: Mapping[str, tuple[pa.DataType, str]] = {
        "other": (inner, "other"),
        "list": (pa.list_(inner), "list"),
        "by_name": (pa.map_(pa.string(), inner), "by_name.value"),
        "one": (inner, "one"),
        "inner": (pa.struct({"deep": inner}), "inner.deep"),
    }
    for name, (data_type, path) in wanted.items():
        with pytest.raises(
            ProtobufSchemaError, match=rf"^field {path} has the type o\.Other, which is not defined; the schema"
        ):
            make_program(schema, message, [pa.field(name, data_type)])
        with pytest.raises(
            ProtobufSchemaError,
            match=rf"field value\.{path}.* has the type o\.Other, which .*other\.proto.* write without",
        ):
            compile_encoder(schema, message, pa.struct({name: data_type}), "value")
    with pytest.raises(
        ProtobufSchemaError, match=r"^field other has the type .*Other, .* or name the wanted fields with"
    ):
        spark_ddl(schema, message)
    assert compile_encoder(schema, message, pa.struct({"id": pa.int32()}), "value").numbers


def test_a_type_that_no_file_can_define_is_an_error() -> None:
    with pytest.raises(
        ProtobufSchemaError, match="field x of the message M has the type Lacking, which is not defined"
    ):
        parse_protobuf_schema('import "google/protobuf/timestamp.proto"; message M { optional Lacking x = 1; }')


# Of each folder, the package with the compiled files.
_COMPILED = {"google": "google", "confluent": "confluent_kafka.schema_registry.confluent"}
_STUB = "confluent/types/decimal.proto"  # of Go and C#, which publicly imports confluent/type/decimal.proto


@pytest.mark.parametrize(
    "name", [name for name in WELL_KNOWN_FILES if name.partition("/")[0] in _COMPILED and name != _STUB]
)
def test_files_that_a_registry_has_without_references(name: str) -> None:
    folder, _, rest = name.partition("/")
    module = f"{_COMPILED[folder]}.{rest.removesuffix('.proto').replace('/', '.')}_pb2"
    file = importlib.import_module(module).DESCRIPTOR
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    imported = base64.b64encode(proto.SerializeToString()).decode()
    main = f'syntax = "proto3"; import "{name}"; message Main {{ int32 id = 1; }}'
    expected, schema = parse_protobuf_schema(main, [(name, imported)]), parse_protobuf_schema(main)
    assert not schema.missing
    # The installed version of the file may lack fields and values of a later one.
    for message in file.message_types_by_name:
        known = expected.messages[f"{proto.package}.{message}"]
        fields = {field.number: field for field in schema.messages[known.name].fields}
        assert [fields[field.number] for field in known.fields] == known.fields
    for enum in file.enum_types_by_name:
        known_enum = expected.enums[f"{proto.package}.{enum}"]
        assert {*known_enum.values} <= {*schema.enums[known_enum.name].values}
        assert known_enum.closed == schema.enums[known_enum.name].closed


def test_the_other_path_of_a_file() -> None:
    schema = parse_protobuf_schema(
        f'syntax = "proto3"; import "{_STUB}"; message Main {{ confluent.type.Decimal d = 1; }}'
    )
    assert (
        spark_ddl(schema, schema.message("Main"))
        == "struct<`d`: struct<`value`: binary,`precision`: int,`scale`: int>>"
    )


def test_files_that_apicurio_has() -> None:
    schema = parse_protobuf_schema(
        """syntax = "proto3"; import "additionalTypes/decimal.proto"; import "metadata/metadata.proto";
        message Main { additionalTypes.Decimal price = 1 [(metadata.metadata_key) = "x"]; }"""
    )
    assert spark_ddl(schema, schema.message("Main")) == (
        "struct<`price`: struct<`units`: bigint,`fraction`: int,`precision`: int,`scale`: int>>"
    )


def test_errors_name_the_path_of_a_field() -> None:
    text = """
    syntax = "proto3"; import "google/protobuf/struct.proto";
    message M { int32 id = 1; map<string, A> as = 2; } message A { repeated B b = 1; } message B { M again = 1; }
    message S { google.protobuf.Struct data = 1; }
    """
    schema = parse_protobuf_schema(text)
    with pytest.raises(
        ProtobufSchemaError, match=r"^field as\.value\.b\.again: the message type M contains itself.*\.schema"
    ):
        spark_ddl(schema, schema.message("M"))
    with pytest.raises(
        ProtobufSchemaError, match=r"^field data\.fields\.value\.struct_value: .*Struct contains itself.*; do x$"
    ):
        spark_ddl(schema, schema.message("S"), advice="do x")
    program = make_program(schema, schema.message("M"), [pa.field("id", pa.int32())])
    assert program.numbers


READER = """
syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; package shop;
message Order {
  int32 id = 1; int32 amount = 2; Item item = 3; repeated Item items = 4; map<string, Item> named = 5;
  google.protobuf.Timestamp at = 6; google.protobuf.DoubleValue wrapped = 7; map<int32, int32> counts = 8;
}
message Item { int32 count = 1; float price = 2; Order order = 3; }
"""


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (("int32 amount", "sint32 amount"), [{"amount": pa.int32()}]),
        (("float price", "fixed32 price"), [{"item": pa.struct({"price": pa.float32()})}]),
        (
            ("int32 count ", "sint32 count "),
            [
                {"item": pa.struct({"count": pa.int32()})},
                {"items": pa.list_(pa.struct({"count": pa.int32()}))},
                {"named": pa.map_(pa.string(), pa.struct({"count": pa.int32()}))},
                {"item": pa.struct({"order": pa.struct({"items": pa.list_(pa.struct({"count": pa.int32()}))})})},
            ],
        ),
        (("map<int32, int32>", "map<int32, sint32>"), [{"counts": pa.map_(pa.int32(), pa.int32())}]),
        (("map<int32, int32>", "map<sint32, int32>"), [{"counts": pa.map_(pa.int32(), pa.int32())}]),
    ],
)
def test_a_writer_may_change_types_of_fields_that_are_not_wanted(
    registry: FakeRegistry, change: tuple[str, str], fails: list[dict[str, pa.DataType]]
) -> None:
    assert READER.count(change[0]) == 1
    schema_id = registry.add("orders-value", READER.replace(*change), schemaType="PROTOBUF")
    source = ProtobufSource(READER, "shop.Order")
    writers = WriterMessages(RegistrySettings((registry.url,), api_timeout_ms=120_000), source)
    value = pa.array([b"\0" + struct.pack(">I", schema_id) + b"\0\x08\x02"], pa.binary())

    def problems(wanted: Mapping[str, pa.DataType], **options: Any) -> list[Any]:
        column = ProtobufColumn(pa.struct(wanted), source, writers=replace(writers, **options))
        return malformed(column.decode(value))

    others = {"id": pa.int32(), "item": pa.struct({"order": pa.struct({"id": pa.int32()})}), "wrapped": pa.float64()}
    assert problems({**others, "at": pa.timestamp("us", "UTC"), "missing": pa.string()}) == [None]
    for wanted in fails:
        ((message, _),) = problems({**others, **wanted})
        assert "which cannot be read as the" in message


def test_an_unknown_type_is_no_new_value(registry: FakeRegistry) -> None:
    registry.add("other", 'syntax = "proto3"; package o; message Other { int32 i = 1; }', schemaType="PROTOBUF")
    references = [{"name": "other.proto", "subject": "other", "version": 1}]
    schema_id = registry.add("m-value", LACKING, schemaType="PROTOBUF", references=references)
    source = ProtobufSource(LACKING, "M")
    settings = RegistrySettings((registry.url,), api_timeout_ms=120_000)
    writers = WriterMessages(settings, source, fails_at_new_fields=True)
    column = ProtobufColumn(pa.struct({"id": pa.int32()}), source, writers=writers)
    decoded = column.decode(pa.array([b"\0" + struct.pack(">I", schema_id) + b"\0\x08\x02"], pa.binary()))
    assert decoded.malformed is None
    assert decoded.values.to_pylist() == [{"id": 2}]
