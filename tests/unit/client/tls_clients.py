"""Clients of TLS servers, and what they see or report."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.tls_handshake import explain_tls_failure, wrap_socket
from pyspark_kafka_direct.errors import TlsError, TransientBrokerError

if TYPE_CHECKING:
    import ssl

    from pyspark_kafka_direct.options.settings import ConnectionSettings

SECONDS = 120.0


def settings_for(port: int, **settings: str) -> ConnectionSettings:
    """Return settings; ``ssl_key_password`` means ``ssl.key.password``."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return parse_client_params(
        {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", **named}
    ).connection


def connect(settings: ConnectionSettings, host: str = "localhost", seconds: float = SECONDS) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", settings.bootstrap_servers[0][1]))
    try:
        return wrap_socket(sock, settings, host, Deadline.after(seconds))
    except BaseException:
        assert sock.fileno() == -1, "a failed handshake closes the socket"
        raise


def client_name_seen_by_server(settings: ConnectionSettings, host: str = "localhost") -> str:
    """Connect and return the common name by which the server identifies the client."""
    with connect(settings, host) as secured:
        secured.sendall(b"?")
        return secured.recv(100).decode()


def connect_and_read(settings: ConnectionSettings, host: str) -> None:
    """Connect and read: with TLS 1.3 a broker checks the client's certificate only then."""
    with connect(settings, host) as secured:
        try:
            secured.recv(1)
        except OSError as error:
            raise explain_tls_failure(error, settings, host, "broker:1") from error


def tls_error_message(settings: ConnectionSettings, host: str = "localhost") -> str:
    """Return the error message of a connection, from the handshake or the first read."""
    with pytest.raises(TlsError) as caught:
        connect_and_read(settings, host)
    assert caught.value.broker is not None
    assert not isinstance(caught.value, TransientBrokerError), "a retry does not help"
    return caught.value.message
