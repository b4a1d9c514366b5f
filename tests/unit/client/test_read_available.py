"""Responses that are read as they arrive, over plain sockets and TLS."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params
from tests.unit.client.certified_keys import BROKER, client_context
from tests.unit.client.fake_servers import SETTINGS

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import BrokerUnreachableError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOON = Deadline.after(3600)  # counted from the start of all tests


class ConnectionPair:
    """A connection, and the broker's socket."""

    def __init__(self, connection: Connection, broker: socket.socket) -> None:
        self.connection = connection
        self.broker = broker

    def send_request(self) -> None:
        self.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=SOON)

    def send(self, data: bytes) -> None:
        self.broker.sendall(data)

    def wait(self) -> None:
        """Wait until there is something to read."""
        SYSTEM.wait_readable([self.connection.fileno()], 120)

    def read_response(self) -> None:
        """Read until the response is complete."""
        while not self.connection.read_available():
            self.wait()


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConnectionPair]:
    client_socket, broker_socket = socket.socketpair()
    settings = SETTINGS
    if request.param == "tls":
        (tmp_path / "key.pem").write_text(BROKER.key_pem() + BROKER.pem)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "key.pem")
        client = client_context()
        tls_sockets: list[ssl.SSLSocket] = []
        thread = threading.Thread(
            target=lambda: tls_sockets.append(server.wrap_socket(broker_socket, server_side=True))
        )
        thread.start()
        client_socket = client.wrap_socket(client_socket, server_hostname="localhost")
        thread.join(120)
        (broker_socket,) = tls_sockets
        secure = {"bootstrap.servers": "x:1", "security.protocol": "SSL"}
        settings = replace(SETTINGS, security=parse_client_params(secure).connection.security)
    connection = Connection(settings, client_socket, "there", 9092)
    yield ConnectionPair(connection, broker_socket)
    connection.close()
    broker_socket.close()


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_read_available_does_not_wait(pair: ConnectionPair) -> None:
    pair.send_request()
    assert not pair.connection.read_available()
    assert pair.connection.received_bytes == 0


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 3_000_000])
def test_response_in_pieces_is_complete(pair: ConnectionPair, size: int) -> None:
    random_source = random.Random(size)
    body = random_source.randbytes(size)
    data = frame(body)
    cuts = sorted({0, len(data), *(random_source.randrange(len(data)) for _ in range(12)), *range(min(9, len(data)))})
    pair.send_request()

    def send() -> None:
        for start, end in pairwise(cuts):
            pair.send(data[start:end])

    sender = threading.Thread(target=send)
    sender.start()
    pair.read_response()
    assert pair.connection.received_bytes == size
    assert pair.connection.read_available()  # still complete
    assert bytes(pair.connection.receive(SOON)) == body
    assert pair.connection.idle
    sender.join(120)


def test_receive_waits_for_the_rest(pair: ConnectionPair) -> None:
    pair.send_request()
    data = frame(b"a response")
    pair.send(data[:10])
    pair.wait()
    assert not pair.connection.read_available()
    assert pair.connection.received_bytes == 2
    pair.send(data[10:])
    assert bytes(pair.connection.receive(SOON)) == b"a response"


def test_consecutive_responses(pair: ConnectionPair) -> None:
    pair.send_request()
    pair.send_request()
    pair.send(frame(b"one", 1) + frame(b"two", 2))
    for body in (b"one", b"two"):
        assert not pair.connection.idle
        pair.read_response()
        assert bytes(pair.connection.receive(SOON)) == body
    assert pair.connection.idle
    with pytest.raises(ProtocolError, match="No request is outstanding"):
        pair.connection.receive(SOON)


def test_response_stays_valid_until_next_is_complete(pair: ConnectionPair) -> None:
    pair.send_request()
    pair.send(frame(b"one", 1))
    body = pair.connection.receive(SOON)
    pair.send_request()
    pair.send(frame(b"two", 2)[:7])
    pair.wait()
    assert not pair.connection.read_available()
    assert bytes(body) == b"one"


@pytest.mark.parametrize("sent_bytes", [0, 3, 9])
def test_ended_connection_is_closed(pair: ConnectionPair, sent_bytes: int) -> None:
    pair.send_request()
    pair.connection.send(3, 4, "Metadata", b"body", flexible=False, deadline=SOON)
    pair.send(frame(b"a response")[:sent_bytes])
    pair.broker.close()
    with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
        pair.read_response()
    assert pair.connection.closed


@pytest.mark.parametrize(
    ("data", "message"),
    [(frame(b"x", 7), "no longer match"), (b"HTTP/1.1 400 Bad Request", "An HTTP server responded")],
)
def test_malformed_response_closes_the_connection(pair: ConnectionPair, data: bytes, message: str) -> None:
    pair.send_request()
    pair.send(data)
    with pytest.raises(ProtocolError, match=message):
        pair.read_response()
    assert pair.connection.closed


@pytest.mark.parametrize("size", [0x1503_0300, 0x1603_0110])
def test_a_later_response_whose_size_looks_like_tls(pair: ConnectionPair, size: int) -> None:
    """As that of a fetch of 350 MB."""
    for number, data in ((1, frame(b"one", 1)), (2, struct.pack(">ii", size, 2) + b"the first bytes")):
        pair.send_request()
        pair.send(data)
        pair.wait()
        if number == 1:
            pair.read_response()
            assert bytes(pair.connection.receive(SOON)) == b"one"
    while pair.connection.received_bytes < len(b"the first bytes"):
        assert not pair.connection.read_available()
    assert not pair.connection.closed


def test_a_closed_connection(pair: ConnectionPair) -> None:
    pair.send_request()
    pair.connection.close()
    with pytest.raises(BrokerUnreachableError, match="closed"):
        pair.connection.read_available()
