"""The Python JSON decoder, by recursion over the schema."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark_kafka_direct.records.columns import binary_values
from pyspark_kafka_direct.records.decoded_size import DecodedSize, element_width, fits_column, width
from pyspark_kafka_direct.records.json_values import (
    CONVERSION_REASONS,
    RANGE,
    SIZE,
    TYPE,
    DecodedValues,
    is_variant,
    malformed_values,
)
from pyspark_kafka_direct.records.python.json_numbers import decode_base64, rounded_decimal
from pyspark_kafka_direct.records.python.json_scanner import (
    NOT_OBJECT,
    TRAILING,
    UNEXPECTED,
    MalformedJsonError,
    Scanner,
)
from pyspark_kafka_direct.records.python.json_times import (
    days_of_date,
    micros_of_seconds,
    micros_of_timestamp,
    micros_without_zone,
)
from pyspark_kafka_direct.records.python.variant_decoder import PythonVariantDecoder, read_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    import pyarrow as pa

    from pyspark_kafka_direct.records.json_values import JsonDecoder, JsonRequest

    _Offsets: TypeAlias = tuple[tuple[int, int], ...]

    # Returns the decoded value at a position, and the position after it.
    _Decode: TypeAlias = Callable[["_Value", int], tuple[Any, int]]

_INTEGER_RANGES: Final = {
    # As in Spark, an unsigned byte is the signed one with the same bits.
    8: range(-(1 << 7), 1 << 8),
    16: range(-(1 << 15), 1 << 15),
    32: range(-(1 << 31), 1 << 31),
    64: range(-(1 << 63), 1 << 63),
}


class _Unfit:
    """In place of a value that does not fit its column."""


_UNFIT: Final = _Unfit()


class _Value(Scanner):
    """A value while it is decoded."""

    def __init__(self, value: bytes, max_bytes: int) -> None:
        super().__init__(value)
        self.misfit: tuple[int, str] | None = None  # position and reason of the first field that does not fit
        self.element_bytes = max_bytes  # how many the elements of arrays and maps, and VARIANTs, may still have

    def add_element(self, size: int, at: int) -> None:
        """Count an element of an array or a map, which has a row in columns, or a VARIANT."""
        if size > self.element_bytes:
            raise MalformedJsonError(at, SIZE)
        self.element_bytes -= size

    def unfit(self, at: int, reason: str) -> tuple[_Unfit, int]:
        end = self.skip(at)
        self.misfit = self.misfit or (at, reason)
        return _UNFIT, end


def create_json_decoder(request: JsonRequest) -> JsonDecoder:
    if request.fields is None:
        return PythonVariantDecoder(request.max_bytes)
    return PythonJsonDecoder(request.fields, request.corrupt_record, request.utc_offsets(), request.max_bytes)


class PythonJsonDecoder:
    """A ``JsonDecoder`` of structs in Python."""

    def __init__(
        self, fields: pa.Schema, corrupt_record: str, offsets: Sequence[tuple[int, int]], max_bytes: int
    ) -> None:
        import pyarrow as pa

        self._type = pa.struct(list(fields))
        self._max_bytes = max_bytes
        self._corrupt_record = corrupt_record if corrupt_record in fields.names else None
        wanted = {field.name: field.type for field in fields if field.name != self._corrupt_record}
        self._decode_object = _object_decoder(wanted, tuple(offsets))

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        import pyarrow as pa

        structs: list[dict[str, Any] | None] = []
        misfits: list[tuple[int, str] | None] = []
        size = DecodedSize(self._max_bytes, width(self._type))
        for value in binary_values(values):
            if not size.begin_row(len(value or b"")):
                break
            struct, misfit, found_bytes = (None, None, 0) if value is None else self._decode_value(value)
            if misfit is not None and value is not None and self._corrupt_record is not None:
                found_bytes += len(value)
                text = value.decode(errors="replace") if fits_column(value) else None
                struct = {**(struct or {}), self._corrupt_record: text}
            if not size.add(found_bytes):
                break
            structs.append(struct)
            misfits.append(misfit)
        return DecodedValues(pa.array(structs, self._type), malformed_values(misfits))

    def _decode_value(self, value: bytes) -> tuple[dict[str, Any] | None, tuple[int, str] | None, int]:
        """Return the fields of a value, or None for a null struct; position and reason if it is malformed; bytes."""
        if not fits_column(value):
            return {}, (0, SIZE), 0
        scanner = _Value(value, self._max_bytes)
        at = scanner.blanks(0)
        if at == scanner.end:
            return None, None, 0
        try:
            if scanner.byte(at) != "{":
                scanner.fail(at, NOT_OBJECT)
            struct, at = self._decode_object(scanner, at)
            at = scanner.blanks(at)
            if at < scanner.end:
                scanner.fail(at, TRAILING)
        except MalformedJsonError as error:
            return {}, (error.position, error.reason), 0
        return struct, scanner.misfit, self._max_bytes - scanner.element_bytes


def _decoder(data_type: pa.DataType, offsets: _Offsets) -> _Decode:
    """Return a function that decodes values of a type; the offsets are those of the time zone."""
    import pyarrow as pa

    types = pa.types
    if is_variant(data_type):
        return _variant
    if types.is_struct(data_type):
        fields = {field.name: field.type for field in data_type}
        return _for_first("{", _object_decoder(fields, offsets))
    if types.is_list(data_type):
        element_type = data_type.value_type
        return _for_first("[", _array_decoder(_decoder(element_type, offsets), element_width(data_type)))
    if types.is_map(data_type):
        item_type = data_type.item_type
        return _for_first("{", _map_decoder(_decoder(item_type, offsets), element_width(data_type)))
    if types.is_boolean(data_type):
        return _boolean
    if types.is_string(data_type):
        return _string
    if types.is_binary(data_type):
        return _from_text(decode_base64)
    if types.is_date32(data_type):
        return _from_text(days_of_date)
    if types.is_timestamp(data_type):
        return _from_text(micros_without_zone) if data_type.tz is None else _timestamp_decoder(offsets)
    if types.is_decimal(data_type):
        return lambda value, at: _decimal(value, at, data_type.precision, data_type.scale)
    if types.is_floating(data_type):
        is_single = data_type == pa.float32()
        return lambda value, at: _float(value, at, is_single)
    bits = data_type.bit_width
    return lambda value, at: _integer(value, at, bits)


def _for_first(opening: str, decode: _Decode) -> _Decode:
    def decode_nested(value: _Value, at: int) -> tuple[Any, int]:
        if value.byte(at) != opening:
            return value.unfit(at, TYPE)
        return decode(value, at)

    return decode_nested


def _object_decoder(fields: dict[str, pa.DataType], offsets: _Offsets) -> _Decode:
    decoders = {name.encode(): (name, _decoder(data_type, offsets)) for name, data_type in fields.items()}

    def decode_object(value: _Value, start: int) -> tuple[dict[str, Any], int]:
        value.enter(start)
        found: dict[str, Any] = {}
        at = value.blanks(start + 1)
        if value.byte(at) != "}":
            while True:
                end = value.string_end(at)
                name, decode = decoders.get(value.unescaped(at + 1, end), ("", None))
                at = value.blanks(value.literal(value.blanks(end + 1), ":"))
                if decode is None:
                    at = value.skip(at)
                elif value.byte(at) == "n" and decode is not _variant:
                    at, found[name] = value.literal(at, "null"), None
                else:
                    decoded, at = decode(value, at)
                    if decoded is not _UNFIT:
                        found[name] = decoded  # the last duplicate that fits
                at = value.blanks(at)
                if value.byte(at) == "}":
                    break
                at = value.blanks(value.literal(at, ","))
        value.depth -= 1
        return found, at + 1

    return decode_object


def _array_decoder(decode_element: _Decode, element_bytes: int) -> _Decode:
    def decode_array(value: _Value, start: int) -> tuple[list[Any] | _Unfit, int]:
        value.enter(start)
        elements: list[Any] = []
        at = value.blanks(start + 1)
        if value.byte(at) != "]":
            while True:
                value.add_element(element_bytes, at)
                if value.byte(at) == "n" and decode_element is not _variant:
                    at = value.literal(at, "null")
                    elements.append(None)
                else:
                    element, at = decode_element(value, at)
                    elements.append(element)
                at = value.blanks(at)
                if value.byte(at) == "]":
                    break
                if value.byte(at) != ",":
                    value.fail(at, UNEXPECTED)
                at = value.blanks(at + 1)
        value.depth -= 1
        return _UNFIT if any(element is _UNFIT for element in elements) else elements, at + 1

    return decode_array


def _map_decoder(decode_item: _Decode, entry_bytes: int) -> _Decode:
    def decode_map(value: _Value, start: int) -> tuple[list[tuple[str, Any]] | _Unfit, int]:
        value.enter(start)
        entries: list[tuple[str, Any]] = []
        at = value.blanks(start + 1)
        if value.byte(at) != "}":
            while True:
                value.add_element(entry_bytes, at)
                end = value.string_end(at)
                key = value.unescaped(at + 1, end).decode(errors="replace")
                at = value.blanks(value.literal(value.blanks(end + 1), ":"))
                if value.byte(at) == "n" and decode_item is not _variant:
                    at, item = value.literal(at, "null"), None
                else:
                    item, at = decode_item(value, at)
                entries.append((key, item))
                at = value.blanks(at)
                if value.byte(at) == "}":
                    break
                at = value.blanks(value.literal(at, ","))
        value.depth -= 1
        return _UNFIT if any(item is _UNFIT for _, item in entries) else entries, at + 1

    return decode_map


def _from_text(convert: Callable[[bytes], Any]) -> _Decode:
    """Return a function that converts strings; one that returns None does not fit."""

    def decode_text(value: _Value, at: int) -> tuple[Any, int]:
        if value.byte(at) not in ('"', "'"):
            return value.unfit(at, TYPE)
        end = value.string_end(at)
        converted = convert(value.unescaped(at + 1, end))
        return value.unfit(at, TYPE) if converted is None else (converted, end + 1)

    return decode_text


def _timestamp_decoder(offsets: _Offsets) -> _Decode:
    from_text = _from_text(lambda text: micros_of_timestamp(text, offsets))

    def decode_timestamp(value: _Value, at: int) -> tuple[Any, int]:
        if value.byte(at) in ('"', "'"):
            return from_text(value, at)
        seconds, end = _integer(value, at, 64)
        return (seconds if isinstance(seconds, _Unfit) else micros_of_seconds(seconds)), end

    return decode_timestamp


def _decimal(value: _Value, at: int, precision: int, scale: int) -> tuple[Decimal | _Unfit, int]:
    first = value.byte(at)
    if first in ("{", "[", "t", "f"):
        return value.unfit(at, TYPE)
    if first in ('"', "'"):
        end = value.string_end(at)
        text = value.unescaped(at + 1, end)
        end += 1
    else:
        number = value.number(at)
        if number.non_finite is not None:
            return value.unfit(at, TYPE)
        end = number.end
        text = value.text[at:end].encode("latin-1")
    try:
        return rounded_decimal(text, precision, scale), end
    except OverflowError:
        return value.unfit(at, RANGE)
    except ValueError:
        return value.unfit(at, TYPE)


def _variant(value: _Value, at: int) -> tuple[dict[str, bytes] | _Unfit, int]:
    try:
        (content, metadata), end = read_variant(value, at)
        value.add_element(len(content) + len(metadata), end)
    except MalformedJsonError as error:
        if error.reason not in CONVERSION_REASONS:
            raise
        return value.unfit(at, error.reason)
    return {"value": content, "metadata": metadata}, end


def _boolean(value: _Value, at: int) -> tuple[bool | _Unfit, int]:
    match value.byte(at):
        case "t":
            return True, value.literal(at, "true")
        case "f":
            return False, value.literal(at, "false")
    return value.unfit(at, TYPE)


def _string(value: _Value, at: int) -> tuple[str, int]:
    """Decode a string; any other value becomes one as it is written."""
    if value.byte(at) in ('"', "'"):
        end = value.string_end(at)
        return value.unescaped(at + 1, end).decode(errors="replace"), end + 1
    end = value.skip(at)
    return value.text[at:end].encode("latin-1").decode(errors="replace"), end


def _float(value: _Value, at: int, is_single: bool) -> tuple[float | _Unfit, int]:
    first = value.byte(at)
    if first in ('"', "'"):
        number = _quoted_number(value, at)
        return value.unfit(at, TYPE) if number is None else number
    if first in ("{", "[", "t", "f"):
        return value.unfit(at, TYPE)
    found = value.number(at)
    if found.non_finite is not None:
        return found.non_finite, found.end
    text = value.text[at : found.end]
    if found.is_integer and text == "-0":
        return 0.0, found.end
    return (_nearest_single(text) if is_single else float(text)), found.end


def _quoted_number(value: _Value, at: int) -> tuple[float, int] | None:
    """Return the number in a string that Spark reads as one, and the position after it."""
    end = value.string_end(at)
    inner = Scanner(value.text[at + 1 : end].encode("latin-1"))
    try:
        number = inner.number(0)
    except MalformedJsonError:
        return None
    return (number.non_finite, end + 1) if number.non_finite is not None and number.end == inner.end else None


def _nearest_single(text: str) -> float:
    """Return the nearest number with 32 bits; rounding to 64 bits first may give another one."""
    import pyarrow as pa

    try:
        single: float = pa.scalar(text).cast(pa.float32()).as_py()
    except pa.ArrowInvalid:  # out of the range of 32 bits
        return ctypes.c_float(float(text)).value
    return single


def _integer(value: _Value, at: int, bits: int) -> tuple[int | _Unfit, int]:
    if value.byte(at) in ('"', "'", "{", "[", "t", "f"):
        return value.unfit(at, TYPE)
    found = value.number(at)
    if not found.is_integer:
        return value.unfit(at, TYPE)
    integer = int(value.text[at : found.end])
    if integer not in _INTEGER_RANGES[bits]:
        return value.unfit(at, RANGE)
    return (integer - 256 if bits == 8 and integer > 127 else integer), found.end
