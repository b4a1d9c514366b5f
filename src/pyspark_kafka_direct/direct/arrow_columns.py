"""The columns of the Arrow batches of an RDD, and how keys and values are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.options.security_settings import PLAINTEXT
from pyspark_kafka_direct.payloads.record_columns import checked_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.security_settings import SecuritySettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns


class ArrowColumns(NamedTuple):
    """Pickled into tasks, and into the checkpoint of a direct stream."""

    names: tuple[str, ...]
    decoded: DecodedColumns | None = None  # None: keys and values are bytes


def arrow_columns(
    columns: Sequence[str] | None,
    payloads: Mapping[str, str | None],
    options: Mapping[str, str] | None = None,
    *,
    topic: str | None = None,
    security: SecuritySettings = PLAINTEXT,
) -> ArrowColumns:
    """Validate the arguments of ``KafkaRDD.arrow``, and fetch the schemas to read with from a registry.

    ``payloads`` are the arguments with names of the data source's options. ``topic`` is that of all ranges, or ``None``
    if they have several: a registry finds a schema by the topic. ``security`` are the settings of the brokers.
    """
    names = checked_columns(columns, "arrow(columns=...)")
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"arrow(options=...) takes a dict of names and values, got {type(options).__name__}")
    if ERROR_COLUMN not in names and not any(payloads.values()) and not options:
        return ArrowColumns(names)  # nothing is decoded, so the slow imports below are not needed
    from pyspark_kafka_direct.options.config_option import ConfigSource
    from pyspark_kafka_direct.options.payload_parser import EMIT_DEFAULTS, REGISTRY_TABLE, parse_payload_arguments
    from pyspark_kafka_direct.payloads.spark.payload_schema import decoded_columns
    from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas

    for name in options or {}:
        is_of_registry = REGISTRY_TABLE.find(ConfigSource.OPTION, str(name)).option is not None
        if not is_of_registry and str(name).lower() != EMIT_DEFAULTS:
            raise OptionError(
                f"arrow(options=...): {name} is neither an option of a schema registry nor {EMIT_DEFAULTS}"
            )
    parsed = parse_payload_arguments({**payloads, **(options or {})}, topic=topic, security=security)
    return ArrowColumns(names, decoded_columns(names, with_reader_schemas(parsed)))
