"""How to reach the brokers: client settings, checked and typed.

This is the face the rest of the package sees; the table of names is in ``_table`` and its two halves, security in
``_security``. Nothing here touches the network or the file system. Reading settings is imported where it is done: on
the driver, while the typed settings travel to every Python worker.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.fetch import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire._setting import Value

_log = logging.getLogger("pyspark_kafka_direct.wire")

# Java's Utils.HOST_PORT_PATTERN: an optional scheme, a host (IPv6 in brackets), a port.
_HOST_PORT: Final = re.compile(r"(?:[0-9A-Za-z\-%._]*://)?\[?([0-9A-Za-z\-%._:]+)\]?:([0-9]{1,5})")


class ClientSettings(NamedTuple):
    """What client settings say, by role.

    Attributes:
        connection: How to reach the cluster.
        fetch: How to fetch records.
    """

    connection: ConnectionSettings
    fetch: FetchSettings


def connection_settings(
    params: Mapping[str, str], *, oauth_token_provider: str | None = None, handled: Collection[str] = ()
) -> ClientSettings:
    """Make typed settings from client settings.

    What can't apply is either refused or ignored; each ignored or unknown setting is said once per process, as a
    warning of the logger ``pyspark_kafka_direct.wire``.

    Args:
        params: Client settings by their Java (or librdkafka) names, without ``kafka.``.
        oauth_token_provider: The option ``oauthTokenProvider``: ``module:factory``.
        handled: Names of settings the caller deals with itself, in lower case; they bring no warning.

    Raises:
        OptionError: A setting is missing, refused, or has a value that can't be used.
    """
    from pyspark_kafka_direct.wire._table import read_settings
    from pyspark_kafka_direct.wire.security.reader import security_settings

    read = read_settings(params, handled=handled)
    security, notes = security_settings(read.values, read.given, oauth_token_provider)
    for note in (*read.notes, *notes):
        _warn_once(note)
    values = read.values
    connection = ConnectionSettings(
        bootstrap_servers=_bootstrap_servers(values, read.given),
        client_id=_text(values, "client.id"),
        security=security,
        address_family=cast("Literal['any', 'v4', 'v6']", values["broker.address.family"]),
        connect_timeout_ms=_number(values, "socket.connection.setup.timeout.ms"),
        connect_timeout_max_ms=_number(values, "socket.connection.setup.timeout.max.ms"),
        request_timeout_ms=_number(values, "request.timeout.ms"),
        default_api_timeout_ms=_number(values, "default.api.timeout.ms"),
        retry_backoff_ms=_number(values, "retry.backoff.ms"),
        retry_backoff_max_ms=_number(values, "retry.backoff.max.ms"),
        reconnect_backoff_ms=_number(values, "reconnect.backoff.ms"),
        reconnect_backoff_max_ms=_number(values, "reconnect.backoff.max.ms"),
        connections_max_idle_ms=_number(values, "connections.max.idle.ms"),
        metadata_max_age_ms=_number(values, "metadata.max.age.ms"),
        receive_buffer_bytes=_number(values, "receive.buffer.bytes"),
        send_buffer_bytes=_number(values, "send.buffer.bytes"),
    )
    fetch = FetchSettings(
        isolation_level=cast("IsolationLevel", values["isolation.level"]),
        client_rack=_text(values, "client.rack"),
        fetch_min_bytes=_number(values, "fetch.min.bytes"),
        fetch_max_wait_ms=_number(values, "fetch.max.wait.ms"),
        fetch_max_bytes=_number(values, "fetch.max.bytes"),
        max_partition_fetch_bytes=_number(values, "max.partition.fetch.bytes"),
        check_crcs=cast("bool", values["check.crcs"]),
    )
    return ClientSettings(connection, fetch)


def settings_markdown() -> str:
    """The documentation page of all client settings."""
    from pyspark_kafka_direct.wire import _table

    return _table.settings_markdown()


def _bootstrap_servers(values: Mapping[str, Value], given: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    written_as = given.get("bootstrap.servers", "bootstrap.servers")
    addresses: dict[tuple[str, int], None] = {}  # a dict keeps the order and drops what is named twice
    for text in cast("tuple[str, ...]", values.get("bootstrap.servers", ())):
        match = _HOST_PORT.fullmatch(text)
        if match is None or not 0 < int(match[2]) < 65_536:
            raise OptionError(
                f"option kafka.{written_as}: {text!r} is not host:port; write for example broker1:9092,broker2:9092"
            )
        addresses[match[1], int(match[2])] = None
    if not addresses:
        raise OptionError(
            f"option kafka.{written_as} is missing or empty; write the brokers to ask first, for example "
            "broker1:9092,broker2:9092"
        )
    return tuple(addresses)


def _text(values: Mapping[str, Value], name: str) -> str:
    return cast("str", values[name])


def _number(values: Mapping[str, Value], name: str) -> int:
    return cast("int", values[name])


@lru_cache(maxsize=1024)
def _warn_once(note: str) -> None:
    # The cache is the memory of what was said: Spark builds a reader several times for one load().
    _log.warning("%s", note)


if __name__ == "__main__":
    print(settings_markdown(), end="")
