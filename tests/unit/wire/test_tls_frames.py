"""Answers over TLS, whose records end where they like: within the size of a frame, or byte by byte."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.parties import BROKER, CA
from tests.unit.wire.peers import SETTINGS

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

SECURITY = connection_settings({"bootstrap.servers": "x:1", "security.protocol": "SSL"}).connection.security


class Counting(ssl.SSLSocket):
    """Counts the timeouts that were set."""

    timeouts = 0

    def settimeout(self, value: float | None) -> None:
        type(self).timeouts += 1
        super().settimeout(value)


class Line:
    """A connection over TLS; the broker's end of it lets through what the test says, to the byte."""

    def __init__(self, version: ssl.TLSVersion, key: Path) -> None:
        key.write_text(BROKER.key_pem() + BROKER.pem)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(key)
        server.minimum_version = server.maximum_version = version
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = server.wrap_bio(self._in, self._out, server_side=True)
        ours, self.broker = socket.socketpair()
        client = ssl.create_default_context(cadata=CA.pem)
        client.sslsocket_class = Counting
        thread = threading.Thread(target=self._shake_hands)
        thread.start()
        sock = client.wrap_socket(ours, server_hostname="localhost")
        thread.join(20)
        self.connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092)
        self.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(20))

    def records(self, *parts: bytes) -> bytes:
        """Return each part as a TLS record."""
        for part in parts:
            self._tls.write(part)
        return self._out.read()

    def end(self) -> bytes:
        """Return TLS's notice of the end."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._out.read()

    def receive(self, seconds: float = 20) -> bytes:
        return bytes(self.connection.receive(Deadline.after(seconds)))

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.broker.sendall(self._out.read())
                self._in.write(self.broker.recv(65536))
            else:
                self.broker.sendall(self._out.read())
                return


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    line = Line(request.param, tmp_path / "key.pem")
    yield line
    line.connection.close()
    line.broker.close()


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def in_background(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_broker_that_sends_byte_by_byte(line: Line) -> None:
    data = line.records(frame(b"an answer"))

    def send() -> None:
        for byte in data:
            line.broker.sendall(bytes([byte]))
            time.sleep(0.0005)

    sender = in_background(send)
    assert line.receive() == b"an answer"
    sender.join(20)


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 8, 9])
def test_a_record_may_end_within_the_size_of_a_frame(line: Line, cut: int) -> None:
    data = frame(b"an answer")
    line.broker.sendall(line.records(data[:cut], data[cut:]))
    assert line.receive() == b"an answer"


def test_a_record_may_hold_the_begin_of_the_next_frame(line: Line) -> None:
    line.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(20))
    data = frame(b"one") + frame(b"two", 2)
    line.broker.sendall(line.records(data[:13], data[13:]))
    assert line.receive() == b"one"
    assert line.connection.has_answer()
    assert line.receive() == b"two"


@pytest.mark.parametrize("told", [0, 5, 10])
@pytest.mark.parametrize("notice", [True, False], ids=["with-notice", "without-notice"])
def test_an_end_in_the_middle_of_a_frame(line: Line, told: int, notice: bool) -> None:
    data = line.records(frame(b"an answer")[:told]) if told else b""
    line.broker.sendall(data + (line.end() if notice else b""))
    line.broker.close()
    with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
        line.receive()
    assert line.connection.closed


def test_a_broker_that_sends_too_slowly_meets_the_deadline(line: Line) -> None:
    over = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            line.broker.sendall(line.records(frame(bytes(100_000))[:8]))
            while not over.wait(0.01):
                line.broker.sendall(line.records(b"\0"))

    sender = in_background(send)
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match="No answer to Fetch in time"):
        line.receive(0.3)
    assert 0.3 <= time.monotonic() - started < 10
    over.set()
    sender.join(20)


def test_a_frame_of_many_records_sets_one_timeout(line: Line) -> None:
    body = bytes(3_000_000)
    data = line.records(*(frame(body)[at : at + 16384] for at in range(0, len(body) + 8, 16384)))
    sender = in_background(lambda: line.broker.sendall(data))
    before = Counting.timeouts
    assert line.receive() == body
    assert Counting.timeouts == before + 1
    sender.join(20)


class Waits(RealSystem):
    """Notes what was waited for."""

    def __init__(self) -> None:
        self.waits: list[tuple[Collection[int], Collection[int]]] = []

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        self.waits.append((to_read, to_write))
        return {*to_read, *to_write}


class Full(socket.socket):
    """TLS has something to send before it can read on, and no room for it."""

    tries = 0

    def recv_into(self, buffer: memoryview, *_: int) -> int:  # type: ignore[override]
        self.tries += 1
        if self.tries == 1:
            raise ssl.SSLWantWriteError
        if self.tries == 2:
            raise ssl.SSLWantReadError
        return super().recv_into(buffer)


def test_what_tls_has_to_send_itself_is_waited_for() -> None:
    pair = socket.socketpair()
    sock, broker = Full(fileno=pair[0].detach()), pair[1]
    system = Waits()
    connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092, system)
    with broker:
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(20, system=system))
        broker.sendall(frame(b"an answer"))
        assert bytes(connection.receive(Deadline.after(20, system=system))) == b"an answer"
        assert system.waits == [((), (sock.fileno(),)), ((sock.fileno(),), ())]
        connection.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_a_broker_that_changes_its_keys_and_wants_ours_changed(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(BROKER.key_pem() + BROKER.pem)
    command = ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", str(key), "-key", str(key), "-tls1_3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        printed = everything = b""

        def wait_for_more() -> None:
            nonlocal printed, everything
            assert server.stdout is not None
            more = server.stdout.read(4096)
            assert more, printed
            printed += more
            everything += more

        def wait_for(text: bytes) -> None:
            nonlocal printed
            while text not in printed:
                wait_for_more()
            printed = printed.replace(text, b"")

        while (listens := re.search(rb"ACCEPT 127.0.0.1:(\d+)\n", printed)) is None:
            wait_for_more()
        port = int(listens[1])
        client = ssl.create_default_context(cadata=CA.pem)
        sock = client.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092)
        for number in (1, 2, 3):
            text = b"body %d" % number
            connection.send(1, 4, "Fetch", text, flexible=False, deadline=Deadline.after(20))
            wait_for(text)
            server.stdin.write(b"K\n")  # the command for it, if it is read by itself
            while any(fcntl.ioctl(server.stdin, termios.FIONREAD, bytes(4))):
                time.sleep(0.01)
            server.stdin.write(frame(b"answer %d\n" % number, number))
            assert bytes(connection.receive(Deadline.after(20))) == b"answer %d\n" % number
        connection.send(1, 4, "Fetch", b"the end", flexible=False, deadline=Deadline.after(20))
        wait_for(b"the end")
        assert everything.count(b"SSL_do_handshake -> 1") == 3
        connection.close()
        server.kill()
