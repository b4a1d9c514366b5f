"""Connections over real sockets to servers that respond by a script: what a Kafka broker cannot be made to do."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import struct
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.faults import RequestFault
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.fake_servers import (
    KAFKA_4,
    SETTINGS,
    FakeServer,
    ServerConnection,
)

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import Address
from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    ProtocolError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import FIND_COORDINATOR, METADATA, PRODUCE

if TYPE_CHECKING:
    from collections.abc import Iterator

KAFKA_0_10_1 = {1: (0, 3), 2: (0, 1), 3: (0, 2), 18: (0, 0)}


def echo_frames(server_side: ServerConnection) -> None:
    """Respond to each request with its correlation id as the body."""
    server_side.respond_to_api_versions()
    while True:
        _, _, correlation_id = server_side.request()
        server_side.respond(correlation_id, b"%d" % correlation_id)


def fetch(connection: Connection, seconds: float = 120) -> memoryview:
    connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(seconds))
    return connection.receive(Deadline.after(seconds))


@pytest.mark.parametrize(
    ("api_ranges", "fallback"),
    [({18: (0, 2)}, 2), ({3: (0, 1), 18: (0, 2), 36: (0, 0)}, 2), ({18: (4, 9)}, 5), ({}, 0)],
)
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
        pytest.raises(
            UnsupportedBrokerError, match=r"appears to be Kafka 0\.10\.1 and lacks Fetch 4, ListOffsets 2, Metadata 4\."
        ) as caught,
    ):
        peer.connect()
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def test_other_errors_of_the_first_request_are_final() -> None:
    with UnitCluster({}) as cluster:
        client = cluster.client()
        for code in set(ErrorCode) - {ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION}:
            cluster.change("ApiVersions", partial(with_error, code))
            sent = cluster.sent("ApiVersions")
            with pytest.raises(KafkaDirectError, match=f"{code.name} while fetching the broker's API versions"):
                Connection.open(client.settings, "broker-1", 9092, client.deadline())
            assert cluster.sent("ApiVersions") == sent + 1


def with_error(code: int, _: int, values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "error_code": code}


def test_a_request_without_a_response_is_not_outstanding() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        server_side.frame()
        _, _, correlation_id = server_side.request()
        server_side.respond(correlation_id, b"body")
        server_side.keep_open()

    request = {"acks": 0, "timeout_ms": 1, "topic_data": []}
    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        connection.submit(PRODUCE, request, Deadline.after(120), expects_response=False)
        assert connection.idle
        assert bytes(fetch(connection)) == b"body"


def test_a_request_without_a_response_may_follow_one_that_is_outstanding() -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        _, _, correlation_id = server_side.request()
        server_side.frame()
        server_side.respond(correlation_id, b"body")
        server_side.keep_open()

    request = {"acks": 0, "timeout_ms": 1, "topic_data": []}
    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(120))
        connection.submit(PRODUCE, request, Deadline.after(120), expects_response=False)
        assert not connection.idle
        assert bytes(connection.receive(Deadline.after(120))) == b"body"
        assert connection.idle


def test_a_request_that_cannot_be_sent_times_out() -> None:
    """The broker reads nothing, so the buffers of the sockets are full."""

    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        ended.wait(120)

    ended = threading.Event()
    settings = replace(SETTINGS, request_timeout_ms=200)
    with FakeServer(handle) as peer, contextlib.closing(peer.connect(settings)) as connection:
        try:
            with pytest.raises(BrokerTimeoutError, match=r"to Fetch in time.*kafka\.request\.timeout\.ms"):
                connection.send(1, 4, "Fetch", bytes(64 << 20), flexible=False, deadline=Deadline.after(30))
        finally:
            ended.set()
        assert (connection.closed, connection.timed_out) == (True, True)


def test_a_connection_of_another_process_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_forks`` has such processes."""
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.idle
        process_id = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: process_id + 1)
        assert not connection.idle
        with pytest.raises(BrokerUnreachableError, match="belongs to the parent process"):
            fetch(connection)
        assert connection.closed


# Time that responses may take.


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({}, connection={"request_timeout_ms": 3_000}) as cluster:
        yield cluster


def connect(cluster: UnitCluster, **settings: Any) -> tuple[Connection, Deadline]:
    """Return a connection to a simulated broker, and a deadline."""
    client = cluster.client(**settings)
    deadline = client.deadline(60)
    return cluster.pool.acquire(client.settings, "broker-1", 9092, deadline), deadline


def test_unresponsive_server_times_out_at_the_deadline(cluster: UnitCluster) -> None:
    cluster.every("ApiVersions", "stall_response")
    long = {"request_timeout_ms": 3_600_000, "connect_timeout_ms": 3_600_000}
    client, started = cluster.client(**long), cluster.now
    with pytest.raises(BrokerTimeoutError, match=r"is probably not a Kafka broker.*kafka\.socket\.connection\.setup"):
        cluster.pool.acquire(client.settings, "broker-1", 9092, client.deadline(7))
    assert cluster.now - started == pytest.approx(7, abs=0.01)


@pytest.mark.parametrize(
    "fault", [{"kind": "stall_response"}, {"kind": "split_response", "pieces": 30, "seconds": 0.2}], ids=["no", "slow"]
)
@pytest.mark.parametrize(
    ("throttle_ms", "seconds", "message"),
    [
        (0, 3, r"No response to Metadata in time.*kafka\.request\.timeout\.ms"),
        (2_000, 5, r"No response to Metadata in time.*throttles this client.*kafka\.request\.timeout\.ms"),
        (99_000, 60, r"throttles this client.*kafka\.default\.api\.timeout\.ms"),
    ],
)
def test_late_response_exceeds_the_timeout(
    cluster: UnitCluster, fault: dict[str, Any], throttle_ms: int, seconds: float, message: str
) -> None:
    """The time of a quota does not count against request.timeout.ms (KIP-219)."""
    connection, deadline = connect(cluster)
    connection.throttle(throttle_ms)
    started = cluster.now
    cluster.every("Metadata", **fault | ({"seconds": 3.0} if "pieces" in fault and throttle_ms == 99_000 else {}))
    with pytest.raises(BrokerTimeoutError, match=message):
        connection.call(METADATA, {"topics": []}, deadline)
    assert cluster.now - started == pytest.approx(seconds, abs=0.05)
    assert connection.closed
    assert connection.timed_out


@pytest.mark.parametrize("is_in_response", [False, True])
def test_throttle_time_extends_request_timeout(cluster: UnitCluster, is_in_response: bool) -> None:
    connection, deadline = connect(cluster)
    if is_in_response:
        cluster.change("Metadata", lambda _, values: {**values, "throttle_time_ms": 2_000})
        connection.call(METADATA, {"topics": []}, deadline)
        cluster.change("Metadata", None)
    else:
        connection.throttle(2_000)
        connection.throttle(0)  # of another response
    # A broker delays its response for the throttle time too.
    cluster.fault("Metadata", "delay_response", seconds=2.8 if is_in_response else 4.9)
    assert connection.call(METADATA, {"topics": []}, deadline).cluster_id == "simulated-cluster"
    cluster.pool.release(connection)


def test_an_error_names_the_oldest_request_without_a_response(cluster: UnitCluster) -> None:
    connection, deadline = connect(cluster)
    cluster.every("Metadata", "stall_response")
    connection.submit(METADATA, {"topics": []}, deadline)
    connection.submit(FIND_COORDINATOR, {"key": "g", "key_type": 0}, deadline)
    with pytest.raises(BrokerTimeoutError, match="No response to Metadata in time"):
        connection.complete(METADATA, deadline)


def test_a_malformed_response_closes_the_connection(cluster: UnitCluster) -> None:
    connection, deadline = connect(cluster)
    cluster.fault("Metadata", "garble_response")
    with pytest.raises(ProtocolError, match=r"response to Metadata version 13 is malformed: .+\. Check"):
        connection.call(METADATA, {"topics": []}, deadline)
    assert connection.closed


def test_each_address_of_a_host_gets_an_equal_share_of_the_time(
    cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [Address(socket.AF_INET, socket.SOCK_STREAM, 6, (f"broker-{number}", 9092)) for number in (3, 2, 1)]
    monkeypatch.setattr(cluster.process, "resolve_host", lambda *_: addresses)
    connection, _ = connect(cluster, connect_timeout_ms=12_000)
    assert cluster.connect_limits == pytest.approx([4, 6, 12], abs=0.1)
    cluster.pool.release(connection)


def test_an_error_names_each_address_that_did_not_respond(
    cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [Address(socket.AF_INET, socket.SOCK_STREAM, 6, (f"broker-{number}", 9092)) for number in (3, 2, 1)]
    monkeypatch.setattr(cluster.process, "resolve_host", lambda *_: addresses)
    cluster.connect_fault("stall_connect", repeats=3)
    with pytest.raises(BrokerTimeoutError, match=r"\(broker-3, broker-2, broker-1 did not respond\)"):
        connect(cluster)
    cluster.sleep(10)
    cluster.connect_fault("stall_connect", repeats=2)
    cluster.network.connect_faults[cluster.network.connect_count + 2] = RequestFault("refuse_connect")
    with pytest.raises(BrokerUnreachableError, match=r"broker-3: no response in time; .*; broker-1: .*refused"):
        connect(cluster)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ECONNREFUSED, "nothing listens there"),
        (errno.ENETUNREACH, "no route from this machine"),
        (errno.EHOSTUNREACH, "no route from this machine"),
        (errno.ECONNRESET, "the other side closed the connection"),
        (errno.EMFILE, "this process has no file descriptors left"),
        (errno.EACCES, None),
    ],
)
def test_the_advice_for_an_address_that_cannot_be_connected_to(
    cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch, code: int, advice: str | None
) -> None:
    def fail(*_: object) -> socket.socket:
        raise OSError(code, "a reason")

    monkeypatch.setattr(cluster.process, "connect_tcp", fail)
    with pytest.raises(BrokerUnreachableError) as caught:
        connect(cluster)
    assert f": a reason ({advice}" in caught.value.message if advice else caught.value.message.endswith(": a reason.")


def test_nothing_is_sent_after_the_deadline(cluster: UnitCluster) -> None:
    connection, _ = connect(cluster)
    with pytest.raises(BrokerTimeoutError):
        connection.call(METADATA, {"topics": []}, Deadline.after(0, system=cluster.process))
    assert connection.closed
    assert cluster.sent("Metadata") == 0


def test_a_connection_whose_read_was_interrupted_is_closed(
    cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next response would be that of the interrupted request."""

    def interrupt(*_: object) -> set[int]:
        raise KeyboardInterrupt

    connection, deadline = connect(cluster)
    cluster.fault("Metadata", "stall_response")
    monkeypatch.setattr(cluster.process, "wait_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        connection.call(METADATA, {"topics": []}, deadline)
    assert connection.closed


@pytest.mark.parametrize(("family", "expected"), [("any", 0), ("v4", socket.AF_INET), ("v6", socket.AF_INET6)])
def test_the_family_of_addresses(
    cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch, family: str, expected: int
) -> None:
    families, resolve = [], cluster.process.resolve_host

    def resolve_host(host: str, port: int, family: int, flags: int) -> list[Address]:
        families.append(family)
        return resolve(host, port, family, flags)

    monkeypatch.setattr(cluster.process, "resolve_host", resolve_host)
    connection, _ = connect(cluster, address_family=family)
    assert set(families) == {expected}
    cluster.pool.release(connection)


# What is no response of a Kafka broker.


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not a Kafka broker"),
        (b"220 mail.example.com ESMTP\r\n", "is not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "set kafka.security.protocol to SSL or SASL_SSL"),
        (b"\x16\x03\x01\x00\x04\x0e\x00\x00\x00", "set kafka.security.protocol to SSL or SASL_SSL"),
        (b"\x17\x03\x03\x00\x02\x02\x50\x00", "declares a size of 386073344 bytes"),
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


@pytest.mark.parametrize("responses", [0, 1, 2])
def test_connection_closed_after_api_versions_suggests_login(responses: int) -> None:
    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        for _ in range(responses):
            server_side.respond(server_side.request()[2], b"body")
        server_side.request()
        server_side.socket.close()

    with FakeServer(handle) as peer:
        connection = peer.connect()
        for _ in range(responses):
            fetch(connection)
        with pytest.raises(BrokerUnreachableError, match="broke during Fetch") as caught:
            fetch(connection)
        assert ("requires a login" in caught.value.message) is (responses == 0)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError, match="is closed"):
            fetch(connection)


def test_connection_refused() -> None:
    with FakeServer(echo_frames) as peer:
        port = peer.port
        with pytest.raises(BrokerTimeoutError):
            Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(0))
    with pytest.raises(BrokerUnreachableError, match=r"Connection refused.*kafka\.bootstrap\.servers") as caught:
        Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(120))
    assert caught.value.broker == f"127.0.0.1:{port}"
    with pytest.raises(BrokerUnreachableError) as caught:
        Connection.open(SETTINGS, "::1", port, Deadline.after(120))
    assert caught.value.broker == f"[::1]:{port}"


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


@pytest.mark.parametrize("sizes", [(20_000, 10, 20_000), (10, 20_000, 10), (20_000, 20_000, 20_000), (10, 10, 10)])
def test_all_parts_of_a_request_are_sent(sizes: tuple[int, ...]) -> None:
    """Large parts are sent without a copy."""
    records = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    received: queue.Queue[bytes] = queue.Queue()

    def handle(server_side: ServerConnection) -> None:
        server_side.respond_to_api_versions()
        received.put(server_side.frame())
        server_side.keep_open()

    partitions = [{"index": number, "records": each} for number, each in enumerate(records)]
    request = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": "t", "partition_data": partitions}]}
    with FakeServer(handle) as peer, contextlib.closing(peer.connect()) as connection:
        connection.submit(PRODUCE, request, Deadline.after(120))
        body = received.get(timeout=120)
    assert [body.count(bytes([number + 1]) * 10) for number in range(3)] == [size // 10 for size in sizes]


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
        assert (connection._response.capacity >= max(SIZES)) == retained


def test_correlation_ids_continue_at_0_after_the_last_one() -> None:
    """A connection of a stream may live for years."""
    with FakeServer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        connection._correlation_id = (1 << 31) - 3
        bodies = [bytes(fetch(connection)) for _ in range(4)]
        assert bodies == [b"2147483646", b"2147483647", b"0", b"1"]
