"""Responses that never end, of registries, token endpoints and proxies: no thread is left after the deadline."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.token_endpoint import ME
from tests.unit.payloads.registry.hostile_server import ENDLESS, serve, wait_for_threads

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.http_opener import proxy_of
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, SchemaRegistryError
from pyspark_kafka_direct.options.registry_settings import RegistryCredentials, RegistrySettings
from pyspark_kafka_direct.options.security_settings import EndpointTokens, OAuthSettings
from pyspark_kafka_direct.payloads.registry.registry_client import RegistryClient

if TYPE_CHECKING:
    import socket

REGISTRY_THREAD = "pyspark-kafka-direct-registry"
TOKEN_THREAD = "pyspark-kafka-direct-token"


def request(url: str) -> str:
    settings = RegistrySettings((url,), read_timeout_ms=100, api_timeout_ms=150)
    with pytest.raises(SchemaRegistryError) as caught:
        RegistryClient(settings).schema_by_id(1)
    wait_for_threads(REGISTRY_THREAD)
    return caught.value.message


@pytest.mark.parametrize("response", ENDLESS)
def test_a_registry(response: str) -> None:
    with serve(ENDLESS[response]) as port:
        assert "did not respond in time (schema.registry." in request(f"http://localhost:{port}")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("response", ENDLESS)
def test_a_proxy(response: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With https, it is the response to CONNECT that does not end, or the TLS handshake behind it."""
    with serve(ENDLESS[response]) as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:hunter2@localhost:{port}")
        message = request(f"{scheme}://registry.invalid")
    assert f"through the proxy localhost:{port}" in message or f"the proxy localhost:{port} returned" in message
    assert "hunter2" not in message


def test_a_tls_handshake_with_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(ENDLESS["silence"]) as port:
        monkeypatch.setenv("http_proxy", f"https://localhost:{port}")
        assert f"through the proxy localhost:{port}" in request("http://registry.invalid")


@pytest.mark.parametrize("response", ENDLESS)
def test_a_token_endpoint(response: str) -> None:
    with serve(ENDLESS[response]) as port:
        url = f"http://localhost:{port}/{response}"
        oauth = OAuthSettings(EndpointTokens(url, ME, connect_timeout_ms=100, read_timeout_ms=100))
        with pytest.raises((AuthenticationError, BrokerTimeoutError)):
            retrieve_token(oauth, Deadline.after(0.15), "broker")
        wait_for_threads(TOKEN_THREAD)


def rejection(status: bytes, scheme: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the error of a proxy that responds with a status, and how it names the proxy."""

    def respond(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 %s by hunter2\r\nContent-Length: 0\r\n\r\n" % status)

    with serve(respond) as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:hunter2@localhost:{port}")
        settings = RegistrySettings((f"{scheme}://registry.invalid",), read_timeout_ms=100_000, api_timeout_ms=300)
        with pytest.raises(Exception, match=f"the proxy localhost:{port}") as caught:
            RegistryClient(settings).schema_by_id(1)
    assert "hunter2" not in str(caught.value)
    return type(caught.value).__name__, str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_requires_a_login(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, message = rejection(b"407 no", scheme, monkeypatch)
    assert name == "SchemaRegistryError"  # it is final
    assert "returned HTTP 407; check the user and the password in the environment variable http_proxy" in message


@pytest.mark.parametrize(("status", "is_final"), [(b"403 no", True), (b"502 no", False)])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_errors_of_a_proxy(status: bytes, is_final: bool, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, message = rejection(status, scheme, monkeypatch)
    assert name == ("SchemaRegistryError" if is_final else "SchemaRegistryUnavailableError")
    assert f"returned HTTP {status[:3].decode()}" in message


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        ("http://me:hunter2@p:3128", "p:3128"),
        ("http://p", "p"),
        ("me:hunter2@p:3128/", "p:3128"),
        ("p:3128", "p:3128"),
        ("http://me:hun/ter?2#@p:3128/path", "p:3128"),
        ("", None),
    ],
)
def test_proxies_of_the_environment(proxy: str, shown: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setenv("no_proxy", "localhost,.internal")
    assert proxy_of("https://registry.example:8081/path") == shown
    for url in ("http://registry.example", "https://localhost:1", "https://a.internal", "file:///token"):
        assert proxy_of(url) is None


def test_a_token_endpoint_behind_a_proxy_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(ENDLESS["silence"]) as port:
        monkeypatch.setenv("http_proxy", f"http://me:hunter2@localhost:{port}")
        oauth = OAuthSettings(EndpointTokens("http://idp.invalid/", ME))
        with pytest.raises(BrokerTimeoutError, match=f"endpoint behind the proxy localhost:{port} returned no token"):
            retrieve_token(oauth, Deadline.after(0.15), "broker")
        settings = RegistrySettings(
            ("http://localhost:1",), credentials=RegistryCredentials(oauth=oauth), api_timeout_ms=150
        )
        with pytest.raises(SchemaRegistryError, match=f"no token in time .*, through the proxy localhost:{port}"):
            RegistryClient(settings).schema_by_id(1)
        wait_for_threads(TOKEN_THREAD)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", "http://me:hunter2@localhost:1")
    message = request(f"{scheme}://registry.invalid")
    assert "cannot be reached (Connection refused), through the proxy localhost:1" in message


def test_a_proxy_whose_url_lacks_a_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http:/me:hunter2@p:3128")
    message = request("http://registry.example")
    oauth = OAuthSettings(EndpointTokens("http://idp.example/", ME))
    with pytest.raises(AuthenticationError) as caught:
        retrieve_token(oauth, Deadline.after(10), "broker")
    for text in (message, "".join(traceback.format_exception(caught.value))):
        assert "cannot be requested (proxy URL with no authority), through the proxy p:3128" in text
        assert "hunter2" not in text


def test_a_login_that_no_proxy_of_the_environment_requires() -> None:
    def respond(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 407 no\r\nContent-Length: 0\r\n\r\n")

    with serve(respond) as port, pytest.raises(Exception, match="cannot be reached: a proxy returned HTTP 407"):
        RegistryClient(RegistrySettings((f"http://localhost:{port}",))).schema_by_id(1)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("status", [b"407 no", b"403 no"])
def test_token_endpoints_behind_a_proxy(scheme: str, status: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def respond(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 %s by hunter2\r\nContent-Length: 0\r\n\r\n" % status)

    with serve(respond) as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:hunter2@localhost:{port}")
        oauth = OAuthSettings(EndpointTokens(f"{scheme}://idp.invalid/", ME))
        with pytest.raises(AuthenticationError, match=f"the proxy localhost:{port}") as caught:
            retrieve_token(oauth, Deadline.after(120), "broker")
    assert f"HTTP {status[:3].decode()}" in caught.value.message
    assert "hunter2" not in caught.value.message
