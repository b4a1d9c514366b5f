"""Parser of the options that define how keys and values are decoded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyspark_kafka_direct.config import option_messages
from pyspark_kafka_direct.config.config_option import ConfigSource
from pyspark_kafka_direct.config.option_parser import environment_list, parse_config
from pyspark_kafka_direct.config.option_table import OPTION_TABLE, OptionTable
from pyspark_kafka_direct.config.payload_settings import PayloadSettings
from pyspark_kafka_direct.config.spark_definitions import PAYLOAD_DECODERS_VARIABLE
from pyspark_kafka_direct.config.user_factories import check_allowed, is_factory
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.option_parser import ParsedConfig
    from pyspark_kafka_direct.config.payload_settings import MalformedMode

_OPTIONS: Final = ("keyFormat", "valueFormat", "keySchema", "valueSchema", "mode", "columnNameOfCorruptRecord")
_JSON_OPTIONS: Final = ("mode", "columnNameOfCorruptRecord")


class PayloadOptions(NamedTuple):
    """How keys and values are decoded, and the fields of those that are JSON."""

    settings: PayloadSettings = PayloadSettings()
    key_schema: str | None = None  # DDL
    value_schema: str | None = None


BINARY_PAYLOADS: Final = PayloadOptions()


def parse_payloads(parsed: ParsedConfig, warnings: list[str], *, from_python: bool = False) -> PayloadOptions:
    """Return how keys and values are decoded; the types that they are decoded to may also follow from a schema.

    If the options cannot come from SQL (``from_python``), who gives them may run any code, so also any decoder.
    """
    settings = PayloadSettings(
        key_format=parsed.get_string("keyFormat") or "",
        value_format=parsed.get_string("valueFormat") or "",
        mode=cast("MalformedMode", parsed.get_string("mode")),
        corrupt_record=parsed.get_string("columnNameOfCorruptRecord") or "",
    )
    for side, payload_format in (("key", settings.key_format), ("value", settings.value_format)):
        if is_factory(payload_format):
            if not from_python:
                allowed = environment_list(os.environ, PAYLOAD_DECODERS_VARIABLE)
                name = parsed.name_of(f"{side}Format")
                check_allowed(name, payload_format, allowed, PAYLOAD_DECODERS_VARIABLE, "the executors")
        elif f"{side}Schema" in parsed.given_names and payload_format != "json":
            raise OptionError(
                f"{parsed.name_of(f'{side}Schema')} is the schema of JSON, and {side}Format is {payload_format}; set "
                f"{side}Format=json"
            )
    if "json" not in (settings.key_format, settings.value_format):
        warnings.extend(
            option_messages.ignored_warning(parsed.source, parsed.name_of(name), "nothing is decoded from JSON")
            for name in _JSON_OPTIONS
            if name in parsed.given_names
        )
    return PayloadOptions(settings, parsed.get_string("keySchema"), parsed.get_string("valueSchema"))


def parse_payload_arguments(arguments: Mapping[str, str | None]) -> PayloadOptions:
    """Parse options that are the arguments of a method."""
    table = OptionTable(OPTION_TABLE.by_name[name] for name in _OPTIONS)
    parsed = parse_config(arguments, api="batch", source=ConfigSource.OPTION, table=table)
    warnings: list[str] = []
    payloads = parse_payloads(parsed, warnings, from_python=True)
    for warning in warnings:
        option_messages.warn_once(warning)
    return payloads
