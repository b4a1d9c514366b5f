"""Writes key stores in Java's format JKS; ``client/security/jks.py`` says what they consist of."""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

if TYPE_CHECKING:
    from tests.unit.client.certified_keys import CertifiedKey

_PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")  # SEQUENCE { OID of Sun's key protector, NULL }


def jks(password: str, *entries: bytes, version: int = 2) -> bytes:
    """Return a store of entries, which have the same version."""
    content = b"\xfe\xed\xfe\xed" + struct.pack(">ii", version, len(entries)) + b"".join(entries)
    return content + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def trusted(alias: str, certificate: CertifiedKey | bytes, version: int = 2) -> bytes:
    """Return the entry of a trusted certificate."""
    return struct.pack(">i", 2) + _utf(alias) + struct.pack(">q", 0) + _certificate(certificate, version)


def key(alias: str, password: str, *chain: CertifiedKey, version: int = 2) -> bytes:
    """Return the entry of the first one's key, with the certificates of all."""
    pkcs8 = chain[0].key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return protected_key(alias, protect(pkcs8, password), *chain, version=version)


def protected_key(alias: str, protected: bytes, *chain: CertifiedKey, version: int = 2) -> bytes:
    """Return the entry of a key that is encrypted already."""
    size = struct.pack(">i", len(protected))
    certificates = b"".join(_certificate(each, version) for each in chain)
    header = struct.pack(">i", 1) + _utf(alias) + struct.pack(">q", 0)
    return header + size + protected + struct.pack(">i", len(chain)) + certificates


def protect(pkcs8: bytes, password: str) -> bytes:
    """Encrypt a key as Sun's key protector does."""
    secret = password.encode("utf-16-be")
    salt = os.urandom(20)
    stream = b""
    block = salt
    while len(stream) < len(pkcs8):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    encrypted = bytes(a ^ b for a, b in zip(pkcs8, stream, strict=False))
    return _der(0x30, _PROTECTOR + _der(0x04, salt + encrypted + hashlib.sha1(secret + pkcs8).digest()))


def damaged(file: bytes, changes: list[tuple[int, int]], size: int) -> bytes:
    """Return a file with some bytes replaced (position modulo the size, value), and then truncated."""
    changed = bytearray(file)
    for position, value in changes:
        changed[position % len(changed)] = value
    return bytes(changed[: size % (len(changed) + 1)])


def _utf(text: str) -> bytes:
    """Return modified UTF-8, as ``DataOutputStream.writeUTF`` writes it."""
    units = text.encode("utf-16-be")
    characters = [chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True)]
    encoded = "".join(characters).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded


def _certificate(certificate: CertifiedKey | bytes, version: int) -> bytes:
    der = certificate if isinstance(certificate, bytes) else certificate.certificate.public_bytes(Encoding.DER)
    kind = _utf("X.509") if version > 1 else b""
    return kind + struct.pack(">i", len(der)) + der


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + struct.pack(">H", size)
    return bytes([tag]) + length + content
