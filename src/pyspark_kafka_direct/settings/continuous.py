"""What ``start(...)`` of a continuous query takes, checked and typed; and what its output takes from its input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import did_you_mean
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from collections.abc import Collection

_UNITS: Final = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION: Final = re.compile(r"(?:interval\s+)?([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]+)", re.ASCII)
_LONGEST: Final = 366 * 86400.0
_OUTPUT_MODES: Final = ("append", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a continuous query runs. All times are seconds.

    Attributes:
        checkpoint: Where its logs are.
        epoch_interval: From the end of one epoch to that of the next.
        name: Its name, if it has one.
        tasks_max: Most tasks; ``None``: one for each topic-partition.
        task_start_timeout: Until all tasks of a run have started.
        epoch_timeout: From a mark until all tasks have flushed.
        mark_timeout: Without a mark, after which a task takes the driver for dead.
        max_restarts: Most restarts within the window.
        restart_window: How long that is.
        discovery_interval: From one look for other partitions to the next.
        control_port: The driver's port for its tasks; 0: any that is free.
    """

    checkpoint: str
    epoch_interval: float
    name: str | None
    tasks_max: int | None
    task_start_timeout: float
    epoch_timeout: float
    mark_timeout: float
    max_restarts: int
    restart_window: float
    discovery_interval: float
    control_port: int


def run_settings(given: Mapping[str, object], default_checkpoint: str | None = None) -> RunSettings:
    """Check and type what ``start(...)`` was given.

    Args:
        given: By the names of ``DEFAULTS``; ``None`` means the default.
        default_checkpoint: Where checkpoints are that were not named (``spark.sql.streaming.checkpointLocation``).

    Raises:
        OptionError: A name is unknown, or a value cannot be used.
    """
    for name in given:
        if name not in DEFAULTS:
            raise OptionError(f"start() has no setting {name!r}{did_you_mean(name, DEFAULTS)}")
    values = {each: default if given.get(each) is None else given[each] for each, default in DEFAULTS.items()}
    query_name = _text(values, "queryName")
    interval = _seconds(values, "epochInterval", least=0.01)
    epoch_timeout = _seconds(values, "epochTimeout", least=0.1)
    mode = values["outputMode"]
    if not isinstance(mode, str) or mode.lower() not in _OUTPUT_MODES:
        raise OptionError(
            f"outputMode must be append or update, got {mode!r}: a continuous query hands on what it reads, and "
            "keeps no result that could be complete"
        )
    silent = interval + 2 * epoch_timeout
    mark_timeout = silent if values["markTimeout"] is None else _seconds(values, "markTimeout", least=0.1)
    if mark_timeout < interval:
        raise OptionError(f"markTimeout={mark_timeout:g} s must not be below epochInterval={interval:g} s")
    return RunSettings(
        checkpoint=_checkpoint(values, query_name, default_checkpoint),
        epoch_interval=interval,
        name=query_name,
        tasks_max=None if values["tasksMax"] is None else _number(values, "tasksMax", 1, 100_000),
        task_start_timeout=_seconds(values, "taskStartTimeout", least=0.1),
        epoch_timeout=epoch_timeout,
        mark_timeout=mark_timeout,
        max_restarts=_number(values, "maxRestarts", 0, 1_000_000),
        restart_window=_seconds(values, "restartWindow", least=0.001),
        discovery_interval=_seconds(values, "discoveryInterval", least=0.01),
        control_port=_number(values, "controlPort", 0, 65_535),
    )


def options_of(given: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, str]:
    """Return options as texts, from a mapping and from keyword arguments; the latter count.

    Args:
        given: Names to values, as ``DataStreamReader.options`` takes them.
        more: The same.

    Raises:
        OptionError: A name or a value is of a type that cannot be written as an option.
    """
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"options must be a mapping of names to values, got {type(given).__name__}")
    found: dict[str, str] = {}
    for name, value in {**(given or {}), **more}.items():
        if not isinstance(name, str):
            raise OptionError(f"an option's name must be a text, got {name!r}")
        if isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[name] = str(value)
        elif value is not None:
            # The value itself is not shown: it may be a secret.
            raise OptionError(f"{name} must be a text, a number or a boolean, got {type(value).__name__}")
    return found


def output_options(reading: Mapping[str, str], writing: Mapping[str, str]) -> dict[str, str]:
    """Return the options of an output, which is in the cluster that is read unless it names another one.

    Args:
        reading: The options of ``read``.
        writing: The options of the output.
    """
    there = {TABLE.find(Origin.OPTION, name).key for name in writing}
    if "bootstrap.servers" in there:
        return dict(writing)
    return {**{name: text for name, text in reading.items() if _connects(name, there)}, **writing}


def _connects(name: str, there: Collection[str]) -> bool:
    found = TABLE.find(Origin.OPTION, name)
    return found.row is not None and found.row.role == "connect" and found.key not in there


def _checkpoint(values: Mapping[str, object], name: str | None, default: str | None) -> str:
    checkpoint = _text(values, "checkpointLocation")
    if checkpoint is not None:
        return checkpoint
    if default and name:
        return f"{default.rstrip('/')}/{name}"
    raise OptionError(
        "checkpointLocation is missing: a continuous query keeps there how far it is. Name a folder that all its "
        "runs use; or set spark.sql.streaming.checkpointLocation and give the query a name"
    )


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values[name]
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise OptionError(f"{name} must be a text that is not empty, got {value!r}")
    return value


def _number(values: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise OptionError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    return value


def _seconds(values: Mapping[str, object], name: str, least: float) -> float:
    value = values[name]
    seconds = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        found = _DURATION.fullmatch(value.strip().lower())
        if found is not None and found[2] in _UNITS:
            seconds = float(found[1]) * _UNITS[found[2]]
    if seconds is None or not least <= seconds <= _LONGEST:
        raise OptionError(
            f"{name} must be a number of seconds, or a text such as '1 second', '100 milliseconds' or '500ms', from "
            f"{least:g} s on, got {value!r}"
        )
    return seconds


DEFAULTS: Final[Mapping[str, object]] = {
    "checkpointLocation": None,
    "epochInterval": "1 second",
    "outputMode": "append",
    "queryName": None,
    "tasksMax": None,
    "taskStartTimeout": 60,
    "epochTimeout": 60,
    "markTimeout": None,
    "maxRestarts": 3,
    "restartWindow": 600,
    "discoveryInterval": 10,
    "controlPort": 0,
}
"""What ``start(...)`` takes, and the defaults."""
