"""Failures of requests to a token endpoint, other than its own errors."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.http_services import HttpService
from tests.unit.client.token_endpoint import ME, Endpoint

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


# Proxies of the environment.


@pytest.fixture
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def proxied_error(scheme: str, host: str = "idp.test") -> str:
    """Return the error of a request; only sleeps take time."""
    oauth = OAuthSettings(EndpointTokens(f"{scheme}://{host}/token", ME))
    with pytest.raises(AuthenticationError) as caught:
        retrieve_token(oauth, Deadline.after(SECONDS, system=FakeTimeSystem()), "broker:1")
    assert "hunter2" not in str(caught.value)
    return caught.value.message


@pytest.mark.usefixtures("_no_proxies")
@pytest.mark.parametrize("password", ["", "me:hunter2@", "me:hunter2@hunter2@", "me:hunter2/hunter2@"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_errors_name_the_proxy_without_its_password(
    monkeypatch: pytest.MonkeyPatch, scheme: str, password: str
) -> None:
    with HttpService(lambda _: (407, "")) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://{password}{proxy.address}")
        message = proxied_error(scheme)
        assert f"cannot be reached: the proxy {proxy.address} returned HTTP 407; check the user" in message
        assert len(proxy.requests) == 1
        monkeypatch.setenv("no_proxy", "other.test,127.0.0.1,idp.test")
        assert "prox" not in proxied_error(scheme)
        assert len(proxy.requests) == 1
    monkeypatch.delenv("no_proxy")
    assert f"cannot be reached (Connection refused), through the proxy {proxy.address}" in proxied_error(scheme)


@pytest.mark.usefixtures("_no_proxies")
@pytest.mark.parametrize(
    ("status", "attempts"), [(403, 1), (404, 1), (407, 1), (408, 3), (429, 3), (500, 3), (502, 3), (503, 3)]
)
def test_a_proxy_that_may_connect_later_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, status: int, attempts: int
) -> None:
    with HttpService(lambda _: (status, "")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        assert f"the proxy {proxy.address} returned HTTP {status}" in proxied_error("https")
        assert [request.method for request in proxy.requests] == ["CONNECT"] * attempts


@pytest.mark.usefixtures("_no_proxies")
@pytest.mark.parametrize(
    "proxy", ["http://me:hunter2@host:port", "http://me:hunter2@ho st:1", "me:hunter2@a..b:1", "http:/me:hunter2@a"]
)
def test_an_invalid_address_of_a_proxy_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    assert "No token: the token endpoint on idp.test " in proxied_error("http")


@pytest.mark.usefixtures("_no_proxies")
@pytest.mark.parametrize("scope", ["", "kafka"])
@pytest.mark.parametrize("audience", ["", "the broker"])
def test_scope_and_audience_are_sent_if_they_are_set(scope: str, audience: str) -> None:
    endpoint = Endpoint()
    try:
        endpoint.add_response(200, {"access_token": "abc"})
        retrieve_token(endpoint.settings(scope=scope, audience=audience), Deadline.after(SECONDS), "broker:1")
    finally:
        endpoint.close()
    ((_, body),) = endpoint.requests
    added = ("&scope=kafka" if scope else "") + ("&audience=the+broker" if audience else "")
    assert body == f"grant_type=client_credentials{added}"
