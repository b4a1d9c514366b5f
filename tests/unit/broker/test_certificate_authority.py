"""The certificates, tested with Python's TLS and without a network."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from pyspark_kafka_direct.broker import Certificates, make_certificates
from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.errors import BrokerError, ExternalToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@pytest.fixture
def java_without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a Java without keytool."""
    find_java.cache_clear()
    folder = tmp_path / "java" / "bin"
    folder.mkdir(parents=True)
    _script(folder / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(folder.parent))
    yield folder
    find_java.cache_clear()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_broker_is_trusted_through_its_authority(certificates: Certificates, host: str) -> None:
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    handshake(server_context(certificates), client, host)


def test_another_authority_or_host_name_is_not_trusted(certificates: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(
            server_context(certificates), ssl.create_default_context(cafile=str(certificates.wrong_ca)), "localhost"
        )
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server_context(certificates), ssl.create_default_context(cafile=str(certificates.ca)), "elsewhere")


def test_the_client_is_trusted_and_the_untrusted_client_is_not(certificates: Certificates) -> None:
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.load_cert_chain(certificates.client, certificates.client_encrypted_key, certificates.key_password)
    handshake(server_context(certificates, require_client_certificate=True), client, "localhost")
    untrusted_client = ssl.create_default_context(cafile=str(certificates.ca))
    untrusted_client.load_cert_chain(certificates.untrusted_client, certificates.untrusted_client_key)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(certificates, require_client_certificate=True), untrusted_client, "localhost")


def test_stores_have_the_expected_content(certificates: Certificates) -> None:
    password = certificates.password.encode()
    key, certificate, _ = pkcs12.load_key_and_certificates(certificates.client_p12.read_bytes(), password)
    assert key is not None
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=client"
    trusted = pkcs12.load_pkcs12(certificates.truststore_p12.read_bytes(), password)
    assert [each.certificate.subject.rfc4514_string() for each in trusted.additional_certs] == ["CN=Test CA"]
    for store in (certificates.client_jks, certificates.truststore_jks):
        assert store.read_bytes()[:4] == b"\xfe\xed\xfe\xed"  # the magic number of a JKS


def test_keys_are_private_and_passwords_are_not_shown(certificates: Certificates) -> None:
    assert certificates.folder.stat().st_mode & 0o077 == 0
    with pytest.raises(TypeError):
        load_pem_private_key(certificates.client_encrypted_key.read_bytes(), None)
    assert "secret" not in repr(certificates)


def test_the_broker_certificate_may_have_other_hosts(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path, ["broker.example"])
    handshake(server_context(certificates), ssl.create_default_context(cafile=str(certificates.ca)), "broker.example")


def test_a_failing_keytool_is_reported_with_the_store_and_its_output(tmp_path: Path, java_without_tools: Path) -> None:
    _script(
        java_without_tools / "keytool", 'case "$*" in *importkeystore*) echo "keytool error: no luck"; exit 3;; esac'
    )
    with pytest.raises(ExternalToolError) as failure:
        make_certificates(tmp_path / "made")
    message = str(failure.value)
    assert str(java_without_tools / "keytool") in message
    assert f"could not write {tmp_path / 'made' / 'client.jks'} (exit code 3): keytool error: no luck." in message
    assert "JAVA_HOME" in message
    assert "store-secret" not in message
    assert not isinstance(failure.value, BrokerError)


def test_a_missing_keytool_is_reported(tmp_path: Path, java_without_tools: Path) -> None:
    with pytest.raises(ExternalToolError, match=f"{java_without_tools}/keytool cannot be run: No such file"):
        make_certificates(tmp_path / "made")


def test_a_hanging_keytool_is_killed(tmp_path: Path, java_without_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _script(java_without_tools / "keytool", "exec sleep 100")
    monkeypatch.setattr("pyspark_kafka_direct.broker.certificate_authority._KEYTOOL_TIMEOUT", 0.2)
    with pytest.raises(ExternalToolError, match=r"keytool took longer than 0\.2 s"):
        make_certificates(tmp_path / "made")


def _script(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
