"""Readers of messages, compiled from the tables: bytes that a broker sent become named tuples.

A reader is a function of the bytes, a position and a list: it appends the value to the list and returns the position
behind it. Neighbours of fixed size are read by one ``struct`` call. The bytes are untrusted: a length is compared with
what is left before anything is sized by it, a varint has five bytes at most, and null needs a version that allows it.

A reader raises ``MalformedError``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError``; ``decode`` makes one
error of them.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from pyspark_kafka_direct.wire._cursor import MalformedError, read_unsigned_varint
from pyspark_kafka_direct.wire.messages._fields import Array, Field, Primitive, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader: TypeAlias = Callable[[bytes, int, list[Any]], int]

FIXED: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


def reader(of: Struct, version: int, *, flexible: bool) -> Reader:
    """Return the reader of a struct in one version."""
    steps = _steps(of, version, flexible)
    tags = _tags(of, version) if flexible else None
    make = functools.partial(tuple.__new__, of.values)

    def read(data: bytes, position: int, into: list[Any]) -> int:
        values: list[Any] = []
        for step in steps:
            position = step(data, position, values)
        if tags is not None:
            # Hardly any struct has tags: one byte, zero.
            position = tags(data, position, values) if data[position] else position + 1
        into.append(make(values))
        return position

    return read


def least_size(of: Struct | Array | Primitive, version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that a value can take."""
    if isinstance(of, Struct):
        fields = (each for each in of.fields if _is_plain(each, version))
        return sum(least_size(each.type, version, flexible=flexible) for each in fields) + flexible
    if isinstance(of, Array):
        return 1 if flexible else 4
    if of in FIXED:
        return struct.calcsize(f">{FIXED[of]}")
    if of == "uuid":
        return 16
    return 1 if flexible else 2 if of == "string" else 4


def _is_plain(field: Field, version: int) -> bool:
    return field.versions.has(version) and field.tag is None


def _steps(of: Struct, version: int, flexible: bool) -> list[Reader]:
    """Return what fills the values of a struct, field by field; a field that the version lacks gets its default."""
    steps: list[Reader] = []
    run = ""
    for each in of.fields:
        plain = _is_plain(each, version)
        if plain and isinstance(each.type, str) and each.type in FIXED:
            run += FIXED[each.type]
            continue
        if run:
            steps.append(_fixed(run))
            run = ""
        steps.append(_one(each, version, flexible) if plain else _absent(each.default))
    if run:
        steps.append(_fixed(run))
    return steps


def _one(field: Field, version: int, flexible: bool) -> Reader:
    nullable = field.nullable.has(version)
    if isinstance(field.type, Array):
        return _array(field.type.of, version, flexible, nullable, field.name)
    if isinstance(field.type, Struct):
        return reader(field.type, version, flexible=flexible)
    return _value(field.type, flexible, nullable, field.name)


def _value(of: Primitive, flexible: bool, nullable: bool, name: str) -> Reader:
    if of in FIXED:
        return _fixed(FIXED[of])
    return _uuid if of == "uuid" else _sized(flexible, nullable, name, text=of == "string")


def _fixed(formats: str) -> Reader:
    layout = struct.Struct(">" + formats)
    unpack, size = layout.unpack_from, layout.size

    def read(data: bytes, position: int, into: list[Any]) -> int:
        into += unpack(data, position)
        return position + size

    return read


def _absent(default: Any) -> Reader:
    def read(data: bytes, position: int, into: list[Any]) -> int:
        into.append(default)
        return position

    return read


def _uuid(data: bytes, position: int, into: list[Any]) -> int:
    _check_room(16, data, position, "a UUID")
    into.append(UUID(bytes=data[position : position + 16]))
    return position + 16


def _size_reader(layout: struct.Struct, flexible: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Return the reader of a length or a count, which gives -1 for null, and the position behind it."""

    def read_compact(data: bytes, position: int) -> tuple[int, int]:
        size = data[position]
        if size < 0x80:
            return size - 1, position + 1
        size, position = read_unsigned_varint(data, position)
        return size - 1, position

    def read(data: bytes, position: int) -> tuple[int, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return read_compact if flexible else read


def _sized(flexible: bool, nullable: bool, name: str, *, text: bool) -> Reader:
    """Return the reader of STRING, BYTES and their compact forms."""
    read_size = _size_reader(_LENGTH if text else _COUNT, flexible)

    def read(data: bytes, position: int, into: list[Any]) -> int:
        size, position = read_size(data, position)
        if size < 0:
            _check_null(size, nullable, name, position)
            into.append(None)
            return position
        _check_room(size, data, position, name)
        end = position + size
        into.append(data[position:end].decode() if text else data[position:end])
        return end

    return read


def _array(of: Struct | Primitive, version: int, flexible: bool, nullable: bool, name: str) -> Reader:
    """Return the reader of ARRAY and COMPACT_ARRAY, which gives a tuple."""
    read_count = _size_reader(_COUNT, flexible)
    least = least_size(of, version, flexible=flexible)
    if isinstance(of, str) and of in FIXED:
        return _numbers(FIXED[of], least, read_count, nullable, name)
    read_one = reader(of, version, flexible=flexible) if isinstance(of, Struct) else _value(of, flexible, False, name)

    def read(data: bytes, position: int, into: list[Any]) -> int:
        count, position = read_count(data, position)
        if count < 0:
            _check_null(count, nullable, name, position)
            into.append(None)
            return position
        _check_room(count * least, data, position, name)
        values: list[Any] = []
        for _ in range(count):
            position = read_one(data, position, values)
        into.append(tuple(values))
        return position

    return read


def _numbers(
    letter: str, width: int, read_count: Callable[[bytes, int], tuple[int, int]], nullable: bool, name: str
) -> Reader:
    """Return the reader of an array of numbers, all at once. Layouts of short ones are at hand: replicas are few."""
    layouts = [struct.Struct(f">{count}{letter}").unpack_from for count in range(8)]

    def read(data: bytes, position: int, into: list[Any]) -> int:
        count, position = read_count(data, position)
        if 0 <= count < len(layouts):
            into.append(layouts[count](data, position))
            return position + count * width
        if count < 0:
            _check_null(count, nullable, name, position)
            into.append(None)
            return position
        _check_room(count * width, data, position, name)
        into.append(struct.unpack_from(f">{count}{letter}", data, position))
        return position + count * width

    return read


def _tags(of: Struct, version: int) -> Reader:
    """Return the reader of TAG_BUFFER: unknown tags are skipped, known ones must fill their size."""
    known = {
        each.tag: (place, _one(each, version, True))
        for place, each in enumerate(of.fields)
        if each.tag is not None and each.versions.has(version)
    }

    def read(data: bytes, position: int, into: list[Any]) -> int:
        count, position = read_unsigned_varint(data, position)
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            _check_room(size, data, position, "a tagged field")
            end = position + size
            if tag in known:
                place, read_one = known[tag]
                value: list[Any] = []
                if read_one(data, position, value) != end:
                    raise MalformedError(f"tag {tag} at byte {position} does not end where it says")
                into[place] = value[0]
            position = end
        return position

    return read


def _check_room(size: int, data: bytes, position: int, name: str) -> None:
    if size > len(data) - position:
        raise MalformedError(f"{name} at byte {position} claims {size} bytes, {len(data) - position} are left")


def _check_null(size: int, nullable: bool, name: str, position: int) -> None:
    if size != -1 or not nullable:
        raise MalformedError(f"{name} at byte {position} is null")
