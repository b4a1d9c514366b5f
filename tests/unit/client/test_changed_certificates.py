"""Files of certificates and keys that change while a process has connections."""

from __future__ import annotations

import errno
import logging
import os
import ssl
import urllib.request
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from tests.jks_files import jks, key, trusted
from tests.unit.client.certified_keys import BROKER, CA, CLIENT, OTHER_CA, CertifiedKey
from tests.unit.client.fake_servers import FakeServer, ServerConnection
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.tls_clients import client_name_seen_by_server, settings_for, tls_error_message

from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.http_opener import request_opener
from pyspark_kafka_direct.client.security import tls_contexts
from pyspark_kafka_direct.client.security.keystore import certificate_files, load_client_certificate, private_file
from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.options.settings import ConnectionSettings

RENEWED = CertifiedKey("renewed", CA, hosts="client")


def replace(path: Path, content: str | bytes) -> None:
    """Replace a file that is complete: it was written before."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    written_before = path.stat().st_mtime - 60
    os.utime(path, (written_before, written_before + len(content) / 1e6))


class Files:
    """A client's certificate and key, as two files, and what they are used for."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.ca = folder / "client.pem", folder / "client.key", folder / "ca.pem"
        replace(self.certificate, CLIENT.pem)
        replace(self.key, CLIENT.key_pem())
        replace(self.ca, CA.pem)

    def settings(self, port: int) -> ConnectionSettings:
        return settings_for(
            port,
            ssl_certificate_location=str(self.certificate),
            ssl_key_location=str(self.key),
            ssl_truststore_location=str(self.ca),
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "pyspark_kafka_direct")
    return lambda: [record.getMessage() for record in caplog.records]


# Contexts


def test_new_connections_use_changed_files(serve_tls: Callable[..., int], files: Files) -> None:
    settings = files.settings(serve_tls(clients=CA))
    assert client_name_seen_by_server(settings) == "CN=client"
    tls = settings.security.tls
    assert tls is not None
    assert tls_context(tls) is tls_context(tls)
    replace(files.certificate, RENEWED.pem)
    replace(files.key, RENEWED.key_pem())
    assert client_name_seen_by_server(settings) == "CN=renewed"
    replace(files.ca, OTHER_CA.pem)
    assert "not signed by a CA" in tls_error_message(settings)


@pytest.mark.parametrize("changed", ["ca.pem", "client.pem", "client.key", "client.p12"])
def test_each_file_of_the_settings_is_watched(files: Files, tmp_path: Path, changed: str) -> None:
    store = tmp_path / "client.p12"
    replace(store, CLIENT.pkcs12("pw"))
    if changed == store.name:
        named = {"ssl_keystore_location": str(store), "ssl_keystore_password": "pw"}
        tls = settings_for(1, **named).security.tls
    else:
        tls = files.settings(1).security.tls
    assert tls is not None
    before = tls_context(tls)
    assert tls_context(tls) is before
    replace(store, RENEWED.pkcs12("pw"))
    for path in (files.ca, files.certificate, files.key):
        if path.name == changed:
            replace(path, path.read_text() + "\n")
    assert tls_context(tls) is not before


@pytest.mark.parametrize("option", ["ssl_truststore_location", "ssl_keystore_location", "ssl_certificate_location"])
def test_a_setting_that_can_be_no_path(option: str) -> None:
    tls = settings_for(1, **{option: "a\0b"}).security.tls
    assert tls is not None
    with pytest.raises(OptionError, match=r"cannot be read on .* \(not a path\)"):
        tls_context(tls)


@pytest.mark.parametrize("error", [OptionError("option x: it is damaged"), OSError(errno.EMFILE, "no descriptor")])
def test_a_connection_is_used_although_its_files_cannot_be_loaded(
    files: Files, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The number of cached contexts is limited, so that its context may have to be loaded again."""

    def fail(*_: object) -> None:
        raise error

    tls = files.settings(1).security.tls
    assert tls is not None
    connection = SimpleNamespace(context=tls_context(tls))
    tls_contexts._file_context.cache_clear()
    monkeypatch.setattr(tls_contexts, "_new_context", fail)
    assert not tls_contexts.is_outdated(connection, tls, FakeTimeSystem())  # type: ignore[arg-type]


def test_a_certificate_without_its_key_is_not_used(
    serve_tls: Callable[..., int], files: Files, warnings: Callable[[], list[str]]
) -> None:
    settings = files.settings(serve_tls(clients=CA))
    assert client_name_seen_by_server(settings) == "CN=client"
    replace(files.certificate, RENEWED.pem)
    for _ in range(3):
        assert client_name_seen_by_server(settings) == "CN=client"
    (warning,) = warnings()
    assert warning == (
        "TLS files have changed, but cannot be loaded: option kafka.ssl.key.location: the private key does not belong "
        "to the certificate. Connections use the earlier certificates and keys. The files are loaded again when they "
        "change, and every 10 seconds."
    )
    replace(files.key, RENEWED.key_pem())
    assert client_name_seen_by_server(settings) == "CN=renewed"
    assert len(warnings()) == 1


TWO_CAS = CA.pem + OTHER_CA.pem


@pytest.mark.parametrize(
    ("name", "complete", "half", "reason"),
    [
        ("ca.pem", TWO_CAS, TWO_CAS[: len(CA.pem) + 300], "is damaged: a PEM block needs base64 up to its END line"),
        ("ca.pem", TWO_CAS, "", "is neither PEM, PKCS12 nor JKS"),
        ("ca.pem", TWO_CAS, TWO_CAS.replace("-\n", "-\nComment: é\n", 1), "is damaged: a PEM block needs base64"),
        ("ca.pem", TWO_CAS, None, "cannot be read on"),
        ("ca.jks", jks("pw", trusted("ca", CA)), jks("pw", trusted("ca", CA))[:-1], "the JKS store is damaged"),
        ("client.jks", jks("pw", key("x", "pw", CLIENT)), jks("pw", key("x", "pw", CLIENT))[:300], "is damaged"),
        ("client.p12", CLIENT.pkcs12("pw"), CLIENT.pkcs12("pw")[:300], "the store cannot be opened"),
        ("client.pem", CLIENT.pem + CLIENT.key_pem(), CLIENT.pem + CLIENT.key_pem()[:100], "is damaged"),
    ],
)
def test_half_written_files_are_not_used(
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    name: str,
    complete: str | bytes,
    half: str | bytes | None,
    reason: str,
) -> None:
    path = tmp_path / name
    replace(path, complete)
    kind = "truststore" if name.startswith("ca") else "keystore"
    password = {} if name.endswith("pem") else {f"ssl_{kind}_password": "pw"}
    tls = settings_for(1, **{f"ssl_{kind}_location": str(path)}, **password).security.tls
    assert tls is not None
    clock = FakeTimeSystem(now=path.stat().st_mtime + 1000)
    before = tls_context(tls, clock)
    if half is None:
        path.unlink()
        for _ in range(3):
            assert tls_context(tls, clock) is before
            assert warnings() == [], "a missing file may be there a moment later"
            clock.now += 0.4
    else:
        replace(path, half)
    for _ in range(3):
        assert tls_context(tls, clock) is before
    (warning,) = warnings()
    assert reason in warning
    replace(path, complete)
    after = tls_context(tls, clock)
    assert after is not before
    assert len(warnings()) == 1
    if half is None:
        path.unlink()
    else:
        replace(path, half)
    for _ in range(3):
        assert tls_context(tls, clock) is after
        clock.now += 11
    assert len(warnings()) == 2, "each damage has a warning, also the same one again"
    replace(path, b"\xce\xce\xce\xce")
    clock.now += 11
    assert tls_context(tls, clock) is after
    assert len(warnings()) == 3
    assert "JCEKS" in warnings()[-1], "another reason"


def test_a_process_without_file_descriptors(
    files: Files, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    clock = FakeTimeSystem(now=files.ca.stat().st_mtime + 1000)
    pool = ConnectionPool(clock)
    with SecuredServer(respond_as_broker) as broker:
        settings = files.settings(broker.port)

        def acquire() -> Connection:
            return pool.acquire(settings, "localhost", broker.port, Deadline.after(120, system=clock))

        connection = acquire()
        replace(files.certificate, RENEWED.pem)
        replace(files.key, RENEWED.key_pem())
        with monkeypatch.context() as patch:
            attempts: list[float] = []

            def no_file_descriptor(_: bytes) -> object:
                attempts.append(clock.now)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            patch.setattr(f"{tls_contexts.__name__}.private_file", no_file_descriptor)
            for _ in range(12):
                clock.now += 2
                pool.release(connection)
                assert acquire() is connection
        assert len(attempts) == 3, "every ten seconds"
        (warning,) = warnings()
        assert "Too many open files" in warning
        clock.now += 11
        pool.release(connection)
        acquire().close()
        assert broker.clients == ["CN=client", "CN=renewed"]


def test_files_are_loaded_when_they_have_not_changed_for_a_second(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(CA.pem)
    tls = TlsSettings(truststore_location=str(path))
    clock = FakeTimeSystem(now=path.stat().st_mtime)
    first = tls_context(tls, clock)
    path.write_text(CA.pem + OTHER_CA.pem[:100])
    clock.now = path.stat().st_mtime + 0.5
    assert tls_context(tls, clock) is first
    path.write_text(CA.pem + OTHER_CA.pem)
    clock.now = path.stat().st_mtime + 0.9
    assert tls_context(tls, clock) is first
    clock.now = path.stat().st_mtime + 1.1
    second = tls_context(tls, clock)
    assert second is not first
    assert len(second.get_ca_certs()) == 2


def test_a_file_whose_permissions_have_changed_is_loaded_again(files: Files) -> None:
    """It may not have been readable before."""
    tls = files.settings(1).security.tls
    assert tls is not None
    before = tls_context(tls)
    for path in (files.ca, files.certificate, files.key):
        size, modified = path.stat().st_size, path.stat().st_mtime_ns
        path.chmod(0o640)
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, modified)
        after = tls_context(tls)
        assert after is not before
        before = after


def test_a_clock_of_a_file_server_that_is_ahead(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(CA.pem)
    tls = TlsSettings(truststore_location=str(path))
    clock = FakeTimeSystem(now=path.stat().st_mtime - 3600)
    first = tls_context(tls, clock)
    path.write_text(CA.pem + OTHER_CA.pem)
    assert tls_context(tls, clock) is first
    clock.now += 1
    assert len(tls_context(tls, clock).get_ca_certs()) == 2


def test_a_mounted_secret_of_kubernetes(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    """Each file is a link through ``..data``, a link that is renamed to the folder of the next version."""

    def mount(version: str, client: CertifiedKey) -> None:
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        replace(folder / "tls.crt", client.pem)
        replace(folder / "tls.key", client.key_pem())
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    mount("2026_1", CLIENT)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    settings = settings_for(
        serve_tls(clients=CA),
        ssl_certificate_location=str(tmp_path / "tls.crt"),
        ssl_key_location=str(tmp_path / "tls.key"),
        ssl_truststore_certificates=CA.pem,
    )
    assert client_name_seen_by_server(settings) == "CN=client"
    mount("2026_2", RENEWED)
    assert client_name_seen_by_server(settings) == "CN=renewed"


def test_the_first_load_raises(files: Files) -> None:
    replace(files.certificate, RENEWED.pem)
    tls = files.settings(1).security.tls
    assert tls is not None
    with pytest.raises(OptionError, match="does not belong to the certificate"):
        tls_context(tls)
    replace(files.key, RENEWED.key_pem())
    tls_context(tls)


def test_the_first_load_waits_for_files_that_were_just_modified(files: Files) -> None:
    files.certificate.write_text(RENEWED.pem)
    tls = files.settings(1).security.tls
    assert tls is not None

    class Writer(FakeTimeSystem):
        """Writes the key in the third sleep."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 3:
                files.key.write_text(RENEWED.key_pem())

    clock = Writer(now=files.certificate.stat().st_mtime)
    tls_context(tls, clock)
    assert len(clock.slept) == 3


def test_the_first_load_does_not_wait_for_ever(files: Files) -> None:
    files.certificate.write_text(RENEWED.pem)
    tls = files.settings(1).security.tls
    assert tls is not None
    behind = FakeTimeSystem(now=files.certificate.stat().st_mtime - 3600)  # the clock of this machine
    with pytest.raises(OptionError, match="does not belong to the certificate"):
        tls_context(tls, behind)
    assert sum(behind.slept) == pytest.approx(2)
    later = FakeTimeSystem(now=files.certificate.stat().st_mtime + 0.5)
    with pytest.raises(OptionError, match="does not belong to the certificate"):
        tls_context(tls, later)
    assert 0.5 <= sum(later.slept) < 0.7


@pytest.mark.parametrize("is_loaded", [False, True])
def test_files_that_change_while_they_are_loaded(
    files: Files, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]], is_loaded: bool
) -> None:
    """Of a Kubernetes secret, the old certificate and the new key are read."""
    tls = files.settings(1).security.tls
    assert tls is not None
    if is_loaded:
        before = tls_context(tls)
        replace(files.ca, TWO_CAS)
    load = load_client_certificate

    def load_while_they_change(tls: TlsSettings) -> object:
        if files.key.read_text() == RENEWED.key_pem():
            return load(tls)
        replace(files.key, RENEWED.key_pem())
        found = load(tls)
        replace(files.certificate, RENEWED.pem)
        return found

    monkeypatch.setattr(f"{tls_contexts.__name__}.load_client_certificate", load_while_they_change)
    if is_loaded:
        assert tls_context(tls) is before
    assert len(tls_context(tls).get_ca_certs()) == 1 + is_loaded
    assert warnings() == []


# Connections


class SecuredServer(FakeServer):
    """Requires client certificates, and lists their common names."""

    def __init__(self, handler: Callable[[ServerConnection], object]) -> None:
        super().__init__(self._handle)
        self.clients: list[str] = []
        self._respond = handler
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with private_file((BROKER.pem + BROKER.key_pem()).encode()) as path:
            self._context.load_cert_chain(path)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(cadata=CA.pem)

    def _handle(self, server_side: ServerConnection) -> None:
        with self._context.wrap_socket(server_side.socket, server_side=True) as secured:
            certificate = secured.getpeercert(binary_form=True)
            assert certificate is not None
            subject = x509.load_der_x509_certificate(certificate).subject
            self.clients.append(str(subject.rdns[0].rfc4514_string()))
            self._respond(ServerConnection(secured))


def respond_as_broker(connection: ServerConnection) -> None:
    connection.respond_to_api_versions()
    connection.keep_open()


def test_pooled_connections_are_replaced(files: Files) -> None:
    clock = FakeTimeSystem(now=files.ca.stat().st_mtime + 1000)
    pool = ConnectionPool(clock)
    with SecuredServer(respond_as_broker) as broker:
        settings = files.settings(broker.port)

        def acquire() -> Connection:
            return pool.acquire(settings, "localhost", broker.port, Deadline.after(120, system=clock))

        idle, in_use = acquire(), acquire()
        pool.release(idle)
        assert acquire() is idle
        pool.release(idle)
        replace(files.certificate, RENEWED.pem)
        clock.now += 10
        assert acquire() is idle, "the key is not there yet"
        pool.release(idle)
        replace(files.key, RENEWED.key_pem())
        clock.now += 10
        renewed = acquire()
        assert renewed not in (idle, in_use)
        assert idle.closed
        assert not in_use.closed, "its requests do not fail"
        pool.release(in_use)
        assert in_use.closed
        pool.release(renewed)
        assert acquire() is renewed
        assert broker.clients == ["CN=client", "CN=client", "CN=renewed"]
        renewed.close()


def test_a_connection_compares_files_once_a_second(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTimeSystem()
    pool = ConnectionPool(clock)
    with SecuredServer(respond_as_broker) as broker:
        settings = files.settings(broker.port)
        connection = pool.acquire(settings, "localhost", broker.port, Deadline.after(120, system=clock))
        paths: list[str] = []
        read_version = tls_contexts._file_version

        def read_and_count(path: str) -> object:
            paths.append(path)
            return read_version(path)

        monkeypatch.setattr(tls_contexts, "_file_version", read_and_count)
        for _ in range(100):
            clock.now += 0.035
            assert not connection.certificates_changed
            pool.release(connection)
            assert pool.acquire(settings, "localhost", broker.port, Deadline.after(120, system=clock)) is connection
        connection.close()
        assert len(paths) == 3 * len(certificate_files(settings.security.tls or TlsSettings())), "in 3.5 seconds"


def test_requests_to_registries_and_token_endpoints(tmp_path: Path) -> None:
    """Their TLS settings, also as JKS stores, are those of this function."""

    def respond(connection: ServerConnection) -> None:
        connection.socket.recv(10_000)
        connection.socket.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")

    store = tmp_path / "client.jks"
    with SecuredServer(respond) as server:
        url = f"https://localhost:{server.port}/"
        tls = TlsSettings(
            truststore_certificates=CA.pem,
            keystore_location=str(store),
            keystore_password=Secret("pw"),
            prefix="schema.registry.",
        )
        for client in (CLIENT, RENEWED):
            replace(store, jks("pw", key("client", "pw", client)))
            send = request_opener(url, tls, Deadline.after(120))
            with send(urllib.request.Request(url)) as response:
                assert response.read() == b"ok"
    assert server.clients == ["CN=client", "CN=renewed"]
