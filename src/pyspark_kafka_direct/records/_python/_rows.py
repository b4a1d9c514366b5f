"""Rows to Arrow."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.records._columns import arrow_schema
from pyspark_kafka_direct.records._python._record import read_nullable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.records._protocol import DecodeRequest
    from pyspark_kafka_direct.records._python._batch_reader import Row


def build(rows: Sequence[Row], request: DecodeRequest) -> pa.RecordBatch:
    """Make an Arrow batch of the request's columns."""
    import pyarrow as pa

    schema = arrow_schema(request.columns)
    if not schema.names:
        # Arrow keeps the number of rows of a batch without columns only in a struct array.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    arrays = [
        _header_lists(rows, field.type)
        if field.name == "headers"
        else pa.array(_values(field.name, rows, request), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(column: str, rows: Sequence[Row], request: DecodeRequest) -> list[Any]:
    match column:
        case "key":
            return [row.key for row in rows]
        case "value":
            return [row.value for row in rows]
        case "topic":
            return [request.topic] * len(rows)
        case "partition":
            return [request.partition] * len(rows)
        case "offset":
            return [row.offset for row in rows]
        case "timestamp":
            return [row.timestamp * 1000 for row in rows]
        case "timestampType":
            return [row.timestamp_type for row in rows]
        case _:
            return [None if row.leader_epoch < 0 else row.leader_epoch for row in rows]


def _header_lists(rows: Sequence[Row], kind: pa.ListType) -> pa.Array:
    """Make the headers column, from bytes to Arrow's buffers without an object for each header."""
    import pyarrow as pa

    ends, key_ends, value_ends = array("i", [0]), array("i", [0]), array("i", [0])
    keys, values = bytearray(), bytearray()
    null_rows, null_values = array("i"), array("i")
    for place, row in enumerate(rows):
        if row.headers is None:
            null_rows.append(place)
        else:
            number, data = row.headers
            at = 0
            for _ in range(number):
                name, at = read_nullable(data, at, len(data))
                content, at = read_nullable(data, at, len(data))
                # Java's String(bytes, UTF_8), which Kafka's client uses, puts U+FFFD for what is no UTF-8.
                keys += (name or b"").decode("utf-8", "replace").encode()
                key_ends.append(len(keys))
                if content is None:
                    null_values.append(len(value_ends) - 1)
                else:
                    values += content
                value_ends.append(len(values))
        ends.append(len(key_ends) - 1)
    count = len(key_ends) - 1
    key_buffers = [None, pa.py_buffer(key_ends), pa.py_buffer(keys)]
    value_buffers = [_validity(null_values, count), pa.py_buffer(value_ends), pa.py_buffer(values)]
    children = [
        pa.Array.from_buffers(pa.string(), count, key_buffers),
        pa.Array.from_buffers(pa.binary(), count, value_buffers),
    ]
    pairs = pa.Array.from_buffers(kind.value_type, count, [None], children=children)
    buffers = [_validity(null_rows, len(rows)), pa.py_buffer(ends)]
    return pa.Array.from_buffers(kind, len(rows), buffers, children=[pairs])


def _validity(nulls: Sequence[int], count: int) -> pa.Buffer | None:
    """Make Arrow's bitmap: a bit for each place, the lowest first, 0 where there is a null."""
    import pyarrow as pa

    if not nulls:
        return None
    bits = bytearray(b"\xff") * ((count + 7) // 8)
    for place in nulls:
        bits[place // 8] &= ~(1 << place % 8) & 0xFF
    return pa.py_buffer(bits)
