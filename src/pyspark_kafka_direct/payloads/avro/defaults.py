"""Defaults of fields that a writer schema lacks, as operations of a program."""

from __future__ import annotations

import json
import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.avro.avro_types import (
    NO_DEFAULT,
    NULL,
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordField,
    RecordType,
    UnionType,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.avro_values import Op, Operation, child_fields, column_types
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")

_MAX_VALUES: Final = 1 << 16  # of the defaults of a program

_RANGES: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}


class Constants:
    """The constants of a program, each of them once, and the number of its values that are defaults."""

    def __init__(self) -> None:
        self._indexes: dict[bytes, int] = {}
        self._default_values = 0

    def add(self, value: bytes) -> int:
        """Return the index of a constant."""
        return self._indexes.setdefault(value, len(self._indexes))

    def count_default(self) -> None:
        """Count a value of a default. Defaults may contain others, so that those of a small schema are huge."""
        self._default_values += 1
        if self._default_values > _MAX_VALUES:
            raise AvroSchemaError("the defaults of the fields that the writer schema lacks are too large")

    def values(self) -> tuple[bytes, ...]:
        """Return the constants by their indexes."""
        return tuple(self._indexes)


def default_operations(
    field: RecordField, data_type: pa.DataType, column: int, constants: Constants
) -> list[Operation]:
    """Return the operations that write the default of a field into a column."""
    try:
        return _operations(field.type, field.default, data_type, column, constants)
    except (_InvalidDefaultError, RecursionError):  # a default may contain itself
        text = printable(json.dumps(field.default)[:200])
        raise AvroSchemaError(f"the default of field {field.name!r} does not have its type: {text}") from None


class _InvalidDefaultError(Exception):
    pass


def _operations(
    avro_type: AvroType, value: Any, data_type: pa.DataType, column: int, constants: Constants
) -> list[Operation]:
    """Return the operations that write a default, a value of JSON, into a column and those behind it."""
    constants.count_default()
    match avro_type:
        case UnionType(branches):
            return _union_operations(avro_type, branches, value, data_type, column=column, constants=constants)
        case PrimitiveType(name):
            return _primitive(avro_type, name, value, data_type, column=column, constants=constants)
        case FixedType(_, _, size) if isinstance(value, str) and len(value) == size:
            return [[Op.BYTES_CONSTANT, column, constants.add(_bytes(value))]]
        case EnumType(_, _, symbols) if value in symbols:
            return [[Op.BYTES_CONSTANT, column, constants.add(value.encode())]]
        case RecordType(_, _, fields) if isinstance(value, dict):
            operations: list[Operation] = [[Op.PRESENT, column]]
            columns = _columns(list(data_type), column + 1)
            for field in fields:
                member = value.get(field.name, field.default)
                if member is NO_DEFAULT:
                    _fail()
                if field.name in columns:  # the query need not read all fields
                    operations += _operations(field.type, member, *columns[field.name], constants)
            return operations
        case ArrayType(inner) if isinstance(value, list):
            items = [_operations(inner, each, data_type.value_type, column + 1, constants) for each in value]
            return [_items(column, items)]
        case MapType(inner) if isinstance(value, dict):
            items = [
                [
                    [Op.BYTES_CONSTANT, column + 1, constants.add(_utf8(key))],
                    *_operations(inner, each, data_type.item_type, column + 2, constants),
                ]
                for key, each in value.items()
            ]
            return [_items(column, items)]
    return _fail()


def _union_operations(
    union: UnionType,
    branches: tuple[AvroType, ...],
    value: Any,
    data_type: pa.DataType,
    *,
    column: int,
    constants: Constants,
) -> list[Operation]:
    """Return the operations for the first branch that the default fits."""
    inner = without_null(union).type
    if value is None and NULL in branches:
        return []
    for branch in branches:
        try:
            if not isinstance(inner, UnionType):  # of one type and null, or of int and long: the column has its value
                return _operations(branch, value, data_type, column, constants)
            # Of several types: the column is a struct with a field for each of them.
            operations: list[Operation] = [[Op.PRESENT, column]]
            member = _columns(list(data_type), column + 1).get(f"member{inner.branches.index(branch)}")
            return operations + (_operations(branch, value, *member, constants) if member else [])
        except AvroSchemaError:  # too large, also as another branch
            raise
        except (_InvalidDefaultError, ValueError):  # ValueError: null is no branch of the inner union
            continue
    return _fail()


def _primitive(
    avro_type: PrimitiveType, name: str, value: Any, data_type: pa.DataType, *, column: int, constants: Constants
) -> list[Operation]:
    if name == "null" and value is None:
        return []
    if name == "boolean" and isinstance(value, bool):
        return [[Op.INTEGER_CONSTANT, column, int(value)]]
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if name in _RANGES and is_integer and value in _RANGES[name]:
        logical = logical_type(avro_type)
        target = str(data_type)
        if target in ("float", "double"):
            return _double(float(value), column, constants)
        if target.startswith("timestamp") and logical and logical.name.endswith("-millis"):
            value *= 1000  # the column has microseconds
            if value not in _RANGES["long"]:
                _fail()
        return [[Op.INTEGER_CONSTANT, column, value]]
    if name in ("float", "double") and (is_integer or isinstance(value, float)):
        return _double(value, column, constants)
    if name in ("float", "double") and value in NOT_FINITE:  # JSON has no such numbers; Java writes strings
        return _double(float(value), column, constants)
    if name in ("bytes", "string") and isinstance(value, str):
        encoded = _bytes(value) if name == "bytes" else _utf8(value)
        return [[Op.BYTES_CONSTANT, column, constants.add(encoded)]]
    return _fail()


def _double(value: float, column: int, constants: Constants) -> list[Operation]:
    try:
        return [[Op.DOUBLE_CONSTANT, column, constants.add(struct.pack("<d", value))]]
    except OverflowError:
        _fail()


def _items(column: int, items: Sequence[list[Operation]]) -> Operation:
    operation = [int(Op.ITEMS_CONSTANT), column, len(items)]
    for item in items:
        flat = list(chain.from_iterable(item))
        operation += [len(flat), *flat]
    return operation


def _columns(fields: list[pa.Field], column: int) -> Mapping[str, tuple[pa.DataType, int]]:
    """Return the types and columns of fields by their names; ``column`` is that of the first one."""
    columns = {}
    for field in fields:
        columns[field.name] = (field.type, column)
        column += 1 + len(column_types(child_fields(field.type)))  # the columns of its fields come after it
    return columns


def _bytes(value: str) -> bytes:
    """Return the bytes of a default, each of which is written as the character with its number."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        _fail()


def _utf8(value: str) -> bytes:
    return value.encode(errors="replace")  # half of a surrogate pair


def _fail() -> NoReturn:
    raise _InvalidDefaultError
