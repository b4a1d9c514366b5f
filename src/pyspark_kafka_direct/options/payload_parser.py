"""Parser of the options that define how keys and values are decoded."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, OptionTable, environment_list, parse_config
from pyspark_kafka_direct.options.payload_formats import alternatives, format_row
from pyspark_kafka_direct.options.payload_settings import SIDES, PayloadSettings, Side
from pyspark_kafka_direct.options.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.options.registry_parser import (
    parse_read_registry,
    parse_side,
    with_schema_id,
    with_subject,
)
from pyspark_kafka_direct.options.security_settings import PLAINTEXT
from pyspark_kafka_direct.options.spark_definitions import PAYLOAD_DECODERS_VARIABLE
from pyspark_kafka_direct.options.unused_options import check_function_options
from pyspark_kafka_direct.options.user_factories import check_allowed, is_factory
from pyspark_kafka_direct.options.value_types import Enum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.options.config_option import ConfigOption
    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.payload_formats import FormatRow
    from pyspark_kafka_direct.options.payload_settings import MalformedMode, SidePayload
    from pyspark_kafka_direct.options.registry_settings import EvolutionMode
    from pyspark_kafka_direct.options.security_settings import SecuritySettings

EMIT_DEFAULTS: Final = "emit.default.values"

PAYLOAD_OPTIONS: Final = (
    "keyFormat",
    "valueFormat",
    "keySchema",
    "valueSchema",
    "keyMessage",
    "valueMessage",
    "keyCharset",
    "valueCharset",
    "mode",
    "columnNameOfCorruptRecord",
    EMIT_DEFAULTS,
)
_OPTIONS_OF_TYPED_FORMATS: Final = ("mode", "columnNameOfCorruptRecord")

_SIDE_OPTIONS: Final[Mapping[str, tuple[str, Callable[[FormatRow], bool]]]] = {
    "Schema": ("the schema", lambda row: row.has_schema),
    "Message": ("a message type", lambda row: row.has_message),
    "Charset": ("the charset", lambda row: row.has_charset),
}

REGISTRY_TABLE: Final = OptionTable((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS))
"""The options of the schemas of keys and values in a registry."""

_OPTIONS: Final = (*(OPTION_TABLE.by_name[name] for name in PAYLOAD_OPTIONS), *REGISTRY_TABLE.options)


def parse_payloads(
    parsed: ParsedConfig,
    warnings: list[str],
    security: SecuritySettings = PLAINTEXT,
    *,
    from_python: bool = False,
    topic: str | None = None,
) -> PayloadSettings:
    """Return how keys and values are decoded; the types that they are decoded to may also follow from a schema.

    If the options cannot come from SQL (``from_python``), who gives them may run any code, so also any decoder.
    ``security`` are the settings of the brokers, which a registry may use too. ``topic`` is the only one that is read,
    or None if there are several.
    """
    formats: dict[Side, str] = {side: parsed.get_string(f"{side}Format") or "" for side in SIDES}
    for side, payload_format in formats.items():
        _check_format(parsed, side, payload_format, from_python=from_python)
    check_function_options(parsed, formats)
    key, value = (parse_side(parsed, side) for side in SIDES)
    if not key.may_be_malformed and not value.may_be_malformed:
        warnings.extend(
            option_messages.ignored_warning(
                parsed.source, parsed.name_of(name), "nothing is decoded from JSON, Avro or Protobuf"
            )
            for name in _OPTIONS_OF_TYPED_FORMATS
            if name in parsed.given_names
        )
    emits_defaults = parsed.get_boolean(EMIT_DEFAULTS)
    if emits_defaults and not any(format_row(each).has_defaults for each in formats.values()):
        warnings.append(
            option_messages.ignored_warning(
                parsed.source, parsed.name_of(EMIT_DEFAULTS), "nothing is decoded from Protobuf"
            )
        )
    registry = parse_read_registry(parsed, security, warnings, formats)
    key, value = (with_schema_id(each, parsed) for each in (key, value))
    if registry is not None:
        key, value = (with_subject(each, topic) for each in (key, value))
    return PayloadSettings(
        key,
        value,
        mode=_mode(parsed, (key, value)),
        corrupt_record=parsed.get_string("columnNameOfCorruptRecord") or "",
        registry=registry,
        evolution=cast("EvolutionMode", parsed.get_string("schemaEvolutionMode")),
        emits_defaults=emits_defaults,
    )


def parse_payload_arguments(
    arguments: Mapping[str, str | None],
    *,
    modes: Sequence[MalformedMode] | None = None,
    topic: str | None = None,
    security: SecuritySettings = PLAINTEXT,
) -> PayloadSettings:
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


def _check_format(parsed: ParsedConfig, side: Side, payload_format: str, *, from_python: bool) -> None:
    """Raise an error if a format may not be used, or does not have an option that is given."""
    if is_factory(payload_format) and not from_python:
        allowed = environment_list(os.environ, PAYLOAD_DECODERS_VARIABLE)
        name = parsed.name_of(f"{side}Format")
        check_allowed(name, payload_format, allowed, variable=PAYLOAD_DECODERS_VARIABLE, where="the executors")
    for option, (what, has_option) in _SIDE_OPTIONS.items():
        if f"{side}{option}" in parsed.given_names and not has_option(format_row(payload_format)):
            titles, names = alternatives(has_option)
            raise OptionError(
                f"{parsed.name_of(f'{side}{option}')} is {what} of {titles}, and {side}Format is {payload_format}; "
                f"set {side}Format={names}"
            )


def _mode(parsed: ParsedConfig, sides: Iterable[SidePayload]) -> MalformedMode:
    """Return the mode; its default is that of Spark's function for the format."""
    fails = any(each.may_be_malformed and format_row(each.format).fails_by_default for each in sides)
    return cast("MalformedMode", parsed.get_string("mode") or ("FAILFAST" if fails else "PERMISSIVE"))


def _parse(options: Mapping[str, str | None], table: Sequence[ConfigOption]) -> ParsedConfig:
    return parse_config(options, api="batch", source=ConfigSource.OPTION, table=OptionTable(table))
