"""Where settings come in, and what each door makes of them.

The only file of the record that knows which functions read settings. Whoever moves those adapts this file, and leaves
the recorded data alone.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.direct import rates
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.range_task import Reading
from pyspark_kafka_direct.settings import _messages, spark_conf
from pyspark_kafka_direct.settings.kafka_params import driver_parameters
from pyspark_kafka_direct.settings.source import parse_options, parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.settings.source import ReadOptions

Tree = dict[str, Any]
"""Path of a field, ``ConnectionSettings.security.tls.key`` for instance, to its value."""

# Texts as they were given, secrets included, and warnings, which are recorded as such.
_LEFT_OUT = frozenset({"texts", "warnings"})

_DEFAULT_POLL_SECONDS = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a door made of some settings.

    Attributes:
        values: Where each value ended up; empty when they were refused.
        warnings: What the user was told.
        refusal: Class and text of the error, if there was one.
    """

    values: Tree
    warnings: tuple[str, ...]
    refusal: str = ""


def look(door: str, given: Mapping[str, str]) -> Seen:
    """Give settings to a door."""
    # Each warning is said once in a process; here it is asked for again and again.
    _messages.warn_once.cache_clear()
    log = logging.getLogger("pyspark_kafka_direct")
    heard = _Listener()
    log.addHandler(heard)
    try:
        values = DOORS[door](given, heard.texts)
    except KafkaDirectError as error:
        return Seen({}, tuple(heard.texts), f"{type(error).__name__}: {error}")
    except Exception as error:  # a defect, and recorded as one
        return Seen({}, tuple(heard.texts), f"!! {type(error).__name__}: {error}")
    finally:
        log.removeHandler(heard)
    return Seen(values, tuple(heard.texts))


def _batch(given: Mapping[str, str], warnings: list[str]) -> Tree:
    return _of_options(parse_options(given), warnings)


def _stream(given: Mapping[str, str], warnings: list[str]) -> Tree:
    return _of_options(parse_stream_options(given), warnings)


def _of_options(options: ReadOptions, warnings: list[str]) -> Tree:
    warnings += options.warnings
    name = type(options).__name__
    client = ("connection", "fetch")
    tree = {
        path: value
        for path, value in _tree(name, options).items()
        if not any(f"{path}.".startswith(f"{name}.{field}.") for field in client)
    }
    return {**tree, **_tree("ConnectionSettings", options.fetch), **_tree("ConnectionSettings", options.connection)}


def _direct(given: Mapping[str, str], warnings: list[str]) -> Tree:
    read = driver_parameters(given)
    driver, executors = _tree("settings", read.settings), _tree("settings", read.executor_settings)
    tree = _as_recorded(_tree("KafkaParameters", read))
    tree["KafkaParameters.executor_settings"] = {
        path: value for path, value in executors.items() if driver.get(path) != value
    }
    return tree


def _rdd(given: Mapping[str, str], warnings: list[str]) -> Tree:
    """What ``KafkaRDD`` takes for its tasks; making one needs a SparkContext."""
    read = driver_parameters(given, "rdd")
    reading = Reading(
        read.executor_settings,
        read.fetch,
        _DEFAULT_POLL_SECONDS if read.poll_timeout is None else read.poll_timeout,
        read.rack_environment_variable,
        read.fail_on_data_loss,
        read.max_record_batch_bytes,
    )
    return _as_recorded(_tree("Reading", reading))


def _spark_configuration(given: Mapping[str, str], warnings: list[str]) -> Tree:
    """A dict stands for the SparkConf: only ``get`` is used."""
    conf: Any = given
    partition = TopicPartition("t", 0)
    limits = rates.per_partition_config(conf)
    controller = rates.rate_controller(conf, 1000)
    tree: Tree = {
        "poll_timeout": spark_conf.poll_timeout(conf),
        "assume_consecutive": spark_conf.assume_consecutive(conf),
        "maxRatePerPartition": limits.maxRatePerPartition(partition),
        "minRatePerPartition": limits.minRatePerPartition(partition),
        "rate_controller": controller is not None,
    }
    if controller is not None:
        tree["rate_controller.initial_rate"] = controller.initial_rate
        tree.update(_tree("rate_controller.gains", controller._estimator._gains))
    return tree


DOORS: dict[str, Callable[[Mapping[str, str], list[str]], Tree]] = {
    "batch": _batch,
    "stream": _stream,
    "direct": _direct,
    "rdd": _rdd,
    "conf": _spark_configuration,
}

SOURCE_DOORS = ("batch", "stream")
PARAMETER_DOORS = ("direct", "rdd")


def _as_recorded(tree: Tree) -> Tree:
    """Settings of fetching stood among those of the connection when the record was made."""
    return {path.replace(".fetch.", ".settings."): value for path, value in tree.items() if not path.endswith(".fetch")}


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _tree(path: str, value: Any) -> Tree:
    """The fields of a dataclass, and of those within; of an empty one its class."""
    names = _fields(value.__class__)
    if names is None:
        return {path: value}
    tree: Tree = {path: type(value).__name__}
    for name in names:
        tree.update(_tree(f"{path}.{name}", getattr(value, name)))
    return tree


@functools.cache
def _fields(kind: type) -> tuple[str, ...] | None:
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in _LEFT_OUT)
