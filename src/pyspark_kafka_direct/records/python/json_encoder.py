"""The Python JSON encoder: each column becomes a list of texts, from the innermost columns outwards."""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.records.json_types import WRITES_NULLS, encodable, time_zones
from pyspark_kafka_direct.records.utc_offsets import offset_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    _Zones = Mapping[str, Sequence[tuple[int, int]]]

_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}
_DAY_SECONDS: Final = 86_400
_CYCLE_DAYS: Final = 146_097  # 400 years


def encode_json(values: pa.Array, data_type: pa.DataType | None = None) -> pa.BinaryArray:
    """Encode each value of a column as JSON; a null value is null. The type may have other metadata than the column."""
    import pyarrow as pa

    values = encodable(values)
    texts = _texts(values, values.type if data_type is None else data_type, time_zones(values.type))
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def _texts(array: pa.Array, data_type: pa.DataType, zones: _Zones) -> list[str | None]:
    """Return the JSON of each value; None for null."""
    import pyarrow as pa

    if pa.types.is_nested(data_type):
        texts = _nested_texts(array, data_type, zones)
        return [text if valid else None for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)]
    write = _writer(array.type, zones)
    return [None if value is None else write(value) for value in _plain(array).to_pylist()]


def _nested_texts(array: pa.Array, data_type: pa.DataType, zones: _Zones) -> list[str]:
    """Return the JSON of each value; the text of a null is replaced by ``_texts``."""
    import pyarrow as pa

    if pa.types.is_struct(data_type):
        columns = [
            _members(field, _texts(column, field.type, zones))
            for field, column in zip(data_type, array.flatten(), strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        return [f"{{{','.join(text for text in row if text is not None)}}}" for row in rows]
    offsets = array.offsets.to_pylist()
    if pa.types.is_map(data_type):
        keys = [_quoted(text or "") for text in _key_texts(array.keys, zones)]
        items = [text or "null" for text in _texts(array.items, data_type.item_type, zones)]
        entries = [f"{key}:{item}" for key, item in zip(keys, items, strict=True)]
        return [f"{{{','.join(entries[start:end])}}}" for start, end in pairwise(offsets)]
    elements = [text or "null" for text in _texts(array.values, data_type.value_type, zones)]
    return [f"[{','.join(elements[start:end])}]" for start, end in pairwise(offsets)]


def _members(field: pa.Field, texts: Sequence[str | None]) -> list[str | None]:
    name = _string(field.name.encode())
    null = f"{name}:null" if WRITES_NULLS.items() <= (field.metadata or {}).items() else None
    return [null if text is None else f"{name}:{text}" for text in texts]


def _key_texts(keys: pa.Array, zones: _Zones) -> list[str | None]:
    """Return the texts of a map's keys. Spark writes times as its internal numbers."""
    import pyarrow as pa

    keys = _plain(keys) if pa.types.is_temporal(keys.type) else keys
    return _texts(keys, keys.type, zones)


def _quoted(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'


def _plain(array: pa.Array) -> pa.Array:
    """Return times as integers, and strings as bytes, which may not be UTF-8."""
    import pyarrow as pa

    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.cast(pa.binary()) if pa.types.is_string(array.type) else array


def _writer(data_type: pa.DataType, zones: _Zones) -> Callable[[Any], str]:
    import pyarrow as pa

    types = pa.types
    if types.is_string(data_type):
        return _string
    if types.is_binary(data_type):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if types.is_boolean(data_type):
        return lambda value: "true" if value else "false"
    if types.is_float32(data_type):
        return lambda value: _floating(value, _single_digits)
    if types.is_float64(data_type):
        return lambda value: _floating(value, _double_digits)
    if types.is_decimal(data_type):
        return str  # Python's Decimal follows the rules of Java's BigDecimal
    if types.is_date32(data_type):
        return lambda days: f'"{_date(days)}"'
    if types.is_timestamp(data_type):
        offsets = None if data_type.tz is None else zones[data_type.tz]
        return lambda micros: _timestamp(micros, offsets)
    return str


def _string(value: bytes) -> str:
    return f'"{value.decode(errors="replace").translate(_ESCAPES)}"'


def _floating(value: float, digits: Callable[[float], str]) -> str:
    """Write a number as Java's ``Double.toString`` does since JDK 19."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"-Infinity"' if value < 0 else '"Infinity"'
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    mantissa, _, exponent_text = digits(abs(value)).partition("e")
    exponent, significant = int(exponent_text), mantissa.replace(".", "")
    if not -3 <= exponent < 7:
        return f"{sign}{significant[0]}.{significant[1:]}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{significant.rstrip('0')}"
    significant = significant.ljust(exponent + 2, "0")
    return f"{sign}{significant[: exponent + 1]}.{significant[exponent + 1 :]}"


def _double_digits(value: float) -> str:
    """Return the digits of the shortest decimal that is this number, at least two, such as ``1.5e-07``."""
    return _nearest_digits(value, repr(value), float)


def _single_digits(value: float) -> str:
    import pyarrow as pa

    def parse(text: str) -> float:
        single: float = pa.scalar(text).cast(pa.float32()).as_py()
        return single

    return _nearest_digits(value, pa.scalar(value, pa.float32()).cast(pa.string()).as_py(), parse)


def _nearest_digits(value: float, shortest: str, parse: Callable[[str], float]) -> str:
    """Return the nearest of the decimals with so many digits that are this number."""
    precision = max(len(Decimal(shortest).normalize().as_tuple().digits), 2) - 1
    nearest = f"{value:.{precision}e}"
    return nearest if parse(nearest) == value else f"{Decimal(shortest):.{precision}e}"


def _timestamp(micros: int, offsets: Sequence[tuple[int, int]] | None) -> str:
    offset = 0 if offsets is None else offset_at(offsets, micros // 1_000_000)
    second, millis = divmod(micros // 1000 + offset * 1000, 1000)
    day, of_day = divmod(second, _DAY_SECONDS)
    time = f"{of_day // 3600:02}:{of_day // 60 % 60:02}:{of_day % 60:02}.{millis:03}"
    if offsets is None:
        suffix = ""
    elif offset == 0:
        suffix = "Z"
    else:
        seconds = abs(offset)
        suffix = f"{'-' if offset < 0 else '+'}{seconds // 3600:02}:{seconds // 60 % 60:02}"
        suffix += f":{seconds % 60:02}" if seconds % 60 else ""  # before zones had standard times
    return f'"{_date(day)}T{time}{suffix}"'


def _date(days: int) -> str:
    """Write a date of the proleptic Gregorian calendar; Python's ``date`` ends with the year 9999."""
    # Years begin in March, so that the leap day is the last one.
    cycle, day = divmod(days + 719_468, _CYCLE_DAYS)
    year = (day - day // 1460 + day // 36_524 - day // (_CYCLE_DAYS - 1)) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    year += cycle * 400 + (month >= 10)
    month += 3 if month < 10 else -9
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day_of_month:02}"
