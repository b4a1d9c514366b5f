"""Parser of the options that define how keys and values are decoded."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyspark_kafka_direct.config import option_messages
from pyspark_kafka_direct.config.config_option import ConfigSource
from pyspark_kafka_direct.config.function_options import check_function_options
from pyspark_kafka_direct.config.option_parser import environment_list, parse_config
from pyspark_kafka_direct.config.option_table import OPTION_TABLE, OptionTable
from pyspark_kafka_direct.config.payload_settings import NO_PROTOBUF, PayloadSettings, ProtobufSource
from pyspark_kafka_direct.config.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.config.registry_parser import (
    SCHEMA_FORMATS,
    check_framing,
    parse_registry_payloads,
    parse_schema_id,
    parse_subject,
)
from pyspark_kafka_direct.config.registry_settings import REGISTRY_PREFIX
from pyspark_kafka_direct.config.security_settings import PLAINTEXT
from pyspark_kafka_direct.config.spark_definitions import PAYLOAD_DECODERS_VARIABLE
from pyspark_kafka_direct.config.subject_names import SIDES, Side
from pyspark_kafka_direct.config.user_factories import check_allowed, is_factory
from pyspark_kafka_direct.config.value_types import Enum
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_kafka_direct.config.config_option import ConfigOption
    from pyspark_kafka_direct.config.option_parser import ParsedConfig
    from pyspark_kafka_direct.config.payload_settings import MalformedMode
    from pyspark_kafka_direct.config.registry_settings import FramingName
    from pyspark_kafka_direct.config.security_settings import SecuritySettings

PAYLOAD_OPTIONS: Final = (
    "keyFormat",
    "valueFormat",
    "keySchema",
    "valueSchema",
    "keyMessage",
    "valueMessage",
    "mode",
    "columnNameOfCorruptRecord",
)
_OPTIONS_OF_TYPED_FORMATS: Final = ("mode", "columnNameOfCorruptRecord")
_TYPED_FORMATS: Final = ("json", "avro", "protobuf")


REGISTRY_TABLE: Final = OptionTable((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS))
"""The options of the schemas of keys and values in a registry."""

_OPTIONS: Final = (*(OPTION_TABLE.by_name[name] for name in PAYLOAD_OPTIONS), *REGISTRY_TABLE.options)


class PayloadOptions(NamedTuple):
    """How keys and values are decoded, and the schemas of those that have fields."""

    settings: PayloadSettings = PayloadSettings()
    key_schema: str | None = None  # DDL, or an Avro or Protobuf schema
    value_schema: str | None = None


BINARY_PAYLOADS: Final = PayloadOptions()


def parse_payloads(
    parsed: ParsedConfig,
    warnings: list[str],
    security: SecuritySettings = PLAINTEXT,
    *,
    from_python: bool = False,
    topic: str | None = None,
) -> PayloadOptions:
    """Return how keys and values are decoded; the types that they are decoded to may also follow from a schema.

    If the options cannot come from SQL (``from_python``), who gives them may run any code, so also any decoder.
    ``security`` are the settings of the brokers, which a registry may use too. ``topic`` is the one that is read, if
    the options do not contain it.
    """
    formats: dict[Side, str] = {side: parsed.get_string(f"{side}Format") or "" for side in SIDES}
    schemas = {side: parsed.get_string(f"{side}Schema") for side in SIDES}
    for side, payload_format in formats.items():
        if is_factory(payload_format):
            if not from_python:
                allowed = environment_list(os.environ, PAYLOAD_DECODERS_VARIABLE)
                name = parsed.name_of(f"{side}Format")
                check_allowed(name, payload_format, allowed, PAYLOAD_DECODERS_VARIABLE, "the executors")
        elif f"{side}Schema" in parsed.given_names and payload_format not in _TYPED_FORMATS:
            raise OptionError(
                f"{parsed.name_of(f'{side}Schema')} is the schema of JSON, Avro or Protobuf, and {side}Format is "
                f"{payload_format}; set {side}Format=json, avro or protobuf"
            )
        if f"{side}Message" in parsed.given_names and payload_format != "protobuf":
            raise OptionError(
                f"{parsed.name_of(f'{side}Message')} is a message type of Protobuf, and {side}Format is "
                f"{payload_format}; set {side}Format=protobuf"
            )
    check_function_options(parsed, formats)
    if not any(payload_format in _TYPED_FORMATS for payload_format in formats.values()):
        warnings.extend(
            option_messages.ignored_warning(
                parsed.source, parsed.name_of(name), "nothing is decoded from JSON, Avro or Protobuf"
            )
            for name in _OPTIONS_OF_TYPED_FORMATS
            if name in parsed.given_names
        )
    json_framings = {side: _json_framing(parsed, side) for side in SIDES if formats[side] == "json"}
    for side, payload_format in formats.items():
        if payload_format == "protobuf":
            check_framing(parsed, side)
    registry = parse_registry_payloads(parsed, security, warnings, formats, topic=topic)
    schema_ids = {side: parse_schema_id(parsed, side) for side in SIDES if formats[side] in SCHEMA_FORMATS}
    protobuf = {
        side: ProtobufSource(schema or "", parsed.get_string(f"{side}Message") or None)
        for side, schema in schemas.items()
        if formats[side] == "protobuf"
    }
    avro_schemas = {side: schema for side, schema in schemas.items() if formats[side] == "avro"}
    settings = PayloadSettings(
        key_format=formats["key"],
        value_format=formats["value"],
        mode=_mode(parsed, formats.values()),
        corrupt_record=parsed.get_string("columnNameOfCorruptRecord") or "",
        key_avro_schema=avro_schemas.get("key"),
        value_avro_schema=avro_schemas.get("value"),
        single_object=tuple(side for side in avro_schemas if parsed.values.get(f"{side}Framing") == "single-object"),
        key_json_framing=json_framings.get("key", "none"),
        value_json_framing=json_framings.get("value", "none"),
        key_protobuf=protobuf.get("key", NO_PROTOBUF),
        value_protobuf=protobuf.get("value", NO_PROTOBUF),
        key_schema_id=schema_ids.get("key"),
        value_schema_id=schema_ids.get("value"),
        registry=registry,
    )
    return PayloadOptions(settings, schemas["key"], schemas["value"])


def parse_payload_arguments(
    arguments: Mapping[str, str | None],
    *,
    modes: Sequence[MalformedMode] | None = None,
    topic: str | None = None,
    security: SecuritySettings = PLAINTEXT,
) -> PayloadOptions:
    """Parse options that are the arguments of a method.

    ``modes`` are those that the method has. ``topic`` is the only one that is read, and ``security`` are the settings
    of its brokers.
    """
    options: Sequence[ConfigOption] = _OPTIONS
    if modes is not None:
        options = [replace(each, value_type=Enum(tuple(modes))) if each.name == "mode" else each for each in options]
    warnings: list[str] = []
    payloads = parse_payloads(_parse(arguments, options), warnings, security, from_python=True, topic=topic)
    for warning in warnings:
        option_messages.warn_once(warning)
    return payloads


def parse_payloads_alone(options: Mapping[str, str]) -> PayloadOptions:
    """Parse the payloads of a batch or a stream, whose other options are invalid."""
    if any(name.strip().lower().startswith(REGISTRY_PREFIX) for name in options):
        return BINARY_PAYLOADS  # the invalid option may be one of the registry, which has the schema
    names = {option.name.lower() for option in _OPTIONS}
    given = {name: value for name, value in options.items() if name.strip().lower() in names}
    return parse_payloads(_parse(given, _OPTIONS), [])


def _json_framing(parsed: ParsedConfig, side: Side) -> FramingName:
    """Return where the schema id of JSON is. With a registry, too, it is none by default: keys are often plain JSON."""
    check_framing(parsed, side)
    return parse_subject(parsed, side, has_registry=False).framing


def _mode(parsed: ParsedConfig, formats: Iterable[str]) -> MalformedMode:
    """Return the mode; its default is that of Spark's ``from_json``, ``from_avro`` or ``from_protobuf``."""
    fails = any(payload_format in SCHEMA_FORMATS for payload_format in formats)
    mode = parsed.get_string("mode") or ("FAILFAST" if fails else "PERMISSIVE")
    return cast("MalformedMode", mode)


def _parse(options: Mapping[str, str | None], table: Sequence[ConfigOption]) -> ParsedConfig:
    return parse_config(options, api="batch", source=ConfigSource.OPTION, table=OptionTable(table))
