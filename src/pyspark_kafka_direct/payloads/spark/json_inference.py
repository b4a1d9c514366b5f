"""The fields of JSON objects, inferred as ``spark.read.json`` does.

It is done here, because Spark takes JSON for inference only within a plan, and plans appear in its UI and event logs.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

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


MAX_DEPTH: Final = 1000
"""Nested objects and arrays, that of the value included: Spark's default (``maxNestingDepth``)."""

_MAX_DIGITS: Final = 1000  # Spark's default (``maxNumLen``)

TRUNCATED: Final = "the JSON is incomplete"
UNEXPECTED: Final = "unexpected character"
NUMBER: Final = "invalid number"
CONTROL_CHARACTER: Final = "unescaped control character in a string"
ESCAPE: Final = "invalid escape sequence"
DEPTH: Final = "nested too deeply"
TRAILING: Final = "characters after the end of the JSON value"
NOT_OBJECT: Final = "the value is not a JSON object"

_BLANKS: Final = re.compile(r"[ \n\r\t]*")
_DIGITS: Final = re.compile(r"[0-9]*")
_STRING_END: Final = {quote: re.compile(rf"[\x00-\x1f\\{quote}]") for quote in "\"'"}
_NON_FINITE: Final = ("NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "-INF")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")
_HIGH_SURROGATES: Final = range(0xD800, 0xDC00)
_LOW_SURROGATES: Final = range(0xDC00, 0xE000)


class MalformedJsonError(ValueError):
    """The position, and why the value cannot be read there."""


class Number(NamedTuple):
    end: int
    is_integer: bool


class Scanner:
    """Scans one value, with the grammar that Spark's ``from_json`` reads by default.

    That is JSON, strings in single quotes, and the numbers NaN, Infinity and INF. Characters are bytes (Latin-1), so
    that positions are those of bytes.
    """

    def __init__(self, value: bytes) -> None:
        self.text = value.decode("latin-1")
        self.end = len(self.text)
        self.depth = 0

    def fail(self, at: int, reason: str) -> NoReturn:
        """Raise an error; one at the end of the value means that it is incomplete."""
        raise MalformedJsonError(*((at, reason) if at < self.end else (self.end, TRUNCATED)))

    def byte(self, at: int) -> str:
        """Return the character at a position, or an empty string."""
        return self.text[at : at + 1] if at < self.end else ""

    def blanks(self, at: int) -> int:
        """Return the position after blanks."""
        found = _BLANKS.match(self.text, at, self.end)
        return at if found is None else found.end()

    def literal(self, at: int, word: str) -> int:
        if not self.text.startswith(word, at, self.end):
            self.fail(at, UNEXPECTED)
        return at + len(word)

    def enter(self, at: int) -> None:
        if self.depth == MAX_DEPTH:
            raise MalformedJsonError(at, DEPTH)
        self.depth += 1

    def string_end(self, at: int) -> int:
        """Return the position of the closing quote of the string at ``at``. Its escapes are not checked."""
        quote = self.byte(at)
        if quote not in ('"', "'"):
            self.fail(at, UNEXPECTED)
        special = _STRING_END[quote]
        at += 1
        while (found := special.search(self.text, at, self.end)) is not None:
            at = found.start()
            if found[0] == quote:
                return at
            if found[0] != "\\":
                raise MalformedJsonError(at, CONTROL_CHARACTER)
            at += 2
        raise MalformedJsonError(self.end, TRUNCATED)

    def unescaped(self, start: int, end: int) -> bytes:
        """Return a string's bytes without its escapes; halves of surrogate pairs become ``?``, as in Java."""
        if "\\" not in self.text[start:end]:
            return self.text[start:end].encode("latin-1")
        parts: list[bytes] = []
        at = start
        while (found := self.text.find("\\", at, end)) >= 0:
            parts.append(self.text[at:found].encode("latin-1"))
            escape = self.text[found + 1 : found + 2] if found + 1 < end else ""
            at = found + 2
            if escape == "u":
                character, at = self._unicode_escape(found, end)
                parts.append((character or "?").encode())
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape].encode())
            else:
                raise MalformedJsonError(found, ESCAPE)
        parts.append(self.text[at:end].encode("latin-1"))
        return b"".join(parts)

    def number(self, start: int) -> Number:
        """Scan the number at ``start``: digits, and perhaps a fraction and an exponent."""
        first = start + (self.byte(start) == "-")
        at = self._digits(first)
        if at == first:
            return self._non_finite(start)  # or an error
        if self.text[first] == "0" and at > first + 1:
            self.fail(first, NUMBER)
        digits = 0 if self.text[first] == "0" else at - first  # a leading 0 does not count for the limit, as in Spark
        is_integer = True
        if self.byte(at) == ".":
            is_integer = False
            point, at = at, self._digits(at + 1)
            if at == point + 1:
                self.fail(at, NUMBER)
            digits += at - point - 1
        if self.byte(at) in ("e", "E"):
            is_integer = False
            exponent = at + 1 + (self.byte(at + 1) in ("+", "-"))
            at = self._digits(exponent)
            if at == exponent:
                self.fail(at, NUMBER)
            digits += at - exponent
        if digits > _MAX_DIGITS:
            self.fail(start, NUMBER)
        return Number(at, is_integer)

    def skip(self, at: int) -> int:
        """Return the position after the value at ``at``, which must be valid."""
        first = self.byte(at)
        if first in ("{", "["):
            return self._skip_nested(at)
        return self._skip_scalar(at, first)

    def _skip_scalar(self, at: int, first: str) -> int:
        match first:
            case '"' | "'":
                end = self.string_end(at)
                self.unescaped(at + 1, end)
                return end + 1
            case "n":
                return self.literal(at, "null")
            case "t":
                return self.literal(at, "true")
            case "f":
                return self.literal(at, "false")
        return self.number(at).end

    def _skip_nested(self, at: int) -> int:
        """Skip an object or array without recursion, because values may be nested more deeply than Python's calls."""
        closing: list[str] = []
        while True:
            first = self.byte(at)
            opened = first in ("{", "[")
            if opened:
                # The depth counts the values around this one, which were entered.
                if self.depth + len(closing) == MAX_DEPTH:
                    raise MalformedJsonError(at, DEPTH)
                closing.append("}" if first == "{" else "]")
                at += 1
            else:
                at = self._skip_scalar(at, first)
            is_complete = not opened  # whether a value or a bracket has ended, after which comes a comma or a bracket
            at = self.blanks(at)
            while self.byte(at) == closing[-1]:
                closing.pop()
                at += 1
                if not closing:
                    return at
                is_complete = True
                at = self.blanks(at)
            if is_complete:
                at = self.blanks(self.literal(at, ","))
            if closing[-1] == "}":  # the name of a field comes before its value
                end = self.string_end(at)
                self.unescaped(at + 1, end)
                at = self.blanks(self.literal(self.blanks(end + 1), ":"))

    def _digits(self, at: int) -> int:
        found = _DIGITS.match(self.text, at, self.end)
        return at if found is None else found.end()

    def _non_finite(self, start: int) -> Number:
        for word in _NON_FINITE:
            if self.text.startswith(word, start, self.end):
                return Number(start + len(word), False)
        return self.fail(start, NUMBER if self.byte(start) in ("+", "-", ".") else UNEXPECTED)

    def _unicode_escape(self, at: int, end: int) -> tuple[str, int]:
        """Return the character of the escape at ``at``, or of two that are a surrogate pair, and the position after.

        Half of a pair is an empty string.
        """
        first = _HEX4.match(self.text, at + 2, end)
        if first is None:
            raise MalformedJsonError(at, ESCAPE)
        code = int(first[0], 16)
        if code in _HIGH_SURROGATES and self.text.startswith("\\u", first.end(), end):
            second = _HEX4.match(self.text, first.end() + 2, end)
            if second is not None and int(second[0], 16) in _LOW_SURROGATES:
                return chr(0x10000 + ((code - 0xD800) << 10) + int(second[0], 16) - 0xDC00), second.end()
        is_surrogate = code in _HIGH_SURROGATES or code in _LOW_SURROGATES
        return "" if is_surrogate else chr(code), first.end()
