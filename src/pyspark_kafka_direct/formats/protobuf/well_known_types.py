"""The files that every Protobuf schema may import: those of Google, and those that Confluent's registry has."""

from __future__ import annotations

from typing import Final

_WRAPPERS: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def _google(definitions: str, *imports: str) -> str:
    lines = "".join(f'import "{each}";' for each in imports)
    return f'syntax = "proto3"; package google.protobuf; {lines} {definitions}'


WELL_KNOWN_FILES: Final = {
    "google/protobuf/any.proto": _google("message Any { string type_url = 1; bytes value = 2; }"),
    "google/protobuf/duration.proto": _google("message Duration { int64 seconds = 1; int32 nanos = 2; }"),
    "google/protobuf/empty.proto": _google("message Empty {}"),
    "google/protobuf/field_mask.proto": _google("message FieldMask { repeated string paths = 1; }"),
    "google/protobuf/source_context.proto": _google("message SourceContext { string file_name = 1; }"),
    "google/protobuf/struct.proto": _google(
        """
        message Struct { map<string, Value> fields = 1; }
        message Value {
          oneof kind {
            NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
            Struct struct_value = 5; ListValue list_value = 6;
          }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }
        """
    ),
    "google/protobuf/timestamp.proto": _google("message Timestamp { int64 seconds = 1; int32 nanos = 2; }"),
    "google/protobuf/wrappers.proto": _google(
        "".join(f"message {name}Value {{ {name.lower()} value = 1; }}" for name in _WRAPPERS)
    ),
    # These define options and descriptions of types, which decoders do not need.
    "google/protobuf/descriptor.proto": _google(""),
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; '
        "int32 scale = 3; }"
    ),
}
"""The definitions of files by their names, without what decoders skip."""

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPERS)
