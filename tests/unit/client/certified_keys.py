"""Keys and certificates of a CA, a broker and a client."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


class CertifiedKey:
    """A key with its certificate; it can sign others.

    The certificate lacks a subject and an authority key identifier, like those of older tools.
    """

    def __init__(
        self,
        name: str,
        issuer: CertifiedKey | None = None,
        *,
        hosts: str = "",
        start: datetime.datetime = NOW - DAY,
        days: int = 2,
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = issuer or self
        builder = (
            x509.CertificateBuilder(signer.subject, self.subject, self.key.public_key(), x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + days * DAY)
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        )
        if hosts:
            names: list[x509.GeneralName] = [
                x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
                for host in hosts.split()
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "", form: PrivateFormat = PrivateFormat.PKCS8) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, form, encryption).decode()

    def pkcs12(self, password: str, *others: CertifiedKey) -> bytes:
        certificates = [other.certificate for other in others]
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"x", self.key, self.certificate, certificates, encryption)


CA = CertifiedKey("the CA")
OTHER_CA = CertifiedKey("another CA")
BROKER = CertifiedKey("broker", CA, hosts="localhost 127.0.0.1")
CLIENT = CertifiedKey("client", CA, hosts="client")


def client_context() -> ssl.SSLContext:
    """Return a new context that trusts ``CA``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unlike the default context, not strict in Python 3.13
    context.load_verify_locations(cadata=CA.pem)
    return context
