"""The Python Avro encoder: each node of a program becomes a function that writes the value of a row."""

from __future__ import annotations

import struct
from decimal import Context
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.records.avro_encoding import NO_BRANCH, NO_COLUMN, Op, zigzag
from pyspark_kafka_direct.records.encoded_values import InvalidReason
from pyspark_kafka_direct.records.python.encoded_rows import InvalidNodeError, ProgramReader

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyspark_kafka_direct.records.encoded_values import PayloadEncoding

    _Write = Callable[[int, bytearray], None]  # the row, and what it is appended to

_EXACT: Final = Context(prec=100)


class PythonAvroEncoder:
    """An ``AvroEncoder`` without the kernel."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        self._encoding = encoding

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column; a null value is null."""
        binder = _Binder(self._encoding)
        return binder.encode_rows(values, binder.bind(values))


class _Binder(ProgramReader):
    """Binds the nodes of a program to the columns of a batch."""

    def bind(self, array: pa.Array) -> _Write:
        """Return the function of the next node, and of those within it."""
        node = self._nodes
        self._nodes += 1
        op, null_branch, branch = Op(self._next()), self._next(), self._next()
        null_prefix = None if null_branch == NO_BRANCH else zigzag(null_branch)
        prefix = b"" if branch == NO_BRANCH or op is Op.UNION else zigzag(branch)
        if op is Op.NULL:
            return lambda _, out: out.extend(prefix)
        write_value = self._value(op, node, null_prefix, array)
        valid = array.is_valid().to_pylist()

        def write(row: int, out: bytearray) -> None:
            if valid[row]:
                out += prefix
                write_value(row, out)
            elif null_prefix is None:
                raise InvalidNodeError(node, InvalidReason.NULL)
            else:
                out += null_prefix

        return write

    def _value(self, op: Op, node: int, null_prefix: bytes | None, array: pa.Array) -> _Write:
        """Return the function that writes values that are not null."""
        match op:
            case Op.ARRAY:
                return _items(array.offsets.to_pylist(), self._limited(node, self.bind(array.values)))
            case Op.MAP:
                keys, write_item = _plain(array.keys).to_pylist(), self.bind(array.items)

                def write_entry(row: int, out: bytearray) -> None:
                    if keys[row] is None:
                        raise InvalidNodeError(node, InvalidReason.KEY)
                    _write_bytes(keys[row], out)
                    write_item(row, out)

                return _items(array.offsets.to_pylist(), self._limited(node, write_entry))
            case Op.RECORD:
                fields = [self._field(array) for _ in range(self._next())]

                def write_record(row: int, out: bytearray) -> None:
                    for write in fields:
                        write(row, out)

                return write_record
            case Op.UNION:
                return self._union(node, null_prefix, array)
        return self._scalar(op, node, array)

    def _field(self, array: pa.StructArray) -> _Write:
        child = self._next()
        if child == NO_COLUMN:
            constant = self._constants[self._next()]
            return lambda _, out: out.extend(constant)
        return self.bind(_child(array, child))

    def _union(self, node: int, null_prefix: bytes | None, array: pa.StructArray) -> _Write:
        members = []
        for _ in range(self._next()):
            child = _child(array, self._next())
            members.append((child.is_valid().to_pylist(), self.bind(child)))

        def write_union(row: int, out: bytearray) -> None:
            present = [write for valid, write in members if valid[row]]
            if len(present) == 1:
                present[0](row, out)
            elif present:
                raise InvalidNodeError(node, InvalidReason.MEMBERS)
            elif null_prefix is None:
                raise InvalidNodeError(node, InvalidReason.NULL)
            else:
                out += null_prefix

        return write_union

    def _scalar(self, op: Op, node: int, array: pa.Array) -> _Write:
        import pyarrow as pa

        if op is Op.FLOAT:
            array = array.view(pa.int32())  # the bits, because numbers of 64 bits would change signalling NaNs
        values = _plain(array).to_pylist()
        match op:
            case Op.BOOLEAN:
                return lambda row, out: out.append(values[row])
            case Op.INTEGER:
                return lambda row, out: out.extend(zigzag(values[row]))
            case Op.MICROS_TO_MILLIS:
                return lambda row, out: out.extend(zigzag(values[row] // 1000))
            case Op.FLOAT:
                return lambda row, out: out.extend(struct.pack("<i", values[row]))
            case Op.DOUBLE:
                return lambda row, out: out.extend(struct.pack("<d", values[row]))
            case Op.BYTES:
                return lambda row, out: _write_bytes(values[row], out)
            case Op.DECIMAL:
                numbers = _unscaled(values, array.type.scale)
                return lambda row, out: _write_bytes(_twos_complement(numbers[row]), out)
            case Op.ENUM:
                symbols = {self._constants[self._next()]: zigzag(index) for index in range(self._next())}
                written: list[Any] = [symbols.get(value) for value in values]
            case Op.FIXED:
                size = self._next()
                written = [value if value is not None and len(value) == size else None for value in values]
            case _:
                return self._fixed_decimal(node, _unscaled(values, array.type.scale), self._next())
        reason = InvalidReason.SYMBOL if op is Op.ENUM else InvalidReason.SIZE

        def write(row: int, out: bytearray) -> None:
            if written[row] is None:
                raise InvalidNodeError(node, reason)
            out += written[row]

        return write

    def _fixed_decimal(self, node: int, numbers: list[int | None], size: int) -> _Write:
        def write(row: int, out: bytearray) -> None:
            number = numbers[row]
            assert number is not None
            if (number if number >= 0 else ~number).bit_length() >= 8 * size:
                raise InvalidNodeError(node, InvalidReason.SIZE)
            if len(out) + size > self.bytes_left:
                raise InvalidNodeError(node, InvalidReason.LIMIT)
            out += number.to_bytes(size, "big", signed=True)

        return write

    def _limited(self, node: int, write_item: _Write) -> _Write:
        def write(row: int, out: bytearray) -> None:
            write_item(row, out)
            if len(out) > self.bytes_left:
                raise InvalidNodeError(node, InvalidReason.LIMIT)

        return write


def _items(offsets: list[int], write_item: _Write) -> _Write:
    def write(row: int, out: bytearray) -> None:
        start, end = offsets[row], offsets[row + 1]
        if end > start:
            out += zigzag(end - start)
            for item in range(start, end):
                write_item(item, out)
        out.append(0)

    return write


def _child(array: pa.StructArray, index: int) -> pa.Array:
    """Return a child of a struct, sliced as the struct; its own nulls are not those of the struct."""
    return array.field(index)


def _plain(array: pa.Array) -> pa.Array:
    """Return strings as bytes, and times as integers."""
    import pyarrow as pa

    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array


def _write_bytes(value: bytes, out: bytearray) -> None:
    out += zigzag(len(value))
    out += value


def _unscaled(values: list[Any], scale: int) -> list[int | None]:
    return [None if value is None else int(value.scaleb(scale, _EXACT)) for value in values]


def _twos_complement(number: int | None) -> bytes:
    assert number is not None
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)
