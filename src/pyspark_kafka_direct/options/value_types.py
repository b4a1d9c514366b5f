"""The types of option values: each parses a string that a user gave, or raises an error that says what is expected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import did_you_mean, either
from pyspark_kafka_direct.options.positions import TIMES_FORM, parse_time
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)

OptionValue: TypeAlias = str | int | float | bool | Secret | tuple[str, ...]

_TIME_FORM: Final = f"one timestamp in milliseconds since 1970, or {TIMES_FORM}"
_MAX_SHOWN: Final = 200  # a value can be long, for example the content of a file instead of its name

# Without these patterns, int() and float() would also accept "1_000" and digits of other scripts.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,18})(us|ms|s|m|min|h|d)?", re.ASCII)
_UNIT_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Text:
    name: str = "string"  # the type, as the documentation names it; so in every class
    pattern: re.Pattern[str] | None = None  # that the value must match
    expected: str = ""  # the values that match; follows "must be" in messages

    def parse(self, value: str, name: str) -> str:
        if self.pattern is not None and self.pattern.fullmatch(value) is None:
            raise invalid_value(name, value, self.expected)
        return value


@dataclass(frozen=True, slots=True)
class SecretText:
    name: ClassVar = "string"

    def parse(self, value: str, _: str) -> Secret:
        return Secret(value)


@dataclass(frozen=True, slots=True)
class Boolean:
    name: ClassVar = "boolean"

    def parse(self, value: str, name: str) -> bool:
        return _one_of(("true", "false"), value, name) == "true"


@dataclass(frozen=True, slots=True)
class Integer:
    low: int = MIN_INT64
    high: int = MAX_INT64
    name: ClassVar = "integer"

    def parse(self, value: str, name: str) -> int:
        if _INTEGER.fullmatch(value) is None or not self.low <= int(value) <= self.high:
            has_limits = (self.low, self.high) != (MIN_INT64, MAX_INT64)
            limits = f" from {self.low} to {self.high}" if has_limits else ""
            raise invalid_value(name, value, f"an integer{limits}")
        return int(value)


@dataclass(frozen=True, slots=True)
class Timestamp:
    name: ClassVar = "timestamp in ms, or time"

    def parse(self, value: str, name: str) -> str:
        try:
            parse_time(value, on_no_match=None)
        except ValueError as error:
            raise invalid_value(name, value, _TIME_FORM, reason=str(error)) from None
        return value  # a string until the parser of the option parses it, with its strategy


@dataclass(frozen=True, slots=True)
class Number:
    name: ClassVar = "number"

    def parse(self, value: str, name: str) -> float:
        if _NUMBER.fullmatch(value) is None or float(value) < 0:
            raise invalid_value(name, value, "a number of at least 0, such as 0.2")
        return float(value)


@dataclass(frozen=True, slots=True)
class Duration:
    """An integer with a unit, which is parsed into seconds, like Spark's ``JavaUtils.timeStringAs``."""

    low: int = 0  # the lowest number, in any unit: 0 or 1
    name: ClassVar = "duration"

    def parse(self, value: str, name: str, default_unit: str = "ms") -> float:
        match = _DURATION.fullmatch(value.lower())
        if match is None or int(match[1]) < self.low:
            minimum = " greater than 0," if self.low else ""
            raise invalid_value(name, value, f"a duration{minimum} such as 500ms, 30s or 15m")
        return int(match[1]) * _UNIT_SECONDS[match[2] or default_unit]


@dataclass(frozen=True, slots=True)
class Enum:
    allowed: tuple[str, ...]  # in canonical case
    other: Text | None = None  # further values
    name: ClassVar = "enum"

    def parse(self, value: str, name: str) -> str:
        if self.other is None:
            return _one_of(self.allowed, value, name)
        if self.other.pattern is not None and self.other.pattern.fullmatch(value):
            return value
        # `expected` is only for the error, which lists what is allowed; as a value, it would have matched the pattern.
        return _one_of((*self.allowed, self.other.expected), value, name)


@dataclass(frozen=True, slots=True)
class ListOf:
    """Entries separated by commas; empty ones are dropped."""

    entry: Text
    name: ClassVar = "list"

    def parse(self, value: str, name: str) -> tuple[str, ...]:
        entries = (entry.strip() for entry in value.split(","))
        return tuple(self.entry.parse(entry, name) for entry in entries if entry)


ValueType: TypeAlias = Text | SecretText | Boolean | Integer | Timestamp | Number | Duration | Enum | ListOf

STRING: Final = Text()
SECRET: Final = SecretText()
BOOLEAN: Final = Boolean()
INTEGER: Final = Integer()
INT32: Final = Integer(0, MAX_INT32)
POSITIVE_INT32: Final = Integer(1, MAX_INT32)
INT64: Final = Integer(0, MAX_INT64)
POSITIVE_INT64: Final = Integer(1, MAX_INT64)
NUMBER: Final = Number()
DURATION: Final = Duration()
LIST: Final = ListOf(STRING)
TIMESTAMP: Final = Timestamp()
JSON: Final = Text("JSON")  # stays a string until the parser of the option parses it
POSITION: Final = Text("position, or JSON")  # this, too
FACTORY: Final = Text(
    pattern=re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*"), expected="module:factory"
)


def invalid_value(
    name: str, value: str, expected: str, *, candidates: Sequence[str] = (), reason: str = ""
) -> OptionError:
    """Return the error for an invalid value, which must not be a secret."""
    hint = did_you_mean(value, candidates) if candidates else ""
    hint += f": {reason}" if reason else ""
    shown_value = repr(value[:_MAX_SHOWN]) + ("..." if len(value) > _MAX_SHOWN else "")
    return OptionError(f"{name} must be {expected}, got {shown_value}{hint}")


def _one_of(allowed: Sequence[str], value: str, name: str) -> str:
    """Return the allowed value in its canonical case; raise an error for others."""
    for allowed_value in allowed:
        if allowed_value.lower() == value.lower():
            return allowed_value
    shown_values = [allowed_value for allowed_value in allowed if allowed_value]  # an empty one cannot be shown
    raise invalid_value(name, value, either(shown_values), candidates=shown_values)
