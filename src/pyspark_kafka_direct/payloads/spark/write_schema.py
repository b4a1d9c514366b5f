"""The columns of a frame that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.payloads import write_schema
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_kafka_direct.payloads.write_schema import WriteSchema


def resolve_write_schema(schema: StructType, topic: str | None, encoded: Collection[str] = frozenset()) -> WriteSchema:
    """Return the positions of the written columns of a frame, or raise ``ColumnError``.

    The types of ``encoded`` columns are checked with their schemas.
    """
    # Without the zone of a session, a task could not convert timestamps that have none.
    found = write_schema.resolve_write_schema(arrow_columns(schema, topic), topic, encoded, takes_local_times=False)
    _check_unique_names(schema.fieldNames())
    return found


def arrow_columns(schema: StructType, topic: str | None) -> pa.Schema:
    """Return the Arrow types of the columns of a frame; those of columns that are not written are void."""
    positions = write_schema.column_positions(schema.fieldNames(), topic)
    fields = [pa.field(name, pa.null()) for name in schema.fieldNames()]
    for name, position in positions.items():
        data_type = schema.fields[position].dataType
        found = _arrow_type(data_type)
        if found is None:
            path, unsupported = _without_arrow_type(name, data_type)
            if path == name:
                raise write_schema.unsupported_type(name, unsupported.simpleString())
            raise write_schema.unsupported_json_type(name, path, unsupported.simpleString())
        fields[position] = fields[position].with_type(found)
    return pa.schema(fields)


def _arrow_type(data_type: DataType) -> pa.DataType | None:
    from pyspark.errors import PySparkException

    try:
        return arrow_schema_in_utc(StructType([StructField("", data_type)])).field(0).type
    except (PySparkException, TypeError, NotImplementedError, ValueError):
        return None


def _without_arrow_type(path: str, data_type: DataType) -> tuple[str, DataType]:
    """Return the first part of a type that has no Arrow type, and its path."""
    parts: list[tuple[str, DataType]] = []
    match data_type:
        case StructType(fields=fields):
            parts = [(field.name, field.dataType) for field in fields]
        case ArrayType(elementType=element):
            parts = [("element", element)]
        case MapType(keyType=key, valueType=value):
            parts = [("key", key), ("value", value)]
    for name, part in parts:
        if _arrow_type(part) is None:
            return _without_arrow_type(f"{path}.{name}", part)
    return path, data_type


def _check_unique_names(names: Sequence[str]) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ColumnError(
            f"Columns of the same name: {listed(duplicates)}. Spark cannot pass them to Python, even if they are not "
            "written: select only the columns to write"
        )
