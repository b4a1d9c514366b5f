"""Connections over real sockets to peers that answer by a script: what a Kafka broker cannot be made to do."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse
from tests.unit.wire.peers import KAFKA_4, SETTINGS, Caller, Peer
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import SaslSettings, SecuritySettings
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.messages import METADATA


def echo_frames(caller: Caller) -> None:
    """Answer each request with its correlation id, then nothing else."""
    caller.versions()
    while True:
        _, _, correlation_id = caller.request()
        caller.answer(correlation_id, b"%d" % correlation_id)


def impatient(peer: Peer, milliseconds: int) -> Connection:
    """A connection with a short limit of one request, which does not hold for opening it: the peer may be slow."""
    connection = peer.connect()
    connection.settings = replace(SETTINGS, request_timeout_ms=milliseconds)
    return connection


def ask(connection: Connection, seconds: float = 20) -> memoryview:
    connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=Deadline.after(seconds))
    return connection.receive(Deadline.after(seconds))


def test_the_versions_of_the_broker_are_known_after_opening() -> None:
    with Peer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.api_versions == KAFKA_4
        assert connection.broker == f"127.0.0.1:{peer.port}"
        assert connection.version(METADATA) == 13
        assert connection.idle


@pytest.mark.parametrize("hint", [{18: (0, 2)}, {}])
def test_a_broker_that_knows_only_older_api_versions_is_asked_again(hint: dict[int, tuple[int, int]]) -> None:
    asked = []

    def talk(caller: Caller) -> None:
        _, version, correlation_id = caller.request()
        asked.append(version)
        entries = b"".join(struct.pack(">hhh", key, *span) for key, span in hint.items())
        caller.answer(correlation_id, struct.pack(">hi", 35, len(hint)) + entries)
        _, version, correlation_id = caller.request()
        asked.append(version)
        entries = b"".join(struct.pack(">hhh", key, *span) for key, span in KAFKA_4.items())
        caller.answer(correlation_id, struct.pack(">hi", 0, len(KAFKA_4)) + entries)

    with Peer(talk) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.api_versions == KAFKA_4
    assert asked == [3, 0]


def test_a_broker_that_is_too_old_is_refused_by_name() -> None:
    with (
        Peer(lambda caller: caller.versions({1: (0, 3), 2: (0, 1), 3: (0, 2), 18: (0, 0)})) as peer,
        pytest.raises(UnsupportedBrokerError, match=r"looks like Kafka 0\.10\.1 and lacks Fetch 4") as caught,
    ):
        peer.connect()
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def test_a_silent_peer_meets_the_deadline() -> None:
    started = time.monotonic()
    with Peer(Caller.stay) as peer, pytest.raises(BrokerTimeoutError, match="does not speak Kafka"):
        peer.connect(seconds=1)
    assert time.monotonic() - started < 30


def test_a_silent_peer_meets_the_limit_of_one_request() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        caller.stay()

    with Peer(talk) as peer:
        connection = impatient(peer, 200)
        with pytest.raises(BrokerTimeoutError, match=r"No answer to Fetch in time.*kafka\.request\.timeout\.ms"):
            ask(connection)
        assert connection.closed


def test_a_dribbling_peer_meets_the_deadline_too() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        _, _, correlation_id = caller.request()
        caller.socket.sendall(struct.pack(">ii", 1000, correlation_id))
        while True:
            caller.socket.sendall(b".")
            time.sleep(0.02)

    started = time.monotonic()
    with Peer(talk) as peer:
        connection = impatient(peer, 300)
        with pytest.raises(BrokerTimeoutError):
            ask(connection)
    assert time.monotonic() - started < 30


def test_a_throttled_request_may_take_longer() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        _, _, correlation_id = caller.request()
        time.sleep(0.5)
        caller.answer(correlation_id, b"at last")

    with Peer(talk) as peer, contextlib.closing(impatient(peer, 250)) as connection:
        connection.throttle(30_000)
        assert bytes(ask(connection)) == b"at last"


def test_throttling_is_named_when_time_runs_out() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        caller.stay()

    with Peer(talk) as peer:
        connection = peer.connect()
        connection.throttle(60_000)
        with pytest.raises(BrokerTimeoutError, match=r"throttles this client.*kafka\.default\.api\.timeout\.ms"):
            ask(connection, seconds=1)


@pytest.mark.parametrize(
    ("speech", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no Kafka broker"),
        (b"220 mail.example.com ESMTP\r\n", "no Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "set kafka.security.protocol to SSL or SASL_SSL"),
        (struct.pack(">i", -1) + bytes(8), "claims to be -1 bytes"),
        (struct.pack(">i", 3) + bytes(8), "claims to be 3 bytes"),
        (struct.pack(">i", 2**31 - 1) + bytes(8), "claims to be 2147483647 bytes"),
        (struct.pack(">ii", 1 << 16, 1) + bytes(1 << 16), "answer to ApiVersions claims to be 65536 bytes"),
        (struct.pack(">ii", 10, 4711) + bytes(8), "out of step"),
        (struct.pack(">ii", 8, 1) + b"\0\0\xff\xff", "ApiVersions version 3 is malformed"),
    ],
)
def test_garbage_is_named_as_such(speech: bytes, message: str) -> None:
    def talk(caller: Caller) -> None:
        caller.socket.sendall(speech)
        caller.socket.shutdown(socket.SHUT_WR)
        caller.stay()

    with Peer(talk) as peer, pytest.raises(ProtocolError, match=message) as caught:
        peer.connect()
    assert caught.value.broker == f"127.0.0.1:{peer.port}"


def test_a_peer_that_hangs_up_at_once_may_be_a_tls_listener() -> None:
    with (
        Peer(lambda caller: caller.socket.close()) as peer,
        pytest.raises(BrokerUnreachableError, match=r"TLS listener.*SSL or SASL_SSL"),
    ):
        peer.connect()


def test_a_peer_that_hangs_up_after_the_versions_may_want_a_login() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        caller.request()
        caller.socket.close()

    with Peer(talk) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachableError, match="want a login"):
            ask(connection)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError, match="is closed"):
            ask(connection)


def test_nobody_listens() -> None:
    with Peer(echo_frames) as peer:
        port = peer.port
    with pytest.raises(BrokerUnreachableError, match=r"Connection refused.*kafka\.bootstrap\.servers") as caught:
        Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(20))
    assert caught.value.broker == f"127.0.0.1:{port}"


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(BrokerError, match=r"'no-such-broker\.invalid'"):
        Connection.open(SETTINGS, "no-such-broker.invalid", 9092, Deadline.after(30))


def test_a_name_that_cannot_be() -> None:
    with pytest.raises(BrokerUnreachableError, match="does not resolve"):
        Connection.open(SETTINGS, "a..b", 9092, Deadline.after(30))


def test_a_name_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    real = socket.getaddrinfo

    def stuck(host: str, port: int, family: int, kind: int, protocol: int, flags: int) -> list[Any]:
        if not flags & socket.AI_NUMERICHOST:
            released.wait(30)
        return list(real("127.0.0.1" if released.is_set() else host, port, family, kind, protocol, flags))

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    try:
        with pytest.raises(BrokerTimeoutError, match="not resolved in time"):
            Connection.open(SETTINGS, "broker.example", 9092, Deadline.after(0.1))
    finally:
        released.set()


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer(echo_frames) as dead:
        dead_port = dead.port
    with Peer(echo_frames) as peer:
        addresses = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", dead_port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", dead_port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
        connection = Connection.open(SETTINGS, "many.example", 9092, Deadline.after(20))
        assert connection.broker == "many.example:9092"
        connection.close()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses[1:2] * 2)
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1: .*refused.*; 127\.0\.0\.1: .*refused"):
            Connection.open(SETTINGS, "many.example", 9092, Deadline.after(20))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer differently when a backlog is full")
def test_a_host_that_swallows_packets_meets_the_deadline() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as fillers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # a full backlog drops further SYNs, as a firewall would
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            assert filler.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
        with pytest.raises(BrokerTimeoutError, match=r"socket\.connection\.setup\.timeout\.ms"):
            Connection.open(SETTINGS, "127.0.0.1", listener.getsockname()[1], Deadline.after(0.3))


def test_requests_are_answered_in_order() -> None:
    with Peer(echo_frames) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(20)
        for _ in range(3):
            connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        assert not connection.idle
        numbers = [int(bytes(connection.receive(deadline))) for _ in range(3)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
        assert connection.idle
        with pytest.raises(ProtocolError, match="no request is outstanding"):
            connection.receive(deadline)


def test_a_call_decodes_what_the_library_encoded() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        _, version, correlation_id = caller.request()
        response = MetadataResponse(
            version=version, brokers=[], cluster_id="cluster", controller_id=1, topics=[], throttle_time_ms=0
        )
        response.with_header(correlation_id=correlation_id)
        caller.answer(correlation_id, bytes(response.encode(header=True))[4:])

    with Peer(talk) as peer, contextlib.closing(peer.connect()) as connection:
        assert connection.call(METADATA, {"topics": []}, Deadline.after(20)).cluster_id == "cluster"


SIZES = [10, 70_000, 5_000_000, 30, 9_000_000, 40_000]


def sized_answers(caller: Caller) -> None:
    caller.versions()
    for number, size in enumerate(SIZES):
        _, _, correlation_id = caller.request()
        frame = struct.pack(">ii", size + 4, correlation_id) + bytes([number]) * size
        for start in range(0, len(frame), 300_000):
            caller.socket.sendall(frame[start : start + 300_000])


def test_answers_of_any_size_arrive_whole() -> None:
    with Peer(sized_answers) as peer, contextlib.closing(peer.connect()) as connection:
        for number, size in enumerate(SIZES):
            body = ask(connection)
            assert len(body) == size
            assert bytes(body) == bytes([number]) * size


def test_an_answer_stays_valid_while_the_next_request_is_under_way() -> None:
    with Peer(sized_answers) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(20)
        first = ask(connection)
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        descriptor_ready(connection)
        assert bytes(first) == bytes(SIZES[0])
        assert len(connection.receive(deadline)) == SIZES[1]


def test_memory_follows_what_arrived_not_what_was_claimed() -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        _, _, correlation_id = caller.request()
        caller.socket.sendall(struct.pack(">ii", 500 << 20, correlation_id) + b"x" * 100_000)
        caller.socket.close()

    with Peer(talk) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachableError):
            ask(connection)
        assert len(connection._buffer) <= 5 << 20


@pytest.mark.parametrize(
    ("name", "size"), [("SaslHandshake", 64 << 10), ("SaslAuthenticate", 64 << 10), ("Metadata", 64 << 20)]
)
def test_answers_without_records_are_small(name: str, size: int) -> None:
    def talk(caller: Caller) -> None:
        caller.versions()
        for claimed in (size - 1, size):
            _, _, correlation_id = caller.request()
            caller.socket.sendall(struct.pack(">ii", claimed, correlation_id) + bytes(claimed - 4))

    with Peer(talk) as peer, contextlib.closing(peer.connect()) as connection:
        deadline = Deadline.after(60)
        connection.send(3, 4, name, b"", flexible=False, deadline=deadline)
        assert len(connection.receive(deadline)) == size - 5
        connection.send(3, 4, name, b"", flexible=False, deadline=deadline)
        with pytest.raises(ProtocolError, match=f"The answer to {name} claims to be {size} bytes"):
            connection.receive(deadline)


def test_an_outsized_answer_does_not_keep_its_memory() -> None:
    with Peer(sized_answers) as peer, contextlib.closing(peer.connect()) as connection:
        for _ in SIZES:
            ask(connection)
        assert len(connection._buffer) <= 5 << 20


@pytest.mark.parametrize(
    ("fetched", "kept"),
    [([10_000_000], True), ([4_194_304], False), ([10_000_000, 4_194_304], False)],
    ids=["large", "small", "small at last"],
)
def test_memory_is_kept_for_what_is_fetched_over_the_connection(fetched: list[int], kept: bool) -> None:
    with Peer(sized_answers) as peer, contextlib.closing(peer.connect()) as connection:
        for size in fetched:
            settings = FetchSettings(max_partition_fetch_bytes=size)
            FetchChannel(connection, topic="t", topic_id=None, partition=0, settings=settings)
        for _ in SIZES:
            ask(connection)
        assert (len(connection._buffer) >= max(SIZES)) == kept


def test_a_child_process_does_not_use_its_parents_connection() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_connection import *
with Peer(echo_frames) as peer:
    connection = peer.connect()
    child = os.fork()
    if child == 0:
        try:
            ask(connection)
        except BrokerUnreachableError as error:
            os._exit(0 if "parent process" in str(error) else 2)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), len(ask(connection)) > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0 True", done.stderr


def descriptor_ready(connection: Connection) -> None:
    """Wait until bytes of the next answer have arrived."""
    deadline = Deadline.after(20)
    sock = connection._socket
    assert sock is not None
    while True:
        sock.settimeout(deadline.remaining())
        if sock.recv(1, socket.MSG_PEEK):
            return


def test_a_log_in_between_two_requests_leaves_the_last_answer_as_it_is() -> None:
    """Records are decoded while the next request is under way, and a log-in may have to come before that request."""
    mechanisms = ("GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

    def log_in(caller: Caller) -> None:
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
        caller.answer(caller.request()[2], struct.pack(">hi", 0, len(mechanisms)) + names)
        caller.answer(caller.request()[2], struct.pack(">hhiq", 0, -1, 0, 60_000))

    def talk(caller: Caller) -> None:
        caller.versions({**KAFKA_4, 17: (0, 1), 36: (0, 1)})
        for answer in (b"records" * 10, b"more" * 10):
            log_in(caller)
            caller.answer(caller.request()[2], answer)

    system = Frozen()
    deadline = Deadline.after(60, system=system)
    security = SecuritySettings("SASL_PLAINTEXT", sasl=SaslSettings("PLAIN", "alice", Secret("secret")))
    settings = replace(SETTINGS, security=security)
    with (
        Peer(talk) as peer,
        contextlib.closing(Connection.open(settings, "127.0.0.1", peer.port, deadline)) as connection,
    ):
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        records = connection.receive(deadline)
        system.now += 55  # of the session's 60 seconds
        connection.send(1, 4, "Fetch", b"body", flexible=False, deadline=deadline)
        assert bytes(records) == b"records" * 10
        assert bytes(connection.receive(deadline)) == b"more" * 10
