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


def java_truststore(certificates: Certificates, store_type: str) -> Path:
    """Return the authority in a trust store as ``keytool`` writes it: ``PKCS12`` or ``JKS``."""
    file = certificates.folder / f"truststore.{store_type.lower()}"
    if not file.exists():
        keytool = str(find_java().resolve().with_name("keytool"))
        source = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca)]
        store = ["-keystore", str(file), "-storetype", store_type, "-storepass", certificates.password]
        subprocess.run([keytool, *source, *store], check=True, capture_output=True, timeout=600)
    return file
