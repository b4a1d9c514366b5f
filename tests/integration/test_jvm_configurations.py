"""Documented configurations of JVM clients read records, with other hosts, files and secrets.

The CA of the broker and of the token endpoint is that of the system, as with a hosted service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.certificate_stores import java_keystore, java_truststore
from tests.integration.stream_queries import produce
from tests.integration.token_endpoint import TokenEndpoint
from tests.jvm_configurations.table import CONFIGURATIONS

from pyspark_kafka_direct import read_arrow
from pyspark_kafka_direct.client.security import tls_contexts
from pyspark_kafka_direct.options.spark_definitions import TOKEN_URLS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

BY_NAME = {each.name: each for each in CONFIGURATIONS}
RECORDS = 4
SECONDS = 600.0
CLIENT_SECRET = "endpoint-secret"


@pytest.fixture(scope="module")
def topic(secured_kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> str:
    """A topic with records that every principal may read."""
    servers = secured_kafka.bootstrap_servers
    name = topics_on(servers)(partitions=2)
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acl = AclBinding(ResourceType.TOPIC, name, literal, "User:*", "*", AclOperation.READ, allow)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_acls([acl])[acl].result(SECONDS)
    produce(servers, name, range(RECORDS))
    return name


@pytest.fixture
def endpoint(secured_kafka: EmbeddedKafka) -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint(secured_kafka.certificates)
    yield endpoint
    endpoint.close()


@pytest.fixture(autouse=True)
def _system_trusts_the_authority(secured_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(secured_kafka.certificates.ca))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    tls_contexts._file_context.cache_clear()  # other tests trust other CAs
    yield
    tls_contexts._file_context.cache_clear()


def params_of(name: str, replaced: dict[str, str], texts: dict[str, str] | None = None) -> dict[str, str]:
    """Return the client settings with other values, and with other texts within ``sasl.jaas.config``."""
    params = {option.removeprefix("kafka."): value for option, value in BY_NAME[name].options().items()}
    assert replaced.keys() <= params.keys()
    for old, new in (texts or {}).items():
        assert old in params["sasl.jaas.config"]
        params["sasl.jaas.config"] = params["sasl.jaas.config"].replace(old, new)
    return {**params, **replaced}


def values_of(params: dict[str, str], topic: str) -> list[str]:
    read = read_arrow(topic, params, columns=["value"]).read_all()
    return sorted(value.decode() for value in read.column("value").to_pylist())


def expected() -> list[str]:
    return [str(number) for number in range(RECORDS)]


PASSWORDS = {
    "Confluent Cloud: API key": {"{{ CLUSTER_API_KEY }}": "alice", "{{ CLUSTER_API_SECRET }}": "alice-secret"},
    "Aiven: SASL with a PEM file": {"<SASL_USERNAME>": "alice", "<SASL_PASSWORD>": "alice-secret"},
    "Strimzi: SCRAM with the secret of a `KafkaUser`": {"my-user": "alice", "generatedpassword": "alice-secret"},
    "Amazon MSK: SCRAM": {},  # its user is called alice
    "IBM Event Streams: API key": {"token": "alice", "APIKEY": "alice-secret"},
    "Azure Event Hubs: connection string": {
        "$ConnectionString": "alice",
        "Endpoint=sb://mynamespace.servicebus.windows.net/;SharedAccessKeyName=XXXXXX;"
        "SharedAccessKey=XXXXXX": "alice-secret",
    },
    "Google Managed Kafka: PLAIN with a service account's key": {
        "client@myproject.iam.gserviceaccount.com": "alice",
        "ewogICJ0eXBlIjogInNlcnZpY2VfYWNjb3VudCIsCn0K==": "alice-secret",
    },
}


@pytest.mark.parametrize("name", PASSWORDS)
def test_passwords(secured_kafka: EmbeddedKafka, topic: str, name: str) -> None:
    certificates = secured_kafka.certificates
    replaced = {"bootstrap.servers": secured_kafka.listener("SASL_SSL")}
    if "Strimzi" in name:
        store = java_truststore(certificates, "PKCS12")
        replaced |= {"ssl.truststore.location": str(store), "ssl.truststore.password": certificates.password}
    elif "kafka.ssl.truststore.location" in BY_NAME[name].options():
        replaced["ssl.truststore.location"] = str(certificates.ca)
    assert values_of(params_of(name, replaced, PASSWORDS[name]), topic) == expected()


def _aiven_pem(kafka: EmbeddedKafka, folder: Path) -> dict[str, str]:
    key_and_certificate = folder / "keystore.pem"
    key_and_certificate.write_text(kafka.certificates.client_key.read_text() + kafka.certificates.client.read_text())
    return {
        "ssl.truststore.location": str(kafka.certificates.ca),
        "ssl.keystore.location": str(key_and_certificate),
    }


def _aiven_stores(kafka: EmbeddedKafka, _: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "ssl.truststore.location": str(java_truststore(certificates, "JKS")),
        "ssl.truststore.password": certificates.password,
        "ssl.keystore.location": str(certificates.client_p12),
        "ssl.keystore.password": certificates.password,
        "ssl.key.password": certificates.password,
    }


def _msk(kafka: EmbeddedKafka, _: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "ssl.truststore.location": str(java_truststore(certificates, "JKS")),  # without a password, as documented
        "ssl.keystore.location": str(java_keystore(certificates)),
        "ssl.keystore.password": certificates.password,
        "ssl.key.password": certificates.password,
    }


def _databricks(kafka: EmbeddedKafka, _: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "ssl.truststore.location": str(java_truststore(certificates, "JKS")),
        "ssl.truststore.password": certificates.password,
        "ssl.keystore.location": str(java_keystore(certificates)),
        "ssl.keystore.password": certificates.password,
    }


def _stores(kafka: EmbeddedKafka, _: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "ssl.truststore.location": str(java_truststore(certificates, "PKCS12")),
        "ssl.truststore.password": certificates.password,
        "ssl.keystore.location": str(certificates.client_p12),
        "ssl.keystore.password": certificates.password,
    }


def _strimzi_pem(kafka: EmbeddedKafka, _: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "ssl.truststore.certificates": certificates.ca.read_text(),
        "ssl.keystore.certificate.chain": certificates.client.read_text(),
        "ssl.keystore.key": certificates.client_key.read_text(),
    }


STORES: dict[str, Callable[[EmbeddedKafka, Path], dict[str, str]]] = {
    "Aiven: mutual TLS with PEM files": _aiven_pem,
    "Aiven: mutual TLS with PKCS12 and JKS": _aiven_stores,
    "Amazon MSK: mutual TLS": _msk,
    "Databricks: mutual TLS": _databricks,
    "Strimzi: mutual TLS": _stores,
    "Strimzi: mutual TLS with PEM values": _strimzi_pem,
    "Heroku: mutual TLS with stores of the environment's certificates": _stores,
}


@pytest.mark.parametrize("name", STORES)
def test_client_certificates(secured_kafka: EmbeddedKafka, topic: str, tmp_path: Path, name: str) -> None:
    replaced = {"bootstrap.servers": secured_kafka.listener("MTLS"), **STORES[name](secured_kafka, tmp_path)}
    assert values_of(params_of(name, replaced), topic) == expected()


ENDPOINTS = {
    "Confluent Cloud: OAuth with an identity pool": {"<client_secret>": CLIENT_SECRET},
    "Databricks: Event Hubs with a service principal": {"<client-secret>": CLIENT_SECRET},
    "Google Managed Kafka: its local token server": {"unused": CLIENT_SECRET},
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_token_endpoints(secured_kafka: EmbeddedKafka, topic: str, endpoint: TokenEndpoint, name: str) -> None:
    replaced = {
        "bootstrap.servers": secured_kafka.listener("SASL_SSL"),
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    assert values_of(params_of(name, replaced, ENDPOINTS[name]), topic) == expected()
    assert endpoint.forms[0]["grant_type"] == ["client_credentials"]


STRIMZI = "Strimzi: OAuth with its callback handler"


def test_the_handler_of_strimzi(secured_kafka: EmbeddedKafka, topic: str, endpoint: TokenEndpoint) -> None:
    certificates = secured_kafka.certificates
    store = str(java_truststore(certificates, "PKCS12"))
    replaced = {
        "bootstrap.servers": secured_kafka.listener("SASL_SSL"),
        "ssl.truststore.location": store,
        "ssl.truststore.password": certificates.password,
    }
    texts = {
        "https://auth.url.com/oauth/token": endpoint.url,
        "client-secret": CLIENT_SECRET,
        "/tmp/oauth-truststore.p12": store,
        "$OAUTH_STOREPASS": certificates.password,
    }
    params = params_of(STRIMZI, replaced, texts)
    assert values_of(params, topic) == expected()
    assert endpoint.forms[0] == {
        "grant_type": ["client_credentials"],
        "scope": ["example-scope"],
        "audience": ["example-audience"],
    }


ASSERTION = "Apache Kafka: OAuth with a signed assertion"


def test_a_signed_assertion(
    secured_kafka: EmbeddedKafka,
    topic: str,
    endpoint: TokenEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, template = tmp_path / "private.key", tmp_path / "template.json"
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    template.write_text('{"payload": {"iss": "my-client", "sub": "my-user"}}')
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, f"{endpoint.url},file://{key},file://{template}")
    replaced = {
        "bootstrap.servers": secured_kafka.listener("SASL_SSL"),
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.assertion.private.key.file": str(key),
        "sasl.oauthbearer.assertion.template.file": str(template),
    }
    assert values_of(params_of(ASSERTION, replaced), topic) == expected()
    assert endpoint.forms[0]["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert endpoint.forms[0]["scope"] == ["my-application-scope"]


def test_the_table_has_the_configurations_of_these_tests() -> None:
    run = {each.name for each in CONFIGURATIONS if each.is_run and "GSSAPI" not in each.properties}
    assert run == {*PASSWORDS, *STORES, *ENDPOINTS, STRIMZI, ASSERTION}
