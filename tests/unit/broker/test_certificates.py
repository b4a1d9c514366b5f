"""The certificates, tried out with Python's own TLS, no network needed."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from pyspark_kafka_direct.broker import Certificates, make_certificates
from pyspark_kafka_direct.broker._java import find_java
from pyspark_kafka_direct.errors import BrokerError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "new")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Let two contexts shake hands through memory."""
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


def server_context(made: Certificates, *, ask: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.broker, made.broker_key)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(made.ca)
    return context


@pytest.fixture
def java_without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a Java that has no keytool beside it."""
    find_java.cache_clear()
    folder = tmp_path / "java" / "bin"
    folder.mkdir(parents=True)
    _script(folder / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(folder.parent))
    yield folder
    find_java.cache_clear()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_broker_is_trusted_through_its_authority(made: Certificates, host: str) -> None:
    client = ssl.create_default_context(cafile=str(made.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    handshake(server_context(made), client, host)


def test_the_broker_is_not_trusted_through_another_authority_or_under_another_name(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(server_context(made), ssl.create_default_context(cafile=str(made.wrong_ca)), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server_context(made), ssl.create_default_context(cafile=str(made.ca)), "elsewhere")


def test_the_client_is_known_and_the_stranger_is_not(made: Certificates) -> None:
    client = ssl.create_default_context(cafile=str(made.ca))
    client.load_cert_chain(made.client, made.client_encrypted_key, made.key_password)
    handshake(server_context(made, ask=True), client, "localhost")
    stranger = ssl.create_default_context(cafile=str(made.ca))
    stranger.load_cert_chain(made.stranger, made.stranger_key)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(made, ask=True), stranger, "localhost")


def test_stores_hold_what_they_say(made: Certificates) -> None:
    password = made.password.encode()
    key, certificate, _ = pkcs12.load_key_and_certificates(made.client_p12.read_bytes(), password)
    assert key is not None
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=client"
    trusted = pkcs12.load_pkcs12(made.truststore_p12.read_bytes(), password)
    assert [each.certificate.subject.rfc4514_string() for each in trusted.additional_certs] == ["CN=Test CA"]
    for store in (made.client_jks, made.truststore_jks):
        assert store.read_bytes()[:4] == b"\xfe\xed\xfe\xed"  # the magic number of a JKS


def test_keys_are_private_and_passwords_are_not_shown(made: Certificates) -> None:
    assert made.folder.stat().st_mode & 0o077 == 0
    with pytest.raises(TypeError):
        load_pem_private_key(made.client_encrypted_key.read_bytes(), None)
    assert "secret" not in repr(made)


def test_the_broker_may_be_certified_for_other_hosts(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, ["broker.example"])
    handshake(server_context(made), ssl.create_default_context(cafile=str(made.ca)), "broker.example")


def test_a_keytool_that_fails_is_named_with_the_store_and_its_words(tmp_path: Path, java_without_tools: Path) -> None:
    _script(
        java_without_tools / "keytool", 'case "$*" in *importkeystore*) echo "keytool error: no luck"; exit 3;; esac'
    )
    with pytest.raises(ToolError) as failure:
        make_certificates(tmp_path / "made")
    told = str(failure.value)
    assert str(java_without_tools / "keytool") in told
    assert f"could not write {tmp_path / 'made' / 'client.jks'} (exit code 3): keytool error: no luck." in told
    assert "JAVA_HOME" in told
    assert "store-secret" not in told
    assert not isinstance(failure.value, BrokerError)


def test_a_keytool_that_is_missing_is_named(tmp_path: Path, java_without_tools: Path) -> None:
    with pytest.raises(ToolError, match=f"{java_without_tools}/keytool cannot be run: No such file"):
        make_certificates(tmp_path / "made")


def test_a_keytool_that_hangs_is_ended(
    tmp_path: Path, java_without_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(java_without_tools / "keytool", "exec sleep 100")
    monkeypatch.setattr("pyspark_kafka_direct.broker._certificates._KEYTOOL_DEADLINE", 0.2)
    with pytest.raises(ToolError, match=r"keytool took longer than 0\.2 s"):
        make_certificates(tmp_path / "made")


def _script(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
