"""Options of Spark's functions for JSON, Avro and Protobuf, which the formats of keys and values do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.option_parser import ParsedConfig
    from pyspark_kafka_direct.config.subject_names import Side

# Those that change values or decide what is malformed (Spark's JSONOptions, AvroOptions and ProtobufOptions).
_OPTIONS: Final = {
    "json": (
        "allowBackslashEscapingAnyCharacter",
        "allowComments",
        "allowNonNumericNumbers",
        "allowNumericLeadingZeros",
        "allowSingleQuotes",
        "allowUnquotedControlChars",
        "allowUnquotedFieldNames",
        "charset",
        "dateFormat",
        "enableDateTimeParsingFallback",
        "encoding",
        "ignoreNullFields",
        "locale",
        "prefersDecimal",
        "primitivesAsString",
        "timestampFormat",
        "timestampNTZFormat",
        "timeZone",
    ),
    "avro": (
        "avroSchema",
        "avroSchemaUrl",
        "datetimeRebaseMode",
        "enableStableIdentifiersForUnionType",
        "positionalFieldMatching",
        "recursiveFieldMaxDepth",
        "stableIdentifierPrefixForUnionType",
    ),
    "protobuf": (
        "convert.any.fields.to.json",
        "emit.default.values",
        "enums.as.ints",
        "recursive.fields.max.depth",
        "retain.empty.message.types",
        "unwrap.primitive.wrapper.types",
        "upcast.unsigned.ints",
    ),
}
_FUNCTIONS: Final = {
    "json": "from_json and to_json",
    "avro": "from_avro and to_avro",
    "protobuf": "from_protobuf and to_protobuf",
}


def check_function_options(parsed: ParsedConfig, formats: Mapping[Side, str]) -> None:
    """Reject unknown options that would change keys or values if a function of Spark decoded or encoded them."""
    for side, payload_format in formats.items():
        given = {name.lower().removeprefix("kafka.") for name in parsed.unknown}
        given_options = [name for name in _OPTIONS.get(payload_format, ()) if name.lower() in given]
        if given_options:
            functions = _FUNCTIONS[payload_format]
            raise OptionError(
                f"{side}Format={payload_format} does not have {listed(given_options)}, which {functions} of "
                f"Spark have; use these functions without {side}Format, or remove what does not apply"
            )
