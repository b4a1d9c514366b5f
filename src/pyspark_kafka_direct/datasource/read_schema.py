"""Spark's columns of a Kafka record, and the selection of columns by a user's schema.

The columns are those of Spark's connector (KafkaRecordToRowConverter): key binary, value binary, topic string,
partition int, offset bigint, timestamp timestamp, timestampType int; with ``includeHeaders`` also headers
array<struct<key string, value binary>>.
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

    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings
    from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

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

_NULLABLE = frozenset({"key", "value", "headers"})


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The columns that a query reads."""

    schema: StructType  # with the user's spelling of the names
    columns: tuple[str, ...]  # the names in Kafka records (and _error), in the same order
    payloads: PayloadSettings | None = None  # None: keys and values are bytes
    default_time_zone: str | None = None  # None: there are no timestamps to decode

    def read(self, task_reader: RangeTaskReader, task: RangeTask) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task with these columns."""
        if self.payloads is None:
            yield from self.renamed(task_reader.read(task, self.columns))
            return
        from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
        from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

        decoded = DecodedColumns(self.payloads, self.columns, arrow_schema_in_utc(self.schema))
        if self.default_time_zone is not None:
            from pyspark_kafka_direct.payloads.spark.session_time_zone import task_time_zone

            decoded = decoded._replace(time_zone=task_time_zone(self.default_time_zone))
        yield from task_reader.read_decoded(task, decoded)

    def renamed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the user's spelling and nullability, both of which Spark checks."""
        if self.schema == StructType([StructField(name, _TYPES[name]) for name in self.columns]):
            yield from batches
            return
        from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

        arrow_schema = arrow_schema_in_utc(self.schema)
        for batch in batches:
            yield type(batch).from_arrays(batch.columns, schema=arrow_schema)


def kafka_schema(include_headers: bool) -> StructType:
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != "headers"]
    )


def read_schema(schema: StructType, payloads: PayloadSettings | None = None) -> ReadSchema:
    """Validate a schema: any of the columns in any order, with Spark's types, or those of the payloads' formats."""
    from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN, PayloadSettings  # tasks may not need it

    payloads = payloads or PayloadSettings()
    by_lower_case = {name.lower(): name for name in (*_TYPES, ERROR_COLUMN)}
    columns: list[str] = []
    for field in schema.fields:
        column = by_lower_case.get(field.name.lower())
        if column is None or (column == ERROR_COLUMN and not payloads.decodes):
            raise OptionError(_unknown_column(field, payloads))
        if column in columns:
            raise OptionError(f"schema: column {column!r} is named twice; name each column once.")
        payload = payloads.side(column)  # None for other columns than key and value, and for those that remain bytes
        if payload is not None:
            from pyspark_kafka_direct.payloads.spark.payload_schema import check_payload_type

            check_payload_type(payload, field, payloads)
        elif column != ERROR_COLUMN:
            _check_type(column, field)
        columns.append(column)
    if ERROR_COLUMN in columns:  # after the loop, because the check needs all columns
        from pyspark_kafka_direct.payloads.spark.payload_schema import check_error_column

        check_error_column(schema.fields[columns.index(ERROR_COLUMN)], columns, payloads)
    if all(payloads.side(column) is None for column in columns):  # nothing is decoded
        return ReadSchema(schema, tuple(columns))
    from pyspark_kafka_direct.payloads.spark.session_time_zone import host_time_zone

    time_zone = host_time_zone() if _has_timestamps(schema, columns) else None
    return ReadSchema(schema, tuple(columns), payloads.for_tasks(), time_zone)


def _has_timestamps(schema: StructType, columns: list[str]) -> bool:
    """Return whether keys or values are decoded to timestamps."""
    from pyspark_kafka_direct.payloads.json.json_values import has_timestamps
    from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

    payloads = [field for field, column in zip(schema.fields, columns, strict=True) if column in ("key", "value")]
    return any(has_timestamps(field.type) for field in arrow_schema_in_utc(StructType(payloads)))


def _check_type(column: str, field: StructField) -> None:
    expected_type = _TYPES[column]
    actual_type = field.dataType
    if actual_type != expected_type:
        hint = f", or set {column}Format=json, avro, protobuf or string" if column in ("key", "value") else ""
        raise OptionError(
            f"schema: column {field.name!r} is {expected_type.simpleString()}, not {actual_type.simpleString()}. "
            f"Read it as {expected_type.simpleString()} and cast it in the query{hint}."
        )
    if not field.nullable and column in _NULLABLE:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; remove NOT NULL.")


def _unknown_column(field: StructField, payloads: PayloadSettings) -> str:
    from difflib import get_close_matches

    from pyspark_kafka_direct.options.payload_formats import format_row

    similar_names = get_close_matches(field.name, _TYPES, n=1)
    hint = f" Did you mean {similar_names[0]!r}?" if similar_names else ""
    error = f"schema: there is no column {field.name!r}; use {', '.join(_TYPES)}.{hint} "
    typed = next((side for side in (payloads.value, payloads.key) if format_row(side.format).has_schema), None)
    if typed is None:
        return error + (
            "To decode the content of `value`, set valueFormat=json, avro or protobuf and give the column `value` "
            "a struct type, or use a function such as from_protobuf in the query."
        )
    column = typed.side
    return error + (
        f"With {column}Format={typed.format}, the fields of the content belong to the type of `{column}`: "
        f'.schema("{column} {StructType([field]).simpleString()}"), or set {column}Schema. The query then selects '
        f'"{column}.*".'
    )
