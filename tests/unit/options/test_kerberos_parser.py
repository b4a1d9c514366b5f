"""Settings of Kerberos logins: those of Java's login modules, and librdkafka's."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from tests.unit.options.parsed_security import KERBEROS_MODULE, PLAIN_MODULE, error, parse

from pyspark_kafka_direct.options.security_settings import KerberosSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

IBM_MODULE = "com.ibm.security.auth.module.Krb5LoginModule"
SASL = {"security.protocol": "SASL_SSL"}
KEYTAB = 'useKeyTab=true keyTab="/etc/client.keytab" principal="alice@EXAMPLE.COM"'
ALICE = KerberosSettings("kafka", "alice@EXAMPLE.COM", "/etc/client.keytab")


def kerberos(params: Mapping[str, str], *, protocol: str = "SASL_SSL") -> KerberosSettings:
    """Parse the settings, and check that there are no warnings."""
    security, warnings = parse({"security.protocol": protocol, **params})
    assert warnings == ()
    assert security.sasl is not None
    assert security.sasl.mechanism == "GSSAPI"
    assert security.sasl.kerberos is not None
    assert pickle.loads(pickle.dumps(security)) == security
    return security.sasl.kerberos


def jaas(options: str, module: str = KERBEROS_MODULE) -> dict[str, str]:
    return {"sasl.jaas.config": f"{module} required {options};"}


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}, {"sasl.mechanism": "gssapi"}])
def test_a_keytab_login_as_java_writes_it(mechanism: Mapping[str, str]) -> None:
    options = f"{KEYTAB} storeKey=true serviceName=kafka doNotPrompt=true refreshKrb5Config=true debug=false"
    assert kerberos({**mechanism, **jaas(options)}) == ALICE


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_a_keytab_login_as_librdkafka_names_it(mechanism: Mapping[str, str]) -> None:
    names = {"sasl.kerberos.keytab": "/etc/client.keytab", "sasl.kerberos.principal": "alice@EXAMPLE.COM"}
    assert kerberos({**mechanism, **names}) == ALICE


def test_without_tls_nothing_is_sent_that_an_eavesdropper_could_use() -> None:
    assert kerberos(jaas(KEYTAB), protocol="SASL_PLAINTEXT") == ALICE


@pytest.mark.parametrize(
    ("options", "principal", "keytab", "ticket_cache"),
    [
        ("useTicketCache=true", None, None, ""),
        ("useTicketCache=TRUE principal=alice", "alice", None, ""),
        ('useTicketCache=true ticketCache="/tmp/tickets"', None, None, "/tmp/tickets"),
        ('useTicketCache=true ticketCache="FILE:/tmp/tickets"', None, None, "/tmp/tickets"),
        (f'{KEYTAB} useTicketCache=true ticketCache="t"', "alice@EXAMPLE.COM", "/etc/client.keytab", "t"),
        ('useKeyTab=true keyTab="FILE:client.keytab" principal=bob isInitiator=true', "bob", "client.keytab", None),
    ],
)
def test_ticket_caches_and_files(
    options: str, principal: str | None, keytab: str | None, ticket_cache: str | None
) -> None:
    assert kerberos(jaas(options)) == KerberosSettings("kafka", principal, keytab, ticket_cache)


@pytest.mark.parametrize(
    ("options", "principal", "keytab", "ticket_cache"),
    [
        ('useKeytab="file:///etc/my%20keytab" principal=alice credsType=both', "alice", "/etc/my keytab", None),
        ('useKeytab="/etc/client.keytab" principal=alice', "alice", "/etc/client.keytab", None),
        ('useKeytab="file://[" principal=alice', "alice", "//[", None),  # no URL
        ('useCcache="file:///tmp/tickets"', None, None, "/tmp/tickets"),
        ("useDefaultCcache=true credsType=initiator", None, None, ""),
        (
            'useKeytab="file:///my%20keytab" useCcache="file:///my%20tickets" principal=alice credsType=BOTH',
            "alice",
            "/my keytab",
            "/my tickets",
        ),
        ('useKeytab="FILE:/k" useDefaultCcache=TRUE principal=alice', "alice", "/k", ""),
    ],
)
def test_the_module_of_ibm_has_urls(
    options: str, principal: str | None, keytab: str | None, ticket_cache: str | None
) -> None:
    assert kerberos(jaas(options, IBM_MODULE)) == KerberosSettings("kafka", principal, keytab, ticket_cache)


@pytest.mark.parametrize(
    ("in_jaas", "params", "expected"),
    [
        ("", {}, "kafka"),
        ("serviceName=broker", {}, "broker"),
        ("", {"sasl.kerberos.service.name": "broker"}, "broker"),
        ('serviceName="broker"', {"sasl.kerberos.service.name": "broker"}, "broker"),
    ],
)
def test_the_service_name_is_in_either_place(in_jaas: str, params: Mapping[str, str], expected: str) -> None:
    assert kerberos({**jaas(f"{KEYTAB} {in_jaas}"), **params}).service_name == expected


def test_when_tickets_are_renewed() -> None:
    times = {"sasl.kerberos.ticket.renew.window.factor": "0.5", "sasl.kerberos.min.time.before.relogin": "5500"}
    settings = kerberos({**jaas(KEYTAB), **times})
    assert (settings.renew_window_factor, settings.min_relogin_seconds) == (0.5, 5.5)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({**jaas(f"{KEYTAB} renewTGT=true useTicketCache=true")}, "renewTGT has no effect"),
        ({**jaas(KEYTAB), "sasl.kerberos.kinit.cmd": "/usr/bin/kinit"}, "another Kafka client"),
        ({**jaas(KEYTAB), "sasl.kerberos.ticket.renew.jitter": "0.05"}, "another Kafka client"),
    ],
)
def test_settings_that_have_no_effect(params: Mapping[str, str], reason: str) -> None:
    _, (warning,) = parse({**SASL, **params})
    assert reason in warning


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "neither a keytab nor a ticket cache"),
        ({"sasl.kerberos.service.name": "kafka"}, "-Djava.security.auth.login.config is not read"),
        (jaas('principal="alice"'), "passwords are not supported"),
        (jaas('useKeyTab=true keyTab="/k"'), "kafka.sasl.jaas.config: the principal is missing"),
        ({"sasl.kerberos.keytab": "/k"}, "kafka.sasl.kerberos.principal: the principal is missing"),
        (jaas("useKeyTab=true principal=alice"), "the path of the keytab; add keyTab"),
        (jaas('keyTab="/k" principal=alice'), "keyTab requires useKeyTab=true"),
        (jaas('ticketCache="/t"'), "ticketCache requires useTicketCache=true"),
        (jaas(f"{KEYTAB} isInitiator=false"), "isInitiator=false is for servers"),
        (jaas(f"{KEYTAB} isInitiator=False"), "isInitiator=false is for servers"),
        (jaas(f'{KEYTAB} serviceName="a@b"') | {"sasl.kerberos.service.name": "a@b"}, "kafka.sasl.jaas.config must be"),
        (jaas('useKeyTab=true keyTab="/k" principal="spark/_HOST@R"'), "contains _HOST, which Java's Krb5LoginModule"),
        (jaas("useDefaultKeytab=true", IBM_MODULE), "set useKeytab to the URL"),
        (jaas("useDefaultCcache=true credsType=acceptor", IBM_MODULE), "credsType must be initiator or both"),
        (
            {**jaas(f"{KEYTAB} serviceName=kafka"), "sasl.kerberos.service.name": "broker"},
            "serviceName in kafka.sasl.jaas.config and kafka.sasl.kerberos.service.name are different",
        ),
        (jaas(f'{KEYTAB} serviceName="a@b"'), "such as kafka, got 'a@b'"),
        (
            {**jaas(KEYTAB), "sasl.kerberos.keytab": "/k"},
            "kafka.sasl.jaas.config and kafka.sasl.kerberos.keytab exclude each other",
        ),
        (
            {**jaas(KEYTAB), "sasl.mechanism": "PLAIN"},
            f"contains a login module for GSSAPI; PLAIN needs {PLAIN_MODULE}",
        ),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{PLAIN_MODULE} required;"},
            f"login module for PLAIN; GSSAPI needs {KERBEROS_MODULE}",
        ),
        ({"sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "set it to PLAIN (Java's default is GSSAPI)"),
    ],
)
def test_errors(params: Mapping[str, str], expected: str) -> None:
    assert expected in error({**SASL, **params})
