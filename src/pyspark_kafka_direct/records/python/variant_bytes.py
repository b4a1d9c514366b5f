"""The bytes of Spark's VARIANT: values, and the dictionary of their keys, which is called metadata."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE_LIMIT: Final = 128 << 20
"""The largest value, and the largest metadata, in bytes: that of Spark since 4.1."""

_VERSION: Final = 1
_MAX_SHORT_STRING: Final = 63
_MAX_DECIMAL_DIGITS: Final = 38

# Basic types, in the lower two bits of a value's first byte.
_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)

# Primitive types, in the upper six bits.
_INTEGERS: Final = {1: 3, 2: 4, 4: 5, 8: 6}  # by size
_DOUBLE: Final = 7
_DECIMALS: Final = ((9, 4, 8), (18, 8, 9), (_MAX_DECIMAL_DIGITS, 16, 10))  # digits, size, type
_LONG_STRING: Final = 16

NULL: Final = b"\x00"
TRUE: Final = b"\x04"
FALSE: Final = b"\x08"


class Field(NamedTuple):
    name: str
    id: int
    value: bytes


def integer(value: int) -> bytes:
    """Return an integer of at most 64 bits in as few bytes as possible."""
    size = next(size for size in _INTEGERS if -1 << 8 * size - 1 <= value < 1 << 8 * size - 1)
    return _primitive(_INTEGERS[size]) + value.to_bytes(size, "little", signed=True)


def decimal(text: str) -> bytes | None:
    """Return a number as a decimal, if its text has no exponent and at most 38 digits, before and after the point."""
    if "e" in text.lower():
        return None
    before_point, _, fraction = text.partition(".")
    digits = max(len((before_point.lstrip("-") + fraction).lstrip("0")), len(fraction))
    for limit, size, kind in _DECIMALS:
        if digits <= limit:
            unscaled = int(before_point + fraction)
            return _primitive(kind) + bytes([len(fraction)]) + unscaled.to_bytes(size, "little", signed=True)
    return None


def double(value: float) -> bytes:
    return _primitive(_DOUBLE) + struct.pack("<d", value)


def string(text: bytes) -> bytes:
    if len(text) <= _MAX_SHORT_STRING:
        return bytes([len(text) << 2 | _SHORT_STRING]) + text
    return _primitive(_LONG_STRING) + len(text).to_bytes(4, "little") + text


def object_of(fields: Sequence[Field]) -> bytes:
    """Return an object with fields in the order of their JSON."""
    # Java compares strings by UTF-16 units.
    by_name = sorted(range(len(fields)), key=lambda index: fields[index].name.encode("utf-16-be"))
    offsets, data = _offsets([field.value for field in fields])
    id_size = _integer_size(max((field.id for field in fields), default=0))
    ids = _integers([fields[index].id for index in by_name], id_size)
    is_large, offset_size = len(fields) > 0xFF, _integer_size(len(data))
    header = is_large << 4 | (id_size - 1) << 2 | (offset_size - 1)
    sorted_offsets = _integers([*(offsets[index] for index in by_name), len(data)], offset_size)
    return bytes([header << 2 | _OBJECT]) + _count(len(fields), is_large) + ids + sorted_offsets + data


def array_of(elements: Sequence[bytes]) -> bytes:
    offsets, data = _offsets(elements)
    is_large, offset_size = len(elements) > 0xFF, _integer_size(len(data))
    header = is_large << 2 | (offset_size - 1)
    return (
        bytes([header << 2 | _ARRAY])
        + _count(len(elements), is_large)
        + _integers([*offsets, len(data)], offset_size)
        + data
    )


def metadata_of(keys: Sequence[bytes]) -> bytes:
    """Return the dictionary of a value's keys, in the order of their ids."""
    offsets, names = _offsets(keys)
    size = _integer_size(max(len(names), len(keys)))
    header = (size - 1) << 6 | _VERSION
    return bytes([header]) + _integers([len(keys), *offsets, len(names)], size) + names


def _primitive(kind: int) -> bytes:
    return bytes([kind << 2 | _PRIMITIVE])


def _offsets(values: Sequence[bytes]) -> tuple[list[int], bytes]:
    offsets: list[int] = []
    end = 0
    for value in values:
        offsets.append(end)
        end += len(value)
    return offsets, b"".join(values)


def _count(count: int, is_large: bool) -> bytes:
    return count.to_bytes(4 if is_large else 1, "little")


def _integers(values: Sequence[int], size: int) -> bytes:
    return b"".join(value.to_bytes(size, "little") for value in values)


def _integer_size(value: int) -> int:
    """Return the bytes of the smallest unsigned integer for a value, which is below 2**32."""
    return max(1, (value.bit_length() + 7) // 8)
