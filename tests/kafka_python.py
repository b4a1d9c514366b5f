"""Requests that the package itself never sends, by kafka-python's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline


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
