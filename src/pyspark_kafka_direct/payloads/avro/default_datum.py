"""Defaults of fields as datums, for structs that lack the fields."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.avro.avro_encoding import zigzag
from pyspark_kafka_direct.payloads.avro.avro_types import (
    NULL,
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from pyspark_kafka_direct.payloads.avro.defaults import NOT_FINITE

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.avro.avro_types import RecordField

_MAX_COST: Final = 1 << 16  # of all defaults of a schema: one for each value, and for each 64 bytes
_BYTES_OF_COST: Final = 64
_RANGES: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
_FORMATS: Final = {"float": "<f", "double": "<d"}


class _InvalidDefaultError(Exception):
    pass


class DefaultDatums:
    """Writes the defaults of one schema; a default may contain others, so that a small schema can have huge ones."""

    def __init__(self) -> None:
        self._cost = 0

    def datum(self, field: RecordField) -> bytes:
        """Return the default of a field as a datum; an AvroSchemaError if it does not have the type of the field."""
        try:
            return self._datum(field.type, field.default)
        # UnicodeEncodeError: a character that is no byte, or half of a surrogate pair. OverflowError: a number that is
        # too large for a float. RecursionError: the default of a record that contains itself.
        except (_InvalidDefaultError, UnicodeEncodeError, OverflowError, RecursionError):
            text = printable(json.dumps(field.default)[:200])
            raise AvroSchemaError(f"the default of field {field.name!r} does not have its type: {text}") from None

    def null(self, avro_type: AvroType) -> bytes:
        """Return null as a datum of a type that may be null."""
        return self._datum(avro_type, None)

    def _datum(self, avro_type: AvroType, value: Any) -> bytes:
        """Return a value of JSON as a datum; an _InvalidDefaultError if it does not have the type."""
        self._cost += 1 + (len(value) // _BYTES_OF_COST if isinstance(value, str) else 0)
        if self._cost > _MAX_COST:
            raise AvroSchemaError("the defaults of the fields that the struct lacks are too large")
        match avro_type:
            case UnionType(branches):
                return self._union(branches, value)
            case PrimitiveType(name):
                return _primitive(name, value)
            case FixedType(_, _, size) if isinstance(value, str) and len(value) == size:
                return value.encode("latin-1")
            case EnumType(_, _, symbols) if value in symbols:
                return zigzag(symbols.index(value))
            case RecordType(_, _, fields) if isinstance(value, dict):
                members = [(field.type, value.get(field.name, field.default)) for field in fields]
                return b"".join(self._datum(member_type, member) for member_type, member in members)
            case ArrayType(items) if isinstance(value, list):
                return _block([self._datum(items, each) for each in value])
            case MapType(values) if isinstance(value, dict):
                entries = value.items()
                return _block([_with_length(key.encode()) + self._datum(values, each) for key, each in entries])
        return _fail()

    def _union(self, branches: tuple[AvroType, ...], value: Any) -> bytes:
        """Return the datum in the first branch that the value fits."""
        for index, branch in enumerate(branches):
            if (branch == NULL) != (value is None):  # only null is null
                continue
            try:
                return zigzag(index) + self._datum(branch, value)
            except (_InvalidDefaultError, UnicodeEncodeError, OverflowError):
                continue
        return _fail()


def _primitive(name: str, value: Any) -> bytes:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)  # in Python, booleans are integers
    if name == "null" and value is None:
        return b""
    if name == "boolean" and isinstance(value, bool):
        return bytes([value])
    if name in _RANGES and is_number and isinstance(value, int) and value in _RANGES[name]:
        return zigzag(value)
    if name in _FORMATS and is_number:
        return struct.pack(_FORMATS[name], value)
    if name in _FORMATS and value in NOT_FINITE:  # JSON has no such numbers; Java writes strings
        return struct.pack(_FORMATS[name], float(value))
    if name in ("bytes", "string") and isinstance(value, str):
        return _with_length(value.encode("latin-1" if name == "bytes" else "utf-8"))
    return _fail()


def _block(items: list[bytes]) -> bytes:
    return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"


def _with_length(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _fail() -> NoReturn:
    raise _InvalidDefaultError
