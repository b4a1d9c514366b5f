"""The Arrow types of Spark's columns."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema_in_utc(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows; timestamps are in UTC."""
    convert: Any = import_module("pyspark.sql.pandas.types").to_arrow_schema
    # Before 4.2, to_arrow_schema has no such parameter and uses UTC.
    return convert(schema, timezone="UTC") if "timezone" in signature(convert).parameters else convert(schema)
