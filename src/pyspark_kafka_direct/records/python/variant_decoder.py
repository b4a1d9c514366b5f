"""JSON values to Spark's VARIANT in Python, with the bytes of Spark's ``parse_json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.records.columns import binary_values
from pyspark_kafka_direct.records.decoded_size import DecodedSize, width
from pyspark_kafka_direct.records.json_values import (
    DUPLICATE_KEY,
    MAX_DECODED_BYTES,
    SIZE,
    DecodedValues,
    malformed_values,
    variant_type,
)
from pyspark_kafka_direct.records.python import variant_bytes
from pyspark_kafka_direct.records.python.json_scanner import (
    DEPTH,
    MAX_DEPTH,
    TRAILING,
    MalformedJsonError,
    Scanner,
)
from pyspark_kafka_direct.records.python.variant_bytes import Field

if TYPE_CHECKING:
    import pyarrow as pa

_INT64: Final = range(-(1 << 63), 1 << 63)


class PythonVariantDecoder:
    """A ``JsonDecoder`` of VARIANTs in Python."""

    def __init__(self, max_bytes: int = MAX_DECODED_BYTES) -> None:
        self._max_bytes = max_bytes

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        import pyarrow as pa

        variants: list[tuple[bytes, bytes] | None] = []
        misfits: list[tuple[int, str] | None] = []
        size = DecodedSize(self._max_bytes, width(variant_type()))
        for value in binary_values(values):
            if not size.begin_row(0):
                break
            variant, misfit = (None, None) if value is None else _decode_value(value)
            if variant is not None and not size.add(sum(map(len, variant))):
                break
            variants.append(variant)
            misfits.append(misfit)
        decoded = pa.StructArray.from_arrays(
            [pa.array([variant[part] if variant else b"" for variant in variants], pa.binary()) for part in (0, 1)],
            fields=list(variant_type()),
            mask=pa.array([variant is None for variant in variants], pa.bool_()),
        )
        return DecodedValues(decoded, malformed_values(misfits))


def _decode_value(value: bytes) -> tuple[tuple[bytes, bytes] | None, tuple[int, str] | None]:
    """Return the VARIANT of a value, or position and reason if it is malformed."""
    scanner = Scanner(value, is_strict=True)
    try:
        variant, at = read_variant(scanner, scanner.blanks(0))
        at = scanner.blanks(at)
        if at < scanner.end:
            scanner.fail(at, TRAILING)
    except MalformedJsonError as error:
        return None, (error.position, error.reason)
    return variant, None


class _Open:
    """An open object or array."""

    def __init__(self, is_object: bool) -> None:
        self.is_object = is_object
        self.closing = "}" if is_object else "]"
        self.names: list[str] = []
        self.values: list[bytes] = []


def read_variant(scanner: Scanner, start: int) -> tuple[tuple[bytes, bytes], int]:
    """Return value and metadata of the VARIANT at a position, and the position after it."""
    ids: dict[str, int] = {}
    value, at = _read_value(scanner, start, ids)
    metadata = variant_bytes.metadata_of([name.encode() for name in ids])
    if max(len(value), len(metadata)) > variant_bytes.SIZE_LIMIT:
        raise MalformedJsonError(at, SIZE)
    return (value, metadata), at


def _read_value(scanner: Scanner, at: int, ids: dict[str, int]) -> tuple[bytes, int]:
    """Without recursion, because values may be nested more deeply than Python's calls."""
    open_values: list[_Open] = []
    while True:
        first = scanner.byte(at)
        if first in ("{", "["):
            if scanner.depth + len(open_values) == MAX_DEPTH:
                raise MalformedJsonError(at, DEPTH)
            inner = _Open(first == "{")
            open_values.append(inner)
            at = scanner.blanks(at + 1)
            if scanner.byte(at) != inner.closing:
                at = _read_key(scanner, at, inner, ids)
                continue
        else:
            value, at = _scalar(scanner, at, first)
            if not open_values:
                return value, at
            open_values[-1].values.append(value)
        # Then closing brackets, until another value follows.
        while True:
            innermost = open_values[-1]
            at = scanner.blanks(at)
            if innermost.values and scanner.byte(at) == ",":
                at = _read_key(scanner, scanner.blanks(at + 1), innermost, ids)
                break
            at = scanner.literal(at, innermost.closing)
            value = _close(innermost, at, ids)
            open_values.pop()
            if not open_values:
                return value, at
            open_values[-1].values.append(value)


def _read_key(scanner: Scanner, at: int, innermost: _Open, ids: dict[str, int]) -> int:
    """Read the key of the next field; returns the position of its value."""
    if not innermost.is_object:
        return at
    end = scanner.string_end(at)
    name = scanner.unescaped(at + 1, end, accepts_half_pairs=False).decode(errors="replace")
    ids.setdefault(name, len(ids))
    innermost.names.append(name)
    return scanner.blanks(scanner.literal(scanner.blanks(end + 1), ":"))


def _close(innermost: _Open, at: int, ids: dict[str, int]) -> bytes:
    if not innermost.is_object:
        return variant_bytes.array_of(innermost.values)
    if len(set(innermost.names)) < len(innermost.names):
        raise MalformedJsonError(at - 1, DUPLICATE_KEY)
    named_values = zip(innermost.names, innermost.values, strict=True)
    return variant_bytes.object_of([Field(name, ids[name], value) for name, value in named_values])


def _scalar(scanner: Scanner, at: int, first: str) -> tuple[bytes, int]:
    match first:
        case '"' | "'":
            end = scanner.string_end(at)
            text = scanner.unescaped(at + 1, end, accepts_half_pairs=False).decode(errors="replace")
            return variant_bytes.string(text.encode()), end + 1
        case "n":
            return variant_bytes.NULL, scanner.literal(at, "null")
        case "t":
            return variant_bytes.TRUE, scanner.literal(at, "true")
        case "f":
            return variant_bytes.FALSE, scanner.literal(at, "false")
    number = scanner.number(at)
    if number.non_finite is not None:
        return variant_bytes.double(number.non_finite), number.end
    text = scanner.text[at : number.end]
    if number.is_integer and int(text) in _INT64:
        return variant_bytes.integer(int(text)), number.end
    return variant_bytes.decimal(text) or variant_bytes.double(float(text)), number.end
