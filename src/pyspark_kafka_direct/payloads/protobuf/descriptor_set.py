"""Reads descriptors: a set of ``protoc --descriptor_set_out``, or a single ``FileDescriptorProto``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.payloads.protobuf.features import EDITION_NUMBERS, EDITIONS, SUPPORTED, SYNTAXES, Features
from pyspark_kafka_direct.payloads.protobuf.proto_types import (
    MAX_FIELD_NUMBER,
    MAX_FILES,
    MAX_NESTED_TYPES,
    MAX_SCHEMA_BYTES,
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
    data: dict[int, list[bytes]]

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
    return None if content.data.keys() <= {1} and not content.integers else _file(content)


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
        [each.decode(errors="replace") for each in content.data.get(3, ())],
        [_message(each, package, features, 0) for each in content.parts(4)],
        [_enum(each, package, features) for each in content.parts(5)],
    )


def _syntax(content: _Content) -> Features:
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
        [_field(each, features, oneofs) for each in content.parts(2)],
        [_message(each, name, features, depth + 1) for each in content.parts(3)],
        [_enum(each, name, features) for each in content.parts(4)],
        is_map_entry=any(options.integers.get(7) for options in content.parts(7)),
    )


def _field(content: _Content, features: Features, oneofs: list[Features]) -> ProtoField:
    number, kind = content.integers.get(3, 0), content.integers.get(5, 0)
    if not 1 <= number <= MAX_FIELD_NUMBER or not 1 <= kind <= len(_TYPES):
        raise ProtobufSchemaError(f"field {content.text(1)} has no valid number or type")
    repeated = content.integers.get(4) == _REPEATED
    in_oneof = 9 in content.integers
    if in_oneof and content.integers[9] >= len(oneofs):
        raise ProtobufSchemaError(f"field {content.text(1)} is in a oneof that its message lacks")
    outer = oneofs[content.integers[9]] if in_oneof else features
    features = outer.with_numbers(_features(content, 8, 21))
    packed = [options.integers[2] != 0 for options in content.parts(8) if 2 in options.integers]
    return ProtoField(
        content.text(1),
        number,
        _TYPES[kind - 1],
        content.text(6),
        repeated,
        has_presence=not repeated and (not features.implicit_presence or in_oneof),
        oneof=content.integers[9] if in_oneof and not content.integers.get(17) else -1,
        default=content.text(7) if 7 in content.data else None,
        required=content.integers.get(4) == _REQUIRED or (features.required and not repeated and not in_oneof),
        packed=repeated and (packed[-1] if packed else features.packed),
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
            case 0:
                content.integers[tag >> 3], at = _varint(data, at)
            case 2:
                size, at = _varint(data, at)
                if size > len(data) - at:
                    raise _not_descriptors()
                content.data.setdefault(tag >> 3, []).append(data[at : at + size])
                at += size
            case 1 | 5 as wire_type:
                at += 8 if wire_type == 1 else 4
            case _:
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
