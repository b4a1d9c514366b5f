"""Key stores of Java in the format JKS, as ``keytool -storetype JKS`` writes them (and by default before Java 9).

Integers are big-endian. A ``UTF`` is an INT16 size, then a string in modified UTF-8, as ``DataOutputStream.writeUTF``
writes it (NUL is C0 80, and characters above U+FFFF are two surrogates of three bytes each).

    store         FE ED FE ED, INT32 version (1 or 2), INT32 number of entries, the entries, digest
    entry         INT32 tag, UTF alias, INT64 date in ms
      tag 1         INT32 size, protected key, INT32 number of certificates, certificates: the key's, then issuers
      tag 2         certificate (trusted)
    certificate   [version 2: UTF type "X.509"], INT32 size, DER
    digest        SHA-1 of: password in UTF-16BE, "Mighty Aphrodite", all bytes before the digest

The format has no secret keys and no other tags. Bytes after the digest are ignored, as in Java. The digest needs the
password, but reading certificates does not: a truststore is read without the digest if no password is set.

    protected key   SEQUENCE { SEQUENCE { OID 1.3.6.1.4.1.42.2.17.1.1, NULL }, OCTET STRING { salt, encrypted, check } }
    salt            20 random bytes
    encrypted       key (PKCS #8 in DER) XOR stream; the stream's blocks are block(0), block(1), ...
    block(i)        SHA-1 of: password in UTF-16BE, salt if i is 0, otherwise block(i - 1)
    check           SHA-1 of: password in UTF-16BE, key

The classes in Java are ``sun.security.provider.JavaKeyStore`` and ``sun.security.provider.KeyProtector``.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"

_VERSIONS: Final = (1, 2)
_KEY_ENTRY: Final = 1
_TRUSTED_CERTIFICATE_ENTRY: Final = 2
_CERTIFICATE_TYPES: Final = (b"X.509", b"X509")
_DATE_SIZE: Final = 8
_DIGEST_SIZE: Final = 20
_SALT_SIZE: Final = 20
_DIGEST_WHITENER: Final = b"Mighty Aphrodite"

# The certificates of all CAs of the Internet are a few hundred. The limit bounds the memory that a file can use.
_MAX_ENTRIES_AND_CERTIFICATES: Final = 20_000

_DER_OCTET_STRING: Final = 0x04
_DER_OID: Final = 0x06
_DER_SEQUENCE: Final = 0x30
_DER_INTEGER: Final = 0x02
_SUN_KEY_PROTECTOR: Final = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1

# The order in which Java's servers list key types, by the OID of the key.
_KEY_TYPE_RANKS: Final = {bytes.fromhex("2a8648ce3d0201"): 0, bytes.fromhex("2a864886f70d010101"): 1}  # EC, RSA


class DamagedStoreError(ValueError):
    """The file is not a complete JKS store; the message is the reason, in a few words."""


class WrongPasswordError(ValueError):
    """The password of the store does not match its digest."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A protected private key and its certificate chain, the key's own certificate first."""

    alias: bytes  # in modified UTF-8
    protected_key: memoryview
    chain: tuple[bytes, ...]  # in DER


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The entries of a store, in the order of the file."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]  # trusted certificates in DER


@dataclass(frozen=True, slots=True)
class OpenedKey:
    """A private key, decrypted, and its certificate chain."""

    alias: str
    key: bytes = field(repr=False)  # PKCS #8 in DER
    chain: tuple[bytes, ...]  # in DER


def read_jks(data: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries of a store; without a password, its digest is not checked.

    Raises:
        DamagedStoreError: The data is not a complete store.
        WrongPasswordError: The digest is not that of the password and the data.
    """
    reader = _Reader(memoryview(data))
    if reader.take(len(MAGIC)).tobytes() != MAGIC:
        raise DamagedStoreError("it does not begin as one")
    version = reader.integer(4)
    if version not in _VERSIONS:
        raise DamagedStoreError(f"its version is {version}")
    entries = _read_entries(reader, version)
    content_size = reader.position
    digest = reader.take(_DIGEST_SIZE)
    if password is not None:
        sha1 = _sha1(password)
        sha1.update(_DIGEST_WHITENER)
        sha1.update(memoryview(data)[:content_size])
        if not hmac.compare_digest(sha1.digest(), digest):
            raise WrongPasswordError
    return JavaKeyStore(
        tuple(entry for entry in entries.values() if isinstance(entry, KeyEntry)),
        tuple(entry for entry in entries.values() if isinstance(entry, bytes)),
    )


def open_keys(store: JavaKeyStore, password: str) -> list[OpenedKey]:
    """Return the keys that the password decrypts, first the one that Java's client would choose."""
    opened = [
        OpenedKey(_decode_alias(entry.alias), key, entry.chain)
        for entry in store.keys
        if (key := _unprotect(entry.protected_key, password)) is not None
    ]
    # Java's ``SunX509`` takes the first key of the first key type that the broker accepts, in the order of a `HashMap`
    # with the aliases as keys. Keys of one bucket are in the order of the `Hashtable` of all entries, from its end.
    map_size = 16
    while len(opened) > map_size * 3 // 4:
        map_size *= 2
    table_size = 11
    while len(store.keys) + len(store.certificates) > table_size * 3 // 4:
        table_size = 2 * table_size + 1

    def order_in_java(entry: OpenedKey) -> tuple[int, int, int]:
        hash_code = _java_hash_code(entry.alias)
        map_bucket = (hash_code ^ hash_code >> 16) % map_size
        return _key_type_rank(entry.key), map_bucket, -((hash_code & 0x7FFF_FFFF) % table_size)

    return sorted(opened, key=order_in_java)


class _Reader:
    """Reads fields of a buffer, whose bounds no field exceeds."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data):
            raise DamagedStoreError("it ends too early")
        field = self._data[self.position : end]
        self.position = end
        return field

    def integer(self, size: int) -> int:
        """Return an unsigned integer: sizes that Java reads as negative are then longer than any file."""
        return int.from_bytes(self.take(size), "big")

    def utf(self) -> bytes:
        return bytes(self.take(self.integer(2)))

    def der(self, tag: int) -> _Reader:
        """Return a reader of the content of the next DER value, which must have this tag."""
        if self.integer(1) != tag:
            raise DamagedStoreError("a private key is not in the format of its encryption")
        size = self.integer(1)
        if size & 0x80:  # the long form: the number of bytes of the size
            size = self.integer(size & 0x7F)
        return _Reader(self.take(size))

    def rest(self) -> memoryview:
        return self.take(len(self._data) - self.position)


def _read_entries(reader: _Reader, version: int) -> dict[bytes, KeyEntry | bytes]:
    """Return key entries and trusted certificates by alias; of two with the same alias, the last one, as in Java."""
    entries: dict[bytes, KeyEntry | bytes] = {}
    entry_count = reader.integer(4)
    _check_count(entry_count)
    remaining_certificates = _MAX_ENTRIES_AND_CERTIFICATES
    for _ in range(entry_count):
        tag = reader.integer(4)
        alias = reader.utf()
        reader.take(_DATE_SIZE)
        if tag == _KEY_ENTRY:
            protected_key = reader.take(reader.integer(4))
            chain_length = reader.integer(4)
            remaining_certificates -= chain_length
            _check_count(_MAX_ENTRIES_AND_CERTIFICATES - remaining_certificates)
            chain = tuple(_read_certificate(reader, version) for _ in range(chain_length))
            entries[alias] = KeyEntry(alias, protected_key, chain)
        elif tag == _TRUSTED_CERTIFICATE_ENTRY:
            entries[alias] = _read_certificate(reader, version)
        else:
            raise DamagedStoreError(f"it has an entry of the unknown type {tag}")
    return entries


def _check_count(count: int) -> None:
    if count > _MAX_ENTRIES_AND_CERTIFICATES:
        raise DamagedStoreError(f"it has more than {_MAX_ENTRIES_AND_CERTIFICATES} entries or certificates")


def _read_certificate(reader: _Reader, version: int) -> bytes:
    if version > 1 and reader.utf() not in _CERTIFICATE_TYPES:
        raise DamagedStoreError("it has a certificate of an unknown type")
    return bytes(reader.take(reader.integer(4)))


def _unprotect(protected_key: memoryview, password: str) -> bytes | None:
    """Return the decrypted key, or ``None`` if it has another password."""
    sequence = _Reader(protected_key).der(_DER_SEQUENCE)
    if sequence.der(_DER_SEQUENCE).der(_DER_OID).rest().tobytes() != _SUN_KEY_PROTECTOR:
        raise DamagedStoreError("the encryption of a private key is not that of JKS")
    content = sequence.der(_DER_OCTET_STRING)
    salt = content.take(_SALT_SIZE)
    encrypted_and_check = content.rest()
    encrypted, check = encrypted_and_check[:-_DIGEST_SIZE], encrypted_and_check[-_DIGEST_SIZE:]
    stream = bytearray()
    block = bytes(salt)
    of_password = _sha1(password)
    while len(stream) < len(encrypted):
        sha1 = of_password.copy()
        sha1.update(block)
        block = sha1.digest()
        stream += block
    del stream[len(encrypted) :]
    key = (int.from_bytes(encrypted, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(encrypted), "big")
    of_password.update(key)
    return key if hmac.compare_digest(of_password.digest(), check) else None


def _sha1(password: str) -> hashlib._Hash:
    # The format has no other hash. It is not used for security here: the file is as trusted as its path.
    return hashlib.sha1(password.encode("utf-16-be", "surrogatepass"), usedforsecurity=False)


def _decode_alias(alias: bytes) -> str:
    """Decode modified UTF-8; an alias is shown and ordered only, so those that are not valid become empty."""
    try:
        text = alias.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        return ""


def _java_hash_code(text: str) -> int:
    """Return ``String.hashCode()`` as an unsigned integer."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    hash_code = 0
    for i in range(0, len(units), 2):
        hash_code = (31 * hash_code + int.from_bytes(units[i : i + 2], "big")) & 0xFFFF_FFFF
    return hash_code


def _key_type_rank(key: bytes) -> int:
    """Return the rank of a key's type: PrivateKeyInfo is SEQUENCE { INTEGER, SEQUENCE { OID, ... }, ... }."""
    try:
        info = _Reader(memoryview(key)).der(_DER_SEQUENCE)
        info.der(_DER_INTEGER)
        oid = info.der(_DER_SEQUENCE).der(_DER_OID).rest()
    except DamagedStoreError:
        return len(_KEY_TYPE_RANKS)
    return _KEY_TYPE_RANKS.get(bytes(oid), len(_KEY_TYPE_RANKS))
