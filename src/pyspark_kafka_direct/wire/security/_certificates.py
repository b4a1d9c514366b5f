"""From TLS settings to certificates and keys in memory: PEM as text or file, PKCS12; JKS is refused.

The first bytes of a file tell what it is, so the ``ssl.*store.type`` settings are never needed. (Java's
``keystore.type.compat`` does the same for JKS and PKCS12.)

    PEM     text with "-----BEGIN"
    PKCS12  SEQUENCE { INTEGER 3, ...    30 8x .. 02 01 03       (RFC 7292, 4)
    DER     SEQUENCE { SEQUENCE { ...    30 8x .. 30 8x          (one certificate, X.509)
    JKS     FE ED FE ED, and CE CE CE CE for JCEKS
"""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.wire.security._pem import looks_like_pem, read_pem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.settings.secret import Secret
    from pyspark_kafka_direct.settings.security import TlsSettings

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


@dataclass(frozen=True, slots=True)
class Identity:
    """This client's certificate chain and private key.

    Attributes:
        pem: Both as PEM, certificate first.
        password: Password of the key inside ``pem``, where it is encrypted.
        key_option: The option the key came from, for messages.
        password_option: The option its password comes from.
    """

    pem: bytes
    password: Secret | None
    key_option: str
    password_option: str

    def __repr__(self) -> str:
        return f"Identity({self.key_option})"


def load_trust(tls: TlsSettings) -> str | None:
    """Give the CA certificates as PEM, or ``None`` where the system's are to be used.

    Raises:
        OptionError: A file or text can't be read or holds no certificate; names the option.
    """
    if tls.truststore_certificates is not None:
        return _certificates_in(tls.truststore_certificates, "ssl.truststore.certificates")
    if tls.truststore_location is None:
        return None
    option = "ssl.truststore.location"
    data = _read_file(tls.truststore_location, option, "ssl.truststore.certificates")
    match _format_of(data):
        case "PEM":
            return _certificates_in(_decode(data), option)
        case "PKCS12":
            return _trust_in_pkcs12(data, tls.truststore_password, option)
        case "DER":
            return _pem_of_der(data, option)
        case _:
            raise _unknown_format(data, tls.truststore_location, option)


def load_identity(tls: TlsSettings) -> Identity | None:
    """Give this client's certificate and key, or ``None`` where it has none.

    Raises:
        OptionError: A file or text can't be read, or lacks certificate or key; names the option.
    """
    if tls.keystore_location is not None:
        return _identity_in_store(tls, tls.keystore_location)
    if tls.certificate_chain is not None:
        chain_option, chain = "ssl.keystore.certificate.chain", tls.certificate_chain.reveal()
    elif tls.certificate_location is not None:
        chain_option = "ssl.certificate.location"
        chain = _decode(_read_file(tls.certificate_location, chain_option, "ssl.keystore.certificate.chain"))
    else:
        return None
    if tls.key is not None:
        key_option, key = "ssl.keystore.key", tls.key.reveal()
    elif tls.key_location is not None:
        key_option = "ssl.key.location"
        key = _decode(_read_file(tls.key_location, key_option, "ssl.keystore.key"))
    else:
        key_option, key = chain_option, chain
    pem = _certificates_in(chain, chain_option) + _key_in(key, key_option)
    return Identity(pem.encode(), tls.key_password, key_option, "ssl.key.password")


def files_of(tls: TlsSettings) -> tuple[str, ...]:
    """Return the paths of the files these settings are read from."""
    paths = (tls.truststore_location, tls.keystore_location, tls.certificate_location, tls.key_location)
    return tuple(path for path in paths if path is not None)


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Give a path under which only this process's user can read ``data``, until the block ends.

    OpenSSL reads certificate and key from paths only. On Linux the file is in memory (memfd) and has no name in any
    folder; elsewhere it is a temporary file of mode 0600.
    """
    memfd_create = getattr(os, "memfd_create", None)
    if memfd_create is not None and os.path.isdir("/proc/self/fd"):
        descriptor = memfd_create("pyspark-kafka-direct", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    descriptor, path = tempfile.mkstemp(prefix="pyspark-kafka-direct-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


def _identity_in_store(tls: TlsSettings, path: str) -> Identity:
    option = "ssl.keystore.location"
    data = _read_file(path, option, "ssl.keystore.certificate.chain and kafka.ssl.keystore.key")
    match _format_of(data):
        case "PEM":
            text = _decode(data)
            pem = _certificates_in(text, option) + _key_in(text, option)
            return Identity(pem.encode(), tls.key_password, option, "ssl.key.password")
        case "PKCS12":
            return _identity_in_pkcs12(data, tls.keystore_password, option)
        case _:
            raise _unknown_format(data, path, option)


def _read_file(path: str, option: str, text_option: str) -> bytes:
    if looks_like_pem(path):
        raise OptionError(f"option kafka.{option} is a path, but PEM text was given; write it in kafka.{text_option}")
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise OptionError(
            f"option kafka.{option}: {path!r} cannot be read on {socket.gethostname()} ({reason}); the file must be on "
            f"the driver and on every executor, or give its content as PEM text in kafka.{text_option}"
        ) from None


def _format_of(data: bytes) -> str:
    if b"-----BEGIN" in data:
        return "PEM"
    if data.startswith(_JKS):
        return "JKS"
    content = data[2 + (data[1] & 0x7F) :] if len(data) > 2 and data[1] & 0x80 else data[2:]
    if data.startswith(b"\x30") and content.startswith(b"\x02\x01\x03"):
        return "PKCS12"
    if data.startswith(b"\x30") and content.startswith(b"\x30"):
        return "DER"
    return ""


def _unknown_format(data: bytes, path: str, option: str) -> OptionError:
    if _format_of(data) != "JKS":
        return OptionError(f"option kafka.{option}: {path!r} is neither PEM nor PKCS12")
    return OptionError(
        f"option kafka.{option}: {path!r} is a Java keystore (JKS), which is not supported; convert it with: "
        f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
    )


def _decode(data: bytes) -> str:
    # PEM is ASCII; whatever stands between the blocks is prose and may be anything.
    return data.decode("ascii", errors="replace")


def _certificates_in(text: str, option: str) -> str:
    found = [block.text for block in read_pem(text) if block.is_certificate]
    if found:
        return "".join(found)
    hint = "" if looks_like_pem(text) else " (it is PEM text that is wanted, not a path)" if _is_text(option) else ""
    raise OptionError(f"option kafka.{option} holds no PEM certificate (-----BEGIN CERTIFICATE-----){hint}")


def _key_in(text: str, option: str) -> str:
    found = [block.text for block in read_pem(text) if block.is_key]
    if len(found) == 1:
        return found[0]
    how_many = "no PEM private key (-----BEGIN PRIVATE KEY-----)" if not found else "more than one private key"
    hint = " (it is PEM text that is wanted, not a path)" if not looks_like_pem(text) and _is_text(option) else ""
    raise OptionError(f"option kafka.{option} holds {how_many}{hint}")


def _is_text(option: str) -> bool:
    return not option.endswith(".location")


def _pem_of_der(data: bytes, option: str) -> str:
    from cryptography import x509

    try:
        return _pem_of(x509.load_der_x509_certificate(data))
    except ValueError:
        raise OptionError(f"option kafka.{option} holds no certificate that can be read") from None


def _trust_in_pkcs12(data: bytes, password: Secret | None, option: str) -> str:
    store = _open_pkcs12(data, password, option, "ssl.truststore.password")
    found = "".join(_pem_of(each.certificate) for each in store.additional_certs)
    if not found:
        raise OptionError(f"option kafka.{option}: the store holds no CA certificate")
    return found


def _identity_in_pkcs12(data: bytes, password: Secret | None, option: str) -> Identity:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _open_pkcs12(data, password, option, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise OptionError(f"option kafka.{option}: the store holds no private key with its certificate")
    chain = _chain(store.cert.certificate, [each.certificate for each in store.additional_certs])
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = "".join(map(_pem_of, chain)).encode() + key
    return Identity(pem, None, option, "ssl.keystore.password")


def _open_pkcs12(data: bytes, password: Secret | None, option: str, password_option: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.reveal().encode() if password else None)
    except UnsupportedAlgorithm as error:
        raise OptionError(
            f"option kafka.{option}: the store is encrypted in a way that is not supported ({error})"
        ) from None
    except ValueError:
        what = "is wrong" if password else "is missing"
        raise OptionError(
            f"option kafka.{option}: the store cannot be opened; kafka.{password_option} {what}, or the file is damaged"
        ) from None


def _chain(leaf: Any, others: list[Any]) -> list[Any]:
    # A store keeps certificates in any order; TLS 1.2 wants each followed by its issuer (RFC 5246, 7.4.2).
    chain = [leaf]
    left = [each for each in others if each != leaf]
    while issuer := next((each for each in left if each.subject == chain[-1].issuer), None):
        chain.append(issuer)
        left.remove(issuer)
    return chain


def _pem_of(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text.decode()
