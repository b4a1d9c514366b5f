"""Settings of reads as tests need them: those of tasks, and those of planners."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.options.client_parser import parse_connection
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.offset_specs import AT_EARLIEST
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.option_parser import parse_config
from pyspark_kafka_direct.options.payload_settings import PayloadSettings
from pyspark_kafka_direct.options.settings import (
    ConnectionSettings,
    FetchSettings,
    ReadLimits,
    ReadSettings,
    SourceSettings,
)
from pyspark_kafka_direct.options.subscription import SubscribeStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec
    from pyspark_kafka_direct.options.settings import IsolationLevel

_LIMITS = ReadLimits()

LONG_API_TIMEOUT = {"default.api.timeout.ms": "600000"}
"""For tests in which brokers restart, which may take minutes on a busy machine."""


class TaskSettings(NamedTuple):
    """What tasks receive of the settings of a query."""

    connection: ConnectionSettings
    fetch: FetchSettings


def task_settings(
    connection: ConnectionSettings, fetch: FetchSettings, poll_timeout: float = 120.0, **changes: Any
) -> TaskSettings:
    """The settings with changes; the timeout is in seconds."""
    return TaskSettings(
        connection, dataclasses.replace(fetch, poll_timeout_ms=math.ceil(poll_timeout * 1000), **changes)
    )


def parse_client_params(params: Mapping[str, str], *, oauth_token_provider: str | None = None) -> TaskSettings:
    """Parse client settings by their names without ``kafka.`` as options of a batch; each warning is logged once."""
    options: dict[str, str | None] = {f"kafka.{name}": value for name, value in params.items()}
    parsed = parse_config(
        {**options, "oauthTokenProvider": oauth_token_provider}, api="batch", source=ConfigSource.OPTION
    )
    warnings = list(parsed.warnings)
    settings = TaskSettings(
        parse_connection(parsed, warnings), FetchSettings(**parsed.fields_for(FetchSettings, roles=["fetch"]))
    )
    for warning in warnings:
        warn_once(warning)
    return settings


def read_settings(
    start: StartingOffsetSpec | None = None,
    limits: ReadLimits = _LIMITS,
    *,
    fail_on_data_loss: bool = True,
    read_committed: bool = False,
    max_attempts: int | None = None,
    **source: Any,
) -> ReadSettings:
    """The settings of a query, for its planner."""
    isolation_level: IsolationLevel = "read_committed" if read_committed else "read_uncommitted"
    return ReadSettings(
        ConnectionSettings((("broker", 9092),)),
        FetchSettings(isolation_level=isolation_level, fail_on_data_loss=fail_on_data_loss),
        SourceSettings(
            selection=SubscribeStrategy(("t",)),
            start=start or AT_EARLIEST,
            limits=limits,
            offset_fetch_attempts=max_attempts,
            **source,
        ),
        PayloadSettings(),
    )
