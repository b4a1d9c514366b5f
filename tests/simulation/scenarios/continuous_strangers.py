"""Other programs that connect to the port where a driver listens for its tasks, such as a port scanner."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.peer_sockets import PeerListener, PeerSocket

STRANGERS: Final = {
    "silent": b"",
    "web browser": b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
    "half a line": b'{"type":',
    "no text": b"\xff\xfe\x00\n",
    "no message": b"{}\n",
    "another message": b'["heartbeat",1]\n',
    "several lines": b"1\n2\n3\n",
    "long line": b"x" * 100_000,
}
"""What they send, by kind."""


class Strangers:
    """Each of them connects to each listener, and closes the connection some seconds later."""

    def __init__(self, environment: Environment, strangers: Sequence[tuple[str, float]]) -> None:
        self._environment = environment
        self._strangers = strangers
        self._process = environment.process("stranger")
        environment.network.peers.on_listen = self._connect

    def _connect(self, listener: PeerListener) -> None:
        for kind, seconds in self._strangers:
            self._process.spawn("stranger", lambda kind=kind, seconds=seconds: self._run(listener, kind, seconds))  # type: ignore[misc]

    def _run(self, listener: PeerListener, kind: str, seconds: float) -> None:
        network = self._environment.network
        with suppress(OSError):
            connection: PeerSocket = network.peers.connect(self._process, listener, network.latency())
            connection.send(STRANGERS[kind])
            self._process.sleep(seconds)
            connection.close()
