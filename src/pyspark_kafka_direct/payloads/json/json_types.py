"""The types that are encoded as JSON, Avro or Protobuf, and the encoding of JSON."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.decoded_values import MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.json.utc_offsets import utc_offsets
from pyspark_kafka_direct.records.columns import strings_as_binary
from pyspark_kafka_direct.records.native_kernel import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

MILLIONTHS: Final = "us"

WRITES_NULLS: Final = {b"writes_nulls": b"true"}
"""The metadata of a field of a struct that is written as null instead of left out."""

_LARGE_BYTES: Final = 64 << 10  # of other rows; encoders read fewer in a few microseconds

_PROTOBUF: Final = "Protobuf"  # has durations, and a type for strings that are bytes


def encodable(values: pa.Array, format_name: str = "JSON") -> pa.Array:
    """Return a column with the types that Spark uses; a ValueError names a type that is not encoded."""
    import pyarrow.compute as pc

    wanted = _encodable_type(values.type, format_name)
    values = _without_other_rows(values)
    if values.type == wanted:
        return values
    # Spark's times are microseconds. A number that does not fit is an error, and is not wrapped.
    return values.cast(options=pc.CastOptions(wanted, allow_time_truncate=True, allow_invalid_utf8=True))


def encode_json(values: pa.Array, data_type: pa.DataType | None = None) -> pa.BinaryArray:
    """Encode each value of a column as JSON; a null value is null.

    ``data_type`` is that of the column, with metadata such as ``WRITES_NULLS``.
    """
    import pyarrow as pa

    values = encodable(values)
    types = pa.schema([pa.field("value", values.type if data_type is None else data_type)])
    batch = strings_as_binary(pa.RecordBatch.from_arrays([values], ["value"])).__arrow_c_array__()
    encoded = native.encode_json(batch, types.__arrow_c_schema__(), _time_zones(values.type))
    return pa.record_batch(encoded).column(0)


def _time_zones(data_type: pa.DataType) -> dict[str, list[tuple[int, int]]]:
    """Return the tables of all time zones in a type, by name."""
    return {name: list(utc_offsets(name)) for name in _zone_names(data_type)}


def _without_other_rows(values: pa.Array) -> pa.Array:
    """Return a small slice of a large column as a copy: encoders read and check all elements of its children."""
    import pyarrow as pa

    if values.get_total_buffer_size() <= _LARGE_BYTES + 2 * values.nbytes:
        return values
    return pa.concat_arrays([values, values.slice(0, 0)])  # of one array alone, it would be the array itself


@functools.lru_cache(maxsize=64)
def _encodable_type(data_type: pa.DataType, format_name: str, path: str = "", depth: int = 0) -> pa.DataType:
    """Return the type to which a column is cast before it is encoded; ValueError if it is not encoded."""
    import pyarrow as pa

    types = pa.types
    if depth > MAX_SCHEMA_DEPTH:
        raise ValueError(f"field {path!r} has more than {MAX_SCHEMA_DEPTH} levels")

    def nested(field: pa.Field, name: str) -> pa.Field:
        return field.with_type(_encodable_type(field.type, format_name, f"{path}.{name}" if path else name, depth + 1))

    if types.is_struct(data_type):
        return pa.struct([nested(field, field.name) for field in data_type])
    if types.is_list(data_type) or types.is_large_list(data_type):
        return pa.list_(nested(data_type.value_field, "element"))
    if types.is_map(data_type):
        if format_name != _PROTOBUF and _is_unreadable_key(data_type.key_type):
            raise ValueError(
                f"the keys of the map {path!r} are {data_type.key_type}, which has no {format_name} string"
            )
        return pa.map_(nested(data_type.key_field, "key"), nested(data_type.item_field, "value"))
    if types.is_string(data_type) or types.is_large_string(data_type):
        return pa.string()
    if types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type):
        return pa.binary()
    if types.is_dictionary(data_type):
        return _encodable_type(data_type.value_type, format_name, path, depth)
    if types.is_timestamp(data_type):
        return pa.timestamp(MILLIONTHS, data_type.tz)
    if types.is_duration(data_type) and format_name == _PROTOBUF:
        return pa.duration(MILLIONTHS)
    if types.is_date(data_type):
        return pa.date32()
    if types.is_signed_integer(data_type) or types.is_boolean(data_type) or types.is_null(data_type):
        return data_type
    if types.is_float32(data_type) or types.is_float64(data_type) or types.is_decimal128(data_type):
        return data_type
    raise ValueError(f"field {path!r} has the type {data_type}, which is not encoded as {format_name}")


def _is_unreadable_key(data_type: pa.DataType) -> bool:
    """Spark writes such keys as addresses or internal numbers of Java objects."""
    import pyarrow as pa

    return bool(pa.types.is_nested(data_type) or pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def _zone_names(data_type: pa.DataType) -> Iterator[str]:
    """Yield the time zones of the timestamps in a type."""
    import pyarrow as pa

    if pa.types.is_timestamp(data_type):
        if data_type.tz is not None:
            yield data_type.tz
        return
    for index in range(data_type.num_fields):
        yield from _zone_names(data_type.field(index).type)
