"""Responses over TLS whose records end anywhere: within the size of a frame, or after each byte."""

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
from tests.settings import parse_client_params
from tests.unit.client.certified_keys import BROKER, client_context
from tests.unit.client.fake_servers import SETTINGS

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

SECURITY = parse_client_params({"bootstrap.servers": "x:1", "security.protocol": "SSL"}).connection.security


class CountingSSLSocket(ssl.SSLSocket):
    """Counts calls of ``settimeout``."""

    timeouts = 0

    def settimeout(self, value: float | None) -> None:
        type(self).timeouts += 1
        super().settimeout(value)


class TlsConnectionPair:
    """A TLS connection whose broker side sends exactly the bytes of the test."""

    def __init__(self, version: ssl.TLSVersion, key: Path) -> None:
        key.write_text(BROKER.key_pem() + BROKER.pem)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(key)
        server.minimum_version = server.maximum_version = version
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = server.wrap_bio(self._in, self._out, server_side=True)
        client_socket, self.broker = socket.socketpair()
        client = client_context()
        client.sslsocket_class = CountingSSLSocket
        thread = threading.Thread(target=self._do_handshake)
        thread.start()
        sock = client.wrap_socket(client_socket, server_hostname="localhost")
        thread.join(120)
        self.connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092)
        self.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(120))

    def records(self, *parts: bytes) -> bytes:
        """Return each part as a TLS record."""
        for part in parts:
            self._tls.write(part)
        return self._out.read()

    def end(self) -> bytes:
        """Return TLS's close notification."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._out.read()

    def receive(self, seconds: float = 120) -> bytes:
        return bytes(self.connection.receive(Deadline.after(seconds)))

    def _do_handshake(self) -> None:
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
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TlsConnectionPair]:
    pair = TlsConnectionPair(request.param, tmp_path / "key.pem")
    yield pair
    pair.connection.close()
    pair.broker.close()


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def in_background(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_response_byte_by_byte(pair: TlsConnectionPair) -> None:
    data = pair.records(frame(b"a response"))

    def send() -> None:
        for byte in data:
            pair.broker.sendall(bytes([byte]))
            time.sleep(0.0005)

    sender = in_background(send)
    assert pair.receive() == b"a response"
    sender.join(120)


@pytest.mark.parametrize("first_size", [1, 3, 4, 7, 8, 9])
def test_tls_record_may_end_within_frame_size(pair: TlsConnectionPair, first_size: int) -> None:
    data = frame(b"a response")
    pair.broker.sendall(pair.records(data[:first_size], data[first_size:]))
    assert pair.receive() == b"a response"


def test_tls_record_may_have_start_of_next_frame(pair: TlsConnectionPair) -> None:
    pair.connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(120))
    data = frame(b"one") + frame(b"two", 2)
    pair.broker.sendall(pair.records(data[:13], data[13:]))
    assert pair.receive() == b"one"
    assert pair.connection.has_response()
    assert pair.receive() == b"two"


@pytest.mark.parametrize("sent_bytes", [0, 5, 10])
@pytest.mark.parametrize("notice", [True, False], ids=["with-notice", "without-notice"])
def test_connection_ends_within_a_frame(pair: TlsConnectionPair, sent_bytes: int, notice: bool) -> None:
    data = pair.records(frame(b"a response")[:sent_bytes]) if sent_bytes else b""
    pair.broker.sendall(data + (pair.end() if notice else b""))
    pair.broker.close()
    with pytest.raises(BrokerUnreachableError, match="The connection broke during Fetch"):
        pair.receive()
    assert pair.connection.closed


def test_slow_broker_times_out(pair: TlsConnectionPair) -> None:
    finished = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            pair.broker.sendall(pair.records(frame(bytes(100_000))[:8]))
            while not finished.wait(0.01):
                pair.broker.sendall(pair.records(b"\0"))

    sender = in_background(send)
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match="No response to Fetch in time"):
        pair.receive(0.3)
    assert time.monotonic() - started >= 0.3
    finished.set()
    sender.join(120)


def test_a_frame_of_many_records_sets_one_timeout(pair: TlsConnectionPair) -> None:
    body = bytes(3_000_000)
    data = pair.records(*(frame(body)[at : at + 16384] for at in range(0, len(body) + 8, 16384)))
    sender = in_background(lambda: pair.broker.sendall(data))
    before = CountingSSLSocket.timeouts
    assert pair.receive() == body
    assert CountingSSLSocket.timeouts == before + 1
    sender.join(120)


class RecordingSystem(RealSystem):
    """Records the sockets of each wait."""

    def __init__(self) -> None:
        self.waits: list[tuple[Collection[int], Collection[int]]] = []

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        self.waits.append((to_read, to_write))
        return {*to_read, *to_write}


class WriteBlockedSocket(socket.socket):
    """TLS has to write before it can read on, and the socket is full."""

    tries = 0

    def recv_into(self, buffer: memoryview, *_: int) -> int:  # type: ignore[override]
        self.tries += 1
        if self.tries == 1:
            raise ssl.SSLWantWriteError
        if self.tries == 2:
            raise ssl.SSLWantReadError
        return super().recv_into(buffer)


def test_read_waits_for_tls_to_write() -> None:
    pair = socket.socketpair()
    sock, broker = WriteBlockedSocket(fileno=pair[0].detach()), pair[1]
    system = RecordingSystem()
    connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092, system)
    with broker:
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(120, system=system))
        broker.sendall(frame(b"a response"))
        assert bytes(connection.receive(Deadline.after(120, system=system))) == b"a response"
        assert system.waits == [((), (sock.fileno(),)), ((sock.fileno(),), ())]
        connection.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_tls_key_update_in_both_directions(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(BROKER.key_pem() + BROKER.pem)
    command = ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", str(key), "-key", str(key), "-tls1_3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        unmatched_output = all_output = b""

        def wait_for_more() -> None:
            nonlocal unmatched_output, all_output
            assert server.stdout is not None
            more = server.stdout.read(4096)
            assert more, unmatched_output
            unmatched_output += more
            all_output += more

        def wait_for(text: bytes) -> None:
            nonlocal unmatched_output
            while text not in unmatched_output:
                wait_for_more()
            unmatched_output = unmatched_output.replace(text, b"")

        while (listens := re.search(rb"ACCEPT 127.0.0.1:(\d+)\n", unmatched_output)) is None:
            wait_for_more()
        port = int(listens[1])
        client = client_context()
        sock = client.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        connection = Connection(replace(SETTINGS, security=SECURITY), sock, "there", 9092)
        for number in (1, 2, 3):
            text = b"body %d" % number
            connection.send(1, 4, "Fetch", text, flexible=False, deadline=Deadline.after(120))
            wait_for(text)
            server.stdin.write(b"K\n")  # openssl's command for a key update, recognized only if read alone
            while any(fcntl.ioctl(server.stdin, termios.FIONREAD, bytes(4))):
                time.sleep(0.01)
            server.stdin.write(frame(b"response %d\n" % number, number))
            assert bytes(connection.receive(Deadline.after(120))) == b"response %d\n" % number
        connection.send(1, 4, "Fetch", b"the end", flexible=False, deadline=Deadline.after(120))
        wait_for(b"the end")
        assert all_output.count(b"SSL_do_handshake -> 1") == 3
        connection.close()
        server.kill()
