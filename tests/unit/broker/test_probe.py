from __future__ import annotations

import socket
import struct
import sys
import threading

import pytest

from pyspark_kafka_direct.broker.probe import (
    ProbeResult,
    free_ports,
    is_free,
    probe_broker,
    reserve_port,
)


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def metadata(brokers: dict[int, str | None], cluster: str) -> bytes:
    listed = [
        struct.pack(">i", node) + string("127.0.0.1") + struct.pack(">i", 9092) + string(rack)
        for node, rack in brokers.items()
    ]
    return struct.pack(">ii", 1, len(brokers)) + b"".join(listed) + string(cluster) + struct.pack(">ii", 1, 0)


def serve_once(response: bytes) -> int:
    """Send these bytes to one connection, then close it; return the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(response)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def test_broker_ids_and_cluster_id_are_parsed() -> None:
    response = metadata({1: "rack-1", 3: None}, "the-cluster")
    result = probe_broker(serve_once(struct.pack(">i", len(response)) + response), 5)
    assert result == ProbeResult("the-cluster", frozenset({1, 3}))


@pytest.mark.parametrize("size", [0, 2, 4, 10, 30])
def test_a_truncated_response_is_an_error(size: int) -> None:
    response = metadata({1: None}, "the-cluster")
    with_size = struct.pack(">i", len(response)) + response
    with pytest.raises(OSError, match="invalid response"):
        probe_broker(serve_once(with_size[:size]), 5)


@pytest.mark.parametrize("length", [-5, -1, (1 << 20) + 1])
def test_a_length_that_no_response_has_is_an_error(length: int) -> None:
    """Another server on the port may send any bytes, which are read as a length."""
    response = metadata({1: None}, "the-cluster")
    with pytest.raises(OSError, match="invalid response"):
        probe_broker(serve_once(struct.pack(">i", length) + response), 5)


def test_a_refused_connection_is_an_os_error() -> None:
    with pytest.raises(OSError, match="refused"):
        probe_broker(free_ports(1)[0], 5)


def test_free_ports_are_free_unique_and_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(15_000 <= port < 32_000 for port in ports)
    assert all(is_free(port) for port in ports)


@pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved on Linux only")
def test_a_reserved_port_is_left_to_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    [port, other] = free_ports(2)
    monkeypatch.setattr("random.sample", lambda *_: [port, other])
    reservation = reserve_port(port)
    assert reservation is not None
    with reservation:
        assert free_ports(1) == [other]
        socket.create_server(("127.0.0.1", port)).close()
    assert free_ports(1) == [port]


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
