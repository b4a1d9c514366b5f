"""All security protocols and mechanisms, and the errors of failed connections, against a real broker.

The broker has TLS, mutual TLS, SASL with and without TLS, and ACLs. ``alice`` and the client certificate may read the
topic ``ALLOWED``; no principal may read ``FORBIDDEN``; sessions over SASL_PLAINTEXT last seconds (KIP-368).
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.certificate_stores import KEY_PASSWORD, encrypted_client_key, java_keystore, java_truststore
from tests.logins import ALICE, MECHANISMS, OAUTH, SCRAM, jaas_text
from tests.settings import parse_client_params
from tests.shards.brokers import SESSION

from pyspark_kafka_direct.broker import Credentials, make_certificates, unsecured_token
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    KafkaDirectError,
    ProtocolError,
    TlsError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker import Certificates, EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings

HANG = 120.0  # seconds
RUN = uuid.uuid4().hex[:8]  # another shard may run other tests of this module at the same broker
ALLOWED, FORBIDDEN = f"readable-{RUN}", f"forbidden-{RUN}"
SPECIAL_CHARACTERS = Credentials("o=d,d one", 'p"a\\s=s, wörd Ⅸ;')


@pytest.fixture(scope="module")
def secured(secured_kafka: EmbeddedKafka) -> EmbeddedKafka:
    """The shared broker with the topics and users of this module."""
    _set_up(secured_kafka)
    return secured_kafka


def _set_up(kafka: EmbeddedKafka) -> None:
    """Create topics with a record each, ACLs, and a user whose name no command line accepts."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    everyone = (ALICE.username, SPECIAL_CHARACTERS.username, "CN=client", "tokens")
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acls = [
        AclBinding(ResourceType.TOPIC, ALLOWED, literal, f"User:{name}", "*", AclOperation.READ, allow)
        for name in everyone
    ]
    for acl in admin.create_acls(acls).values():
        acl.result(HANG)
    upsertions = [
        UserScramCredentialUpsertion(
            SPECIAL_CHARACTERS.username, ScramCredentialInfo(mechanism, 4096), SPECIAL_CHARACTERS.password.encode()
        )
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for upsertion in upsertions:
        for changed in admin.alter_user_scram_credentials([upsertion]).values():
            changed.result(HANG)
    # Topics come last: the broker applies the changes later but in order, so when it accepts a record for one of the
    # topics, it has applied the rest.
    created = admin.create_topics([NewTopic(ALLOWED, 2), NewTopic(FORBIDDEN, 1)], operation_timeout=HANG)
    for topic in created.values():
        topic.result(HANG)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(ALLOWED, b"x", partition=0)
    assert producer.flush(HANG) == 0


def settings_for(kafka: EmbeddedKafka, listener: str, provider: str | None = None, **more: str) -> ConnectionSettings:
    """Return settings; ``sasl_mechanism`` means ``sasl.mechanism``, and the CA is trusted by default."""
    protocol = "SSL" if listener == "MTLS" else listener
    params = {"bootstrap.servers": kafka.listener(listener), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        params["ssl.truststore.location"] = str(kafka.certificates.ca)
    named = {name.replace("_", "."): text for name, text in more.items()}
    return parse_client_params(params | named, oauth_token_provider=provider).connection


def login(kafka: EmbeddedKafka, listener: str, mechanism: str, user: Credentials = ALICE) -> ConnectionSettings:
    return settings_for(kafka, listener, sasl_mechanism=mechanism, sasl_jaas_config=jaas_text(mechanism, user))


def offsets_of(settings: ConnectionSettings, topic: str = ALLOWED) -> list[int]:
    """Return the end offsets of the topic's partitions, by a Metadata and ListOffsets requests."""
    cluster = ClusterClient(settings)
    partitions = [TopicPartition(topic, number) for number in cluster.topics([topic])[topic].partitions]
    ends = cluster.offsets(dict.fromkeys(partitions, LATEST))
    assert all(each == 0 for each in cluster.offsets(dict.fromkeys(partitions, EARLIEST)).values())
    return [ends[partition] for partition in sorted(partitions)]


def immediate_error(settings: ConnectionSettings) -> KafkaDirectError:
    """Return the error, which must be raised at once: retries do not correct a password."""
    settings = dataclasses.replace(settings, default_api_timeout_ms=600_000)
    started = time.monotonic()
    with pytest.raises(KafkaDirectError) as caught:
        offsets_of(settings)
    assert time.monotonic() - started < HANG
    assert "secret" not in str(caught.value)
    return caught.value


# Successful connections


def test_plaintext(secured: EmbeddedKafka) -> None:
    assert offsets_of(settings_for(secured, "PLAINTEXT")) == [1, 0]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls(secured: EmbeddedKafka, version: str) -> None:
    assert offsets_of(settings_for(secured, "SSL", ssl_enabled_protocols=version)) == [1, 0]


def test_tls_without_files_on_executors(secured: EmbeddedKafka) -> None:
    """All as PEM text: pickled settings require no file."""
    certificates = secured.certificates
    settings = settings_for(
        secured,
        "MTLS",
        ssl_truststore_location="",
        ssl_truststore_certificates=certificates.ca.read_text(),
        ssl_keystore_certificate_chain=certificates.client.read_text(),
        ssl_keystore_key=encrypted_client_key(certificates).read_text(),
        ssl_key_password=KEY_PASSWORD,
    )
    assert offsets_of(settings) == [1, 0]


MUTUAL: dict[str, Callable[[Certificates], dict[str, str]]] = {
    "PEM files": lambda certificates: {
        "ssl_certificate_location": str(certificates.client),
        "ssl_key_location": str(certificates.client_key),
    },
    "an encrypted key": lambda certificates: {
        "ssl_certificate_location": str(certificates.client),
        "ssl_key_location": str(encrypted_client_key(certificates)),
        "ssl_key_password": KEY_PASSWORD,
    },
    "PKCS12 stores": lambda certificates: {
        "ssl_truststore_location": str(java_truststore(certificates, "PKCS12")),
        "ssl_truststore_password": certificates.password,
        "ssl_truststore_type": "PKCS12",
        "ssl_keystore_location": str(certificates.client_p12),
        "ssl_keystore_password": certificates.password,
        "ssl_keystore_type": "PKCS12",
    },
    "JKS stores": lambda certificates: {
        "ssl_truststore_location": str(java_truststore(certificates, "JKS")),
        "ssl_truststore_password": certificates.password,
        "ssl_truststore_type": "JKS",
        "ssl_keystore_location": str(java_keystore(certificates)),
        "ssl_keystore_password": certificates.password,
        "ssl_keystore_type": "JKS",
    },
}


@pytest.mark.parametrize("variant", MUTUAL)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_mutual_tls(secured: EmbeddedKafka, variant: str, version: str) -> None:
    given = MUTUAL[variant](secured.certificates)
    assert offsets_of(settings_for(secured, "MTLS", ssl_enabled_protocols=version, **given)) == [1, 0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_over_tls(secured: EmbeddedKafka, mechanism: str) -> None:
    assert offsets_of(login(secured, "SASL_SSL", mechanism)) == [1, 0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sasl_without_tls(secured: EmbeddedKafka, mechanism: str) -> None:
    assert offsets_of(login(secured, "SASL_PLAINTEXT", mechanism)) == [1, 0]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_with_odd_names_and_passwords(secured: EmbeddedKafka, mechanism: str) -> None:
    assert offsets_of(login(secured, "SASL_SSL", mechanism, SPECIAL_CHARACTERS)) == [1, 0]


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_oauthbearer_unsigned(secured: EmbeddedKafka, listener: str) -> None:
    jaas = f'{OAUTH} required unsecuredLoginStringClaim_sub="tokens" unsecuredLoginExtension_pool="p-1";'
    settings = settings_for(secured, listener, sasl_mechanism="OAUTHBEARER", sasl_jaas_config=jaas)
    assert offsets_of(settings) == [1, 0]


PROVIDER = f"""
import time
from pyspark_kafka_direct.broker import unsecured_token

created = []

def good():
    def token():
        created.append(unsecured_token("tokens"))
        return created[-1], time.time() + 3600
    return token

def brief():
    def token():
        created.append(unsecured_token("tokens", {SESSION}))
        return created[-1]
    return token

def late():
    return lambda: unsecured_token("tokens", -60.0)
"""


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of token providers, imported by name as on an executor."""
    import importlib
    import sys

    (tmp_path / "token_providers.py").write_text(PROVIDER)
    names = ("good", "late", "brief")
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, ",".join(f"token_providers:{name}" for name in names))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "token_providers", raising=False)
    return importlib.import_module("token_providers")


def test_oauthbearer_from_a_provider(secured: EmbeddedKafka, provider: Any) -> None:
    settings = settings_for(secured, "SASL_SSL", "token_providers:good", sasl_mechanism="OAUTHBEARER")
    assert offsets_of(settings) == [1, 0]
    assert len(provider.created) == 1


@pytest.fixture
def token_endpoint(secured: EmbeddedKafka) -> Iterator[str]:
    """An HTTPS endpoint of the client-credentials grant, with a certificate of the cluster's CA."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            text = f'{{"access_token":"{unsecured_token("tokens")}","expires_in":3600}}'.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secured.certificates.broker, secured.certificates.broker_key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join(HANG)


def test_oauthbearer_from_an_endpoint(
    secured: EmbeddedKafka, token_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def settings(trust: Path | None) -> ConnectionSettings:
        tls = "" if trust is None else f'ssl.truststore.location="{trust}"'
        return settings_for(
            secured,
            "SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=token_endpoint,
            sasl_jaas_config=f'{OAUTH} required clientId="me" clientSecret="my-secret" {tls};',
        )

    assert offsets_of(settings(secured.certificates.ca)) == [1, 0]
    error = immediate_error(settings(None))
    assert isinstance(error, AuthenticationError)
    assert "the token endpoint on 127.0.0.1" in error.message
    assert 'ssl.truststore.location="..." in kafka.sasl.jaas.config' in error.message


def test_an_older_kafka(kafka39: EmbeddedKafka) -> None:
    """The same requests in older versions, against the oldest tested release line."""
    jaas = f'{OAUTH} required unsecuredLoginStringClaim_sub="tokens";'
    variants = [
        settings_for(kafka39, "MTLS", **MUTUAL["PKCS12 stores"](kafka39.certificates)),
        settings_for(kafka39, "SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=jaas),
        *(login(kafka39, "SASL_SSL", mechanism) for mechanism in MECHANISMS),
    ]
    for settings in variants:
        assert ClusterClient(settings).topics(["missing"]) == {}
    wrong = login(kafka39, "SASL_SSL", "SCRAM-SHA-256", Credentials("alice", "wrong-secret"))
    with pytest.raises(AuthenticationError, match="rejected the user 'alice'"):
        ClusterClient(wrong).topics(["missing"])


# Rejected connections


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", [Credentials("alice", "not-her-secret"), Credentials("nobody", "a-secret")])
def test_a_wrong_password_or_user(secured: EmbeddedKafka, mechanism: str, user: Credentials) -> None:
    error = immediate_error(login(secured, "SASL_SSL", mechanism, user))
    assert isinstance(error, AuthenticationError)
    assert error.broker == secured.listener("SASL_SSL")
    assert f"rejected the user '{user.username}' ({mechanism})" in error.message
    assert "uthentication failed" in error.message  # the broker's own message
    assert "kafka.sasl.jaas.config" in error.message


def test_an_expired_token(secured: EmbeddedKafka, provider: Any) -> None:
    settings = settings_for(secured, "SASL_SSL", "token_providers:late", sasl_mechanism="OAUTHBEARER")
    error = immediate_error(settings)
    assert isinstance(error, AuthenticationError)
    assert "rejected the token (OAUTHBEARER)" in error.message
    assert "oauthTokenProvider" in error.message


def test_mechanism_not_offered_by_the_listener(secured: EmbeddedKafka) -> None:
    error = immediate_error(login(secured, "SASL_PLAINTEXT", "SCRAM-SHA-512"))
    assert isinstance(error, AuthenticationError)
    assert "does not offer SCRAM-SHA-512; it offers OAUTHBEARER, PLAIN, SCRAM-SHA-256" in error.message


def test_the_wrong_ca(secured: EmbeddedKafka, tmp_path: Path) -> None:
    wrong = str(make_certificates(tmp_path).ca)
    error = immediate_error(settings_for(secured, "SSL", ssl_truststore_location=wrong))
    assert isinstance(error, TlsError)
    assert "kafka.ssl.truststore.location" in error.message
    assert error.broker == secured.listener("SSL")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_no_client_certificate(secured: EmbeddedKafka, version: str) -> None:
    error = immediate_error(settings_for(secured, "MTLS", ssl_enabled_protocols=version))
    assert isinstance(error, TlsError)
    assert "client certificate" in error.message
    assert "kafka.ssl.keystore" in error.message


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_of_another_ca(secured: EmbeddedKafka, version: str, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    untrusted_client = {"ssl_certificate_location": str(other.client), "ssl_key_location": str(other.client_key)}
    error = immediate_error(settings_for(secured, "MTLS", ssl_enabled_protocols=version, **untrusted_client))
    assert isinstance(error, BrokerError)
    assert "kafka.ssl.keystore" in error.message


@pytest.mark.parametrize(
    ("listener", "protocol", "error_type", "advice"),
    [
        ("SSL", "PLAINTEXT", ProtocolError, "set kafka.security.protocol to SSL"),
        ("PLAINTEXT", "SSL", TlsError, "Set kafka.security.protocol to PLAINTEXT"),
        ("SASL_PLAINTEXT", "PLAINTEXT", BrokerUnreachableError, "set kafka.security.protocol to SASL_PLAINTEXT"),
        ("PLAINTEXT", "SASL_PLAINTEXT", AuthenticationError, "set kafka.security.protocol to PLAINTEXT"),
        ("SASL_SSL", "SASL_PLAINTEXT", ProtocolError, "set kafka.security.protocol to SSL or SASL_SSL"),
    ],
)
def test_protocol_does_not_match_the_listener(
    secured: EmbeddedKafka, listener: str, protocol: str, error_type: type[BrokerError], advice: str
) -> None:
    more = {"security_protocol": protocol, "default_api_timeout_ms": "5000"}
    if protocol.startswith("SASL"):
        more |= {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "alice-secret"}
    if protocol == "SSL":
        more["ssl_truststore_location"] = str(secured.certificates.ca)
    error = immediate_error(settings_for(secured, listener, **more))
    assert isinstance(error, error_type), repr(error)
    assert advice in error.message


@pytest.mark.parametrize("listener", ["MTLS", "SASL_SSL"])
def test_a_topic_without_an_acl(secured: EmbeddedKafka, listener: str) -> None:
    certificates = secured.certificates
    client = {"ssl_certificate_location": str(certificates.client), "ssl_key_location": str(certificates.client_key)}
    settings = settings_for(secured, "MTLS", **client) if listener == "MTLS" else login(secured, listener, "PLAIN")
    assert offsets_of(settings) == [1, 0]
    with pytest.raises(AuthorizationError) as caught:
        offsets_of(settings, FORBIDDEN)
    assert caught.value.topic == FORBIDDEN


# Sessions


def send_request(connection: Connection) -> None:
    values = {"topics": [], "allow_auto_topic_creation": False}
    assert connection.call(METADATA, values, Deadline.after(HANG)).brokers


def send_requests_until(connection: Connection, done: Callable[[], bool]) -> None:
    """Send requests continuously, as a consumer does."""
    while not done():
        send_request(connection)
        threading.Event().wait(0.02)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_session_is_renewed_before_it_ends(secured: EmbeddedKafka, mechanism: str) -> None:
    settings = login(secured, "SASL_PLAINTEXT", mechanism)
    host, port = settings.bootstrap_servers[0]
    connection = Connection.open(settings, host, port, Deadline.after(HANG))
    end = time.monotonic() + 2.2 * SESSION
    send_requests_until(connection, lambda: time.monotonic() > end)
    connection.close()


def test_each_reauthentication_uses_a_new_token(secured: EmbeddedKafka, provider: Any) -> None:
    settings = settings_for(secured, "SASL_SSL", "token_providers:brief", sasl_mechanism="OAUTHBEARER")
    host, port = settings.bootstrap_servers[0]
    started = time.monotonic()
    connection = Connection.open(settings, host, port, Deadline.after(HANG))
    send_requests_until(connection, lambda: len(provider.created) == 3 or time.monotonic() > started + HANG)
    connection.close()
    assert len(provider.created) == 3
    assert time.monotonic() - started > SESSION, "each token was used for most of its lifetime"


def test_broker_closes_expired_session(secured: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without re-authentication the broker closes sessions, so the tests above require it."""
    settings = login(secured, "SASL_PLAINTEXT", "PLAIN")
    host, port = settings.bootstrap_servers[0]
    connection = Connection.open(settings, host, port, Deadline.after(HANG))
    monkeypatch.setattr(connection, "_reauthenticate_if_due", lambda _: None)
    end = time.monotonic() + HANG
    with pytest.raises(BrokerUnreachableError):
        send_requests_until(connection, lambda: time.monotonic() > end)


# Secrets


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_password_is_logged(secured: EmbeddedKafka, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = login(secured, "SASL_PLAINTEXT" if mechanism != "SCRAM-SHA-512" else "SASL_SSL", mechanism)
    host, port = settings.bootstrap_servers[0]
    with caplog.at_level(logging.DEBUG):
        Connection.open(settings, host, port, Deadline.after(HANG)).close()
        wrong = login(secured, "SASL_SSL", mechanism, Credentials("alice", "wrong-secret"))
        with pytest.raises(AuthenticationError):
            Connection.open(wrong, *wrong.bootstrap_servers[0], Deadline.after(HANG))
    assert "secret" not in caplog.text
    assert "secret" not in repr(dataclasses.asdict(settings))


def test_spark_and_errors_show_no_secret(secured: EmbeddedKafka, make_spark: Any, tmp_path: Path) -> None:
    """Neither plan, error nor event log, which Spark's UI shows, has a secret."""
    spark = make_spark(
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": tmp_path.as_uri(),
            "spark.eventLog.compress": "false",
        }
    )

    def read(password: str) -> Any:
        certificates = secured.certificates
        options = {
            "kafka.bootstrap.servers": secured.listener("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM} required username="alice" password="{password}";',
            "kafka.ssl.truststore.certificates": certificates.ca.read_text(),
            "kafka.ssl.keystore.certificate.chain": certificates.client.read_text(),
            "kafka.ssl.keystore.key": encrypted_client_key(certificates).read_text(),
            "kafka.ssl.key.password": KEY_PASSWORD,
            "subscribe": ALLOWED,
        }
        return spark.read.format("kafka-direct").options(**options).load()

    records = read(ALICE.password)
    assert [row.value for row in records.collect()] == [b"x"]
    plan = records._jdf.queryExecution().toString()
    with pytest.raises(Exception, match="rejected the user 'alice'") as caught:
        read("wrong-secret").collect()
    spark.stop()
    events = "".join(
        path.read_text() for path in tmp_path.rglob("*") if path.is_file() and not path.name.endswith(".crc")
    )
    assert "kafka-direct" in plan
    assert "kafka-direct" in events
    for output in (plan, events, str(caught.value), repr(records)):
        for secret in (ALICE.password, "wrong-secret", KEY_PASSWORD, "PRIVATE KEY"):
            assert secret not in output


def test_spark_reads_and_writes_with_jks_stores(secured: EmbeddedKafka, make_spark: Any) -> None:
    """The options are those of the JVM connector with mutual TLS."""
    certificates, topic = secured.certificates, f"jks-{RUN}"
    _allow_client(secured, topic)
    options = {
        "kafka.bootstrap.servers": secured.listener("MTLS"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(java_truststore(certificates, "JKS")),
        "kafka.ssl.truststore.password": certificates.password,
        "kafka.ssl.truststore.type": "JKS",
        "kafka.ssl.keystore.location": str(java_keystore(certificates)),
        "kafka.ssl.keystore.password": certificates.password,
        "kafka.ssl.keystore.type": "JKS",
        "kafka.ssl.key.password": certificates.password,
    }
    spark = make_spark()
    rows = spark.createDataFrame([(bytearray([number]),) for number in range(10)], "value binary")
    rows.write.format("kafka-direct").options(**options).option("topic", topic).mode("append").save()
    read = spark.read.format("kafka-direct").options(**options).option("subscribe", topic).load()
    assert sorted(row.value for row in read.collect()) == [bytes([number]) for number in range(10)]


def _allow_client(kafka: EmbeddedKafka, topic: str) -> None:
    """Create a topic that the client's certificate may read and write."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    for operation in (AclOperation.READ, AclOperation.WRITE):
        acl = AclBinding(ResourceType.TOPIC, topic, literal, "User:CN=client", "*", operation, allow)
        admin.create_acls([acl])[acl].result(HANG)
    admin.create_topics([NewTopic(topic, 2)], operation_timeout=HANG)[topic].result(HANG)
