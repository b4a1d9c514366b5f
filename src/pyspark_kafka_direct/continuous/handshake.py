"""Accepts the tasks of one run, which prove that they have the secret of the run.

Any process may connect to the port, so other connections are rejected without an effect on the run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.continuous.control_messages import (
    DriverHandshake,
    HandshakeChallenge,
    HandshakeRejected,
    TaskHandshake,
    decode_message,
    driver_proof,
    encode_message,
    proofs_equal,
    task_proof,
)
from pyspark_kafka_direct.continuous.control_socket import MAX_LINE_BYTES, ControlSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.config.security_settings import Secret

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_MAX_HANDSHAKE_BYTES = 4096
_MAX_EXTRA_CONNECTIONS = 256  # in addition to the tasks


class AcceptedTask(NamedTuple):
    """A task that has proved its identity. ``reply`` has not been sent yet."""

    handshake: TaskHandshake
    connection: ControlSocket
    reply: DriverHandshake


@dataclass(frozen=True, slots=True)
class _PendingConnection:
    connection: ControlSocket
    nonce: str
    address: str
    expires_at: float


class HandshakeServer:
    """Owns the listener, a non-blocking socket."""

    def __init__(
        self, listener: socket.socket, run: str, secret: Secret, tasks: int, timeout: float, system: System
    ) -> None:
        self._listener = listener
        self._run = run
        self._secret = secret
        self._max_pending = tasks + _MAX_EXTRA_CONNECTIONS
        self._timeout = timeout
        self._system = system
        self._pending: dict[int, _PendingConnection] = {}  # by descriptor, the oldest first
        self.last_rejection: str | None = None  # address and reason

    def descriptors(self) -> list[int]:
        """Return the descriptors to wait for until they are readable."""
        return [self._listener.fileno(), *self._pending]

    def next_deadline(self) -> float | None:
        """Return when ``poll`` is due if no descriptor is ready."""
        return next((pending.expires_at for pending in self._pending.values()), None)

    def poll(self, ready: Collection[int]) -> Iterator[AcceptedTask]:
        """Accept connections, and yield the tasks that have just proved their identity.

        The caller owns each yielded connection. If it does not consume all tasks, ``close`` closes the other
        connections.
        """
        for descriptor in [each for each in self._pending if each in ready]:
            accepted = self._read_handshake(self._pending[descriptor])
            if accepted is not None:
                del self._pending[descriptor]
                yield accepted
        if self._listener.fileno() in ready:
            self._accept()
        now = self._system.monotonic()
        for pending in [each for each in self._pending.values() if each.expires_at <= now]:
            self._reject(pending, f"it sent no handshake within {self._timeout:g} s")

    def close(self) -> None:
        self._listener.close()
        for pending in self._pending.values():
            pending.connection.close()
        self._pending.clear()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            if len(self._pending) >= self._max_pending:
                self._reject(next(iter(self._pending.values())), "too many newer connections are waiting")
            expires_at = self._system.monotonic() + self._timeout
            pending = _PendingConnection(
                ControlSocket(sock, _MAX_HANDSHAKE_BYTES), self._system.nonce(), str(address[0]), expires_at
            )
            self._pending[pending.connection.fileno()] = pending
            pending.connection.send(encode_message(HandshakeChallenge(pending.nonce)))

    def _read_handshake(self, pending: _PendingConnection) -> AcceptedTask | None:
        try:
            lines = pending.connection.receive()
            if not lines and not pending.connection.closed_by_peer:
                return None
            if not lines:
                raise ValueError("it closed the connection")
            if len(lines) > 1:
                raise ValueError("it sent more messages before the handshake was complete")
            handshake = decode_message(lines[0])
            if not isinstance(handshake, TaskHandshake):
                raise ValueError(f"it sent a message of type {type(handshake).__name__} instead of a handshake")
        except ValueError as error:
            self._reject(pending, str(error))
            return None
        if handshake.run != self._run:
            self._reject(pending, "it belongs to an earlier run of the query")
            return None
        if not proofs_equal(handshake.proof, task_proof(self._secret, pending.nonce, handshake)):
            self._reject(pending, "it does not have the secret of the run")
            return None
        pending.connection.max_line_bytes = MAX_LINE_BYTES
        return AcceptedTask(
            handshake, pending.connection, DriverHandshake(driver_proof(self._secret, pending.nonce, handshake))
        )

    def _reject(self, pending: _PendingConnection, reason: str) -> None:
        self._pending.pop(pending.connection.fileno(), None)
        self.last_rejection = f"{pending.address}: {reason}"
        _log.warning("Rejected a connection to the control port from %s: %s.", pending.address, reason)
        pending.connection.send(encode_message(HandshakeRejected(reason)))
        pending.connection.close()
