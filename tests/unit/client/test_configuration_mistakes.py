"""Mistakes in settings whose answer cannot change, so that they are rejected at once or understood."""

from __future__ import annotations

import base64

import pytest
from tests.settings import parse_client_params
from tests.unit.client.certified_keys import CertifiedKey

from pyspark_kafka_direct.client.broker_selection import no_broker_error
from pyspark_kafka_direct.client.security.keystore import read_pem, with_leaf_first
from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.errors import BrokerUnreachableError, OptionError, ProtocolError
from pyspark_kafka_direct.log import KafkaTable
from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings

CA = CertifiedKey("ca")
BETWEEN = CertifiedKey("between", CA)
CLIENT = CertifiedKey("client", BETWEEN, hosts="client")
OTHER = CertifiedKey("other", CA, hosts="other")
OTHER_CA = CertifiedKey("other ca")


@pytest.mark.parametrize(
    ("old", "new"),
    [("\n", " \\\n"), ("\n", "\\\n"), ("\n", "\\n\\\n"), ("\n", "\\\\n"), ("\n", "\\\\r\\\\n"), ("\n", "\\\r\n")],
)
def test_pem_text_with_continued_or_escaped_lines(old: str, new: str) -> None:
    assert tls_context(TlsSettings(truststore_certificates=CA.pem.replace(old, new))).get_ca_certs()
    assert [block.text for block in read_pem(CLIENT.key_pem().replace(old, new))] == [CLIENT.key_pem()]
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n"
    old_key = CLIENT.key_pem().replace("PRIVATE KEY-----\n", f"PRIVATE KEY-----\n{headers}", 1)
    (block,) = read_pem(old_key.replace(old, new))
    assert block.text.split() == old_key.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (base64.b64encode(CA.pem.encode()).decode(), r"it has PEM text that is encoded in base64; decode it"),
        (CLIENT.key_pem(), r"it has PRIVATE KEY\)"),
        (
            CLIENT.key_pem() + CLIENT.key_pem().replace("PRIVATE", "PUBLIC") + CLIENT.key_pem(),
            r"it has PRIVATE KEY, PUBLIC KEY\)",
        ),
        (CA.pem.replace("M", "*"), r"it has CERTIFICATE; a block needs base64 up to its END line"),
        (CA.pem[:200], r"it has CERTIFICATE; a block needs base64 up to its END line"),
        ("/etc/ca.pem", r"requires PEM text, not a path"),
    ],
)
def test_a_text_without_a_certificate(text: str, expected: str) -> None:
    with pytest.raises(
        OptionError, match=rf"ssl\.truststore\.certificates has no PEM certificate .*{expected}"
    ) as caught:
        tls_context(TlsSettings(truststore_certificates=text))
    assert not any(line in str(caught.value) for line in CLIENT.key_pem().splitlines()[1:-1])


@pytest.mark.parametrize(
    "chain",
    [
        (CA, BETWEEN, CLIENT),
        (BETWEEN, CLIENT, CA),
        (CA, CLIENT, BETWEEN),
        (BETWEEN, CLIENT),
        (CLIENT, BETWEEN),
        (OTHER_CA, CA, BETWEEN, CLIENT),
    ],
)
@pytest.mark.parametrize("password", [None, "pw"])
def test_a_chain_in_any_order(chain: tuple[CertifiedKey, ...], password: str | None) -> None:
    text = "".join(each.pem for each in chain)
    tls_context(
        TlsSettings(
            certificate_chain=Secret(text),
            key=Secret(CLIENT.key_pem() if password is None else CLIENT.key_pem(password)),
            key_password=None if password is None else Secret(password),
        )
    )
    ordered = with_leaf_first((text + CLIENT.key_pem()).encode()).decode()
    expected = [each.pem for each in (CLIENT, BETWEEN, CA) if each in chain]
    assert [block.text for block in read_pem(ordered)] == [*expected, CLIENT.key_pem()]


def test_a_key_of_no_certificate_in_the_chain() -> None:
    for chain in (CLIENT.pem, CA.pem + CLIENT.pem):
        with pytest.raises(OptionError, match=r"the private key does not belong to the certificate"):
            tls_context(TlsSettings(certificate_chain=Secret(chain), key=Secret(OTHER.key_pem())))


@pytest.mark.parametrize(
    "servers",
    [
        "user:hunter2@host:9092",
        "a:9092,user:hunter2@host:9092",
        "user:hunter2,x@host",
        "SASL_SSL://user:hunter2@host:1",
    ],
)
def test_a_password_in_bootstrap_servers_is_not_shown(servers: str) -> None:
    for parse in (
        lambda: parse_client_params({"bootstrap.servers": servers}),
        lambda: KafkaTable("t", {"bootstrap.servers": servers}),
    ):
        with pytest.raises(
            OptionError, match=r"without a user name and a password.*kafka\.sasl\.jaas\.config"
        ) as caught:
            parse()
        assert "hunter2" not in str(caught.value)
        assert "user:" not in str(caught.value)


@pytest.mark.parametrize("host", ["a..b", ".example.com", "a" * 64, f"x.{'a' * 64}.com", ".."])
def test_a_host_name_that_can_never_be_resolved(host: str) -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers must be host:port with a legal host name"):
        parse_client_params({"bootstrap.servers": f"{host}:9092"})


def test_legal_host_names() -> None:
    servers = "a.example.com.:9092,my_broker-0:1,[::1]:9092,[fe80::1%eth0]:1,10.0.0.1:9092," + "a" * 63 + ":1"
    assert len(parse_client_params({"bootstrap.servers": servers}).connection.bootstrap_servers) == 6


def test_servers_that_are_no_brokers_are_not_retried() -> None:
    protocol = ProtocolError("The listener uses TLS.", broker="a:1")
    error = no_broker_error([protocol, ProtocolError("An HTTP server responded.", broker="b:1")])
    assert type(error) is ProtocolError
    assert "a:1: The listener uses TLS.; b:1: An HTTP server" in error.message
    assert type(no_broker_error([protocol, BrokerUnreachableError("refused", broker="b:1")])) is BrokerUnreachableError
