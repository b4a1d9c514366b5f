"""The columns of a query that decodes keys or values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_formats import format_row
from pyspark_kafka_direct.options.payload_settings import DECODED_COMMENT, WANTED_FIELDS
from pyspark_kafka_direct.payloads import arrow_columns
from pyspark_kafka_direct.payloads.payload_format import payload_format
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.session_time_zone import session_time_zone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns


def typed_schema(columns: StructType, settings: PayloadSettings) -> str:
    """Return the DDL of the columns of Kafka records. Spark parses it, because this process has no JVM."""
    types = {"timestamp": "timestamp_ltz"}  # regardless of spark.sql.timestampType
    for name in columns.names:
        payload = settings.side(name)
        if payload is not None:
            payload_type = payload_format(payload.format).spark_type(payload, WANTED_FIELDS)
            types[name] = payload_type + _comment(payload, payload_type)
    return ", ".join(f"`{field.name}` {types.get(field.name) or field.dataType.simpleString()}" for field in columns)


def decoded_columns(columns: Sequence[str], settings: PayloadSettings) -> DecodedColumns | None:
    """Return what tasks decode in the time zone of the session, or None if nothing."""
    found = arrow_columns.decoded_columns(columns, settings, find_type=_option_type)
    return None if found is None else found._replace(time_zone=session_time_zone())


def parse_ddl(ddl: str, option: str) -> DataType:
    """Return a type that the JVM parses; an OptionError names the option or argument."""
    from pyspark.errors import PySparkException

    from pyspark_kafka_direct.payloads.ddl import checked_type  # planners need it only for columns without .schema()

    try:
        return DataType.fromDDL(checked_type(ddl, option))
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(f"{option} must be DDL such as 'id bigint, name string', got {ddl!r}: {reason}") from None


def check_payload_type(payload: SidePayload, field: StructField, settings: PayloadSettings) -> None:
    """Raise an error if a column that is decoded cannot have the type that a schema gives it."""
    arrow_columns.check_payload_type(payload, _arrow_field(payload, field), settings)


def check_error_column(field: StructField, columns: Collection[str], settings: PayloadSettings) -> None:
    """Raise an error unless a schema gives the column ``_error`` its type, and has a column with errors to report."""
    try:
        found = _converted(field)
    except (ValueError, TypeError, NotImplementedError):
        found = pa.field(field.name, pa.null())  # also not the type of the column
    arrow_columns.check_error_column(found, columns, settings)


def _option_type(payload: SidePayload) -> pa.DataType:
    """Return the type of a column in an API that has no ``.schema()``, by the settings of the session."""
    spark_type = parse_ddl(payload_format(payload.format).spark_type(payload), payload.schema_option)
    return _arrow_field(payload, StructField(payload.side, spark_type)).type


def _arrow_field(payload: SidePayload, field: StructField) -> pa.Field:
    try:
        return _converted(field)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise arrow_columns.type_error(payload, field.name, error) from None


def _converted(field: StructField) -> pa.Field:
    """Return the Arrow field, or raise an error if there is no Arrow type."""
    from pyspark.errors import PySparkException

    try:
        return arrow_schema_in_utc(StructType([field])).field(0)
    except PySparkException as error:
        raise NotImplementedError(str(error)) from None


def _comment(payload: SidePayload, payload_type: str) -> str:
    """Return the comment of a column: the id of its schema if it is from a registry, or that it is decoded."""
    if not payload.source and not format_row(payload.format).encoded_by_schema and payload.charset is None:
        return ""
    if payload.subject is None or not payload.source:
        is_like_bytes = payload_type in ("string", "binary")  # other types show that the column is decoded
        return f" COMMENT '{DECODED_COMMENT}'" if is_like_bytes else ""
    source = payload.source.replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{source}'"
