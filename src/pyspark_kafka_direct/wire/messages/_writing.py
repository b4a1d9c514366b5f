"""Writers of messages, compiled from the tables: values by name become the bytes of one version.

A value is a mapping of field names; what is not named has its default. A value for a field that the version does not
have is an error, unless the definition says that it may be ignored: nothing that matters is dropped in silence.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_kafka_direct.wire._cursor import unsigned_varint
from pyspark_kafka_direct.wire.messages._fields import Array, Field, Struct
from pyspark_kafka_direct.wire.messages._reading import FIXED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Writer: TypeAlias = Callable[[bytearray, Any], None]

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


class Parts(bytearray):
    """The bytes of a message, without its records: they are kept beside, with the places where they belong."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[tuple[int, bytes | bytearray]] = []

    def put(self, records: bytes | bytearray) -> None:
        """Let records follow here."""
        self._records.append((len(self), records))

    def in_order(self) -> list[bytes | bytearray]:
        """Return the bytes as parts that follow one another; records are some of them."""
        parts: list[bytes | bytearray] = []
        start = 0
        for end, records in self._records:
            parts += [self[start:end], records]
            start = end
        return [*parts, self[start:]]


def writer(of: Struct, version: int, *, flexible: bool) -> Writer:
    """Return the writer of a struct in one version.

    It raises ``ValueError`` for a field that the version does not have, for null where there is none, and for names
    that the struct does not have.
    """
    names = frozenset(each.name for each in of.fields)
    plain: list[tuple[Field, Writer | None]] = []
    tagged: list[tuple[int, Field, Writer]] = []
    for each in of.fields:
        write_one = _writer_of(each, version, flexible) if each.versions.has(version) else None
        if write_one is not None and each.tag is not None:
            tagged.append((each.tag, each, write_one))
        else:
            plain.append((each, write_one))
    tagged.sort(key=lambda entry: entry[0])

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not values.keys() <= names:
            raise ValueError(f"{of.name} has no field {', '.join(sorted(values.keys() - names))}")
        for each, write_one in plain:
            value = values.get(each.name, each.default)
            if write_one is not None:
                write_one(out, value)
            elif not each.is_default(value) and not each.ignorable:
                raise ValueError(f"{of.name} version {version} has no field {each.name}")
        if flexible:
            _write_tags(out, values, tagged)

    return write


def _write_tags(out: bytearray, values: Mapping[str, Any], tagged: list[tuple[int, Field, Writer]]) -> None:
    sent = [
        (tag, values[each.name], write_one)
        for tag, each, write_one in tagged
        if each.name in values and not each.is_default(values[each.name])
    ]
    out += unsigned_varint(len(sent))
    for tag, value, write_one in sent:
        content = bytearray()
        write_one(content, value)
        out += unsigned_varint(tag) + unsigned_varint(len(content)) + content


def _writer_of(field: Field, version: int, flexible: bool) -> Writer:
    nullable = field.nullable.has(version)
    if isinstance(field.type, Array):
        return _array(field.type.of, version, flexible, nullable, field.name)
    if isinstance(field.type, Struct):
        return writer(field.type, version, flexible=flexible)
    if field.type == "records":
        return _records(flexible, nullable, field.name)
    if field.type == "uuid":
        return _uuid
    if field.type in FIXED:
        return _fixed(FIXED[field.type])
    return _sized(flexible, nullable, field.name, text=field.type == "string")


def _fixed(letter: str) -> Writer:
    pack = struct.Struct(">" + letter).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _sized(flexible: bool, nullable: bool, name: str, *, text: bool) -> Writer:
    layout = _LENGTH if text else _COUNT

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            out += b"\0" if flexible else layout.pack(-1)
            return
        content = value.encode() if text else bytes(value)
        if text and len(content) > 0x7FFF:
            raise ValueError(f"{name} is {len(content)} bytes long, the protocol's strings have at most {0x7FFF}")
        out += unsigned_varint(len(content) + 1) if flexible else layout.pack(len(content))
        out += content

    return write


def _records(flexible: bool, nullable: bool, name: str) -> Writer:
    write_small = _sized(flexible, nullable, name, text=False)

    def write(out: bytearray, value: Any) -> None:
        if value is None or not isinstance(out, Parts):
            write_small(out, value)
            return
        out += unsigned_varint(len(value) + 1) if flexible else _COUNT.pack(len(value))
        out.put(value)

    return write


def _array(of: Any, version: int, flexible: bool, nullable: bool, name: str) -> Writer:
    numbers = FIXED.get(of) if isinstance(of, str) else None
    write_one: Writer
    if isinstance(of, Struct):
        write_one = writer(of, version, flexible=flexible)
    elif of == "uuid":
        write_one = _uuid
    else:
        write_one = _sized(flexible, False, name, text=of == "string")

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            out += b"\0" if flexible else _COUNT.pack(-1)
            return
        out += unsigned_varint(len(value) + 1) if flexible else _COUNT.pack(len(value))
        if numbers is not None:
            out += struct.pack(f">{len(value)}{numbers}", *value)
            return
        for each in value:
            write_one(out, each)

    return write
