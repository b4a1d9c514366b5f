"""``kafka-direct doctor`` with TLS, SASL and ACLs of real brokers."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.integration.cli.doctor import diagnose
from tests.logins import ALICE, jaas_text
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.client.certified_keys import DAY, NOW, CertifiedKey

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

RUN = uuid.uuid4().hex[:8]
READABLE, WRITABLE = f"doctor-readable-{RUN}", f"doctor-writable-{RUN}"
Capture = pytest.CaptureFixture[str]

CA = CertifiedKey("the CA of the doctor", days=40)
STORE_PASSWORD = "store-secret"
CERTIFICATES = {
    "SSL": CertifiedKey("expired", CA, hosts="localhost 127.0.0.1", start=NOW - 5 * DAY, days=2),
    "MTLS": CertifiedKey("elsewhere", CA, hosts="kafka.example.com *.example.org 10.0.0.1", days=40),
    "SASL_SSL": CertifiedKey("alone", hosts="localhost 127.0.0.1", days=40),
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker whose listeners have an expired certificate, one for other names, and a self-signed one."""
    folder = tmp_path_factory.mktemp("stores")
    properties = {**FEW_THREADS, "listener.name.mtls.ssl.client.auth": "none"}
    for listener, certificate in CERTIFICATES.items():
        store = folder / f"{listener}.p12"
        store.write_bytes(certificate.pkcs12(STORE_PASSWORD, CA))
        properties[f"listener.name.{listener.lower()}.ssl.keystore.location"] = str(store)
        properties[f"listener.name.{listener.lower()}.ssl.keystore.password"] = STORE_PASSWORD
        properties[f"listener.name.{listener.lower()}.ssl.key.password"] = STORE_PASSWORD
    with new_kafka(security=[*CERTIFICATES], properties=properties) as kafka:
        yield kafka


@pytest.fixture
def trusted(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "ca.pem").write_text(CA.pem)
    return ("-X", "security.protocol=SSL", "-X", f"ssl.truststore.location={tmp_path / 'ca.pem'}")


def tls_problem(capsys: Capture, kafka: EmbeddedKafka, listener: str, *arguments: str) -> str:
    done = diagnose(capsys, "-b", kafka.listener(listener), *arguments)
    assert done.code == 1
    return done.texts(f"bootstrap server {kafka.listener(listener)}")["tls"]


def test_an_expired_certificate(mistaken: EmbeddedKafka, trusted: tuple[str, ...], capsys: Capture) -> None:
    text = tls_problem(capsys, mistaken, "SSL", *trusted)
    day = (NOW - 3 * DAY).strftime("%Y-%m-%d")
    assert "has expired; renew it on the broker" in text
    assert f"The certificate of CN=expired expired on {day}" in text
    assert text.endswith("UTC (3 days ago).")


def test_a_certificate_for_other_names(mistaken: EmbeddedKafka, trusted: tuple[str, ...], capsys: Capture) -> None:
    text = tls_problem(capsys, mistaken, "MTLS", *trusted)
    assert "is not valid for '127.0.0.1'" in text
    assert text.endswith("It is for kafka.example.com, *.example.org, 10.0.0.1.")
    unchecked = (*trusted, "-X", "ssl.endpoint.identification.algorithm=")
    done = diagnose(capsys, "-b", mistaken.listener("MTLS"), *unchecked)
    assert done.code == 0
    assert "The name in the certificate is not checked" in str(done.not_ok)


def test_an_untrusted_certificate(mistaken: EmbeddedKafka, trusted: tuple[str, ...], capsys: Capture) -> None:
    text = tls_problem(capsys, mistaken, "SASL_SSL", *trusted)
    assert "is not signed by a CA in kafka.ssl.truststore.location" in text
    assert text.endswith("The broker sends CN=alone, which is self-signed; the truststore has CN=the CA of the doctor.")


def test_each_defect_of_a_certificate(mistaken: EmbeddedKafka, tmp_path: Path, capsys: Capture) -> None:
    """An expired certificate of an unknown CA has two problems."""
    (tmp_path / "other.pem").write_text(CertifiedKey("another CA").pem)
    other = ("-X", "security.protocol=SSL", "-X", f"ssl.truststore.location={tmp_path / 'other.pem'}")
    done = diagnose(capsys, "-b", mistaken.listener("SSL"), *other)
    assert "CN=expired < CN=the CA of the doctor" in done.problems
    assert "the truststore has CN=another CA" in done.problems
    assert "The certificate of CN=expired expired on" in done.problems


def test_a_certificate_that_expires_soon(tmp_path: Path, secured_kafka: EmbeddedKafka, capsys: Capture) -> None:
    client = CertifiedKey("client", CA, hosts="client", days=3)
    outdated = CertifiedKey("client", CA, hosts="client", start=NOW - 9 * DAY, days=2)
    for certificate, text in ((client, "expires on"), (outdated, "expired on")):
        (tmp_path / "client.pem").write_text(certificate.pem + certificate.key_pem())
        settings = (
            *("-X", "security.protocol=SSL"),
            *("-X", f"ssl.truststore.location={secured_kafka.certificates.ca}"),
            *("-X", f"ssl.certificate.location={tmp_path / 'client.pem'}"),
        )
        done = diagnose(capsys, "-b", secured_kafka.listener("SSL"), *settings)
        assert text in done.texts("this Python")["tls files"]
        assert done.code == (1 if certificate is outdated else 0)


@pytest.mark.parametrize(
    ("listener", "protocol", "check", "text"),
    [
        ("PLAINTEXT", "SSL", "tls", "The listener does not use TLS"),
        ("SSL", "PLAINTEXT", "api versions", "The listener uses TLS: set kafka.security.protocol to SSL or SASL_SSL"),
        ("MTLS", "SSL", "tls", "it probably requires a client certificate"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "metadata", "set kafka.security.protocol to SASL_PLAINTEXT or SASL_SSL"),
    ],
)
def test_protocols_that_do_not_match(
    secured_kafka: EmbeddedKafka, capsys: Capture, listener: str, protocol: str, check: str, text: str
) -> None:
    arguments = ["-X", f"security.protocol={protocol}"]
    if protocol == "SSL":
        arguments += ["-X", f"ssl.truststore.location={secured_kafka.certificates.ca}"]
    done = diagnose(capsys, "-b", secured_kafka.listener(listener), *arguments)
    assert done.code == 1
    assert text in done.texts(f"bootstrap server {secured_kafka.listener(listener)}")[check]


@pytest.fixture
def alice(secured_kafka: EmbeddedKafka, tmp_path: Path) -> Path:
    """The settings of a user who may read one topic, and write to another one."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": secured_kafka.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acls = [
        AclBinding(ResourceType.TOPIC, topic, literal, "User:alice", "*", operation, allow)
        for topic, operation in ((READABLE, AclOperation.READ), (WRITABLE, AclOperation.WRITE))
    ]
    acls.append(AclBinding(ResourceType.GROUP, READABLE, literal, "User:alice", "*", AclOperation.DESCRIBE, allow))
    for acl in admin.create_acls(acls).values():
        acl.result(300)
    missing = [name for name in (READABLE, WRITABLE) if name not in admin.list_topics(timeout=300).topics]
    for created in admin.create_topics([NewTopic(name, 2) for name in missing]).values() if missing else ():
        created.result(300)
    # The first commit of a cluster creates the topic of committed offsets: before, no broker is a coordinator.
    consumer = Consumer({"bootstrap.servers": secured_kafka.bootstrap_servers, "group.id": f"{RUN}-of-another-user"})
    consumer.commit(offsets=[TopicPartition(READABLE, 0, 0)], asynchronous=False)
    consumer.close()
    settings = tmp_path / "alice.properties"
    settings.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.location={secured_kafka.certificates.ca}\n"
        f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas_text('SCRAM-SHA-512')}\n"
    )
    return settings


def test_permissions(secured_kafka: EmbeddedKafka, alice: Path, capsys: Capture) -> None:
    server = secured_kafka.listener("SASL_SSL")
    connection = ("-b", server, "--command-config", str(alice))
    topics = ("--topic", READABLE, "--topic", WRITABLE)
    done = diagnose(capsys, *connection, *topics, "--topic", f"forbidden-{RUN}", "--group", READABLE, "--group", RUN)
    assert done.texts(f"broker 1 at {server}")["sasl"] == "SCRAM-SHA-512 as 'alice'"
    assert done.texts(f"topic {READABLE}")["acls"] == "allowed: Read, Describe"
    command = f"kafka-acls.sh --bootstrap-server {server} --add --allow-principal User:alice --operation Read"
    assert done.texts(f"topic {WRITABLE}")["acls"] == (
        f"The principal lacks Read (allowed: Write, Describe). Allow it: {command} --topic {WRITABLE}"
    )
    forbidden = done.texts(f"topic forbidden-{RUN}")["acls"]
    assert forbidden.startswith("The principal lacks Describe on the topic; brokers do not say whether it exists.")
    assert forbidden.endswith(f"{command} --topic forbidden-{RUN}")
    assert done.texts(f"group {READABLE}")["acls"].startswith("The principal lacks Read (allowed: Describe).")
    assert done.texts(f"group {RUN}")["acls"].startswith("The principal lacks Describe on the group.")
    assert done.code == 1
    written = diagnose(capsys, *connection, *topics, "--write")
    assert {where for where, check in written.not_ok if check == "acls"} == {f"topic {READABLE}"}


@pytest.mark.parametrize("output", ["--json", None])
def test_a_wrong_password_is_not_shown(
    secured_kafka: EmbeddedKafka, alice: Path, capsys: Capture, output: str | None
) -> None:
    alice.write_text(alice.read_text().replace(ALICE.password, "wrong-hush"))
    arguments = ["-b", secured_kafka.listener("SASL_SSL"), "--command-config", str(alice)]
    assert main(["doctor", *arguments, *([output] if output else [])]) == 1
    shown = capsys.readouterr()
    assert "The broker rejected the user 'alice' (SCRAM-SHA-512)" in shown.out
    assert "wrong-hush" not in shown.out + shown.err


def test_executors_do_not_repeat_a_failed_login(secured_kafka: EmbeddedKafka, alice: Path, capsys: Capture) -> None:
    """Spark is not started: the master does not exist."""
    alice.write_text(alice.read_text().replace(ALICE.password, "wrong-hush"))
    server = secured_kafka.listener("SASL_SSL")
    done = diagnose(capsys, "-b", server, "--command-config", str(alice), "--spark", "spark://no-such-host:7077")
    assert done.code == 1
    assert done.texts("Spark")["executors"].startswith("The login fails on the driver. Correct it first")


def test_a_mechanism_that_the_listener_lacks(secured_kafka: EmbeddedKafka, alice: Path, capsys: Capture) -> None:
    alice.write_text(alice.read_text().replace("SASL_SSL", "SASL_PLAINTEXT"))
    done = diagnose(capsys, "-b", secured_kafka.listener("SASL_PLAINTEXT"), "--command-config", str(alice))
    text = done.texts(f"bootstrap server {secured_kafka.listener('SASL_PLAINTEXT')}")["sasl"]
    assert "does not offer SCRAM-SHA-512; it offers OAUTHBEARER, PLAIN, SCRAM-SHA-256" in text


def test_files_that_do_not_exist(secured_kafka: EmbeddedKafka, capsys: Capture) -> None:
    settings = ("-X", "security.protocol=SSL", "-X", "ssl.truststore.location=/no/such/ca.pem")
    done = diagnose(capsys, "-b", secured_kafka.listener("SSL"), *settings)
    assert done.code == 1
    assert "/no/such/ca.pem" in done.texts("this Python")["tls files"]
