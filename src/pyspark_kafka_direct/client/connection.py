"""A connection to one broker: framing, timeouts, API versions, authentication.

Layout (Kafka protocol guide, "The Kafka Protocol" and "Request and Response Headers"):

    frame            INT32 size, then size bytes
    request header   INT16 api key, INT16 api version, INT32 correlation id, STRING client id, [flexible: TAG_BUFFER]
    response header  INT32 correlation id, [flexible, but never for ApiVersions: TAG_BUFFER]

A broker responds to the requests of a connection in the order in which it received them.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.client.api_versions import check_supported_broker, negotiate_version, newest_version
from pyspark_kafka_direct.client.connection_errors import (
    RequestContext,
    another_cluster_error,
    connection_broken_error,
    looks_like_tls,
    not_kafka_error,
    request_timeout_error,
)
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.response_buffer import PREFIX, ResponseBuffer
from pyspark_kafka_direct.client.socket_connect import connect_socket, format_address
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import BrokerError, BrokerUnreachableError, ProtocolError, TlsError
from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.settings import ConnectionSettings
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

# Larger frames are rejected. No broker sends one: a response holds at most fetch.max.bytes, or one batch if that is
# larger, and socket.request.max.bytes (100 MiB) bounds batches. Printable ASCII starts here too, so text from another
# kind of server ("HTTP", "SSH-") is never read as a frame size.
MAX_FRAME_SIZE = 0x2000_0000

# Responses without records are smaller. Before authentication they have a few hundred bytes, or a few thousand if the
# broker lists its features. The largest one afterwards is Metadata: 200,000 topics with names of maximum length, each
# with one partition and three replicas, take 64 MB.
_MAX_RESPONSE_SIZE = 64 << 20
_MAX_UNAUTHENTICATED_RESPONSE_SIZE = 64 << 10
_UNAUTHENTICATED_APIS = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})

# Version 3 is the first flexible one (Kafka 2.4). A broker that lacks a later version would need a second request.
_FIRST_VERSION_OF_HANDSHAKE = 3
_FIRST_VERSION_WITH_IDENTITY = 5  # Kafka 4.4

_LARGE_PART_SIZE = 16 << 10  # parts of a request from this size on are sent without a copy
_SIZE = struct.Struct(">i")
_CORRELATION_ID_SIZE = 4  # counts towards the frame size
_HEADER = struct.Struct(">hhih")  # API key, API version, correlation id, length of the client id

# Java re-authenticates at a random point between 85% and 95% of the session's lifetime (SaslClientAuthenticator); the
# lower bound leaves most time for a slow call. A broker rejects a second login within a second of the first (KIP-368).
_REAUTHENTICATE_FRACTION = 0.85
_MIN_REAUTHENTICATION_SECONDS = 1.1

_CERTIFICATE_CHECK_SECONDS = 1.0  # a check is a few calls of `stat`, which may be slow on a file server


class BrokerIdentity(NamedTuple):
    """The broker that a client expects at an address, which another broker may use by now (KIP-1242)."""

    cluster_id: str | None  # None if it is not known yet
    node_id: int | None = None  # None for bootstrap servers, which may be any broker of the cluster


ANY_BROKER: Final = BrokerIdentity(None)


class Connection:
    """A connection, owned by one thread at a time; any error except an error code in a response closes it."""

    def __init__(
        self, settings: ConnectionSettings, sock: socket.socket, host: str, port: int, system: System = SYSTEM
    ) -> None:
        self.settings = settings
        self.system = system
        self.host = host
        self.port = port
        self.broker = format_address(host, port)
        self.api_versions: dict[int, tuple[int, int]] = {}  # API key to the lowest and highest version of the broker
        self._socket: socket.socket | None = sock
        self._process_id = os.getpid()  # a child process does not use the connection
        self._client_id = settings.client_id.encode()
        self._response = ResponseBuffer()
        self._correlation_id = 0
        self._outstanding_requests: deque[tuple[int, str]] = deque()  # correlation id and API name, oldest first
        # APIs of which a response has arrived. Errors name a likely cause by it, and only a first response may be TLS.
        self._completed_apis: set[str] = set()
        self._throttled_until = 0.0
        self._reauthenticate_at: float | None = None
        self._authenticating = False
        self._connecting = True
        self.expected = ANY_BROKER
        self._verified: BrokerIdentity | None = None  # what the broker has confirmed
        self._certificates_changed = False
        self._check_certificates_at = self.system.monotonic() + _CERTIFICATE_CHECK_SECONDS
        self.timed_out = False  # whether it was closed because a response did not arrive in time
        self.is_foreign = False  # whether it was closed because the broker no longer is one of the expected cluster
        self.last_response_at = self.system.monotonic()  # before any response: when it was opened

    @classmethod
    def open(cls, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> Self:
        """Connect, perform the TLS handshake, negotiate API versions and authenticate."""
        sock = connect_socket(settings, host, port, deadline)
        try:
            if settings.security.tls is not None:
                sock = cls.start_tls(sock, settings, host, port, deadline)
            connection = cls(settings, sock, host, port, deadline.system)
            connection.negotiate_versions(deadline)
            connection.authenticate(deadline)
        except BaseException:
            sock.close()
            raise
        return connection

    @classmethod
    def start_tls(
        cls, sock: socket.socket, settings: ConnectionSettings, host: str, port: int, deadline: Deadline
    ) -> socket.socket:
        """Perform the TLS handshake over a connected socket; return the TLS socket. Errors close the socket."""
        from pyspark_kafka_direct.client.security.tls_handshake import wrap_socket

        try:
            return wrap_socket(sock, settings, host, deadline)
        except BrokerUnreachableError:  # the connection was closed
            cls._check_uses_tls(settings, host, port, deadline)
            raise

    def negotiate_versions(self, deadline: Deadline) -> None:
        """Fetch the API versions of the broker; a new connection needs them before ``authenticate``."""
        # A broker that does not support this version responds with an error in version 0, and names the versions of
        # ApiVersions that it supports (KIP-511).
        response = self._call_api_versions(_FIRST_VERSION_OF_HANDSHAKE, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            supported = {api.api_key: api.max_version for api in response.api_keys}.get(messages.API_VERSIONS.key, 0)
            response = self._call_api_versions(min(supported, messages.API_VERSIONS.versions.highest), deadline)
        if response.error_code:
            self.close()
            raise error_for(response.error_code, "fetching the broker's API versions", broker=self.broker)
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        check_supported_broker(self.api_versions, self.broker, needs_sasl=self.settings.security.sasl is not None)

    def authenticate(self, deadline: Deadline) -> None:
        """Log in, if the settings have SASL; afterwards the connection can be used."""
        if self.settings.security.sasl is not None:
            self._authenticate(deadline)
        self._connecting = False

    @classmethod
    def _check_uses_tls(cls, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> None:
        """Raise a final error if the listener responds without TLS: a broker that restarts closes connections, too."""
        from pyspark_kafka_direct.options.security_settings import PLAINTEXT

        try:
            cls.open(replace(settings, security=PLAINTEXT), host, port, deadline).close()
        except BrokerError:
            return
        raise TlsError(
            "The listener does not use TLS: it responds to requests without TLS. Set kafka.security.protocol to "
            "PLAINTEXT or SASL_PLAINTEXT, or use the port of a listener with TLS.",
            broker=format_address(host, port),
        )

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def idle(self) -> bool:
        """Whether the connection is open, has no outstanding response, and belongs to this process."""
        return self._socket is not None and not self._outstanding_requests and self._process_id == os.getpid()

    @property
    def reauthentication_due(self) -> bool:
        """Whether the session expires soon; the next request without outstanding responses renews it."""
        return self._reauthenticate_at is not None and self.system.monotonic() >= self._reauthenticate_at

    @property
    def certificates_changed(self) -> bool:
        """Whether files of TLS settings have changed since the connection was opened.

        The connection still works. Its user closes it and opens another one when no response is outstanding.
        """
        tls = self.settings.security.tls
        if tls is None or self._socket is None or self._certificates_changed:
            return self._certificates_changed
        now = self.system.monotonic()
        if now >= self._check_certificates_at:
            from pyspark_kafka_direct.client.security.tls_contexts import is_outdated

            self._check_certificates_at = now + _CERTIFICATE_CHECK_SECONDS
            self._certificates_changed = is_outdated(self._socket, tls, self.system)
        return self._certificates_changed

    @property
    def renewal_due(self) -> bool:
        """Whether the session expires soon or certificates have changed, which both wait for outstanding responses."""
        return self.reauthentication_due or self.certificates_changed

    def fileno(self) -> int:
        """Return the socket's descriptor, to be polled; -1 if the connection is closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def version(self, api: ApiMessageType) -> int:
        return negotiate_version(api.key, api.name, api.versions, self.api_versions, self.broker)

    def call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        """Send a request, in the highest version that both sides support, and wait for its response."""
        self.submit(api, values, deadline)
        return self.complete(api, deadline)

    def submit(
        self,
        api: ApiMessageType,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request; ``complete`` is then called once for each request, in the same order."""
        self._submit(api, self.version(api) if version is None else version, values, deadline)
        if not expects_response:  # such as Produce with acks=0
            self._outstanding_requests.pop()

    def complete(self, api: ApiMessageType, deadline: Deadline, *, version: int | None = None) -> Any:
        """Wait for the response to a request sent by ``submit``, whose ``version`` must be the same."""
        return self._complete(api, self.version(api) if version is None else version, deadline)

    def has_response(self) -> bool:
        """Return whether ``receive`` can read bytes without waiting, or the connection has ended."""
        sock = self._socket
        if sock is None or self.system.readable(sock.fileno()):
            return True
        # TLS reads whole records: bytes that arrived with the last response are no longer in the socket.
        return bool(sock.pending()) if hasattr(sock, "pending") else False

    def send(
        self, api_key: int, api_version: int, name: str, body: bytes, *, flexible: bool, deadline: Deadline
    ) -> None:
        """Send a request whose body is encoded already; ``receive`` returns its response."""
        self._reauthenticate_if_due(deadline)
        correlation_id = self._next_correlation_id()
        header = _HEADER.pack(api_key, api_version, correlation_id, len(self._client_id)) + self._client_id
        if flexible:
            header += b"\0"  # an empty TAG_BUFFER
        self._write(name, [_SIZE.pack(len(header) + len(body)) + header + body], deadline)
        self._outstanding_requests.append((correlation_id, name))

    def receive(self, deadline: Deadline) -> memoryview:
        """Wait for the oldest outstanding response; return its bytes after the correlation id.

        They are valid until the next ``receive`` or ``complete``.
        """
        if not self._outstanding_requests:
            raise ProtocolError("No request is outstanding, so no response can be received.", broker=self.broker)
        sock = self._open_socket()
        _, api_name = self._outstanding_requests[0]
        # A throttled client's requests wait at the broker (KIP-219): this time does not count against the timeout.
        throttle_seconds = max(0.0, self._throttled_until - self.system.monotonic())
        limit = deadline.limited_to(self.settings.request_timeout_ms / 1000 + throttle_seconds)
        with self._closed_on_failure(api_name, deadline, throttle_seconds):
            sock.settimeout(0.0)  # `_read_frame` waits until the limit, and checks the correlation id
            self._read_frame(sock, limit)
        self._outstanding_requests.popleft()
        self._completed_apis.add(api_name)
        self.last_response_at = self.system.monotonic()
        return self._response.take_body()

    def read_available(self) -> bool:
        """Read the received part of the oldest response without waiting; return whether it is complete."""
        sock = self._open_socket()
        deadline = Deadline.after(self.settings.request_timeout_ms / 1000, system=self.system)
        _, api_name = self._outstanding_requests[0]
        with self._closed_on_failure(api_name, deadline):
            sock.settimeout(0.0)
            return self._read_frame(sock, limit=None)

    @property
    def received_bytes(self) -> int:
        """The number of bytes of the next response that were read."""
        return self._response.received_size

    def reserve_buffer(self, size: int) -> None:
        """Retain a receive buffer for responses of about this size; at least a few MiB."""
        self._response.reserve(size)

    def release_buffer(self) -> None:
        """Release the memory of large responses; a response that the caller still reads stays valid."""
        self._response.release()

    def features(self, deadline: Deadline) -> dict[str, int]:
        """Fetch the cluster's finalized features and their levels (KIP-584), which may be raised at any time."""
        response = self._call_api_versions(self.version(messages.API_VERSIONS), deadline)
        if response.error_code:
            raise error_for(response.error_code, "fetching the cluster's features", broker=self.broker)
        return {feature.name: feature.max_version_level for feature in response.finalized_features}

    def expect(self, identity: BrokerIdentity, deadline: Deadline) -> None:
        """Check that the broker is the expected one, if it can tell (Kafka 4.4); metadata is checked in any case."""
        self.expected = identity
        if None in identity or self._verified == identity:  # the request below needs both ids
            return
        # Before Kafka 4.4, only metadata shows another cluster: see `check_cluster`.
        if newest_version(self.api_versions, messages.API_VERSIONS.key) < _FIRST_VERSION_WITH_IDENTITY:
            return
        response = self._call_api_versions(_FIRST_VERSION_WITH_IDENTITY, deadline)  # has the expected identity
        self.close_if_rebootstrap_required(response.error_code)
        if response.error_code:
            self.close()
            error = error_for(response.error_code, f"connecting to broker {identity.node_id}", broker=self.broker)
            if isinstance(error, BrokerUnreachableError):
                error.connected = False  # so that `Witnesses` do not wait for it: the expected broker is not there
            raise error
        self._verified = identity

    def check_cluster(self, cluster_id: str | None) -> None:
        """Raise a transient error if metadata is that of another cluster than the expected one."""
        expected = self.expected.cluster_id
        if expected is None or cluster_id is None or cluster_id == expected:
            return
        self._close_foreign()
        raise another_cluster_error(cluster_id, expected, self.broker)

    def close_if_rebootstrap_required(self, error_code: int) -> None:
        """Close the connection if the broker requires new metadata from the bootstrap servers (KIP-1102)."""
        if error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._close_foreign()

    def throttle(self, milliseconds: int) -> None:
        """Record that a quota delays the connection's next response by so many milliseconds."""
        if milliseconds > 0:
            self._throttled_until = self.system.monotonic() + milliseconds / 1000

    def close(self) -> None:
        """Close the socket; has no effect if it is closed already."""
        sock, self._socket = self._socket, None
        self._outstanding_requests.clear()
        if sock is not None:
            sock.close()

    def _close_foreign(self) -> None:
        self.is_foreign = True
        self.close()

    def _call_api_versions(self, version: int, deadline: Deadline) -> Any:
        cluster_id, node_id = self.expected
        request: dict[str, str | int] = {
            "client_software_name": "pyspark-kafka-direct",
            "client_software_version": __version__,
        }
        if cluster_id is not None and node_id is not None:  # the broker rejects one without the other
            request |= {"cluster_id": cluster_id, "node_id": node_id}
        self._submit(messages.API_VERSIONS, version, request, deadline)
        return self._complete(messages.API_VERSIONS, version, deadline)

    def _submit(self, api: ApiMessageType, version: int, values: Mapping[str, Any], deadline: Deadline) -> None:
        self._reauthenticate_if_due(deadline)
        correlation_id = self._next_correlation_id()
        parts = messages.encode_parts(api, version, correlation_id, self._client_id, values)
        self._write(api.name, parts, deadline)
        self._outstanding_requests.append((correlation_id, api.name))

    def _complete(self, api: ApiMessageType, version: int, deadline: Deadline) -> Any:
        body = self.receive(deadline)
        try:
            response = messages.decode(api, version, body)
        except MalformedError as error:
            self.close()
            raise ProtocolError(
                f"The response to {api.name} version {version} is malformed: {error}. Check that a Kafka broker "
                "listens there.",
                broker=self.broker,
            ) from None
        self.throttle(getattr(response, "throttle_time_ms", 0))
        return response

    def _authenticate(self, deadline: Deadline) -> None:
        from pyspark_kafka_direct.client.security.sasl_authenticator import authenticate

        self._authenticating = True
        started_at = self.system.monotonic()
        # Sending a request can authenticate first, while the caller still reads the last response in the buffer.
        last_response, self._response = self._response, ResponseBuffer()
        try:
            session_lifetime = authenticate(self, deadline)
        except BaseException:
            self.close()
            raise
        finally:
            self._authenticating = False
            self._response = last_response
        self._reauthenticate_at = None
        if session_lifetime is not None:
            self._reauthenticate_at = started_at + max(
                session_lifetime * _REAUTHENTICATE_FRACTION, _MIN_REAUTHENTICATION_SECONDS
            )

    def _reauthenticate_if_due(self, deadline: Deadline) -> None:
        # Authentication is an exchange of its own, so it waits until no response is outstanding.
        if self.reauthentication_due and not self._authenticating and not self._outstanding_requests:
            self.authenticate(deadline)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return self._correlation_id

    def _request_context(self, name: str) -> RequestContext:
        return RequestContext(
            broker=self.broker,
            settings=self.settings,
            host=self.host,
            operation=name,
            answered_requests=frozenset(self._completed_apis),
            is_connecting=self._connecting,
        )

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise BrokerUnreachableError("The connection is closed.", broker=self.broker)
        if self._process_id != os.getpid():
            # Parent and child would write into each other's requests. Closing this descriptor keeps the parent's open.
            self.close()
            raise BrokerUnreachableError("The connection belongs to the parent process.", broker=self.broker)
        return self._socket

    def _write(self, name: str, parts: list[bytes | bytearray | memoryview], deadline: Deadline) -> None:
        sock = self._open_socket()
        limit = deadline.limited_to(self.settings.request_timeout_ms / 1000)
        with self._closed_on_failure(name, deadline):
            for part in _coalesce(parts):
                sock.settimeout(_remaining_seconds(limit))
                sock.sendall(part)

    @contextmanager
    def _closed_on_failure(self, name: str, deadline: Deadline, throttle_seconds: float = 0.0) -> Iterator[None]:
        """Close the connection on any error, and turn the socket's errors into this package's."""
        try:
            yield
        except BrokerError:  # an OSError too, so it comes first
            self.close()
            raise
        except TimeoutError:
            self.timed_out = not deadline.cancelled  # else the broker may be responsive
            self.close()
            raise request_timeout_error(self._request_context(name), deadline, throttle_seconds) from None
        except OSError as error:
            self.close()
            raise connection_broken_error(self._request_context(name), error) from error
        except BaseException:
            self.close()
            raise

    def _read_frame(self, sock: socket.socket, limit: Deadline | None) -> bool:
        """Read more of the next frame, and return whether it is complete; without a limit, do not wait for bytes."""
        response = self._response
        if response.body_size is None:
            try:
                self._read_into(sock, response.free_space(), limit)
            except OSError:
                if looks_like_tls(response.prefix):  # a TLS alert is shorter than a prefix
                    self._check_prefix()
                raise
            if response.free_space():
                return False
            response.begin_body(self._check_prefix())
        while space := response.free_space():
            received_before = response.received_size
            self._read_into(sock, space, limit)
            if response.received_size < received_before + len(space):
                return False
        return True

    def _check_prefix(self) -> int:
        """Check the size and the correlation id of a frame; return the size of its rest."""
        size, received_id = PREFIX.unpack(self._response.prefix)
        correlation_id, name = self._outstanding_requests[0]
        is_valid_size = _CORRELATION_ID_SIZE <= size < max_response_size(name)
        is_first_response = not self._completed_apis  # later, the size of a Fetch response may look like TLS
        if not is_valid_size or (is_first_response and looks_like_tls(self._response.prefix)):
            raise not_kafka_error(self._request_context(name), bytes(self._response.prefix))
        if received_id != correlation_id:
            raise ProtocolError(
                f"A response to request {received_id} arrived, but {correlation_id} was expected: requests and "
                "responses no longer match.",
                broker=self.broker,
            )
        return int(size) - _CORRELATION_ID_SIZE

    def _read_into(self, sock: socket.socket, view: memoryview, limit: Deadline | None) -> None:
        """Read into a view of the response; without a limit, stop if no bytes are available."""
        # With TLS each call returns one record, 16 KiB at most, so this loop runs hundreds of times per frame. The
        # socket does not block, and reading the clock is cheaper than setting a timeout for each call.
        while view:
            if limit is not None and limit.expired:
                raise TimeoutError
            try:
                count = sock.recv_into(view)
            except OSError as error:
                wait_condition = self._wait_condition(error)
                if wait_condition is None:
                    raise
                if limit is None:  # the caller does not wait
                    return
                to_read, to_write = wait_condition
                self.system.wait_ready((*to_read, *limit.wakeup_fds), to_write, limit.remaining())
                continue
            if count == 0:  # the broker closed the connection within a frame or before one
                raise ConnectionResetError
            self._response.received_size += count
            view = view[count:]

    def _wait_condition(self, error: OSError) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return what a read has to wait for, as arguments of ``wait_ready`` (to read, to write); None if it failed."""
        until_readable = ((self.fileno(),), ())
        if isinstance(error, BlockingIOError):
            return until_readable
        if self.settings.security.tls is None:
            return None
        import ssl

        if isinstance(error, ssl.SSLWantReadError):
            return until_readable
        if isinstance(error, ssl.SSLWantWriteError):  # TLS sends a message, such as a key update; the socket is full
            return ((), (self.fileno(),))
        return None


def _coalesce(parts: Sequence[bytes | bytearray | memoryview]) -> Iterator[bytes | bytearray | memoryview]:
    """Join small parts, because each costs a packet; large parts are not copied."""
    small = bytearray()
    for part in parts:
        if len(part) < _LARGE_PART_SIZE:
            small += part
            continue
        if small:
            yield small
            small = bytearray()
        yield part
    if small:
        yield small


def max_response_size(name: str) -> int:
    """Return the exclusive limit of a response frame's size, in bytes, by request name."""
    if name == "Fetch":
        return MAX_FRAME_SIZE
    return _MAX_UNAUTHENTICATED_RESPONSE_SIZE if name in _UNAUTHENTICATED_APIS else _MAX_RESPONSE_SIZE


def _remaining_seconds(limit: Deadline) -> float:
    remaining = limit.remaining()
    if remaining <= 0.0:
        raise TimeoutError  # settimeout(0) would mean "do not block" and give another error
    return remaining
