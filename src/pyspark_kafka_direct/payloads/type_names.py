"""The names that Spark has for the types of Arrow columns, for errors."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_NAMES: Final = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.time64("ns"): "time(6)",
    **dict.fromkeys((pa.string(), pa.large_string()), "string"),
    **dict.fromkeys((pa.binary(), pa.large_binary()), "binary"),
}
_STRUCTS: Final = ("variant", "geometry", "geography")


def type_name(data_type: pa.DataType) -> str:
    """Return Spark's name of a type, or Arrow's if Spark has no such type."""
    types = pa.types
    name = _NAMES.get(data_type) or spark_struct(data_type)
    if name is not None:
        return name
    if types.is_struct(data_type):
        return f"struct<{','.join(f'{field.name}:{_nested_name(field.type)}' for field in data_type)}>"
    if types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type):
        return f"array<{_nested_name(data_type.value_type)}>"
    if types.is_map(data_type):
        return f"map<{_nested_name(data_type.key_type)},{_nested_name(data_type.item_type)}>"
    if types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if types.is_timestamp(data_type):
        return "timestamp_ntz" if data_type.tz is None else "timestamp"
    if types.is_duration(data_type):
        return "interval day to second"
    return "binary" if types.is_fixed_size_binary(data_type) else str(data_type)


def without_dictionary(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary; a type within another one is written like it."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _nested_name(data_type: pa.DataType) -> str:
    return type_name(without_dictionary(data_type))


def spark_struct(data_type: pa.DataType) -> str | None:
    """Return the name of a type of Spark that is a struct only in Arrow, where the metadata of a field names it."""
    if not pa.types.is_struct(data_type):
        return None
    found = (name for field in data_type for name in _STRUCTS if (field.metadata or {}).get(name.encode()) == b"true")
    return next(found, None)
