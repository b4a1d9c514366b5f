"""Options of Spark's functions for JSON, Avro and Protobuf, which the formats of keys and values do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.config.hints import listed
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.option_parser import ParsedConfig
    from pyspark_kafka_direct.config.subject_names import Side

# Those that change values or decide what is malformed (Spark's JSONOptions, AvroOptions and ProtobufOptions), with the
# value that changes nothing here, if there is one.
_OPTIONS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "json": {
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
    "avro": {
        "avroSchema": None,
        "avroSchemaUrl": None,
        "datetimeRebaseMode": "corrected",
        "enableStableIdentifiersForUnionType": "false",
        "positionalFieldMatching": "false",
        "recursiveFieldMaxDepth": "-1",
        "stableIdentifierPrefixForUnionType": None,
    },
    "protobuf": {
        "convert.any.fields.to.json": "false",
        "emit.default.values": "false",
        "enums.as.ints": "false",
        "recursive.fields.max.depth": "-1",
        "retain.empty.message.types": "false",
        "unwrap.primitive.wrapper.types": "false",
        "upcast.unsigned.ints": "false",
    },
}
_FUNCTIONS: Final = {
    "json": "from_json and to_json",
    "avro": "from_avro and to_avro",
    "protobuf": "from_protobuf and to_protobuf",
}


def check_function_options(parsed: ParsedConfig, formats: Mapping[Side, str]) -> None:
    """Reject unknown options that would change keys or values if a function of Spark decoded or encoded them."""
    given = {name.lower().removeprefix("kafka."): option.value.lower() for name, option in parsed.unknown.items()}
    for side, payload_format in formats.items():
        options = _OPTIONS.get(payload_format, {})
        given_options = [name for name, usual in options.items() if given.get(name.lower(), usual) != usual]
        if given_options:
            functions = _FUNCTIONS[payload_format]
            raise OptionError(
                f"{side}Format={payload_format} does not have {listed(given_options)}, which {functions} of "
                f"Spark have; use these functions without {side}Format, or remove what does not apply"
            )
