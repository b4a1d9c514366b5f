"""Servers that respond by a script, on their own ports."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

from kafka.protocol.metadata import ApiVersionsResponse

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = ConnectionSettings((("127.0.0.1", 1),), request_timeout_ms=120_000)
KAFKA_4 = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4)}


class FakeServer:
    """Listens on its own port and runs a handler for each connection."""

    def __init__(self, handler: Callable[[ServerConnection], object]) -> None:
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(60)  # it may have accepted a connection that is not in the list yet
        for sock in self._open:
            sock.close()

    def connect(self, settings: ConnectionSettings = SETTINGS, seconds: float = 120) -> Connection:
        return Connection.open(settings, "127.0.0.1", self.port, Deadline.after(seconds))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._handler(ServerConnection(sock))


class ServerConnection:
    """The server's side of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def request(self) -> tuple[int, int, int]:
        """Return API key, version and correlation id of the next request."""
        api_key, version, correlation_id = struct.unpack_from(">hhi", self.frame())
        return api_key, version, correlation_id

    def frame(self) -> bytes:
        """Return the next request without its size."""
        return self._read(struct.unpack(">i", self._read(4))[0])

    def respond(self, correlation_id: int, body: bytes) -> None:
        self.socket.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def respond_to_api_versions(self, table: dict[int, tuple[int, int]] = KAFKA_4) -> int:
        """Respond to one ApiVersions request; return its version."""
        _, version, correlation_id = self.request()
        keys = [
            ApiVersionsResponse.ApiVersion(version=min(version, 4), api_key=key, min_version=low, max_version=high)
            for key, (low, high) in table.items()
        ]
        response = ApiVersionsResponse(version=min(version, 4), error_code=0, api_keys=keys, throttle_time_ms=0)
        self.respond(correlation_id, bytes(response.encode()))
        return version

    def keep_open(self) -> None:
        """Keep the connection open until the client closes it."""
        while self.socket.recv(65536):
            pass

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data
