"""The columns of a Kafka record in Spark, as Arrow types, and fast conversion of columns to Python values.

Names and types are those of Spark's Kafka source (``KafkaRecordToRowConverter``), in Arrow as Spark's
``to_arrow_schema`` maps them; ``leaderEpoch`` is this package's, null if the batch carries none.
"""

from __future__ import annotations

import functools
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    import pyarrow as pa

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "leaderEpoch",
)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the types of some columns of records; ValueError if one is unknown or repeated."""
    return _arrow_schema(tuple(columns))


@cache
def _arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    check_columns(columns)
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
        "leaderEpoch": pa.int32(),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError if a column is unknown or repeated."""
    for name in columns:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; a Kafka record has {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise ValueError(f"a column is named twice: {', '.join(columns)}")


# These functions slice values from Arrow's buffers, because creating Arrow scalars would take most of the time.


def binary_values(column: pa.BinaryArray) -> list[bytes | None]:
    """Return the bytes of all rows; None where a row is null."""
    import pyarrow.compute as pc

    count = len(column)
    if column.null_count == count:
        return [None] * count
    _, offset_buffer, data = column.buffers()  # ``binary`` has 32-bit offsets
    if data is None:
        rows: list[bytes | None] = [b""] * count
    else:
        offsets = memoryview(offset_buffer).cast("b").cast("i")[column.offset : column.offset + count + 1].tolist()
        first = offsets[0]
        # As bytes: slicing them takes half the time of slicing a memoryview.
        row_bytes = data.slice(first, offsets[-1] - first).to_pybytes()
        if first:
            offsets = [offset - first for offset in offsets]
        rows = [row_bytes[start:end] for start, end in pairwise(offsets)]
    if column.null_count:
        for row in integer_values(pc.indices_nonzero(column.is_null()), "Q"):
            rows[row] = None
    return rows


def integer_values(column: pa.Array, format_code: str) -> Sequence[int]:
    """Return the integers (or integer timestamps) of all rows, by struct format code; undefined where null."""
    integers = memoryview(column.buffers()[1]).cast("b").cast(format_code)  # type: ignore[call-overload]
    return integers[column.offset : column.offset + len(column)]  # type: ignore[no-any-return]


# The first ``pa.array`` or ``pa.scalar`` of a process imports pandas if it is installed: a third of a second and
# 49 MiB, which a task or a commit that only writes records does not need.


def binary_column(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return an Arrow array, as ``pa.array(values, pa.binary())`` does."""
    from array import array

    import pyarrow as pa

    filled = [value or b"" for value in values]
    offsets = pa.py_buffer(array("i", accumulate(map(len, filled), initial=0)))
    nulls = [row for row, value in enumerate(values) if value is None] if None in values else ()
    buffers = [_validity(nulls, len(values)), offsets, pa.py_buffer(b"".join(filled))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def header_column(rows: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.ListArray:
    """Return an Arrow array with a list of headers for each row."""
    from array import array

    import pyarrow as pa

    headers = [header for row in rows for header in row]
    keys = binary_column([key.encode() for key, _ in headers]).cast(pa.string())
    entries = pa.StructArray.from_arrays([keys, binary_column([value for _, value in headers])], names=["key", "value"])
    return pa.ListArray.from_arrays(integer_column(array("i", accumulate(map(len, rows), initial=0))), entries)


def integer_column(integers: array[int]) -> pa.Array:
    """Return an Arrow array with the integers of an ``array`` of type ``i`` or ``q``."""
    import pyarrow as pa

    data_type = {"i": pa.int32(), "q": pa.int64()}[integers.typecode]
    return pa.Array.from_buffers(data_type, len(integers), [None, pa.py_buffer(integers)])


def _validity(nulls: Sequence[int], count: int) -> pa.Buffer | None:
    """Return Arrow's validity bitmap: a bit for each value, the lowest first, 0 if it is null."""
    import pyarrow as pa

    if not nulls:
        return None
    bits = bytearray(b"\xff") * ((count + 7) // 8)
    for index in nulls:
        bits[index // 8] &= ~(1 << index % 8) & 0xFF
    return pa.py_buffer(bits)


def strings_as_binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with strings cast to binary, without a copy: Spark's strings may contain invalid UTF-8."""
    import pyarrow as pa

    schema = _schema_without_strings(rows.schema)
    if schema is None:
        return rows
    if not any(_has_nested_nulls(field.type) for field in schema):
        return rows.cast(schema)
    # PyArrow casts lists of nulls to invalid arrays, so nested arrays are cast one by one.
    columns = [_without_strings(*each) for each in zip(rows.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@functools.lru_cache(maxsize=64)
def _schema_without_strings(schema: pa.Schema) -> pa.Schema | None:
    """Return the schema with binary for strings; None if it has no strings. Cached, because batches may be small."""
    import pyarrow as pa

    changed = pa.schema([field.with_type(_type_without_strings(field.type)) for field in schema])
    return None if changed.equals(schema) else changed


def _type_without_strings(data_type: pa.DataType) -> pa.DataType:
    """Return the type with binary for strings, also for nested ones."""
    import pyarrow as pa

    if pa.types.is_string(data_type):
        return pa.binary()
    if pa.types.is_large_string(data_type):
        return pa.large_binary()
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_type_without_strings(data_type.value_type)))
    if pa.types.is_large_list(data_type):
        return pa.large_list(data_type.value_field.with_type(_type_without_strings(data_type.value_type)))
    if pa.types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(*(field.with_type(_type_without_strings(field.type)) for field in (key, item)))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_type_without_strings(field.type)) for field in data_type])
    return data_type


@functools.lru_cache(maxsize=64)
def _has_nested_nulls(data_type: pa.DataType) -> bool:
    """Return whether a type contains lists or maps of nulls, which PyArrow casts to invalid arrays."""
    import pyarrow as pa

    fields = [data_type.field(index).type for index in range(data_type.num_fields)]
    return any(pa.types.is_null(field) or _has_nested_nulls(field) for field in fields)


def _without_strings(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array with its nested arrays cast one by one, so that those of nulls are not cast."""
    import pyarrow as pa

    if array.type == data_type:  # it has no strings; it may be one of nulls
        return array
    if pa.types.is_struct(data_type):
        fields = list(data_type)
        children = [_without_strings(array.field(index), field.type) for index, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if not pa.types.is_nested(data_type):
        return array.cast(data_type)
    # A list or a map: its own two buffers are the validity and the offsets.
    items = _without_strings(array.values, data_type.field(0).type)
    own_buffers = array.buffers()[:2]
    return pa.Array.from_buffers(data_type, len(array), own_buffers, offset=array.offset, children=[items])
