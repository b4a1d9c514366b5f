"""Parser of the data source options for writing.

Options of Spark's own Kafka sink have the same names and are rejected where Spark rejects them
(``org.apache.spark.sql.kafka010.KafkaSourceProvider``). As there, a sink ignores options for reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.client_parser import parse_connection, parse_producer
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config, reject_misspelt_arguments
from pyspark_kafka_direct.options.settings import WriteSettings
from pyspark_kafka_direct.options.sink_payloads import parse_sink_payloads
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

_ID_PREFIX: Final = "transactionalIdPrefix"
_GUARANTEE: Final = "deliveryGuarantee"
_ASYNC_PROGRESS: Final = "asyncProgressTrackingEnabled"
_EXACTLY_ONCE: Final = "exactlyonce"  # in the names and values of other systems, without punctuation
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_EXACTLY_ONCE_OPTIONS: Final = (
    _ID_PREFIX,
    "sinkStateTopic",
    "resetTransactionState",
    "jobId",
    "stagingLocation",
    "stagingThreshold",
    _TRANSACTION_TIMEOUT,
)

# Options whose place an argument of `write_arrow` has.
_REPLACED_BY_ARGUMENTS: Final = {
    "topic": "topic",
    **dict.fromkeys(("transactional.id", _GUARANTEE, _ID_PREFIX), "transactional_id"),
}


def parse_sink_options(
    options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = (), *, streaming: bool
) -> WriteSettings:
    """Parse the options of a streaming or batch query that writes."""
    parsed = parse_config(options, api="sink", source=ConfigSource.OPTION)
    warnings = list(parsed.warnings)
    connection = parse_connection(parsed, warnings, token_clusters)
    produce = parse_producer(parsed, warnings)
    ignored: dict[str, str] = {}  # names of options to the reasons
    if parsed.get_string(_GUARANTEE) == "exactly-once":
        _check_exactly_once(parsed, produce)
        _check_async_progress(options)
        if streaming:
            ignored["jobId"] = "a streaming query is identified by its query id"
    else:
        if _GUARANTEE not in parsed.given_names:
            _check_at_least_once_is_meant(options, parsed)
        ignored = dict.fromkeys(_EXACTLY_ONCE_OPTIONS, "deliveryGuarantee is not exactly-once")
    warnings += [
        option_messages.ignored_warning(parsed.source, parsed.given_names[name], reason)
        for name, reason in ignored.items()
        if name in parsed.given_names
    ]
    return _write_settings(parsed, connection, produce, warnings)


def parse_write_arguments(given: Mapping[str, object], topic: str | None, *, in_transaction: bool) -> WriteSettings:
    """Parse the arguments of ``write_arrow``."""
    for name in given:
        option = OPTION_TABLE.find(ConfigSource.PARAMETER, str(name)).option
        argument = _REPLACED_BY_ARGUMENTS.get("" if option is None else option.name)
        if argument is not None:
            raise OptionError(f"write_arrow has the argument {argument} in place of {name}")
    parsed = parse_config({**given, "topic": topic}, api="sink", source=ConfigSource.PARAMETER)
    reject_misspelt_arguments(parsed, ["transactional_id"])
    warnings = list(parsed.warnings)
    connection = parse_connection(parsed, warnings)
    produce = parse_producer(parsed, warnings)
    if in_transaction:
        _check_producer_of_transactions(parsed, produce, "transactional_id")
    elif _TRANSACTION_TIMEOUT in parsed.given_names:
        warnings.append(
            option_messages.ignored_warning(
                parsed.source, parsed.given_names[_TRANSACTION_TIMEOUT], "there is no transactional_id"
            )
        )
    unused = [
        parsed.given_names[name]
        for name in (*_EXACTLY_ONCE_OPTIONS, "stampBatch")
        if name in parsed.given_names and name != _TRANSACTION_TIMEOUT
    ]
    if unused:
        raise OptionError(f"write_arrow does not have {listed(unused)}, which the sink kafka-direct has; remove it")
    return _write_settings(parsed, connection, produce, warnings)


def _write_settings(
    parsed: ParsedConfig, connection: ConnectionSettings, produce: ProducerSettings, warnings: list[str]
) -> WriteSettings:
    payloads = parse_sink_payloads(parsed, connection.security, warnings)
    return WriteSettings(
        connection=connection,
        produce=produce,
        payloads=payloads,
        warnings=tuple(warnings),
        **parsed.fields_for(WriteSettings, roles=["produce"]),
    )


def _check_at_least_once_is_meant(options: Mapping[str, str], parsed: ParsedConfig) -> None:
    """Reject options that look like exactly-once delivery; with a warning only, duplicates would be a surprise."""
    for option_name in _EXACTLY_ONCE_OPTIONS:
        # A template for all producers may contain the client setting.
        if option_name in parsed.given_names and option_name != _TRANSACTION_TIMEOUT:
            name = parsed.given_names[option_name]
            raise OptionError(
                f"{name} requires {_GUARANTEE}=exactly-once, and without it the write is at-least-once; set "
                f"{_GUARANTEE}, or remove {name}"
            )
    # Options of other systems, such as `exactlyOnce=true` and `sink.semantic=exactly-once`.
    for name, value in options.items():
        is_switch = _without_punctuation(name).removeprefix("kafka") == _EXACTLY_ONCE
        is_switched_on = is_switch and value.strip().lower() != "false"
        names_guarantee = _without_punctuation(value).startswith(_EXACTLY_ONCE)
        is_unknown = parsed.table.find(parsed.source, name).option is None
        if is_unknown and (is_switched_on or names_guarantee):
            raise OptionError(
                f"the option {name} is unknown, and without {_GUARANTEE} the write is at-least-once; for exactly-once, "
                f"set {_GUARANTEE}=exactly-once and {_ID_PREFIX} instead"
            )


def _without_punctuation(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def _check_exactly_once(parsed: ParsedConfig, produce: ProducerSettings) -> None:
    """Raise an error if the options of the sink or of its producer do not allow transactions."""
    if parsed.get_string(_ID_PREFIX) is None:
        raise OptionError(
            f"{_ID_PREFIX} is missing; deliveryGuarantee=exactly-once requires a name for this query, which is the "
            "same at every start and unique in the cluster"
        )
    _check_producer_of_transactions(parsed, produce, "deliveryGuarantee=exactly-once")


def _check_producer_of_transactions(parsed: ParsedConfig, produce: ProducerSettings, need: str) -> None:
    """Raise an error if the settings of a producer do not allow the transactions that ``need`` has."""
    if produce.acks != -1:
        _reject(parsed, "acks", f"all with {need}")
    if not produce.idempotent:
        _reject(parsed, "enable.idempotence", f"true with {need}")


def _check_async_progress(options: Mapping[str, str]) -> None:
    # Spark rejects this option too, unless a configuration property for Spark's own tests is set.
    name = next((name for name in options if name.lower() == _ASYNC_PROGRESS.lower()), None)
    if name is not None and options[name].strip().lower() == "true":
        raise OptionError(
            f"{name}=true cannot be used with deliveryGuarantee=exactly-once: the checkpoint lags behind the written "
            "batches, so after a failure, batches with the same id would contain other records. Remove one of them"
        )


def _reject(parsed: ParsedConfig, option_name: str, expected: str) -> NoReturn:
    raise invalid_value(parsed.name_of(option_name), parsed.strings[option_name], expected)
