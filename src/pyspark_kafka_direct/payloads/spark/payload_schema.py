"""The columns of a query that decodes keys or values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_formats import alternatives, format_row
from pyspark_kafka_direct.options.payload_settings import DECODED_COMMENT, ERROR_COLUMN, WANTED_FIELDS
from pyspark_kafka_direct.payloads.payload_format import UnexpectedTypeError, payload_format
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.session_time_zone import session_time_zone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

ERROR_TYPE: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("side", "stage", "class", "message")),
        StructField("schema_id", IntegerType()),
    ]
)


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
    """Return what tasks decode, or None if nothing. The driver's JVM parses the schemas of keys and values.

    The columns are those of Kafka records, and perhaps ``_error``.
    """
    error_field = StructField(ERROR_COLUMN, ERROR_TYPE)
    if ERROR_COLUMN in columns:
        check_error_column(error_field, columns, settings)
    elif all(settings.side(column) is None for column in columns):
        return None
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.records import arrow_schema

    record_columns = [column for column in columns if column != ERROR_COLUMN]
    schema = arrow_schema(record_columns)
    for index, column in enumerate(record_columns):
        payload = settings.side(column)
        if payload is not None:
            field = StructField(column, _parsed_type(payload))
            check_payload_type(payload, field, settings)
            schema = schema.set(index, _arrow_field(field))
    if ERROR_COLUMN in columns:
        schema = schema.insert(columns.index(ERROR_COLUMN), _arrow_field(error_field))
    return DecodedColumns(settings.for_tasks(), tuple(columns), schema, session_time_zone())


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
    from pyspark.errors import PySparkException

    kind, format_code = field.dataType, payload_format(payload.format)
    if not field.nullable:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; remove NOT NULL.")
    if payload.may_be_malformed and isinstance(kind, StructType) and settings.corrupt_record in kind.names:
        _check_mode(f"{field.name}.{settings.corrupt_record}", settings)
    try:
        format_code.check_type(payload, settings.corrupt_record, _arrow_field(field).type)
    except UnexpectedTypeError:
        raise OptionError(
            f"schema: with {payload.side}Format={payload.format}, column {field.name!r} is {format_code.column_types}, "
            f"not {kind.simpleString()}."
        ) from None
    except OptionError:  # also a ValueError; it names the option or column already
        raise
    except (ValueError, TypeError, NotImplementedError, PySparkException) as error:  # also types that are none in Arrow
        raise OptionError(f"schema: column {field.name!r}: {error}.{format_code.type_advice}") from None


def check_error_column(field: StructField, columns: Collection[str], settings: PayloadSettings) -> None:
    """Raise an error unless a schema gives the column ``_error`` its type, and has a column with errors to report."""
    if field.dataType != ERROR_TYPE or not field.nullable:
        raise OptionError(f"schema: column {field.name!r} must be {ERROR_TYPE.simpleString()}.")
    sides = [side for column in columns if (side := settings.side(column)) is not None]
    if not any(side.may_be_malformed for side in sides):
        titles, names = alternatives(lambda row: row.decodes)
        raise OptionError(
            f"schema: column {ERROR_COLUMN} has the errors of keys and values that are decoded from {titles}, and "
            f"there is none; set valueFormat={names} and add the column value, or remove _error."
        )
    _check_mode(field.name, settings)


def _arrow_field(field: StructField) -> pa.Field:
    return arrow_schema_in_utc(StructType([field])).field(0)


def _check_mode(name: str, settings: PayloadSettings) -> None:
    """Raise an error if a column for malformed records would always be null."""
    if settings.mode != "PERMISSIVE":
        raise OptionError(
            f"schema: {name!r} has malformed records, of which mode={settings.mode} returns none; set mode=PERMISSIVE, "
            f"or remove {name!r}."
        )


def _parsed_type(payload: SidePayload) -> DataType:
    """Return the type of a column in an API that has no ``.schema()``."""
    return parse_ddl(payload_format(payload.format).spark_type(payload), payload.schema_option)


def _comment(payload: SidePayload, payload_type: str) -> str:
    """Return the comment of a column: the id of its schema if it is from a registry, or that it is decoded."""
    if not payload.source and not format_row(payload.format).uses_registry and payload.charset is None:
        return ""
    if payload.subject is None or not payload.source:
        is_like_bytes = payload_type in ("string", "binary")  # other types show that the column is decoded
        return f" COMMENT '{DECODED_COMMENT}'" if is_like_bytes else ""
    source = payload.source.replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{source}'"
