"""Look at a broker: whether it answers, and which brokers it knows. Find free ports."""

from __future__ import annotations

import random
import socket
import struct
from typing import NamedTuple

HOST = "127.0.0.1"

# These lie below the range from which Linux (32768 up) and macOS (49152 up) give ports to outgoing connections. A
# broker's port in that range could be taken by a client while the broker is stopped. Even a client that tries to reach
# that very broker could take it, because a TCP connection on one host can connect to itself.
_PORTS = range(15_000, 32_000)

# Metadata request, version 2 (known to every broker since 0.10.1, so nothing has to be negotiated):
#   int16 api_key = 3, int16 api_version = 2, int32 correlation_id, string client_id, int32 topics = 0 (none)
_REQUEST = struct.pack(">hhih", 3, 2, 1, 5) + b"probe" + struct.pack(">i", 0)


class Sighting(NamedTuple):
    """What one broker says about its cluster: its id, and the node ids of the brokers that are up."""

    cluster_id: str
    node_ids: frozenset[int]


def look(port: int, timeout: float) -> Sighting:
    """Ask the broker on a PLAINTEXT port.

    Args:
        port: Port on this host.
        timeout: For the connection and for each read, in seconds.

    Raises:
        OSError: It does not answer, or not properly yet.
    """
    with socket.create_connection((HOST, port), timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        with connection.makefile("rb") as stream:
            try:
                (length,) = struct.unpack(">i", stream.read(4))
                return _parse(stream.read(length))
            except (struct.error, UnicodeDecodeError) as error:
                raise OSError(f"what listens on port {port} gave no proper answer") from error


def free_ports(count: int) -> list[int]:
    """Find ports that nothing listens on now (nobody keeps them free afterwards: be ready to try again)."""
    found: list[int] = []
    for port in random.sample(_PORTS, 2_000):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Tell whether a server could listen on that port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does; without it, connections in TIME_WAIT would look like a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _parse(answer: bytes) -> Sighting:
    # int32 correlation_id, int32 count of brokers, each: int32 node_id, string host, int32 port, nullable string rack;
    # nullable string cluster_id; ...          (string: int16 length, then as many bytes; the length -1 means null)
    (count,) = struct.unpack_from(">i", answer, 4)
    position, nodes = 8, set()
    for _ in range(count):
        (node,) = struct.unpack_from(">i", answer, position)
        _, position = _string(answer, position + 4)
        _, position = _string(answer, position + 4)
        nodes.add(node)
    cluster, _ = _string(answer, position)
    return Sighting(cluster, frozenset(nodes))


def _string(answer: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", answer, position)
    end = position + 2 + max(length, 0)
    if end > len(answer):
        raise struct.error("cut short")
    return answer[position + 2 : end].decode(), end
