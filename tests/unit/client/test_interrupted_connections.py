"""TLS connections that end early: in the handshake, in the first write, after the first response."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import ssl
import struct
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params
from tests.unit.client.certified_keys import BROKER, CA
from tests.unit.client.fake_servers import FakeServer, ServerConnection

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.keystore import private_file
from pyspark_kafka_direct.client.security.tls_handshake import wrap_socket
from pyspark_kafka_direct.errors import BrokerUnreachableError, TlsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.connection import Connection

    Ending = Callable[[socket.socket], None]

TLS = parse_client_params(
    {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.truststore.certificates": CA.pem}
).connection


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with private_file((BROKER.pem + BROKER.key_pem()).encode()) as path:
        context.load_cert_chain(path)
    return context


def at_once(_: socket.socket) -> None:
    """As a load balancer without a healthy target."""


def by_reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def by_reset_after_connect(sock: socket.socket) -> None:
    assert sock.recv(1, socket.MSG_PEEK)  # an earlier reset could fail the connect
    by_reset(sock)


def after_client_hello(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)


def in_a_record(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)
    sock.sendall(b"\x16\x03\x03\x00\x7a")  # a record of 122 bytes begins


@pytest.mark.parametrize("ending", [at_once, by_reset_after_connect, after_client_hello, in_a_record])
def test_a_handshake_that_a_load_balancer_ends_may_be_retried(ending: Ending) -> None:
    """The client retries this error; it is no rejection of a certificate."""

    def end(server_side: ServerConnection) -> None:
        ending(server_side.socket)
        server_side.socket.close()

    with (
        FakeServer(end) as peer,
        pytest.raises(BrokerUnreachableError, match=r"set kafka\.security\.protocol to PLAINTEXT"),
    ):
        peer.connect(TLS)


def test_a_listener_without_tls_is_no_end_that_may_be_retried() -> None:
    def respond_without_tls(server_side: ServerConnection) -> None:
        with server_side.socket:
            if server_side.socket.recv(1, socket.MSG_PEEK) != b"\x16":  # of a TLS handshake
                server_side.respond_to_api_versions()
                server_side.keep_open()

    with FakeServer(respond_without_tls) as peer, pytest.raises(TlsError, match="PLAINTEXT or SASL_PLAIN") as caught:
        peer.connect(TLS)
    assert "it responds to requests without TLS" in caught.value.message
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def write_until_failure(connection: Connection, deadline: Deadline) -> None:
    while True:
        connection.send(1, 4, "Fetch", bytes(1 << 20), flexible=False, deadline=deadline)


@pytest.mark.parametrize("with_notification", [True, False])
def test_write_to_closed_connection(with_notification: bool) -> None:
    """TLS reports the end if it was notified, otherwise the socket does; neither is about certificates."""
    context = server_context()

    def handle(server_side: ServerConnection) -> None:
        with context.wrap_socket(server_side.socket, server_side=True) as secured:
            ServerConnection(secured).respond_to_api_versions()
            if with_notification:
                secured.unwrap()

    with FakeServer(handle) as peer, contextlib.closing(peer.connect(TLS)) as connection:
        with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
            write_until_failure(connection, Deadline.after(120))
        assert connection.closed


def test_later_tls_failure_only_breaks_the_connection() -> None:
    """The broker has responded, so it accepted the client: a retry over another connection may succeed."""
    context = server_context()

    def handle(server_side: ServerConnection) -> None:
        with context.wrap_socket(server_side.socket, server_side=True) as secured:
            tls_side = ServerConnection(secured)
            tls_side.respond_to_api_versions()
            tls_side.request()
            os.write(secured.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
            tls_side.keep_open()

    with FakeServer(handle) as peer, contextlib.closing(peer.connect(TLS)) as connection:
        connection.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(120))
        with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch: TLS failed"):
            connection.receive(Deadline.after(120))


def test_a_connection_that_was_reset_before_the_handshake_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client_socket = socket.create_connection(server.getsockname())
        server_socket, _ = server.accept()
        by_reset(server_socket)
        server_socket.close()
        select.select([client_socket], [], [], 10)
        with pytest.raises(BrokerUnreachableError):
            wrap_socket(client_socket, TLS, "127.0.0.1", Deadline.after(120))
    gc.collect()  # an unclosed socket is reported now, and fails the test
    assert client_socket.fileno() == -1
