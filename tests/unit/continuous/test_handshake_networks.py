"""Which connection is closed if too many from several addresses and networks are waiting for their handshake."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.handshake import HandshakeServer
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 4  # connections that may wait


class FakeNetwork:
    """A listener whose peers have fake addresses, and the server that accepts from it."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources
        self._listener = resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listener.setblocking(False)
        self._next_address = ""
        self.server = HandshakeServer(self, "run", Secret("hush"), 1, SYSTEM)  # type: ignore[arg-type]
        resources.callback(self.server.close)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> tuple[socket.socket, tuple[Any, ...]]:
        sock, _ = self._listener.accept()
        return sock, (self._next_address, 50000, 0, 0)

    def close(self) -> None:
        """Close nothing: the test owns the listener."""

    def connect(self, address: str) -> socket.socket:
        """Connect as if from this address."""
        self._next_address = address
        client = self._resources.enter_context(socket.create_connection(self._listener.getsockname(), 120))
        before = len(self.server.descriptors())
        deadline = time.monotonic() + 120
        while len(self.server.descriptors()) == before < MOST + 1 and time.monotonic() < deadline:
            assert list(self.server.poll([self.fileno()])) == []
        if before == MOST + 1:
            SYSTEM.wait_ready([self.fileno()], [], 120)
            assert list(self.server.poll([self.fileno()])) == []
        return client


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNetwork]:
    monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._MAX_EXTRA_CONNECTIONS", MOST - 1)
    with ExitStack() as resources:
        yield FakeNetwork(resources)


def is_waiting(client: socket.socket) -> bool:
    """Return whether the server has not closed the connection."""
    client.settimeout(0.2)
    try:
        while client.recv(4096):
            pass
    except TimeoutError:
        return True
    return False


def test_addresses_of_one_ipv6_network_count_together(network: FakeNetwork) -> None:
    strangers = [network.connect(f"2001:db8:0:1:{number:x}::1") for number in range(MOST)]
    task = network.connect("2001:db8:0:2::1")
    assert is_waiting(task)
    assert [is_waiting(each) for each in strangers] == [True, True, True, False]


@pytest.mark.parametrize("prefix", ["2001:db8:0:1::", "10.0.0.", "::ffff:10.0.0."])
def test_one_address_does_not_exclude_others_of_its_network(network: FakeNetwork, prefix: str) -> None:
    strangers = [network.connect(f"{prefix}9") for _ in range(MOST - 1)]
    tasks = [network.connect(f"{prefix}{number}") for number in (1, 2)]
    assert [is_waiting(each) for each in tasks] == [True, True]
    assert [is_waiting(each) for each in strangers] == [True, True, False]


@pytest.mark.parametrize("prefix", ["10.0.0.", "::ffff:10.0.0."])
def test_each_ipv4_address_is_a_network(network: FakeNetwork, prefix: str) -> None:
    strangers = [network.connect(f"{prefix}{number}") for number in (7, 8)]
    busiest = [network.connect("2001:db8::1"), network.connect("2001:db8::2")]
    task = network.connect(f"{prefix}1")
    assert [is_waiting(each) for each in (*strangers, *busiest, task)] == [True, True, True, False, True]


def test_the_new_connection_is_closed_if_all_networks_have_the_same_number(network: FakeNetwork) -> None:
    older = [network.connect(f"2001:db8:0:{number}::1") for number in range(MOST)]
    new = network.connect("fe80::1%eth0")
    assert [is_waiting(each) for each in (*older, new)] == [True, True, True, True, False]
