"""Loads certificates and keys from PEM (text or file), PKCS12 and JKS.

The first bytes of a file identify its format, so the ``ssl.*store.type`` settings are not required. (Java's
``keystore.type.compat`` does the same for JKS and PKCS12.)

    PEM     text with "-----BEGIN <label>-----", base64, "-----END <label>-----"
    PKCS12  SEQUENCE { INTEGER 3, ...    30 8x .. 02 01 03       (RFC 7292, 4)
    DER     SEQUENCE { SEQUENCE { ...    30 8x .. 30 8x          (one certificate, X.509)
    JKS     FE ED FE ED                          (``jks`` reads it)
    JCEKS   CE CE CE CE                          (rejected)
"""

from __future__ import annotations

import base64
import os
import re
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.security.jks import JavaKeyStore
    from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_MAX_FILE_BYTES: Final = 16 << 20  # any user who sets options can name any file, such as /dev/zero
_DER_SEQUENCE: Final = b"\x30"
_DER_VERSION_3: Final = b"\x02\x01\x03"  # INTEGER 3

# PEM text in settings often has lost, escaped or continued line breaks (`\n`, `\\n`, `\` at the end of lines), and text
# around the blocks. OpenSSL requires lines of 64 characters; Kafka's reader (DefaultSslEngineFactory) accepts any white
# space. Keys in the old format have header lines before the base64 ("Proc-Type: 4,ENCRYPTED").
_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----((?:(?!-----BEGIN ).)*?)-----END \1-----", re.DOTALL)
_PEM_BEGIN: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")
_PEM_IN_BASE64: Final = "LS0tLS1CRUdJTi"  # of "-----BEGIN", as in the secrets of Kubernetes
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate chain and private key of this client."""

    pem: bytes  # certificates, then the key
    password: Secret | None  # of the key in pem, if it is encrypted
    key_option: str  # the option the key came from, for errors
    password_option: str

    def __repr__(self) -> str:
        return f"ClientCertificate({self.key_option})"


def load_ca_certificates(tls: TlsSettings) -> str | None:
    """Return the CA certificates as PEM, or ``None`` to use the system's."""
    if tls.truststore_certificates is not None:
        return _certificates_from_pem(tls.truststore_certificates, f"{tls.prefix}ssl.truststore.certificates")
    if tls.truststore_location is None:
        return None
    option = f"{tls.prefix}ssl.truststore.location"
    data = _read_file(tls.truststore_location, option, f"{tls.prefix}ssl.truststore.certificates")
    match _detect_format(data):
        case "PEM":
            return _certificates_from_pem(_decode(data), option)
        case "PKCS12":
            return _ca_certificates_from_pkcs12(
                data, tls.truststore_password, option, f"{tls.prefix}ssl.truststore.password"
            )
        case "JKS":
            return _ca_certificates_from_jks(
                data, tls.truststore_password, option, f"{tls.prefix}ssl.truststore.password"
            )
        case "DER":
            return _der_to_pem(data, option)
        case _:
            raise _unknown_format_error(data, tls.truststore_location, option)


def load_client_certificate(tls: TlsSettings) -> ClientCertificate | None:
    """Return this client's certificate and key, or ``None`` if the settings have none."""
    if tls.keystore_location is not None:
        return _client_certificate_from_keystore(tls, tls.keystore_location)
    if tls.certificate_chain is not None:
        chain_option, chain = f"{tls.prefix}ssl.keystore.certificate.chain", tls.certificate_chain.reveal()
    elif tls.certificate_location is not None:
        chain_option = f"{tls.prefix}ssl.certificate.location"
        text_option = f"{tls.prefix}ssl.keystore.certificate.chain"
        chain = _decode(_read_file(tls.certificate_location, chain_option, text_option))
    else:
        return None
    if tls.key is not None:
        key_option, key = f"{tls.prefix}ssl.keystore.key", tls.key.reveal()
    elif tls.key_location is not None:
        key_option = f"{tls.prefix}ssl.key.location"
        key = _decode(_read_file(tls.key_location, key_option, f"{tls.prefix}ssl.keystore.key"))
    else:  # one PEM has both
        key_option, key = chain_option, chain
    pem = _certificates_from_pem(chain, chain_option) + _private_key_from_pem(key, key_option)
    return ClientCertificate(pem.encode(), tls.key_password, key_option, f"{tls.prefix}ssl.key.password")


def certificate_files(tls: TlsSettings) -> tuple[str, ...]:
    """Return the paths of the files that the settings name."""
    paths = (tls.truststore_location, tls.keystore_location, tls.certificate_location, tls.key_location)
    return tuple(path for path in paths if path is not None)


def with_leaf_first(pem: bytes) -> bytes:
    """Return PEM text with the client's certificate first, its issuers behind it, and then the other blocks."""
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return pem
    signed = [each for each in certificates if each.issuer != each.subject]  # a root may be of another chain
    issuers = {each.issuer for each in signed}
    leaf = next((each for each in [*signed, *certificates] if each.subject not in issuers), certificates[0])
    chain = _certificate_chain(leaf, certificates)
    others = [block.text for block in read_pem(pem.decode()) if not block.is_certificate]
    return "".join([*map(_to_pem, chain), *others]).encode()


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Provide a path at which only this process's user can read ``data``, until the block ends."""
    # OpenSSL reads certificate and key from paths only. On Linux the file is in memory (memfd), without a name in any
    # directory; elsewhere it is a temporary file of mode 0600.
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


@dataclass(frozen=True, slots=True)
class PemBlock:
    """A PEM block: its label, and the whole block with standard line breaks."""

    label: str
    text: str

    @property
    def is_certificate(self) -> bool:
        """Whether it is a certificate (with any of OpenSSL's three labels)."""
        return self.label.endswith("CERTIFICATE")

    @property
    def is_key(self) -> bool:
        """Whether it is a private key, encrypted or not."""
        return self.label.endswith("PRIVATE KEY")

    def __repr__(self) -> str:
        return f"PemBlock({self.label})"


def looks_like_pem(text: str) -> bool:
    """Return whether a string contains PEM, and is not, for example, a path."""
    return "-----BEGIN" in text


def read_pem(text: str) -> list[PemBlock]:
    """Return the well-formed blocks of a text, in order."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(text.replace("\\r", "").replace("\\n", "\n").replace("\\", "")):
        if ":" in body:  # with header lines, lost line breaks cannot be restored
            content = "\n".join(line.strip() for line in body.strip().splitlines())
            if not content.isascii():  # `ssl` does not accept it
                continue
        else:
            content = "".join(body.split())
            if _BASE64.fullmatch(content) is None:
                continue
            content = _lines_of_64(content)
        blocks.append(PemBlock(label, _pem_block_of(label, content)))
    return blocks


def _client_certificate_from_keystore(tls: TlsSettings, path: str) -> ClientCertificate:
    option = f"{tls.prefix}ssl.keystore.location"
    text_options = f"{tls.prefix}ssl.keystore.certificate.chain and {tls.prefix}ssl.keystore.key"
    data = _read_file(path, option, text_options)
    match _detect_format(data):
        case "PEM":
            text = _decode(data)
            pem = _certificates_from_pem(text, option) + _private_key_from_pem(text, option)
            return ClientCertificate(pem.encode(), tls.key_password, option, f"{tls.prefix}ssl.key.password")
        case "PKCS12":
            return _client_certificate_from_pkcs12(
                data, tls.keystore_password, option, f"{tls.prefix}ssl.keystore.password"
            )
        case "JKS":
            return _client_certificate_from_jks(data, tls, option)
        case _:
            raise _unknown_format_error(data, path, option)


def _read_file(path: str, option: str, pem_text_option: str) -> bytes:
    if looks_like_pem(path):
        raise OptionError(f"option {option} requires a path, but has PEM text; set {pem_text_option} instead")
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise OptionError(
            f"option {option}: {path!r} cannot be read on {socket.gethostname()} ({reason}); the file must "
            f"exist on the driver and on every executor, or set {pem_text_option} to its content as PEM text"
        ) from None
    if len(data) > _MAX_FILE_BYTES:
        raise OptionError(f"option {option}: {path!r} is larger than {_MAX_FILE_BYTES >> 20} MiB")
    return data


def _detect_format(data: bytes) -> str:
    """Return the file format, or ``''`` if it is unknown."""
    if data.startswith(_JKS_MAGIC):
        return "JKS"
    if data.startswith(_JCEKS_MAGIC):
        return "JCEKS"
    if b"-----BEGIN" in data:
        return "PEM"
    # DER: a tag byte, then the length (long form if bit 7 is set), then the content. PKCS12 begins
    # SEQUENCE { INTEGER 3; a certificate or key in DER begins otherwise.
    content = data[2 + (data[1] & 0x7F) :] if len(data) > 2 and data[1] & 0x80 else data[2:]
    if data.startswith(_DER_SEQUENCE) and content.startswith(_DER_VERSION_3):
        return "PKCS12"
    if data.startswith(_DER_SEQUENCE) and content.startswith(_DER_SEQUENCE):
        return "DER"
    return ""


def _unknown_format_error(data: bytes, path: str, option: str) -> OptionError:
    if _detect_format(data) != "JCEKS":
        return OptionError(f"option {option}: {path!r} is neither PEM, PKCS12 nor JKS")
    return OptionError(
        f"option {option}: {path!r} is a Java keystore of the type JCEKS, which is not supported; convert it with: "
        f"keytool -importkeystore -srckeystore {path} -srcstoretype JCEKS -destkeystore {path}.p12 "
        "-deststoretype PKCS12"
    )


def _decode(data: bytes) -> str:
    # PEM is ASCII; text between the blocks may have any encoding.
    return data.decode("ascii", errors="replace")


def _certificates_from_pem(text: str, option: str) -> str:
    blocks = read_pem(text)
    certificates = [block.text for block in blocks if block.is_certificate]
    # Without the damaged ones, a connection fails later and for another reason. A file may be half written.
    if certificates and len(blocks) == len(_PEM_BEGIN.findall(text)):
        return "".join(certificates)
    if certificates:
        raise OptionError(f"option {option} is damaged: a PEM block needs base64 up to its END line, and one has not")
    raise OptionError(
        f"option {option} has no PEM certificate (-----BEGIN CERTIFICATE-----){_content_hint(text, option)}"
    )


def _private_key_from_pem(text: str, option: str) -> str:
    keys = [block.text for block in read_pem(text) if block.is_key]
    if len(keys) == 1:
        return keys[0]
    keys_found = "no PEM private key (-----BEGIN PRIVATE KEY-----)" if not keys else "more than one private key"
    raise OptionError(f"option {option} has {keys_found}{_content_hint(text, option)}")


def _content_hint(text: str, option: str) -> str:
    """Return what a text has instead of the wanted PEM block; never what may be secret."""
    if labels := _PEM_BEGIN.findall(text):
        damaged = len(read_pem(text)) < len(labels)
        problem = "; a block needs base64 up to its END line, and one of them has not" if damaged else ""
        return f" (it has {', '.join(dict.fromkeys(labels))}{problem})"
    if text.lstrip().startswith(_PEM_IN_BASE64):
        return " (it has PEM text that is encoded in base64; decode it)"
    return "" if option.endswith(".location") else " (the option requires PEM text, not a path)"


def _der_to_pem(data: bytes, option: str) -> str:
    from cryptography import x509

    try:
        return _to_pem(x509.load_der_x509_certificate(data))
    except ValueError:
        raise OptionError(f"option {option} has no readable certificate") from None


def _ca_certificates_from_pkcs12(data: bytes, password: Secret | None, option: str, password_option: str) -> str:
    store = _open_pkcs12(data, password, option, password_option)
    certificates = "".join(_to_pem(entry.certificate) for entry in store.additional_certs)
    if not certificates:
        raise OptionError(f"option {option}: the store has no CA certificate")
    return certificates


def _client_certificate_from_pkcs12(
    data: bytes, password: Secret | None, option: str, password_option: str
) -> ClientCertificate:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _open_pkcs12(data, password, option, password_option)
    if store.key is None or store.cert is None:
        raise OptionError(f"option {option}: the store has no private key with its certificate")
    chain = _certificate_chain(store.cert.certificate, [entry.certificate for entry in store.additional_certs])
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = "".join(map(_to_pem, chain)).encode() + key
    return ClientCertificate(pem, None, option, password_option)


def _open_pkcs12(data: bytes, password: Secret | None, option: str, password_option: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.reveal().encode() if password else None)
    except UnsupportedAlgorithm as error:
        raise OptionError(f"option {option}: the encryption of the store is not supported ({error})") from None
    except ValueError:
        raise _closed_store_error(password, option, password_option) from None


def _ca_certificates_from_jks(data: bytes, password: Secret | None, option: str, password_option: str) -> str:
    store = _open_jks(data, password, option, password_option)
    # As in Java, the own certificate of each key is trusted, too, but not its issuers.
    certificates = [*store.certificates, *(entry.chain[0] for entry in store.keys if entry.chain)]
    if not certificates:
        raise OptionError(f"option {option}: the store has no CA certificate")
    return "".join(_pem_block("CERTIFICATE", certificate) for certificate in certificates)


def _client_certificate_from_jks(data: bytes, tls: TlsSettings, option: str) -> ClientCertificate:
    from pyspark_kafka_direct.client.security import jks

    store_password_option = f"{tls.prefix}ssl.keystore.password"
    store = _open_jks(data, tls.keystore_password, option, store_password_option)
    if not any(entry.chain for entry in store.keys):
        raise OptionError(f"option {option}: the store has no private key with its certificate")
    # As in Kafka, the keys have the password of the store if no other is set.
    password = tls.key_password or tls.keystore_password
    password_option = f"{tls.prefix}ssl.key.password" if tls.key_password else store_password_option
    if not password:
        raise OptionError(f"option {option}: the private key is encrypted; set {password_option}")
    try:
        opened = [entry for entry in jks.open_keys(store, password.reveal()) if entry.chain]
    except jks.DamagedStoreError as error:
        raise _damaged_jks_error(error, option) from None
    if not opened:
        raise OptionError(f"option {option}: the private key cannot be decrypted; check {password_option}")
    chosen = opened[0]
    certificates = [_pem_block("CERTIFICATE", certificate) for certificate in chosen.chain]
    pem = "".join([*certificates, _pem_block("PRIVATE KEY", chosen.key)])
    return ClientCertificate(pem.encode(), None, option, password_option)


def _open_jks(data: bytes, password: Secret | None, option: str, password_option: str) -> JavaKeyStore:
    from pyspark_kafka_direct.client.security import jks

    try:
        return jks.read_jks(data, password.reveal() if password else None)
    except jks.DamagedStoreError as error:
        raise _damaged_jks_error(error, option) from None
    except jks.WrongPasswordError:
        raise _closed_store_error(password, option, password_option) from None


def _damaged_jks_error(error: Exception, option: str) -> OptionError:
    return OptionError(f"option {option}: the JKS store is damaged ({error})")


def _closed_store_error(password: Secret | None, option: str, password_option: str) -> OptionError:
    problem = "is wrong" if password else "is not set"
    return OptionError(
        f"option {option}: the store cannot be opened; {password_option} {problem}, or the file is damaged"
    )


def _pem_block(label: str, der: bytes) -> str:
    return _pem_block_of(label, _lines_of_64(base64.b64encode(der).decode()))


def _pem_block_of(label: str, content: str) -> str:
    return f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n"


def _lines_of_64(base64_text: str) -> str:
    return "\n".join(base64_text[i : i + 64] for i in range(0, len(base64_text), 64))


def _certificate_chain(leaf: Any, other_certificates: list[Any]) -> list[Any]:
    # A store has certificates in any order; TLS 1.2 requires that each is followed by its issuer (RFC 5246, 7.4.2).
    chain = [leaf]
    remaining: dict[Any, list[Any]] = {}  # by subject, the last one first
    for certificate in reversed(other_certificates):
        if certificate != leaf:
            remaining.setdefault(certificate.subject, []).append(certificate)
    while candidates := remaining.get(chain[-1].issuer):
        chain.append(candidates.pop())
    return chain


def _to_pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text.decode()
