"""What a failed TLS connection means and which setting to change."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import BrokerError, BrokerUnreachableError, TlsError

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings

# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNTRUSTED: Final = (2, 18, 19, 20, 21)  # no issuer, self-signed leaf, self-signed in chain, no local issuer, one only
_PURPOSE: Final = 26
_OTHER_NAME: Final = (62, 64)  # host name, address
_WEAK: Final = (66, 67, 68)  # key or digest too weak for OpenSSL's security level

# Alerts of the broker (RFC 8446, 6.2) as OpenSSL names them when they arrive.
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")
_DISLIKES_CERTIFICATE: Final = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "DECRYPT_ERROR",
)
_NO_COMMON: Final = ("PROTOCOL_VERSION", "INSUFFICIENT_SECURITY", "UNSUPPORTED_PROTOCOL", "NO_CIPHERS_AVAILABLE")
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH")

# The second one is Python's own, for a connection that ended before TLS began.
_ENDED: Final = ("UNEXPECTED_EOF", "Closed before TLS handshake")


def explain_tls_failure(error: OSError, settings: ConnectionSettings, host: str, broker: str) -> BrokerError:
    """Turn what went wrong in a handshake, or in the first read after it, into an error that says what to change.

    With TLS 1.3 the client's side of the handshake ends before the broker has looked at its certificate, so a refusal
    arrives with the first read: connections pass such an ``ssl.SSLError`` here too.

    A verdict, ours on the broker's certificate or the broker's on this client, is final (``TlsError``). A connection
    that only ended is not: brokers that restart and balancers without a healthy target end connections in the
    handshake, and the next try may succeed.

    Args:
        error: An ``ssl.SSLError``, or the connection's end (``ConnectionResetError`` and the like).
        settings: The connection's settings.
        host: The name the certificate was checked against.
        broker: ``host:port`` for the error.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(_certificate_text(error, settings, host), broker=broker)
    if isinstance(error, ssl.SSLError) and not has_ended(error):
        return TlsError(_alert_text(error.reason, settings), broker=broker)
    return BrokerUnreachableError(_closed_text(settings), broker=broker)


def has_ended(error: ssl.SSLError) -> bool:
    """Tell whether the connection just ended, with TLS's own notice or without, and nothing else was wrong."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)) or not error.reason:
        return True
    return error.reason.startswith(_ENDED)


def _certificate_text(error: ssl.SSLCertVerificationError, settings: ConnectionSettings, host: str) -> str:
    code = error.verify_code
    if code in _OTHER_NAME:
        return (
            f"The broker's certificate is not made out to {host!r} ({_shorten(error.verify_message)}); use the name it "
            "is made out to in kafka.bootstrap.servers and the broker's advertised.listeners, or, if you must, switch "
            "the check off with an empty kafka.ssl.endpoint.identification.algorithm."
        )
    if code in _UNTRUSTED:
        tls = settings.security.tls
        if tls is None or (tls.truststore_location is None and tls.truststore_certificates is None):
            return (
                f"The broker's certificate is not signed by a CA this system trusts ({error.verify_message}); give the "
                "cluster's CA in kafka.ssl.truststore.certificates or kafka.ssl.truststore.location."
            )
        own = "certificates" if tls.truststore_certificates is not None else "location"
        return (
            f"The broker's certificate is not signed by a CA in kafka.ssl.truststore.{own} ({error.verify_message}); "
            "put the cluster's CA there."
        )
    if code in (_EXPIRED, _NOT_YET_VALID):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return (
            f"The broker's certificate, or one of its issuers', {when}; renew it on the broker (and check this "
            "machine's clock)."
        )
    if code == _PURPOSE:
        return "The broker's certificate is not meant for a server (extended key usage); make a new one for the broker."
    if code in _WEAK:
        return (
            f"The broker's certificate is too weak ({error.verify_message}); make a new one with SHA-256 and RSA 2048."
        )
    return f"The broker's certificate cannot be verified: {error.verify_message}."


def _alert_text(reason: str, settings: ConnectionSettings) -> str:
    if not _has_identity(settings) and reason.endswith(_WANTS_CERTIFICATE):
        return (
            f"The broker refused the handshake ({reason}): it probably wants a client certificate; give one in "
            "kafka.ssl.keystore.location, or in kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key."
        )
    if reason.endswith(_DISLIKES_CERTIFICATE):
        return (
            f"The broker refused this client's certificate ({reason}); check that kafka.ssl.keystore.* holds a "
            "certificate that has not expired and whose issuer is in the broker's truststore."
        )
    if reason.endswith(_NOT_TLS) or reason.startswith(_NOT_TLS):
        return (
            f"What listens there does not speak TLS ({reason}); is it a listener without TLS (then set "
            "kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT)?"
        )
    if reason.endswith((*_NO_COMMON, "HANDSHAKE_FAILURE")):
        return (
            f"The broker and this client have no TLS version or cipher suite in common ({reason}); check "
            "kafka.ssl.enabled.protocols and kafka.ssl.cipher.suites."
        )
    return f"TLS failed: {reason}."


def _closed_text(settings: ConnectionSettings) -> str:
    # A PLAINTEXT listener takes the first bytes of TLS for the size of a request and hangs up. So does a broker that
    # dislikes the client's certificate, or the lack of one, if it resets the connection before its alert was read.
    doubt = "refuse this client's" if _has_identity(settings) else "want a client"
    return (
        "The broker closed the connection during the TLS handshake. Is it a listener without TLS (then set "
        f"kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT)? Or does it {doubt} certificate "
        "(kafka.ssl.keystore.*)?"
    )


def _has_identity(settings: ConnectionSettings) -> bool:
    tls = settings.security.tls
    return tls is not None and bool(tls.keystore_location or tls.certificate_chain or tls.certificate_location)


def _shorten(message: str) -> str:
    # "Hostname mismatch, certificate is not valid for 'x'." repeats the name.
    return message.split(",")[0].rstrip(".")
