"""TLS with a real server: truststores, client certificates, and error messages."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)
from tests.unit.client.certified_keys import (
    BROKER,
    CA,
    CLIENT,
    DAY,
    NOW,
    OTHER_CA,
    CertifiedKey,
    client_context,
)
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.tls_clients import (
    SECONDS,
    client_name_seen_by_server,
    connect,
    settings_for,
    tls_error_message,
)

from pyspark_kafka_direct.client.security.keystore import private_file
from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.client.security.tls_handshake import explain_tls_failure
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    OptionError,
    TlsError,
)
from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable
    from pathlib import Path


def trust_store(password: str, *keys: CertifiedKey) -> bytes:
    certificates = [pkcs12.PKCS12Certificate(key.certificate, None) for key in keys]
    return pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password.encode()))


@pytest.fixture
def _strict_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every context is strict when it is created, as the default context is since Python 3.13."""
    create = ssl.SSLContext.__new__

    def create_strict(*args: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = create(*args)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl.SSLContext, "__new__", create_strict)


# Truststores


def test_truststores_as_text_or_file(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    port = serve_tls()
    (tmp_path / "ca.pem").write_text(f"text\n{OTHER_CA.pem}{CA.pem}")
    (tmp_path / "ca.der").write_bytes(CA.certificate.public_bytes(Encoding.DER))
    (tmp_path / "ca.p12").write_bytes(trust_store("pw", OTHER_CA, CA))
    one_line = CA.pem.replace("\n", " ")
    assert client_name_seen_by_server(settings_for(port, ssl_truststore_certificates=CA.pem)) == "nobody"
    assert client_name_seen_by_server(settings_for(port, ssl_truststore_certificates=one_line)) == "nobody"
    assert client_name_seen_by_server(settings_for(port, ssl_truststore_location=str(tmp_path / "ca.pem"))) == "nobody"
    assert client_name_seen_by_server(settings_for(port, ssl_ca_location=str(tmp_path / "ca.der"))) == "nobody"
    p12 = settings_for(port, ssl_truststore_location=str(tmp_path / "ca.p12"), ssl_truststore_password="pw")
    assert client_name_seen_by_server(p12) == "nobody"


def test_default_truststore_is_the_systems(serve_tls: Callable[..., int]) -> None:
    message = tls_error_message(settings_for(serve_tls()))
    assert "this system trusts" in message
    assert "set kafka.ssl.truststore.certificates or kafka.ssl.truststore.location to the cluster's CA" in message


def test_the_wrong_ca(serve_tls: Callable[..., int]) -> None:
    message = tls_error_message(settings_for(serve_tls(), ssl_truststore_certificates=OTHER_CA.pem))
    assert "not signed by a CA in kafka.ssl.truststore.certificates" in message


def test_any_certificate_in_the_truststore_is_trusted(serve_tls: Callable[..., int]) -> None:
    intermediate = CertifiedKey("between", CA)
    leaf = CertifiedKey("broker", intermediate, hosts="localhost")
    port = serve_tls(leaf, chain=(intermediate,))
    for trusted in (CA, intermediate, leaf):
        assert client_name_seen_by_server(settings_for(port, ssl_truststore_certificates=trusted.pem)) == "nobody"


@pytest.mark.usefixtures("_strict_contexts")
@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_certificates_without_key_identifiers_are_trusted(
    serve_tls: Callable[..., int], tmp_path: Path, kind: str
) -> None:
    port = serve_tls()
    with (
        socket.create_connection(("127.0.0.1", port)) as sock,
        pytest.raises(ssl.SSLCertVerificationError, match=r"Missing .* Key Identifier"),
    ):
        client_context().wrap_socket(sock, server_hostname="localhost")
    path = tmp_path / f"ca.{kind}"
    path.write_bytes(trust_store("pw", CA) if kind == "p12" else CA.pem.encode())
    password = {"ssl_truststore_password": "pw"} if kind == "p12" else {}
    settings = settings_for(port, ssl_truststore_location=str(path), **password)
    assert client_name_seen_by_server(settings) == "nobody"
    assert "is not valid for 'elsewhere'" in tls_error_message(settings, "elsewhere")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_names_and_addresses(serve_tls: Callable[..., int], host: str) -> None:
    assert client_name_seen_by_server(settings_for(serve_tls(), ssl_truststore_certificates=CA.pem), host) == "nobody"


@pytest.mark.parametrize("host", ["kafka.example.com", "127.0.0.2"])
def test_another_host_name(serve_tls: Callable[..., int], host: str) -> None:
    port = serve_tls()
    message = tls_error_message(settings_for(port, ssl_truststore_certificates=CA.pem), host)
    assert f"is not valid for '{host}'" in message
    assert "kafka.ssl.endpoint.identification.algorithm" in message
    unchecked = settings_for(port, ssl_truststore_certificates=CA.pem, ssl_endpoint_identification_algorithm="")
    assert client_name_seen_by_server(unchecked, host) == "nobody"
    wrong = settings_for(port, ssl_truststore_certificates=OTHER_CA.pem, ssl_endpoint_identification_algorithm="")
    assert "not signed" in tls_error_message(wrong, host)


@pytest.mark.parametrize(("start", "text"), [(NOW - 3 * DAY, "has expired"), (NOW + DAY, "is not valid yet")])
def test_expired_and_future_certificates(serve_tls: Callable[..., int], start: datetime.datetime, text: str) -> None:
    port = serve_tls(CertifiedKey("broker", CA, hosts="localhost", start=start, days=1))
    assert text in tls_error_message(settings_for(port, ssl_truststore_certificates=CA.pem))


# Client certificates


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates(serve_tls: Callable[..., int], tmp_path: Path, version: ssl.TLSVersion) -> None:
    port = serve_tls(clients=CA, minimum=version, maximum=version)
    (tmp_path / "client.pem").write_text(CLIENT.pem)
    (tmp_path / "client.key").write_text(CLIENT.key_pem("pw", PrivateFormat.TraditionalOpenSSL))
    (tmp_path / "both.pem").write_text(CLIENT.key_pem("pw") + CLIENT.pem)
    (tmp_path / "client.p12").write_bytes(CLIENT.pkcs12("pw", CA))
    variants = [
        {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem()},
        {
            "ssl_keystore_certificate_chain": CLIENT.pem.replace("\n", "\\n"),
            "ssl_keystore_key": CLIENT.key_pem("pw").replace("\n", " "),
            "ssl_key_password": "pw",
        },
        {
            "ssl_certificate_location": str(tmp_path / "client.pem"),
            "ssl_key_location": str(tmp_path / "client.key"),
            "ssl_key_password": "pw",
        },
        {"ssl_keystore_location": str(tmp_path / "both.pem"), "ssl_key_password": "pw", "ssl_keystore_type": "PEM"},
        {"ssl_keystore_location": str(tmp_path / "client.p12"), "ssl_keystore_password": "pw"},
    ]
    for variant in variants:
        assert (
            client_name_seen_by_server(settings_for(port, ssl_truststore_certificates=CA.pem, **variant)) == "CN=client"
        )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_missing_or_unknown_client_certificate(serve_tls: Callable[..., int], version: ssl.TLSVersion) -> None:
    port = serve_tls(clients=CA, minimum=version, maximum=version)
    message = tls_error_message(settings_for(port, ssl_truststore_certificates=CA.pem))
    assert "requires a client certificate; set kafka.ssl.keystore.location" in message
    stranger = CertifiedKey("stranger", OTHER_CA, hosts="stranger")
    client_certificate = {"ssl_keystore_certificate_chain": stranger.pem, "ssl_keystore_key": stranger.key_pem()}
    message = tls_error_message(settings_for(port, ssl_truststore_certificates=CA.pem, **client_certificate))
    assert "rejected this client's certificate" in message


def test_unordered_chain_in_keystore_is_sorted(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    intermediate = CertifiedKey("between", CA)
    client = CertifiedKey("client", intermediate, hosts="client")
    (tmp_path / "client.p12").write_bytes(client.pkcs12("pw", OTHER_CA, CA, intermediate))
    store = {"ssl_keystore_location": str(tmp_path / "client.p12"), "ssl_keystore_password": "pw"}
    assert (
        client_name_seen_by_server(settings_for(serve_tls(clients=CA), ssl_truststore_certificates=CA.pem, **store))
        == "CN=client"
    )


# Unreadable files


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"ssl_truststore_location": "/no/such/ca.pem"},
            r"'/no/such/ca.pem' cannot be read on .*No such.* every executor",
        ),
        ({"ssl_truststore_location": "{folder}"}, "cannot be read"),
        ({"ssl_truststore_location": "a\0b"}, r"cannot be read.*not a path"),
        ({"ssl_truststore_location": CA.pem}, r"requires a path.*kafka\.ssl\.truststore\.certificates"),
        ({"ssl_truststore_location": "/dev/zero"}, "is larger than 16 MiB"),
        ({"ssl_truststore_location": "{folder}/noise"}, "neither PEM, PKCS12 nor JKS"),
        ({"ssl_truststore_location": "{folder}/empty"}, "neither PEM, PKCS12 nor JKS"),
        ({"ssl_truststore_location": "{folder}/x.jks"}, r"the JKS store is damaged \(it ends too early\)"),
        ({"ssl_keystore_location": "{folder}/x.jks"}, "the JKS store is damaged"),
        ({"ssl_truststore_location": "{folder}/key.pem"}, "has no PEM certificate"),
        ({"ssl_truststore_certificates": "/etc/ca.pem"}, "requires PEM text, not a path"),
        (
            {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
            r"ssl\.truststore\.certificates has an unreadable certificate",
        ),
        ({"ssl_truststore_location": "{folder}/ca.p12"}, r"kafka\.ssl\.truststore\.password is not set"),
        (
            {"ssl_truststore_location": "{folder}/ca.p12", "ssl_truststore_password": "hunter2"},
            r"kafka\.ssl\.truststore\.password is wrong",
        ),
        (
            {"ssl_keystore_location": "{folder}/ca.p12", "ssl_keystore_password": "pw"},
            "has no private key with its certificate",
        ),
        (
            {"ssl_keystore_location": "{folder}/key.pem"},
            r"ssl\.keystore\.location has no PEM certificate",
        ),
        ({"ssl_certificate_location": "{folder}/ca.pem"}, r"ssl\.certificate\.location has no PEM private key"),
        (
            {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem("pw")},
            r"the private key is encrypted; set kafka\.ssl\.key\.password",
        ),
        (
            {
                "ssl_keystore_certificate_chain": CLIENT.pem,
                "ssl_keystore_key": CLIENT.key_pem("pw"),
                "ssl_key_password": "hunter2",
            },
            r"the private key cannot be decrypted; check kafka\.ssl\.key\.password",
        ),
        (
            {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": BROKER.key_pem()},
            "does not belong to the certificate",
        ),
        (
            {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem() + BROKER.key_pem()},
            "more than one private key",
        ),
        ({"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": "/k.pem"}, "requires PEM text, not a path"),
    ],
)
def test_unreadable_files_name_the_option(settings: dict[str, str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    (tmp_path / "empty").touch()
    (tmp_path / "x.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\x02")
    (tmp_path / "key.pem").write_text(CLIENT.key_pem())
    (tmp_path / "ca.pem").write_text(CA.pem)
    (tmp_path / "ca.p12").write_bytes(trust_store("pw", CA))
    with_folder = {name: text.replace("{folder}", str(tmp_path)) for name, text in settings.items()}
    tls = settings_for(1, **with_folder).security.tls
    assert tls is not None
    with pytest.raises(OptionError, match=expected) as caught:
        tls_context(tls, FakeTimeSystem(now=1e10))  # long after the files were written
    assert "hunter2" not in str(caught.value)
    assert caught.value.message.startswith("option kafka.ssl.")


@pytest.mark.parametrize("prefix", ["kafka.", "schema.registry.", "kafka.sasl.oauthbearer."])
@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"truststore_certificates": "x"}, "ssl.truststore.certificates"),
        ({"truststore_certificates": CA.pem.replace("M", "*")}, "ssl.truststore.certificates"),
        (
            {"truststore_certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
            "ssl.truststore.certificates",
        ),
        ({"truststore_location": "/no/such"}, "ssl.truststore.location"),
        ({"keystore_location": "/no/such"}, "ssl.keystore.location"),
        ({"certificate_location": "/no/such"}, "ssl.certificate.location"),
        ({"certificate_chain": Secret(CLIENT.pem), "key_location": "/no/such"}, "ssl.key.location"),
        ({"certificate_chain": Secret(CLIENT.pem), "key": Secret("x")}, "ssl.keystore.key"),
        ({"certificate_chain": Secret("x"), "key": Secret(CLIENT.key_pem())}, "ssl.keystore.certificate.chain"),
        ({"cipher_suites": ("NO-SUCH-SUITE",)}, "ssl.cipher.suites"),
    ],
)
def test_an_error_names_the_option_of_the_server(prefix: str, fields: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        tls_context(TlsSettings(prefix=prefix, **fields), FakeTimeSystem(now=1e10))
    assert caught.value.message.startswith(f"option {prefix}{option}")
    assert prefix == "kafka." or "kafka.ssl." not in caught.value.message


def test_the_socket_is_closed_if_a_file_is_unreadable(serve_tls: Callable[..., int]) -> None:
    with pytest.raises(OptionError):
        connect(settings_for(serve_tls(), ssl_truststore_location="/no/such/ca.pem"))


def test_cipher_suites_that_this_openssl_lacks() -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.cipher\.suites: this OpenSSL supports none of NO-SUCH-SUITE"):
        tls_context(TlsSettings(cipher_suites=("NO-SUCH-SUITE",)))


# Listeners without TLS or with another version


def test_no_common_tls_version(serve_tls: Callable[..., int]) -> None:
    port = serve_tls(maximum=ssl.TLSVersion.TLSv1_2)
    trust = {"ssl_truststore_certificates": CA.pem}
    assert "no TLS version or cipher suite in common" in tls_error_message(
        settings_for(port, ssl_enabled_protocols="TLSv1.3", **trust)
    )
    assert client_name_seen_by_server(settings_for(port, **trust)) == "nobody"


def test_listener_that_closes_the_connection(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    def close_connection(peer: socket.socket) -> None:
        peer.recv(4)  # as Kafka's PLAINTEXT listener, which reads an impossible size

    # Not final: a broker that restarts does the same, so a retry may succeed.
    with pytest.raises(BrokerUnreachableError, match=r"set kafka\.security\.protocol to PLAINTEXT"):
        connect(settings_for(serve(close_connection), ssl_truststore_certificates=CA.pem))


def test_listener_with_another_protocol(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    def respond(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.recv(1 << 16)

    message = tls_error_message(settings_for(serve(respond), ssl_truststore_certificates=CA.pem))
    assert "does not use TLS" in message


def test_unresponsive_listener_times_out(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    done = threading.Event()

    def wait(_: socket.socket) -> None:
        done.wait(SECONDS)

    settings = settings_for(serve(wait), ssl_truststore_certificates=CA.pem)
    try:
        with pytest.raises(BrokerTimeoutError, match="TLS handshake timed out"):
            connect(settings, seconds=0.2)
        with pytest.raises(BrokerTimeoutError):
            connect(settings, seconds=0.0)
    finally:
        done.set()


# Temporary files


def test_private_file_is_owner_only_and_removed() -> None:
    with private_file(b"secret") as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path, "rb") as file:
            assert file.read() == b"secret"
    assert not os.path.exists(path)


def test_private_file_without_memfd_is_temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_file(b"secret") as path:
        assert path.startswith(str(tmp_path))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path, "rb") as file:
            assert file.read() == b"secret"
    assert list(tmp_path.iterdir()) == []


def test_less_than_a_second_is_enough(serve_tls: Callable[..., int]) -> None:
    settings = settings_for(serve_tls(), ssl_truststore_certificates=CA.pem)
    connect(settings, seconds=0.99).close()


REASONS = {
    (9,): "is not valid yet",
    (10,): "has expired",
    (2, 18, 19, 20, 21): "not signed by a CA this system trusts (detail)",
    (26,): "is not a server certificate",
    (62, 64): "is not valid for 'broker' (detail)",
    (66, 67, 68): "is too weak (detail); create one with",
}
"""The messages about the broker's certificate, by OpenSSL's codes."""


def test_the_reasons_to_reject_a_certificate() -> None:
    for code in range(100):
        error = ssl.SSLCertVerificationError()
        error.verify_code, error.verify_message = code, "detail"
        found = explain_tls_failure(error, settings_for(1), "broker", "broker:1")
        expected = next((text for codes, text in REASONS.items() if code in codes), "cannot be verified: detail.")
        assert type(found) is TlsError
        assert expected in found.message, code


NEEDS_CERTIFICATE, REJECTS_CERTIFICATE = "probably requires a client certificate", "rejected this client's certificate"
NO_TLS, NO_COMMON_VERSION = "The listener does not use TLS (", "no TLS version or cipher suite in common"
OTHER = "TLS failed: "


@pytest.mark.parametrize(
    ("reason", "without_certificate", "with_certificate"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", NEEDS_CERTIFICATE, OTHER),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", NEEDS_CERTIFICATE, NO_COMMON_VERSION),
        ("SSLV3_ALERT_BAD_CERTIFICATE", NEEDS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("TLSV1_ALERT_UNKNOWN_CA", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("TLSV1_ALERT_ACCESS_DENIED", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("TLSV1_ALERT_DECRYPT_ERROR", REJECTS_CERTIFICATE, REJECTS_CERTIFICATE),
        ("TLSV1_ALERT_PROTOCOL_VERSION", NO_COMMON_VERSION, NO_COMMON_VERSION),
        ("TLSV1_ALERT_INSUFFICIENT_SECURITY", NO_COMMON_VERSION, NO_COMMON_VERSION),
        ("UNSUPPORTED_PROTOCOL", NO_COMMON_VERSION, NO_COMMON_VERSION),
        ("NO_CIPHERS_AVAILABLE", NO_COMMON_VERSION, NO_COMMON_VERSION),
        ("WRONG_VERSION_NUMBER", NO_TLS, NO_TLS),
        ("HTTP_REQUEST", NO_TLS, NO_TLS),
        ("UNKNOWN_PROTOCOL", NO_TLS, NO_TLS),
        ("RECORD_LAYER_FAILURE", NO_TLS, NO_TLS),
        ("PACKET_LENGTH_TOO_LONG", NO_TLS, NO_TLS),
        ("TLSV1_ALERT_INTERNAL_ERROR", OTHER, OTHER),
        ("TLSV1_ALERT_RECORD_OVERFLOW", OTHER, OTHER),
        ("UNEXPECTED_EOF_WHILE_READING", "The broker closed the connection", "The broker closed the connection"),
        ("Closed before TLS handshake with data in recv buffer.", "The broker closed", "The broker closed"),
        ("", "it requires a client certificate", "it rejects this client's certificate"),
    ],
)
def test_what_the_failures_of_a_handshake_mean(reason: str, without_certificate: str, with_certificate: str) -> None:
    error = ssl.SSLError(1, "a failure")
    error.reason = reason
    certificates = (
        {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem()},
        {"ssl_certificate_location": "/client.pem", "ssl_key_location": "/client.key"},
        {"ssl_keystore_location": "/client.p12"},
    )
    with_certificates = [(settings_for(1, **each), with_certificate) for each in certificates]
    for settings, expected in ((settings_for(1), without_certificate), *with_certificates):
        found = explain_tls_failure(error, settings, "broker", "broker:1")
        assert expected in found.message
        assert isinstance(found, BrokerUnreachableError) is ("closed the connection" in found.message)


@pytest.mark.parametrize("kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionResetError])
def test_a_connection_that_merely_ended_may_be_retried(kind: type[OSError]) -> None:
    error = kind(8, "a failure")
    if isinstance(error, ssl.SSLError):
        error.reason = "ANY_REASON"
    assert isinstance(explain_tls_failure(error, settings_for(1), "broker", "broker:1"), BrokerUnreachableError)
