"""A server whose responses never end, and what a client leaves behind that requests them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS = 120.0

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


def _forever(start: bytes, piece: bytes, pause: float = 0.05) -> Callable[[socket.socket], None]:
    def respond(client: socket.socket) -> None:
        client.sendall(start)
        while True:
            client.sendall(piece)
            time.sleep(pause)

    return respond


ENDLESS = {
    "continue": _forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "many continue": _forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0.0),
    "status": _forever(b"HTTP/1.1 200 ", b"x"),
    "header": _forever(_OK, b"x"),
    "headers of continue": _forever(b"HTTP/1.1 100 Continue\r\n", b"x"),
    "body": _forever(_OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "body until the end": _forever(_OK + b"\r\n", b" "),
    "chunk sizes": _forever(_CHUNKED, b"0"),
    "chunk extensions": _forever(_CHUNKED, b"1;" + b"e" * 1000 + b"\r\n \r\n"),
    "chunks": _forever(_CHUNKED, b"1\r\n \r\n"),
    "trailers": _forever(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"T: x\r\n"),
    "error": _forever(b"HTTP/1.1 500 no\r\nContent-Length: 100000\r\n\r\n", b" "),
    "silence": _forever(b"", b""),
}


@contextlib.contextmanager
def serve(respond: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server, whose connections end when the client has closed its side; the value is its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.recv(1 << 16)
                respond(client)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=run, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):  # it is not connected, but the thread in accept() ends
                listener.shutdown(socket.SHUT_RDWR)


def wait_for_threads(name: str) -> None:
    """Wait until no thread of a client is left."""
    limit = time.monotonic() + _SECONDS
    while any(thread.name == name for thread in threading.enumerate()):
        assert time.monotonic() < limit, f"a thread {name} is left"
        time.sleep(0.02)
