"""Connections over real sockets to servers that respond by a script: what a Kafka broker cannot be made to do."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import struct
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse
from tests.unit.client.fake_servers import (
    KAFKA_4,
    SETTINGS,
    FakeServer,
    ServerConnection,
)
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.security_settings import SaslSettings, Secret, SecuritySettings
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.messages import METADATA

KAFKA_0_10_1 = {1: (0, 3), 2: (0, 1), 3: (0, 2), 18: (0, 0)}


def echo_frames(server_side: ServerConnection) -> None:
    """Respond to each request with its correlation id as the body."""
    server_side.respond_to_api_versions()
    while True:
        _, _, correlation_id = server_side.request()
        server_side.respond(correlation_id, b"%d" % correlation_id)


def with_request_timeout(peer: FakeServer, milliseconds: int) -> Connection:
    """Return a connection with a request timeout, which does not apply to opening it."""
    connection = peer.connect()
    connection.settings = replace(SETTINGS, request_timeout_ms=milliseconds)
    return connection


def fetch(connection: Connection, seconds: float = 120) -> memoryview:
    connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(seconds))
    return connection.receive(Deadline.after(seconds))


def test_open_connection_has_api_versions() -> None:
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.api_versions == KAFKA_4
        assert connection.broker == f"127.0.0.1:{peer.port}"
        assert connection.version(METADATA) == 13
        assert connection.idle


@pytest.mark.parametrize(("api_ranges", "fallback"), [({18: (0, 2)}, 2), ({18: (4, 9)}, 5), ({}, 0)])
def test_api_versions_request_falls_back_to_the_version_that_the_broker_names(
    api_ranges: dict[int, tuple[int, int]], fallback: int
) -> None:
    requested_versions: queue.Queue[int] = queue.Queue()

    def handle(server_side: ServerConnection) -> None:
        _, version, correlation_id = server_side.request()
        requested_versions.put(version)
        entries = b"".join(struct.pack(">hhh", key, *span) for key, span in api_ranges.items())
        server_side.respond(correlation_id, struct.pack(">hi", 35, len(api_ranges)) + entries)
        requested_versions.put(server_side.respond_to_api_versions())

    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.api_versions == KAFKA_4
    assert [requested_versions.get(timeout=120) for _ in range(2)] == [3, fallback]


def test_too_old_broker_is_rejected_with_its_release() -> None:
    with (
        FakeServer(lambda server_side: server_side.respond_to_api_versions(KAFKA_0_10_1)) as peer,
        pytest.raises(UnsupportedBrokerError, match=r"appears to be Kafka 0\.10\.1 and lacks Fetch 4") as caught,
    ):
        peer.connect()
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def test_unresponsive_server_times_out_at_the_deadline() -> None:
    settings = replace(SETTINGS, request_timeout_ms=3_600_000, connect_timeout_ms=3_600_000)
    with (
        FakeServer(ServerConnection.keep_open) as peer,
        pytest.raises(BrokerTimeoutError, match="is probably not a Kafka broker"),
    ):
        peer.connect(settings, seconds=1)


def test_unresponsive_server_exceeds_request_timeout() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        server_side.keep_open()

    with FakeServer(handle) as peer:
        connection = with_request_timeout(peer, 200)
        with pytest.raises(BrokerTimeoutError, match=r"No response to Fetch in time.*kafka\.request\.timeout\.ms"):
            fetch(connection)
        assert connection.closed


def test_slow_response_exceeds_request_timeout() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        _, _, correlation_id = server_side.request()
        server_side.socket.sendall(struct.pack(">ii", 1000, correlation_id))
        while True:
            server_side.socket.sendall(b".")
            time.sleep(0.02)

    with FakeServer(handle) as peer:
        connection = with_request_timeout(peer, 300)
        with pytest.raises(BrokerTimeoutError, match=r"kafka\.request\.timeout\.ms"):
            fetch(connection)


def test_throttle_time_extends_request_timeout() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        _, _, correlation_id = server_side.request()
        time.sleep(0.5)
        server_side.respond(correlation_id, b"response")

    with FakeServer(handle) as peer, contextlib.closing(with_request_timeout(peer, 250)) as connection:
        connection.throttle(120_000)
        assert bytes(fetch(connection)) == b"response"


def test_timeout_of_throttled_client_names_the_quota() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        server_side.keep_open()

    with FakeServer(handle) as peer:
        connection = peer.connect()
        connection.throttle(120_000)
        with pytest.raises(BrokerTimeoutError, match=r"throttles this client.*kafka\.default\.api\.timeout\.ms"):
            fetch(connection, seconds=1)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not a Kafka broker"),
        (b"220 mail.example.com ESMTP\r\n", "is not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "set kafka.security.protocol to SSL or SASL_SSL"),
        (struct.pack(">i", -1) + bytes(8), "declares a size of -1 bytes"),
        (struct.pack(">i", 3) + bytes(8), "declares a size of 3 bytes"),
        (struct.pack(">i", 2**31 - 1) + bytes(8), "declares a size of 2147483647 bytes"),
        (struct.pack(">ii", 1 << 16, 1) + bytes(1 << 16), "response to ApiVersions declares a size of 65536 bytes"),
        (struct.pack(">ii", 10, 4711) + bytes(8), "no longer match"),
        (struct.pack(">ii", 8, 1) + b"\0\0\xff\xff", "ApiVersions version 3 is malformed"),
    ],
)
def test_responses_of_other_protocols_raise(sent: bytes, message: str) -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.socket.sendall(sent)
        server_side.socket.shutdown(socket.SHUT_WR)
        server_side.keep_open()

    with FakeServer(handle) as peer, pytest.raises(ProtocolError, match=message) as caught:
        peer.connect()
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def test_connection_closed_at_once_suggests_tls_listener() -> None:
    with (
        FakeServer(lambda server_side: server_side.socket.close()) as peer,
        pytest.raises(BrokerUnreachableError, match=r"TLS listener.*SSL or SASL_SSL"),
    ):
        peer.connect()


def test_connection_closed_after_api_versions_suggests_login() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        server_side.request()
        server_side.socket.close()

    with FakeServer(handle) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachableError, match="requires a login"):
            fetch(connection)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError, match="is closed"):
            fetch(connection)


def test_connection_refused() -> None:
    with FakeServer(echo_frames) as peer:
        port = peer.port
    with pytest.raises(BrokerUnreachableError, match=r"Connection refused.*kafka\.bootstrap\.servers") as caught:
        Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(120))
    assert caught.value.broker == f"127.0.0.1:{port}"


def test_unknown_host_name() -> None:
    with pytest.raises(BrokerError, match=r"'no-such-broker\.invalid'"):
        Connection.open(SETTINGS, "no-such-broker.invalid", 9092, Deadline.after(120))


def test_invalid_host_name() -> None:
    with pytest.raises(BrokerUnreachableError, match="does not resolve"):
        Connection.open(SETTINGS, "a..b", 9092, Deadline.after(120))


def test_unresponsive_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    real = socket.getaddrinfo

    def hang(host: str, port: int, family: int, kind: int, protocol: int, flags: int) -> list[Any]:
        if not flags & socket.AI_NUMERICHOST:
            released.wait(120)
        return list(real("127.0.0.1" if released.is_set() else host, port, family, kind, protocol, flags))

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        with pytest.raises(BrokerTimeoutError, match="not resolved in time"):
            Connection.open(SETTINGS, "broker.example", 9092, Deadline.after(0.1))
    finally:
        released.set()


def test_every_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer(echo_frames) as stopped:
        unused_port = stopped.port
    with FakeServer(echo_frames) as peer:
        addresses = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", unused_port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", unused_port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
        connection = Connection.open(SETTINGS, "many.example", 9092, Deadline.after(120))
        assert connection.broker == "many.example:9092"
        connection.close()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses[1:2] * 2)
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1: .*refused.*; 127\.0\.0\.1: .*refused"):
            Connection.open(SETTINGS, "many.example", 9092, Deadline.after(120))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems behave differently when a backlog is full")
def test_host_that_drops_packets_times_out() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as fillers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # a full backlog drops further SYNs, as a firewall would
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            assert filler.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
        with pytest.raises(BrokerTimeoutError, match=r"socket\.connection\.setup\.timeout\.ms"):
            Connection.open(SETTINGS, "127.0.0.1", listener.getsockname()[1], Deadline.after(0.3))


def test_responses_arrive_in_order() -> None:
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(120)
        for _ in range(3):
            connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        assert not connection.idle
        numbers = [int(bytes(connection.receive(deadline))) for _ in range(3)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
        assert connection.idle
        with pytest.raises(ProtocolError, match="No request is outstanding"):
            connection.receive(deadline)


def test_call_decodes_response_of_kafka_python() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        _, version, correlation_id = server_side.request()
        response = MetadataResponse(
            version=version, brokers=[], cluster_id="cluster", controller_id=1, topics=[], throttle_time_ms=0
        )
        response.with_header(correlation_id=correlation_id)
        server_side.respond(correlation_id, bytes(response.encode(header=True))[4:])

    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.call(METADATA, {"topics": []}, Deadline.after(120)).cluster_id == "cluster"


SIZES = [10, 70_000, 5_000_000, 30, 9_000_000, 40_000]


def send_sized_responses(server_side: ServerConnection) -> None:
    server_side.respond_to_api_versions()
    for number, size in enumerate(SIZES):
        _, _, correlation_id = server_side.request()
        frame = struct.pack(">ii", size + 4, correlation_id) + bytes([number]) * size
        for start in range(0, len(frame), 300_000):
            server_side.socket.sendall(frame[start : start + 300_000])


def test_responses_of_any_size_are_complete() -> None:
    with FakeServer(send_sized_responses) as peer, contextlib.closing(peer.connect()) as connection:
        for number, size in enumerate(SIZES):
            body = fetch(connection)
            assert len(body) == size
            assert bytes(body) == bytes([number]) * size


def test_response_stays_valid_while_next_request_is_in_flight() -> None:
    with FakeServer(send_sized_responses) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(120)
        first = fetch(connection)
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        wait_for_bytes(connection)
        assert bytes(first) == bytes(SIZES[0])
        assert len(connection.receive(deadline)) == SIZES[1]


def test_memory_grows_with_received_bytes_not_declared_size() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        _, _, correlation_id = server_side.request()
        server_side.socket.sendall(struct.pack(">ii", 500 << 20, correlation_id) + b"x" * 100_000)
        server_side.socket.close()

    with FakeServer(handle) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachableError):
            fetch(connection)
        assert len(connection._buffer) <= 5 << 20


@pytest.mark.parametrize(
    ("name", "size"), [("SaslHandshake", 64 << 10), ("SaslAuthenticate", 64 << 10), ("Metadata", 64 << 20)]
)
def test_responses_without_records_are_limited(name: str, size: int) -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        for declared_size in (size - 1, size):
            _, _, correlation_id = server_side.request()
            server_side.socket.sendall(struct.pack(">ii", declared_size, correlation_id) + bytes(declared_size - 4))

    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(120)
        connection.send(3, 4, name, b"", flexible=False, deadline=deadline)
        assert len(connection.receive(deadline)) == size - 5
        connection.send(3, 4, name, b"", flexible=False, deadline=deadline)
        with pytest.raises(ProtocolError, match=f"The response to {name} declares a size of {size} bytes"):
            connection.receive(deadline)


def test_memory_of_oversized_response_is_released() -> None:
    with FakeServer(send_sized_responses) as peer, contextlib.closing(peer.connect()) as connection:
        for _ in SIZES:
            fetch(connection)
        assert len(connection._buffer) <= 5 << 20


@pytest.mark.parametrize(
    ("fetch_sizes", "retained"),
    [([10_000_000], True), ([4_194_304], False), ([10_000_000, 4_194_304], False)],
    ids=["large", "small", "finally small"],
)
def test_reserved_buffer_is_retained(fetch_sizes: list[int], retained: bool) -> None:
    with FakeServer(send_sized_responses) as peer, contextlib.closing(peer.connect()) as connection:
        for size in fetch_sizes:
            settings = FetchSettings(max_partition_fetch_bytes=size)
            FetchChannel(connection, settings)
        for _ in SIZES:
            fetch(connection)
        assert (len(connection._buffer) >= max(SIZES)) == retained


def wait_for_bytes(connection: Connection) -> None:
    """Wait until bytes of the next response have arrived."""
    deadline = Deadline.after(120)
    sock = connection._socket
    assert sock is not None
    while True:
        sock.settimeout(deadline.remaining())
        if sock.recv(1, socket.MSG_PEEK):
            return


def test_reauthentication_preserves_the_last_response() -> None:
    """Records are decoded while the next request is sent, which re-authentication may precede."""
    mechanisms = ("GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

    def authenticate_client(server_side: ServerConnection) -> None:
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
        server_side.respond(server_side.request()[2], struct.pack(">hi", 0, len(mechanisms)) + names)
        server_side.respond(server_side.request()[2], struct.pack(">hhiq", 0, -1, 0, 60_000))

    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions({**KAFKA_4, 17: (0, 1), 36: (0, 1)})
        for body in (b"records" * 10, b"more" * 10):
            authenticate_client(server_side)
            server_side.respond(server_side.request()[2], body)

    system = FakeTimeSystem()
    deadline = Deadline.after(60, system=system)
    security = SecuritySettings("SASL_PLAINTEXT", sasl=SaslSettings("PLAIN", "alice", Secret("secret")))
    settings = replace(SETTINGS, security=security)
    with (
        FakeServer(handle) as peer,
        contextlib.closing(Connection.open(settings, "127.0.0.1", peer.port, deadline)) as connection,
    ):
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        records = connection.receive(deadline)
        system.now += 55  # of the session's 60 seconds
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        assert bytes(records) == b"records" * 10
        assert bytes(connection.receive(deadline)) == b"more" * 10


def test_correlation_ids_continue_at_0_after_the_last_one() -> None:
    """A connection of a stream may live for years."""
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        connection._correlation_id = (1 << 31) - 3
        bodies = [bytes(fetch(connection)) for _ in range(4)]
        assert bodies == [b"2147483646", b"2147483647", b"0", b"1"]


def test_nothing_is_sent_after_the_deadline() -> None:
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        with pytest.raises(BrokerTimeoutError):
            fetch(connection, seconds=0)
        assert connection.closed
