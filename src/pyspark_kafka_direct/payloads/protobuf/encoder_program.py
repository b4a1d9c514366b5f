"""The programs of Protobuf encoders, which are lists of numbers.

A program writes the values of one Arrow type as messages of one type. It is a tree of nodes, each of which writes the
values of an array: the column itself, a child of a struct, the elements of a list, or the keys or items of a map. A
node is the number of an ``Op`` and the arguments of the operation. Nodes are counted in this order.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram, EncoderSettings, SchemaMismatchError
from pyspark_kafka_direct.payloads.encoded_values import ProtobufEncoder
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, source_schema
from pyspark_kafka_direct.payloads.protobuf.well_known_types import DURATION, TIMESTAMP, WRAPPERS
from pyspark_kafka_direct.payloads.struct_fields import UnmatchedFieldError, match_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoEnum, ProtoField, ProtoMessage

NO_ONEOF: Final = -1
CLOSED: Final = -1
"""In place of the prefix of an enum: a value has one of its names."""
OPEN: Final = -1
"""In place of the numbers of an enum: a value may be any number."""


class Op(IntEnum):
    """Operations, with their arguments."""

    BOOL = 0
    VARINT = 1  # range
    ZIGZAG = 2  # range
    FIXED32 = 3  # range
    FIXED64 = 4  # range
    FLOAT = 5
    DOUBLE = 6
    STRING = 7  # checked for UTF-8
    BYTES = 8  # also strings that are not checked
    ENUM_NAME = 9  # prefix of unknown names or CLOSED, number of names, for each one: number, name
    ENUM_NUMBER = 10  # number of numbers, and these, or OPEN
    MESSAGE = 11  # number of fields, for each one: number, shape, oneof, child, node; MAP: nodes of keys and items
    WRAPPED = 12  # node of the value, which is in a message with this field
    MOMENT = 13  # 1 if nanoseconds have the sign of the seconds, else 0; of microseconds in Google's range


class Range(IntEnum):
    """The range of the integers of a field."""

    ALL = 0
    INT32 = 1
    UINT32 = 2  # the bits of an int32, or a number
    UINT64 = 3  # a decimal


class Shape(IntEnum):
    """The condition under which a field is written."""

    OPTIONAL = 0  # unless it is null
    IMPLICIT = 1  # unless it is null, 0 or empty
    REQUIRED = 2  # null is an error
    REPEATED = 3
    PACKED = 4
    MAP = 5


_SIGNED: Final = ("int8", "int16", "int32", "int64")
_TEXT: Final = ("string", "binary")

# The operations of scalar types, and for integers the range of each Arrow type.
_INTEGERS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64"), Op.VARINT),
    **dict.fromkeys(("sint32", "sint64"), Op.ZIGZAG),
    **dict.fromkeys(("fixed32", "sfixed32"), Op.FIXED32),
    **dict.fromkeys(("fixed64", "sfixed64"), Op.FIXED64),
}
_RANGES: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), dict.fromkeys(_SIGNED, Range.INT32)),
    **dict.fromkeys(("uint32", "fixed32"), dict.fromkeys(("int32", "int64"), Range.UINT32)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), dict.fromkeys(_SIGNED, Range.ALL)),
    **{name: {"int64": Range.ALL, "decimal128(20, 0)": Range.UINT64} for name in ("uint64", "fixed64")},
}
_OTHERS: Final = {
    "bool": (Op.BOOL, ("bool",)),
    "float": (Op.FLOAT, ("float",)),
    "double": (Op.DOUBLE, ("double",)),
    "string": (Op.STRING, _TEXT),
    "bytes": (Op.BYTES, _TEXT),
}
_UNPACKED: Final = ("string", "bytes", "message")

# Arguments of Op.MOMENT.
_POSITIVE_NANOS: Final = 0
_SIGNED_NANOS: Final = 1


@dataclass(frozen=True, slots=True)
class ProtobufEncoderSettings(EncoderSettings):
    """Settings of a message type."""

    _: KW_ONLY
    schema: ProtobufSource

    format_name: ClassVar[str] = "Protobuf"

    @property
    def schema_name(self) -> str:
        """The message type, and where it is from, for errors."""
        name = source_schema(self.schema).message(self.schema.message).name
        return f"the message {name}" + (f" of {self.source}" if self.source else "")

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the program for a type."""
        schema = source_schema(self.schema)
        try:
            return compile_encoder(schema, schema.message(self.schema.message), data_type, column)
        except ProtobufSchemaError as error:
            raise SchemaMismatchError(str(error)) from None

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of a program."""
        return ProtobufEncoder(encoding)


def compile_encoder(schema: ProtobufSchema, message: ProtoMessage, data_type: pa.DataType, path: str) -> EncoderProgram:
    """Return the program that writes structs of a type; ``path`` is the name of the column."""
    import pyarrow as pa

    if not pa.types.is_struct(data_type):
        raise ProtobufSchemaError(f"{path} is {data_type}, but a struct is written as the message {message.name}")
    compiler = _Compiler(schema)
    numbers = compiler.message(message, data_type, path)
    return EncoderProgram(tuple(numbers), tuple(compiler.constants), tuple(compiler.paths))


class _Compiler:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        self.constants: dict[bytes, int] = {}
        self.paths: list[str] = []

    def message(self, message: ProtoMessage, data_type: pa.StructType, path: str) -> list[int]:
        """Return the node of a message, whose fields are found by name."""
        import pyarrow as pa

        self.paths.append(path)
        names = [field.name for field in data_type]
        try:
            children = match_fields(
                [field.name for field in message.fields], names, path, f"the message {message.name}"
            )
        except UnmatchedFieldError as error:
            raise ProtobufSchemaError(str(error)) from None
        # A column that is always null is not written, so that its field may have any type.
        written = {name: child for name, child in children.items() if not pa.types.is_null(data_type.field(child).type)}
        missing = next((field for field in message.fields if field.required and field.name not in written), None)
        if missing is not None and missing.type == "group":
            raise _group(f"{path}.{missing.name}", f", but required by the message {message.name}")
        if missing is not None:
            raise ProtobufSchemaError(
                f"the struct lacks {path}.{missing.name}, which the message {message.name} requires: add it"
            )
        fields = sorted((field for field in message.fields if field.name in written), key=lambda field: field.number)
        numbers = [int(Op.MESSAGE), len(fields)]
        for field in fields:
            child = written[field.name]
            shape, nodes = self._field(field, message, data_type.field(child).type, f"{path}.{field.name}")
            numbers += [field.number, shape, NO_ONEOF if field.oneof < 0 else field.oneof, child, *nodes]
        return numbers

    def _field(
        self, field: ProtoField, message: ProtoMessage, data_type: pa.DataType, path: str
    ) -> tuple[Shape, list[int]]:
        """Return when a field is written, and the nodes of its values."""
        import pyarrow as pa

        if field.type == "group":
            raise _group(path)
        inner = self._schema.messages[field.type_name] if field.type == "message" else None
        if inner is not None and inner.is_map_entry:
            if not pa.types.is_map(data_type):
                raise _misfit(field, path, data_type)
            key, value = inner.fields  # schema.py has checked that there are these two
            key_node = self._value(key, inner, data_type.key_type, f"{path}.key")
            return Shape.MAP, [*key_node, *self._value(value, inner, data_type.item_type, f"{path}.value")]
        if field.repeated:
            if not pa.types.is_list(data_type):
                raise _misfit(field, path, data_type)
            is_packed = field.packed and field.type not in _UNPACKED
            node = self._value(field, message, data_type.value_type, f"{path}.element")
            return Shape.PACKED if is_packed else Shape.REPEATED, node
        shape = Shape.OPTIONAL if field.has_presence else Shape.IMPLICIT
        return Shape.REQUIRED if field.required else shape, self._value(field, message, data_type, path)

    def _value(self, field: ProtoField, message: ProtoMessage, data_type: pa.DataType, path: str) -> list[int]:
        """Return the node of a value, key or element."""
        import pyarrow as pa

        self._schema.check_known(field, path, "write without the field")
        if field.type == "message":
            inner = self._schema.messages[field.type_name]
            if pa.types.is_struct(data_type):
                return self.message(inner, data_type, path)
            self.paths.append(path)
            if field.type_name == TIMESTAMP and pa.types.is_timestamp(data_type) and data_type.tz is not None:
                return [Op.MOMENT, _POSITIVE_NANOS]
            if field.type_name == DURATION and pa.types.is_duration(data_type):
                return [Op.MOMENT, _SIGNED_NANOS]
            if field.type_name in WRAPPERS:
                return [Op.WRAPPED, *self._value(inner.fields[0], inner, data_type, path)]
            raise _misfit(field, path, data_type)
        self.paths.append(path)
        type_name = str(data_type)
        if field.type == "enum" and type_name in ("string", "int32"):
            return self._enum(self._schema.enums[field.type_name], by_name=type_name == "string")
        if type_name in _RANGES.get(field.type, ()):
            return [_INTEGERS[field.type], _RANGES[field.type][type_name]]
        operation, types = _OTHERS.get(field.type, (Op.BYTES, ()))  # no types: an integer or enum that does not fit
        if type_name not in types:
            raise _misfit(field, path, data_type)
        return [Op.BYTES if operation is Op.STRING and not field.checks_strings else operation]

    def _enum(self, enum: ProtoEnum, *, by_name: bool) -> list[int]:
        """Return the node of an enum whose column has names, or numbers; only a closed enum limits these."""
        if not by_name:
            numbers = sorted({number for _, number in enum.values})
            return [Op.ENUM_NUMBER, len(numbers), *numbers] if enum.closed else [Op.ENUM_NUMBER, OPEN]
        prefix = CLOSED
        if not enum.closed:  # a decoded number without a name is this prefix and the number
            prefix = self._constant(f"UNKNOWN_ENUM_VALUE_{enum.name.rpartition('.')[2]}_".encode())
        node = [int(Op.ENUM_NAME), prefix, len(enum.values)]
        for name, number in enum.values:
            node += [number, self._constant(name.encode())]
        return node

    def _constant(self, data: bytes) -> int:
        return self.constants.setdefault(data, len(self.constants))


def _group(path: str, more: str = "") -> ProtobufSchemaError:
    return ProtobufSchemaError(f"{path} is a group, which is not written{more}")


def _misfit(field: ProtoField, path: str, data_type: pa.DataType) -> ProtobufSchemaError:
    kind = f"{'repeated ' if field.repeated else ''}{field.type_name or field.type}"
    return ProtobufSchemaError(
        f"{path} is {data_type}, which is not written as {kind} of the Protobuf schema: cast it in the query"
    )
