"""The types of Protobuf as dataclasses. A schema has them by their full names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark_kafka_direct.options.payload_settings import WANTED_FIELDS

MAX_SCHEMA_BYTES: Final = 1 << 20
"""Of a schema with its imports, or of a set of descriptors."""

MAX_FILES: Final = 200
MAX_TYPES: Final = 20_000
MAX_NESTED_TYPES: Final = 50
"""Levels of messages that are defined in messages."""

MAX_FIELD_NUMBER: Final = (1 << 29) - 1

SCALAR_TYPES: Final = frozenset(
    (
        *("double", "float", "bool", "string", "bytes"),
        *("int32", "uint32", "sint32", "fixed32", "sfixed32"),
        *("int64", "uint64", "sint64", "fixed64", "sfixed64"),
    )
)


NO_ONEOF: Final = -1

UNKNOWN: Final = "unknown"
"""The type of a field whose type is in a file that the schema lacks."""


class ProtobufSchemaError(ValueError):
    """A text is not a Protobuf schema, or Spark has no types for the schema."""


@dataclass(slots=True)
class ProtoField:
    """A field of a message."""

    name: str
    number: int
    type: str  # a scalar type, message, enum, group or unknown; empty until a name is resolved
    type_name: str = ""  # of a message or enum; the full name once it is resolved
    repeated: bool = False
    has_presence: bool = True  # whether a field that is 0 is another thing than one that is missing
    oneof: int = NO_ONEOF  # the index of the oneof in the message that the field is in
    default: str | None = None  # as in the schema; bytes are escaped
    required: bool = False
    packed: bool = False  # how the elements of a repeated field are written if they are numbers
    checks_strings: bool = True  # whether a string must be UTF-8
    delimited: bool = False  # whether a message is written like a group


@dataclass(slots=True)
class ProtoEnum:
    """An enum. It is closed if a field cannot have a number that it does not name."""

    name: str
    values: list[tuple[str, int]]
    closed: bool


@dataclass(slots=True)
class ProtoMessage:
    """A message type, with the types that are defined in it."""

    name: str  # full
    fields: list[ProtoField] = field(default_factory=list)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)
    is_map_entry: bool = False
    has_index: bool = field(default=True, compare=False)  # whether message indexes count it


@dataclass(slots=True)
class ProtoFile:
    """A file, in which names of types may not yet be resolved."""

    package: str = ""
    imports: list[str] = field(default_factory=list)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """Linked files: all message types and enums by their full names."""

    main: ProtoFile
    messages: dict[str, ProtoMessage]
    enums: dict[str, ProtoEnum]
    missing: tuple[str, ...] = ()  # files that are imported

    def check_known(self, field: ProtoField, path: str, advice: str = WANTED_FIELDS) -> None:
        """Raise an error if a wanted field has a type of a missing file."""
        if field.type == UNKNOWN:
            raise ProtobufSchemaError(
                f"field {path} has the type {field.type_name.lstrip('.')}, which is not defined; the schema lacks the "
                f"imported file {', '.join(self.missing[:5])}: use the set of descriptors of protoc --include_imports "
                f"--descriptor_set_out, or {advice}"
            )

    def message(self, name: str | None) -> ProtoMessage:
        """Return a message type by its name, or the first one of the schema."""
        if name is None:
            if not self.main.messages:
                raise ProtobufSchemaError("the schema has no message type")
            return self.main.messages[0]
        found = self.messages.get(name.removeprefix("."))
        if found is None and "." not in name and self.main.package:
            found = self.messages.get(f"{self.main.package}.{name}")
        if found is None or found.is_map_entry:
            names = [each.name for each in self.main.messages]
            shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise ProtobufSchemaError(f"the schema has no message type {name}; it has {shown or 'none'}")
        return found

    def message_at(self, indexes: tuple[int, ...]) -> ProtoMessage | None:
        """Return a message type by Confluent's message indexes.

        Confluent's Java library counts the messages that a text defines as such, so neither groups nor the entries of
        maps. Descriptors define all of these as messages.
        """
        # In a file, all messages count. Only messages contain groups and entries of maps.
        messages, found = self.main.messages, None
        for index in indexes:
            if index >= len(messages):
                return None
            found = messages[index]
            messages = [each for each in found.messages if each.has_index]
        return found

    def message_indexes(self, name: str) -> tuple[int, ...] | None:
        """Return Confluent's message indexes of a type, or None if an imported file or a group defines it.

        It is the inverse of ``message_at``.
        """
        messages = self.main.messages
        indexes: list[int] = []
        while True:
            for index, each in enumerate(messages):
                if each.name == name:
                    return (*indexes, index)
                if name.startswith(f"{each.name}."):  # the type is defined in this one
                    indexes.append(index)
                    messages = [inner for inner in each.messages if inner.has_index]
                    break
            else:
                return None
