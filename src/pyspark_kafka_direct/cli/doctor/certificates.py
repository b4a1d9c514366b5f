"""The certificates that a broker sends, also if they are not valid, and those of this client."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.cli.doctor.findings import Finding
from pyspark_kafka_direct.client.security.keystore import load_client_certificate
from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.client.socket_connect import connect_socket
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.security_settings import DEFAULT_TLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cryptography import x509

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.errors import TlsError
    from pyspark_kafka_direct.options.security_settings import TlsSettings
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_SOON: Final = timedelta(days=14)
_MAX_CHAIN: Final = 10
_MAX_NAMES: Final = 8  # shown


def valid_chain_finding(sock: ssl.SSLSocket) -> tuple[str, bool]:
    """Describe the certificates of a connection whose handshake succeeded; return whether one expires soon."""
    chain = _parsed(_chain_of(sock, "get_verified_chain"))
    protocol = sock.version() or "TLS"
    if not chain:
        return f"{protocol}, with a valid certificate", False
    first = min(chain, key=lambda each: each.not_valid_after_utc)
    expires = f"{_name(first)} expires on {_day(first.not_valid_after_utc)}"
    if first.not_valid_after_utc - datetime.now(UTC) < _SOON:
        return f"The certificate of {expires}: renew it before, and restart or reconfigure the broker.", True
    leaf = chain[0]
    return f"{protocol}; {_name(leaf)}, for {_listed_names(leaf)}, issued by {_issuer(leaf)}; {expires}", False


def invalid_chain_texts(
    error: TlsError, settings: ConnectionSettings, host: str, port: int, deadline: Deadline
) -> Iterator[str]:
    """Yield the error of a failed handshake, with details of the certificates, and each further defect of them."""
    chain = _presented_chain(settings, host, port, deadline)
    if not chain:  # the listener does not use TLS, or rejects this client
        yield error.message
        return
    now = datetime.now(UTC)
    outdated = [each for each in chain if not each.not_valid_before_utc <= now <= each.not_valid_after_utc]
    is_expiry = "has expired" in error.message or "not valid yet" in error.message
    is_mismatch = "is not valid for" in error.message
    names = f"It is for {_listed_names(chain[0])}."
    if is_mismatch:
        yield f"{error.message} {names}"
    elif is_expiry and outdated:
        yield f"{error.message} {_validity(outdated[0], now)}"
        outdated = outdated[1:]
    elif "is not signed by a CA" in error.message:
        yield f"{error.message} {_chain_text(chain, settings)}"
    else:
        yield error.message
    for each in outdated:
        yield f"{_validity(each, now)} Renew it on the broker, and check this machine's clock."
    if not is_mismatch and _checks_names(settings) and not _is_for(chain[0], host):
        yield (
            f"The broker's certificate is not valid for {host!r}. {names} Use a name of the certificate in "
            "kafka.bootstrap.servers and in the broker's advertised.listeners."
        )


def client_certificate_finding(subject: str, tls: TlsSettings) -> Iterator[Finding]:
    """Yield the finding about the certificate of this client, if the settings have one."""
    from cryptography import x509

    certificate = load_client_certificate(tls)
    if certificate is None:
        return
    now = datetime.now(UTC)
    leaf = x509.load_pem_x509_certificates(certificate.pem)[0]
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        text = f"This client's certificate is not valid: {_validity(leaf, now)} Renew it ({certificate.key_option})."
        yield Finding(subject, "tls files", "problem", text)
    elif leaf.not_valid_after_utc - now < _SOON:
        text = f"This client's certificate expires on {_day(leaf.not_valid_after_utc)}: renew it before."
        yield Finding(subject, "tls files", "warning", text)
    else:
        text = f"client certificate of {_name(leaf)}, expires on {_day(leaf.not_valid_after_utc)}"
        yield Finding(subject, "tls files", "ok", text)


def _presented_chain(settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> list[x509.Certificate]:
    """Return what the broker sends, without a check of it. Nothing is sent to the broker but the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        sock = connect_socket(settings, host, port, deadline)
        sock.settimeout(max(deadline.remaining(), 0.001))
        with sock, context.wrap_socket(sock, server_hostname=host) as tls_socket:
            return _parsed(_chain_of(tls_socket, "get_unverified_chain"))
    except OSError:  # BrokerError is one
        return []


def _chain_of(sock: ssl.SSLSocket, method: str) -> list[bytes]:
    """Return the certificates of a connection in DER, the broker's first."""
    get_chain: Any = getattr(sock, method, None)  # from Python 3.13 on
    if get_chain is not None:
        return list(get_chain())[:_MAX_CHAIN]
    import _ssl

    get_objects: Any = getattr(getattr(sock, "_sslobj", None), method, None)
    if get_objects is not None:
        return [each.public_bytes(_ssl.ENCODING_DER) for each in get_objects()[:_MAX_CHAIN]]
    leaf = sock.getpeercert(binary_form=True)
    return [] if leaf is None else [leaf]


def _parsed(chain: Sequence[bytes]) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return [x509.load_der_x509_certificate(each) for each in chain]
    except ValueError:
        return []


def _chain_text(chain: Sequence[x509.Certificate], settings: ConnectionSettings) -> str:
    leaf, last = chain[0], chain[-1]
    if leaf.issuer == leaf.subject:
        sent = f"The broker sends {_name(leaf)}, which is self-signed"
    else:
        sent = f"The broker sends {' < '.join(map(_name, chain))}, issued by {_issuer(last)}"
    tls = settings.security.tls or DEFAULT_TLS
    if tls.truststore_location is None and tls.truststore_certificates is None:
        return f"{sent}."
    trusted = [_subject_text(each) for each in tls_context(tls).get_ca_certs()]
    return f"{sent}; the truststore has {listed(trusted, 5)}."


def _subject_text(certificate: dict[str, Any]) -> str:
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    return next((f"CN={value}" for name, value in pairs if name == "commonName"), str(pairs))


def _validity(certificate: x509.Certificate, now: datetime) -> str:
    if now > certificate.not_valid_after_utc:
        days = (now - certificate.not_valid_after_utc).days
        ago = "today" if days == 0 else f"{days} day{'s' if days > 1 else ''} ago"
        return f"The certificate of {_name(certificate)} expired on {_day(certificate.not_valid_after_utc)} ({ago})."
    return f"The certificate of {_name(certificate)} is valid from {_day(certificate.not_valid_before_utc)} on."


def _checks_names(settings: ConnectionSettings) -> bool:
    return settings.security.tls is None or settings.security.tls.check_hostname


def _is_for(certificate: x509.Certificate, host: str) -> bool:
    names = _names(certificate)
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        lower = host.lower().rstrip(".")
        patterns = {name.lower() for name in names}
        return lower in patterns or f"*.{lower.partition('.')[2]}" in patterns
    return address in names


def _names(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return []


def _listed_names(certificate: x509.Certificate) -> str:
    names = _names(certificate)
    return listed(names, _MAX_NAMES) if names else "no host (it has no subject alternative names)"


def _name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string() or "(no subject)"


def _issuer(certificate: x509.Certificate) -> str:
    return certificate.issuer.rfc4514_string() or "(no issuer)"


def _day(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC")
