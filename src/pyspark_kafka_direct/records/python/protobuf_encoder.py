"""The Python Protobuf encoder: each node of a program becomes a function that writes the value of a row."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.records.encoded_values import InvalidReason
from pyspark_kafka_direct.records.protobuf_encoding import CLOSED, NO_ONEOF, OPEN, Op, Range, Shape
from pyspark_kafka_direct.records.python.encoded_rows import InvalidNodeError, ProgramReader

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyspark_kafka_direct.records.encoded_values import PayloadEncoding

    _Write = Callable[[int, bytearray], None]  # the row, and what it is appended to

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES: Final = {
    **dict.fromkeys((Op.FIXED32, Op.FLOAT), _FIXED32),
    **dict.fromkeys((Op.FIXED64, Op.DOUBLE), _FIXED64),
    **dict.fromkeys((Op.STRING, Op.BYTES, Op.MESSAGE, Op.WRAPPED, Op.MOMENT), _BYTES),
}
_RANGES: Final = {
    Range.INT32: range(-(1 << 31), 1 << 31),
    Range.UINT32: range(1 << 32),
    Range.UINT64: range(1 << 64),
}
_MICROS: Final = 1_000_000
# What Google's definitions allow: the years 1 to 9999, and 315,576,000,000 seconds in both directions.
_TIMESTAMP_MICROS: Final = range(-62_135_596_800 * _MICROS, 253_402_300_800 * _MICROS)
_DURATION_MICROS: Final = range(-315_576_000_001 * _MICROS + 1, 315_576_000_001 * _MICROS)


class PythonProtobufEncoder:
    """A ``PayloadEncoder`` of Protobuf without the kernel."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        self._encoding = encoding

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column of structs; a null value is null."""
        binder = _Binder(self._encoding)
        return binder.encode_rows(values, binder.message(values))


class _Node(NamedTuple):
    number: int
    wire_type: int
    valid: list[bool]
    write: _Write  # a value that is not null, without its tag


class _Binder(ProgramReader):
    """Binds the nodes of a program to the columns of a batch."""

    def message(self, array: pa.Array) -> _Write:
        """Return the function that writes the fields of a row."""
        self._nodes += 1
        assert Op(self._next()) is Op.MESSAGE
        return self._fields(array)

    def _node(self, array: pa.Array) -> _Node:
        number = self._nodes
        self._nodes += 1
        op = Op(self._next())
        write = self._value(op, number, array)
        return _Node(number, _WIRE_TYPES.get(op, _VARINT), array.is_valid().to_pylist(), write)

    def _value(self, op: Op, number: int, array: pa.Array) -> _Write:
        """Return the function that writes values that are not null."""
        match op:
            case Op.MESSAGE:
                return _with_length(self._fields(array))
            case Op.WRAPPED:
                return _with_length(_implicit(1, self._node(array)))
        import pyarrow as pa

        if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
            array = array.view(pa.int64())
        elif pa.types.is_float32(array.type):
            array = array.view(pa.int32())  # the bits, because numbers of 64 bits would change signalling NaNs
        values = (array.cast(pa.binary()) if pa.types.is_string(array.type) else array).to_pylist()
        match op:
            case Op.BOOL:
                return lambda row, out: out.append(values[row])
            case Op.FLOAT:
                return lambda row, out: out.extend(struct.pack("<i", values[row]))
            case Op.DOUBLE:
                return lambda row, out: out.extend(struct.pack("<d", values[row]))
            case Op.BYTES:
                return lambda row, out: _write_bytes(values[row], out)
            case Op.STRING:
                return _string(number, values)
            case Op.ENUM_NAME:
                return self._enum_names(number, values)
            case Op.ENUM_NUMBER:
                count = self._next()
                known = None if count == OPEN else {self._next() for _ in range(count)}
                return _enum_numbers(number, values, known)
            case Op.MOMENT:
                return _moment(number, values, has_sign=bool(self._next()))
        return _integers(op, number, values, Range(self._next()), is_int32=array.type == pa.int32())

    def _fields(self, array: pa.StructArray) -> _Write:
        fields: list[_Write] = []
        oneofs: dict[int, list[_Node]] = {}
        for _ in range(self._next()):
            field, shape, oneof = self._next(), Shape(self._next()), self._next()
            write, node = self._field(field, shape, array.field(self._next()))
            fields.append(write)
            if oneof != NO_ONEOF:
                oneofs.setdefault(oneof, []).append(node)

        def write_fields(row: int, out: bytearray) -> None:
            for members in oneofs.values():
                present = [node.number for node in members if node.valid[row]]
                if len(present) > 1:
                    raise InvalidNodeError(present[0], InvalidReason.MEMBERS, present[1])
            for write in fields:
                write(row, out)

        return write_fields

    def _field(self, field: int, shape: Shape, array: pa.Array) -> tuple[_Write, _Node]:
        """Return the function that writes a field, and the node of its values."""
        if shape is Shape.MAP:
            key, value = self._node(array.keys), self._node(array.items)
            write_key, write_value = self._item(1, key), self._item(2, value)

            def write_entry(row: int, out: bytearray) -> None:
                write_key(row, out)
                write_value(row, out)

            entry, entry_tag = _with_length(write_entry), _tag(field, _BYTES)

            def write_tagged(row: int, out: bytearray) -> None:
                out += entry_tag
                entry(row, out)

            return _items(array, write_tagged), value
        if shape is Shape.REPEATED:
            node = self._node(array.values)
            return _items(array, self._item(field, node)), node
        if shape is Shape.PACKED:
            node = self._node(array.values)
            packed = _with_length(_items(array, self._item(None, node)))
            offsets, valid, tag = array.offsets.to_pylist(), array.is_valid().to_pylist(), _tag(field, _BYTES)

            def write_packed(row: int, out: bytearray) -> None:
                if valid[row] and offsets[row + 1] > offsets[row]:
                    out += tag
                    packed(row, out)

            return write_packed, node
        node = self._node(array)
        if shape is Shape.IMPLICIT:
            return _implicit(field, node), node
        tag = _tag(field, node.wire_type)

        def write_field(row: int, out: bytearray) -> None:
            if node.valid[row]:
                out += tag
                node.write(row, out)
            elif shape is Shape.REQUIRED:
                raise InvalidNodeError(node.number, InvalidReason.NULL)

        return write_field, node

    def _item(self, field: int | None, node: _Node) -> _Write:
        """Return the function that writes an element of a list, or a key or value of a map."""
        tag = b"" if field is None else _tag(field, node.wire_type)

        def write_item(row: int, out: bytearray) -> None:
            if not node.valid[row]:
                raise InvalidNodeError(node.number, InvalidReason.NULL)
            out += tag
            node.write(row, out)
            if len(out) > self.bytes_left:
                raise InvalidNodeError(node.number, InvalidReason.LIMIT)

        return write_item

    def _enum_names(self, number: int, values: list[Any]) -> _Write:
        index = self._next()
        prefix = None if index == CLOSED else self._constants[index]
        names = {}
        for _ in range(self._next()):
            symbol = self._next()
            names[self._constants[self._next()]] = symbol

        def write(row: int, out: bytearray) -> None:
            symbol = names.get(values[row])
            if symbol is None and prefix is not None:
                symbol = _unknown_symbol(values[row], prefix)
            if symbol is None:
                raise InvalidNodeError(number, InvalidReason.SYMBOL)
            out += _varint(symbol)

        return write


def _implicit(field: int, node: _Node) -> _Write:
    """Return the function that writes a field without presence."""
    tag = _tag(field, node.wire_type)

    def write(row: int, out: bytearray) -> None:
        if not node.valid[row]:
            return
        value = bytearray()
        node.write(row, value)
        if any(value):  # not a varint or number of 0, or the length of an empty string
            out += tag
            out += value

    return write


def _items(array: pa.Array, write_item: _Write) -> _Write:
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()

    def write(row: int, out: bytearray) -> None:
        if valid[row]:
            for item in range(offsets[row], offsets[row + 1]):
                write_item(item, out)

    return write


def _with_length(write_content: _Write) -> _Write:
    def write(row: int, out: bytearray) -> None:
        start = len(out)
        write_content(row, out)
        out[start:start] = _varint(len(out) - start)

    return write


def _string(number: int, values: list[bytes | None]) -> _Write:
    def write(row: int, out: bytearray) -> None:
        value = values[row]
        assert value is not None
        try:
            value.decode()
        except UnicodeDecodeError:
            raise InvalidNodeError(number, InvalidReason.TEXT) from None
        _write_bytes(value, out)

    return write


def _enum_numbers(number: int, values: list[int], known: set[int] | None) -> _Write:
    def write(row: int, out: bytearray) -> None:
        if known is not None and values[row] not in known:
            raise InvalidNodeError(number, InvalidReason.SYMBOL)
        out += _varint(values[row])

    return write


def _integers(op: Op, number: int, values: list[Any], allowed: Range, *, is_int32: bool) -> _Write:
    # The bits of an int32 are those of the number without a sign.
    has_bits = is_int32 and allowed is Range.UINT32
    limits = _RANGES.get(allowed)

    def write(row: int, out: bytearray) -> None:
        value = int(values[row]) % (1 << 32) if has_bits else int(values[row])
        if limits is not None and value not in limits:
            raise InvalidNodeError(number, InvalidReason.RANGE)
        match op:
            case Op.FIXED32:
                out += (value % (1 << 32)).to_bytes(4, "little")
            case Op.FIXED64:
                out += (value % (1 << 64)).to_bytes(8, "little")
            case Op.ZIGZAG:
                out += _varint((value << 1) ^ (value >> 63))
            case _:
                out += _varint(value)

    return write


def _moment(number: int, values: list[int], *, has_sign: bool) -> _Write:
    allowed = _DURATION_MICROS if has_sign else _TIMESTAMP_MICROS

    def write(row: int, out: bytearray) -> None:
        if values[row] not in allowed:
            raise InvalidNodeError(number, InvalidReason.RANGE)
        seconds, rest = divmod(values[row], _MICROS)
        if has_sign and seconds < 0 and rest:
            seconds, rest = seconds + 1, rest - _MICROS
        for field, value in ((1, seconds), (2, rest * 1000)):
            if value:
                out += _tag(field, _VARINT)
                out += _varint(value)

    return _with_length(write)


def _unknown_symbol(name: bytes, prefix: bytes) -> int | None:
    """Return the number in the name of a number without a name."""
    try:
        number = int(name.removeprefix(prefix)) if name.startswith(prefix) else None
    except ValueError:
        return None
    is_exact = number is not None and -(1 << 31) <= number < 1 << 31 and prefix + str(number).encode() == name
    return number if is_exact else None


def _write_bytes(value: bytes, out: bytearray) -> None:
    out += _varint(len(value))
    out += value


def _tag(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(number: int) -> bytes:
    rest = number % (1 << 64)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
