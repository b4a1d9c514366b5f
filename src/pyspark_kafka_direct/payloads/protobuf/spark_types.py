"""The Spark types of Protobuf messages: those of Spark's ``from_protobuf``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.options.payload_settings import WANTED_FIELDS
from pyspark_kafka_direct.payloads.decoded_values import MAX_COLUMN_TYPES, MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.well_known_types import DURATION, TIMESTAMP, WRAPPERS

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoField, ProtoMessage

_SCALARS: Final = {
    "bool": "boolean",
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), "int"),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), "bigint"),
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}

_UPCAST: Final = {
    **dict.fromkeys(("uint32", "fixed32"), "bigint"),
    **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"),
}


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Options of ``from_protobuf`` that choose other types."""

    upcasts_unsigned: bool = False  # so that large numbers are not negative
    enums_as_ints: bool = False
    unwraps: bool = False  # the messages of google/protobuf/wrappers.proto


DEFAULT_TYPES: Final = TypeOptions()


def spark_ddl(
    schema: ProtobufSchema, message: ProtoMessage, options: TypeOptions = DEFAULT_TYPES, advice: str = WANTED_FIELDS
) -> str:
    """Return the DDL of a message type. All fields may be null, because a malformed message has no values.

    If Spark has no type for a field, the ProtobufSchemaError names it, and ``advice`` is what to do.
    """
    ddl = _Types(schema, options, advice).struct(message, (), "")
    if ddl is None:
        only = " but groups, which are not decoded" if any(each.type == "group" for each in message.fields) else ""
        raise ProtobufSchemaError(f"the message type {message.name} has no fields{only}")
    return ddl


class _Types:
    def __init__(self, schema: ProtobufSchema, options: TypeOptions, advice: str) -> None:
        self._schema = schema
        self._options = options
        self._advice = advice
        self._count = 0

    def struct(self, message: ProtoMessage, messages: tuple[str, ...], path: str) -> str | None:
        """Return a struct, or None if it has no fields; ``messages`` are those that it is in."""
        if message.name in messages:
            raise ProtobufSchemaError(
                f"field {path}: the message type {message.name} contains itself, so it has no type in Spark; "
                f"{self._advice}"
            )
        if len(messages) > MAX_SCHEMA_DEPTH:
            raise ProtobufSchemaError(
                f"the message type {messages[0]} has more than {MAX_SCHEMA_DEPTH} levels of messages; {self._advice}"
            )
        self._count += 1
        if self._count > MAX_COLUMN_TYPES:
            raise ProtobufSchemaError(f"the message type has more than {MAX_COLUMN_TYPES} fields")
        messages = (*messages, message.name)
        prefix = f"{path}." if path else ""
        fields = [field for field in message.fields if field.type != "group"]
        members = [(field.name, self._field(field, messages, f"{prefix}{field.name}")) for field in fields]
        shown = [f"`{name}`: {ddl}" for name, ddl in members if ddl is not None]
        return f"struct<{','.join(shown)}>" if shown else None

    def _field(self, field: ProtoField, messages: tuple[str, ...], path: str) -> str | None:
        if field.type == "message" and self._schema.messages[field.type_name].is_map_entry:
            key, value = self._schema.messages[field.type_name].fields
            value_ddl = self._value(value, messages, f"{path}.value")
            return None if value_ddl is None else f"map<{self._value(key, messages, path)},{value_ddl}>"
        ddl = self._value(field, messages, path)
        return f"array<{ddl}>" if field.repeated and ddl is not None else ddl

    def _value(self, field: ProtoField, messages: tuple[str, ...], path: str) -> str | None:
        self._count += 1
        self._schema.check_known(field, path, self._advice)
        if field.type == "enum":
            return "int" if self._options.enums_as_ints else "string"
        if field.type != "message":
            return (_UPCAST if self._options.upcasts_unsigned else _SCALARS).get(field.type) or _SCALARS[field.type]
        if field.type_name == TIMESTAMP:
            return "timestamp_ltz"  # regardless of spark.sql.timestampType
        if field.type_name == DURATION:
            return "interval day to second"
        message = self._schema.messages[field.type_name]
        if self._options.unwraps and field.type_name in WRAPPERS:
            return self._value(message.fields[0], messages, path)
        return self.struct(message, messages, path)
