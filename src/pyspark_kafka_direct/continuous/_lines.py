"""Lines over a socket that does not block, for who waits for several sockets at once."""

from __future__ import annotations

import socket
from typing import Final

MOST_BYTES: Final = 16 << 20
"""Most bytes of a line. The offsets of half a million partitions take less."""

_AT_ONCE = 1 << 16
_MOST_AT_ONCE = 1 << 20  # bytes that are taken in one go, so that one socket cannot keep its reader for itself


class LineError(ValueError):
    """The other side sends what is no line, or none that is short enough."""


class Lines:
    """Reads and writes lines. Nothing here waits: the owner does, for ``fileno``.

    Args:
        sock: A connected socket, which belongs to this object from now on.
        limit: Most bytes of a line that is read.

    Attributes:
        limit: The same; may be changed.
        ended: Whether the other side has closed the connection, or it broke. What came before was handed out.
    """

    def __init__(self, sock: socket.socket, limit: int = MOST_BYTES) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.limit = limit
        self.ended = False
        self._socket = sock
        self._received = bytearray()
        self._to_send = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1 when it is closed."""
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something is left to send: wait for room to write, and ``flush``."""
        return bool(self._to_send)

    def receive(self) -> list[bytes]:
        """Return the whole lines that are there now, without their line feeds; maybe none.

        What a broken connection still held is handed out; ``ended`` tells that nothing follows.

        Raises:
            LineError: A line is longer than ``limit``.
        """
        searched = len(self._received)
        taken = 0
        while taken < _MOST_AT_ONCE and not self.ended:
            try:
                chunk = self._socket.recv(_AT_ONCE)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.ended = not chunk
            self._received += chunk
            taken += len(chunk)
            if len(chunk) < _AT_ONCE and chunk:
                break  # a wait tells of more
        if self._received.find(b"\n", searched) < 0:
            self._check(len(self._received))
            return []
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        self._check(max(map(len, (*lines, rest))))
        return lines

    def send(self, line: bytes) -> None:
        """Send a line as far as there is room; the rest goes with ``flush``. ``receive`` finds what goes wrong."""
        self._to_send += line
        self.flush()

    def flush(self) -> None:
        """Send what there is room for."""
        while self._to_send:
            try:
                sent = self._socket.send(self._to_send)
            except BlockingIOError:
                return
            except OSError:
                self._to_send.clear()  # nobody is there any more; what was sent before can still be read
                return
            del self._to_send[:sent]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _check(self, length: int) -> None:
        if length > self.limit:
            raise LineError(f"a line of more than {self.limit} bytes")
