"""Kerberos logins that fail, against a real KDC and a real broker: each error says what happened and what to change."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.kerberos.clients import HANG, MODULE, connect, settings, with_keytab
from tests.kerberos.kdc import REALM

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.kerberos import start_exchange
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError
from pyspark_kafka_direct.options.security_settings import KerberosSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kerberos.kdc import Kdc

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings


def error(client: ConnectionSettings) -> str:
    """Return the message of the error, which a retry does not resolve, so that it is raised at once."""
    started = time.monotonic()
    with pytest.raises(KafkaDirectError) as caught:
        ClusterClient(client).topics(["missing"])
    assert time.monotonic() - started < HANG
    assert isinstance(caught.value, AuthenticationError), repr(caught.value)
    assert caught.value.broker == "{}:{}".format(*client.bootstrap_servers[0])
    return caught.value.message


# Keytabs and ticket caches


@pytest.mark.parametrize(
    ("principal", "options", "reason"),
    [
        ("changed", [], "Decrypt integrity check failed"),
        ("changed-too", ["+requires_preauth"], "Preauthentication failed"),
    ],
)
def test_the_key_was_changed(kafka: EmbeddedKafka, kdc: Kdc, principal: str, options: list[str], reason: str) -> None:
    old_keytab = kdc.add(principal, *options)
    kdc.new_key(principal)
    assert error(settings(kafka, with_keytab(principal, old_keytab))) == (
        f"The Kerberos login of {principal} failed: {reason}. The keytab has another key than the KDC: export it again."
    )


def test_the_principal_is_not_in_the_keytab(kafka: EmbeddedKafka, alice: Path) -> None:
    assert error(settings(kafka, with_keytab("bob", alice))) == (
        f"The keytab '{alice}' has no key for the login of bob (No key table entry found for bob@{REALM}). Check "
        "keyTab and principal in kafka.sasl.jaas.config (or kafka.sasl.kerberos.keytab and .principal); the file must "
        "exist on the driver and the executors (spark-submit --files)."
    )


def test_the_keytab_is_missing(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    message = error(settings(kafka, with_keytab("alice", tmp_path / "missing")))
    assert f"has no key for the login of alice (Key table file '{tmp_path / 'missing'}' not found)" in message


def test_the_keytab_has_another_format(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    (tmp_path / "keytab").write_bytes(b"neither a keytab nor anything else")
    message = error(settings(kafka, with_keytab("alice", tmp_path / "keytab")))
    assert "has no key for the login of alice (Unsupported key table format version number)" in message


def test_the_kdc_does_not_know_the_principal(kafka: EmbeddedKafka, kdc: Kdc) -> None:
    keytab = kdc.add("deleted")
    kdc.admin("delprinc", "-force", "deleted")
    assert error(settings(kafka, with_keytab("deleted", keytab))) == (
        f"The Kerberos login of deleted failed: Client 'deleted@{REALM}' not found in Kerberos database. Check the "
        "name and the realm of the principal."
    )


def test_a_ticket_cache_that_is_missing(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    cache = tmp_path / "missing"
    message = error(settings(kafka, f'{MODULE} required useTicketCache=true ticketCache="{cache}";'))
    assert message.startswith(f"The ticket cache '{cache}' has no ticket for the login: ")
    assert message.endswith("Create it with kinit on the driver and the executors, or use a keytab.")


def test_a_ticket_cache_of_another_principal(kafka: EmbeddedKafka, kdc: Kdc, alice: Path) -> None:
    cache = kdc.kinit("alice", alice)
    jaas = f'{MODULE} required useTicketCache=true ticketCache="{cache}" principal=bob;'
    message = error(settings(kafka, jaas))
    assert "has no ticket for the login of bob: Principal in credential cache does not match desired name." in message


def test_an_expired_ticket_cache(kafka: EmbeddedKafka, kdc: Kdc, alice: Path) -> None:
    cache = kdc.kinit("alice", alice, "-l", "1s")
    client = settings(kafka, f'{MODULE} required useTicketCache=true ticketCache="{cache}";')
    deadline = time.monotonic() + HANG
    while "has only expired tickets" not in (message := _error_or_nothing(client)):
        assert time.monotonic() < deadline, message
    assert message == (
        f"The ticket cache '{cache}' has only expired tickets. Renew the ticket cache with kinit, or use a keytab."
    )


def _error_or_nothing(client: ConnectionSettings) -> str:
    try:
        connect(client)
    except AuthenticationError as error:
        return error.message
    return ""


# The KDC and its configuration


def test_the_kdc_does_not_know_the_service(kafka: EmbeddedKafka, alice: Path) -> None:
    client = settings(kafka, with_keytab("alice", alice, "serviceName=other"), sasl_kerberos_service_name="")
    assert error(client) == (
        f"alice@{REALM} gets no Kerberos ticket for other/localhost: Server other/localhost@{REALM} not found in "
        "Kerberos database. The principal of a broker consists of serviceName (or kafka.sasl.kerberos.service.name) "
        "and the host name in kafka.bootstrap.servers or in advertised.listeners of the brokers: use names for which "
        "the KDC has principals."
    )


def test_the_kdc_does_not_know_the_host(krb5_conf: Path, alice: Path) -> None:
    kerberos = KerberosSettings("kafka", "alice", str(alice))
    with pytest.raises(AuthenticationError) as caught:
        start_exchange(kerberos, "broker9.example.com", Deadline.after(HANG), "broker9.example.com:9092")
    assert f"alice@{REALM} gets no Kerberos ticket for kafka/broker9.example.com: Server " in caught.value.message
    assert "not found in Kerberos database" in caught.value.message


def test_the_kdc_is_down(
    kafka: EmbeddedKafka, alice: Path, dead_krb5_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(dead_krb5_conf))
    assert error(settings(kafka, with_keytab("alice", alice))) == (
        f"The Kerberos login of alice failed: Cannot contact any KDC for realm '{REALM}'. Check the KDC in [realms] in "
        "krb5.conf (the environment variable KRB5_CONFIG names another file), and that this host can connect to it."
    )


@pytest.fixture
def silent_krb5_conf(kdc: Kdc) -> Iterator[Path]:
    """A configuration with a KDC that accepts connections, and does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield kdc.client_config("silent", server.getsockname()[1])


def test_the_kdc_does_not_respond(
    kafka: EmbeddedKafka, alice: Path, silent_krb5_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(silent_krb5_conf))
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError) as caught:
        connect(settings(kafka, with_keytab("alice", alice)), seconds=0.5)
    assert time.monotonic() - started < 5, "the library itself gives up after more than ten seconds"
    assert caught.value.message == (
        "The Kerberos login of alice did not end in time: check that this host can connect to the KDC and the name "
        "server; the limit is kafka.socket.connection.setup.timeout.ms."
    )


def test_a_ticket_that_is_not_issued_does_not_block_logins_at_other_brokers(
    kafka: EmbeddedKafka, alice: Path, silent_krb5_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = settings(kafka, with_keytab("alice", alice))
    connect(client)
    monkeypatch.setenv("KRB5_CONFIG", str(silent_krb5_conf))
    kerberos = client.security.sasl.kerberos if client.security.sasl else None
    assert kerberos is not None
    with pytest.raises(BrokerTimeoutError, match="was not issued in time"):
        start_exchange(kerberos, "broker9.example.com", Deadline.after(0.5), "broker9.example.com:9092")
    connect(client, seconds=5)


@pytest.mark.parametrize(
    ("principal", "reason"),
    [
        ("alice", "Configuration file does not specify default realm. Write the principal with its realm, or set"),
        ("alice@MISSING.REALM", 'Cannot find KDC for realm "MISSING.REALM". Add the realm and its KDC to [realms]'),
    ],
)
def test_the_realm_is_missing(
    kafka: EmbeddedKafka, kdc: Kdc, alice: Path, monkeypatch: pytest.MonkeyPatch, principal: str, reason: str
) -> None:
    conf = kdc.client_config("no-realm", kdc.port, default_realm="")
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    keytab = alice if principal == "alice" else kdc.foreign_keytab(principal)
    message = error(settings(kafka, with_keytab(principal, keytab)))
    assert message.startswith(f"The Kerberos login of {principal} failed: {reason}")
    assert "krb5.conf (the environment variable KRB5_CONFIG names another file)" in message


# Clocks


@pytest.mark.parametrize(
    ("principal", "options", "reason"),
    [
        ("late", [], "Clock skew too great in KDC reply"),
        ("late-too", ["+requires_preauth"], "Clock skew too great"),
    ],
)
def test_the_clock_of_the_kdc_differs(
    kafka: EmbeddedKafka, kdc: Kdc, monkeypatch: pytest.MonkeyPatch, principal: str, options: list[str], reason: str
) -> None:
    conf = kdc.client_config("skewed", kdc.skewed_port, "kdc_timesync = 0")
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    assert error(settings(kafka, with_keytab(principal, kdc.add(principal, *options)))) == (
        f"The Kerberos login of {principal} failed: {reason}. Synchronize the clocks of this host, the KDC and the "
        "brokers."
    )


def test_the_clock_of_the_broker_differs(
    kafka: EmbeddedKafka, kdc: Kdc, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, clients use the time of the KDC, which differs from that of the broker."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.client_config("skewed", kdc.skewed_port)))
    message = error(settings(kafka, with_keytab("alice", alice)))
    assert message.startswith(f"The broker rejected the Kerberos principal alice@{REALM} (GSSAPI)")
    assert "has the KDC's current key of kafka/localhost, that the clocks are synchronized (clock skew)" in message


# The broker


def test_the_broker_has_another_principal(kafka: EmbeddedKafka, kdc: Kdc, alice: Path) -> None:
    kdc.add("other/localhost")
    client = settings(kafka, with_keytab("alice", alice, "serviceName=other"), sasl_kerberos_service_name="")
    message = error(client)
    assert message.startswith(f"The broker rejected the Kerberos principal alice@{REALM} (GSSAPI)")
    kdc.admin("delprinc", "-force", "other/localhost")


def test_a_listener_without_kerberos(kafka: EmbeddedKafka, alice: Path) -> None:
    client = settings(kafka, with_keytab("alice", alice), bootstrap_servers=kafka.bootstrap_servers)
    assert "The listener does not use SASL" in error(client)
