"""Tokens of Azure Event Hubs, with the real azure-identity and an endpoint of managed identities in this process."""

from __future__ import annotations

import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.http_services import HttpService, Request

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.security_settings import AzureTokens, OAuthSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
    from pyspark_kafka_direct.client.system import System

BROKER = "flights.servicebus.windows.net:9093"
LIFETIME = 3600
CODES = "AADSTS500011, AADSTS700016"
REJECTED = "rejected"  # a namespace without permission
REASON = "AADSTS500011: the principal hunter2 was not found; AADSTS700016 in the directory (AADSTS500011)"
BAD = "bad-"  # a namespace whose token ends with characters in hexadecimal


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the credentials that a test sets exist, and nothing outside this process is requested."""
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "MSI_ENDPOINT", "IDENTITY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")  # instead of the metadata service


@pytest.fixture
def identities(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpService]:
    def respond(request: Request) -> tuple[int, str]:
        resource = request.form["resource"]
        if REJECTED in resource:
            return 400, json.dumps({"statusCode": 400, "message": REASON})
        expires_on = int(time.time()) + LIFETIME
        token = f"{resource}-{len(service.requests)}"
        if BAD in resource:
            token = "hunter2" + bytes.fromhex(resource.partition(BAD)[2].partition(".")[0]).decode()
        content = {"access_token": token, "expires_on": str(expires_on), "resource": resource, "token_type": "Bearer"}
        return 200, json.dumps(content)

    with HttpService(respond) as service:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{service.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        yield service


def token_of(broker: str = BROKER, system: System | None = None) -> OAuthBearerToken:
    deadline = Deadline.after(120, system=system or RealSystem())
    return retrieve_token(OAuthSettings(AzureTokens()), deadline, broker)


def token_error(broker: str = BROKER) -> KafkaDirectError:
    with pytest.raises(KafkaDirectError) as caught:
        token_of(broker)
    assert "hunter2" not in str(caught.value)
    return caught.value


def test_a_token_is_for_the_host_that_receives_it(identities: HttpService) -> None:
    system = RealSystem()
    for host in ("flights.servicebus.windows.net", "orders.servicebus.chinacloudapi.cn"):
        token = token_of(f"{host}:9093", system)
        assert token.value.reveal().startswith(f"https://{host}-")
        assert token.expires_at == pytest.approx(time.time() + LIFETIME, abs=60)
        assert token_of(f"{host}:9093", system) is token
    assert [request.form["resource"] for request in identities.requests] == [
        "https://flights.servicebus.windows.net",
        "https://orders.servicebus.chinacloudapi.cn",
    ]
    headers = {name.lower(): value for name, value in identities.requests[0].headers.items()}
    assert headers["x-identity-header"] == "header-secret"


def test_a_hundred_connections_request_one_token(identities: HttpService) -> None:
    system = RealSystem()
    with ThreadPoolExecutor(100) as threads:
        tokens = set(threads.map(lambda _: token_of(system=system).value, range(100)))
    assert len(tokens) == 1
    assert len(identities.requests) == 1


def test_no_secret_is_shown(identities: HttpService, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = token_of()
    assert token.value.reveal() not in repr(token)
    assert token.value.reveal() not in caplog.text
    assert "header-secret" not in caplog.text


@pytest.mark.parametrize("host", ["a.example.com/x", "a%2fb", "a..b", ""])
def test_a_host_that_would_change_the_scope_is_rejected(host: str, identities: HttpService) -> None:
    assert "is not the host name of an Event Hubs namespace" in token_error(f"{host}:9093").message
    assert identities.requests == []


@pytest.mark.parametrize("end", ["\x01auth=other", "\r\nX: y", "é", "\0"])
def test_a_token_that_would_change_the_message_is_not_sent(end: str, identities: HttpService) -> None:
    """An endpoint of managed identities is HTTP without TLS."""
    error = token_error(f"{BAD}{end.encode().hex()}.servicebus.windows.net:9093")
    assert isinstance(error, AuthenticationError)
    assert error.message == "No token: azure-identity returned a token with other characters than printable ASCII."


def test_an_identity_without_access(identities: HttpService) -> None:
    error = token_error(f"{REJECTED}.servicebus.windows.net:9093")
    assert isinstance(error, AuthenticationError)
    assert f"Entra ID rejected the credentials for rejected.servicebus.windows.net with {CODES};" in error.message


def test_missing_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    error = token_error()
    assert isinstance(error, AuthenticationError)
    assert "azure-identity found no valid credentials on " in error.message
    assert "in the environment of each process that connects" in error.message


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    error = token_error()
    assert isinstance(error, OptionError)
    assert "requires azure-identity, which is not installed on " in error.message
    assert "pip install 'pyspark-kafka-direct[azure]' on the driver and on every executor" in error.message


def test_requests_use_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.setenv(name, "hunter2")
    with HttpService(lambda _: (403, "no")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        token_error()
    assert {(request.method, request.target) for request in proxy.requests} == {
        ("CONNECT", "login.microsoftonline.com:443")
    }
