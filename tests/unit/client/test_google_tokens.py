"""Tokens of Google Cloud's Kafka service, with the real google-auth and endpoints in this process."""

from __future__ import annotations

import base64
import functools
import json
import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.http_services import HttpService, Request

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.client.socket_connect import format_address
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.security_settings import GoogleTokens, OAuthSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
    from pyspark_kafka_direct.client.system import System

BROKER = "bootstrap.flights.europe-west1.managedkafka.my-project.cloud.goog:9092"
ACCOUNT = "reader@my-project.iam.gserviceaccount.com"
LIFETIME = 3600


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpService]:
    """Google's token endpoint; the application default credentials are a key of a service account."""

    def respond(_: Request) -> tuple[int, str]:
        return 200, json.dumps({"access_token": f"ya29.token-{len(service.requests)}", "expires_in": LIFETIME})

    with HttpService(respond) as service:
        use_service_account(f"{service.url}/token", monkeypatch, tmp_path)
        yield service


@functools.cache  # a new key takes a tenth of a second
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()


def use_service_account(url: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    account = {"type": "service_account", "client_email": ACCOUNT, "private_key": private_key(), "token_uri": url}
    use_credentials({**account, "private_key_id": "1", "project_id": "my-project"}, monkeypatch, folder)


def use_credentials(content: object, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    file = folder / "adc.json"
    file.write_text(json.dumps(content))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))


def token_of(
    system: System | None = None, broker: str = BROKER, source: GoogleTokens | None = None
) -> OAuthBearerToken:
    deadline = Deadline.after(120, system=system or RealSystem())
    return retrieve_token(OAuthSettings(source or GoogleTokens()), deadline, broker)


def token_error(broker: str = BROKER, source: GoogleTokens | None = None) -> KafkaDirectError:
    with pytest.raises(KafkaDirectError) as caught:
        token_of(broker=broker, source=source)
    assert "hunter2" not in str(caught.value)
    assert "ya29" not in str(caught.value)
    return caught.value


def parts_of(text: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    header, claims, token = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in text.split("."))
    return json.loads(header), json.loads(claims), token.decode()


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("other_account", ["", "other@example.com"])
def test_a_token_has_the_format_of_the_handler_of_google(monkeypatch: pytest.MonkeyPatch, other_account: str) -> None:
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", other_account)  # for credentials without an account
    token = token_of()
    header, claims, access_token = parts_of(token.value.reveal())
    assert header == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert claims["sub"] == ACCOUNT
    assert claims["scope"] == "kafka"
    assert claims["exp"] == token.expires_at == pytest.approx(time.time() + LIFETIME, abs=60)
    assert claims["iat"] == pytest.approx(time.time(), abs=60)
    assert access_token == "ya29.token-1"


def test_times_do_not_depend_on_the_time_zone(google: HttpService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert token_of().expires_at == pytest.approx(time.time() + LIFETIME, abs=60)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_the_token_is_for_the_scope_of_the_service_and_is_renewed(google: HttpService) -> None:
    system = FakeTimeSystem(time.time())
    first = token_of(system)
    system.now += 0.75 * LIFETIME
    assert token_of(system) is first
    system.now += 0.1 * LIFETIME
    assert parts_of(token_of(system).value.reveal())[2] == "ya29.token-2"
    assertion = google.requests[0].form["assertion"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(assertion + "=" * (-len(assertion) % 4)))
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"


def test_a_hundred_connections_request_one_token(google: HttpService) -> None:
    system = RealSystem()
    with ThreadPoolExecutor(100) as threads:
        tokens = set(threads.map(lambda _: token_of(system).value, range(100)))
    assert len(tokens) == 1
    assert len(google.requests) == 1


@pytest.mark.usefixtures("google")
def test_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = token_of()
    for text in (repr(token), caplog.text):
        assert token.value.reveal() not in text
        assert "ya29" not in text
        assert "PRIVATE KEY" not in text


@pytest.mark.parametrize(
    "host",
    [
        "managedkafka.example.com",
        "bootstrap.managedkafka.my-project.cloud.goog.example.com",
        "evil.cloud.goog",
        "notmanagedkafka.my-project.cloud.goog",
        # Any customer can give names below `endpoints` an address (Cloud Endpoints).
        "bootstrap.flights.europe-west1.managedkafka.endpoints.my-project.cloud.goog",
        "bootstrap.managedkafka.x.Endpoints.my-project.cloud.goog",
        "127.0.0.1",
    ],
)
def test_a_token_is_not_sent_to_hosts_of_others(host: str, google: HttpService) -> None:
    message = token_error(f"{host}:9092").message
    assert "is no host of Google's Kafka service (*.managedkafka.PROJECT.cloud.goog)" in message
    assert "PYSPARK_KAFKA_DIRECT_TOKEN_HOSTS of the driver" in message
    assert google.requests == []
    assert token_of(broker=f"{host}:9092", source=GoogleTokens(allowed_hosts=(host,)))


@pytest.mark.parametrize("host", ["127.0.0.1\0.example.com", "127.0.0.1 .example.com", ".example.com"])
def test_a_wildcard_allows_names_only(host: str, google: HttpService) -> None:
    """Name servers end a name at NUL, and older ones an address at a blank."""
    source = GoogleTokens(allowed_hosts=("*.example.com",))
    assert "is no host of Google's Kafka service" in token_error(f"{host}:9092", source).message
    assert google.requests == []
    assert token_of(broker="a_1.b-2.Example.com:9092", source=source)
    for address in ("::1", "fe80::1%eth0", "10.0.0.1"):
        broker = format_address(address, 9092)
        assert token_of(broker=broker, source=GoogleTokens(allowed_hosts=(address,)))
        assert f"{address!r} is no host of Google's" in token_error(broker, GoogleTokens()).message


def test_a_rejection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with HttpService(lambda _: (400, '{"error": "invalid_grant", "error_description": "hunter2"}')) as service:
        use_service_account(service.url, monkeypatch, tmp_path)
        error = token_error()
    assert isinstance(error, AuthenticationError)
    assert "Google rejected the application default credentials of " in error.message
    assert "(RefreshError)" in error.message


def test_credentials_without_a_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = {"type": "external_account_authorized_user", "client_id": "a", "client_secret": "hunter2"}
    with HttpService(lambda _: (200, '{"access_token": "ya29.user", "expires_in": 3600}')) as service:
        urls = {"token_url": service.url, "token_info_url": service.url}
        use_credentials({**user, **urls, "refresh_token": "hunter2"}, monkeypatch, tmp_path)
        assert "have no service account" in token_error().message
        monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "me@example.com")
        assert parts_of(token_of().value.reveal())[1]["sub"] == "me@example.com"


PROGRAM = f"""
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.options.security_settings import GoogleTokens, OAuthSettings
print(retrieve_token(OAuthSettings(GoogleTokens()), Deadline.after(120), {BROKER!r}).value.reveal())
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """Retrieve a token in another process, because google-auth reads these variables when it is imported."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_service_account_of_the_machine() -> None:
    def respond(request: Request) -> tuple[int, str]:
        path = urlsplit(request.target).path
        if path.endswith("/token"):
            return 200, json.dumps({"access_token": "ya29.machine", "expires_in": LIFETIME, "token_type": "Bearer"})
        if path.endswith(("/default/", "/default")):
            return 200, json.dumps({"email": ACCOUNT, "scopes": [], "aliases": ["default"]})
        return 200, "googleapis.com" if "universe" in path else "my-project"

    with HttpService(respond) as metadata:
        done = run(GCE_METADATA_HOST=metadata.address, GCE_METADATA_IP=metadata.address)
    assert done.returncode == 0, done.stderr
    _, claims, access_token = parts_of(done.stdout.strip())
    assert claims["sub"] == ACCOUNT
    assert access_token == "ya29.machine"


def test_missing_credentials() -> None:
    done = run(NO_GCE_CHECK="true")
    assert "AuthenticationError: No token: there are no application default credentials on " in done.stderr
    assert "GOOGLE_APPLICATION_CREDENTIALS" in done.stderr


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    error = token_error()
    assert isinstance(error, OptionError)
    assert "requires google-auth[requests], which is not installed on " in error.message
    assert "pip install 'pyspark-kafka-direct[gcp]' on the driver and on every executor" in error.message


def test_requests_use_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_service_account("https://oauth2.googleapis.com/token", monkeypatch, tmp_path)
    with HttpService(lambda _: (403, "no")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        message = token_error().message
    assert {(request.method, request.target) for request in proxy.requests} == {
        ("CONNECT", "oauth2.googleapis.com:443")
    }
    assert "(TransportError)" in message
