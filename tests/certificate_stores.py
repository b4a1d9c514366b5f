"""Forms of the embedded broker's certificates that users have, but that the broker and its examples do not need."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pyspark_kafka_direct.broker.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import Certificates

KEY_PASSWORD: Final = "key-secret"


def encrypted_client_key(certificates: Certificates) -> Path:
    """Return the client's key, encrypted with ``KEY_PASSWORD``."""
    key = load_pem_private_key(certificates.client_key.read_bytes(), None)
    file = certificates.folder / "client-encrypted.key"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
    )
    return file


def java_keystore(certificates: Certificates) -> Path:
    """Return the client's key and chain in a key store of the type JKS, whose key has the store's password."""
    file = certificates.folder / "client.jks"
    if not file.exists():
        opens = ["-srcstorepass", certificates.password, "-deststorepass", certificates.password]
        source = ["-srckeystore", str(certificates.client_p12), "-srcstoretype", "PKCS12"]
        _keytool("-importkeystore", *source, "-destkeystore", str(file), "-deststoretype", "JKS", *opens)
    return file


def java_truststore(certificates: Certificates, store_type: str) -> Path:
    """Return the authority in a trust store as ``keytool`` writes it: ``PKCS12`` or ``JKS``."""
    file = certificates.folder / f"truststore.{store_type.lower()}"
    if not file.exists():
        source = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca)]
        store = ["-keystore", str(file), "-storetype", store_type, "-storepass", certificates.password]
        _keytool(*source, *store)
    return file


def _keytool(*arguments: str) -> None:
    keytool = str(find_java().resolve().with_name("keytool"))
    subprocess.run([keytool, *arguments], check=True, capture_output=True, timeout=600)
