"""The columns of a frame that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

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
    from pyspark.errors import PySparkException

    positions = write_schema.column_positions(schema.fieldNames(), topic)
    fields = [pa.field(name, pa.null()) for name in schema.fieldNames()]
    for name, position in positions.items():
        data_type = schema.fields[position].dataType
        try:
            found = arrow_schema_in_utc(StructType([StructField(name, data_type)])).field(0).type
        except (PySparkException, TypeError, NotImplementedError, ValueError):
            raise write_schema.unsupported_type(name, data_type.simpleString()) from None
        fields[position] = fields[position].with_type(found)
    return pa.schema(fields)


def _check_unique_names(names: Sequence[str]) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ColumnError(
            f"Columns of the same name: {listed(duplicates)}. Spark cannot pass them to Python, even if they are not "
            "written: select only the columns to write"
        )
