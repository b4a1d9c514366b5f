"""Connections that end early: in the TLS handshake, in authentication, in the first write."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import ssl
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params
from tests.unit.client.certified_keys import BROKER, CA
from tests.unit.client.fake_broker import PARTITION, FakeBroker
from tests.unit.client.fake_servers import KAFKA_4, FakeServer, ServerConnection

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.keystore import private_file
from pyspark_kafka_direct.client.security.tls_handshake import wrap_socket
from pyspark_kafka_direct.errors import BrokerUnreachableError, TlsError
from pyspark_kafka_direct.offsets import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.options.settings import ConnectionSettings

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


def after_client_hello(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)


def in_a_record(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)
    sock.sendall(b"\x16\x03\x03\x00\x7a")  # a record of 122 bytes begins


ENDINGS = pytest.mark.parametrize("ending", [at_once, by_reset, after_client_hello, in_a_record])


def behind_load_balancer(broker: FakeBroker, ending: Ending, times: int) -> ConnectionSettings:
    """Return settings for TLS to a broker; the first connections end before they reach it."""
    context = server_context()
    remaining = [ending] * times

    def on_connect(sock: socket.socket) -> socket.socket:
        if remaining:
            remaining.pop()(sock)
            sock.close()
            raise ConnectionAbortedError
        return context.wrap_socket(sock, server_side=True)

    broker.on_connect = on_connect
    return replace(broker.settings, security=TLS.security)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker
    POOL.clear()


def latest(cluster: ClusterClient) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


@ENDINGS
def test_first_connections_closed_by_load_balancer_are_retried(broker: FakeBroker, ending: Ending) -> None:
    assert latest(ClusterClient(behind_load_balancer(broker, ending, 3))) == 42


@ENDINGS
def test_later_connections_closed_by_load_balancer_are_retried(broker: FakeBroker, ending: Ending) -> None:
    cluster = ClusterClient(behind_load_balancer(broker, ending, 0))
    assert latest(cluster) == 42
    POOL.clear()
    behind_load_balancer(broker, ending, 3)
    assert latest(cluster) == 42


def test_next_bootstrap_server_is_called(broker: FakeBroker) -> None:
    with FakeBroker() as failing:
        behind_load_balancer(failing, after_client_hello, 1_000_000)
        settings = behind_load_balancer(broker, after_client_hello, 0)
        addresses = (("127.0.0.1", failing.port), *settings.bootstrap_servers)
        assert latest(ClusterClient(replace(settings, bootstrap_servers=addresses), retries=0)) == 42


def test_unreached_cluster_fails_with_the_likely_cause(broker: FakeBroker) -> None:
    settings = replace(behind_load_balancer(broker, after_client_hello, 1_000_000), connect_timeout_ms=500)
    with pytest.raises(BrokerUnreachableError, match=r"set kafka\.security\.protocol to PLAINTEXT") as caught:
        latest(ClusterClient(replace(settings, default_api_timeout_ms=250_000)))
    assert caught.value.broker == f"127.0.0.1:{broker.port}"


def test_untrusted_certificate_is_not_retried(broker: FakeBroker) -> None:
    context = server_context()
    connections = []

    def on_connect(sock: socket.socket) -> socket.socket:
        connections.append(sock)
        return context.wrap_socket(sock, server_side=True)

    broker.on_connect = on_connect
    default_trust = parse_client_params({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}).connection
    with pytest.raises(TlsError, match="not signed by a CA this system trusts"):
        latest(ClusterClient(replace(broker.settings, security=default_trust.security)))
    assert len(connections) == 1


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


@pytest.mark.parametrize(("responses", "name"), [(0, "SaslHandshake"), (1, "SaslAuthenticate")])
def test_connection_closed_during_authentication(responses: int, name: str) -> None:
    """Brokers return a reason for rejections since Kafka 1.0: an end without one may be a restart, and is retried."""

    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions({**KAFKA_4, 17: (0, 1), 36: (0, 2)})
        for _ in range(responses):
            _, _, correlation_id = server_side.request()
            server_side.respond(correlation_id, struct.pack(">hih", 0, 1, 5) + b"PLAIN")
        server_side.request()
        server_side.socket.close()

    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    settings = parse_client_params(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
        }
    ).connection
    with (
        FakeServer(handle) as peer,
        pytest.raises(BrokerUnreachableError, match=f"broke during {name}.*without a reason") as caught,
    ):
        Connection.open(settings, "127.0.0.1", peer.port, Deadline.after(120))
    assert "hunter2" not in str(caught.value)


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
