"""Accepts the tasks of one run, which prove that they have the secret of the run.

Any process may connect to the port, so other connections are rejected without an effect on the run: their number and
time are limited, and the port is closed as soon as all tasks have connected.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.continuous.control_messages import (
    DriverHandshake,
    HandshakeChallenge,
    HandshakeRejected,
    TaskHandshake,
    decode_message,
    encode_message,
)
from pyspark_kafka_direct.continuous.control_socket import MAX_LINE_BYTES, ControlSocket
from pyspark_kafka_direct.continuous.message_authentication import (
    MessageSession,
    driver_proof,
    proofs_equal,
    task_proof,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator, Sequence

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import Secret

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_TIMEOUT_SECONDS = 10.0  # from a new connection to its handshake
_MAX_HANDSHAKE_BYTES = 4096
_MAX_EXTRA_CONNECTIONS = 256  # without a handshake, in addition to the tasks
_MAX_ACCEPTS_PER_POLL = 128  # so that a flood of connections does not delay the tasks that have connected
_ACCEPT_RETRY_SECONDS = 0.2
_WARNING_INTERVAL = 10.0  # seconds; other rejections are logged at DEBUG, so that a stranger cannot fill the log


class AcceptedTask(NamedTuple):
    """A task that has proved its identity. ``reply`` has not been sent yet."""

    handshake: TaskHandshake
    connection: ControlSocket
    session: MessageSession
    reply: DriverHandshake


@dataclass(frozen=True, slots=True)
class _PendingConnection:
    connection: ControlSocket
    nonce: str
    address: str
    expires_at: float

    @property
    def network(self) -> str:
        """The IPv4 address, or the first 64 bits of the IPv6 address: a host can use all addresses with the same."""
        address = ip_address(self.address)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
            return address.packed[:8].hex()
        return self.address


class HandshakeServer:
    """Owns the listener, a non-blocking socket."""

    def __init__(self, listener: socket.socket, run: str, secret: Secret, tasks: int, system: System) -> None:
        self._listener = listener
        self._run = run
        self._secret = secret
        self._max_pending = tasks + _MAX_EXTRA_CONNECTIONS
        self._system = system
        self._pending: dict[int, _PendingConnection] = {}  # by descriptor, the oldest first
        self._accept_resumes_at: float | None = None  # after an error; None: it accepts connections
        self._next_warning_at = 0.0
        self.last_problem: str | None = None  # with a connection, as a sentence

    def descriptors(self) -> list[int]:
        """Return the descriptors to wait for until they are readable."""
        is_listening = self._listener.fileno() >= 0 and self._accept_resumes_at is None
        return [self._listener.fileno(), *self._pending] if is_listening else [*self._pending]

    def next_deadline(self) -> float | None:
        """Return when ``poll`` is due if no descriptor is ready."""
        # The oldest connection expires first.
        due = [pending.expires_at for pending in self._pending.values()][:1]
        if self._accept_resumes_at is not None:
            due.append(self._accept_resumes_at)
        return min(due, default=None)

    def poll(self, ready: Collection[int]) -> Iterator[AcceptedTask]:
        """Accept connections, and yield the tasks that have just proved their identity.

        The caller owns each yielded connection. If it does not consume all tasks, ``close`` closes the other
        connections.
        """
        for descriptor in [each for each in self._pending if each in ready]:
            accepted = self._read_handshake(self._pending[descriptor])
            if accepted is not None:
                del self._pending[descriptor]  # `close` must not close the caller's connection
                yield accepted
        if self._listener.fileno() in ready:
            self._accept_connections()
        now = self._system.monotonic()
        if self._accept_resumes_at is not None and self._accept_resumes_at <= now:
            self._accept_resumes_at = None
        for pending in [each for each in self._pending.values() if each.expires_at <= now]:
            self._reject(pending, f"it sent no handshake within {_TIMEOUT_SECONDS:g} s")

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._listener.close()
        self._accept_resumes_at = None
        for pending in self._pending.values():
            pending.connection.close()
        self._pending.clear()

    def _accept_connections(self) -> None:
        for _ in range(_MAX_ACCEPTS_PER_POLL):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # the peer has closed the connection
            except OSError as error:  # such as too many open files
                self._accept_resumes_at = self._system.monotonic() + _ACCEPT_RETRY_SECONDS
                self._warn(f"A connection to the control port could not be accepted: {error}.")
                return
            try:
                connection = ControlSocket(sock, _MAX_HANDSHAKE_BYTES)
            except OSError:  # the peer has closed the connection (macOS)
                sock.close()
                continue
            self._add_pending(connection, str(address[0]))

    def _add_pending(self, connection: ControlSocket, address: str) -> None:
        expires_at = self._system.monotonic() + _TIMEOUT_SECONDS
        pending = _PendingConnection(connection, self._system.nonce(), address, expires_at)
        if len(self._pending) >= self._max_pending:
            rejected = _newest_of_busiest_address([pending, *reversed(self._pending.values())])
            self._pending.pop(rejected.connection.fileno(), None)
            rejected.connection.close()  # without a response: a task connects again
            self._warn_of_rejection(rejected, "too many other connections are waiting")
            if rejected is pending:
                return
        self._pending[connection.fileno()] = pending
        connection.send(encode_message(HandshakeChallenge(pending.nonce)))

    def _read_handshake(self, pending: _PendingConnection) -> AcceptedTask | None:
        """Return the task of a connection; ``None`` if it was rejected, or has not sent a whole line yet."""
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
            self._reject(pending, "it belongs to an earlier run, or to another query")
            return None
        if not proofs_equal(handshake.proof, task_proof(self._secret, pending.nonce, handshake)):
            self._reject(pending, "it does not have the secret of the run")
            return None
        pending.connection.max_line_bytes = MAX_LINE_BYTES
        return AcceptedTask(
            handshake,
            pending.connection,
            MessageSession("driver", self._secret, pending.nonce, handshake),
            DriverHandshake(driver_proof(self._secret, pending.nonce, handshake)),
        )

    def _reject(self, pending: _PendingConnection, reason: str) -> None:
        self._pending.pop(pending.connection.fileno(), None)
        pending.connection.send(encode_message(HandshakeRejected(reason)))
        pending.connection.close()
        self._warn_of_rejection(pending, reason)

    def _warn_of_rejection(self, pending: _PendingConnection, reason: str) -> None:
        self._warn(f"A connection to the control port from {pending.address} was rejected: {reason}.")

    def _warn(self, problem: str) -> None:
        self.last_problem = problem
        now = self._system.monotonic()
        level = logging.WARNING if now >= self._next_warning_at else logging.DEBUG
        if level == logging.WARNING:
            self._next_warning_at = now + _WARNING_INTERVAL
        _log.log(level, "%s", problem)


def _newest_of_busiest_address(connections: Sequence[_PendingConnection]) -> _PendingConnection:
    """Return the newest connection of the network and address with most, so that no host can displace others.

    ``connections`` begins with the newest.
    """
    [(network, _)] = Counter(each.network for each in connections).most_common(1)  # the newest one if several
    of_network = [each for each in connections if each.network == network]
    [(address, _)] = Counter(each.address for each in of_network).most_common(1)
    return next(each for each in of_network if each.address == address)
