"""What tests need of kafka-python: requests that the package itself never sends, sockets that end with their owner."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from kafka.net.inet import KafkaNetSocket

if TYPE_CHECKING:
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline


def ask(connection: Connection, request: Any, deadline: Deadline) -> Any:
    """Send a request in the highest version both sides speak, and wait for the response.

    Args:
        connection: A connection of the package, idle.
        request: An object of one of kafka-python's classes.
        deadline: End of the wait.
    """
    lowest, highest = connection.api_versions[request.API_KEY]
    version = min(request.max_version, highest)
    assert version >= lowest
    request.API_VERSION = version
    flexible = request.flexible_version_q(version)
    body = bytes(request.encode(version=version))
    connection.send(request.API_KEY, version, request.name, body, flexible=flexible, deadline=deadline)
    answer = bytes(connection.receive(deadline))
    request.with_header(correlation_id=1, client_id="test")
    response_class = request.header.get_response_class()
    return response_class.decode(answer[1:] if flexible else answer, version=version)


class _Socket(socket.socket):
    """One that closes itself without a warning when nobody has it any more."""

    def __del__(self) -> None:
        self.close()


def close_forgotten_sockets() -> None:
    """Let kafka-python leave sockets open.

    It does so where a connection fails, as to a broker that a test has killed. Python warns of such a socket when it
    collects it, which may be in another test, much later, and would fail that one.
    """

    def make(self: object, family: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
        return _Socket(family, kind, protocol)

    KafkaNetSocket.socket = make
