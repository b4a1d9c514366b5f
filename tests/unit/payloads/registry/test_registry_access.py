"""How the client of a schema registry logs in: passwords, tokens, TLS, and what errors show of them."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from tests.fake_registry import FakeRegistry, Reply, Request
from tests.unit.client.certified_keys import BROKER, CA, CLIENT, OTHER_CA
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.token_endpoint import Endpoint

from pyspark_kafka_direct.broker import make_certificates
from pyspark_kafka_direct.errors import OptionError, SchemaRegistryError, SchemaRegistryUnavailableError
from pyspark_kafka_direct.options.registry_settings import REGISTRY_PREFIX, RegistryCredentials, RegistrySettings
from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings
from pyspark_kafka_direct.payloads.registry.registered_schema import Schema
from pyspark_kafka_direct.payloads.registry.registry_client import RegistryClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = '"long"'
SECRET = "hunter2"


def fetch(registry: FakeRegistry, **fields: Any) -> str:
    settings = RegistrySettings((registry.url,), **{"api_timeout_ms": 30_000, **fields})
    return RegistryClient(settings).schema_by_id(registry.add("t-value", LONG)).text


def test_no_credentials_are_sent_by_default(registry: FakeRegistry) -> None:
    fetch(registry)
    assert "Authorization" not in registry.requests[0].headers


def test_a_registry_without_tls_needs_no_certificates(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def create_context(*_: object, **__: object) -> ssl.SSLContext:
        raise AssertionError("reading certificates takes tens of milliseconds")

    monkeypatch.setattr(ssl, "_create_default_https_context", create_context)
    assert fetch(registry) == LONG


def test_a_proxy_with_tls_of_a_registry_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client checks the proxy's certificate with the CAs of the machine."""
    certificates = make_certificates(tmp_path / "certificates")
    context = server_context()
    context.load_cert_chain(certificates.broker, certificates.broker_key)
    with FakeRegistry(context) as proxy:
        schema_id = proxy.add("t-value", LONG)
        monkeypatch.setenv("http_proxy", proxy.url)
        client = RegistryClient(RegistrySettings(("http://registry.invalid",), api_timeout_ms=120_000))
        with pytest.raises(SchemaRegistryError, match="certificate that cannot be verified"):
            client.schema_by_id(schema_id)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
        assert client.schema_by_id(schema_id).text == LONG
        assert [request.headers["Host"] for request in proxy.requests] == ["registry.invalid"]


def test_only_requests_with_a_schema_have_a_content_type(registry: FakeRegistry) -> None:
    client = RegistryClient(RegistrySettings((registry.url,)))
    client.schema_by_id(client.register("t-value", Schema(LONG)))
    assert [(request.method, request.headers.get("Content-Type")) for request in registry.requests] == [
        ("POST", "application/vnd.schemaregistry.v1+json"),
        ("GET", None),
    ]


def test_user_and_password(registry: FakeRegistry) -> None:
    fetch(registry, credentials=RegistryCredentials("me", Secret("a:b\u00e9")))
    sent = registry.requests[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent).decode() == "me:a:b\u00e9"


def test_a_token(registry: FakeRegistry) -> None:
    cluster = (("target-sr-cluster", "lsrc-1"), ("Confluent-Identity-Pool-Id", "pool-1"))
    fetch(registry, credentials=RegistryCredentials(token=Secret("abc"), headers=cluster))
    headers = {name.lower(): value for name, value in registry.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer abc"
    assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")


@pytest.mark.parametrize("kind", ["password", "token"])
def test_errors_do_not_show_credentials(registry: FakeRegistry, kind: str) -> None:
    def echo(request: Request) -> Reply:
        return Reply(401, {"error_code": 401, "message": f"{request.headers['Authorization']} is wrong, {SECRET}"})

    registry.fault = echo
    credentials = (
        RegistryCredentials("me", Secret(SECRET)) if kind == "password" else RegistryCredentials(token=Secret(SECRET))
    )
    assert SECRET not in repr(credentials)
    with pytest.raises(SchemaRegistryError, match=r"is wrong, .*check the credentials") as caught:
        fetch(registry, credentials=credentials)
    assert SECRET not in str(caught.value)
    assert base64.b64encode(f"me:{SECRET}".encode()).decode() not in str(caught.value)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


def oauth_of(endpoint: Endpoint) -> RegistryCredentials:
    return RegistryCredentials(oauth=endpoint.settings(url_option="schema.registry.bearer.auth.issuer.endpoint.url"))


def test_tokens_of_an_endpoint_are_reused(registry: FakeRegistry, endpoint: Endpoint) -> None:
    endpoint.add_response(200, {"access_token": "t1", "expires_in": 3600})
    for _ in range(2):
        fetch(registry, credentials=oauth_of(endpoint))
    assert [request.headers["Authorization"] for request in registry.requests] == ["Bearer t1"] * 2
    assert len(endpoint.requests) == 1


def test_a_rejected_token_is_replaced_after_seconds(registry: FakeRegistry, endpoint: Endpoint) -> None:
    """An identity provider may have new keys, or its administrator has corrected a claim."""
    for number in (1, 2):
        endpoint.add_response(200, {"access_token": f"t{number}", "expires_in": 3600})
    system = FakeTimeSystem()
    client = RegistryClient(RegistrySettings((registry.url,), oauth_of(endpoint)), system)
    schema_id = registry.add("t-value", LONG)
    registry.fault = lambda request: Reply(401) if request.headers["Authorization"] == "Bearer t1" else None
    for seconds in (0, 9):
        system.now += seconds
        with pytest.raises(SchemaRegistryError, match="HTTP 401"):
            client.schema_by_id(schema_id)
    assert len(endpoint.requests) == 1
    system.now += 1
    assert client.schema_by_id(schema_id).text == LONG


def test_an_endpoint_that_rejects_the_client(registry: FakeRegistry, endpoint: Endpoint) -> None:
    endpoint.add_response(401, {})
    message = (
        r"^Schema id 1: the registry localhost:\d+ cannot be requested[.] No token: the token endpoint on 127.0.0.1 "
        r"\(schema.registry.bearer.auth.issuer.endpoint.url\) returned HTTP 401; check client id.*scope[.]$"
    )
    with pytest.raises(SchemaRegistryError, match=message):
        fetch(registry, credentials=oauth_of(endpoint))
    assert registry.requests == []


def server_context(*, needs_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if needs_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=CA.pem)
    return context


@pytest.fixture
def broker_files(tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "broker.pem", tmp_path / "broker.key"
    certificate.write_text(BROKER.pem)
    key.write_text(BROKER.key_pem())
    return certificate, key


def tls(**fields: Any) -> TlsSettings:
    return TlsSettings(prefix=REGISTRY_PREFIX, **fields)


def test_a_registry_with_a_certificate_of_an_own_ca(broker_files: tuple[Path, Path]) -> None:
    context = server_context()
    context.load_cert_chain(*broker_files)
    with FakeRegistry(context) as registry:
        assert fetch(registry, tls=tls(truststore_certificates=CA.pem)) == LONG
        for settings in (tls(), tls(truststore_certificates=OTHER_CA.pem)):
            message = r"certificate that cannot be verified .*set its CA in schema.registry.ssl.truststore.certificates"
            with pytest.raises(SchemaRegistryError, match=message) as caught:
                fetch(registry, tls=settings)
            assert type(caught.value) is SchemaRegistryError  # it is final


def test_a_registry_that_requires_a_client_certificate(broker_files: tuple[Path, Path], tmp_path: Path) -> None:
    context = server_context(needs_client=True)
    context.load_cert_chain(*broker_files)
    store = tmp_path / "client.p12"
    store.write_bytes(CLIENT.pkcs12("secret"))
    with FakeRegistry(context) as registry:
        pem = tls(
            truststore_certificates=CA.pem,
            certificate_chain=Secret(CLIENT.pem),
            key=Secret(CLIENT.key_pem("k")),
            key_password=Secret("k"),
        )
        pkcs12 = tls(truststore_certificates=CA.pem, keystore_location=str(store), keystore_password=Secret("secret"))
        assert [fetch(registry, tls=settings) for settings in (pem, pkcs12)] == [LONG, LONG]
        with pytest.raises(SchemaRegistryError, match=r"schema.registry.ssl.keystore.location|cannot be reached"):
            fetch(registry, tls=tls(truststore_certificates=CA.pem), api_timeout_ms=1000)


def test_errors_of_certificates_name_the_options_of_the_registry() -> None:
    settings = RegistrySettings(("https://localhost:1",), tls=tls(truststore_location="/no/such/file"))
    with pytest.raises(OptionError, match=r"^option schema.registry.ssl.truststore.location: '/no/such/file' cannot"):
        RegistryClient(settings).schema_by_id(1)


def test_a_listener_without_tls(registry: FakeRegistry) -> None:
    settings = RegistrySettings((registry.url.replace("http:", "https:"),), api_timeout_ms=300)
    with pytest.raises(SchemaRegistryError, match=r"failed the TLS handshake .*URL has to begin with http|in time"):
        RegistryClient(settings).schema_by_id(1)


def test_a_listener_with_tls_only(broker_files: tuple[Path, Path]) -> None:
    context = server_context()
    context.load_cert_chain(*broker_files)
    with FakeRegistry(context) as registry:
        settings = RegistrySettings((registry.url.replace("https:", "http:"),), api_timeout_ms=300)
        with pytest.raises(SchemaRegistryUnavailableError):
            RegistryClient(settings).schema_by_id(1)
