"""A schema with all types of Protobuf, its messages by Google's library, and what decoders make of them."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema
from pyspark_kafka_direct.payloads.protobuf.well_known_types import DURATION, TIMESTAMP

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
    from pyspark_kafka_direct.payloads.protobuf.proto_types import (
        ProtobufSchema,
        ProtoEnum,
        ProtoField,
        ProtoFile,
        ProtoMessage,
    )

ALL_TYPES: Final = """
syntax = "proto3";
package test.all;

import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

// Everything that a field can be.
message Everything {
  option deprecated = false;
  reserved 90 to 95, 99;
  reserved "gone";
  enum Color { option allow_alias = true; NONE = 0; RED = 1; ROT = 1; GREEN = 2; DARK = -5; }
  message Inner {
    int32 number = 1;
    string text = 2;
    repeated sint64 numbers = 3;
    Inner deeper = 4 [deprecated = true];
    map<string, int32> counts = 5;
  }
  bool a_bool = 1;
  int32 an_int32 = 2;
  uint32 a_uint32 = 3;
  int64 an_int64 = 4;
  uint64 a_uint64 = 5;
  sint32 a_sint32 = 6;
  sint64 a_sint64 = 7;
  fixed32 a_fixed32 = 8;
  sfixed32 a_sfixed32 = 9;
  fixed64 a_fixed64 = 10;
  sfixed64 a_sfixed64 = 11;
  float a_float = 12;
  double a_double = 13;
  string a_string = 14;
  bytes a_bytes = 15;
  Color a_color = 16;
  Inner an_inner = 17;
  optional int32 an_optional = 18;
  repeated int32 int32s = 19;
  repeated double doubles = 20 [packed = false];
  repeated string strings = 21;
  repeated Color colors = 22;
  repeated Inner inners = 23;
  map<string, Inner> inners_by_name = 24;
  map<int64, string> names = 25;
  map<bool, double> doubles_by_bool = 26;
  oneof choice {
    int32 first = 27;
    string second = 28;
    Inner third = 29;
  }
  .google.protobuf.Timestamp a_time = 30;
  google.protobuf.Duration a_duration = 31;
  google.protobuf.Int64Value a_wrapped = 32;
  repeated google.protobuf.Timestamp times = 300;
  map<string, google.protobuf.Timestamp> times_by_name = 301;
  repeated google.protobuf.StringValue wrapped_strings = 302;
  repeated fixed32 fixed32s = 303;
  repeated bool bools = 100000;
}

service Ignored { rpc Get (Everything) returns (stream Everything) { option deprecated = true; } }
"""

PROTO2: Final = """
syntax = 'proto2';
package test.two;
message Legacy {
  enum Level { LOW = 1; HIGH = 0x2; }
  required int32 id = 1;
  optional string name = 2 [default = "no" 'body', deprecated = true];
  optional Level level = 3 [default = HIGH];
  repeated Level levels = 4;
  repeated int32 numbers = 5 [packed = true];
  optional double ratio = 6 [default = -1.5e3];
  optional bool flag = 7 [default = true];
  optional group Part = 8 { optional int32 size = 1; }
  optional bytes data = 9 [default = "\\001\\377a"];
  optional float infinite = 10 [default = inf];
  extensions 100 to max;
}
extend Legacy { optional int32 more = 100; }
"""

CLOSED: Final = """
syntax = 'proto2';
package test.closed;
message Closed {
  enum Level { LOW = 1; HIGH = 2; }
  enum Kind { NONE = 0; SOME = 2; }
  message Inner {
    oneof choice { Level level = 1; string text = 2; }
    map<int32, Kind> kinds = 3;
    repeated Level list = 4;
    optional group Deep = 5 { optional Level level = 1; repeated Inner inners = 2; map<sint32, Kind> kinds = 3; }
  }
  oneof choice {
    int32 number = 1;
    Level level = 2;
    Inner inner = 3;
    group Part = 4 { optional string text = 1; repeated int32 numbers = 2 [packed = true]; optional Inner inner = 3; }
    bytes data = 5;
  }
  oneof other { Level first = 6; Level second = 7; }
  map<int64, Kind> kinds_by_number = 8;
  map<bool, Inner> inners_by_flag = 9;
  repeated Level packed = 10 [packed = true];
  repeated Level unpacked = 11;
  optional Level single = 12;
  optional Level with_default = 13 [default = HIGH];
  optional Inner another = 14;
  repeated Inner inners = 15;
  repeated group Many = 16 { required Level level = 1; repeated Many many = 2; }
}
"""

_TYPES: Final = {
    name.removeprefix("TYPE_").lower(): number for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


_ARROW: Final = {
    "bool": pa.bool_(),
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), pa.int64()),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}
_MOMENTS: Final = {TIMESTAMP: pa.timestamp("us", tz="UTC"), DURATION: pa.duration("us")}


def arrow_fields(schema: ProtobufSchema, message: ProtoMessage, depth: int = 0) -> list[pa.Field]:
    """Return the fields of a message type; one that contains itself has two levels."""
    fields = []
    for field in message.fields:
        entry = schema.messages.get(field.type_name)
        if entry is not None and entry.is_map_entry:
            key, value = (_arrow_value(schema, each, depth) for each in entry.fields)
            fields.append(pa.field(field.name, pa.map_(key, value)))
        elif field.type != "group" and not (depth == 2 and field.name == "deeper"):
            data_type = _arrow_value(schema, field, depth)
            fields.append(pa.field(field.name, pa.list_(data_type) if field.repeated else data_type))
    return fields


def decode(
    text: str,
    values: list[bytes | None],
    fields: list[pa.Field] | None = None,
    starts: list[int | None] | None = None,
    *,
    emits_defaults: bool = False,
) -> DecodedValues:
    if fields is None:
        decoder = _decoder(text, emits_defaults)
    else:
        schema = parse_protobuf_schema(text)
        program = make_program(schema, schema.message(None), fields, emits_defaults=emits_defaults)
        decoder = ProtobufDecoder(pa.schema(fields), program)
    decoded = decoder.decode(pa.array(values, pa.binary()), None if starts is None else pa.array(starts, pa.int32()))
    decoded.values.validate(full=True)
    return decoded


def decode_in_batches(text: str, values: list[bytes], max_bytes: int) -> list[DecodedValues]:
    """Decode messages in several batches, as callers do."""
    decoder = _decoder(text, False, max_bytes)
    rest = pa.array(values, pa.binary())
    batches = []
    while len(rest):
        batch = decoder.decode(rest)
        batch.values.validate(full=True)
        batches.append(batch)
        rest = rest.slice(len(batch.values))
    return batches


@functools.lru_cache(maxsize=16)  # as for the batches of a task, and a new one takes longer than a few messages
def _decoder(text: str, emits_defaults: bool, *max_bytes: int) -> ProtobufDecoder:
    schema = parse_protobuf_schema(text)
    message = schema.message(None)
    fields = arrow_fields(schema, message)
    program = make_program(schema, message, fields, emits_defaults=emits_defaults)
    return ProtobufDecoder(pa.schema(fields), program, *max_bytes)


def malformed(decoded: DecodedValues) -> list[tuple[str, int] | None]:
    """Return reason and position of each malformed value."""
    if decoded.malformed is None:
        return [None] * len(decoded.values)
    reasons, positions = decoded.malformed.reasons.to_pylist(), decoded.malformed.positions.to_pylist()
    return [None if reason is None else (reason, position) for reason, position in zip(reasons, positions, strict=True)]


def as_integers(array: pa.Array) -> list[Any]:
    """Return values, with maps as dicts, and timestamps and durations as microseconds, which Python may not hold."""
    data_type, nulls = array.type, array.is_null().to_pylist()
    values: list[Any]
    if pa.types.is_struct(data_type):
        columns = {field.name: as_integers(array.field(index)) for index, field in enumerate(data_type)}
        values = [{name: column[row] for name, column in columns.items()} for row in range(len(array))]
    elif pa.types.is_map(data_type):
        keys, items, ends = as_integers(array.keys), as_integers(array.items), array.offsets.to_pylist()
        values = [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in pairwise(ends)]
    elif pa.types.is_list(data_type):
        items, ends = as_integers(array.values), array.offsets.to_pylist()
        values = [items[start:end] for start, end in pairwise(ends)]
    elif pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        values = array.cast(pa.int64()).to_pylist()
    else:
        values = [_comparable(value) for value in array.to_pylist()]
    return [None if is_null else value for is_null, value in zip(nulls, values, strict=True)]


def message_class(text: str, name: str) -> type[Message]:
    """Return Google's class of a message type."""
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import duration_pb2, timestamp_pb2, wrappers_pb2

    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file_descriptor(text))
    cls: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return cls


def file_descriptor(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file, by the parser under test; Google's pool checks it."""
    file: ProtoFile = parse_protobuf_schema(text).main
    syntax = "proto2" if "'proto2'" in text else "proto3"
    proto = descriptor_pb2.FileDescriptorProto(
        name="test.proto", package=file.package, dependency=file.imports, syntax=syntax
    )
    proto.message_type.extend(_message(each, syntax) for each in file.messages)
    proto.enum_type.extend(_enum(each) for each in file.enums)
    return proto


def plain(message: Message, depth: int = 0) -> dict[str, Any]:
    """Return what a decoder makes of a message: a value of 0 that is not present is None."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.type == field.TYPE_GROUP or (depth == 2 and field.name == "deeper"):
            continue
        inner = depth
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            row[field.name] = {key: _value(value_field, value[key], inner) for key in value}
        elif field.is_repeated:
            row[field.name] = [_value(field, each, inner) for each in value]
        elif field.has_presence:
            has_value = message.HasField(field.name) or field.has_default_value
            row[field.name] = _value(field, value, inner) if has_value else None
        else:
            is_set = any(each.name == field.name for each, _ in message.ListFields())
            row[field.name] = _value(field, value, inner) if is_set else None
    return row


def _value(field: Any, value: Any, depth: int) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        first = [each.name for each in field.enum_type.values if each.number == value]
        return first[0] if known else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}"
    if field.message_type is None:
        if field.type in (field.TYPE_UINT32, field.TYPE_FIXED32):
            return (value + (1 << 31)) % (1 << 32) - (1 << 31)
        if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
            return (value + (1 << 63)) % (1 << 64) - (1 << 63)
        if field.type == field.TYPE_STRING:
            data = value if isinstance(value, bytes) else value.encode(errors="surrogateescape")
            return data.decode(errors="replace")
        return _comparable(value)
    name = field.message_type.full_name
    if name in (TIMESTAMP, DURATION):
        return value.seconds * 1_000_000 + int(value.nanos / 1000)
    return plain(value, depth + 1)


def _arrow_value(schema: ProtobufSchema, field: ProtoField, depth: int) -> pa.DataType:
    if field.type_name in _MOMENTS:
        return _MOMENTS[field.type_name]
    if field.type == "message":
        return pa.struct(arrow_fields(schema, schema.messages[field.type_name], depth + 1))
    return _ARROW[field.type]


def _comparable(value: Any) -> Any:
    return "NaN" if value != value else value


def _message(message: ProtoMessage, syntax: str) -> descriptor_pb2.DescriptorProto:
    proto = descriptor_pb2.DescriptorProto(name=message.name.rpartition(".")[2])
    proto.nested_type.extend(_message(each, syntax) for each in message.messages)
    proto.enum_type.extend(_enum(each) for each in message.enums)
    proto.options.map_entry = message.is_map_entry
    oneofs = max((each.oneof for each in message.fields), default=-1) + 1
    for index in range(oneofs):
        proto.oneof_decl.add(name=f"oneof{index}")
    for each in message.fields:
        field = _field(each, proto, syntax, in_map=message.is_map_entry)
        proto.field.append(field)
    return proto


def _field(
    each: ProtoField, message: descriptor_pb2.DescriptorProto, syntax: str, *, in_map: bool
) -> descriptor_pb2.FieldDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto(name=each.name, number=each.number, type=_TYPES[each.type])
    field.label = 3 if each.repeated else 2 if each.required else 1
    if each.repeated and each.type not in ("string", "bytes", "message", "group"):
        field.options.packed = each.packed
    if each.type_name:
        field.type_name = f".{each.type_name}"
    if each.default is not None:
        field.default_value = each.default
    if each.oneof >= 0:
        field.oneof_index = each.oneof
    elif syntax == "proto3" and each.has_presence and each.type != "message" and not in_map:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{each.name}")
    return field


def _enum(enum: ProtoEnum) -> descriptor_pb2.EnumDescriptorProto:
    proto = descriptor_pb2.EnumDescriptorProto(name=enum.name.rpartition(".")[2])
    proto.value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number) for name, number in enum.values
    )
    if len({number for _, number in enum.values}) < len(enum.values):
        proto.options.allow_alias = True
    return proto
