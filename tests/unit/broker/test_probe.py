from __future__ import annotations

import socket
import struct
import threading

import pytest

from pyspark_kafka_direct.broker._probe import Sighting, free_ports, is_free, look


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def metadata(brokers: dict[int, str | None], cluster: str) -> bytes:
    listed = [
        struct.pack(">i", node) + string("127.0.0.1") + struct.pack(">i", 9092) + string(rack)
        for node, rack in brokers.items()
    ]
    return struct.pack(">ii", 1, len(brokers)) + b"".join(listed) + string(cluster) + struct.pack(">ii", 1, 0)


def served(answer: bytes) -> int:
    """Answer one connection with these bytes, then close it; return the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def test_brokers_and_cluster_are_read() -> None:
    answer = metadata({1: "rack-1", 3: None}, "the-cluster")
    sighting = look(served(struct.pack(">i", len(answer)) + answer), 5)
    assert sighting == Sighting("the-cluster", frozenset({1, 3}))


@pytest.mark.parametrize("cut", [0, 2, 4, 10, 30])
def test_a_cut_answer_is_no_answer(cut: int) -> None:
    answer = metadata({1: None}, "the-cluster")
    whole = struct.pack(">i", len(answer)) + answer
    with pytest.raises(OSError, match="no proper answer"):
        look(served(whole[:cut]), 5)


def test_nobody_there_is_an_os_error() -> None:
    with pytest.raises(OSError, match="refused"):
        look(free_ports(1)[0], 5)


def test_free_ports_are_free_different_and_below_the_outgoing_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(15_000 <= port < 32_000 for port in ports)
    assert all(is_free(port) for port in ports)


def test_a_served_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
