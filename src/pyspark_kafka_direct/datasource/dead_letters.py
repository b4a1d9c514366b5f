"""Dead letters: malformed records as rows for the sink, with their original bytes."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StringType, StructType, VariantType

from pyspark_kafka_direct.errors import MalformedPayloadError, OptionError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.payload_settings import DECODED_COMMENT, DEFAULT_CORRUPT_RECORD, ERROR_COLUMN
from pyspark_kafka_direct.payloads.reader_schemas import SCHEMA_COMMENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ErrorHeaders: TypeAlias = Literal["connect", "streams", "none"]

_HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
_PAYLOADS: Final = ("key", "value")
_COLUMNS: Final = (*_PAYLOADS, "headers", "timestamp")
_ORIGIN: Final = ("topic", "partition", "offset")
_ERROR_MODULE: Final = f"{MalformedPayloadError.__module__}."

_STAGE_SUFFIX: Final = "_CONVERTER"  # of Connect's stages KEY_CONVERTER and VALUE_CONVERTER

# Kafka Connect: DeadLetterQueueReporter. Kafka Streams (KIP-1034): ExceptionHandlerUtils.
_NAMES: Final = {
    "connect": {
        "topic": "__connect.errors.topic",
        "partition": "__connect.errors.partition",
        "offset": "__connect.errors.offset",
        "stage": "__connect.errors.stage",
        "class": "__connect.errors.exception.class.name",
        "message": "__connect.errors.exception.message",
    },
    "streams": {
        "class": "__streams.errors.exception",
        "message": "__streams.errors.message",
        "topic": "__streams.errors.topic",
        "partition": "__streams.errors.partition",
        "offset": "__streams.errors.offset",
    },
    "none": {},
}


def dead_letters(
    frame: DataFrame,
    *,
    topic: str,
    headers: ErrorHeaders = "connect",
    corrupt_record: str = DEFAULT_CORRUPT_RECORD,
) -> DataFrame:
    """Return the malformed records of a frame as rows for the sink.

    A row has the original key, value, headers and timestamp of its record, and error headers behind the original ones.
    docs/formats.md shows how to write them in one transaction with the other rows.

    Args:
        frame: Records that were read with ``valueFormat`` (or ``keyFormat``) ``json``, ``avro`` or ``protobuf``, with
            ``mode=PERMISSIVE``, ``includeHeaders=true``, and a field ``_corrupt_record binary`` in each struct. Columns
            that are not decoded are binary or string. If there is a column ``_error``, error headers have its reason.
        topic: The topic of the dead letters. The query fails at a malformed record of this topic.
        headers: Names of the error headers: those of Kafka Connect, those of Kafka Streams (KIP-1034), or none.
        corrupt_record: The name of the field, as in ``columnNameOfCorruptRecord``.

    Returns:
        A frame with the columns topic, key, value, headers and timestamp.

    Raises:
        OptionError: A column is missing or has another type, or an argument is invalid.
    """
    names = _NAMES.get(headers)
    if names is None:
        raise OptionError(f"dead_letters(): headers is one of {', '.join(_NAMES)}, not {headers!r}")
    columns = _find_columns(frame, (*_COLUMNS, *(_ORIGIN if names else ())))
    originals = {side: _original_bytes(frame.schema, columns[side], side, corrupt_record) for side in _PAYLOADS}
    struct_sides = [side for side in _PAYLOADS if isinstance(frame.schema[columns[side]].dataType, StructType)]
    if not struct_sides:
        raise OptionError(
            "dead_letters(): neither key nor value is a struct, so no record is malformed; read them with "
            "valueFormat=json, avro or protobuf, or keyFormat"
        )
    error = _error_values(frame.schema, columns, struct_sides)
    # A record without a timestamp has -1, which the sink rejects.
    timestamp = sf.col(columns["timestamp"])
    return frame.where(_is_malformed(columns, [originals[side] for side in struct_sides])).select(
        _fail_without_bytes(_fail_if_source_topic(frame, topic), columns, struct_sides).alias("topic"),
        *(originals[side].cast("binary").alias(side) for side in _PAYLOADS),
        _with_error_headers(sf.col(columns["headers"]), error, names).alias("headers"),
        sf.when(sf.unix_micros(timestamp) >= 0, timestamp).alias("timestamp"),
    )


def _fail_if_source_topic(frame: DataFrame, topic: str) -> Column:
    """Return the topic; a task fails if it is that of the record, because its dead letter would be read again."""
    name = next((name for name in frame.columns if name.lower() == "topic"), None)
    if name is None:
        return sf.lit(topic)
    message = (
        f"dead_letters(): a malformed record is from the topic {topic}, which is also the topic of dead letters, so a "
        "query would read and write it again and again; choose another topic, or do not read this one"
    )
    return sf.when(sf.col(name) == topic, sf.raise_error(sf.lit(message))).otherwise(sf.lit(topic))


def _fail_without_bytes(topic: Column, columns: dict[str, str], struct_sides: list[str]) -> Column:
    """Return the topic; a task fails if the side that is malformed is no struct, so its original bytes are lost."""
    if ERROR_COLUMN not in columns:  # then only records with original bytes count as malformed
        return topic
    malformed_side = sf.col(columns[ERROR_COLUMN]).getField("side")
    for side in _PAYLOADS:
        if side not in struct_sides:
            message = sf.lit(f"dead_letters(): the {side} is decoded, so its original bytes are lost; {_advice(side)}")
            topic = sf.when(malformed_side == side, sf.raise_error(message)).otherwise(topic)
    return topic


def _find_columns(frame: DataFrame, names: tuple[str, ...]) -> dict[str, str]:
    """Return the frame's spelling of each name, and of the error column if it has one; case does not matter."""
    found = {name.lower(): name for name in frame.columns}
    missing = [name for name in names if name not in found]
    if missing:
        hint = "; set includeHeaders=true" if "headers" in missing else ""
        raise OptionError(
            f"dead_letters(): the frame has no column {listed(missing)}, which a dead letter needs; keep all columns "
            f"of the source{hint}"
        )
    return {name: found[name] for name in (*names, ERROR_COLUMN) if name in found}


def _is_malformed(columns: dict[str, str], originals: list[Column]) -> Column:
    """Return whether a record is malformed: the field for original bytes is null in the others."""
    if ERROR_COLUMN in columns:
        return sf.col(columns[ERROR_COLUMN]).isNotNull()
    return reduce(or_, (original.isNotNull() for original in originals))


def _original_bytes(schema: StructType, name: str, side: str, corrupt_record: str) -> Column:
    """Return the column of the original bytes; raise OptionError if the frame does not have them."""
    data_type = schema[name].dataType
    # The source marks a column that it has decoded: a string may be one.
    comment = str(schema[name].metadata.get("comment", ""))
    is_decoded = comment == DECODED_COMMENT or SCHEMA_COMMENT.fullmatch(comment) is not None
    if isinstance(data_type, BinaryType | StringType) and not is_decoded:
        return sf.col(name)
    if isinstance(data_type, StructType) and corrupt_record in data_type.fieldNames():
        field_type = data_type[corrupt_record].dataType
        if isinstance(field_type, BinaryType):
            return sf.col(name).getField(corrupt_record)
    if isinstance(data_type, VariantType):
        raise OptionError(
            f"dead_letters(): the column {name} is variant, which does not have the original bytes of malformed "
            f"records; read a struct with the field '{corrupt_record} binary', or read {side} as binary and use "
            "try_parse_json"
        )
    if not isinstance(data_type, StructType):
        raise OptionError(
            f"dead_letters(): the column {name} is {data_type.simpleString()}, which does not have the original bytes "
            f"of malformed records; {_advice(side)}"
        )
    raise OptionError(
        f"dead_letters(): the column {name} is {data_type.simpleString()}, which does not have the original bytes of "
        f"malformed records; add the field '{corrupt_record} binary' to {side}Schema, or to the struct in .schema()"
    )


def _advice(side: str) -> str:
    return f"read {side} as binary, and decode it in the query"


def _error_values(schema: StructType, columns: dict[str, str], struct_sides: list[str]) -> dict[str, Column]:
    """Return what error headers contain, by its key in ``_NAMES``."""
    error: dict[str, Column] = {name: sf.col(columns[name]) for name in _ORIGIN if name in columns}
    error["class"] = sf.lit(_ERROR_MODULE + MalformedPayloadError.__name__)
    if ERROR_COLUMN in columns:
        column = sf.col(columns[ERROR_COLUMN])
        error_type = schema[columns[ERROR_COLUMN]].dataType
        # The frame may have fewer fields than the source.
        if isinstance(error_type, StructType) and "class" in error_type.names:
            error["class"] = sf.concat(sf.lit(_ERROR_MODULE), column.getField("class"))
        side = column.getField("side")
        error["message"] = sf.format_string("The %s cannot be decoded: %s.", side, column.getField("message"))
        error["stage"] = sf.concat(sf.upper(side), sf.lit(_STAGE_SUFFIX))
        return error
    error["message"] = sf.lit(f"The {' or the '.join(struct_sides)} cannot be decoded.")
    if len(struct_sides) == 1:  # otherwise it is not known which one is malformed
        error["stage"] = sf.lit(struct_sides[0].upper() + _STAGE_SUFFIX)
    return error


def _with_error_headers(headers: Column, error: dict[str, Column], names: dict[str, str]) -> Column:
    original = sf.coalesce(headers, sf.array().cast(_HEADERS_TYPE))
    added: list[Any] = [
        sf.struct(sf.lit(header).alias("key"), error[part].cast("string").cast("binary").alias("value"))
        for part, header in names.items()
        if part in error
    ]
    return sf.concat(original, sf.array(*added)) if added else headers
