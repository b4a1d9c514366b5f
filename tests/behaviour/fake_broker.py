"""A fake broker that supports one version of an API: it records requests of that API and serves those that precede it.

Responses are hand-written in the oldest versions, after Kafka's message definitions:

    ApiVersions 3      INT16 error, COMPACT_ARRAY of (INT16 key, INT16 lowest, INT16 highest, TAG_BUFFER),
                       INT32 throttle time, TAG_BUFFER
    ApiVersions 0      INT16 error, ARRAY of (INT16 key, INT16 lowest, INT16 highest)
    Metadata 4         INT32 throttle time, ARRAY of (INT32 id, STRING host, INT32 port, STRING rack),
                       STRING cluster id, INT32 controller,
                       ARRAY of (INT16 error, STRING topic, BOOLEAN internal, ARRAY of (INT16 error, INT32 partition,
                       INT32 leader, ARRAY of INT32 replicas, ARRAY of INT32 in sync))
    FindCoordinator 1  INT32 throttle time, INT16 error, STRING message, INT32 id, STRING host, INT32 port
    SaslHandshake 1    INT16 error, ARRAY of STRING mechanisms
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 10, 17, 18, 36

OTHER_VERSIONS: Final = {
    FETCH: (4, 18),
    LIST_OFFSETS: (2, 9),
    METADATA: (4, 4),
    FIND_COORDINATOR: (1, 1),
    SASL_HANDSHAKE: (1, 1),
    SASL_AUTHENTICATE: (0, 0),
}
"""Versions of the other APIs that the broker supports."""

TOPIC, PARTITIONS = "flights", 3

_UNSUPPORTED_VERSION = 35
_TIMEOUT_S = 600.0


class FakeBroker:
    """A context manager; responses to the API under test have a wrong correlation id, which ends the client's attempt.

    With ``old``, ApiVersions is supported in version 0 only.
    """

    def __init__(self, api_key: int, versions: tuple[int, int], *, old: bool = False) -> None:
        self.frames: list[bytes] = []
        self._api_key = api_key
        self._old = old
        self._versions = {**OTHER_VERSIONS, api_key: versions}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_TIMEOUT_S)

    def _accept(self) -> None:
        # One connection at a time is enough here.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError, EOFError):
                    client.settimeout(_TIMEOUT_S)
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        while True:
            (size,) = struct.unpack(">i", _read(client, 4))
            frame = _read(client, size)
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if api_key == self._api_key:
                self.frames.append(struct.pack(">i", size) + frame)
            if api_key == self._api_key and api_key != API_VERSIONS:
                correlation_id += 1
            body = b"" if api_key == self._api_key != API_VERSIONS else self._body(api_key, version)
            client.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def _body(self, api_key: int, version: int) -> bytes:
        match api_key:
            case 18:
                return _api_versions(self._versions, version, old=self._old)
            case 3:
                partitions = b"".join(struct.pack(">hiiiiii", 0, n, 1, 1, 1, 1, 1) for n in range(PARTITIONS))
                topic = struct.pack(">h", 0) + _string(TOPIC) + b"\0" + struct.pack(">i", PARTITIONS) + partitions
                broker = struct.pack(">i", 1) + _string("127.0.0.1") + struct.pack(">ih", self.port, -1)
                return struct.pack(">ii", 0, 1) + broker + _string("c") + struct.pack(">ii", 1, 1) + topic
            case 10:
                return struct.pack(">ihhi", 0, 0, -1, 1) + _string("127.0.0.1") + struct.pack(">i", self.port)
            case 17:
                return struct.pack(">hi", 0, 1) + _string("PLAIN")
        raise EOFError  # no other API is needed: close the connection


def _api_versions(table: Mapping[int, tuple[int, int]], version: int, *, old: bool) -> bytes:
    rows = [struct.pack(">hhh", key, *versions) for key, versions in sorted(table.items())]
    if old or version < 3:
        error = _UNSUPPORTED_VERSION if version else 0
        return struct.pack(">hi", error, len(rows)) + b"".join(rows)
    return struct.pack(">hB", 0, len(rows) + 1) + b"".join(row + b"\0" for row in rows) + struct.pack(">ib", 0, 0)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
