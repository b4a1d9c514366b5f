"""Answers that are read as they come, over plain sockets and TLS."""

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
from tests.unit.wire.parties import BROKER, CA
from tests.unit.wire.peers import SETTINGS

from pyspark_kafka_direct.errors import BrokerUnreachableError, ProtocolError
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOON = Deadline.after(3600)  # counted from the start of all tests


class Line:
    """A connection, and the broker's end of it."""

    def __init__(self, connection: Connection, broker: socket.socket) -> None:
        self.connection = connection
        self.broker = broker

    def ask(self) -> None:
        self.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=SOON)

    def tell(self, data: bytes) -> None:
        self.broker.sendall(data)

    def wait(self) -> None:
        """Waits until there is something to read."""
        SYSTEM.wait_readable([self.connection.fileno()], 20)

    def gather(self) -> None:
        """Gathers until the answer is whole."""
        while not self.connection.gather():
            self.wait()


@pytest.fixture(params=["plain", "tls"])
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    ours, theirs = socket.socketpair()
    settings = SETTINGS
    if request.param == "tls":
        (tmp_path / "key.pem").write_text(BROKER.key_pem() + BROKER.pem)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "key.pem")
        client = ssl.create_default_context(cadata=CA.pem)
        shaken: list[ssl.SSLSocket] = []
        thread = threading.Thread(target=lambda: shaken.append(server.wrap_socket(theirs, server_side=True)))
        thread.start()
        ours = client.wrap_socket(ours, server_hostname="localhost")
        thread.join(20)
        (theirs,) = shaken
        secure = {"bootstrap.servers": "x:1", "security.protocol": "SSL"}
        settings = replace(SETTINGS, security=connection_settings(secure).connection.security)
    connection = Connection(settings, ours, "there", 9092)
    yield Line(connection, theirs)
    connection.close()
    theirs.close()


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_nothing_is_waited_for(line: Line) -> None:
    line.ask()
    assert not line.connection.gather()
    assert line.connection.gathered == 0


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 3_000_000])
def test_an_answer_in_pieces_is_whole_in_the_end(line: Line, size: int) -> None:
    chosen = random.Random(size)
    body = chosen.randbytes(size)
    data = frame(body)
    cuts = sorted({0, len(data), *(chosen.randrange(len(data)) for _ in range(12)), *range(min(9, len(data)))})
    line.ask()

    def tell() -> None:
        for begin, end in pairwise(cuts):
            line.tell(data[begin:end])

    teller = threading.Thread(target=tell)
    teller.start()
    line.gather()
    assert line.connection.gathered == size
    assert line.connection.gather()  # again, it is whole
    assert bytes(line.connection.receive(SOON)) == body
    assert line.connection.idle
    teller.join(20)


def test_the_rest_can_be_waited_for(line: Line) -> None:
    line.ask()
    data = frame(b"an answer")
    line.tell(data[:10])
    line.wait()
    assert not line.connection.gather()
    assert line.connection.gathered == 2
    line.tell(data[10:])
    assert bytes(line.connection.receive(SOON)) == b"an answer"


def test_one_answer_after_the_other(line: Line) -> None:
    line.ask()
    line.ask()
    line.tell(frame(b"one", 1) + frame(b"two", 2))
    for body in (b"one", b"two"):
        line.gather()
        assert bytes(line.connection.receive(SOON)) == body


def test_an_answer_stays_valid_until_the_next_is_gathered(line: Line) -> None:
    line.ask()
    line.tell(frame(b"one", 1))
    body = line.connection.receive(SOON)
    line.ask()
    line.tell(frame(b"two", 2)[:7])
    line.wait()
    assert not line.connection.gather()
    assert bytes(body) == b"one"


@pytest.mark.parametrize("told", [0, 3, 9])
def test_a_connection_that_ends_is_closed(line: Line, told: int) -> None:
    line.ask()
    line.tell(frame(b"an answer")[:told])
    line.broker.close()
    with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
        line.gather()
    assert line.connection.closed


@pytest.mark.parametrize(
    ("data", "message"),
    [(frame(b"x", 7), "out of step"), (b"HTTP/1.1 400 Bad Request", "An HTTP server answered")],
)
def test_what_cannot_be_an_answer(line: Line, data: bytes, message: str) -> None:
    line.ask()
    line.tell(data)
    with pytest.raises(ProtocolError, match=message):
        line.gather()
    assert line.connection.closed


def test_a_closed_connection(line: Line) -> None:
    line.ask()
    line.connection.close()
    with pytest.raises(BrokerUnreachableError, match="closed"):
        line.connection.gather()
