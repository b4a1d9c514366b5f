"""One connection to one broker: frames, deadlines, versions, login.

On the wire (Kafka protocol guide, "The Kafka Protocol" and "Request and Response Headers"):

    frame            INT32 size, then size bytes
    request header   INT16 api key, INT16 api version, INT32 correlation id, STRING client id, [flexible: TAG_BUFFER]
    response header  INT32 correlation id, [flexible, but never for ApiVersions: TAG_BUFFER]

A broker answers the requests of a connection in the order they came.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.errors import BrokerError, BrokerUnreachableError, ProtocolError
from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._cursor import MalformedError
from pyspark_kafka_direct.wire._socket import address_text, connect
from pyspark_kafka_direct.wire._trouble import Circumstances, broken, not_kafka, speaks_tls, too_late
from pyspark_kafka_direct.wire._versions import check_broker, intersect
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.messages import Api
    from pyspark_kafka_direct.wire.system import System

# Larger frames are refused. No broker sends one: a response holds at most fetch.max.bytes, or one batch if that is
# larger, and socket.request.max.bytes (100 MiB) bounds batches. The number is also where ASCII's printable characters
# begin, so whatever text another kind of server sends ("HTTP", "SSH-") is taken for what it is.
MAX_FRAME = 0x2000_0000

# What carries no records is smaller. Before the log-in has ended a broker is a stranger, and answers with a few hundred
# bytes, a few thousand if it lists its features. The largest after it is Metadata: 200,000 topics of one partition with
# three replicas, each with the longest name, take 64 MB.
_LARGEST_ANSWER = 64 << 20
_LARGEST_OF_A_STRANGER = 64 << 10
_ANSWERS_OF_A_STRANGER = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})

_FIRST_BUFFER = 64 << 10
_GROWTH = 1 << 20
_KEPT_BUFFER = 4 << 20
_LARGE_PART = 16 << 10
_PREFIX = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")

# Java re-authenticates at a random point between 85% and 95% of the session's lifetime (SaslClientAuthenticator); the
# early end leaves most room for a slow call. A broker refuses a second login within a second of the first (KIP-368).
_REAUTHENTICATE_AT = 0.85
_REAUTHENTICATE_NOT_BEFORE = 1.1


class Connection:
    """A connection, owned by one thread at a time.

    After any error other than an error code inside an answer the connection is closed; make a new one.

    Attributes:
        settings: What it was opened with.
        host: Name or address of the broker.
        port: Port of the broker.
        broker: ``host:port``, as errors name it.
        api_versions: API key to lowest and highest version the broker speaks.
        timed_out: Whether it was given up because an answer did not come in time.
        system: Has its clock.
    """

    def __init__(
        self, settings: ConnectionSettings, sock: socket.socket, host: str, port: int, system: System = SYSTEM
    ) -> None:
        self.settings = settings
        self.system = system
        self.host = host
        self.port = port
        self.broker = address_text(host, port)
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket | None = sock
        self._process = os.getpid()
        self._client_id = settings.client_id.encode()
        self._buffer = bytearray(_FIRST_BUFFER)
        self._prefix = bytearray(_PREFIX.size)
        self._frame_size: int | None = None  # of the answer that is being read, once its prefix has come
        self._frame_filled = 0
        self._kept_buffer = _KEPT_BUFFER
        self._correlation_id = 0
        self._outstanding: deque[tuple[int, str]] = deque()
        self._answered: set[str] = set()
        self._throttled_until = 0.0
        self._reauthenticate_at: float | None = None
        self._logging_in = False
        self._opening = True
        self.timed_out = False
        self.last_used = self.system.monotonic()

    @classmethod
    def open(cls, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> Self:
        """Connect, shake hands over TLS, ask for the broker's versions, log in.

        Args:
            settings: How.
            host: Name or address.
            port: Port.
            deadline: End of all of it; the caller narrows it to the connection set-up timeout. Its system dials.

        Raises:
            BrokerUnreachableError: No connection.
            BrokerTimeoutError: The deadline passed.
            TlsError: The handshake failed for good.
            AuthenticationError: The broker refused the credentials.
            UnsupportedBrokerError: The broker is too old.
            ProtocolError: Whatever listens there is no Kafka broker.
        """
        sock = connect(settings, host, port, deadline)
        try:
            if settings.security.protocol.endswith("SSL"):
                from pyspark_kafka_direct.wire.security.tls import wrap_socket

                sock = wrap_socket(sock, settings, host, deadline)
            connection = cls(settings, sock, host, port, deadline.system)
            connection._ask_versions(deadline)
            connection._log_in(deadline)
            connection._opening = False
        except BaseException:
            sock.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._socket is None

    @property
    def idle(self) -> bool:
        """Whether it is open, no answer is outstanding, and it is not the parent process's."""
        return self._socket is not None and not self._outstanding and self._process == os.getpid()

    @property
    def login_due(self) -> bool:
        """Whether the session ends soon, and a request that is sent while no answer is outstanding renews it."""
        return self._reauthenticate_at is not None and self.system.monotonic() >= self._reauthenticate_at

    def fileno(self) -> int:
        """Return the socket's descriptor, to be polled; -1 when closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def version(self, api: Api) -> int:
        """Return the highest version of a request that both sides speak.

        Raises:
            UnsupportedBrokerError: There is none.
        """
        return intersect(api.key, api.name, api.versions, self.api_versions, self.broker)

    def call(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        """Send a request, in the highest version both sides speak, and wait for its response.

        Args:
            api: Which request.
            values: Its fields by name; what is not named has its default.
            deadline: End of the wait, narrowed to ``request.timeout.ms``.

        Returns:
            The response: named tuples, with the fields of all versions.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
            ProtocolError: The answer cannot be understood.
            UnsupportedBrokerError: No version suits both sides.
        """
        self.submit(api, values, deadline)
        return self.complete(api, deadline)

    def submit(
        self,
        api: Api,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int | None = None,
        answered: bool = True,
    ) -> None:
        """Send a request. Several may be sent before the first ``complete``, which is then called in the same order.

        Args:
            api: Which request.
            values: Its fields by name.
            deadline: End of the wait until the socket took the bytes, narrowed to ``request.timeout.ms``.
            version: The version instead of the highest that both sides speak.
            answered: Whether there will be an answer; only Produce knows requests without.
        """
        self._submit(api, self.version(api) if version is None else version, values, deadline)
        if not answered:
            self._outstanding.pop()

    def complete(self, api: Api, deadline: Deadline, *, version: int | None = None) -> Any:
        """Wait for the response, the second half of ``call``.

        Args:
            api: Which request.
            deadline: End of the wait.
            version: What ``submit`` was given.
        """
        return self._complete(api, self.version(api) if version is None else version, deadline)

    def has_answer(self) -> bool:
        """Tell whether ``receive`` finds bytes at once, or that the connection has ended."""
        sock = self._socket
        if sock is None or self.system.readable(sock.fileno()):
            return True
        # TLS reads whole records: what came with the last answer is no longer in the socket.
        return bool(sock.pending()) if hasattr(sock, "pending") else False

    def send(
        self, api_key: int, api_version: int, name: str, body: bytes, *, flexible: bool, deadline: Deadline
    ) -> None:
        """Send a request that was encoded by hand; ``receive`` gives its answer.

        Args:
            api_key: API key.
            api_version: Version ``body`` is encoded in.
            name: The request's name, for errors.
            body: What follows the request header.
            flexible: Whether the version is a flexible one (KIP-482), whose header ends with a tag buffer.
            deadline: End of the wait until the socket took the bytes.
        """
        self._keep_session(deadline)
        correlation_id = self._next_correlation_id()
        header = _HEADER.pack(api_key, api_version, correlation_id, len(self._client_id)) + self._client_id
        if flexible:
            header += b"\0"
        self._write(name, [_SIZE.pack(len(header) + len(body)) + header + body], deadline)
        self._outstanding.append((correlation_id, name))

    def receive(self, deadline: Deadline) -> memoryview:
        """Wait for the answer to the oldest request still without one.

        Returns:
            What follows the correlation id. It lies in a buffer that the next ``receive`` or ``complete`` overwrites.
        """
        if not self._outstanding:
            raise ProtocolError("An answer was awaited, but no request is outstanding.", broker=self.broker)
        sock = self._open_socket()
        name = self._outstanding[0][1]
        # A throttled client's requests wait at the broker (KIP-219): that time is the quota's, not the broker's.
        throttled = max(0.0, self._throttled_until - self.system.monotonic())
        limit = deadline.sooner(self.settings.request_timeout_ms / 1000 + throttled)
        with self._closed_on_failure(name, deadline, throttled):
            sock.settimeout(0.0)
            self._read_frame(sock, limit)
        self._outstanding.popleft()
        self._answered.add(name)
        self.last_used = self.system.monotonic()
        size, self._frame_size, self._frame_filled = self._frame_size, None, 0
        return memoryview(self._buffer)[:size].toreadonly()

    def gather(self) -> bool:
        """Read what has come of the oldest answer still due, without waiting; tell whether ``receive`` has all of it.

        Raises:
            BrokerUnreachableError: The connection broke.
            ProtocolError: What came cannot be an answer.
        """
        sock = self._open_socket()
        deadline = Deadline.after(self.settings.request_timeout_ms / 1000, system=self.system)
        with self._closed_on_failure(self._outstanding[0][1], deadline):
            sock.settimeout(0.0)
            return self._read_frame(sock, None)

    @property
    def gathered(self) -> int:
        """How many bytes of the next answer were read."""
        return self._frame_filled

    def keep_room(self, size: int) -> None:
        """Keep a receive buffer for answers of about this size from one answer to the next; at least a few MiB."""
        self._kept_buffer = max(_KEPT_BUFFER, size + _FIRST_BUFFER)

    def features(self, deadline: Deadline) -> dict[str, int]:
        """Ask which features the cluster has, and at which level (KIP-584): an administrator may raise one at any time.

        Args:
            deadline: End of the wait.

        Raises:
            BrokerError: No answer.
        """
        answer = self._ask_version(self.version(messages.API_VERSIONS), deadline)
        if answer.error_code:
            raise error_for(answer.error_code, "asking for the cluster's features", broker=self.broker)
        return {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def throttle(self, milliseconds: int) -> None:
        """Note that the broker will not read this connection for so long (a quota); the next answer may take longer."""
        if milliseconds > 0:
            self._throttled_until = self.system.monotonic() + milliseconds / 1000

    def close(self) -> None:
        """Close the socket; harmless when closed already."""
        sock, self._socket = self._socket, None
        self._outstanding.clear()
        if sock is not None:
            sock.close()

    def _ask_versions(self, deadline: Deadline) -> None:
        # A broker that does not know this version answers so in version 0, whatever was asked (KIP-511).
        answer = self._ask_version(messages.API_VERSIONS.versions.highest, deadline)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._ask_version(0, deadline)
        if answer.error_code:
            self.close()
            raise error_for(answer.error_code, "asking for the broker's versions", broker=self.broker)
        self.api_versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        check_broker(self.api_versions, self.broker, sasl=self.settings.security.sasl is not None)

    def _ask_version(self, version: int, deadline: Deadline) -> Any:
        software = {"client_software_name": "pyspark-kafka-direct", "client_software_version": __version__}
        self._submit(messages.API_VERSIONS, version, software, deadline)
        return self._complete(messages.API_VERSIONS, version, deadline)

    def _submit(self, api: Api, version: int, values: Mapping[str, Any], deadline: Deadline) -> None:
        self._keep_session(deadline)
        correlation_id = self._next_correlation_id()
        parts = messages.encode_parts(api, version, correlation_id, self._client_id, values)
        self._write(api.name, parts, deadline)
        self._outstanding.append((correlation_id, api.name))

    def _complete(self, api: Api, version: int, deadline: Deadline) -> Any:
        body = self.receive(deadline)
        try:
            response = messages.decode(api, version, body)
        except MalformedError as error:
            self.close()
            raise ProtocolError(
                f"The answer to {api.name} version {version} is malformed: {error}. Is this a Kafka broker?",
                broker=self.broker,
            ) from None
        self.throttle(getattr(response, "throttle_time_ms", 0))
        return response

    def _log_in(self, deadline: Deadline) -> None:
        if self.settings.security.sasl is None:
            return
        from pyspark_kafka_direct.wire.security.sasl import authenticate

        self._logging_in = True
        started = self.system.monotonic()
        # The last answer may still be read while the next request is sent, which a log-in may have to come before.
        last_answer, self._buffer = self._buffer, bytearray(_FIRST_BUFFER)
        try:
            lifetime = authenticate(self, deadline)
        except BaseException:
            self.close()
            raise
        finally:
            self._logging_in = False
            self._buffer = last_answer
        self._reauthenticate_at = None
        if lifetime is not None:
            self._reauthenticate_at = started + max(lifetime * _REAUTHENTICATE_AT, _REAUTHENTICATE_NOT_BEFORE)

    def _keep_session(self, deadline: Deadline) -> None:
        # A login is an exchange of its own, so it waits for a moment when no answer is outstanding.
        if self.login_due and not self._logging_in and not self._outstanding:
            self._log_in(deadline)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return self._correlation_id

    def _circumstances(self, name: str) -> Circumstances:
        return Circumstances(self.broker, self.settings, self.host, name, frozenset(self._answered), self._opening)

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise BrokerUnreachableError("The connection is closed.", broker=self.broker)
        if self._process != os.getpid():
            # Parent and child would write into each other's requests. Closing here leaves the parent's side open.
            self.close()
            raise BrokerUnreachableError("The connection belongs to the parent process.", broker=self.broker)
        return self._socket

    def _write(self, name: str, parts: list[bytes | bytearray], deadline: Deadline) -> None:
        sock = self._open_socket()
        limit = deadline.sooner(self.settings.request_timeout_ms / 1000)
        with self._closed_on_failure(name, deadline):
            for part in _joined(parts):
                sock.settimeout(_seconds_left(limit))
                sock.sendall(part)

    @contextmanager
    def _closed_on_failure(self, name: str, deadline: Deadline, throttled: float = 0.0) -> Iterator[None]:
        """Close the connection whatever goes wrong, and turn what the socket says into an error of ours."""
        try:
            yield
        except BrokerError:  # ours already; it is an OSError too, so it comes first
            self.close()
            raise
        except TimeoutError:
            self.timed_out = True
            self.close()
            raise too_late(self._circumstances(name), deadline, throttled) from None
        except OSError as error:
            self.close()
            raise broken(self._circumstances(name), error) from error
        except BaseException:
            self.close()
            raise

    def _read_frame(self, sock: socket.socket, limit: Deadline | None) -> bool:
        """Go on reading the next frame into the buffer, until it is whole; without a limit, what has come of it."""
        if self._frame_size is None:
            try:
                self._fill(sock, memoryview(self._prefix)[self._frame_filled :], limit)
            except OSError:
                if not speaks_tls(self._prefix):
                    raise
                self._frame_filled = _PREFIX.size
            if self._frame_filled < _PREFIX.size:
                return False
            self._frame_size = self._check_prefix()
            self._frame_filled = 0
            if self._frame_size <= self._kept_buffer < len(self._buffer):
                self._buffer = bytearray(self._kept_buffer)  # an outsized record is over: give its memory back
        while True:
            end = min(self._frame_size, len(self._buffer))
            self._fill(sock, memoryview(self._buffer)[self._frame_filled : end], limit)
            if self._frame_filled < end:
                return False
            if end == self._frame_size:
                return True
            # Memory grows with what has arrived, not with what the size claims. A new bytearray, not a resized one:
            # somebody may still hold a view of the old.
            grown = bytearray(min(self._frame_size, max(2 * end, _GROWTH)))
            grown[:end] = memoryview(self._buffer)[:end]
            self._buffer = grown

    def _check_prefix(self) -> int:
        """Return the size of what follows the prefix."""
        size, received_id = _PREFIX.unpack(self._prefix)
        correlation_id, name = self._outstanding[0]
        if not _SIZE.size <= size < largest_answer(name) or (not self._answered and speaks_tls(self._prefix)):
            raise not_kafka(self._circumstances(name), bytes(self._prefix))
        if received_id != correlation_id:
            raise ProtocolError(
                f"An answer to request {received_id} came, but {correlation_id} was due: the connection is out of "
                "step.",
                broker=self.broker,
            )
        return int(size) - _SIZE.size

    def _fill(self, sock: socket.socket, view: memoryview, limit: Deadline | None) -> None:
        # Under TLS each call brings one record, 16 KiB at most, so what is done beside it is done hundreds of times a
        # frame. The socket does not block, and the clock is looked at instead of setting a timeout for each.
        while view:
            if limit is not None and limit.expired:
                raise TimeoutError
            try:
                count = sock.recv_into(view)
            except OSError as error:
                awaited = self._awaited(error)
                if awaited is None:
                    raise
                if limit is None:
                    return
                self.system.wait_ready(*awaited, limit.remaining())
                continue
            if count == 0:
                raise ConnectionResetError
            self._frame_filled += count
            view = view[count:]

    def _awaited(self, error: OSError) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the sockets to read from and to write to that a read has to wait for; none if it has failed."""
        to_read = ((self.fileno(),), ())
        if isinstance(error, BlockingIOError):
            return to_read
        if self.settings.security.tls is None:
            return None
        import ssl

        if isinstance(error, ssl.SSLWantReadError):
            return to_read
        # TLS has an answer of its own to send, as to a change of keys, and the socket is full.
        return ((), (self.fileno(),)) if isinstance(error, ssl.SSLWantWriteError) else None


def _joined(parts: list[bytes | bytearray]) -> Iterator[bytes | bytearray]:
    """Put small parts together, as each costs a packet; large ones are not copied."""
    small = bytearray()
    for part in parts:
        if len(part) < _LARGE_PART:
            small += part
            continue
        if small:
            yield small
            small = bytearray()
        yield part
    if small:
        yield small


def largest_answer(name: str) -> int:
    """Return what the frame of an answer must stay below, in bytes, by the name of the request."""
    if name == "Fetch":
        return MAX_FRAME
    return _LARGEST_OF_A_STRANGER if name in _ANSWERS_OF_A_STRANGER else _LARGEST_ANSWER


def _seconds_left(limit: Deadline) -> float:
    left = limit.remaining()
    if left <= 0.0:
        raise TimeoutError  # settimeout(0) would mean "do not block" and give another error
    return left
