"""Reads descriptors: a set of ``protoc --descriptor_set_out``, or a single ``FileDescriptorProto``.

They are messages of google/protobuf/descriptor.proto, in which these fields have the numbers of the code below:

    FileDescriptorSet     1 file
    FileDescriptorProto   1 name, 2 package, 3 dependency, 4 message_type, 5 enum_type, 8 options, 12 syntax, 14 edition
    DescriptorProto       1 name, 2 field, 3 nested_type, 4 enum_type, 7 options, 8 oneof_decl
    FieldDescriptorProto  1 name, 3 number, 4 label, 5 type, 6 type_name, 7 default_value, 8 options, 9 oneof_index,
                          17 proto3_optional
    OneofDescriptorProto  2 options
    EnumDescriptorProto   1 name, 2 value (1 name, 2 number), 3 options
    options of            files: 50 features; messages: 7 map_entry, 12 features; fields: 2 packed, 21 features;
                          oneofs: 1 features; enums: 7 features
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.payloads.protobuf.features import EDITION_NUMBERS, EDITIONS, SUPPORTED, SYNTAXES, Features
from pyspark_kafka_direct.payloads.protobuf.proto_types import (
    MAX_FIELD_NUMBER,
    MAX_FILES,
    MAX_NESTED_TYPES,
    MAX_SCHEMA_BYTES,
    NO_ONEOF,
    ProtobufSchemaError,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# In the order of FieldDescriptorProto.Type, from 1 on.
_TYPES: Final = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_REQUIRED: Final = 2
_REPEATED: Final = 3


class _Content(NamedTuple):
    """The fields of a message by their numbers: integers, and bytes."""

    integers: dict[int, int]
    data: dict[int, list[bytes]]  # strings and messages, which may be repeated

    def text(self, number: int) -> str:
        values = self.data.get(number)
        return values[-1].decode(errors="replace") if values else ""

    def parts(self, number: int) -> Iterator[_Content]:
        return (_parse(each) for each in self.data.get(number, ()))


def parse_descriptor(data: bytes) -> ProtoFile | None:
    """Return the file of a single ``FileDescriptorProto``, or None if it is a set of them."""
    content = _parse(data)
    if len(data) > MAX_SCHEMA_BYTES:
        raise ProtobufSchemaError(f"the descriptors have more than {MAX_SCHEMA_BYTES} bytes")
    # A set has nothing but files. The first field of a file is its name, but a file also has other fields.
    is_set = content.data.keys() <= {1} and not content.integers
    return None if is_set else _file(content)


def parse_descriptor_set(data: bytes) -> dict[str, ProtoFile]:
    """Return the files of a set by their names, in its order."""
    if len(data) > MAX_SCHEMA_BYTES:
        raise ProtobufSchemaError(f"the descriptors have more than {MAX_SCHEMA_BYTES} bytes")
    files: dict[str, ProtoFile] = {}
    for content in _parse(data).parts(1):
        files[content.text(1)] = _file(content)
        if len(files) > MAX_FILES:
            raise ProtobufSchemaError(f"the schema has more than {MAX_FILES} files")
    if not files:
        raise ProtobufSchemaError("the descriptors have no file")
    return files


def _file(content: _Content) -> ProtoFile:
    features = _syntax(content).with_numbers(_features(content, 8, 50))
    package = content.text(2)
    return ProtoFile(
        package,
        imports=[each.decode(errors="replace") for each in content.data.get(3, ())],
        messages=[_message(each, package, features, depth=0) for each in content.parts(4)],
        enums=[_enum(each, package, features) for each in content.parts(5)],
    )


def _syntax(content: _Content) -> Features:
    """Return the features of a file's syntax or edition."""
    syntax = content.text(12) or "proto2"
    if syntax == "editions":
        edition = content.integers.get(14, 0)
        features = EDITIONS.get(EDITION_NUMBERS.get(edition, ""))
        syntax = f"of the edition {edition}"
    else:
        features = SYNTAXES.get(syntax)
    if features is None:
        raise ProtobufSchemaError(f"the syntax {syntax} is not supported; {SUPPORTED}")
    return features


def _features(content: _Content, options: int, features: int) -> dict[int, int]:
    """Return the features in the options of a type or field, by the numbers of both fields."""
    found: dict[int, int] = {}
    for each in content.parts(options):
        for part in each.parts(features):
            found |= part.integers
    return found


def _message(content: _Content, scope: str, features: Features, depth: int) -> ProtoMessage:
    if depth > MAX_NESTED_TYPES:
        raise ProtobufSchemaError(f"types are nested more than {MAX_NESTED_TYPES} levels deep")
    name = _join(scope, content.text(1))
    features = features.with_numbers(_features(content, 7, 12))
    oneofs = [features.with_numbers(_features(each, 2, 1)) for each in content.parts(8)]
    return ProtoMessage(
        name,
        fields=[_field(each, features, oneofs) for each in content.parts(2)],
        messages=[_message(each, name, features, depth + 1) for each in content.parts(3)],
        enums=[_enum(each, name, features) for each in content.parts(4)],
        is_map_entry=any(options.integers.get(7) for options in content.parts(7)),
    )


def _field(content: _Content, features: Features, oneofs: list[Features]) -> ProtoField:
    number, kind = content.integers.get(3, 0), content.integers.get(5, 0)
    if not 1 <= number <= MAX_FIELD_NUMBER or not 1 <= kind <= len(_TYPES):
        raise ProtobufSchemaError(f"field {content.text(1)} has no valid number or type")
    label, oneof = content.integers.get(4), content.integers.get(9, NO_ONEOF)
    repeated, in_oneof = label == _REPEATED, oneof != NO_ONEOF
    if in_oneof and oneof >= len(oneofs):
        raise ProtobufSchemaError(f"field {content.text(1)} is in a oneof that its message lacks")
    features = (oneofs[oneof] if in_oneof else features).with_numbers(_features(content, 8, 21))
    packed = [options.integers[2] != 0 for options in content.parts(8) if 2 in options.integers]
    is_proto3_optional = bool(content.integers.get(17))  # protoc puts such a field alone into a oneof
    return ProtoField(
        content.text(1),
        number,
        type=_TYPES[kind - 1],
        type_name=content.text(6),
        repeated=repeated,
        has_presence=not repeated and (not features.implicit_presence or in_oneof),
        oneof=NO_ONEOF if is_proto3_optional else oneof,
        default=content.text(7) if 7 in content.data else None,
        required=label == _REQUIRED or (features.required and not repeated and not in_oneof),
        packed=repeated and (packed[-1] if packed else features.packed),  # the field's own option takes precedence
        checks_strings=features.checks_strings,
        delimited=features.delimited,
    )


def _enum(content: _Content, scope: str, features: Features) -> ProtoEnum:
    values = [(value.text(1), _int32(value.integers.get(2, 0))) for value in content.parts(2)]
    if not values:
        raise ProtobufSchemaError(f"the enum {content.text(1)} has no values")
    features = features.with_numbers(_features(content, 3, 7))
    return ProtoEnum(_join(scope, content.text(1)), values, closed=features.closed_enums)


def _int32(value: int) -> int:
    """Return the number of a varint: negative ones have 64 bits there."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _parse(data: bytes) -> _Content:
    """Parse one message, of which descriptors have only integers and bytes that matter here."""
    content = _Content({}, {})
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:  # a varint
                content.integers[tag >> 3], at = _varint(data, at)
            case 2:  # bytes, a string or a message
                size, at = _varint(data, at)
                if size > len(data) - at:
                    raise _not_descriptors()
                content.data.setdefault(tag >> 3, []).append(data[at : at + size])
                at += size
            case 1 | 5 as wire_type:  # a double or float, of which none is needed
                at += 8 if wire_type == 1 else 4
            case _:  # a group, which descriptors do not have
                raise _not_descriptors()
    return content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise _not_descriptors()


def _not_descriptors() -> ProtobufSchemaError:
    return ProtobufSchemaError("it is not a set of descriptors, which protoc writes with --descriptor_set_out")
