"""OAUTHBEARER logins at a real broker that verifies signatures, with tokens of an endpoint and of a file.

The endpoint verifies assertions with PyJWT. The broker has Kafka's ``OAuthBearerValidatorCallbackHandler``, which
verifies the tokens with the endpoint's public key. It closes sessions when their token expires.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.integration.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.settings import parse_client_params

from pyspark_kafka_direct.broker import EmbeddedKafka, make_certificates
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import AuthenticationError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.spark_definitions import TOKEN_URLS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker import Certificates

    Folder = Path

HANG = 120.0
OAUTH = "org.apache.kafka.common.security.oauthbearer."
LISTENER = "listener.name.sasl_ssl.oauthbearer"
TOPICS = (f"one-{uuid.uuid4().hex[:8]}", f"two-{uuid.uuid4().hex[:8]}")
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oauth")


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Certificates:
    return make_certificates(folder)


@pytest.fixture(scope="module")
def provider(folder: Path, certificates: Certificates) -> Iterator[IdentityProvider]:
    provider = IdentityProvider(certificates, folder / "jwks.json")
    for algorithm, key in KEYS.items():
        provider.client_keys[f"client-{algorithm}"] = key.public_key()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{algorithm}.pem").write_bytes(pem)
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def kafka(folder: Path, provider: IdentityProvider) -> Iterator[EmbeddedKafka]:
    jwks = (folder / "jwks.json").as_uri()
    properties = {
        f"{LISTENER}.sasl.server.callback.handler.class": f"{OAUTH}OAuthBearerValidatorCallbackHandler",
        f"{LISTENER}.sasl.oauthbearer.jwks.endpoint.url": jwks,
        f"{LISTENER}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{LISTENER}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{LISTENER}.connections.max.reauth.ms": "3600000",
    }
    with pytest.MonkeyPatch.context() as patch:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"
        patch.setenv("JAVA_TOOL_OPTIONS", f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {allowed}".strip())
        with EmbeddedKafka(security=["SASL_SSL"], properties=properties) as kafka:
            _create_topics(kafka)
            yield kafka


def _create_topics(kafka: EmbeddedKafka) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, 2) for topic in TOPICS], operation_timeout=HANG).values():
        created.result(HANG)


@pytest.fixture(autouse=True)
def allowed(folder: Path, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("RS256.pem", "ES256.pem", "assertion", "token", "template.json")
    urls = [provider.url, *((folder / name).as_uri() for name in files)]
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, ",".join(urls))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(provider, "lifetime", 3600)
    monkeypatch.setattr(provider, "is_failing", False)
    provider.requests.clear()


class Login:
    """Logs in with settings after ``sasl.oauthbearer.``."""

    def __init__(self, kafka: EmbeddedKafka, provider: IdentityProvider, ca: Path) -> None:
        self.kafka = kafka
        self.provider = provider
        self.ca = ca

    def client(self, url: str = "", **options: str) -> ClusterClient:
        params = {
            "bootstrap.servers": self.kafka.listener("SASL_SSL"),
            "client.id": uuid.uuid4().hex,  # connections of another test are not used
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.kafka.certificates.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH}OAuthBearerLoginModule required ssl.truststore.location="{self.ca}";',
            "sasl.oauthbearer.token.endpoint.url": url or self.provider.url,
        }
        named = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in options.items()}
        return ClusterClient(parse_client_params(params | named).connection)

    def read(self, url: str = "", **options: str) -> None:
        read(self.client(url, **options))


def read(client: ClusterClient) -> None:
    """Request the end offsets of both topics."""
    partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(2)]
    assert client.offsets(dict.fromkeys(partitions, LATEST)) == dict.fromkeys(partitions, 0)


@pytest.fixture
def login(kafka: EmbeddedKafka, provider: IdentityProvider, certificates: Certificates) -> Login:
    return Login(kafka, provider, certificates.ca)


def signed(folder: Path, provider: IdentityProvider, algorithm: str = "RS256", **more: str) -> dict[str, str]:
    return {
        "assertion_algorithm": algorithm,
        "assertion_private_key_file": str(folder / f"{algorithm}.pem"),
        "assertion_claim_iss": f"client-{algorithm}",
        "assertion_claim_sub": "alice",
        "assertion_claim_aud": provider.url,
        **more,
    }


JWT_BEARER = {"jwt_retriever_class": f"{OAUTH}JwtBearerJwtRetriever"}


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("grant", ["JWT bearer", "client assertion"])
def test_signed_assertions(grant: str, algorithm: str, login: Login, folder: Path, provider: IdentityProvider) -> None:
    retriever = JWT_BEARER if grant == "JWT bearer" else {}
    client = login.client(**signed(folder, provider, algorithm), **retriever)
    for _ in range(2):
        read(client)
    (form,) = provider.requests  # one token for all connections
    assert ("client_assertion" in form) == (grant == "client assertion")


def test_a_rejected_assertion(login: Login, folder: Path, provider: IdentityProvider, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    with pytest.raises(AuthenticationError) as caught:
        login.read(**JWT_BEARER, **signed(folder, provider, assertion_claim_aud="https://another/"))
    (form,) = provider.requests
    assert 'HTTP 400 "invalid_grant: InvalidAudienceError in ********"' in caught.value.message
    assert "check the key and the claims of the assertion" in caught.value.message
    assert form["assertion"] not in caplog.text


def test_a_new_key_and_template_are_used_for_the_next_token(
    login: Login, folder: Path, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "lifetime", -600)
    template = folder / "template.json"
    options = signed(folder, provider, assertion_template_file=str(template))
    client = login.client(**JWT_BEARER, **options)
    template.write_text('{"payload": {"iss": "client-RS256"}}')
    path, key = folder / "RS256.pem", (folder / "RS256.pem").read_bytes()
    with pytest.raises(AuthenticationError):
        read(client)  # the token has expired
    new_key = rsa.generate_private_key(65537, 2048)
    path.write_bytes(new_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    template.write_text('{"payload": {"iss": "new client"}}')
    provider.client_keys["new client"] = new_key.public_key()
    provider.lifetime = 3600
    try:
        read(client)
    finally:
        path.write_bytes(key)


def test_a_token_file_that_is_renewed(login: Login, folder: Path, provider: IdentityProvider) -> None:
    path = folder / "token"
    path.write_text(provider.token("alice") + "\n")
    options = {"jwt_retriever_class": f"{OAUTH}FileJwtRetriever"}
    login.read(path.as_uri(), **options)
    path.write_text(provider.token("alice", lifetime=-600))
    with pytest.raises(AuthenticationError, match=r"rejected the token \(OAUTHBEARER\)"):
        login.read(path.as_uri(), **options)
    path.write_text(provider.token("bob"))
    login.read(path.as_uri(), **options)
    path.write_text("")
    login.read(path.as_uri(), **options)
    assert provider.requests == []


def test_tokens_are_renewed_while_the_endpoint_fails_now_and_then(
    login: Login, folder: Path, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """Sessions end with their token (KIP-368), so each connection logs in again several times."""
    caplog.set_level(logging.WARNING)
    provider.lifetime = 3
    client = login.client(**JWT_BEARER, **signed(folder, provider, assertion_claim_jti_include="true"))
    stop = threading.Event()

    def fail_now_and_then() -> None:
        while not stop.wait(0.5):
            provider.is_failing = not provider.is_failing

    thread = threading.Thread(target=fail_now_and_then)
    thread.start()
    try:
        deadline = time.monotonic() + HANG
        while len(provider.requests) < 6:
            assert time.monotonic() < deadline
            read(client)
    finally:
        stop.set()
        thread.join(HANG)
