"""From the text of a setting to its value: one reader for each kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.settings._messages import bad_value
from pyspark_kafka_direct.settings.row import INT64, Kind
from pyspark_kafka_direct.settings.secret import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.row import Setting

Value: TypeAlias = str | int | float | bool | Secret | tuple[str, ...]

# int() and float() alone would also take "1_000" and digits of other scripts.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,18})(us|ms|s|m|min|h|d)?", re.ASCII)
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_value(row: Setting, text: str, name: str, unit: str = "ms") -> Value:
    """Read a value from its text.

    Args:
        row: The setting.
        text: What was given.
        name: The name it was given under, for the message.
        unit: Of a duration that is a number alone.

    Raises:
        OptionError: The text is no such value; names the setting, what was given and what is allowed.
    """
    if not row.verbatim:
        text = text.strip()
    if row.secret:
        return Secret(text)
    match row.kind:
        case Kind.FLAG:
            return _word(row, text, name, ("true", "false")) == "true"
        case Kind.NUMBER:
            return _number(row, text, name)
        case Kind.DECIMAL:
            return _decimal(row, text, name)
        case Kind.DURATION:
            return _duration(row, text, name, unit)
        case Kind.WORD:
            return _word(row, text, name, row.allowed)
        case Kind.LIST:
            return _list(row, text, name)
        case Kind.TEXT | Kind.JSON | Kind.TIMESTAMP:
            if row.form is not None and row.form.pattern.fullmatch(text) is None:
                raise bad_value(name, text, row.form.words)
            return text


def _number(row: Setting, text: str, name: str) -> int:
    low = -INT64 - 1 if row.low is None else row.low
    high = INT64 if row.high is None else row.high
    if _WHOLE.fullmatch(text) is None or not low <= int(text) <= high:
        limits = "" if row.low is None and row.high is None else f" from {low} to {high}"
        raise bad_value(name, text, f"a whole number{limits}")
    return int(text)


def _decimal(row: Setting, text: str, name: str) -> float:
    low = 0 if row.low is None else row.low
    if _DECIMAL.fullmatch(text) is None or float(text) < low:
        raise bad_value(name, text, f"a number from {low} such as 0.2")
    return float(text)


def _duration(row: Setting, text: str, name: str, unit: str) -> float:
    """Read seconds from a whole number and a unit, as Spark writes them (``JavaUtils.timeStringAs``)."""
    found = _DURATION.fullmatch(text.lower())
    low = row.low or 0
    if found is None or int(found[1]) < low:
        above = " above 0" if low else ""
        raise bad_value(name, text, f"a duration{above} such as 500ms, 30s or 15m")
    return int(found[1]) * _SECONDS[found[2] or unit]


def _word(row: Setting, text: str, name: str, allowed: tuple[str, ...]) -> str:
    for word in allowed:
        if word.lower() == text.lower():
            return word
    shown = [word for word in allowed if word]
    raise bad_value(name, text, " or ".join([", ".join(shown[:-1]), shown[-1]]) if shown[1:] else shown[0], words=shown)


def _list(row: Setting, text: str, name: str) -> tuple[str, ...]:
    entries = tuple(entry for entry in (entry.strip() for entry in text.split(",")) if entry)
    for entry in entries:
        if row.form is not None and row.form.pattern.fullmatch(entry) is None:
            raise bad_value(name, entry, row.form.words)
    return entries
