"""Records as lines: in the format of kcat, or as JSON."""

from __future__ import annotations

import base64
import os
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.payloads.json.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

_TOKEN: Final = re.compile(r"%(.)|\\x([0-9A-Fa-f]{2})|\\([ntr\\])|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
_JSON_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")
# What would change the state of a terminal, or what it shows of other lines.
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class RecordLines:
    """Writes record batches in a format; ``None`` is JSON, one object per record."""

    def __init__(self, line_format: str | None, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._parts: list[bytes | Callable[[pa.RecordBatch], pa.Array]] = []
        self.columns: Sequence[str] = _JSON_COLUMNS
        if line_format is None:
            self._parts = [_json_objects, b"\n"]
        else:
            self._parts, self.columns = _parse_format(line_format)

    def write(self, batch: pa.RecordBatch, output: BinaryIO) -> None:
        """Write the records; in a terminal, control characters of records are shown as escapes."""
        if not batch.num_rows:
            return
        columns = [part if isinstance(part, bytes) else part(batch) for part in self._parts]
        if all(isinstance(part, bytes) for part in columns):
            output.write(b"".join(columns) * batch.num_rows)
            return
        arguments = [_literal(part) if isinstance(part, bytes) else part for part in (*columns, b"")]
        joined = pc.binary_join_element_wise(*arguments, null_handling="replace", null_replacement=b"")
        lines = memoryview(joined.cast(pa.binary()).buffers()[2] or b"")
        output.write(_CONTROLS.sub(_escape, lines) if self._is_terminal else lines)


def _literal(value: bytes) -> pa.Scalar:
    """Return a scalar. ``pa.scalar`` would import pandas, which takes longer than to print ten records."""
    offsets = struct.pack("=ii", 0, len(value))
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])[0]


def _parse_format(
    line_format: str,
) -> tuple[list[bytes | Callable[[pa.RecordBatch], pa.Array]], Sequence[str]]:
    """Return the parts of a format of kcat, and the columns that they need."""
    parts: list[bytes | Callable[[pa.RecordBatch], pa.Array]] = []
    columns: list[str] = []
    for match in _TOKEN.finditer(line_format):
        letter, code, escape, text, other = match.groups()
        if letter is None:
            literal = bytes.fromhex(code) if code else _ESCAPES[escape] if escape else os.fsencode(text or other)
            parts.append(literal)
        elif letter == "%":
            parts.append(b"%")
        elif letter in _FIELDS:
            column, function = _FIELDS[letter]
            columns.append(column)
            parts.append(_part(column, function))
        else:
            raise OptionError(f"-f: %{letter} is unknown; use {', '.join(f'%{each}' for each in _FIELDS)} or %%")
    # Arrow needs one column to know the number of rows.
    return parts, tuple(dict.fromkeys(columns)) or ("offset",)


def _part(column: str, function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: function(batch.column(column))


def _bytes(values: pa.Array) -> pa.Array:
    """Return keys or values as bytes; decoded ones as JSON."""
    if pa.types.is_binary(values.type):
        return values
    if pa.types.is_string(values.type):
        return values.cast(pa.binary())
    if pa.types.is_nested(values.type):
        return encode_json(values)
    return values.cast(pa.string()).cast(pa.binary())


def _length(values: pa.Array) -> pa.Array:
    """Return the lengths of keys or values in bytes, and -1 for null."""
    return _text(pc.fill_null(pc.binary_length(_bytes(values)), -1))


def _text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.binary())


def _milliseconds(values: pa.Array) -> pa.Array:
    return _text(pc.floor(pc.divide(values.cast(pa.int64()).cast(pa.float64()), 1000)).cast(pa.int64()))


def _headers(values: pa.Array) -> pa.Array:
    """Return headers in the form name=value,name=value."""
    rows = [
        b",".join(name.encode() + b"=" + (value or b"") for name, value in map(_pair, headers or ()))
        for headers in values.to_pylist()
    ]
    return pa.array(rows, pa.binary())


def _pair(header: Any) -> tuple[str, bytes | None]:
    return header["key"], header["value"]


_FIELDS: Final[dict[str, tuple[str, Callable[[pa.Array], pa.Array]]]] = {
    "t": ("topic", _bytes),
    "p": ("partition", _text),
    "o": ("offset", _text),
    "T": ("timestamp", _milliseconds),
    "k": ("key", _bytes),
    "K": ("key", _length),
    "s": ("value", _bytes),
    "S": ("value", _length),
    "h": ("headers", _headers),
}
"""The column of each letter, and the function that formats it."""


def _json_objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each record as a JSON object; null fields are left out, and bytes that are not UTF-8 are in base64."""
    names: list[str] = []
    arrays: list[pa.Array] = []
    for name in _JSON_COLUMNS:
        column = batch.column(name)
        if name == "headers":
            column = _text_headers(column)
        elif pa.types.is_binary(column.type):
            column, encoded = _strings_or_base64(column)
            if encoded is not None:
                names.append(f"{name}Base64")
                arrays.append(encoded)
        names.append(name)
        arrays.append(column)
    return encode_json(pa.StructArray.from_arrays(arrays, names))


def _strings_or_base64(values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return values as strings, and those that are not UTF-8 in base64 (None if there are none)."""
    try:
        return values.cast(pa.string()), None
    except pa.ArrowInvalid:
        pairs = [(None, None) if value is None else _string_or_base64(value) for value in values.to_pylist()]
        return pa.array([pair[0] for pair in pairs], pa.string()), pa.array([pair[1] for pair in pairs], pa.string())


def _string_or_base64(value: bytes) -> tuple[str | None, str | None]:
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(value).decode()


def _text_headers(headers: pa.Array) -> pa.Array:
    """Return the headers with values as strings."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.string())
    flat = headers.flatten()
    values, encoded = _strings_or_base64(flat.field("value"))
    fields = [flat.field("key"), values] + ([encoded] if encoded is not None else [])
    names = ["key", "value"] + (["valueBase64"] if encoded is not None else [])
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])  # of a slice, they begin at 0
    structs = pa.StructArray.from_arrays(fields, names)
    return pa.ListArray.from_arrays(offsets, structs, mask=headers.is_null())


def _escape(match: re.Match[bytes]) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in match[0])
