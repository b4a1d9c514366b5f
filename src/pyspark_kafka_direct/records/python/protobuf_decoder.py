"""The Python Protobuf decoder: runs the same programs as the native one, on columns that are lists."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.records.columns import binary_values
from pyspark_kafka_direct.records.decoded_size import DecodedSize, fits_column, width
from pyspark_kafka_direct.records.json_values import DecodedValues, malformed_values
from pyspark_kafka_direct.records.protobuf_values import (
    EMPTY_MESSAGE,
    IMPLICIT,
    MAX_DEPTH,
    MESSAGES,
    NO_COLUMN,
    NO_DEFAULT,
    NO_ONEOF,
    REPEATED,
    Kind,
    ProtobufRequest,
    Reason,
)
from pyspark_kafka_direct.records.python.avro_decoder import Column, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)

_MESSAGES: Final = (Kind.MESSAGE, Kind.WRAPPED, Kind.ENTRY)
_STRINGS: Final = (Kind.STRING, Kind.TEXT, Kind.BYTES)
_FORMATS: Final = {
    Kind.FIXED32: struct.Struct("<I"),
    Kind.SFIXED32: struct.Struct("<i"),
    Kind.FLOAT: struct.Struct("<f"),
    Kind.FIXED64: struct.Struct("<Q"),
    Kind.SFIXED64: struct.Struct("<q"),
    Kind.DOUBLE: struct.Struct("<d"),
}
_LONG_RANGE: Final = range(-(1 << 63), 1 << 63)


class _MalformedMessageError(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class _Field:
    number: int
    kind: Kind
    repeated: bool
    implicit: bool
    column: int
    argument: int
    oneof: tuple[int, int] | None  # the table and the oneof
    default: int


@dataclass(slots=True)
class _Enum:
    closed: bool
    prefix: bytes
    names: dict[int, bytes]


class PythonProtobufDecoder:
    """A ``ProtobufDecoder``."""

    def __init__(self, request: ProtobufRequest) -> None:
        self._fields = request.fields
        self._max_bytes = request.max_bytes
        self._constants = request.program.constants
        numbers = iter(request.program.numbers)
        self._tables = [_table(numbers, index) for index in range(next(numbers))]
        self._enums = [self._enum(numbers) for _ in range(next(numbers))]

    def decode(self, values: pa.BinaryArray, starts: pa.Int32Array | None = None) -> DecodedValues:
        import pyarrow as pa

        own = [Column(each.type) for each in self._fields]
        columns = [column for each in own for column in _flatten(each)]
        misfits: list[tuple[int, str] | None] = []
        sizes = [0] * len(values) if starts is None else starts.to_pylist()
        reader = _Reader(self._tables, self._enums, self._constants, columns)
        decoded_size = DecodedSize(self._max_bytes, width(pa.struct(list(self._fields))))
        for row, (value, size) in enumerate(zip(binary_values(values), sizes, strict=True)):
            if not decoded_size.begin_row(len(value or b"")):
                break
            misfit = None
            if value is not None and size is not None:
                misfit = reader.read(value, size, row, self._max_bytes)
                is_full = misfit is None and not decoded_size.add(self._max_bytes - reader.bytes_left)
                if misfit is not None or is_full:
                    for column in own:
                        column.truncate(row)
                if is_full:
                    break
            misfits.append(misfit)
        values = values.slice(0, len(misfits))
        arrays = [column.finish(len(values)) for column in own]
        structs = pa.StructArray.from_arrays(arrays, fields=list(self._fields), mask=values.is_null())
        return DecodedValues(structs, malformed_values(misfits))

    def _enum(self, numbers: Iterator[int]) -> _Enum:
        closed, prefix = bool(next(numbers)), self._constants[next(numbers)]
        count = next(numbers)
        return _Enum(closed, prefix, {next(numbers): self._constants[next(numbers)] for _ in range(count)})


class _Reader:
    def __init__(
        self,
        tables: list[dict[int, _Field]],
        enums: list[_Enum],
        constants: tuple[bytes, ...],
        columns: list[Column],
    ) -> None:
        self._tables = tables
        self._enums = enums
        self._constants = constants
        self._columns = columns
        self._moments = [[0, 0] for _ in columns]
        self._members: dict[tuple[int, int], int] = {}  # columns of the last members
        self._unknown = NO_COLUMN  # of the last number that a closed enum does not have
        self._at = 0
        self.bytes_left = 0  # of elements, and of strings that are not in the message

    def read(self, data: bytes, start: int, row: int, max_bytes: int) -> tuple[int, str] | None:
        """Read a message into a row; return where and why it is malformed."""
        self._at = start = min(max(start, 0), len(data))
        self.bytes_left = max_bytes
        if not fits_column(data):
            return start, MESSAGES[Reason.SIZE]
        try:
            self._message(0, data, start, row, 0)
            self._close(0, row)
        except _MalformedMessageError as error:
            return self._at, MESSAGES[error.reason]
        return None

    def _message(self, table: int, data: bytes, at: int, row: int, depth: int, end_tag: int = 0) -> int:
        if depth > MAX_DEPTH:
            raise _MalformedMessageError(Reason.DEPTH)
        while at < len(data):
            self._at = at
            tag, at = _tag(data, at)
            if tag == end_tag:
                return at
            known = self._tables[table].get(tag >> 3)
            wire_type = _wire_type(known.kind) if known is not None else -1
            if known is not None and known.repeated and wire_type != _BYTES and tag & 7 == _BYTES:
                start, end = _length(data, at)
                while start < end:
                    start = self._element(known, data[:end], start, row, depth)
                at = end
            elif known is None or tag & 7 != wire_type:
                at = _skip(data, tag, at, depth)
            elif known.repeated:
                at = self._element(known, data, at, row, depth)
            else:
                if known.kind != Kind.ENUM:
                    self._select(known, row)
                at = self._value(known, known.column, data, at, row, depth)
        if end_tag:
            raise _MalformedMessageError(Reason.TRUNCATED)
        return at

    def _select(self, known: _Field, row: int) -> None:
        if known.oneof is None:
            return
        member = self._members.get(known.oneof, NO_COLUMN)
        self._members[known.oneof] = known.column
        if member not in (known.column, NO_COLUMN) and len(self._columns[member].values) > row:
            self._charge(len(_flatten(self._columns[member])))  # time is limited like memory
            self._clear(member, row)

    def _close(self, table: int, row: int) -> None:
        for each in self._tables[table].values():
            if each.column == NO_COLUMN:
                continue
            column = self._columns[each.column]
            if each.repeated:
                if each.kind == Kind.ENTRY:
                    _remove_replaced(column)
                column.put(row, column.items)
                continue
            if len(column.values) <= row and each.default != NO_DEFAULT:
                self._put_default(each, column, row)
            if each.kind == Kind.MESSAGE and len(column.values) > row:
                self._close(each.argument, row)

    def _put_default(self, each: _Field, column: Column, row: int) -> None:
        if each.default == EMPTY_MESSAGE:
            column.put(row, True)
            return
        constant = self._constants[each.default]
        if _is_bytes(column.type):
            self._charge(len(constant))
            column.put(row, constant)
        elif _is_float(column.type):
            column.put(row, _FORMATS[Kind.DOUBLE].unpack(constant)[0])
        else:
            _put_integer(column, row, int.from_bytes(constant, "little", signed=True))

    def _element(self, each: _Field, data: bytes, at: int, row: int, depth: int) -> int:
        if each.column == NO_COLUMN:
            return self._value(each, NO_COLUMN, data, at, row, depth)
        column = self._columns[each.column]
        self._charge(column.item_bytes)
        if each.kind == Kind.ENTRY:
            start, end = _length(data, at)
            self._unknown = NO_COLUMN
            self._message(each.argument, data[:end], start, column.items, depth + 1)
            key, value = each.column + 1, each.column + 2
            if self._unknown == value:
                self._clear(key, column.items)
                self._clear(value, column.items)
                return end  # an entry without a value that the enum has is an unknown field
            at = end
        else:
            at = self._value(each, each.column + 1, data, at, column.items, depth)
        if each.kind in (Kind.MESSAGE, Kind.ENTRY):
            self._close(each.argument, column.items)
        if each.kind != Kind.ENUM or len(self._columns[each.column + 1].values) > column.items:
            column.items += 1
        return at

    def _value(self, each: _Field, number: int, data: bytes, at: int, row: int, depth: int) -> int:
        column = None if number == NO_COLUMN else self._columns[number]
        if each.kind == Kind.GROUP:
            return self._message(each.argument, data, at, row, depth + 1, each.number << 3 | _END_GROUP)
        if each.kind in _MESSAGES:
            start, end = _length(data, at)
            if column is not None and each.kind == Kind.MESSAGE:
                column.put(row, True)
            if column is not None and each.kind == Kind.WRAPPED and len(column.values) <= row:
                self._moments[number] = [0, 0]
            self._message(each.argument, data[:end], start, row, depth + 1)
            if column is not None and each.kind == Kind.WRAPPED:
                self._close(each.argument, row)
            return end
        value: Any
        if each.kind in _STRINGS:
            start, at = _length(data, at)
            value = data[start:at]
            if each.kind == Kind.STRING and not _is_utf8(value):
                raise _MalformedMessageError(Reason.UTF8)
        elif each.kind in _FORMATS:
            size = _FORMATS[each.kind].size
            if size > len(data) - at:
                raise _MalformedMessageError(Reason.TRUNCATED)
            value = _FORMATS[each.kind].unpack_from(data, at)[0]
            if each.kind == Kind.FLOAT:
                value = single(data[at : at + size])
            is_zero = data[at : at + size] == bytes(size)  # -0.0 is not
            at += size
            if column is not None and each.implicit and is_zero:
                self._clear(number, row)
                return at
        else:
            value, at = _varint(data, at, 10)
            value = _integer(each.kind, value)
        if each.kind == Kind.ENUM:
            self._put_enum(each, number, row, value)
            return at
        if column is None:
            return at
        if each.kind in (Kind.SECONDS, Kind.NANOS):
            self._put_moment(each, number, row, value)
        elif each.implicit and not value and each.kind not in _FORMATS:
            self._clear(number, row)
        elif each.kind in (*_STRINGS, Kind.FLOAT, Kind.DOUBLE):
            column.put(row, value)
        else:
            _put_integer(column, row, value)
        return at

    def _put_moment(self, each: _Field, number: int, row: int, value: int) -> None:
        moment = self._moments[number]
        moment[each.kind == Kind.NANOS] = value
        seconds, nanos = moment
        micros = seconds * 1_000_000
        total = micros + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000))
        if micros not in _LONG_RANGE or total not in _LONG_RANGE:
            raise _MalformedMessageError(Reason.RANGE)
        self._columns[number].put(row, total)

    def _put_enum(self, each: _Field, column_number: int, row: int, number: int) -> None:
        enum = self._enums[each.argument]
        name = enum.names.get(number)
        if name is None and enum.closed:
            self._unknown = column_number
            return
        self._select(each, row)
        if column_number == NO_COLUMN:
            return
        if each.implicit and not number:
            self._clear(column_number, row)
            return
        column = self._columns[column_number]
        if not _is_bytes(column.type):
            column.put(row, number)
            return
        name = enum.prefix + str(number).encode() if name is None else name
        self._charge(len(name))
        column.put(row, name)

    def _charge(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _MalformedMessageError(Reason.SIZE)

    def _clear(self, number: int, row: int) -> None:
        if len(self._columns[number].values) > row:
            self._columns[number].truncate(row)


def _table(numbers: Iterator[int], index: int) -> dict[int, _Field]:
    table: dict[int, _Field] = {}
    for _ in range(next(numbers)):
        number, flags = next(numbers), next(numbers)
        column, argument, oneof, default = (next(numbers) for _ in range(4))
        kind = Kind(flags & ~(REPEATED | IMPLICIT))
        is_repeated, is_implicit = bool(flags & REPEATED), bool(flags & IMPLICIT)
        key = None if oneof == NO_ONEOF else (index, oneof)
        table[number] = _Field(number, kind, is_repeated, is_implicit, column, argument, key, default)
    return table


def _flatten(column: Column) -> list[Column]:
    return [column, *(each for child in column.children for each in _flatten(child))]


def _put_integer(column: Column, row: int, value: int) -> None:
    import pyarrow as pa

    if column.type == pa.int32():
        value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    elif pa.types.is_decimal(column.type):
        value %= 1 << 64
    elif column.type == pa.bool_():
        value = int(bool(value))
    else:
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    column.put(row, value)


def _integer(kind: Kind, value: int) -> int:
    """Return the number that a varint of 64 bits means."""
    match kind:
        case Kind.BOOL:
            return int(value != 0)
        case Kind.UINT32:
            return value % (1 << 32)
        case Kind.INT32 | Kind.ENUM | Kind.NANOS:
            return (value + (1 << 31)) % (1 << 32) - (1 << 31)
        case Kind.SINT32:
            value %= 1 << 32
            return (value >> 1) ^ -(value & 1)
        case Kind.SINT64:
            return (value >> 1) ^ -(value & 1)
        case _:
            return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _remove_replaced(column: Column) -> None:
    """Remove the entries of a map's last row that later ones replace."""
    first = column.end_of(len(column.ends))
    keys = column.children[0].values
    last = {keys[entry]: entry for entry in range(first, column.items)}
    if len(last) == column.items - first:
        return
    kept = sorted(last.values())
    for child in column.children:
        _retain(child, first, kept)
    column.items = first + len(kept)


def _retain(column: Column, first: int, kept: list[int]) -> None:
    """Remove the rows from ``first`` on that are not among ``kept``, which is in order, with all that they contain."""
    values, ends = column.values, column.ends
    rows = [row for row in kept if row < len(values)]
    items, kept_items = first, kept
    if column.has_items:
        items, kept_items = column.end_of(first), []
        new_ends = []
        for row in rows:
            kept_items += range(column.end_of(row), ends[row])
            new_ends.append(items + len(kept_items))
        ends[first:] = new_ends
        column.items = items + len(kept_items)
    values[first:] = [values[row] for row in rows]
    for child in column.children:
        _retain(child, items, kept_items)


def _wire_type(kind: Kind) -> int:
    if kind in _MESSAGES or kind in _STRINGS:
        return _BYTES
    if kind == Kind.GROUP:
        return _GROUP
    if kind in _FORMATS:
        return _FIXED32 if _FORMATS[kind].size == 4 else _FIXED64
    return _VARINT


def _varint(data: bytes, at: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + max_bytes]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value % (1 << 64), at + index + 1
    raise _MalformedMessageError(Reason.TRUNCATED if len(data) - at < max_bytes else Reason.VARINT)


def _tag(data: bytes, at: int) -> tuple[int, int]:
    tag, at = _varint(data, at, 5)
    if not 8 <= tag < 1 << 32:
        raise _MalformedMessageError(Reason.TAG)
    return tag, at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return where bytes start and end."""
    size, start = _varint(data, at, 5)
    if size > len(data) - start:
        raise _MalformedMessageError(Reason.TRUNCATED)
    return start, start + size


def _skip(data: bytes, tag: int, at: int, depth: int) -> int:
    match tag & 7:
        case 0:
            return _varint(data, at, 10)[1]
        case 1 | 5 as wire_type:
            at += 8 if wire_type == _FIXED64 else 4
            if at > len(data):
                raise _MalformedMessageError(Reason.TRUNCATED)
            return at
        case 2:
            return _length(data, at)[1]
        case 3:
            if depth + 1 > MAX_DEPTH:
                raise _MalformedMessageError(Reason.DEPTH)
            while True:
                inner, at = _tag(data, at)
                if inner == tag + 1:
                    return at
                at = _skip(data, inner, at, depth + 1)
        case 4:
            raise _MalformedMessageError(Reason.GROUP)
        case _:
            raise _MalformedMessageError(Reason.TAG)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_bytes(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    return data_type in (pa.string(), pa.binary())


def _is_float(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    return data_type in (pa.float32(), pa.float64())
