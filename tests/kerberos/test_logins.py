"""Logins with keytabs and ticket caches that succeed, against a real KDC and a real broker."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from tests.kerberos.clients import MODULE, connect, settings, with_keytab
from tests.kerberos.kdc import REALM

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.kerberos import start_exchange
from pyspark_kafka_direct.options.security_settings import KerberosSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kerberos.kdc import Kdc

    from pyspark_kafka_direct.broker import EmbeddedKafka

RENEW_ALWAYS = {"sasl_kerberos_ticket_renew_window_factor": "0", "sasl_kerberos_min_time_before_relogin": "0"}


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("principal", ["alice", f"alice@{REALM}"])
def test_a_keytab(kafka: EmbeddedKafka, alice: Path, listener: str, principal: str) -> None:
    connect(settings(kafka, with_keytab(principal, alice, "storeKey=true serviceName=kafka"), listener))


def test_a_keytab_with_the_names_of_librdkafka(kafka: EmbeddedKafka, alice: Path) -> None:
    names = {"sasl_kerberos_keytab": str(alice), "sasl_kerberos_principal": "alice"}
    connect(settings(kafka, "", **names))


def test_a_relative_path_as_of_spark_submit_files(
    kafka: EmbeddedKafka, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(alice.parent)
    connect(settings(kafka, with_keytab("alice", alice).replace(str(alice.parent) + "/", "")))


@pytest.mark.parametrize("principal", ["", "principal=alice"])
def test_a_ticket_cache(kafka: EmbeddedKafka, kdc: Kdc, alice: Path, principal: str) -> None:
    cache = kdc.kinit("alice", alice)
    connect(settings(kafka, f'{MODULE} required useTicketCache=true ticketCache="{cache}" {principal};'))


def test_the_default_ticket_cache(kafka: EmbeddedKafka, kdc: Kdc, alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = kdc.kinit("alice", alice)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    before = cache.read_bytes()
    connect(settings(kafka, with_keytab("alice", alice)))
    assert cache.read_bytes() == before, "a login with a keytab does not use the user's cache"
    connect(settings(kafka, f"{MODULE} required useTicketCache=true;"))


def test_the_keytab_is_used_without_a_ticket_cache(kafka: EmbeddedKafka, alice: Path, tmp_path: Path) -> None:
    cache = f'useTicketCache=true ticketCache="{tmp_path / "missing"}"'
    connect(settings(kafka, with_keytab("alice", alice, cache)))


def test_principals_with_two_parts(kafka: EmbeddedKafka, kdc: Kdc) -> None:
    connect(settings(kafka, with_keytab("etl/host.example.com", kdc.add("etl/host.example.com"))))


def test_many_threads_share_one_login(kafka: EmbeddedKafka, kdc: Kdc, caplog: pytest.LogCaptureFixture) -> None:
    client = settings(kafka, with_keytab("shared", kdc.add("shared")))
    errors: list[BaseException] = []

    def connect_often() -> None:
        try:
            for _ in range(10):
                connect(client)
        except BaseException as error:
            errors.append(error)

    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.client"):
        threads = [threading.Thread(target=connect_often) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sum("Kerberos login as shared@" in message for message in caplog.messages) == 1


def test_the_realm_of_a_broker_is_that_of_domain_realm(
    kdc: Kdc, krb5_conf: Path, alice: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kdc.add("kafka/broker1.example.com")
    conf = tmp_path / "krb5.conf"
    conf.write_text(krb5_conf.read_text() + f"[domain_realm]\n .example.com = {REALM}\n")
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    kerberos = KerberosSettings("kafka", "alice", str(alice))
    exchange = start_exchange(kerberos, "Broker1.example.com", Deadline.after(60), "broker")
    assert exchange.service == f"kafka/broker1.example.com@{REALM}"


# Keytabs that change


def test_a_new_keytab_is_used_for_the_next_login(kafka: EmbeddedKafka, kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    keytab.write_bytes(kdc.add("rotated").read_bytes())
    client = settings(kafka, with_keytab("rotated", keytab), **RENEW_ALWAYS)
    connect(client)
    new_keytab = kdc.new_key("rotated")
    keytab.write_bytes(new_keytab.read_bytes())
    connect(client)


def test_a_half_written_keytab_keeps_the_old_tickets(
    kafka: EmbeddedKafka, kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keytab = tmp_path / "keytab"
    content = kdc.add("written").read_bytes()
    keytab.write_bytes(content)
    client = settings(kafka, with_keytab("written", keytab), **RENEW_ALWAYS)
    connect(client)
    for size in (0, 1, 20, len(content) // 2):
        keytab.write_bytes(content[:size])
        connect(client)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "has no key for the login of written" in warning
    assert "The old tickets of written@TEST.REALM are used for" in warning
    keytab.write_bytes(content)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.client"):
        connect(client)
    assert any("Kerberos login as written@" in message for message in caplog.messages)


def test_a_kdc_that_is_down_keeps_the_old_tickets(
    kafka: EmbeddedKafka,
    kdc: Kdc,
    dead_krb5_conf: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = settings(kafka, with_keytab("durable", kdc.add("durable")), **RENEW_ALWAYS)
    connect(client)
    monkeypatch.setenv("KRB5_CONFIG", str(dead_krb5_conf))
    connect(client)
    assert "Cannot contact any KDC" in caplog.text
