"""Spark's columns of a Kafka record, and which of them a user's schema asks for.

Spark's connector (KafkaRecordToRowConverter): key binary, value binary, topic string, partition int, offset bigint,
timestamp timestamp, timestampType int; with ``includeHeaders`` also headers array<struct<key string, value binary>>.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}

_MAY_BE_NULL = frozenset({"key", "value", "headers"})


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The columns one query reads.

    Attributes:
        schema: Spark's schema, with the names as the user spelled them.
        columns: The same columns under the engine's names, in the same order.
    """

    schema: StructType
    columns: tuple[str, ...]

    def renamed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches under the user's spelling of the column names and nullability, as Spark checks both."""
        if self.schema == StructType([StructField(name, _TYPES[name]) for name in self.columns]):
            yield from batches
            return
        from pyspark_kafka_direct.runtime.spark_versions import arrow_schema_in_utc

        arrow_schema = arrow_schema_in_utc(self.schema)
        for batch in batches:
            yield type(batch).from_arrays(batch.columns, schema=arrow_schema)


def full_schema(include_headers: bool) -> StructType:
    """Return all columns in the order of Spark's connector; ``headers`` only on request."""
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != "headers"]
    )


def read_schema(schema: StructType) -> ReadSchema:
    """Check a schema given by ``.schema(...)``: any subset of the columns, in any order, with Spark's types.

    Args:
        schema: The schema Spark hands to the reader: the user's, or the full one.

    Raises:
        OptionError: An unknown column, one named twice, a type other than Spark's, or NOT NULL where null may come.
    """
    by_lower_case = {name.lower(): name for name in _TYPES}
    columns: list[str] = []
    for field in schema.fields:
        column = by_lower_case.get(field.name.lower())
        if column is None:
            raise OptionError(_unknown_column(field.name))
        if column in columns:
            raise OptionError(f"schema: column {column!r} is named twice; name each column once.")
        _check_type(column, field)
        columns.append(column)
    return ReadSchema(schema, tuple(columns))


def _check_type(column: str, field: StructField) -> None:
    wanted = _TYPES[column]
    given = field.dataType
    if given != wanted:
        raise OptionError(
            f"schema: column {field.name!r} is {wanted.simpleString()}, not {given.simpleString()}. "
            f"Read it as {wanted.simpleString()} and cast it in the query."
        )
    if not field.nullable and column in _MAY_BE_NULL:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; leave out NOT NULL.")


def _unknown_column(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _TYPES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"schema: there is no column {name!r}; choose from {', '.join(_TYPES)}.{hint} "
        "The content of `value` is decoded in the query, for example with from_json or from_avro."
    )
