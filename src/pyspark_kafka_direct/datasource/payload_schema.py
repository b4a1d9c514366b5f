"""The columns of a query that decodes keys or values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import IntegerType, StringType, StructField, StructType, VariantType

from pyspark_kafka_direct.config.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.spark.spark_versions import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.config.payload_parser import PayloadOptions
    from pyspark_kafka_direct.config.payload_settings import PayloadFormat, PayloadSettings

ERROR_TYPE: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("side", "stage", "class", "message")),
        StructField("schema_id", IntegerType()),
    ]
)

_TYPE: Final = re.compile(r"\s*(struct\s*<|variant\s*$)", re.IGNORECASE)  # otherwise, the fields of a struct


def typed_schema(columns: StructType, payloads: PayloadOptions) -> str:
    """Return the DDL of the columns of Kafka records. Spark parses it, because this process has no JVM."""
    types = {
        "key": _payload_type("key", payloads.settings.key_format, payloads.key_schema),
        "value": _payload_type("value", payloads.settings.value_format, payloads.value_schema),
        "timestamp": "timestamp_ltz",  # regardless of spark.sql.timestampType
    }
    return ", ".join(f"`{field.name}` {types.get(field.name) or field.dataType.simpleString()}" for field in columns)


def check_payload_type(column: str, field: StructField, payload_format: PayloadFormat, corrupt_record: str) -> None:
    """Raise an error if a column of this format cannot have the type that a schema gives it."""
    kind = field.dataType
    if not field.nullable:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; remove NOT NULL.")
    if payload_format == "string":
        if kind != StringType():
            raise OptionError(
                f"schema: with {column}Format=string, column {field.name!r} is string, not {kind.simpleString()}."
            )
        return
    if kind == VariantType():
        return
    if not isinstance(kind, StructType):
        raise OptionError(
            f"schema: with {column}Format=json, column {field.name!r} is a struct of the wanted fields, such as "
            f"struct<id bigint, name string>, or variant for any JSON, not {kind.simpleString()}."
        )
    from pyspark_kafka_direct.formats.json_column import wanted_fields
    from pyspark_kafka_direct.records.json_values import JsonRequest

    try:
        JsonRequest(wanted_fields(arrow_schema_in_utc(kind), corrupt_record).fields, corrupt_record)
    except ValueError as error:
        raise OptionError(
            f"schema: column {field.name!r}: {error}. Read a field of another type as string, and cast it in the query."
        ) from None


def check_error_column(field: StructField, columns: Collection[str], payloads: PayloadSettings) -> None:
    """Raise an error unless a schema gives the column ``_error`` its type, and has a column with errors to report."""
    if field.dataType != ERROR_TYPE or not field.nullable:
        raise OptionError(f"schema: column {field.name!r} must be {ERROR_TYPE.simpleString()}.")
    if all(payloads.format_of(column) != "json" for column in columns):
        raise OptionError(
            f"schema: column {ERROR_COLUMN} has the errors of keys and values that are decoded from JSON, and there "
            "is none; set valueFormat=json and add the column value, or remove _error."
        )


def _payload_type(column: str, payload_format: PayloadFormat, ddl: str | None) -> str:
    if payload_format != "json":
        return payload_format
    if not ddl or not ddl.strip():
        raise OptionError(
            f"{column}Format=json needs the wanted fields: give the column {column} a struct type with .schema(), or "
            f"set {column}Schema, for example to 'id bigint, name string', or to variant for any JSON"
        )
    return ddl if _TYPE.match(ddl) else f"struct<{ddl}>"
