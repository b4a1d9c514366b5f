"""Certificates for a test cluster: an authority, a broker, a client, and a stranger whom nobody knows."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker._java import find_java
from pyspark_kafka_direct.broker._tools import run_together
from pyspark_kafka_direct.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_PASSWORD = "store-secret"  # noqa: S105 - guards nothing: the stores are made for one test run
_KEY_PASSWORD = "key-secret"  # noqa: S105
_VALID = datetime.timedelta(days=30)
_KEYTOOL_DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of one folder. ``*.pem`` are certificates and ``*.key`` PKCS #8 keys, both as PEM text."""

    folder: Path
    password: str = field(default=_PASSWORD, repr=False)
    """The password of every ``*.p12`` and ``*.jks``."""
    key_password: str = field(default=_KEY_PASSWORD, repr=False)
    """The password of ``client_encrypted_key``."""

    @property
    def ca(self) -> Path:
        """The authority that signed the broker and the client."""
        return self.folder / "ca.pem"

    @property
    def wrong_ca(self) -> Path:
        """An authority that signed neither."""
        return self.folder / "wrong-ca.pem"

    @property
    def client(self) -> Path:
        """The client's certificate; the broker sees the principal ``User:CN=client``."""
        return self.folder / "client.pem"

    @property
    def client_key(self) -> Path:
        """The client's key, not encrypted."""
        return self.folder / "client.key"

    @property
    def client_encrypted_key(self) -> Path:
        """The same key, encrypted with ``key_password``."""
        return self.folder / "client-encrypted.key"

    @property
    def client_p12(self) -> Path:
        """The client's key and certificate in a PKCS #12 key store."""
        return self.folder / "client.p12"

    @property
    def client_jks(self) -> Path:
        """The same in Java's own format."""
        return self.folder / "client.jks"

    @property
    def truststore_p12(self) -> Path:
        """The authority in a PKCS #12 trust store as ``keytool`` writes it."""
        return self.folder / "truststore.p12"

    @property
    def truststore_jks(self) -> Path:
        """The same in Java's own format."""
        return self.folder / "truststore.jks"

    @property
    def stranger(self) -> Path:
        """A client's certificate signed by ``wrong_ca``."""
        return self.folder / "stranger.pem"

    @property
    def stranger_key(self) -> Path:
        """The stranger's key."""
        return self.folder / "stranger.key"

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
    """Make all of them, valid for a month.

    Args:
        folder: Made where missing; only its owner may read it.
        hosts: Names and addresses that the broker's certificate is for.

    Raises:
        ToolError: Java's ``keytool`` is missing or failed.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Certificates(folder)
    authority, wrong = _Authority("Test CA"), _Authority("Wrong CA")
    made.ca.write_bytes(_pem(authority.certificate))
    made.wrong_ca.write_bytes(_pem(wrong.certificate))
    for name, signer in (("broker", authority), ("client", authority), ("stranger", wrong)):
        key, certificate = signer.sign(name, hosts if name == "broker" else ())
        _write(folder, name, key, certificate, signer.certificate)
    _write_java_stores(made)
    return made


class _Authority:
    """A key and the certificate it signed for itself."""

    def __init__(self, name: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
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
        # Python 3.13 checks as RFC 5280 wants: an authority without these extensions is refused there.
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
            (x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False),
        ]
        self.certificate = self._signed(self.name, self.key.public_key(), extensions)

    def sign(self, name: str, hosts: Sequence[str]) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Make a key, and a certificate for it."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
        ]
        if hosts:
            extensions.append((x509.SubjectAlternativeName([_host(host) for host in hosts]), False))
        return key, self._signed(_name(name), key.public_key(), extensions)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(issuer_name=self.name, subject_name=subject, public_key=key)
        builder = builder.serial_number(x509.random_serial_number())
        # A clock a little behind must not make a certificate "not yet valid".
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + _VALID)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())


def _write(
    folder: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    issuer: x509.Certificate,
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encrypted = serialization.BestAvailableEncryption(_KEY_PASSWORD.encode())
    store = serialization.BestAvailableEncryption(_PASSWORD.encode())
    (folder / f"{name}.pem").write_bytes(_pem(certificate))
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    (folder / f"{name}-encrypted.key").write_bytes(key.private_bytes(pem, pkcs8, encrypted))
    bundle = pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [issuer], store)
    (folder / f"{name}.p12").write_bytes(bundle)


def _write_java_stores(made: Certificates) -> None:
    """Let Java's own tool write what only Java writes so: trust stores, and the JKS format."""
    tool = str(find_java().resolve().with_name("keytool"))
    trust = [tool, "-importcert", "-noprompt", "-alias", "ca", "-file", str(made.ca), "-storepass", _PASSWORD]
    convert = [tool, "-importkeystore", "-noprompt", "-srckeystore", str(made.client_p12), "-srcstorepass", _PASSWORD]
    convert += ["-destkeystore", str(made.client_jks), "-deststoretype", "JKS", "-deststorepass", _PASSWORD]
    commands = {
        made.truststore_p12: [*trust, "-keystore", str(made.truststore_p12), "-storetype", "PKCS12"],
        made.truststore_jks: [*trust, "-keystore", str(made.truststore_jks), "-storetype", "JKS"],
        made.client_jks: convert,
    }
    for store, (code, said) in zip(commands, run_together(list(commands.values()), _KEYTOOL_DEADLINE), strict=True):
        if code != 0:
            raise ToolError(
                f"{tool} could not write {store} (exit code {code}): {said.strip()}. "
                "Look at what it says, or let JAVA_HOME name another Java."
            )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
