"""Compiles schemas to readers (a broker's bytes to named tuples) and writers (values by field name to bytes).

A struct has a sequence of fields. In flexible versions a buffer follows with the tagged fields that do not have their
defaults.

A reader takes the bytes, a position and an output list. It appends the value to the list and returns the next position.
One ``struct`` call reads adjacent fields of fixed size. The bytes are untrusted: a length is compared with the
remaining bytes before anything is allocated, a varint has at most five bytes, and null requires a version that allows
it.

Readers raise ``MalformedError``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError``, which ``decode`` unifies.

A writer takes a mapping by field name; omitted fields have their defaults. It raises ``ValueError`` for unknown fields,
null in a field that is not nullable, and values of fields that the version lacks, unless the field is ignorable.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from uuid import UUID

from pyspark_kafka_direct.protocol.primitives import MalformedError, encode_unsigned_varint, read_unsigned_varint
from pyspark_kafka_direct.protocol.schema import (
    ArrayType,
    FieldSpec,
    Primitive,
    StructSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Buffer: TypeAlias = bytes | memoryview
    Reader: TypeAlias = Callable[[Buffer, int, list[Any]], int]
    Writer: TypeAlias = Callable[[bytearray, Any], None]
    # "not in sequence": a tagged field, or one that the version lacks
    _FieldKind: TypeAlias = Literal["fixed size", "variable size", "not in sequence"]

FIXED_FORMATS: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


def compile_reader(struct_spec: StructSpec, version: int, *, flexible: bool) -> Reader:
    """Return the reader of a struct; it appends one named tuple with the fields of all versions."""
    field_readers = _field_readers(struct_spec, version, flexible)
    read_tags = _tagged_fields_reader(struct_spec, version) if flexible else None
    to_named_tuple = functools.partial(tuple.__new__, struct_spec.value_class)
    match list(_field_groups(struct_spec, version)):
        case [("fixed size", fields)]:
            return _numbers_reader(_fixed_size_layout(fields), to_named_tuple, read_tags)

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        values: list[Any] = []
        for read_field in field_readers:
            position = read_field(data, position, values)
        if read_tags is not None:
            # Most structs have no tags: one zero byte.
            position = read_tags(data, position, values) if data[position] else position + 1
        output.append(to_named_tuple(values))
        return position

    return read


def _numbers_reader(
    layout: struct.Struct, to_named_tuple: Callable[[tuple[Any, ...]], Any], read_tags: Reader | None
) -> Reader:
    """Return the reader of a struct whose fields all have a fixed size, as in the long arrays of versions."""
    unpack, size = layout.unpack_from, layout.size

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        output.append(to_named_tuple(unpack(data, position)))
        position += size
        if read_tags is None:
            return position
        return read_tags(data, position, []) if data[position] else position + 1  # none of its tags is known

    return read


def min_size(field_type: StructSpec | ArrayType | Primitive, version: int, *, flexible: bool) -> int:
    """Return the size of the smallest value, in bytes; it limits the count of an array's elements."""
    if isinstance(field_type, StructSpec):
        fields = (field for field in field_type.fields if _is_in_sequence(field, version))
        tag_buffer_size = 1 if flexible else 0
        return sum(min_size(field.type, version, flexible=flexible) for field in fields) + tag_buffer_size
    if isinstance(field_type, ArrayType):
        return 1 if flexible else 4  # the count
    if field_type in FIXED_FORMATS:
        return struct.calcsize(f">{FIXED_FORMATS[field_type]}")
    if field_type == "uuid":
        return 16
    return 1 if flexible else 2 if field_type == "string" else 4  # the length


def _is_in_sequence(field: FieldSpec, version: int) -> bool:
    """Return whether the version has the field, and not as a tagged one."""
    return field.versions.has(version) and field.tag is None


def _field_groups(struct_spec: StructSpec, version: int) -> Iterator[tuple[_FieldKind, list[FieldSpec]]]:
    """Group adjacent fields of one kind: those of fixed size are read and written by one call."""

    def kind_of(field: FieldSpec) -> _FieldKind:
        if not _is_in_sequence(field, version):
            return "not in sequence"
        return "fixed size" if field.type in FIXED_FORMATS else "variable size"

    return ((kind, list(fields)) for kind, fields in itertools.groupby(struct_spec.fields, kind_of))


def _fixed_size_layout(fields: Iterable[FieldSpec]) -> struct.Struct:
    return struct.Struct(">" + "".join(FIXED_FORMATS[cast("Primitive", field.type)] for field in fields))


def _field_readers(struct_spec: StructSpec, version: int, flexible: bool) -> list[Reader]:
    """Return readers for all fields of a struct; those not in sequence get their defaults."""
    field_readers: list[Reader] = []
    for kind, fields in _field_groups(struct_spec, version):
        if kind == "fixed size":
            field_readers.append(_fixed_size_reader(_fixed_size_layout(fields)))
        elif kind == "not in sequence":
            # If tagged fields follow in the bytes, `_tagged_fields_reader` replaces these values.
            field_readers.append(_default_reader([field.default for field in fields]))
        else:
            field_readers += [_field_reader(field, version, flexible) for field in fields]
    return field_readers


def _field_reader(field: FieldSpec, version: int, flexible: bool) -> Reader:
    nullable = field.nullable.has(version)
    if isinstance(field.type, ArrayType):
        return _array_reader(field.type.of, version, flexible, nullable, field.name)
    if isinstance(field.type, StructSpec):
        return compile_reader(field.type, version, flexible=flexible)
    return _primitive_reader(field.type, flexible, nullable, field.name)


def _primitive_reader(primitive: Primitive, flexible: bool, nullable: bool, name: str) -> Reader:
    if primitive in FIXED_FORMATS:
        return _fixed_size_reader(struct.Struct(f">{FIXED_FORMATS[primitive]}"))
    return _read_uuid if primitive == "uuid" else _length_prefixed_reader(flexible, nullable, name, primitive)


def _fixed_size_reader(layout: struct.Struct) -> Reader:
    unpack, size = layout.unpack_from, layout.size

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        output += unpack(data, position)
        return position + size

    return read


def _default_reader(defaults: list[Any]) -> Reader:
    def read(data: Buffer, position: int, output: list[Any]) -> int:
        output += defaults
        return position

    return read


def _read_uuid(data: Buffer, position: int, output: list[Any]) -> int:
    _check_remaining(16, data, position, "a UUID")
    output.append(_to_uuid(bytes(data[position : position + 16])))
    return position + 16


@functools.lru_cache(maxsize=1024)
def _to_uuid(content: bytes) -> UUID:
    """Return a UUID, which is immutable; most responses have the ids of the same topics."""
    return UUID(bytes=content)


def _size_reader(layout: struct.Struct, flexible: bool) -> Callable[[Buffer, int], tuple[int, int]]:
    """Return a function that reads a length or count; it returns the number, -1 for null, and the next position."""

    def read_compact(data: Buffer, position: int) -> tuple[int, int]:
        size = data[position]
        if size < 0x80:  # a varint of one byte, as most sizes
            return size - 1, position + 1
        size, position = read_unsigned_varint(data, position)
        return size - 1, position

    def read(data: Buffer, position: int) -> tuple[int, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return read_compact if flexible else read


def _length_prefixed_reader(flexible: bool, nullable: bool, name: str, primitive: Primitive) -> Reader:
    """Return the reader of STRING, BYTES, RECORDS and their compact forms; records are not copied."""
    is_string, is_bytes = primitive == "string", primitive == "bytes"
    read_size = _size_reader(_INT16 if is_string else _INT32, flexible)

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        size, position = read_size(data, position)
        if size < 0:
            _check_nullable(size, nullable, name, position)
            output.append(None)
            return position
        _check_remaining(size, data, position, name)
        end = position + size
        value = data[position:end]
        output.append(str(value, "utf-8") if is_string else bytes(value) if is_bytes else value)
        return end

    return read


def _array_reader(
    element_type: StructSpec | Primitive, version: int, flexible: bool, nullable: bool, name: str
) -> Reader:
    """Return the reader of ARRAY and COMPACT_ARRAY, which produces a tuple."""
    read_count = _size_reader(_INT32, flexible)
    min_element_size = min_size(element_type, version, flexible=flexible)
    if isinstance(element_type, str) and element_type in FIXED_FORMATS:
        return _number_array_reader(FIXED_FORMATS[element_type], min_element_size, read_count, nullable, name)
    read_element = (
        compile_reader(element_type, version, flexible=flexible)
        if isinstance(element_type, StructSpec)
        else _primitive_reader(element_type, flexible, nullable=False, name=name)
    )

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        count, position = read_count(data, position)
        if count < 0:
            _check_nullable(count, nullable, name, position)
            output.append(None)
            return position
        _check_remaining(count * min_element_size, data, position, name)
        values: list[Any] = []
        for _ in range(count):
            position = read_element(data, position, values)
        output.append(tuple(values))
        return position

    return read


def _number_array_reader(
    number_format: str,
    number_size: int,
    read_count: Callable[[Buffer, int], tuple[int, int]],
    nullable: bool,
    name: str,
) -> Reader:
    """Return the reader of a number array; layouts of short ones are precompiled, since replicas are few."""
    unpack_by_count = [struct.Struct(f">{count}{number_format}").unpack_from for count in range(8)]

    def read(data: Buffer, position: int, output: list[Any]) -> int:
        count, position = read_count(data, position)
        if 0 <= count < len(unpack_by_count):
            output.append(unpack_by_count[count](data, position))
            return position + count * number_size
        if count < 0:
            _check_nullable(count, nullable, name, position)
            output.append(None)
            return position
        _check_remaining(count * number_size, data, position, name)
        output.append(struct.unpack_from(f">{count}{number_format}", data, position))
        return position + count * number_size

    return read


def _tagged_fields_reader(struct_spec: StructSpec, version: int) -> Reader:
    """Return the reader of TAG_BUFFER, which replaces defaults among the struct's values, and skips unknown tags."""
    known_fields = {
        field.tag: (index, _field_reader(field, version, flexible=True))
        for index, field in enumerate(struct_spec.fields)
        if field.tag is not None and field.versions.has(version)
    }

    def read(data: Buffer, position: int, struct_values: list[Any]) -> int:
        count, position = read_unsigned_varint(data, position)
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            _check_remaining(size, data, position, "a tagged field")
            end = position + size
            if tag in known_fields:
                index, read_field = known_fields[tag]
                output: list[Any] = []
                if read_field(data, position, output) != end:
                    raise MalformedError(f"tag {tag} at byte {position} does not have the declared size")
                struct_values[index] = output[0]
            position = end
        return position

    return read


def _check_remaining(size: int, data: Buffer, position: int, name: str) -> None:
    if size > len(data) - position:
        raise MalformedError(f"{name} at byte {position} declares {size} bytes, but {len(data) - position} remain")


def _check_nullable(size: int, nullable: bool, name: str, position: int) -> None:
    """Raise if a negative size is not -1, which is null, or if the field must not be null."""
    if size != -1 or not nullable:
        raise MalformedError(f"{name} at byte {position} is null")


class MessageBuffer(bytearray):
    """The bytes of a message, with its records and their positions stored separately to avoid copies."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[tuple[int, bytes | bytearray | memoryview]] = []

    def append_records(self, records: bytes | bytearray | memoryview) -> None:
        self._records.append((len(self), records))

    def to_parts(self) -> list[bytes | bytearray | memoryview]:
        """Return the message as consecutive parts; records are separate parts."""
        parts: list[bytes | bytearray | memoryview] = []
        start = 0
        for end, records in self._records:
            parts += [self[start:end], records]
            start = end
        return [*parts, self[start:]]


def compile_writer(struct_spec: StructSpec, version: int, *, flexible: bool) -> Writer:
    """Return the writer of a struct, which takes its values by field name."""
    names = frozenset(field.name for field in struct_spec.fields)
    field_writers: list[Writer] = []
    for kind, fields in _field_groups(struct_spec, version):
        if kind == "fixed size":
            field_writers.append(_fixed_size_fields_writer(fields))
        elif kind == "variable size":
            field_writers += [_named_field_writer(field, version, flexible) for field in fields]
    # This version lacks them, so only their defaults may be given.
    absent_fields = [field for field in struct_spec.fields if not field.versions.has(version) and not field.ignorable]
    tagged_fields = sorted(
        (field.tag, field, _field_writer(field, version, flexible=True))
        for field in struct_spec.fields
        if field.tag is not None and field.versions.has(version)
    )

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not values.keys() <= names:
            raise ValueError(f"{struct_spec.name} has no field {', '.join(sorted(values.keys() - names))}")
        for write_fields in field_writers:
            write_fields(out, values)
        for field in absent_fields:
            if field.name in values and not field.is_default(values[field.name]):
                raise ValueError(f"{struct_spec.name} version {version} has no field {field.name}")
        if flexible:
            _write_tagged_fields(out, values, tagged_fields)

    return write


def _fixed_size_fields_writer(fields: list[FieldSpec]) -> Writer:
    pack = _fixed_size_layout(fields).pack
    names, defaults = [field.name for field in fields], [field.default for field in fields]

    if len(fields) == 1:
        name, default = names[0], defaults[0]

        def write_one(out: bytearray, values: Mapping[str, Any]) -> None:
            out += pack(values.get(name, default))

        return write_one

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        out += pack(*map(values.get, names, defaults))

    return write


def _named_field_writer(field: FieldSpec, version: int, flexible: bool) -> Writer:
    name, default, write_value = field.name, field.default, _field_writer(field, version, flexible)

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        write_value(out, values.get(name, default))

    return write


def _write_tagged_fields(
    out: bytearray, values: Mapping[str, Any], tagged_fields: list[tuple[int, FieldSpec, Writer]]
) -> None:
    if not tagged_fields:
        out.append(0)
        return
    sent_fields = [
        (tag, values[field.name], write_value)
        for tag, field, write_value in tagged_fields
        if field.name in values and not field.is_default(values[field.name])
    ]
    out += encode_unsigned_varint(len(sent_fields))
    for tag, value, write_value in sent_fields:
        content = bytearray()
        write_value(content, value)
        out += encode_unsigned_varint(tag) + encode_unsigned_varint(len(content)) + content


def _field_writer(field: FieldSpec, version: int, flexible: bool) -> Writer:
    nullable = field.nullable.has(version)
    if isinstance(field.type, ArrayType):
        return _array_writer(field.type.of, version, flexible, nullable, field.name)
    if isinstance(field.type, StructSpec):
        return compile_writer(field.type, version, flexible=flexible)
    if field.type == "records":
        return _records_writer(flexible, nullable, field.name)
    if field.type == "uuid":
        return _write_uuid
    if field.type in FIXED_FORMATS:
        return _fixed_size_writer(FIXED_FORMATS[field.type])
    return _length_prefixed_writer(flexible, nullable, field.name, is_string=field.type == "string")


def _fixed_size_writer(number_format: str) -> Writer:
    pack = struct.Struct(">" + number_format).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _length_prefixed_writer(flexible: bool, nullable: bool, name: str, *, is_string: bool) -> Writer:
    layout = _INT16 if is_string else _INT32

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            out += b"\0" if flexible else layout.pack(-1)
            return
        content = value.encode() if is_string else bytes(value)
        if is_string and len(content) > 0x7FFF:
            raise ValueError(f"{name} has {len(content)} bytes, more than the protocol's maximum of {0x7FFF}")
        size = len(content)
        if not flexible:
            out += layout.pack(size)
        elif size < 0x7F:  # a varint of one byte, as most sizes
            out.append(size + 1)
        else:
            out += encode_unsigned_varint(size + 1)
        out += content

    return write


def _records_writer(flexible: bool, nullable: bool, name: str) -> Writer:
    """Return the writer of RECORDS, which does not copy them into a ``MessageBuffer``."""
    write_copy = _length_prefixed_writer(flexible, nullable, name, is_string=False)

    def write(out: bytearray, value: Any) -> None:
        if value is None or not isinstance(out, MessageBuffer):
            write_copy(out, value)
            return
        out += encode_unsigned_varint(len(value) + 1) if flexible else _INT32.pack(len(value))
        out.append_records(value)

    return write


def _array_writer(element_type: Any, version: int, flexible: bool, nullable: bool, name: str) -> Writer:
    number_format = FIXED_FORMATS.get(element_type) if isinstance(element_type, str) else None
    write_value: Writer
    if isinstance(element_type, StructSpec):
        write_value = compile_writer(element_type, version, flexible=flexible)
    elif element_type == "uuid":
        write_value = _write_uuid
    else:
        write_value = _length_prefixed_writer(flexible, nullable=False, name=name, is_string=element_type == "string")

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            out += b"\0" if flexible else _INT32.pack(-1)
            return
        out += encode_unsigned_varint(len(value) + 1) if flexible else _INT32.pack(len(value))
        if number_format is not None:
            out += struct.pack(f">{len(value)}{number_format}", *value)
            return
        for element in value:
            write_value(out, element)

    return write
