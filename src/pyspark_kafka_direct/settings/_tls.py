"""From client settings to TLS settings: of the brokers, and of a token endpoint, which has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._ciphers import read_cipher_suites
from pyspark_kafka_direct.settings._messages import bad_value
from pyspark_kafka_direct.settings.security import TlsSettings, TlsVersion

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read

_TOO_OLD: Final = ("SSLV2", "SSLV3", "SSLV2HELLO", "TLSV1", "TLSV1.0", "TLSV1.1")


def read_tls(read: Read, notes: list[str]) -> TlsSettings:
    """Build TLS settings.

    The token endpoint of OAUTHBEARER has TLS settings of its own, under the same names inside ``sasl.jaas.config``.

    Args:
        read: What was given.
        notes: Gets a line for what is left out or weakens security.

    Raises:
        OptionError: Settings contradict one another.
    """
    _at_most_one(read, "ssl.truststore.location", "ssl.truststore.certificates")
    _at_most_one(read, "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
    _at_most_one(read, "ssl.keystore.location", "ssl.keystore.key", "ssl.key.location")
    chain = _name_of(read, "ssl.keystore.certificate.chain", "ssl.certificate.location")
    key = _name_of(read, "ssl.keystore.key", "ssl.key.location")
    if key and not chain:
        raise OptionError(
            f"{key} gives a private key without its certificate; add {read.name('ssl.keystore.certificate.chain')}"
        )
    text = read.secret("ssl.keystore.certificate.chain")
    if text is not None and not key and "PRIVATE KEY" not in text.reveal():
        raise OptionError(f"{chain} gives a certificate without its private key; add {read.name('ssl.keystore.key')}")
    check_hostname = read.text("ssl.endpoint.identification.algorithm") == "https"
    if not check_hostname:
        notes.append(
            f"{read.name('ssl.endpoint.identification.algorithm')} switches host name checks off: whoever has "
            "any certificate of the trusted CA can pose as the broker"
        )
    versions = _versions(read, notes)
    suites, versions = read_cipher_suites(read.text("ssl.cipher.suites"), read.name("ssl.cipher.suites"), versions)
    location = read.text("ssl.truststore.location")
    return TlsSettings(
        truststore_location=None if location == "probe" else location,  # librdkafka's word for the system's CAs
        truststore_certificates=read.text("ssl.truststore.certificates"),
        truststore_password=read.secret("ssl.truststore.password"),
        keystore_location=read.text("ssl.keystore.location"),
        keystore_password=read.secret("ssl.keystore.password"),
        certificate_location=read.text("ssl.certificate.location"),
        certificate_chain=read.secret("ssl.keystore.certificate.chain"),
        key_location=read.text("ssl.key.location"),
        key=read.secret("ssl.keystore.key"),
        key_password=read.secret("ssl.key.password"),
        check_hostname=check_hostname,
        minimum_version=versions[0],
        maximum_version=versions[1],
        cipher_suites=suites,
    )


def _versions(read: Read, notes: list[str]) -> tuple[TlsVersion, TlsVersion]:
    name = read.name("ssl.enabled.protocols")
    enabled: set[TlsVersion] = set()
    for word in read.entries("ssl.enabled.protocols"):
        match word.upper():
            case "TLSV1.2":
                enabled.add("TLSv1.2")
            case "TLSV1.3":
                enabled.add("TLSv1.3")
            case old if old in _TOO_OLD:
                notes.append(f"{name}: {word} is too old and left out; TLSv1.2 is the oldest that is used")
            case _:
                raise bad_value(name, word, "TLSv1.2, TLSv1.3 or both", words=("TLSv1.2", "TLSv1.3"))
    if read.text("ssl.protocol") == "TLSv1.2" and "TLSv1.2" in enabled:
        enabled = {"TLSv1.2"}
    if not enabled:
        raise OptionError(f"{name} names no version that can be used; write TLSv1.2,TLSv1.3")
    return min(enabled), max(enabled)


def _at_most_one(read: Read, *names: str) -> None:
    found = [read.given[name] for name in names if name in read.given]
    if len(found) > 1:
        raise OptionError(f"{' and '.join(found)} exclude each other; give one of them")


def _name_of(read: Read, *names: str) -> str | None:
    return next((read.given[name] for name in names if name in read.given), None)
