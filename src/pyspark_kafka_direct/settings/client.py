"""How to reach the brokers and to fetch from them: client settings, checked and typed.

Nothing here touches the network or the file system. Reading settings is imported where it is done: on the driver,
while the typed settings travel to every Python worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._messages import bad_value, warn_once
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._rows_connect import HOST_PORT
from pyspark_kafka_direct.settings._security import security_settings
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings._reader import Read


class ClientSettings(NamedTuple):
    """What client settings say, by role.

    Attributes:
        connection: How to reach the cluster.
        fetch: How to fetch records.
    """

    connection: ConnectionSettings
    fetch: FetchSettings


def connection_settings(params: Mapping[str, str], *, oauth_token_provider: str | None = None) -> ClientSettings:
    """Make typed settings from client settings alone.

    What can't apply is either refused or ignored; each ignored or unknown setting is said once per process, as a
    warning of the logger ``pyspark_kafka_direct.settings``.

    Args:
        params: Client settings by their Java (or librdkafka) names, without ``kafka.``.
        oauth_token_provider: The option ``oauthTokenProvider``: ``module:factory``.

    Raises:
        OptionError: A setting is missing, refused, or has a value that can't be used.
    """
    options: dict[str, str | None] = {f"kafka.{name}": text for name, text in params.items()}
    given = read({**options, "oauthTokenProvider": oauth_token_provider}, door="batch", origin=Origin.OPTION)
    settings, notes = client_settings(given)
    for note in (*given.notes, *notes):
        warn_once(note)
    return settings


def client_settings(given: Read) -> tuple[ClientSettings, tuple[str, ...]]:
    """Make typed settings of what was read.

    Returns:
        The settings, and what the user should be told beside the notes of ``given``.

    Raises:
        OptionError: Settings contradict one another, or an address cannot be used.
    """
    connection, notes = connection_of(given)
    return ClientSettings(connection, FetchSettings(**given.fields(FetchSettings, "fetch"))), notes


def connection_of(given: Read) -> tuple[ConnectionSettings, tuple[str, ...]]:
    """Make of what was read how to reach the cluster; else as ``client_settings``."""
    try:
        security, notes = security_settings(given)
    except OptionError as error:
        # What is missing may be there under a name that nobody knows, and an error leaves no room for warnings.
        raise OptionError(" ".join([error.message, *(f"({note})" for note in given.unknown)])) from None
    connection = ConnectionSettings(
        bootstrap_servers=_bootstrap_servers(given),
        security=security,
        **given.fields(ConnectionSettings, "connect"),
    )
    return connection, notes


def _bootstrap_servers(given: Read) -> tuple[tuple[str, int], ...]:
    addresses: dict[tuple[str, int], None] = {}  # a dict keeps the order and drops what is named twice
    for text in given.entries("bootstrap.servers"):
        match = HOST_PORT.fullmatch(text)
        if match is None or not 0 < int(match[2]) < 65_536:
            raise bad_value(given.name("bootstrap.servers"), text, "host:port with a port from 1 to 65535")
        addresses[match[1], int(match[2])] = None
    return tuple(addresses)
