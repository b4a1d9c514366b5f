"""Arrow data of other libraries, as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import ColumnError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPECTED = (
    "data must be a pyarrow Table, RecordBatch or RecordBatchReader, an object with __arrow_c_stream__ or "
    "__arrow_c_array__ such as a DataFrame of polars, or an iterable of RecordBatches"
)

_SPARK_NUMBERS: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
}
"""The types of numbers that Spark has, by those that it lacks; a number that does not fit is an error."""


class ArrowInput(NamedTuple):
    """Record batches that are read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def open_input(data: Any) -> ArrowInput | None:
    """Return the batches of some data, which is not materialized; None for an iterable without a batch."""
    if isinstance(data, pa.RecordBatch):
        return ArrowInput(data.schema, iter([data]))
    if isinstance(data, pa.Table):
        return ArrowInput(data.schema, iter(data.to_batches()))
    if hasattr(data, "read_next_batch") and hasattr(data, "schema"):  # a reader, or a slice of `read_arrow`
        return ArrowInput(data.schema, iter(data))
    if hasattr(data, "__arrow_c_stream__"):
        reader = _imported(pa.RecordBatchReader.from_stream, data)
        return ArrowInput(reader.schema, iter(reader))
    if hasattr(data, "__arrow_c_array__"):
        batch = _imported(pa.record_batch, data)
        return ArrowInput(batch.schema, iter([batch]))
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        raise OptionError(f"{_EXPECTED}; got {type(data).__name__}")
    batches = iter(data)
    for first in batches:
        if not isinstance(first, pa.RecordBatch):
            raise OptionError(f"{_EXPECTED}; got {type(data).__name__} of {type(first).__name__}")
        return ArrowInput(first.schema, _with_schema(chain([first], batches), first.schema))
    return None


def plain_schema(schema: pa.Schema, written: Mapping[int, pa.DataType]) -> pa.Schema:
    """Return the schema in which the written columns have only types that writers take, or none like them.

    ``written`` has the type of each written column, by its position, if all its values are null.
    """
    fields = list(schema)
    for index, type_of_nulls in written.items():
        found = _plain_type(fields[index].type)
        fields[index] = fields[index].with_type(type_of_nulls if found == pa.null() else found)
    return pa.schema(fields)


def with_plain_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of ``plain_schema``."""
    if batch.schema.types == schema.types:
        return batch
    try:
        columns = [
            column if column.type == field.type else _plain(column, field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
    except (ValueError, NotImplementedError) as error:  # also Arrow's errors
        raise ColumnError(f"The data has a column that cannot be converted: {error}. Cast it before") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_schema(batches: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an iterable, all of which must have the same columns."""
    for index, batch in enumerate(batches):
        if not isinstance(batch, pa.RecordBatch):
            raise OptionError(f"{_EXPECTED}; batch {index} is a {type(batch).__name__}")
        if not batch.schema.equals(schema):
            raise ColumnError(
                f"Batch {index} has the columns {batch.schema.to_string(show_field_metadata=False)!r}, and the first "
                f"one {schema.to_string(show_field_metadata=False)!r}: give all batches the same columns"
            )
        yield batch


def _imported(function: Any, data: Any) -> Any:
    try:
        return function(data)
    except (ValueError, TypeError, NotImplementedError) as error:  # such as an array or stream that has no columns
        raise OptionError(f"{_EXPECTED}; {type(data).__name__}: {error}") from error


def _plain(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    if column.type == data_type:
        return column
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage, data_type)
    types = pa.types
    if types.is_null(column.type):
        return pa.nulls(len(column), data_type)
    # Arrow cannot decode dictionaries of views, also not those in structs, lists and maps.
    if types.is_dictionary(column.type):
        values = _plain(column.dictionary, data_type)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if types.is_struct(column.type):
        children = [_plain(column.field(index), field.type) for index, field in enumerate(data_type)]
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=column.is_null())
    if types.is_map(data_type):
        offsets, (keys, items) = _parts(column.offsets, column.keys, column.items)
        keys, items = _plain(keys, data_type.key_type), _plain(items, data_type.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, data_type, mask=column.is_null())
    if types.is_list(data_type) or types.is_large_list(data_type):
        offsets, (entries,) = _parts(_offsets(column), column.values)
        made = pa.ListArray if types.is_list(data_type) else pa.LargeListArray
        return made.from_arrays(offsets, _plain(entries, data_type.value_type), data_type, mask=column.is_null())
    return column.cast(data_type)


def _offsets(column: pa.Array) -> pa.Array:
    """Return where the lists of a column begin in its values, and the end."""
    if not pa.types.is_fixed_size_list(column.type):
        return column.offsets
    size = column.type.list_size
    return pa.array(range(column.offset * size, (column.offset + len(column)) * size + 1, size), pa.int32())


def _parts(offsets: pa.Array, *values: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values between the first and the last offset, and the offsets in these: a batch may be a slice."""
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, pa.scalar(first, offsets.type)), [each.slice(first, last - first) for each in values]


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type without dictionaries, views, extension types, lists of a fixed size, and unsigned numbers."""
    types = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return _plain_type(data_type.storage_type)
    if types.is_dictionary(data_type):
        return _plain_type(data_type.value_type)
    if types.is_string_view(data_type):
        return pa.string()
    if types.is_binary_view(data_type):
        return pa.binary()
    if types.is_struct(data_type):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in data_type])
    if types.is_list(data_type) or types.is_fixed_size_list(data_type):
        return pa.list_(data_type.value_field.with_type(_plain_type(data_type.value_type)))
    if types.is_large_list(data_type):
        return pa.large_list(data_type.value_field.with_type(_plain_type(data_type.value_type)))
    if types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), item.with_type(_plain_type(item.type)))
    return _SPARK_NUMBERS.get(data_type, data_type)
