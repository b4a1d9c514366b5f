"""Lines over non-blocking sockets."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.control_socket import ControlLineError, ControlSocket

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[ControlSocket, socket.socket]]:
    reader, peer = connected()
    yield reader, peer
    reader.close()
    peer.close()


def connected(max_line_bytes: int = 1000) -> tuple[ControlSocket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    peer.settimeout(120)
    return ControlSocket(one, max_line_bytes), peer


def wait_and_receive(reader: ControlSocket) -> list[bytes]:
    SYSTEM.wait_ready([reader.fileno()], [], 120)
    return reader.receive()


def receive_all(reader: ControlSocket) -> None:
    while not reader.closed_by_peer:
        wait_and_receive(reader)


def test_receive_does_not_block(pair: tuple[ControlSocket, socket.socket]) -> None:
    assert pair[0].receive() == []
    assert not pair[0].closed_by_peer


def test_only_complete_lines_are_returned(pair: tuple[ControlSocket, socket.socket]) -> None:
    reader, peer = pair
    peer.sendall(b"one\ntw")
    assert wait_and_receive(reader) == [b"one"]
    peer.sendall(b"o")
    assert wait_and_receive(reader) == []
    peer.sendall(b"\n\nthree\n")
    assert wait_and_receive(reader) == [b"two", b"", b"three"]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))), st.integers(1, 30))
def test_lines_in_chunks_of_any_size(sent: list[bytes], size: int) -> None:
    reader, peer = connected()
    text = b"".join(line + b"\n" for line in sent)
    received: list[bytes] = []
    for begin in range(0, len(text), size):
        peer.sendall(text[begin : begin + size])
        received += wait_and_receive(reader)
    peer.close()
    while not reader.closed_by_peer:
        received += wait_and_receive(reader)
    reader.close()
    assert received == sent


def test_lines_before_the_end_are_returned(pair: tuple[ControlSocket, socket.socket]) -> None:
    reader, peer = pair
    peer.sendall(b"last line\nhalf")
    peer.close()
    received = []
    while not reader.closed_by_peer:
        received += wait_and_receive(reader)
    assert received == [b"last line"]
    assert reader.receive() == []


@pytest.mark.parametrize("sent", [b"x" * 1001, b"x" * 1001 + b"\n", b"ok\n" + b"x" * 1001, b"x" * 1001 + b"\nok\n"])
def test_a_line_that_is_too_long_is_rejected(pair: tuple[ControlSocket, socket.socket], sent: bytes) -> None:
    pair[1].sendall(sent)
    with pytest.raises(ControlLineError, match="more than 1000 bytes"):
        receive_all(pair[0])


def test_a_line_of_the_maximum_length(pair: tuple[ControlSocket, socket.socket]) -> None:
    pair[1].sendall(b"x" * 1000 + b"\n")
    assert wait_and_receive(pair[0]) == [b"x" * 1000]


def test_send_does_not_block(pair: tuple[ControlSocket, socket.socket]) -> None:
    reader, peer = pair
    line = b"x" * (32 << 20) + b"\n"
    reader.send(line)
    assert reader.has_unsent
    received = 0
    while received < len(line):
        received += len(peer.recv(1 << 20))
        reader.flush()
    assert not reader.has_unsent


def test_receive_reports_a_broken_connection(pair: tuple[ControlSocket, socket.socket]) -> None:
    reader, peer = pair
    peer.close()
    for _ in range(3):
        reader.send(b"x" * 1000 + b"\n")
        assert not reader.has_unsent
        reader.receive()
    assert reader.closed_by_peer


def test_one_call_receives_a_limited_amount(pair: tuple[ControlSocket, socket.socket]) -> None:
    reader, peer = pair
    has_unsent = (b"x" * 999 + b"\n") * 20_000
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while has_unsent:
            has_unsent = has_unsent[peer.send(has_unsent) :]
    assert 0 < len(wait_and_receive(reader)) * 1000 <= (1 << 20) + (1 << 16)
