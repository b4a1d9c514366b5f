"""The certificates, tested with Python's TLS and without a network."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.certificate_stores import KEY_PASSWORD, encrypted_client_key, java_truststore

from pyspark_kafka_direct.broker import Certificates, make_certificates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "new")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Run a handshake between two contexts in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not ends


def server_context(certificates: Certificates, *, require_client_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker, certificates.broker_key)
    if require_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_broker_is_trusted_through_its_authority(certificates: Certificates, host: str) -> None:
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    handshake(server_context(certificates), client, host)


def test_another_authority_or_host_name_is_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(server_context(certificates), ssl.create_default_context(cafile=str(other.ca)), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server_context(certificates), ssl.create_default_context(cafile=str(certificates.ca)), "elsewhere")


def test_the_client_is_trusted_and_the_untrusted_client_is_not(certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.load_cert_chain(certificates.client, encrypted_client_key(certificates), KEY_PASSWORD)
    handshake(server_context(certificates, require_client_certificate=True), client, "localhost")
    untrusted_client = ssl.create_default_context(cafile=str(certificates.ca))
    untrusted_client.load_cert_chain(other.client, other.client_key)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(certificates, require_client_certificate=True), untrusted_client, "localhost")


@pytest.mark.slow
def test_stores_have_the_expected_content(certificates: Certificates) -> None:
    password = certificates.password.encode()
    key, certificate, _ = pkcs12.load_key_and_certificates(certificates.client_p12.read_bytes(), password)
    assert key is not None
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=client"
    trusted = pkcs12.load_pkcs12(java_truststore(certificates, "PKCS12").read_bytes(), password)
    assert [each.certificate.subject.rfc4514_string() for each in trusted.additional_certs] == ["CN=Test CA"]
    jks = java_truststore(certificates, "JKS")
    assert jks.read_bytes()[:4] == b"\xfe\xed\xfe\xed"  # the magic number of a JKS


def test_keys_are_private_and_the_password_is_not_shown(certificates: Certificates) -> None:
    assert certificates.folder.stat().st_mode & 0o077 == 0
    assert "secret" not in repr(certificates)


def test_the_broker_certificate_may_have_other_hosts(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path, ["broker.example"])
    handshake(server_context(certificates), ssl.create_default_context(cafile=str(certificates.ca)), "broker.example")
