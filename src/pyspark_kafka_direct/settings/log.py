"""The parameters of a log, checked and typed: client settings under their Java names.

A log reads and writes. Kafka Connect's ``KafkaBasedLog`` sets some of them itself; those values may be given, others
may not: records are acknowledged by all replicas in sync (``acks=all``) and read from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._messages import bad_value, warn_once
from pyspark_kafka_direct.settings._produce import produce_settings
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings.client import client_settings
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings

__all__ = ["LogSettings", "parse_log_params", "warn_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What the parameters of a log say.

    Attributes:
        connection: How to reach the cluster.
        fetch: How to fetch records.
        produce: How to write records.
        oauth_token_provider: ``module:factory``, as the option ``oauthTokenProvider`` of the data source.
        max_record_batch_bytes: Most bytes that a record batch may decompress to, as the option ``maxRecordBatchBytes``.
        warnings: What the user should be told once (``warn_once``).
    """

    connection: ConnectionSettings
    fetch: FetchSettings
    produce: ProduceSettings
    oauth_token_provider: str | None
    max_record_batch_bytes: int
    warnings: tuple[str, ...] = ()


def parse_log_params(params: Mapping[str, object]) -> LogSettings:
    """Check and type the parameters of a log; the map itself is left as it is.

    Values may be texts, or what Java's client takes in their place: numbers, booleans, lists of texts, classes. A name
    may begin with ``kafka.``. ``None`` means "not given".

    Args:
        params: The parameters.

    Raises:
        OptionError: A parameter is missing, refused, or has a value that cannot be used.
    """
    if not isinstance(params, Mapping):
        raise OptionError(f"params must be a dict of client settings, got {type(params).__name__}")
    given = read(params, door="log", origin=Origin.PARAMETER)
    client, notes = client_settings(given)
    warnings = [*given.notes, *notes]
    produce = produce_settings(given, warnings)
    if produce.acks != -1:
        raise bad_value(given.name("acks"), given.texts["acks"], "all in a log: what is acknowledged is to stay in it")
    return LogSettings(
        connection=client.connection,
        fetch=client.fetch,
        produce=produce,
        warnings=tuple(warnings),
        **given.fields(LogSettings, "connect", "fetch"),
    )
