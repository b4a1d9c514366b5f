"""Probes a broker with a metadata request, and finds and reserves free ports."""

from __future__ import annotations

import random
import socket
import struct
import sys
from typing import NamedTuple

HOST = "127.0.0.1"

# The ports are below the ephemeral ports of Linux (32768 up) and macOS (49152 up). While a broker is stopped, an
# outgoing connection could use an ephemeral port. Even a client that connects to the broker could get that port as its
# own, because a TCP connection on one host can connect to itself.
_PORTS = range(15_000, 32_000)

# Metadata request, version 2 (all brokers since 0.10.1 support it, so no negotiation is needed):
#   int16 api_key = 3, int16 api_version = 2, int32 correlation_id, string client_id, int32 topics = 0 (none)
_REQUEST = struct.pack(">hhih", 3, 2, 1, 5) + b"probe" + struct.pack(">i", 0)

_MAX_RESPONSE_BYTES = 1 << 20  # three brokers have less than 1 KiB; another server's bytes may be read as a length


class ProbeResult(NamedTuple):
    """A broker's metadata: the cluster id, and the node ids of the live brokers."""

    cluster_id: str
    node_ids: frozenset[int]


def probe_broker(port: int, timeout: float) -> ProbeResult:
    """Send a metadata request to a PLAINTEXT port of this host; raise ``OSError`` without a valid response."""
    with socket.create_connection((HOST, port), timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        with connection.makefile("rb") as stream:
            try:
                (length,) = struct.unpack(">i", stream.read(4))
                if not 0 <= length <= _MAX_RESPONSE_BYTES:
                    raise struct.error(f"{length} is not the length of a response")
                return _parse_metadata(stream.read(length))
            except (struct.error, UnicodeDecodeError) as error:
                raise OSError(f"the server on port {port} sent an invalid response") from error


def free_ports(count: int) -> list[int]:
    """Return ports that no process uses or has reserved; another may bind them later, so be ready to retry."""
    ports: list[int] = []
    for port in random.sample(_PORTS, 2_000):
        if len(ports) == count:
            break
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
    return ports


def reserve_port(port: int) -> socket.socket | None:
    """Keep ``free_ports`` of all processes from returning a port; a broker can still bind it. Raises ``OSError``.

    On Linux a socket that does not listen leaves the port to others that set SO_REUSEADDR, as Java does. Elsewhere
    nothing is reserved.
    """
    if sys.platform != "linux":
        return None
    reserving = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reserving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserving.bind((HOST, port))
    except OSError:
        reserving.close()
        raise
    return reserving


def is_free(port: int) -> bool:
    """Return whether a server could listen on that port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets this option as well. Without it, a port with connections in TIME_WAIT would not be free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _parse_metadata(response: bytes) -> ProbeResult:
    # int32 correlation_id, int32 count of brokers, each: int32 node_id, string host, int32 port, nullable string rack;
    # nullable string cluster_id; ...          (string: int16 length, then as many bytes; the length -1 means null)
    #
    # The correlation id is not compared, because the connection has only one request.
    (count,) = struct.unpack_from(">i", response, 4)
    position, node_ids = 8, set()
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", response, position)
        _, position = _read_string(response, position + 4)
        _, position = _read_string(response, position + 4)
        node_ids.add(node_id)
    cluster_id, _ = _read_string(response, position)
    return ProbeResult(cluster_id, frozenset(node_ids))


def _read_string(response: bytes, position: int) -> tuple[str, int]:
    """Return a string and the position after it; a null string is empty."""
    (length,) = struct.unpack_from(">h", response, position)
    end = position + 2 + max(length, 0)
    if end > len(response):
        raise struct.error("cut short")
    return response[position + 2 : end].decode(), end
