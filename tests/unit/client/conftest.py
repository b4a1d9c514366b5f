"""Servers that tests of connections start."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from tests.unit.client.certified_keys import BROKER, CertifiedKey
from tests.unit.client.fake_servers import FakeServer, ServerConnection

from pyspark_kafka_direct.client.security.keystore import private_file

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module", autouse=True)
def _one_ca_of_the_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace the CAs of the machine with one: OpenSSL takes 20 ms to read the usual 150, for each context."""
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    file.write_text(CertifiedKey("a CA that signs nothing").pem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Start a server on a free port."""
    with contextlib.ExitStack() as stack:

        def start(handler: Callable[[socket.socket], None]) -> int:
            def handle_and_close(server_side: ServerConnection) -> None:
                with server_side.socket as peer:
                    handler(peer)

            return stack.enter_context(FakeServer(handle_and_close)).port

        yield start


@pytest.fixture
def serve_tls(serve: Callable[[Callable[[socket.socket], None]], int]) -> Callable[..., int]:
    """Start a TLS server, which returns the client's common name; ``clients`` is the CA of accepted clients."""

    def start(
        key: CertifiedKey = BROKER,
        *,
        chain: tuple[CertifiedKey, ...] = (),
        clients: CertifiedKey | None = None,
        maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = minimum, maximum
        pem = key.pem + "".join(other.pem for other in chain) + key.key_pem()
        with private_file(pem.encode()) as path:
            context.load_cert_chain(path)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem)

        def handler(peer: socket.socket) -> None:
            with context.wrap_socket(peer, server_side=True) as secured:
                if secured.recv(1):
                    certificate = secured.getpeercert(binary_form=True)
                    name = x509.load_der_x509_certificate(certificate).subject if certificate else None
                    secured.sendall(b"nobody" if name is None else str(name.rdns[0].rfc4514_string()).encode())

        return serve(handler)

    return start
