"""The Python Avro decoder: runs the same programs as the native one, on columns that are lists."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark_kafka_direct.records.avro_values import (
    MAX_CALLS,
    MAX_EMPTY_ITEMS,
    MESSAGES,
    NULL_FIRST,
    NULL_LAST,
    AvroProgram,
    AvroRequest,
    Op,
    Reason,
    child_fields,
)
from pyspark_kafka_direct.records.columns import binary_values
from pyspark_kafka_direct.records.decoded_size import DecodedSize, element_width, fits_column, width
from pyspark_kafka_direct.records.json_values import DecodedValues, malformed_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")

_INT_RANGE: Final = range(-(1 << 31), 1 << 31)
_LONG_RANGE: Final = range(-(1 << 63), 1 << 63)


class _MalformedDatumError(Exception):
    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


class Column:
    """A column under construction. A row that nothing writes is null."""

    def __init__(self, data_type: pa.DataType) -> None:
        import pyarrow as pa

        self.type = data_type
        self.values: list[Any] = []  # of a list or map: anything but None, unless the row is null
        self.ends: list[int] = []  # of a list or map: where the items of its rows end, null ones included
        self.children = [Column(field.type) for field in child_fields(data_type)]
        self.has_items = pa.types.is_list(data_type) or pa.types.is_map(data_type)
        self.item_bytes = element_width(data_type)
        self.items = 0
        self.limit = 10**data_type.precision if pa.types.is_decimal(data_type) else 0

    def put(self, row: int, value: Any) -> None:
        self.resize_own(row)
        self.values.append(value)
        if self.has_items:
            self.ends.append(value)

    def resize_own(self, rows: int) -> None:
        del self.values[rows:]
        self.values += [None] * (rows - len(self.values))
        if self.has_items:
            del self.ends[rows:]
            self.ends += [self.end_of(rows)] * (rows - len(self.ends))

    def end_of(self, rows: int) -> int:
        """Return where the items of the first rows end."""
        rows = min(rows, len(self.ends))
        return self.ends[rows - 1] if rows else 0

    def truncate(self, rows: int) -> None:
        """Remove the rows from a number on, of which the last one may be incomplete."""
        del self.values[rows:]
        if self.has_items:
            del self.ends[rows:]
            self.items = self.end_of(rows)
        for child in self.children:
            child.truncate(self.items if self.has_items else rows)

    def finish(self, rows: int) -> pa.Array:
        """Return all rows as an array."""
        import pyarrow as pa

        self.resize_own(rows)
        nulls = pa.array([value is None for value in self.values], pa.bool_())
        if pa.types.is_struct(self.type):
            arrays = [child.finish(rows) for child in self.children]
            if not arrays:
                return pa.array([None if value is None else {} for value in self.values], self.type)
            return pa.StructArray.from_arrays(arrays, fields=list(self.type), mask=nulls)
        if not self.has_items:
            return _array(self.values, self.type)
        children = [child.finish(self.items) for child in self.children]
        ends = pa.array([0, *self.ends], pa.int32())
        if pa.types.is_map(self.type):
            return _map_array(ends, children, self.type, nulls)
        return pa.ListArray.from_arrays(ends, children[0], type=self.type, mask=nulls)


class _Datum:
    """A value while it is read."""

    def __init__(self, data: bytes, start: int, max_bytes: int) -> None:
        self.data = data
        self.at = start
        self.value_start = start  # of the value that is read
        self.bytes_left = max_bytes  # of elements, and of strings that are not in the datum
        self.empty_items_left = MAX_EMPTY_ITEMS
        self.calls_left = MAX_CALLS
        self.is_null = False

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise _MalformedDatumError(Reason.TRUNCATED)
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = 0
        for index, byte in enumerate(self.data[self.at : self.at + 10]):
            if index == 9 and byte > 1:
                raise _MalformedDatumError(Reason.VARINT)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.at += index + 1
                return (value >> 1) ^ -(value & 1)
        raise _MalformedDatumError(Reason.TRUNCATED)

    def integer(self) -> int:
        value = self.varint()
        if value not in _INT_RANGE:
            raise _MalformedDatumError(Reason.VARINT)
        return value

    def boolean(self) -> bool:
        value = self.take(1)[0]
        if value > 1:
            raise _MalformedDatumError(Reason.BOOLEAN)
        return value == 1

    def sized(self) -> bytes:
        size = self.varint()
        if size < 0:
            raise _MalformedDatumError(Reason.LENGTH)
        return self.take(size)

    def count(self, min_size: int) -> int:
        """Read the number of items of a block; no items are the end of an array or map."""
        self.value_start = self.at
        count = self.varint()
        if count < 0:
            count = -count
            self.varint()  # the size of the block, which only readers that jump need
        if min_size == 0:
            if count > self.empty_items_left:
                raise _MalformedDatumError(Reason.COUNT)
            self.empty_items_left -= count
        elif count > (len(self.data) - self.at) // min_size:
            raise _MalformedDatumError(Reason.COUNT)
        return count

    def charge(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _MalformedDatumError(Reason.SIZE)


_Run: TypeAlias = "Callable[[_Datum, int], None]"  # reads from a datum into a row


class PythonAvroDecoder:
    """An ``AvroDecoder`` in Python."""

    def __init__(self, request: AvroRequest) -> None:
        self._fields = request.fields
        self._max_bytes = request.max_bytes
        self._roots: list[Column] = []
        self._columns: list[Column] = []
        self._create_columns()
        self._sources: list[AvroProgram] = []

    def _create_columns(self) -> None:
        self._roots = [Column(field.type) for field in self._fields]
        self._columns = _preorder(self._roots)

    def add_program(self, program: AvroProgram) -> int:
        """Add a program and return its number."""
        _Compiler(program, self._columns).program(program.numbers)
        self._sources.append(program)
        return len(self._sources) - 1

    def decode(
        self, values: pa.BinaryArray, starts: pa.Int32Array | None = None, programs: pa.Int32Array | None = None
    ) -> DecodedValues:
        """Decode the first values of a column."""
        import pyarrow as pa

        self._create_columns()
        runs = [_Compiler(program, self._columns).program(program.numbers) for program in self._sources]
        numbers = [0] * len(values) if programs is None else programs.to_pylist()
        headers = [0] * len(values) if starts is None else starts.to_pylist()
        misfits: list[tuple[int, str] | None] = []
        nulls: list[bool] = []
        size = DecodedSize(self._max_bytes, width(pa.struct(list(self._fields))))
        for row, value in enumerate(binary_values(values)):
            if not size.begin_row(len(value or b"")):
                break
            misfit, is_null = None, value is None
            if value is not None and numbers[row] is not None:
                datum = _Datum(value, min(headers[row] or 0, len(value)), self._max_bytes)
                misfit = self._decode_datum(runs[numbers[row]], datum, row)
                is_null = misfit is None and datum.is_null
                if misfit is None and not size.add(self._max_bytes - datum.bytes_left):
                    self._truncate(row)
                    break
            misfits.append(misfit)
            nulls.append(is_null)
        arrays = [column.finish(len(nulls)) for column in self._roots]
        if arrays:
            mask = pa.array(nulls, pa.bool_())
            structs = pa.StructArray.from_arrays(arrays, fields=list(self._fields), mask=mask)
        else:
            structs = pa.array([None if is_null else {} for is_null in nulls], pa.struct([]))
        return DecodedValues(structs, malformed_values(misfits))

    def _decode_datum(self, run: _Run, datum: _Datum, row: int) -> tuple[int, str] | None:
        """Return position and reason if a datum is malformed."""
        if not fits_column(datum.data):
            return datum.at, MESSAGES[Reason.SIZE]
        try:
            run(datum, row)
            if datum.at == len(datum.data):
                return None
            position, reason = datum.at, int(Reason.TRAILING)
        except _MalformedDatumError as error:
            position, reason = datum.value_start, error.reason
        except RecursionError:
            position, reason = datum.value_start, Reason.DEPTH
        self._truncate(row)
        return position, MESSAGES[reason]

    def _truncate(self, rows: int) -> None:
        for column in self._roots:
            column.truncate(rows)


class _Compiler:
    """Makes functions of a program."""

    def __init__(self, program: AvroProgram, columns: Sequence[Column]) -> None:
        self._constants = program.constants
        self._columns = columns
        self._routines: list[_Run] = []

    def program(self, numbers: Sequence[int]) -> _Run:
        runs: list[_Run] = []
        at = 0
        while at < len(numbers):
            run, at = self._operation(numbers, at)
            runs.append(run)

        def run_all(datum: _Datum, row: int) -> None:
            for run in runs:
                run(datum, row)

        return run_all

    def _operation(self, numbers: Sequence[int], at: int) -> tuple[_Run, int]:
        null = {0: None, NULL_FIRST: 0, NULL_LAST: 1}[numbers[at] & ~0xFF]
        run, at = self._value(Op(numbers[at] & 0xFF), numbers, at + 1)

        def run_value(datum: _Datum, row: int) -> None:
            datum.value_start = datum.at
            if null is not None:
                branch = datum.varint()
                if branch not in (0, 1):
                    raise _MalformedDatumError(Reason.BRANCH)
                if branch == null:
                    return
                datum.value_start = datum.at
            run(datum, row)

        return run_value, at

    def _value(self, op: Op, numbers: Sequence[int], at: int) -> tuple[_Run, int]:
        match op:
            case Op.SKIP_VARINT | Op.SKIP_LENGTH | Op.SKIP_BOOLEAN:
                return _SKIPS[op], at
            case Op.SKIP_BYTES:
                size = numbers[at]
                return (lambda datum, _: _ignore(datum.take(size))), at + 1
            case Op.SKIP_ENUM:
                return _skip_enum(numbers[at]), at + 1
            case Op.SKIP_ITEMS:
                body, end = self._body(numbers, at + 1)
                return _skip_items(numbers[at], body, is_empty=numbers[at + 1] == 0), end
            case Op.GROUP:
                return self._body(numbers, at)
            case Op.ROUTINE:
                number = len(self._routines)
                self._routines.append(_fail(Reason.UNREADABLE))
                self._routines[number], end = self._body(numbers, at)
                return self._call(number), end
            case Op.CALL:
                return self._call(numbers[at]), at + 1
            case Op.NULL_VALUE:
                return _null_value, at
            case Op.UNION:
                branches, end = self._bodies(numbers, at)
                return _union(branches), end
            case Op.FAIL:
                return _fail(numbers[at]), at + 1
        column = self._columns[numbers[at]]
        match op:
            case Op.FIXED:
                return self._put(column, _sized(numbers[at + 1])), at + 2
            case Op.FIXED_DECIMAL:
                return self._put(column, _decimal(column, _sized(numbers[at + 1]))), at + 2
            case Op.DECIMAL:
                return self._put(column, _decimal(column, _Datum.sized)), at + 1
            case Op.ENUM:
                end = at + 2 + numbers[at + 1]
                symbols = [None if index < 0 else self._constants[index] for index in numbers[at + 2 : end]]
                return self._put(column, _enum(symbols)), end
            case Op.ITEMS:
                body, end = self._body(numbers, at + 2)
                return _items(column, numbers[at + 1], body), end
            case Op.ITEMS_CONSTANT:
                items, end = self._bodies(numbers, at + 1)
                return _items_constant(column, items), end
            case Op.PRESENT:
                return self._put(column, lambda _: True), at + 1
            case Op.INTEGER_CONSTANT:
                integer = numbers[at + 1]
                return self._put(column, lambda _: integer), at + 2
            case Op.DOUBLE_CONSTANT:
                (double,) = _DOUBLE.unpack(self._constants[numbers[at + 1]][:8])
                return self._put(column, lambda _: double), at + 2
            case Op.BYTES_CONSTANT:
                constant = self._constants[numbers[at + 1]]
                is_decimal = column.limit > 0
                return self._put(column, _constant(column, constant, is_decimal=is_decimal)), at + 2
            case _:
                return self._put(column, _READS[op]), at + 1

    def _call(self, number: int) -> _Run:
        def call(datum: _Datum, row: int) -> None:
            datum.calls_left -= 1
            if datum.calls_left < 0:
                raise _MalformedDatumError(Reason.DEPTH)
            self._routines[number](datum, row)
            datum.calls_left += 1

        return call

    def _put(self, column: Column, read: Callable[[_Datum], Any]) -> _Run:
        return lambda datum, row: column.put(row, read(datum))

    def _body(self, numbers: Sequence[int], at: int) -> tuple[_Run, int]:
        end = at + 1 + numbers[at]
        return self.program(numbers[at + 1 : end]), end

    def _bodies(self, numbers: Sequence[int], at: int) -> tuple[list[_Run], int]:
        runs = []
        count, at = numbers[at], at + 1
        for _ in range(count):
            run, at = self._body(numbers, at)
            runs.append(run)
        return runs, at


def _ignore(_: object) -> None:
    pass


def _null_value(datum: _Datum, _: int) -> None:
    datum.is_null = True


_SKIPS: Final[dict[Op, _Run]] = {
    Op.SKIP_VARINT: lambda datum, _: _ignore(datum.varint()),
    Op.SKIP_LENGTH: lambda datum, _: _ignore(datum.sized()),
    Op.SKIP_BOOLEAN: lambda datum, _: _ignore(datum.boolean()),
}


def _micros(datum: _Datum) -> int:
    value = datum.varint() * 1000
    if value not in _LONG_RANGE:
        raise _MalformedDatumError(Reason.RANGE)
    return value


_READS: Final[dict[Op, Callable[[_Datum], Any]]] = {
    Op.BOOLEAN: _Datum.boolean,
    Op.INT: _Datum.integer,
    Op.LONG: _Datum.varint,
    Op.INT_TO_LONG: _Datum.integer,
    Op.INT_TO_FLOAT: _Datum.integer,
    Op.INT_TO_DOUBLE: lambda datum: float(datum.integer()),
    Op.LONG_TO_FLOAT: _Datum.varint,
    Op.LONG_TO_DOUBLE: lambda datum: float(datum.varint()),
    Op.FLOAT: lambda datum: single(datum.take(4)),
    Op.FLOAT_TO_DOUBLE: lambda datum: _FLOAT.unpack(datum.take(4))[0],
    Op.DOUBLE: lambda datum: _DOUBLE.unpack(datum.take(8))[0],
    Op.BYTES: _Datum.sized,
    Op.MILLIS_TO_MICROS: _micros,
}


def _sized(size: int) -> Callable[[_Datum], bytes]:
    return lambda datum: datum.take(size)


def _decimal(column: Column, read: Callable[[_Datum], bytes]) -> Callable[[_Datum], int]:
    def read_decimal(datum: _Datum) -> int:
        data = read(datum)
        value = int.from_bytes(data, signed=True)
        if not data or abs(value) >= column.limit:
            raise _MalformedDatumError(Reason.RANGE)
        return value

    return read_decimal


def _constant(column: Column, constant: bytes, *, is_decimal: bool) -> Callable[[_Datum], Any]:
    def read_constant(datum: _Datum) -> Any:
        datum.charge(len(constant))
        return _decimal(column, lambda _: constant)(datum) if is_decimal else constant

    return read_constant


def _enum(symbols: Sequence[bytes | None]) -> Callable[[_Datum], bytes]:
    def read_enum(datum: _Datum) -> bytes:
        index = datum.varint()
        symbol = symbols[index] if 0 <= index < len(symbols) else None
        if symbol is None:
            raise _MalformedDatumError(Reason.SYMBOL)
        datum.charge(len(symbol))
        return symbol

    return read_enum


def _skip_enum(symbols: int) -> _Run:
    def skip(datum: _Datum, _: int) -> None:
        if not 0 <= datum.varint() < symbols:
            raise _MalformedDatumError(Reason.SYMBOL)

    return skip


def _union(branches: Sequence[_Run]) -> _Run:
    def run(datum: _Datum, row: int) -> None:
        branch = datum.varint()
        if not 0 <= branch < len(branches):
            raise _MalformedDatumError(Reason.BRANCH)
        branches[branch](datum, row)

    return run


def _fail(reason: int) -> _Run:
    def run(_: _Datum, __: int) -> None:
        raise _MalformedDatumError(reason)

    return run


def _skip_items(min_size: int, body: _Run, *, is_empty: bool) -> _Run:
    def skip(datum: _Datum, row: int) -> None:
        while count := datum.count(min_size):
            for _ in range(0 if is_empty else count):
                body(datum, row)

    return skip


def _items(column: Column, min_size: int, body: _Run) -> _Run:
    def run(datum: _Datum, row: int) -> None:
        while count := datum.count(min_size):
            datum.charge(count * column.item_bytes)
            for _ in range(count):
                body(datum, column.items)
                column.items += 1
        column.put(row, column.items)

    return run


def _items_constant(column: Column, items: Sequence[_Run]) -> _Run:
    def run(datum: _Datum, row: int) -> None:
        datum.charge(len(items) * column.item_bytes)
        for item in items:
            item(datum, column.items)
            column.items += 1
        column.put(row, column.items)

    return run


def _preorder(columns: Sequence[Column]) -> list[Column]:
    numbered = []
    for column in columns:
        numbered += [column, *_preorder(column.children)]
    return numbered


def _array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if data_type == pa.string():
        return pa.array([value and value.decode(errors="replace") for value in values], pa.string())
    if data_type == pa.bool_():
        return pa.array([None if value is None else bool(value) for value in values], data_type)
    if pa.types.is_decimal(data_type):
        return _decimal_array(values, data_type)
    if data_type == pa.date32() or pa.types.is_timestamp(data_type):
        integers = pa.array(values, pa.int32() if data_type == pa.date32() else pa.int64())
        return integers.view(data_type)
    if data_type == pa.float32():
        return _float_array(values)
    return pa.array(values, data_type)


class _SingleNaN(float):
    """A NaN whose 32 bits change in 64 bits, because it is a signalling one."""

    bits: bytes


def single(data: bytes) -> float:
    """Return the number with 32 bits, little-endian."""
    (value,) = _FLOAT.unpack(data)
    if value == value:
        return float(value)
    nan = _SingleNaN(value)
    nan.bits = data
    return nan


def _float_array(values: list[Any]) -> pa.Array:
    """Return numbers with 32 bits; rounding to 64 bits first may give another one."""
    import pyarrow as pa

    if any(isinstance(value, _SingleNaN) for value in values):
        bits = [value.bits if isinstance(value, _SingleNaN) else _single_bits(value) for value in values]
        return pa.array(bits, pa.binary(4)).view(pa.float32())
    return pa.array([_single(value) if isinstance(value, int) else value for value in values], pa.float32())


def _single_bits(value: float | None) -> bytes | None:
    return None if value is None else _FLOAT.pack(_single(value) if isinstance(value, int) else value)


def _single(value: int) -> float:
    """Return the nearest number with 32 bits."""
    import pyarrow as pa

    single: float = pa.scalar(str(value)).cast(pa.float32()).as_py()
    return single


def _decimal_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    data = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(data_type, len(values), [valid.buffers()[1], pa.py_buffer(data)])


def _map_array(ends: pa.Array, children: list[pa.Array], data_type: pa.DataType, nulls: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, items = children
    entries = pa.StructArray.from_arrays([keys, items], fields=[data_type.key_field, data_type.item_field])
    valid = pc.invert(nulls)
    return pa.Array.from_buffers(data_type, len(nulls), [valid.buffers()[1], ends.buffers()[1]], children=[entries])
