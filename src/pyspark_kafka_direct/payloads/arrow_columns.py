"""The Arrow columns that are decoded from keys and values, and the checks of their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_formats import alternatives
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.payloads.payload_format import UnexpectedTypeError, payload_format
from pyspark_kafka_direct.payloads.type_names import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

ERROR_TYPE: Final = pa.struct(
    [*((name, pa.string()) for name in ("side", "stage", "class", "message")), ("schema_id", pa.int32())]
)


def option_type(payload: SidePayload) -> pa.DataType:
    """Return the type of a column in an API that has no ``.schema()``."""
    from pyspark_kafka_direct.payloads.ddl import arrow_type

    return arrow_type(payload_format(payload.format).spark_type(payload), payload.schema_option)


def decoded_columns(
    columns: Sequence[str],
    settings: PayloadSettings,
    time_zone: str = "UTC",
    find_type: Callable[[SidePayload], pa.DataType] = option_type,
) -> DecodedColumns | None:
    """Return what is decoded, or None if nothing. The schemas of a registry are part of the settings already.

    The columns are those of Kafka records, and perhaps ``_error``. ``time_zone`` is that of timestamps without an
    offset.
    """
    if ERROR_COLUMN in columns:
        check_error_column(pa.field(ERROR_COLUMN, ERROR_TYPE), columns, settings)
    elif all(settings.side(column) is None for column in columns):
        return None
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.records import arrow_schema

    record_columns = [column for column in columns if column != ERROR_COLUMN]
    schema = arrow_schema(record_columns)
    for index, column in enumerate(record_columns):
        payload = settings.side(column)
        if payload is not None:
            field = pa.field(column, find_type(payload))
            check_payload_type(payload, field, settings)
            schema = schema.set(index, field)
    if ERROR_COLUMN in columns:
        schema = schema.insert(columns.index(ERROR_COLUMN), pa.field(ERROR_COLUMN, ERROR_TYPE))
    return DecodedColumns(settings.for_tasks(), tuple(columns), schema, time_zone)


def check_payload_type(payload: SidePayload, field: pa.Field, settings: PayloadSettings) -> None:
    """Raise an error if a column that is decoded cannot have the type that a schema gives it."""
    data_type, format_code = field.type, payload_format(payload.format)
    if not field.nullable:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; remove NOT NULL.")
    has_corrupt_record = pa.types.is_struct(data_type) and data_type.get_field_index(settings.corrupt_record) >= 0
    if payload.may_be_malformed and has_corrupt_record:
        _check_mode(f"{field.name}.{settings.corrupt_record}", settings)
    try:
        format_code.check_type(payload, settings.corrupt_record, data_type)
    except UnexpectedTypeError:
        raise OptionError(
            f"schema: with {payload.side}Format={payload.format}, column {field.name!r} is {format_code.column_types}, "
            f"not {type_name(data_type)}."
        ) from None
    except OptionError:  # also a ValueError; it names the option or column already
        raise
    except (ValueError, TypeError) as error:
        raise type_error(payload, field.name, error) from None


def type_error(payload: SidePayload, column: str, reason: Exception) -> OptionError:
    """Return the error of a column that cannot be decoded to a type."""
    return OptionError(f"schema: column {column!r}: {reason}.{payload_format(payload.format).type_advice}")


def check_error_column(field: pa.Field, columns: Collection[str], settings: PayloadSettings) -> None:
    """Raise an error unless a schema gives the column ``_error`` its type, and has a column with errors to report."""
    if field.type != ERROR_TYPE or not field.nullable:
        raise OptionError(f"schema: column {field.name!r} must be {type_name(ERROR_TYPE)}.")
    sides = [side for column in columns if (side := settings.side(column)) is not None]
    if not any(side.may_be_malformed for side in sides):
        titles, names = alternatives(lambda row: row.decodes)
        raise OptionError(
            f"schema: column {ERROR_COLUMN} has the errors of keys and values that are decoded from {titles}, and "
            f"there is none; set valueFormat={names} and add the column value, or remove _error."
        )
    _check_mode(field.name, settings)


def _check_mode(name: str, settings: PayloadSettings) -> None:
    """Raise an error if a column for malformed records would always be null."""
    if settings.mode != "PERMISSIVE":
        raise OptionError(
            f"schema: {name!r} has malformed records, of which mode={settings.mode} returns none; set mode=PERMISSIVE, "
            f"or remove {name!r}."
        )
