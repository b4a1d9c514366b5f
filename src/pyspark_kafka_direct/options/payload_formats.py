"""The formats of keys and values, and which options each of them has. Their code is in ``payloads``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.options.hints import either

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.options.registry_settings import FramingName

_NO_OPTIONS: Final[Mapping[str, str | None]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRow:
    """The rules for the options of a format."""

    title: str  # for messages
    decodes: bool = True  # values may be malformed
    fails_by_default: bool = False  # the default of `mode` is FAILFAST, as in Spark's function; else PERMISSIVE
    has_schema: bool = True
    framings: tuple[FramingName, ...] = ()  # where a schema id can be
    encoded_by_schema: bool = False  # keySchema, valueSchema or a registry has it; values have no meaning without it
    registry_has_fields: bool = False  # in a read without keySchema or valueSchema, whose schema is none of the format
    has_message: bool = False
    has_defaults: bool = False  # of fields that are missing, which may be read as such
    has_charset: bool = False  # with one, values may be malformed
    derives_schema: bool = False  # in a write, from the type of the column
    written_by_type: bool = False  # the type of the column says how it is written, a schema only what may be null
    schema_kind: str = ""  # that a registry has
    read_schema_kind: str = ""  # that keySchema and valueSchema have in a read
    schema_text: str = ""  # what the option is set to
    spark_functions: str = ""
    # Options of these functions that change values or decide what is malformed (Spark's JSONOptions, AvroOptions and
    # ProtobufOptions), with the value that changes nothing here, if there is one.
    spark_options: Mapping[str, str | None] = field(default_factory=lambda: _NO_OPTIONS)


CHARSETS: Final = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16", "UTF-32")
"""Charsets of Spark's functions ``decode`` and ``encode``."""

FORMATS: Final[Mapping[str, FormatRow]] = {
    "binary": FormatRow(title="bytes", decodes=False, has_schema=False, written_by_type=True),
    "string": FormatRow(
        title="strings",
        decodes=False,
        fails_by_default=True,
        has_schema=False,
        has_charset=True,
        written_by_type=True,
    ),
    "json": FormatRow(
        title="JSON",
        framings=("confluent", "header", "none"),
        registry_has_fields=True,
        written_by_type=True,
        schema_kind="a JSON Schema",
        read_schema_kind="the wanted fields",
        schema_text="a JSON Schema",
        spark_functions="from_json and to_json",
        spark_options={
            "allowBackslashEscapingAnyCharacter": "false",
            "allowComments": "false",
            "allowNonNumericNumbers": "true",
            "allowNumericLeadingZeros": "false",
            "allowSingleQuotes": "true",
            "allowUnquotedControlChars": "false",
            "allowUnquotedFieldNames": "false",
            "charset": "utf-8",
            "dateFormat": None,
            "enableDateTimeParsingFallback": None,
            "encoding": "utf-8",
            "ignoreNullFields": "true",
            "locale": "en-us",
            "timestampFormat": None,
            "timestampNTZFormat": None,
            "timeZone": None,
        },
    ),
    "avro": FormatRow(
        title="Avro",
        fails_by_default=True,
        framings=("confluent", "header", "single-object", "none"),
        encoded_by_schema=True,
        derives_schema=True,
        schema_kind="an Avro schema",
        read_schema_kind="an Avro schema",
        schema_text="an Avro schema, which is JSON",
        spark_functions="from_avro and to_avro",
        spark_options={
            "avroSchema": None,
            "avroSchemaUrl": None,
            "datetimeRebaseMode": "corrected",
            "enableStableIdentifiersForUnionType": "false",
            "positionalFieldMatching": "false",
            "recursiveFieldMaxDepth": "-1",
            "stableIdentifierPrefixForUnionType": None,
        },
    ),
    "protobuf": FormatRow(
        title="Protobuf",
        fails_by_default=True,
        framings=("confluent", "none"),
        encoded_by_schema=True,
        has_message=True,
        has_defaults=True,
        schema_kind="a Protobuf schema",
        read_schema_kind="a Protobuf schema",
        schema_text="the text of a .proto file",
        spark_functions="from_protobuf and to_protobuf",
        spark_options={
            "convert.any.fields.to.json": "false",
            "enums.as.ints": "false",
            "recursive.fields.max.depth": "-1",
            "retain.empty.message.types": "false",
            "unwrap.primitive.wrapper.types": "false",
            "upcast.unsigned.ints": "false",
        },
    ),
}

_USER_FORMAT: Final = FormatRow(title="values of the user's decoder", decodes=False)


def format_row(payload_format: str) -> FormatRow:
    """Return the row of a format; all decoders of users have the same one."""
    return FORMATS.get(payload_format, _USER_FORMAT)


def alternatives(is_right: Callable[[FormatRow], object]) -> tuple[str, str]:
    """Return the titles and the names of some formats, such as ``Avro or Protobuf`` and ``avro or protobuf``."""
    rows = {name: row for name, row in FORMATS.items() if is_right(row)}
    return either([row.title for row in rows.values()]), either([*rows])


def needed_format(side: str, is_right: Callable[[FormatRow], object]) -> str:
    """Return which formats an option needs, and how to set one of them."""
    titles, names = alternatives(is_right)
    return f"{titles}; set {side}Format={names}"
