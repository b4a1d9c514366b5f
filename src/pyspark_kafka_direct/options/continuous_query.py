"""Parser of the parameters of a continuous query's ``start(...)``, and of its input and output options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_UNIT_SECONDS: Final = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION: Final = re.compile(r"(?:interval\s+)?([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]+)", re.ASCII)
_MAX_DAYS: Final = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousSettings:
    """The parameters of ``start(...)``. Times are in seconds."""

    checkpoint: str
    epoch_interval: float
    name: str | None
    tasks_max: int | None  # None: one task per topic-partition
    max_records_per_second: float | None  # of all tasks together
    task_setup_timeout: float  # until the setups of all tasks are done
    task_start_timeout: float  # until all tasks of a run have started
    epoch_timeout: float  # from an epoch request until all tasks have flushed
    heartbeat_timeout: float  # how long a task writes after its last heartbeat with a response
    max_restarts: int  # within `restart_window`
    restart_window: float
    discovery_interval: float  # of new partitions
    control_port: int  # of the driver, for its tasks; 0: any free port


@dataclass(frozen=True, slots=True)
class StartParameter:
    field: str  # of `ContinuousSettings`; empty: the value is only checked
    parse: Callable[[str, object], object]  # takes the name of the parameter, and a value that is not None
    default: object = None


def parse_start_options(parameters: Mapping[str, object], default_checkpoint: str | None = None) -> ContinuousSettings:
    """Parse the parameters of ``start(...)``; None means the default.

    ``default_checkpoint`` is the value of ``spark.sql.streaming.checkpointLocation``.
    """
    for name in parameters:
        if name not in START_PARAMETERS:
            raise OptionError(f"start() has no parameter {name!r}{did_you_mean(name, START_PARAMETERS)}")
    fields: dict[str, Any] = {}
    for name, parameter in START_PARAMETERS.items():
        value = parameter.default if parameters.get(name) is None else parameters[name]
        parsed = None if value is None else parameter.parse(name, value)
        if parameter.field:
            fields[parameter.field] = parsed
    if fields["checkpoint"] is None:
        fields["checkpoint"] = _checkpoint_in(default_checkpoint, fields["name"])
    return ContinuousSettings(**fields)


def options_as_strings(options: Mapping[str, object] | None, keyword_options: Mapping[str, object]) -> dict[str, str]:
    """Convert options to strings, booleans in lower case as in PySpark; keyword arguments take precedence.

    ``None`` means that an option is not set, also as a keyword argument over a value in ``options``.
    """
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options must be a mapping of names to values, got {type(options).__name__}")
    strings: dict[str, str] = {}
    for name, value in {**(options or {}), **keyword_options}.items():
        if not isinstance(name, str):
            raise OptionError(f"the name of an option must be a string, got {name!r}")
        if isinstance(value, bool):
            strings[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            strings[name] = str(value)
        elif value is not None:
            # The value is not shown because it may be a secret.
            raise OptionError(f"{name} must be a string, a number or a boolean, got {type(value).__name__}")
    return strings


def with_input_connection(input_options: Mapping[str, str], output_options: Mapping[str, str]) -> dict[str, str]:
    """Return the output options with the connection options of the input, unless they name their own brokers."""
    output_names = {OPTION_TABLE.find(ConfigSource.OPTION, name).canonical_name for name in output_options}
    if "bootstrap.servers" in output_names:
        return dict(output_options)
    inherited = {name: value for name, value in input_options.items() if _is_inherited(name, output_names)}
    return {**inherited, **output_options}


def _is_inherited(name: str, output_names: Collection[str]) -> bool:
    match = OPTION_TABLE.find(ConfigSource.OPTION, name)
    return match.option is not None and match.option.role == "connect" and match.canonical_name not in output_names


def _checkpoint_in(folder: str | None, query_name: str | None) -> str:
    if folder and query_name:
        return f"{folder.rstrip('/')}/{query_name}"
    raise OptionError(
        "checkpointLocation is missing; set it to a folder for the progress of the query, which all of its runs use, "
        "or set spark.sql.streaming.checkpointLocation and queryName"
    )


def _parse_string(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{name} must be a non-empty string, got {value!r}")
    return value


def _parse_output_mode(name: str, value: object) -> str:
    if not isinstance(value, str) or value.lower() not in ("append", "update"):
        raise OptionError(
            f"{name} must be append or update, got {value!r}: a continuous query has no result table that it could "
            "write completely"
        )
    return value


def _integer(low: int, high: int) -> Callable[[str, object], int]:
    def parse(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise OptionError(f"{name} must be an integer from {low} to {high}, got {value!r}")
        return value

    return parse


def _seconds(minimum: float) -> Callable[[str, object], float]:
    def parse(name: str, value: object) -> float:
        seconds = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        elif isinstance(value, str):
            match = _DURATION.fullmatch(value.strip().lower())
            if match is not None and match[2] in _UNIT_SECONDS:
                seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
        if seconds is None or not minimum <= seconds <= _MAX_DAYS * 86400.0:
            raise OptionError(
                f"{name} must be a number of seconds, or a string such as '1 second', '100 milliseconds' or '500ms', "
                f"from {minimum:g} s to {_MAX_DAYS} days, got {value!r}"
            )
        return seconds

    return parse


START_PARAMETERS: Final = {
    "checkpointLocation": StartParameter("checkpoint", _parse_string),
    "epochInterval": StartParameter("epoch_interval", _seconds(0.01), "1 second"),
    "outputMode": StartParameter("", _parse_output_mode, "append"),
    "queryName": StartParameter("name", _parse_string),
    "tasksMax": StartParameter("tasks_max", _integer(1, 100_000)),
    "maxRecordsPerSecond": StartParameter("max_records_per_second", _integer(1, 1_000_000_000)),
    "taskStartTimeout": StartParameter("task_start_timeout", _seconds(0.1), 60),
    "taskSetupTimeout": StartParameter("task_setup_timeout", _seconds(0.1), 600),
    "epochTimeout": StartParameter("epoch_timeout", _seconds(0.1), 60),
    "heartbeatTimeout": StartParameter("heartbeat_timeout", _seconds(0.1), 10),
    "maxRestarts": StartParameter("max_restarts", _integer(0, 1_000_000), 3),
    "restartWindow": StartParameter("restart_window", _seconds(0.001), 600),
    "discoveryInterval": StartParameter("discovery_interval", _seconds(0.01), 10),
    "controlPort": StartParameter("control_port", _integer(0, 65_535), 0),
}
"""The parameters of ``start(...)``."""
