"""Non-blocking line sockets between driver and tasks, and the task's side of the control channel."""

from __future__ import annotations

import math
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.client.system import with_jitter
from pyspark_kafka_direct.continuous.control_messages import (
    CONTROL_PROTOCOL_VERSION,
    DriverHandshake,
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    Heartbeat,
    StartTask,
    TaskFailure,
    TaskHandshake,
    TaskReady,
    decode_message,
    encode_message,
)
from pyspark_kafka_direct.continuous.message_authentication import (
    MessageSession,
    driver_proof,
    proofs_equal,
    task_proof,
)
from pyspark_kafka_direct.continuous.task_lease import TaskLease
from pyspark_kafka_direct.errors import QueryRunError, printable

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
    from pyspark_kafka_direct.continuous.control_messages import ControlMessage
    from pyspark_kafka_direct.options.security_settings import Secret

MAX_LINE_BYTES: Final = 16 << 20  # enough for the offsets of half a million partitions

_RECEIVE_BYTES = 1 << 16
_MAX_RECEIVE_BYTES_PER_CALL = 1 << 20  # so that one socket does not block the others
_MAX_FAILURE_REPORT_SECONDS: Final = 5.0
_RECONNECT_SECONDS: Final = 0.2
_MAX_WAIT_SECONDS: Final = 60.0


class ControlLineError(ValueError):
    """A received line is too long."""


class ControlSocket:
    """Reads and writes lines without blocking; the owner waits for ``fileno``. Owns the socket."""

    def __init__(self, sock: socket.socket, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.max_line_bytes = max_line_bytes
        self.closed_by_peer = False  # or broken; lines received before are still returned
        self._socket = sock
        self._received = bytearray()
        self._to_send = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait for, or -1 if the socket is closed."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether data is left to send: wait until the socket is writable, then call ``flush``."""
        return bool(self._to_send)

    def receive(self) -> list[bytes]:
        """Return the complete lines received so far, without line feeds; a line that is too long is an error."""
        searched_bytes = len(self._received)  # without a line feed, because complete lines were returned before
        received_bytes = 0
        max_bytes = min(_MAX_RECEIVE_BYTES_PER_CALL, self.max_line_bytes + 1)
        while received_bytes < max_bytes and not self.closed_by_peer:
            try:
                chunk = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.closed_by_peer = not chunk
            self._received += chunk
            received_bytes += len(chunk)
            if 0 < len(chunk) < _RECEIVE_BYTES:
                break  # no more data for now
        if self._received.find(b"\n", searched_bytes) < 0:
            self._check_length(len(self._received))
            return []
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        self._check_length(max(map(len, (*lines, rest))))
        return lines

    def send(self, line: bytes) -> None:
        """Send a line without blocking; ``flush`` sends the rest. Errors show up in ``receive``."""
        self._to_send += line
        self.flush()

    def flush(self) -> None:
        while self._to_send:
            try:
                sent_bytes = self._socket.send(self._to_send)
            except BlockingIOError:
                return
            except OSError:
                self._to_send.clear()  # broken connection; receive() reports it
                return
            del self._to_send[:sent_bytes]

    def end(self) -> None:
        """Send nothing any more; the peer receives an end of file, and its messages can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _check_length(self, length: int) -> None:
        if length > self.max_line_bytes:
            raise ControlLineError(f"a line of more than {self.max_line_bytes} bytes")


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """The addresses where the driver of a run listens, and the secret of the run. Pickled into Spark's tasks."""

    host: str
    port: int
    run: str
    secret: Secret


class TaskChannel:
    """Receives epoch requests and sends reports. Wait for ``fileno``, then call ``receive``."""

    def __init__(self, connection: ControlSocket, driver: str, system: System) -> None:
        self._connection = connection
        self._driver = driver
        self._system = system
        self._received_lines: list[bytes] = []
        self._messages: list[ControlMessage] = []  # received after the handshake, without heartbeats
        self._session: MessageSession | None = None  # None until the driver is authenticated
        self._sending = system.condition()  # a lock: the thread of the heartbeats sends, too
        self._lease: TaskLease | None = None  # None until the task is ready

    @classmethod
    def connect(cls, address: ControlAddress, task: int, attempt: int, deadline: Deadline) -> TaskChannel:
        """Connect to the driver; both sides prove that they have the secret of the run.

        The driver closes the connection if too many others are waiting, so try again until the deadline.
        """
        driver = f"the query's driver at {address.host}:{address.port}"
        while True:
            channel = cls(ControlSocket(_connect(address, driver, deadline)), driver, deadline.system)
            try:
                is_complete = channel._handshake(address, task, attempt, deadline)
            except BaseException:
                channel.close()
                raise
            if is_complete:
                return channel
            channel.close()
            if deadline.remaining() < 2 * _RECONNECT_SECONDS:
                raise QueryRunError(
                    f"{driver} repeatedly closed the connection during the handshake: too many other connections are "
                    "waiting, or another program listens there. Allow only executors to connect to this port "
                    "(controlPort)."
                )
            deadline.system.sleep(with_jitter(_RECONNECT_SECONDS, deadline.system))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a message has arrived."""
        return self._connection.fileno()

    def begin_lease(self, seconds: float) -> TaskLease:
        """Report that the task is ready, and return its lease, which sends heartbeats as a context manager."""
        ready_at = self._system.monotonic()
        self.report_ready()
        self._lease = TaskLease(lambda number: self._send(Heartbeat(number)), seconds, ready_at, self._system)
        return self._lease

    def report_ready(self) -> None:
        self._send(TaskReady())

    def check_lease(self) -> None:
        """Raise if the driver has not responded to a heartbeat for too long: it may have started another run."""
        if self._lease is not None and self._lease.expired:
            self._receive_messages()  # the response may have arrived while the user's function ran
            if self._lease.expired:
                raise self._lease.expired_error()

    def wait_for_start(self) -> StartTask:
        """Wait until all tasks have connected and the driver has prepared the run."""
        self._receive_messages()
        while not self._messages:
            if self._connection.closed_by_peer:
                raise self._disconnected_error()
            self.check_lease()
            expires_at = math.inf if self._lease is None else self._lease.expires_at
            timeout = min(expires_at - self._system.monotonic(), _MAX_WAIT_SECONDS)
            self._system.wait_ready((self.fileno(),), (), max(timeout, 0.0))
            self._receive_messages()
        message = self._messages.pop(0)
        if not isinstance(message, StartTask):
            raise self._unexpected_message_error(message)
        return message

    def receive(self) -> list[EpochRequest]:
        """Return the epoch requests that have arrived; raise if the driver has closed the connection."""
        self._receive_messages()
        requests = []
        messages, self._messages = self._messages, []
        for message in messages:
            if not isinstance(message, EpochRequest):
                raise self._unexpected_message_error(message)
            requests.append(message)
        if not requests and self._connection.closed_by_peer:  # requests that were received before come first
            raise self._disconnected_error()
        return requests

    def report(self, report: EpochReport, deadline: Deadline) -> None:
        if not self._send_all(report, deadline):
            raise self._timeout_error(deadline)

    def report_failure(self, error: BaseException, deadline: Deadline) -> None:
        """Report the failure of this task if the driver is still reachable."""
        self._send_all(TaskFailure.of(error), deadline.limited_to(_MAX_FAILURE_REPORT_SECONDS))

    def close(self) -> None:
        self._connection.close()

    def _handshake(self, address: ControlAddress, task: int, attempt: int, deadline: Deadline) -> bool:
        """Return false if the driver closes the connection without a response."""
        if not self._wait_for_line(deadline):
            return False
        challenge = self._take_message()
        if not isinstance(challenge, HandshakeChallenge):
            raise self._unexpected_message_error(challenge)
        if challenge.version != CONTROL_PROTOCOL_VERSION:
            raise QueryRunError(
                f"{self._driver} uses control protocol version {challenge.version}, and this worker uses version "
                f"{CONTROL_PROTOCOL_VERSION}. Install the same version of pyspark-kafka-direct on the driver and on "
                "all executors."
            )
        nonce = deadline.system.nonce()
        handshake = TaskHandshake(address.run, task, attempt, socket.gethostname(), os.getpid(), nonce)
        handshake = replace(handshake, proof=task_proof(address.secret, challenge.nonce, handshake))
        self._send(handshake)
        if not self._wait_for_line(deadline):
            return False
        response = self._take_message()
        if isinstance(response, HandshakeRejected):
            raise QueryRunError(f"{self._driver} rejected task {task}: {printable(response.reason)}.")
        if not isinstance(response, DriverHandshake):
            raise self._unexpected_message_error(response)
        if not proofs_equal(response.proof, driver_proof(address.secret, challenge.nonce, handshake)):
            raise QueryRunError(
                f"The process at {self._driver} does not have the secret of the run: another program listens there. "
                "Give the query its own port (controlPort)."
            )
        self._session = MessageSession("task", address.secret, challenge.nonce, handshake)
        return True

    def _wait_for_line(self, deadline: Deadline) -> bool:
        """Return false if the driver closed the connection."""
        while not self._received_lines:
            if self._connection.closed_by_peer:
                return False
            if deadline.expired:
                raise self._timeout_error(deadline)
            deadline.system.wait_ready((self.fileno(),), (), deadline.remaining())
            self._receive_lines()
        return True

    def _receive_messages(self) -> None:
        """Receive messages of the driver, and handle its responses to heartbeats."""
        self._receive_lines()
        while self._received_lines:
            message = self._take_message()
            if isinstance(message, Heartbeat) and self._lease is not None:
                self._lease.extend(message.number)
            else:
                self._messages.append(message)

    def _receive_lines(self) -> None:
        try:
            self._received_lines += self._connection.receive()
        except ControlLineError as error:
            raise self._invalid_message_error(error) from error

    def _take_message(self) -> ControlMessage:
        decode = decode_message if self._session is None else self._session.decode
        try:
            return decode(self._received_lines.pop(0))
        except ValueError as error:
            raise self._invalid_message_error(error) from error

    def _send(self, message: ControlMessage) -> None:
        encode = encode_message if self._session is None else self._session.encode
        with self._sending:
            self._connection.send(encode(message))

    def _send_all(self, message: ControlMessage, deadline: Deadline) -> bool:
        """Return whether everything was sent until the deadline."""
        self._send(message)
        while self._connection.has_unsent and not deadline.expired:
            deadline.system.wait_ready((), (self.fileno(),), deadline.remaining())
            with self._sending:
                self._connection.flush()
        return not self._connection.has_unsent

    def _invalid_message_error(self, error: ValueError) -> QueryRunError:
        return QueryRunError(f"{self._driver} sent an invalid message ({error}): another program may listen there.")

    def _disconnected_error(self) -> QueryRunError:
        return QueryRunError(f"{self._driver} closed the connection: it ended this run, or has died.")

    def _timeout_error(self, deadline: Deadline) -> QueryRunError:
        return QueryRunError(f"{self._driver} did not respond in time. If it is slow, raise {deadline.setting}.")

    def _unexpected_message_error(self, message: ControlMessage) -> QueryRunError:
        return QueryRunError(f"{self._driver} sent an unexpected message of type {type(message).__name__}.")


def _connect(address: ControlAddress, driver: str, deadline: Deadline) -> socket.socket:
    """Connect to the first reachable address of the driver."""
    system, error_text = deadline.system, "the host name has no address"
    try:
        addresses = system.resolve_host(address.host, address.port, socket.AF_UNSPEC, 0)
    except OSError as error:
        addresses, error_text = [], str(error)
    for index, socket_address in enumerate(addresses):
        seconds = deadline.remaining() / (len(addresses) - index)  # an equal share for this and each later address
        try:
            return system.connect_tcp(socket_address, max(seconds, 0.001), receive_buffer=0, send_buffer=0)
        except OSError as error:
            error_text = str(error)
    raise QueryRunError(
        f"Cannot connect to {driver}: {error_text}. Executors must be able to reach this port: check controlPort and "
        "spark.driver.host. The driver stops listening once all tasks have connected, and when the run ends: if this "
        "task started late, or Spark started it again, the error is harmless."
    )
