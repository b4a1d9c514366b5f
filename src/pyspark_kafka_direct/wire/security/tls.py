"""TLS towards a broker: the context, made once per settings, and the handshake, within a deadline."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.settings.security import TlsSettings
from pyspark_kafka_direct.wire.security._certificates import Identity, files_of, load_identity, load_trust, private_file
from pyspark_kafka_direct.wire.security.tls_failures import explain_tls_failure

if TYPE_CHECKING:
    import socket

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.deadline import Deadline

__all__ = ["explain_tls_failure", "tls_context", "wrap_socket"]

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def wrap_socket(sock: socket.socket, settings: ConnectionSettings, host: str, deadline: Deadline) -> ssl.SSLSocket:
    """Shake hands with a broker over a connected socket.

    Args:
        sock: The connected socket; on return the TLS socket owns it, on an error it is closed.
        settings: Whose ``security.tls`` says whom to trust and whom to be.
        host: The broker's name or address as it was written; its certificate must name it.
        deadline: End of the handshake.

    Raises:
        OptionError: A certificate or key can't be read.
        TlsError: A certificate, or what the broker says of us, rules the connection out; says which setting to change.
        BrokerUnreachableError: The connection ended in the handshake.
        BrokerTimeoutError: The deadline passed.
    """
    broker = _peer(sock, host)
    wrapped: socket.socket = sock
    try:
        context = tls_context(settings.security.tls or TlsSettings())
        seconds = deadline.remaining()
        if seconds <= 0:
            raise TimeoutError  # a timeout of 0 would mean "do not wait" and fail in another way
        sock.settimeout(seconds)
        # Python's wrap_socket leaves a socket open that was reset before; this finds out while it is still ours.
        sock.getpeername()
        secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        wrapped = secured
        secured.do_handshake()
    except TimeoutError:
        wrapped.close()
        raise BrokerTimeoutError(
            "The TLS handshake did not end in time: something listens there but does not speak TLS (is it a PLAINTEXT "
            "listener?), or the broker is overloaded; the limit is kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        ) from None
    except OSError as error:  # ssl.SSLError is one
        wrapped.close()
        raise explain_tls_failure(error, settings, host, broker) from error
    except BaseException:
        wrapped.close()
        raise
    return secured


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Give the context for these settings, made when they are first used or when a file of theirs has changed.

    Raises:
        OptionError: A certificate or key can't be read.
    """
    return _context(tls, tuple(_state_of(path) for path in files_of(tls)))


# Making a context costs milliseconds (parsing the system's CAs tens of them), and a cluster has many brokers. The cache
# is no state of its own: it holds what the settings and files say. It is per process; a context survives fork.
@lru_cache(maxsize=16)
def _context(tls: TlsSettings, files: tuple[tuple[int, ...], ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[tls.minimum_version]
    context.maximum_version = _VERSIONS[tls.maximum_version]
    context.check_hostname = tls.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    # As in Java, whatever lies in the truststore is trusted, be it a root, an issuer below one, or a broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _choose_ciphers(context, tls)
    trust = load_trust(tls)
    if trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _add_trust(context, trust, tls)
    identity = load_identity(tls)
    if identity is not None:
        _add_identity(context, identity)
    return context


def _choose_ciphers(context: ssl.SSLContext, tls: TlsSettings) -> None:
    if not tls.cipher_suites:
        return
    try:
        context.set_ciphers(":".join(tls.cipher_suites))
    except ssl.SSLError:
        raise OptionError(
            f"option kafka.ssl.cipher.suites: OpenSSL here has none of {', '.join(tls.cipher_suites)}"
        ) from None


def _add_trust(context: ssl.SSLContext, trust: str, tls: TlsSettings) -> None:
    option = "ssl.truststore.location" if tls.truststore_certificates is None else "ssl.truststore.certificates"
    try:
        context.load_verify_locations(cadata=trust)
    except ssl.SSLError as error:
        raise OptionError(f"option kafka.{option} holds a certificate that cannot be read ({error.reason})") from None


def _add_identity(context: ssl.SSLContext, identity: Identity) -> None:
    def password() -> str:
        # Without this OpenSSL would ask on the terminal.
        if identity.password is None:
            raise OptionError(
                f"option kafka.{identity.key_option}: the private key is encrypted; set "
                f"kafka.{identity.password_option}"
            )
        return identity.password.reveal()

    with private_file(identity.pem) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                what = "the private key does not belong to the certificate"
            elif identity.password is not None:
                what = f"the private key cannot be opened; is kafka.{identity.password_option} right?"
            else:
                what = f"certificate or private key cannot be read ({error.reason or 'not understood'})"
            raise OptionError(f"option kafka.{identity.key_option}: {what}") from None


def _state_of(path: str) -> tuple[int, ...]:
    # Certificates are renewed in place (by cert-manager, Strimzi, ...): new connections should use the new ones.
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _peer(sock: socket.socket, host: str) -> str:
    try:
        port = sock.getpeername()[1]
    except OSError:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
