"""Parser of ``kafkaParams`` and of the parameters of a log: client settings and some data source options.

Like Spark's ``KafkaUtils.fixKafkaParams``, it changes some settings for executors, and logs each change once:

| parameter | driver | executors |
|---|---|---|
| ``enable.auto.commit`` | false | false |
| ``auto.offset.reset`` | start of partitions without an offset; ``latest`` by default | none |
| ``group.id`` | group of committed offsets | none |
| ``receive.buffer.bytes`` | as given | at least 65536, if given (KAFKA-3135) |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.client_parser import parse_connection, parse_producer
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.offset_specs import (
    STARTING_TIMESTAMP_OPTIONS,
    STRATEGY_OPTION,
    given_strategy,
    parse_timestamps,
    precedence_warnings,
    timestamp_warnings,
)
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.config_option import Api
    from pyspark_kafka_direct.options.offset_specs import OffsetSpec
    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

OffsetResetStrategy = Literal["earliest", "latest", "none"]

_MIN_EXECUTOR_RECEIVE_BUFFER: Final = 65536
_RESET_STRATEGIES: Final = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True)
class KafkaParameters:
    """The settings in a ``kafkaParams`` map; picklable, including secrets, which ``repr`` masks."""

    connection: ConnectionSettings  # of the driver
    fetch: FetchSettings  # of executors
    group_id: str | None = None
    auto_offset_reset: OffsetResetStrategy = "latest"
    starting_timestamp: OffsetSpec | None = None  # where a new direct stream starts
    poll_timeout_ms: int | None = None  # None: from the Spark configuration
    source_option_strings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # see source_options

    @property
    def executor_connection(self) -> ConnectionSettings:
        """The connection settings of executors."""
        size = self.connection.receive_buffer_bytes  # -1: the operating system chooses it
        if not 0 <= size < _MIN_EXECUTOR_RECEIVE_BUFFER:
            return self.connection
        warn_once(
            f"receive.buffer.bytes={size} is increased to {_MIN_EXECUTOR_RECEIVE_BUFFER} on executors, because Kafka "
            "clients can stall with smaller buffers (KAFKA-3135)"
        )
        return dataclasses.replace(self.connection, receive_buffer_bytes=_MIN_EXECUTOR_RECEIVE_BUFFER)

    def source_options(self) -> dict[str, str]:
        """Return the parameters that the data source also has, as its options; they may contain secrets."""
        return dict(self.source_option_strings)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBasedLogSettings:
    """The settings of a ``KafkaBasedLog``."""

    connection: ConnectionSettings
    fetch: FetchSettings
    produce: ProducerSettings
    warnings: tuple[str, ...] = ()  # to log once


def parse_kafka_params(
    params: Mapping[str, object], api: Api = "direct", token_clusters: Sequence[TokenCluster] = ()
) -> KafkaParameters:
    """Parse the ``kafkaParams`` of the direct stream or of ``createRDD``."""
    if not isinstance(params, Mapping):
        raise OptionError(f"kafkaParams must be a dict of client settings, got {type(params).__name__}")
    parsed = parse_config(params, api=api, source=ConfigSource.PARAMETER)
    warnings = list(parsed.warnings)
    connection = parse_connection(parsed, warnings, token_clusters)
    for warning in (*warnings, *precedence_warnings(parsed, STARTING_TIMESTAMP_OPTIONS)):
        warn_once(warning)
    if parsed.get_boolean("enable.auto.commit"):
        warn_once(
            "enable.auto.commit is overridden to false: only commitAsync and commitSync commit offsets; call them "
            "after the output is written"
        )
    auto_offset_reset = _parse_offset_reset(parsed)
    if "auto.offset.reset" in parsed.given_names and auto_offset_reset != "none":
        warn_once(
            f"auto.offset.reset={auto_offset_reset} is overridden to none in tasks: records that a task cannot find "
            "are data loss. The setting applies only where a stream starts"
        )
    starting_timestamp = parse_timestamps(parsed, STARTING_TIMESTAMP_OPTIONS, given_strategy(parsed))
    for warning in timestamp_warnings(starting_timestamp):
        warn_once(warning)
    return KafkaParameters(
        connection,
        FetchSettings(**parsed.fields_for(FetchSettings, roles=["fetch"])),
        auto_offset_reset=auto_offset_reset,
        starting_timestamp=starting_timestamp,
        source_option_strings=_source_option_strings(parsed),
        **parsed.fields_for(KafkaParameters, roles=("fetch", "group")),
    )


def parse_log_params(params: Mapping[str, object]) -> KafkaBasedLogSettings:
    """Parse the client properties of ``KafkaBasedLog``.

    Properties that it sets itself, as in Kafka Connect, are rejected.
    """
    if not isinstance(params, Mapping):
        raise OptionError(f"params must be a dict of client settings, got {type(params).__name__}")
    parsed = parse_config(params, api="log", source=ConfigSource.PARAMETER)
    warnings = list(parsed.warnings)
    connection = parse_connection(parsed, warnings)
    produce = parse_producer(parsed, warnings)
    if produce.acks != -1:
        raise invalid_value(
            parsed.name_of("acks"), parsed.strings["acks"], "all in a log, so that acknowledged records are not lost"
        )
    return KafkaBasedLogSettings(
        connection=connection,
        fetch=FetchSettings(**parsed.fields_for(FetchSettings, roles=["fetch"])),
        produce=produce,
        warnings=tuple(warnings),
    )


def _source_option_strings(parsed: ParsedConfig) -> tuple[tuple[str, str], ...]:
    """Return the names and given strings of the parameters that are also options of a batch read of offset ranges."""
    return tuple(
        (OPTION_TABLE.key_for(option, ConfigSource.OPTION), parsed.strings[option.name])
        for option in OPTION_TABLE.options
        if option.name in parsed.strings
        and "batch" in option.apis
        and option.key_in(ConfigSource.OPTION)
        and option.name not in (*STARTING_TIMESTAMP_OPTIONS, STRATEGY_OPTION)  # offsetRanges excludes them
    )


def _parse_offset_reset(parsed: ParsedConfig) -> OffsetResetStrategy:
    value = parsed.get_string("auto.offset.reset") or ""
    name = parsed.name_of("auto.offset.reset")
    if value.lower() in _RESET_STRATEGIES:
        return cast("OffsetResetStrategy", value.lower())
    if value.lower().startswith("by_duration:"):
        raise OptionError(
            f"{name}={value} is not supported; to start at a time, set startingTimestamp in the kafkaParams of a "
            "stream (-1h is one hour ago)"
        )
    raise invalid_value(name, value, "earliest, latest or none", candidates=_RESET_STRATEGIES)
