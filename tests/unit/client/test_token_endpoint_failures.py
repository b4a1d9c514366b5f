"""Failures of requests to a token endpoint, other than its own errors."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.unit.client.token_endpoint import ME

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.errors import AuthenticationError
from pyspark_kafka_direct.options.security_settings import EndpointTokens, OAuthSettings

SECONDS = 120.0


def error_of(url: str) -> str:
    oauth = OAuthSettings(EndpointTokens(url, ME, connect_timeout_ms=200, read_timeout_ms=300))
    with pytest.raises(AuthenticationError) as caught:
        retrieve_token(oauth, Deadline.after(SECONDS), "broker:1")
    return caught.value.message


@pytest.mark.parametrize("address", ["127.0.0.1:1/a b", "a..b/token", "127.0.0.1:port/token"])
def test_an_address_that_cannot_be_requested(address: str) -> None:
    assert "cannot be requested (" in error_of(f"http://{address}")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\n{", "returned HTTP 401; "),  # its rest does not arrive
        (b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", "returned HTTP 403; "),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not respond with HTTP (BadStatusLine)"),
    ],
)
def test_a_response_that_is_not_complete_or_not_http(response: bytes, expected: str) -> None:
    ended = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(response)
            ended.wait(SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert expected in error_of(f"http://127.0.0.1:{server.getsockname()[1]}/token")
        finally:
            ended.set()
            thread.join()
