"""``kafka-direct doctor`` with healthy, frozen and missing brokers, and with servers that are no brokers."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.cli.doctor import diagnose
from tests.integration.waiting import suspend, wait_until

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

Topics = tuple[str, str]


@pytest.fixture
def topics(make_topic: MakeTopic) -> Topics:
    return make_topic(2), make_topic(1)


def test_a_healthy_cluster(kafka: EmbeddedKafka, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("-b", kafka.bootstrap_servers, "--topic", topics[0], "--topic", topics[1])
    done = diagnose(capsys, *arguments)
    assert (done.code, done.not_ok) == (0, {})
    broker = done.texts(f"broker 1 at {kafka.bootstrap_servers}")
    assert broker.keys() == {"dns", "tcp", "api versions"}
    assert broker["api versions"].startswith("Kafka 4.")
    assert done.texts("this Python").keys() == {"interpreter", "pyspark", "package", "kernel", "codecs"}
    assert done.texts("this Python")["codecs"] == "gzip, snappy, lz4, zstd"
    assert [done.texts(f"topic {topic}")["partitions"][:21] for topic in topics] == [
        "2, with 1 replica eac",
        "1, with 1 replica eac",
    ]
    (clock,) = [finding["text"] for finding in done.findings if finding["check"] == "clock"]
    assert "the active controller's (node 1), ± " in clock
    assert main(["doctor", *arguments, "--write"]) == 0
    output = capsys.readouterr().out
    assert f"broker 1 at {kafka.bootstrap_servers}\n  ok       dns           " in output
    assert output.endswith(f"\n\nNo problem found in {len(done.findings)} checks.\n")


def test_one_frozen_broker_of_three(three_brokers: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named within the timeout, also if it is the active controller, and when it is fenced."""
    servers = three_brokers.bootstrap_servers.split(",")
    healthy = diagnose(capsys, "-b", three_brokers.bootstrap_servers)
    (clock,) = (finding["text"] for finding in healthy.findings if finding["check"] == "clock")
    controller = int(clock.partition("(node ")[2][0])
    for node in (controller, controller % 3 + 1):
        frozen, other = servers[node - 1], servers[node % 3]
        pid = three_brokers.pids[node]
        suspend(pid)
        try:
            started = time.monotonic()
            done = diagnose(capsys, "-b", other, "--timeout", "15")
            assert time.monotonic() - started < 15
            subject = f"broker {node} at {frozen}"
            assert done.code == 1
            assert {where for where, check in done.not_ok if check != "clock"} == {subject}
            assert "is frozen or overloaded: check its process" in done.texts(subject)["api versions"]

            def is_fenced(subject: str = subject, other: str = other) -> bool:
                return "heartbeats" in diagnose(capsys, "-b", other, "--timeout", "3").texts(subject)

            wait_until(is_fenced, "the controller fences the broker")
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: diagnose(capsys, "-b", three_brokers.bootstrap_servers).code == 0, "all are well", 600)


def test_unreachable_bootstrap_servers(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    servers = f"[::1]:1,no-such-host.invalid:9092,{kafka.bootstrap_servers}"
    done = diagnose(capsys, "-b", servers)
    assert done.code == 1
    assert done.not_ok.keys() == {
        ("bootstrap server [::1]:1", "tcp"),
        ("bootstrap server no-such-host.invalid:9092", "dns"),
    }
    assert "check its spelling" in done.problems
    assert done.texts("bootstrap server [::1]:1")["dns"] == "::1"
    assert done.texts(f"broker 1 at {kafka.bootstrap_servers}").keys() == {"dns", "tcp", "api versions"}


def test_groups(kafka: EmbeddedKafka, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    write_arrow(topics[0], pa.table({"value": [b"x"]}), {"bootstrap.servers": kafka.bootstrap_servers})
    idle, active = f"{topics[0]}-query", f"{topics[0]}-other"
    offsets = [TopicPartition(topics[0], 0, 0)]
    committer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": idle})
    committer.commit(offsets=offsets, asynchronous=False)
    committer.close()
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": active, "client.id": "notebook"})
    member.subscribe([topics[0]])
    wait_until(lambda: bool(member.poll(0.1) is None and member.assignment()), "the assignment")
    misspelt = idle.replace("query", "qeury")
    groups = (misspelt, "unrelated", idle, active)
    missing = f"{topics[0]}-x"
    arguments = [part for group in groups for part in ("--group", group)]
    arguments += [part for topic in (topics[1], missing) for part in ("--topic", topic)]
    done = diagnose(capsys, "-b", kafka.bootstrap_servers, *arguments)
    member.close()
    assert done.code == 1
    missing_groups = {(f"group {group}", "exists") for group in groups if group != idle}
    assert done.not_ok.keys() == {*missing_groups, (f"topic {missing}", "exists")}
    assert f"did you mean {topics[0]!r}" in done.texts(f"topic {missing}")["exists"]
    assert done.texts(f"group {misspelt}")["exists"] == f"The group does not exist; did you mean {idle!r}?"
    assert "The first commit of a query with commitGroupId creates it" in done.texts("group unrelated")["exists"]
    assert "1 active member (client ids: notebook)" in done.texts(f"group {active}")["exists"]
    assert "separate group id" in done.texts(f"group {active}")["exists"]
    assert "Read" in done.texts(f"group {idle}")["acls"]


def _garbage(client: socket.socket) -> None:
    client.sendall(os.urandom(4096))


def _drip(client: socket.socket) -> None:
    for byte in (100).to_bytes(4, "big") + bytes(100):
        client.sendall(bytes([byte]))
        time.sleep(0.2)


def _never(client: socket.socket) -> None:
    client.settimeout(60)
    while client.recv(4096):
        pass


def _http(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.fixture
def impostors() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Starts servers that do not speak Kafka's protocol, and returns their addresses."""
    listeners = []

    def start(serve: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def handle(client: socket.socket) -> None:
            with client:
                try:
                    client.recv(4096)
                    serve(client)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_servers_that_are_no_brokers(
    kafka: EmbeddedKafka,
    impostors: Callable[[Callable[[socket.socket], None]], str],
    capsys: pytest.CaptureFixture[str],
    protocol: str,
) -> None:
    """Each is named, and none delays the others beyond the timeout."""
    servers = {serve.__name__: impostors(serve) for serve in (_garbage, _drip, _never, _http)}
    started = time.monotonic()
    arguments = ("-X", f"security.protocol={protocol}", "--timeout", "10", "--topic", "a", "--group", "b")
    done = diagnose(capsys, "-b", ",".join([*servers.values(), kafka.bootstrap_servers]), *arguments)
    assert time.monotonic() - started < 10
    assert done.code == 1
    failed = {where for where, check in done.not_ok if check in ("tls", "api versions")}
    assert failed >= {f"bootstrap server {server}" for server in servers.values()}
    if protocol == "PLAINTEXT":
        assert "An HTTP server responded" in done.texts(f"bootstrap server {servers['_http']}")["api versions"]
        assert done.texts("topic a")["exists"].startswith("No such topic")
    else:
        assert done.texts("topic a")["exists"] == "No broker has returned metadata: see the findings above."


def test_a_wrong_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-b", "localhost:1", "--timeout", "0"]) == 2
    assert "--timeout must be more than 0 seconds" in capsys.readouterr().err
