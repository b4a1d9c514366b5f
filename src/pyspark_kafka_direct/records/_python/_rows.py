"""Rows to Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.records._columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.records._protocol import DecodeRequest
    from pyspark_kafka_direct.records._python._batch import Row


def build(rows: Sequence[Row], request: DecodeRequest) -> pa.RecordBatch:
    """Makes an Arrow batch of the request's columns."""
    import pyarrow as pa

    schema = arrow_schema(request.columns)
    if not schema.names:
        # Arrow keeps the number of rows of a batch without columns only in a struct array.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    arrays = [pa.array(_values(field.name, rows, request), field.type) for field in schema]
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
        case "headers":
            return [
                None if row.headers is None else [{"key": name, "value": value} for name, value in row.headers]
                for row in rows
            ]
        case _:
            return [None if row.leader_epoch < 0 else row.leader_epoch for row in rows]
