"""Protobuf schemas: the text of a ``.proto`` file with its imports, or a set of descriptors in base64."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.protobuf.descriptor_set import parse_descriptor, parse_descriptor_set
from pyspark_kafka_direct.payloads.protobuf.proto_parser import parse_proto
from pyspark_kafka_direct.payloads.protobuf.proto_types import (
    MAX_FILES,
    MAX_TYPES,
    SCALAR_TYPES,
    UNKNOWN,
    ProtobufSchema,
    ProtobufSchemaError,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
)
from pyspark_kafka_direct.payloads.protobuf.well_known_types import WELL_KNOWN_FILES, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+(=\s*){0,2}")  # a .proto file has other characters


def parse_protobuf_schema(text: str, imports: Iterable[tuple[str, str]] = ()) -> ProtobufSchema:
    """Parse a schema; ``imports`` are the names and texts of files that it imports, besides the well-known ones."""
    main = _parse_file(text)
    if main is None:
        return schema_of_descriptors(base64.b64decode(text))
    files = {"": main}
    return _link(main, files, _add_imports(files, WELL_KNOWN_FILES | dict(imports)))


@dataclass(frozen=True, slots=True)
class ProtobufSource:
    """A Protobuf schema, and the message type of keys or values."""

    schema: str  # the text of a .proto file, or descriptors in base64
    message: str | None = None  # None: the first one of the schema
    imports: tuple[tuple[str, str], ...] = ()  # names and texts of files that the schema imports


@lru_cache(maxsize=64)
def source_schema(source: ProtobufSource) -> ProtobufSchema:
    """Parse a schema, which a process does once."""
    return parse_protobuf_schema(source.schema, source.imports)


def is_descriptor_set(text: str) -> bool:
    """Return whether a valid schema is a set of descriptors, and not one file."""
    return _parse_file(text) is None


def schema_of_descriptors(data: bytes) -> ProtobufSchema:
    """Return the schema of a ``FileDescriptorSet``, whose last file is the main one."""
    files = parse_descriptor_set(data)
    main = list(files.values())[-1]
    return _link(main, files, _add_imports(files, WELL_KNOWN_FILES))


def _add_imports(files: dict[str, ProtoFile], texts: Mapping[str, str]) -> list[str]:
    """Add the files that are imported; return those that are missing, which is no error: they may have only options."""
    missing: dict[str, None] = {}
    wanted = [name for file in files.values() for name in file.imports]
    while wanted:
        name = wanted.pop()
        if name in files:
            continue
        if name not in texts:
            missing[name] = None
            continue
        file = _parse_file(texts[name])
        if file is None:
            raise ProtobufSchemaError(f"the imported {name} is a set of descriptors, not one file")
        files[name] = file
        if len(files) > MAX_FILES + 1:  # the main file does not count
            raise ProtobufSchemaError(f"the schema has more than {MAX_FILES} files")
        wanted += file.imports
    return list(missing)


def _parse_file(text: str) -> ProtoFile | None:
    """Parse the text or the descriptor of a file; None is a set of descriptors."""
    if not _BASE64.fullmatch(text):
        return parse_proto(text)
    try:
        return parse_descriptor(base64.b64decode(text))
    except binascii.Error:
        raise ProtobufSchemaError("it is neither the text of a .proto file nor descriptors in base64") from None


def _link(main: ProtoFile, files: Mapping[str, ProtoFile], missing: list[str]) -> ProtobufSchema:
    """Resolve the names of types. Those of missing files are unknown, which matters only for fields that are read."""
    messages: dict[str, ProtoMessage] = {}
    enums: dict[str, ProtoEnum] = {}
    for file in files.values():
        for message in _all_messages(file.messages):
            messages[message.name] = message
            enums |= {enum.name: enum for enum in message.enums}
        enums |= {enum.name: enum for enum in file.enums}
        if len(messages) + len(enums) > MAX_TYPES:
            raise ProtobufSchemaError(f"the schema has more than {MAX_TYPES} types")
    for message in messages.values():
        _resolve_fields(message, messages, enums, allows_unknown=bool(missing))
    return ProtobufSchema(main, messages, enums, tuple(missing))


def _all_messages(messages: list[ProtoMessage]) -> Iterator[ProtoMessage]:
    for message in messages:
        yield message
        yield from _all_messages(message.messages)


def _resolve_fields(
    message: ProtoMessage,
    messages: Mapping[str, ProtoMessage],
    enums: Mapping[str, ProtoEnum],
    *,
    allows_unknown: bool,
) -> None:
    """Set the types of a message's fields; without ``allows_unknown``, all of them have to be defined."""
    for what in ("number", "name"):
        if len({getattr(field, what) for field in message.fields}) < len(message.fields):
            raise ProtobufSchemaError(f"two fields of the message {message.name} have the same {what}")
    for field in message.fields:
        if not field.name.isidentifier():
            raise ProtobufSchemaError(f"the message {message.name} has a field with the invalid name {field.name!r}")
        if field.type in SCALAR_TYPES:
            continue
        if not _resolve_type(field, message.name, messages, enums):
            if allows_unknown:
                field.type = UNKNOWN
                continue
            raise ProtobufSchemaError(
                f"field {field.name} of the message {message.name} has the type {field.type_name}, which is not defined"
            )
        # Of maps, neither the field nor its values can be written like groups.
        in_map = message.is_map_entry or (field.type == "message" and messages[field.type_name].is_map_entry)
        if field.type == "message" and field.delimited and not in_map:
            field.type = "group"
        if field.type in ("message", "group") and not field.repeated:
            field.has_presence = True  # in all syntaxes
    _check_structure(message)


def _resolve_type(
    field: ProtoField, scope: str, messages: Mapping[str, ProtoMessage], enums: Mapping[str, ProtoEnum]
) -> bool:
    """Set the type of a field in a scope and its full name; return False if no such type is defined."""
    for name in _candidates(field.type_name, scope):
        # A descriptor says what the type is. In the text of a file, only a group does.
        if name in messages and field.type in ("", "message", "group"):
            field.type = field.type or "message"
        elif name in enums and field.type in ("", "enum"):
            field.type = "enum"
        else:
            continue
        field.type_name = name
        return True
    return False


def _check_structure(message: ProtoMessage) -> None:
    """Raise an error if a wrapper of Google or an entry of a map has other fields than decoders expect."""
    if message.name in WRAPPERS:
        value = [(field.number, field.repeated, field.type in SCALAR_TYPES) for field in message.fields]
        if value != [(1, False, True)]:
            raise ProtobufSchemaError(f"the message {message.name} is not that of Google, which has the field value")
    if message.is_map_entry:
        entry = [(field.name, field.number, field.repeated) for field in message.fields]
        types = [field.type for field in message.fields]
        if entry != [("key", 1, False), ("value", 2, False)] or types[0] not in SCALAR_TYPES or types[1] == "group":
            raise ProtobufSchemaError(f"the message {message.name} is not a valid entry of a map")


def _candidates(name: str, scope: str) -> Iterator[str]:
    """Yield the full names that a name may mean, from the innermost scope to the outermost."""
    if name.startswith("."):
        yield name[1:]
        return
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name
