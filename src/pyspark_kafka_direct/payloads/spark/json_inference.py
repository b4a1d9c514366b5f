"""The fields of JSON objects, inferred as ``spark.read.json`` does.

It is done here, because Spark takes JSON for inference only within a plan, and plans appear in its UI and event logs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_kafka_direct.payloads.decoded_values import MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.spark.json_scanner import (
    NOT_OBJECT,
    TRAILING,
    UNEXPECTED,
    MalformedJsonError,
    Scanner,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# While it is inferred, an object is a dict of its fields, and an array is a list of the type of its elements.
_Inferred: TypeAlias = DataType | dict[str, "_Inferred"] | list["_Inferred"]

_log = logging.getLogger("pyspark_kafka_direct.spark")

_NULL: Final = NullType()
_BOOLEAN: Final = BooleanType()
_STRING: Final = StringType()
_LONG: Final = LongType()
_BIG: Final = DecimalType(38, 0)
_DOUBLE: Final = DoubleType()

_NUMBERS: Final = (_LONG, _BIG, _DOUBLE)
"""Of two numbers, the later type is that of both."""

_INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_INT64_LENGTH: Final = 20  # with its sign
_MAX_DECIMAL_DIGITS: Final = 38


def infer_fields(values: Iterable[bytes], *, case_sensitive: bool) -> StructType:
    """Return the fields of all values that are JSON objects, sorted by name; without fields, none is one.

    Of names that differ only in case, which a query cannot distinguish unless it is case-sensitive, the first one
    remains.
    """
    fields: dict[str, _Inferred] = {}
    for value in values:
        try:
            found = _fields_of(value)
        except MalformedJsonError:
            continue
        _merge(fields, found)
    inferred = _final_type(fields, case_sensitive)
    return inferred if isinstance(inferred, StructType) else StructType()


def _fields_of(value: bytes) -> dict[str, _Inferred]:
    """Return the fields of a value, or raise a MalformedJsonError if it is not a JSON object."""
    scanner = Scanner(value)
    at = scanner.blanks(0)
    if scanner.byte(at) != "{":
        scanner.fail(at, NOT_OBJECT)
    fields, at = _object(scanner, at, 0)
    at = scanner.blanks(at)
    if at < scanner.end:
        scanner.fail(at, TRAILING)
    return fields


def _value(scanner: Scanner, at: int, depth: int) -> tuple[_Inferred, int]:
    """Return the type of the value at a position, and the position after it; ``depth`` counts the types around it."""
    match scanner.byte(at):
        case "{" | "[" if depth >= MAX_SCHEMA_DEPTH:  # Arrow cannot have more levels, so the value is read as its text
            return _STRING, scanner.skip(at)
        case "{":
            return _object(scanner, at, depth + 1)
        case "[":
            return _array(scanner, at, depth + 1)
        case '"' | "'":
            end = scanner.skip(at)
            is_empty = end - at == 2  # only quotes; as in Spark, an empty string may stand for null
            return (_NULL if is_empty else _STRING), end
        case "n":
            return _NULL, scanner.skip(at)
        case "t" | "f":
            return _BOOLEAN, scanner.skip(at)
    return _number(scanner, at)


def _object(scanner: Scanner, start: int, depth: int) -> tuple[dict[str, _Inferred], int]:
    """Return the fields of the object at ``start``, and the position after it."""
    scanner.enter(start)
    fields: dict[str, _Inferred] = {}
    at = scanner.blanks(start + 1)
    if scanner.byte(at) != "}":
        while True:
            end = scanner.string_end(at)
            name = scanner.unescaped(at + 1, end).decode(errors="replace")
            at = scanner.blanks(scanner.literal(scanner.blanks(end + 1), ":"))
            found, at = _value(scanner, at, depth)
            fields[name] = _merged(fields.get(name, _NULL), found)
            at = scanner.blanks(at)
            if scanner.byte(at) == "}":
                break
            at = scanner.blanks(scanner.literal(at, ","))
    scanner.depth -= 1
    return fields, at + 1


def _array(scanner: Scanner, start: int, depth: int) -> tuple[list[_Inferred], int]:
    """Return the array at ``start`` with one type for all elements, and the position after it."""
    scanner.enter(start)
    element: _Inferred = _NULL
    at = scanner.blanks(start + 1)
    if scanner.byte(at) != "]":
        while True:
            found, at = _value(scanner, at, depth)
            element = _merged(element, found)
            at = scanner.blanks(at)
            if scanner.byte(at) == "]":
                break
            if scanner.byte(at) != ",":
                scanner.fail(at, UNEXPECTED)
            at = scanner.blanks(at + 1)
    scanner.depth -= 1
    return [element], at + 1


def _number(scanner: Scanner, at: int) -> tuple[DataType, int]:
    number = scanner.number(at)
    if not number.is_integer:
        return _DOUBLE, number.end
    digits = scanner.text[at : number.end]
    if len(digits) <= _MAX_INT64_LENGTH and int(digits) in _INT64:
        return _LONG, number.end
    return (_BIG if len(digits.removeprefix("-")) <= _MAX_DECIMAL_DIGITS else _DOUBLE), number.end


def _merge(into: dict[str, _Inferred], fields: dict[str, _Inferred]) -> None:
    for name, found in fields.items():
        into[name] = _merged(into.get(name, _NULL), found)


def _merged(one: _Inferred, other: _Inferred) -> _Inferred:
    """Return the type of values of both types; objects are merged into the first one."""
    match one, other:
        case dict(), dict():
            _merge(one, other)
            return one
        case list(), list():
            return [_merged(one[0], other[0])]
    if one is other or other is _NULL:
        return one
    if one is _NULL:
        return other
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    return _STRING


def _final_type(inferred: _Inferred, case_sensitive: bool) -> DataType | None:
    """Return a type that can be decoded; an object without fields has none."""
    if isinstance(inferred, list):
        element = _final_type(inferred[0], case_sensitive)
        return None if element is None else ArrayType(element)
    if isinstance(inferred, dict):
        kept: dict[str, StructField] = {}
        for name, found in inferred.items():
            data_type = _final_type(found, case_sensitive) if name else None  # no column has an empty name
            if data_type is None:
                continue
            key = name if case_sensitive else name.lower()
            if key in kept:
                _log.warning("infer_schema: %r is left out, because %r differs only in case", name, kept[key].name)
                continue
            kept[key] = StructField(name, data_type)
        return StructType(sorted(kept.values(), key=_java_order)) if kept else None
    # As in Spark, a field that is always null is a string. Unlike in Spark, so is an integer of more than 64 bits.
    return _STRING if inferred in (_NULL, _BIG) else inferred


def _java_order(field: StructField) -> bytes:
    return field.name.encode("utf-16-be")
