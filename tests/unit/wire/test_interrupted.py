"""Connections that end before they are of use: in the TLS handshake, in the log-in, in the first write."""

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
from tests.unit.wire.parties import BROKER, CA
from tests.unit.wire.peers import KAFKA_4, Caller, Peer
from tests.unit.wire.scripted import PARTITION, Broker

from pyspark_kafka_direct.errors import BrokerUnreachableError, TlsError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.pool import POOL
from pyspark_kafka_direct.wire.security._certificates import private_file
from pyspark_kafka_direct.wire.security.tls import wrap_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.settings.connection import ConnectionSettings

    Ending = Callable[[socket.socket], None]

TLS = connection_settings(
    {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.truststore.certificates": CA.pem}
).connection


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with private_file((BROKER.pem + BROKER.key_pem()).encode()) as path:
        context.load_cert_chain(path)
    return context


def at_once(_: socket.socket) -> None:
    """As a balancer without a healthy target."""


def by_reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def after_the_hello(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)


def in_a_record(sock: socket.socket) -> None:
    assert sock.recv(1 << 16)
    sock.sendall(b"\x16\x03\x03\x00\x7a")  # a record of 122 bytes begins


ENDINGS = pytest.mark.parametrize("ending", [at_once, by_reset, after_the_hello, in_a_record])


def behind_a_balancer(broker: Broker, ending: Ending, times: int) -> ConnectionSettings:
    """TLS to a broker; the first connections end before they reach it."""
    context = server_context()
    left = [ending] * times

    def welcome(sock: socket.socket) -> socket.socket:
        if left:
            left.pop()(sock)
            sock.close()
            raise ConnectionAbortedError
        return context.wrap_socket(sock, server_side=True)

    broker.welcome = welcome
    return replace(broker.settings, security=TLS.security)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
    POOL.clear()


def latest(cluster: Cluster) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


@ENDINGS
def test_a_balancer_that_ends_the_first_connections(broker: Broker, ending: Ending) -> None:
    assert latest(Cluster(behind_a_balancer(broker, ending, 3))) == 42


@ENDINGS
def test_connections_that_end_later_on(broker: Broker, ending: Ending) -> None:
    cluster = Cluster(behind_a_balancer(broker, ending, 0))
    assert latest(cluster) == 42
    POOL.clear()
    behind_a_balancer(broker, ending, 3)
    assert latest(cluster) == 42


def test_another_bootstrap_server_is_asked(broker: Broker) -> None:
    with Broker() as bad:
        behind_a_balancer(bad, after_the_hello, 1_000_000)
        settings = behind_a_balancer(broker, after_the_hello, 0)
        addresses = (("127.0.0.1", bad.port), *settings.bootstrap_servers)
        assert latest(Cluster(replace(settings, bootstrap_servers=addresses), retries=0)) == 42


def test_a_cluster_that_was_never_reached_is_given_up_with_the_likely_cause(broker: Broker) -> None:
    settings = replace(behind_a_balancer(broker, after_the_hello, 1_000_000), connect_timeout_ms=500)
    with pytest.raises(BrokerUnreachableError, match=r"set kafka\.security\.protocol to PLAINTEXT") as caught:
        latest(Cluster(replace(settings, default_api_timeout_ms=250_000)))
    assert caught.value.broker == f"127.0.0.1:{broker.port}"


def test_a_certificate_is_refused_once(broker: Broker) -> None:
    context = server_context()
    asked = []

    def welcome(sock: socket.socket) -> socket.socket:
        asked.append(sock)
        return context.wrap_socket(sock, server_side=True)

    broker.welcome = welcome
    trusting_others = connection_settings({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}).connection
    with pytest.raises(TlsError, match="not signed by a CA this system trusts"):
        latest(Cluster(replace(broker.settings, security=trusting_others.security)))
    assert len(asked) == 1


def write_on(connection: Connection, deadline: Deadline) -> None:
    while True:
        connection.send(1, 4, "Fetch", bytes(1 << 20), flexible=False, deadline=deadline)


@pytest.mark.parametrize("politely", [True, False])
def test_a_write_into_a_connection_that_ended(politely: bool) -> None:
    """With a notice TLS says so, without one the socket does: neither is about certificates."""
    context = server_context()

    def talk(caller: Caller) -> None:
        with context.wrap_socket(caller.socket, server_side=True) as secured:
            Caller(secured).versions()
            if politely:
                secured.unwrap()

    with Peer(talk) as peer, contextlib.closing(peer.connect(TLS)) as connection:
        with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
            write_on(connection, Deadline.after(60))
        assert connection.closed


def test_tls_that_goes_wrong_later_ends_the_connection_only() -> None:
    """The broker has answered, so it has accepted us: a damaged record is cured by another connection."""
    context = server_context()

    def talk(caller: Caller) -> None:
        with context.wrap_socket(caller.socket, server_side=True) as secured:
            peer_side = Caller(secured)
            peer_side.versions()
            peer_side.request()
            os.write(secured.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
            peer_side.stay()

    with Peer(talk) as peer, contextlib.closing(peer.connect(TLS)) as connection:
        connection.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(20))
        with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch: TLS failed"):
            connection.receive(Deadline.after(20))


@pytest.mark.parametrize(("answers", "name"), [(0, "SaslHandshake"), (1, "SaslAuthenticate")])
def test_a_log_in_that_is_cut_off(answers: int, name: str) -> None:
    """A broker that refuses says so since Kafka 1.0: an end without a word may be a restart, and is tried again."""

    def talk(caller: Caller) -> None:
        caller.versions({**KAFKA_4, 17: (0, 1), 36: (0, 2)})
        for _ in range(answers):
            _, _, correlation_id = caller.request()
            caller.answer(correlation_id, struct.pack(">hih", 0, 1, 5) + b"PLAIN")
        caller.request()
        caller.socket.close()

    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    settings = connection_settings(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
        }
    ).connection
    with (
        Peer(talk) as peer,
        pytest.raises(BrokerUnreachableError, match=f"broke during {name}.*gave no reason") as caught,
    ):
        Connection.open(settings, "127.0.0.1", peer.port, Deadline.after(20))
    assert "hunter2" not in str(caught.value)


def test_a_connection_that_was_reset_before_the_handshake_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        by_reset(theirs)
        theirs.close()
        select.select([ours], [], [], 10)
        with pytest.raises(BrokerUnreachableError):
            wrap_socket(ours, TLS, "127.0.0.1", Deadline.after(10))
    gc.collect()  # a socket that was left open is found now, and fails the test
    assert ours.fileno() == -1
