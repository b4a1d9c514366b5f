"""Lines over sockets that do not block."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous._lines import LineError, Lines
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[Lines, socket.socket]]:
    lines, other = connected()
    yield lines, other
    lines.close()
    other.close()


def connected(limit: int = 1000) -> tuple[Lines, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    other.settimeout(20)
    return Lines(one, limit), other


def wait(lines: Lines) -> list[bytes]:
    SYSTEM.wait_ready([lines.fileno()], [], 20)
    return lines.receive()


def receive_all(lines: Lines) -> None:
    while not lines.ended:
        wait(lines)


def test_nothing_is_waited_for(pair: tuple[Lines, socket.socket]) -> None:
    assert pair[0].receive() == []
    assert not pair[0].ended


def test_lines_are_handed_out_when_they_are_whole(pair: tuple[Lines, socket.socket]) -> None:
    lines, other = pair
    other.sendall(b"one\ntw")
    assert wait(lines) == [b"one"]
    other.sendall(b"o")
    assert wait(lines) == []
    other.sendall(b"\n\nthree\n")
    assert wait(lines) == [b"two", b"", b"three"]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))), st.integers(1, 30))
def test_it_does_not_matter_how_they_are_cut(sent: list[bytes], size: int) -> None:
    lines, other = connected()
    text = b"".join(line + b"\n" for line in sent)
    got: list[bytes] = []
    for begin in range(0, len(text), size):
        other.sendall(text[begin : begin + size])
        got += wait(lines)
    other.close()
    while not lines.ended:
        got += wait(lines)
    lines.close()
    assert got == sent


def test_what_came_before_the_end_is_handed_out(pair: tuple[Lines, socket.socket]) -> None:
    lines, other = pair
    other.sendall(b"last words\nhalf")
    other.close()
    got = []
    while not lines.ended:
        got += wait(lines)
    assert got == [b"last words"]
    assert lines.receive() == []


@pytest.mark.parametrize("sent", [b"x" * 1001, b"x" * 1001 + b"\n", b"ok\n" + b"x" * 1001, b"x" * 1001 + b"\nok\n"])
def test_a_line_that_is_too_long_is_refused(pair: tuple[Lines, socket.socket], sent: bytes) -> None:
    pair[1].sendall(sent)
    with pytest.raises(LineError, match="more than 1000 bytes"):
        receive_all(pair[0])


def test_a_line_may_be_as_long_as_the_limit(pair: tuple[Lines, socket.socket]) -> None:
    pair[1].sendall(b"x" * 1000 + b"\n")
    assert wait(pair[0]) == [b"x" * 1000]


def test_who_reads_slowly_is_not_waited_for(pair: tuple[Lines, socket.socket]) -> None:
    lines, other = pair
    line = b"x" * (32 << 20) + b"\n"
    lines.send(line)
    assert lines.unsent
    got = 0
    while got < len(line):
        got += len(other.recv(1 << 20))
        lines.flush()
    assert not lines.unsent


def test_sending_to_nobody_is_noticed_by_receiving(pair: tuple[Lines, socket.socket]) -> None:
    lines, other = pair
    other.close()
    for _ in range(3):
        lines.send(b"x" * 1000 + b"\n")
        assert not lines.unsent
        lines.receive()
    assert lines.ended


def test_one_socket_does_not_keep_its_reader(pair: tuple[Lines, socket.socket]) -> None:
    lines, other = pair
    unsent = (b"x" * 999 + b"\n") * 20_000
    other.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while unsent:
            unsent = unsent[other.send(unsent) :]
    assert 0 < len(wait(lines)) * 1000 <= (1 << 20) + (1 << 16)
