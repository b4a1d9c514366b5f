"""Certificates for the listeners with TLS: an authority, a broker and a client.

Users need them to try TLS with ``EmbeddedKafka(security=...)``. They are generated, so that the wheel contains no
private key, and in Python, because Java's ``keytool`` does not export private keys to PEM files.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_PASSWORD = "store-secret"  # noqa: S105 - protects nothing: the stores are for tests
_VALIDITY = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the generated files. ``*.pem`` are certificates and ``*.key`` PKCS #8 keys, both in PEM format."""

    folder: Path
    password: str = field(default=_PASSWORD, repr=False)
    """Password of every ``*.p12``."""

    @property
    def ca(self) -> Path:
        """The authority that signed the certificates of the broker and the client."""
        return self.folder / "ca.pem"

    @property
    def client(self) -> Path:
        """The client's certificate; its principal is ``User:CN=client``."""
        return self.folder / "client.pem"

    @property
    def client_key(self) -> Path:
        """The client's key, not encrypted."""
        return self.folder / "client.key"

    @property
    def client_p12(self) -> Path:
        """The client's key and certificate in a PKCS #12 key store."""
        return self.folder / "client.p12"

    @property
    def broker(self) -> Path:
        """The broker's certificate."""
        return self.folder / "broker.pem"

    @property
    def broker_key(self) -> Path:
        """The broker's key."""
        return self.folder / "broker.key"

    @property
    def broker_p12(self) -> Path:
        """The broker's key store."""
        return self.folder / "broker.p12"


def make_certificates(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> Certificates:
    """Create certificates that are valid for 30 days, with their keys and key stores.

    Args:
        folder: Created if missing; only its owner may read it.
        hosts: Names and addresses that the broker's certificate is for.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificates = Certificates(folder)
    authority = _CertificateAuthority("Test CA")
    certificates.ca.write_bytes(_pem(authority.certificate))
    for name, own_hosts in (("broker", hosts), ("client", ())):
        key, certificate = authority.sign(name, own_hosts)
        _write_key_pair(folder, name, key, certificate, authority.certificate)
    return certificates


class _CertificateAuthority:
    """A key with a self-signed certificate."""

    def __init__(self, name: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _x509_name(name)
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        # Python 3.13 checks RFC 5280 strictly: it rejects an authority without these extensions.
        extensions: list[tuple[x509.ExtensionType, bool]] = [  # each with whether it is critical
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
            (x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False),
        ]
        self.certificate = self._signed(self.name, self.key.public_key(), extensions)

    def sign(self, name: str, hosts: Sequence[str]) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Return a new key and its certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = [  # each with whether it is critical
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
        ]
        if hosts:
            extensions.append((x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False))
        return key, self._signed(_x509_name(name), key.public_key(), extensions)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(issuer_name=self.name, subject_name=subject, public_key=key)
        builder = builder.serial_number(x509.random_serial_number())
        # The validity starts a day ago, because a peer's clock may be slightly behind.
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + _VALIDITY)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())


def _write_key_pair(
    folder: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    issuer: x509.Certificate,
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    store_encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
    (folder / f"{name}.pem").write_bytes(_pem(certificate))
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    bundle = pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [issuer], store_encryption)
    (folder / f"{name}.p12").write_bytes(bundle)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _x509_name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
