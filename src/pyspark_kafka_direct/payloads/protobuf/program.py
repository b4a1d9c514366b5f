"""Makes the program that decodes the wanted fields of a message type (payloads/protobuf/protobuf_values.py)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pyspark_kafka_direct.payloads.avro.avro_values import child_fields
from pyspark_kafka_direct.payloads.decoded_values import MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.protobuf.literals import parse_integer, parse_number, unescape
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError, ProtoField
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import (
    EMPTY_MESSAGE,
    IMPLICIT,
    NO_COLUMN,
    NO_DEFAULT,
    NO_ONEOF,
    REPEATED,
    Kind,
    ProtobufProgram,
)
from pyspark_kafka_direct.payloads.protobuf.well_known_types import DURATION, TIMESTAMP, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage

_KINDS: Final = {
    "bool": Kind.BOOL,
    "int32": Kind.INT32,
    "uint32": Kind.UINT32,
    "int64": Kind.INT64,
    "uint64": Kind.UINT64,
    "sint32": Kind.SINT32,
    "sint64": Kind.SINT64,
    "fixed32": Kind.FIXED32,
    "sfixed32": Kind.SFIXED32,
    "fixed64": Kind.FIXED64,
    "sfixed64": Kind.SFIXED64,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
    "enum": Kind.ENUM,
}

_BOOLEANS: Final = ("false", "true")
_INT: Final = ("int32", "int64")
_TARGETS: Final = {
    "bool": ("bool",),
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), _INT),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), ("int64",)),
    **dict.fromkeys(("uint64", "fixed64"), ("int64", "decimal128(20, 0)")),
    "float": ("float",),
    "double": ("double",),
    "string": ("string", "binary"),
    "bytes": ("binary", "string"),
    "enum": ("string", "int32"),
}

_MOMENTS: Final = {TIMESTAMP: "timestamp[us, tz=UTC]", DURATION: "duration[us]"}

_ZERO: Final = bytes(8)  # as an integer, a double or a time


class _Field(NamedTuple):
    """The numbers of a field in a table, in this order."""

    number: int
    kind_and_flags: int
    column: int
    argument: int = 0  # a table or enum, if the kind has one
    oneof: int = NO_ONEOF
    default: int = NO_DEFAULT


def make_program(
    schema: ProtobufSchema, message: ProtoMessage, fields: Iterable[pa.Field], *, emits_defaults: bool = False
) -> ProtobufProgram:
    """Return the program; a wanted field whose type does not fit the message is an error.

    A field that the message lacks is null. With ``emits_defaults``, a number or string that is missing is 0 or empty.
    """
    maker = _Maker(schema, emits_defaults)
    maker.table(message, list(fields), column=0, path="", depth=0)
    return maker.program()


class _Maker:
    """Collects the tables and constants of a program."""

    def __init__(self, schema: ProtobufSchema, emits_defaults: bool) -> None:
        self._schema = schema
        self._emits_defaults = emits_defaults
        self._tables: list[list[_Field]] = []
        self._checked: dict[str, int] = {}  # tables without columns, by message types
        # The tables without fields so far. Messages may contain themselves, so program() adds the fields.
        self._unfinished: list[tuple[int, ProtoMessage]] = []
        self._enums: dict[str, int] = {}  # indexes by name
        self._constants: dict[bytes, int] = {}  # indexes by value

    def program(self) -> ProtobufProgram:
        """Return the numbers in the order that protobuf_values.py describes."""
        while self._unfinished:
            index, message = self._unfinished.pop()
            # Without columns, it does not matter which field of a oneof comes last.
            self._tables[index] += [
                self._checked_field(field, NO_ONEOF) for field in message.fields if self._is_checked(field)
            ]
        numbers = [len(self._tables)]
        for table in self._tables:
            numbers.append(len(table))
            numbers.extend(number for field in table for number in field)
        numbers.append(len(self._enums))
        for name in self._enums:
            enum = self._schema.enums[name]
            names = {number: symbol for symbol, number in reversed(enum.values)}  # the first name of a number
            prefix = f"UNKNOWN_ENUM_VALUE_{name.rpartition('.')[2]}_"
            numbers += [int(enum.closed), self._constant(prefix.encode()), len(names)]
            for number, symbol in names.items():
                numbers += [number, self._constant(symbol.encode())]
        return ProtobufProgram(tuple(numbers), tuple(self._constants))

    def table(self, message: ProtoMessage, fields: Sequence[pa.Field], column: int, path: str, depth: int) -> int:
        """Add the table of a message; return its index. ``column`` is that of the first wanted field."""
        if depth > MAX_SCHEMA_DEPTH:
            raise ProtobufSchemaError(f"field {path} has more than {MAX_SCHEMA_DEPTH} levels")
        index = self._add_table()
        columns = _number_columns(fields, column, path)
        # The other fields of a oneof with a wanted field are needed, too: if one comes later, it replaces the value.
        oneofs = {field.oneof for field in message.fields if field.name in columns}
        for field in message.fields:
            oneof = field.oneof if field.oneof in oneofs else NO_ONEOF
            if field.name in columns:
                field_column, data_type = columns[field.name]
                if field.type == "group":
                    raise ProtobufSchemaError(f"field {path}{field.name} is a group, which is not decoded")
                wanted = self._field(
                    field, message, data_type, field_column, oneof=oneof, path=f"{path}{field.name}", depth=depth + 1
                )
                self._tables[index].append(wanted)
            elif oneof != NO_ONEOF or self._is_checked(field):
                self._tables[index].append(self._checked_field(field, oneof))
        return index

    def _field(
        self,
        field: ProtoField,
        message: ProtoMessage,
        data_type: pa.DataType,
        column: int,
        *,
        oneof: int,
        path: str,
        depth: int,
    ) -> _Field:
        """Return the entry of a wanted field; after its ``column`` come those of its elements, items or members."""
        value_column, flags = column, 0
        entry = self._schema.messages[field.type_name] if field.type == "message" else None
        if entry is not None and entry.is_map_entry:
            if not pa.types.is_map(data_type):
                raise _misfit(field, path, data_type)
            children = child_fields(data_type)
            entry_fields = [pa.field(name, child.type) for name, child in zip(("key", "value"), children, strict=True)]
            table = self.table(entry, entry_fields, column + 1, f"{path}.", depth + 1)
            return _Field(field.number, Kind.ENTRY | REPEATED, column, argument=table)
        if field.repeated:
            if not pa.types.is_list(data_type):
                raise _misfit(field, path, data_type)
            value_column, flags, data_type = column + 1, REPEATED, data_type.value_type
        kind, argument = self._value(field, data_type, value_column, path, depth)
        default = NO_DEFAULT
        # A missing value is null, except in an entry of a map, with emits_defaults, or if the schema has a default.
        if message.is_map_entry or (self._emits_defaults and not field.has_presence) or field.default is not None:
            default = NO_DEFAULT if field.repeated else self._default(field, data_type, kind)
        elif not field.has_presence and not field.repeated:
            flags = IMPLICIT
        return _Field(field.number, kind | flags, column, argument, oneof, default)

    def _value(self, field: ProtoField, data_type: pa.DataType, column: int, path: str, depth: int) -> tuple[Kind, int]:
        """Return the kind of a value, and its table or enum."""
        name = field.type_name
        self._schema.check_known(field, path)
        if field.type == "message":
            if str(data_type) == _MOMENTS.get(name):
                zero = self._constant(_ZERO)
                table = self._add_table()
                self._tables[table] += [
                    _Field(1, Kind.SECONDS, column, default=zero),
                    _Field(2, Kind.NANOS, column),
                ]
                return Kind.WRAPPED, table
            inner = self._schema.messages[name]
            if pa.types.is_struct(data_type):
                return Kind.MESSAGE, self.table(inner, list(data_type), column + 1, f"{path}.", depth)
            if name in WRAPPERS:
                value = inner.fields[0]
                kind, _ = self._value(value, data_type, column, path, depth)
                table = self._add_table()
                default = self._default(value, data_type, kind)
                self._tables[table].append(_Field(1, kind, column, default=default))
                return Kind.WRAPPED, table
        if str(data_type) not in _TARGETS.get(field.type, ()):
            raise _misfit(field, path, data_type)
        if field.type == "enum":
            return Kind.ENUM, self._enums.setdefault(name, len(self._enums))
        if field.type == "string" and not field.checks_strings:
            return Kind.TEXT, 0
        return _KINDS[field.type], 0

    def _is_checked(self, field: ProtoField) -> bool:
        """Return whether more than the wire type of an unwanted field has to be checked, so that a table needs it."""
        match field.type:
            case "bytes" | "unknown":
                return False
            case "string":
                return field.checks_strings
            case "message" | "group":
                return True
        return field.repeated

    def _checked_field(self, field: ProtoField, oneof: int) -> _Field:
        """Return the entry of a field that is not wanted: a value that is not valid makes the message malformed."""
        argument = 0
        if field.type in ("message", "group"):
            kind = Kind.MESSAGE if field.type == "message" else Kind.GROUP
            argument = self._checked_table(self._schema.messages[field.type_name])
        elif field.type == "enum":
            kind, argument = Kind.ENUM, self._enums.setdefault(field.type_name, len(self._enums))
        elif field.type == "string" and not field.checks_strings:
            kind = Kind.TEXT
        else:
            kind = _KINDS.get(field.type, Kind.BYTES)  # a field of unknown type is probably a message
        flags = REPEATED if field.repeated and field.type not in ("message", "group") else 0  # may be packed
        return _Field(field.number, kind | flags, NO_COLUMN, argument, oneof)

    def _checked_table(self, message: ProtoMessage) -> int:
        index = self._checked.get(message.name)
        if index is None:
            index = self._checked[message.name] = self._add_table()
            self._unfinished.append((index, message))
        return index

    def _add_table(self) -> int:
        self._tables.append([])
        return len(self._tables) - 1

    def _constant(self, data: bytes) -> int:
        return self._constants.setdefault(data, len(self._constants))

    def _default(self, field: ProtoField, data_type: pa.DataType, kind: Kind) -> int:
        """Return the constant of the default, which is that of the schema, 0 or empty.

        Messages and wrapped values get here as values of map entries only: other fields of messages have presence.
        """
        if kind == Kind.MESSAGE:
            return EMPTY_MESSAGE
        text = field.default  # None: the schema has none
        if kind == Kind.WRAPPED:
            return self._constant(_ZERO if not _is_bytes(data_type) else b"")
        if kind == Kind.ENUM:
            values = self._schema.enums[field.type_name].values
            first = values[0] if text is None else None  # the default of an enum
            default = next((value for value in values if value[0] == text), first)
            if default is None:
                raise _invalid_default(field)
            symbol, number = default
            return self._constant(symbol.encode() if _is_bytes(data_type) else _integer(number))
        if kind == Kind.BYTES:
            return self._constant(unescape(text or ""))
        if _is_bytes(data_type):  # a string
            return self._constant((text or "").encode())
        try:
            if kind in (Kind.FLOAT, Kind.DOUBLE):
                return self._constant(struct.pack("<d", parse_number(text or "0")))
            if kind == Kind.BOOL:
                return self._constant(_integer(_BOOLEANS.index(text or "false")))
            number = parse_integer(text or "0")
        except (ValueError, OverflowError):
            raise _invalid_default(field) from None
        if number not in _range(field.type):
            raise _invalid_default(field)
        return self._constant(_integer(number))


def _invalid_default(field: ProtoField) -> ProtobufSchemaError:
    return ProtobufSchemaError(
        f"field {field.name} has an invalid default: {(field.default or '')[:40]} is not a value of "
        f"{field.type_name or field.type}"
    )


def _range(integer_type: str) -> range:
    """Return the values of a type of Protobuf such as ``uint32``."""
    bits = 32 if integer_type.endswith("32") else 64
    return range(1 << bits) if integer_type[0] in "uf" else range(-(1 << bits - 1), 1 << bits - 1)


def _integer(number: int) -> bytes:
    return (number % (1 << 64)).to_bytes(8, "little")


def _is_bytes(data_type: pa.DataType) -> bool:
    return data_type in (pa.string(), pa.binary())


def _number_columns(fields: Sequence[pa.Field], first_column: int, path: str) -> dict[str, tuple[int, pa.DataType]]:
    """Return the columns and types of fields by their names."""
    columns: dict[str, tuple[int, pa.DataType]] = {}
    for field in fields:
        if field.name in columns:
            raise ProtobufSchemaError(f"field {path}{field.name} is named twice")
        columns[field.name] = (first_column, field.type)
        first_column += _count_columns(field.type)
    return columns


def _count_columns(data_type: pa.DataType) -> int:
    return 1 + sum(_count_columns(child.type) for child in child_fields(data_type))


def _misfit(field: ProtoField, path: str, data_type: pa.DataType) -> ProtobufSchemaError:
    kind = f"{'repeated ' if field.repeated else ''}{field.type_name or field.type}"
    return ProtobufSchemaError(f"field {path} is {kind} in the Protobuf schema, which cannot be read as {data_type}")
