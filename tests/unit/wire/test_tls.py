"""TLS with a real peer: whom is trusted, who one is, and what a failure says."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import threading
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)
from tests.unit.wire.parties import BROKER, CA, CLIENT, DAY, NOW, OTHER_CA, Party

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError, OptionError, TlsError
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.security._certificates import private_file
from pyspark_kafka_direct.wire.security.tls import explain_tls_failure, tls_context, wrap_socket

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.settings.connection import ConnectionSettings

SECONDS = 20.0


def trust_store(password: str, *parties: Party) -> bytes:
    certificates = [pkcs12.PKCS12Certificate(party.certificate, None) for party in parties]
    return pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password.encode()))


class Server:
    """Accepts connections one after another, shakes hands, answers each byte with the peer's common name."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._serve = serve
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.settimeout(SECONDS)
                self._serve(peer)

    def close(self) -> None:
        # A blocked accept() does not notice a closed descriptor; shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Starts a server on a free port."""
    with contextlib.ExitStack() as stack:

        def start(behave: Callable[[socket.socket], None]) -> int:
            server = Server(behave)
            stack.callback(server.close)
            return server.port

        yield start


@pytest.fixture
def serve_tls(serve: Callable[[Callable[[socket.socket], None]], int]) -> Callable[..., int]:
    """Starts a TLS server; ``clients`` is the CA whose clients may come in."""

    def start(
        party: Party = BROKER,
        *,
        chain: tuple[Party, ...] = (),
        clients: Party | None = None,
        most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = least, most
        pem = party.pem + "".join(other.pem for other in chain) + party.key_pem()
        with private_file(pem.encode()) as path:
            context.load_cert_chain(path)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem)

        def behave(peer: socket.socket) -> None:
            with context.wrap_socket(peer, server_side=True) as secured:
                if secured.recv(1):
                    certificate = secured.getpeercert(binary_form=True)
                    name = x509.load_der_x509_certificate(certificate).subject if certificate else None
                    secured.sendall(b"nobody" if name is None else str(name.rdns[0].rfc4514_string()).encode())

        return serve(behave)

    return start


def settings_for(port: int, **settings: str) -> ConnectionSettings:
    """``ssl_key_password`` stands for ``ssl.key.password``."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return connection_settings(
        {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", **named}
    ).connection


def connect(settings: ConnectionSettings, host: str = "localhost", seconds: float = SECONDS) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", settings.bootstrap_servers[0][1]))
    try:
        return wrap_socket(sock, settings, host, Deadline.after(seconds))
    except BaseException:
        assert sock.fileno() == -1, "a failed handshake must not leave a socket open"
        raise


def greet(settings: ConnectionSettings, host: str = "localhost") -> str:
    """Connect and ask the server who it takes us for."""
    with connect(settings, host) as secured:
        secured.sendall(b"?")
        return secured.recv(100).decode()


def connect_and_read(settings: ConnectionSettings, host: str) -> None:
    """Connect, and read: with TLS 1.3 a broker looks at the client's certificate only then."""
    with connect(settings, host) as secured:
        try:
            secured.recv(1)
        except OSError as error:
            raise explain_tls_failure(error, settings, host, "broker:1") from error


def failure(settings: ConnectionSettings, host: str = "localhost") -> str:
    """What the error of a connection says, be it the handshake's or the first read's."""
    with pytest.raises(TlsError) as caught:
        connect_and_read(settings, host)
    assert caught.value.broker is not None
    return caught.value.message


# Whom to trust


def test_trust_as_text_or_file(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    port = serve_tls()
    (tmp_path / "ca.pem").write_text(f"prose\n{OTHER_CA.pem}{CA.pem}")
    (tmp_path / "ca.der").write_bytes(CA.certificate.public_bytes(Encoding.DER))
    (tmp_path / "ca.p12").write_bytes(trust_store("pw", OTHER_CA, CA))
    one_line = CA.pem.replace("\n", " ")
    assert greet(settings_for(port, ssl_truststore_certificates=CA.pem)) == "nobody"
    assert greet(settings_for(port, ssl_truststore_certificates=one_line)) == "nobody"
    assert greet(settings_for(port, ssl_truststore_location=str(tmp_path / "ca.pem"))) == "nobody"
    assert greet(settings_for(port, ssl_ca_location=str(tmp_path / "ca.der"))) == "nobody"
    p12 = settings_for(port, ssl_truststore_location=str(tmp_path / "ca.p12"), ssl_truststore_password="pw")
    assert greet(p12) == "nobody"


def test_no_truststore_means_the_systems_cas(serve_tls: Callable[..., int]) -> None:
    said = failure(settings_for(serve_tls()))
    assert "this system trusts" in said
    assert "give the cluster's CA in kafka.ssl.truststore.certificates or kafka.ssl.truststore.location" in said


def test_the_wrong_ca(serve_tls: Callable[..., int]) -> None:
    said = failure(settings_for(serve_tls(), ssl_truststore_certificates=OTHER_CA.pem))
    assert "not signed by a CA in kafka.ssl.truststore.certificates" in said


def test_whatever_is_in_the_truststore_is_trusted_as_in_java(serve_tls: Callable[..., int]) -> None:
    between = Party("between", CA)
    below = Party("broker", between, hosts="localhost")
    port = serve_tls(below, chain=(between,))
    for trusted in (CA, between, below):
        assert greet(settings_for(port, ssl_truststore_certificates=trusted.pem)) == "nobody"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_names_and_addresses(serve_tls: Callable[..., int], host: str) -> None:
    assert greet(settings_for(serve_tls(), ssl_truststore_certificates=CA.pem), host) == "nobody"


@pytest.mark.parametrize("host", ["kafka.example.com", "127.0.0.2"])
def test_another_host_name(serve_tls: Callable[..., int], host: str) -> None:
    port = serve_tls()
    said = failure(settings_for(port, ssl_truststore_certificates=CA.pem), host)
    assert f"not made out to '{host}'" in said
    assert "kafka.ssl.endpoint.identification.algorithm" in said
    unchecked = settings_for(port, ssl_truststore_certificates=CA.pem, ssl_endpoint_identification_algorithm="")
    assert greet(unchecked, host) == "nobody"
    wrong = settings_for(port, ssl_truststore_certificates=OTHER_CA.pem, ssl_endpoint_identification_algorithm="")
    assert "not signed" in failure(wrong, host)


@pytest.mark.parametrize(("start", "text"), [(NOW - 3 * DAY, "has expired"), (NOW + DAY, "is not valid yet")])
def test_certificates_out_of_their_time(serve_tls: Callable[..., int], start: datetime.datetime, text: str) -> None:
    port = serve_tls(Party("broker", CA, hosts="localhost", start=start, days=1))
    assert text in failure(settings_for(port, ssl_truststore_certificates=CA.pem))


def test_a_renewed_file_is_read_again(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(OTHER_CA.pem)
    settings = settings_for(serve_tls(), ssl_truststore_location=str(path))
    failure(settings)
    assert tls_context(settings.security.tls) is tls_context(settings.security.tls)  # type: ignore[arg-type]
    path.write_text(OTHER_CA.pem + CA.pem)
    assert greet(settings) == "nobody"


# Who one is


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates(serve_tls: Callable[..., int], tmp_path: Path, version: ssl.TLSVersion) -> None:
    port = serve_tls(clients=CA, least=version, most=version)
    (tmp_path / "client.pem").write_text(CLIENT.pem)
    (tmp_path / "client.key").write_text(CLIENT.key_pem("pw", PrivateFormat.TraditionalOpenSSL))
    (tmp_path / "both.pem").write_text(CLIENT.key_pem("pw") + CLIENT.pem)
    (tmp_path / "client.p12").write_bytes(CLIENT.pkcs12("pw", CA))
    ways = [
        {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem()},
        {
            "ssl_keystore_certificate_chain": CLIENT.pem.replace("\n", "\\n"),
            "ssl_keystore_key": CLIENT.key_pem("pw").replace("\n", " "),
            "ssl_key_password": "pw",
        },
        {"ssl_keystore_certificate_chain": CLIENT.pem + CLIENT.key_pem()},
        {
            "ssl_certificate_location": str(tmp_path / "client.pem"),
            "ssl_key_location": str(tmp_path / "client.key"),
            "ssl_key_password": "pw",
        },
        {"ssl_keystore_location": str(tmp_path / "both.pem"), "ssl_key_password": "pw", "ssl_keystore_type": "PEM"},
        {"ssl_keystore_location": str(tmp_path / "client.p12"), "ssl_keystore_password": "pw"},
    ]
    for way in ways:
        assert greet(settings_for(port, ssl_truststore_certificates=CA.pem, **way)) == "CN=client"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_missing_or_unknown_client_certificate(serve_tls: Callable[..., int], version: ssl.TLSVersion) -> None:
    port = serve_tls(clients=CA, least=version, most=version)
    said = failure(settings_for(port, ssl_truststore_certificates=CA.pem))
    assert "wants a client certificate; give one in kafka.ssl.keystore.location" in said
    stranger = Party("stranger", OTHER_CA, hosts="stranger")
    identity = {"ssl_keystore_certificate_chain": stranger.pem, "ssl_keystore_key": stranger.key_pem()}
    said = failure(settings_for(port, ssl_truststore_certificates=CA.pem, **identity))
    assert "refused this client's certificate" in said


def test_a_store_with_the_whole_chain_in_disorder(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    between = Party("between", CA)
    client = Party("client", between, hosts="client")
    (tmp_path / "client.p12").write_bytes(client.pkcs12("pw", OTHER_CA, CA, between))
    store = {"ssl_keystore_location": str(tmp_path / "client.p12"), "ssl_keystore_password": "pw"}
    assert greet(settings_for(serve_tls(clients=CA), ssl_truststore_certificates=CA.pem, **store)) == "CN=client"


# What cannot be read


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ssl_truststore_location": "/no/such/ca.pem"}, r"'/no/such/ca.pem' cannot be read on .* every executor"),
        ({"ssl_truststore_location": "{folder}"}, "cannot be read"),
        ({"ssl_truststore_location": "a\0b"}, "cannot be read"),
        ({"ssl_truststore_location": CA.pem}, r"is a path.*kafka\.ssl\.truststore\.certificates"),
        ({"ssl_truststore_location": "{folder}/noise"}, "neither PEM nor PKCS12"),
        ({"ssl_truststore_location": "{folder}/empty"}, "neither PEM nor PKCS12"),
        ({"ssl_truststore_location": "{folder}/x.jks"}, r"keytool -importkeystore -srckeystore .*x\.jks .*PKCS12"),
        ({"ssl_keystore_location": "{folder}/x.jks"}, "keytool"),
        ({"ssl_truststore_location": "{folder}/key.pem"}, "holds no PEM certificate"),
        ({"ssl_truststore_certificates": "/etc/ca.pem"}, "PEM text that is wanted, not a path"),
        (
            {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
            r"ssl\.truststore\.certificates holds a certificate that cannot be read",
        ),
        ({"ssl_truststore_location": "{folder}/ca.p12"}, r"kafka\.ssl\.truststore\.password is missing"),
        (
            {"ssl_truststore_location": "{folder}/ca.p12", "ssl_truststore_password": "hunter2"},
            r"kafka\.ssl\.truststore\.password is wrong",
        ),
        (
            {"ssl_keystore_location": "{folder}/ca.p12", "ssl_keystore_password": "pw"},
            "holds no private key with its certificate",
        ),
        (
            {"ssl_keystore_location": "{folder}/key.pem"},
            r"ssl\.keystore\.location holds no PEM certificate",
        ),
        ({"ssl_certificate_location": "{folder}/ca.pem"}, r"ssl\.certificate\.location holds no PEM private key"),
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
            r"the private key cannot be opened; is kafka\.ssl\.key\.password right",
        ),
        (
            {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": BROKER.key_pem()},
            "does not belong to the certificate",
        ),
        (
            {"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": CLIENT.key_pem() + BROKER.key_pem()},
            "more than one private key",
        ),
        ({"ssl_keystore_certificate_chain": CLIENT.pem, "ssl_keystore_key": "/k.pem"}, "wanted, not a path"),
        ({"ssl_cipher_suites": "NO-SUCH-SUITE"}, "OpenSSL here has none of NO-SUCH-SUITE"),
    ],
)
def test_what_cannot_be_read_names_its_option(settings: dict[str, str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    (tmp_path / "empty").touch()
    (tmp_path / "x.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\x02")
    (tmp_path / "key.pem").write_text(CLIENT.key_pem())
    (tmp_path / "ca.pem").write_text(CA.pem)
    (tmp_path / "ca.p12").write_bytes(trust_store("pw", CA))
    placed = {name: text.replace("{folder}", str(tmp_path)) for name, text in settings.items()}
    tls = settings_for(1, **placed).security.tls
    assert tls is not None
    with pytest.raises(OptionError, match=expected) as caught:
        tls_context(tls)
    assert "hunter2" not in str(caught.value)
    assert caught.value.message.startswith("option kafka.ssl.")


# Peers that do not do TLS, or another one


def test_versions_without_a_common_one(serve_tls: Callable[..., int]) -> None:
    port = serve_tls(most=ssl.TLSVersion.TLSv1_2)
    trust = {"ssl_truststore_certificates": CA.pem}
    assert "no TLS version or cipher suite in common" in failure(
        settings_for(port, ssl_enabled_protocols="TLSv1.3", **trust)
    )
    assert greet(settings_for(port, **trust)) == "nobody"


def test_a_listener_that_hangs_up(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    def hang_up(peer: socket.socket) -> None:
        peer.recv(4)  # as Kafka's PLAINTEXT listener: a size that cannot be

    # Not a verdict: a broker that restarts does the same, so the next try may succeed.
    with pytest.raises(BrokerUnreachableError, match=r"set kafka\.security\.protocol to PLAINTEXT"):
        connect(settings_for(serve(hang_up), ssl_truststore_certificates=CA.pem))


def test_a_listener_that_speaks_something_else(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    def answer(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.recv(1 << 16)

    said = failure(settings_for(serve(answer), ssl_truststore_certificates=CA.pem))
    assert "does not speak TLS" in said


def test_a_silent_listener_meets_the_deadline(serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
    done = threading.Event()

    def keep_silent(_: socket.socket) -> None:
        done.wait(SECONDS)

    settings = settings_for(serve(keep_silent), ssl_truststore_certificates=CA.pem)
    try:
        with pytest.raises(BrokerTimeoutError, match="TLS handshake did not end in time"):
            connect(settings, seconds=0.2)
        with pytest.raises(BrokerTimeoutError):
            connect(settings, seconds=0.0)
    finally:
        done.set()


# The file for the moment of loading


def test_a_private_file_is_ours_alone_and_soon_gone() -> None:
    with private_file(b"secret") as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path, "rb") as file:
            assert file.read() == b"secret"
    assert not os.path.exists(path)


def test_without_memfd_it_is_a_temporary_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_file(b"secret") as path:
        assert path.startswith(str(tmp_path))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path, "rb") as file:
            assert file.read() == b"secret"
    assert list(tmp_path.iterdir()) == []
