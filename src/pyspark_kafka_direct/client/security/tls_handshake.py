"""TLS with a broker: the handshake within a deadline, and the advice in its errors."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError, TlsError
from pyspark_kafka_direct.options.security_settings import TlsSettings

if TYPE_CHECKING:
    import socket

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.settings import ConnectionSettings

# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNTRUSTED: Final = (2, 18, 19, 20, 21)  # no issuer, self-signed leaf, self-signed in chain, no local issuer, leaf only
_INVALID_PURPOSE: Final = 26
_HOSTNAME_MISMATCH: Final = (62, 64)  # host name, address
_TOO_WEAK: Final = (66, 67, 68)  # key or digest too weak for OpenSSL's security level

# Alerts of the broker (RFC 8446, 6.2), with OpenSSL's names.
_CERTIFICATE_REQUIRED_ALERTS: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")
_CERTIFICATE_REJECTED_ALERTS: Final = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "DECRYPT_ERROR",
)
_NO_COMMON_VERSION_ALERTS: Final = (
    "PROTOCOL_VERSION",
    "INSUFFICIENT_SECURITY",
    "UNSUPPORTED_PROTOCOL",
    "NO_CIPHERS_AVAILABLE",
)
_NOT_TLS_REASONS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH",
)

# The second one is Python's own, for a connection that ended before the handshake.
_CONNECTION_CLOSED_REASONS: Final = ("UNEXPECTED_EOF", "Closed before TLS handshake")


def wrap_socket(sock: socket.socket, settings: ConnectionSettings, host: str, deadline: Deadline) -> ssl.SSLSocket:
    """Perform the TLS handshake over a connected socket, which is closed on errors."""
    broker = _peer_address(sock, host)
    socket_to_close: socket.socket = sock  # later the TLS socket, which then owns the descriptor
    try:
        context = tls_context(settings.security.tls or TlsSettings(), deadline.system)
        seconds = deadline.remaining()
        if seconds <= 0:
            raise TimeoutError  # a timeout of 0 would mean a non-blocking socket
        sock.settimeout(seconds)
        tls_socket = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        socket_to_close = tls_socket
        tls_socket.do_handshake()
    except TimeoutError:
        socket_to_close.close()
        raise BrokerTimeoutError(
            "The TLS handshake timed out: the listener does not use TLS (check whether it is a PLAINTEXT listener), or "
            "the broker is overloaded; the limit is kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        ) from None
    except OSError as error:  # ssl.SSLError is one
        socket_to_close.close()
        raise explain_tls_failure(error, settings, host, broker) from error
    except BaseException:
        socket_to_close.close()
        raise
    return tls_socket


def explain_tls_failure(error: OSError, settings: ConnectionSettings, host: str, broker: str) -> BrokerError:
    """Convert a failed handshake, or a failure of the first read after it, to an error with advice."""
    # With TLS 1.3 the client's handshake ends before the broker has checked the client's certificate, so a rejection
    # arrives with the first read. A rejected certificate, of either side, is final (TlsError). A connection that merely
    # ended is not: brokers that restart and load balancers without a healthy target do that, and a retry may succeed.
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(_certificate_message(error, settings, host), broker=broker)
    if isinstance(error, ssl.SSLError) and not is_connection_closed(error):
        return TlsError(_alert_message(error.reason, settings), broker=broker)
    return BrokerUnreachableError(_closed_message(settings), broker=broker)


def is_connection_closed(error: ssl.SSLError) -> bool:
    """Return whether the connection merely ended, with or without TLS's close notification."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)) or not error.reason:
        return True
    return error.reason.startswith(_CONNECTION_CLOSED_REASONS)


def _peer_address(sock: socket.socket, host: str) -> str:
    try:
        port = sock.getpeername()[1]
    except OSError:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _certificate_message(error: ssl.SSLCertVerificationError, settings: ConnectionSettings, host: str) -> str:
    code = error.verify_code
    if code in _HOSTNAME_MISMATCH:
        return (
            f"The broker's certificate is not valid for {host!r} ({_without_host(error.verify_message)}); use the name "
            "in the certificate in kafka.bootstrap.servers and in the broker's advertised.listeners, or, if "
            "unavoidable, disable the check with an empty kafka.ssl.endpoint.identification.algorithm."
        )
    if code in _UNTRUSTED:
        tls = settings.security.tls
        if tls is None or (tls.truststore_location is None and tls.truststore_certificates is None):
            return (
                f"The broker's certificate is not signed by a CA this system trusts ({error.verify_message}); set "
                "kafka.ssl.truststore.certificates or kafka.ssl.truststore.location to the cluster's CA."
            )
        setting = "certificates" if tls.truststore_certificates is not None else "location"
        return (
            f"The broker's certificate is not signed by a CA in kafka.ssl.truststore.{setting} "
            f"({error.verify_message}); add the cluster's CA there."
        )
    if code in (_EXPIRED, _NOT_YET_VALID):
        problem = "has expired" if code == _EXPIRED else "is not valid yet"
        return (
            f"The broker's certificate, or one of its issuers', {problem}; renew it on the broker, and check this "
            "machine's clock."
        )
    if code == _INVALID_PURPOSE:
        return "The broker's certificate is not a server certificate (extended key usage); create one for a server."
    if code in _TOO_WEAK:
        return f"The broker's certificate is too weak ({error.verify_message}); create one with SHA-256 and RSA 2048."
    return f"The broker's certificate cannot be verified: {error.verify_message}."


def _alert_message(reason: str, settings: ConnectionSettings) -> str:
    if not _has_client_certificate(settings) and reason.endswith(_CERTIFICATE_REQUIRED_ALERTS):
        return (
            f"The broker rejected the handshake ({reason}): it probably requires a client certificate; set "
            "kafka.ssl.keystore.location, or kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key."
        )
    if reason.endswith(_CERTIFICATE_REJECTED_ALERTS):
        return (
            f"The broker rejected this client's certificate ({reason}); check that the certificate in "
            "kafka.ssl.keystore.* has not expired, and that its issuer is in the broker's truststore."
        )
    if reason.endswith(_NOT_TLS_REASONS) or reason.startswith(_NOT_TLS_REASONS):
        return (
            f"The listener does not use TLS ({reason}); if this is intended, set kafka.security.protocol to PLAINTEXT "
            "or SASL_PLAINTEXT."
        )
    if reason.endswith((*_NO_COMMON_VERSION_ALERTS, "HANDSHAKE_FAILURE")):
        return (
            f"The broker and this client have no TLS version or cipher suite in common ({reason}); check "
            "kafka.ssl.enabled.protocols and kafka.ssl.cipher.suites."
        )
    return f"TLS failed: {reason}."


def _closed_message(settings: ConnectionSettings) -> str:
    # A PLAINTEXT listener reads the first bytes of TLS as the size of a request and closes the connection. So does a
    # broker that rejects the client's certificate, or requires one, if the reset arrives before its alert was read.
    problem = "rejects this client's" if _has_client_certificate(settings) else "requires a client"
    return (
        "The broker closed the connection during the TLS handshake. Either the listener does not use TLS (then set "
        f"kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT), or it {problem} certificate (kafka.ssl.keystore.*)."
    )


def _has_client_certificate(settings: ConnectionSettings) -> bool:
    tls = settings.security.tls
    return tls is not None and bool(tls.keystore_location or tls.certificate_chain or tls.certificate_location)


def _without_host(message: str) -> str:
    # "Hostname mismatch, certificate is not valid for 'x'." repeats the name.
    return message.split(",")[0].rstrip(".")
