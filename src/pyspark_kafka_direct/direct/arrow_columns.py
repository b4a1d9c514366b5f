"""The columns of the Arrow batches of an RDD, and how keys and values are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.options.security_settings import PLAINTEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.security_settings import SecuritySettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

# The columns of the data source without includeHeaders.
_DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


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
    names = _DEFAULT_COLUMNS if columns is None else _checked_names(columns)
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


def _checked_names(columns: Sequence[str]) -> tuple[str, ...]:
    from pyspark_kafka_direct.records.columns import check_columns

    if isinstance(columns, str):
        raise OptionError(f"arrow(columns=...) takes a list of names: [{columns!r}]")
    names = tuple(columns)
    try:
        # A Kafka record has no column for errors: the payload decoder adds it.
        check_columns([name for name in names if name != ERROR_COLUMN])
    except ValueError as error:
        raise OptionError(f"arrow(columns=...): {error}") from None
    if names.count(ERROR_COLUMN) > 1:
        raise OptionError(f"arrow(columns=...): a column is named twice: {', '.join(names)}")
    return names
