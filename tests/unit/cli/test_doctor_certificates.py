"""What ``kafka-direct doctor`` says of chains of several certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.client.certified_keys import DAY, NOW, CertifiedKey

from pyspark_kafka_direct.cli.doctor import certificates
from pyspark_kafka_direct.cli.doctor.certificates import (
    client_certificate_finding,
    invalid_chain_texts,
    valid_chain_finding,
)
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import TlsError
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.options.settings import ConnectionSettings

HOSTS = "localhost 10.0.0.1"


def chain_of(*days: int, start: int = 1) -> list[CertifiedKey]:
    """Return the keys of a broker, CAs between, and a root, which expire after these numbers of days."""
    names = ["broker", *(f"CA {number}" for number in range(1, len(days)))]
    chain: list[CertifiedKey] = []
    for name, left in reversed([*zip(names, days, strict=True)]):
        issuer = chain[0] if chain else None
        hosts = HOSTS if name == "broker" else ""
        chain.insert(0, CertifiedKey(name, issuer, hosts=hosts, start=NOW - start * DAY, days=left + start))
    return chain


def handshake(chain: list[CertifiedKey], folder: Path) -> ssl.SSLObject:
    """Return the client's side of a connection with a broker that sends a chain without its root."""
    *sent, root = chain
    (folder / "broker.pem").write_text("".join(each.pem for each in sent) + chain[0].key_pem())
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(folder / "broker.pem")
    client.load_verify_locations(cadata=root.pem)
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(one, two, server_hostname="localhost"), server.wrap_bio(two, one, server_side=True)]
    for side in sides * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return sides[0]


@pytest.mark.parametrize("days", [(60, 90, 40), (60, 40, 90), (40, 90, 60)])
def test_the_first_certificate_of_a_chain_to_expire_is_named(tmp_path: Path, days: tuple[int, ...]) -> None:
    names = ["CN=broker", "CN=CA 1", "CN=CA 2"]
    first = min(zip(days, names, strict=True))
    connected = cast("ssl.SSLSocket", handshake(chain_of(*days), tmp_path))
    text, expires_soon = valid_chain_finding(connected)
    day = (NOW + first[0] * DAY).strftime("%Y-%m-%d")
    assert f"; CN=broker, for localhost, 10.0.0.1, issued by CN=CA 1; {first[1]} expires on {day}" in text
    assert not expires_soon
    soon = cast("ssl.SSLSocket", handshake(chain_of(*(each - 35 for each in days)), tmp_path))
    text, expires_soon = valid_chain_finding(soon)
    assert (expires_soon, text.startswith(f"The certificate of {first[1]} expires on ")) == (True, True)


def texts(
    monkeypatch: pytest.MonkeyPatch, chain: list[CertifiedKey], message: str, host: str = "localhost", **settings: str
) -> list[str]:
    """Return what is said of a handshake that failed with this message, because of this chain."""
    monkeypatch.setattr(certificates, "_presented_chain", lambda *_: [each.certificate for each in chain])
    return [*invalid_chain_texts(TlsError(message), tls(**settings), host, 9092, Deadline.after(60))]


def tls(**settings: str) -> ConnectionSettings:
    return parse_kafka_params({"bootstrap.servers": "b:1", "security.protocol": "SSL", **settings}).connection


def test_each_certificate_that_has_expired_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_of(40, -2, 40, -3, start=5)
    found = texts(monkeypatch, chain, "A certificate has expired.", host="elsewhere")
    assert [text.partition(" expired on")[0] for text in found[:2]] == [
        "A certificate has expired. The certificate of CN=CA 1",
        "The certificate of CN=CA 3",
    ]
    assert found[0].endswith("(2 days ago).")
    assert "It is for localhost, 10.0.0.1." in found[2]
    unknown = texts(monkeypatch, chain, "It is not signed by a CA.")
    assert [text.partition(" expired on")[0] for text in unknown[1:]] == [
        "The certificate of CN=CA 1",
        "The certificate of CN=CA 3",
    ]


def test_the_whole_chain_and_truststore_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "trusted.pem").write_text("".join(CertifiedKey(name).pem for name in ("one", "two")))
    location = {"ssl.truststore.location": str(tmp_path / "trusted.pem")}
    *sent, _ = chain_of(40, 40, 40, 40)
    (text,) = texts(monkeypatch, sent, "It is not signed by a CA.", **location)
    assert "The broker sends CN=broker < CN=CA 1 < CN=CA 2, issued by CN=CA 3; the truststore has CN=" in text
    (whole,) = texts(monkeypatch, chain_of(40, 40), "It is not signed by a CA.", **location)
    assert "The broker sends CN=broker < CN=CA 1, issued by CN=CA 1; the truststore has CN=" in whole
    assert {*text.partition("the truststore has ")[2].rstrip(".").split(", ")} == {"CN=one", "CN=two"}


def test_the_presented_chain_is_complete(tmp_path: Path) -> None:
    connected: Any = handshake(chain_of(40, 40, 40), tmp_path)
    found = certificates._parsed(certificates._chain_of(connected, "get_unverified_chain"))
    assert [each.subject.rfc4514_string() for each in found] == ["CN=broker", "CN=CA 1"]
    verified = certificates._parsed(certificates._chain_of(connected, "get_verified_chain"))
    assert [each.subject.rfc4514_string() for each in verified] == ["CN=broker", "CN=CA 1", "CN=CA 2"]


@pytest.mark.parametrize(
    ("days", "start", "result", "text"),
    [
        (40, 1, "ok", "client certificate of CN=broker, expires on "),
        (15, 1, "ok", "client certificate of CN=broker, expires on "),
        (13, 1, "warning", "This client's certificate expires on "),
        (0, 1, "problem", " (today). Renew it (kafka.ssl.certificate.location)."),
        (-1, 3, "problem", " (1 day ago). Renew it (kafka.ssl.certificate.location)."),
        (-2, 3, "problem", " (2 days ago). Renew it (kafka.ssl.certificate.location)."),
        (40, -2, "problem", "The certificate of CN=broker is valid from "),
    ],
)
def test_the_certificate_of_the_client_by_its_age(
    tmp_path: Path, days: int, start: int, result: str, text: str
) -> None:
    client, _ = chain_of(days, 40, start=start)
    (tmp_path / "client.pem").write_text(client.pem + client.key_pem())
    security = tls(**{"ssl.certificate.location": str(tmp_path / "client.pem")}).security
    assert security.tls is not None
    (finding,) = client_certificate_finding("this Python", security.tls)
    assert (finding.result, text in finding.text) == (result, True), finding


def test_the_certificate_of_the_client_is_the_first_one(tmp_path: Path) -> None:
    client, issuer, _ = chain_of(40, 5, 40)
    (tmp_path / "client.pem").write_text(client.pem + issuer.pem + client.key_pem())
    security = tls(**{"ssl.certificate.location": str(tmp_path / "client.pem")}).security
    assert security.tls is not None
    (finding,) = client_certificate_finding("this Python", security.tls)
    assert (finding.result, "client certificate of CN=broker" in finding.text) == ("ok", True)
