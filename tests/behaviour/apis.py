"""The parsers under test, one for each API. If a parser moves, adapt this file and leave the recorded data alone."""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.direct import rate_controller
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options import option_messages, spark_conf
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.read_options import parse_batch_options, parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.options.settings import FetchSettings, ReadSettings

FieldValues = dict[str, Any]
"""The path of a field, for example ``connection.security.tls.key``, to its value.

Names of classes are no part of it, so that the record does not change if settings move to other classes.
"""

# `source_option_strings` holds the strings as given, including secrets. Warnings are recorded separately.
# The last four are the names of options in errors of connections.
_EXCLUDED_FIELDS = frozenset(
    {"source_option_strings", "warnings", "prefix", "url_option", "timeout_options", "ca_advice"}
)

_OWN_FETCH_FIELDS = frozenset(
    {"fail_on_data_loss", "max_record_batch_bytes", "poll_timeout_ms", "rack_environment_variable"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of parsing some options."""

    values: FieldValues  # empty if there was an error
    warnings: tuple[str, ...]
    error: str = ""  # class and message


def parse_at(api: str, given: Mapping[str, str]) -> Outcome:
    # Each warning is logged once per process, but every case needs it.
    option_messages.warn_once.cache_clear()
    logger = logging.getLogger("pyspark_kafka_direct")
    collected = _WarningCollector()
    logger.addHandler(collected)
    try:
        values = APIS[api](given, collected.warnings)
    except KafkaDirectError as error:
        return Outcome({}, tuple(collected.warnings), f"{type(error).__name__}: {error}")
    except Exception as error:  # a defect, and recorded as one
        return Outcome({}, tuple(collected.warnings), f"!! {type(error).__name__}: {error}")
    finally:
        logger.removeHandler(collected)
    return Outcome(values, tuple(collected.warnings))


def _batch(given: Mapping[str, str], warnings: list[str]) -> FieldValues:
    return _read_option_values(parse_batch_options(given), warnings)


def _stream(given: Mapping[str, str], warnings: list[str]) -> FieldValues:
    return _read_option_values(parse_stream_options(given), warnings)


def _read_option_values(settings: ReadSettings, warnings: list[str]) -> FieldValues:
    warnings += settings.warnings
    values = {
        **_field_values("", settings.source),
        **_field_values("connection", settings.connection),
        **_field_values("payloads", settings.payloads),
        **_fetch_values(settings.fetch),
    }
    return {path: value for path, value in values.items() if path not in ("payloads", "connection")}


def _fetch_values(fetch: FetchSettings) -> FieldValues:
    """The fields, of which the record has those that are not settings of Kafka's clients without a prefix."""
    values = _field_values("fetch", fetch)
    return {path.removeprefix("fetch.") if path[6:] in _OWN_FETCH_FIELDS else path: values[path] for path in values}


def _direct(given: Mapping[str, str], warnings: list[str]) -> FieldValues:
    params = parse_kafka_params(given)
    driver, executors = (_field_values("", each) for each in (params.connection, params.executor_connection))
    differences = {path: value for path, value in executors.items() if driver.get(path) != value}
    own = {path: value for path, value in _field_values("", params).items() if not path.startswith("fetch.")}
    poll_timeout = None if params.poll_timeout_ms is None else params.poll_timeout_ms / 1000
    fetch = {path: value for path, value in _fetch_values(params.fetch).items() if path != "poll_timeout_ms"}
    own.pop("poll_timeout_ms")
    return {**own, **fetch, "poll_timeout": poll_timeout, "executor_connection": differences}


def _rdd(given: Mapping[str, str], warnings: list[str]) -> FieldValues:
    """What a ``KafkaRDD``'s tasks get; a ``KafkaRDD`` itself needs a SparkContext."""
    params = parse_kafka_params(given, "rdd")
    fetch = _fetch_values(params.fetch)
    return {
        **{path: value for path, value in fetch.items() if path.startswith(("fetch.", "fail_", "rack_"))},
        **_field_values("connection", params.executor_connection),
        "poll_timeout": params.fetch.poll_timeout_ms / 1000,
        "max_batch_bytes": params.fetch.max_record_batch_bytes,
    }


def _spark_configuration(given: Mapping[str, str], warnings: list[str]) -> FieldValues:
    conf: Any = given  # a dict replaces the SparkConf because only `get` is used
    partition = TopicPartition("t", 0)
    limits = rate_controller.default_per_partition_config(conf)
    controller = rate_controller.create_rate_controller(conf, 1000)
    values: FieldValues = {
        "poll_timeout": spark_conf.poll_timeout_ms(conf) / 1000,
        "assume_consecutive": spark_conf.assume_consecutive(conf),
        "maxRatePerPartition": limits.maxRatePerPartition(partition),
        "minRatePerPartition": limits.minRatePerPartition(partition),
        "rate_controller": controller is not None,
    }
    if controller is not None:
        values["rate_controller.initial_rate"] = controller.initial_rate
        values.update(_field_values("rate_controller.gains", controller._estimator._gains))
    return values


APIS: dict[str, Callable[[Mapping[str, str], list[str]], FieldValues]] = {
    "batch": _batch,
    "stream": _stream,
    "direct": _direct,
    "rdd": _rdd,
    "conf": _spark_configuration,
}

SOURCE_APIS = ("batch", "stream")
PARAMS_APIS = ("direct", "rdd")


_PLAIN_CLASSES = frozenset({str, int, float, bool, type(None)})  # of most fields


class _WarningCollector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings.append(record.getMessage())


def _field_values(path: str, value: Any) -> FieldValues:
    """The fields of a value of a class of this package, and of such values in its fields."""
    values: FieldValues = {}
    _add_field_values(values, path, value)
    return values


def _add_field_values(values: FieldValues, path: str, value: Any) -> None:
    if value.__class__ in _PLAIN_CLASSES:
        values[path] = value
        return
    names = _field_names(value.__class__)
    if names is None:
        values[path] = _without_classes(value)
        return
    prefix = f"{path}." if path else ""
    for name in names:
        _add_field_values(values, prefix + name, getattr(value, name))


def _without_classes(value: Any) -> Any:
    """The value, in which tuples and mappings have fields in place of values of our classes."""
    if isinstance(value, tuple):
        return tuple(_without_classes(each) for each in value)
    if isinstance(value, dict):
        return {key: _without_classes(each) for key, each in value.items()}
    if _field_names(value.__class__) is None:
        return value
    return _field_values("", value)


@functools.cache
def _field_names(value_class: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(value_class):
        names = tuple(field.name for field in dataclasses.fields(value_class))
    else:
        names = getattr(value_class, "_fields", ())
    if value_class.__module__.partition(".")[0] != "pyspark_kafka_direct" or not names:
        return None  # a value without fields is known by its class only
    return tuple(name for name in names if name not in _EXCLUDED_FIELDS)
