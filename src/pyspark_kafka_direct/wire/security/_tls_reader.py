"""From client settings to TLS settings: of the brokers, and of a token endpoint, which has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.security import TlsSettings, TlsVersion
from pyspark_kafka_direct.wire.security._ciphers import read_cipher_suites

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings.secret import Secret
    from pyspark_kafka_direct.wire._setting import Value

_TOO_OLD: Final = ("SSLV2", "SSLV3", "SSLV2HELLO", "TLSV1", "TLSV1.0", "TLSV1.1")


def read_tls(values: Mapping[str, Value], given: Mapping[str, str], notes: list[str]) -> TlsSettings:
    """Build TLS settings from values of the table.

    The token endpoint of OAUTHBEARER has TLS settings of its own, under the same names inside ``sasl.jaas.config``.

    Raises:
        OptionError: Settings contradict one another.
    """
    _at_most_one(given, "ssl.truststore.location", "ssl.truststore.certificates")
    _at_most_one(given, "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
    _at_most_one(given, "ssl.keystore.location", "ssl.keystore.key", "ssl.key.location")
    chain = _name_of(given, "ssl.keystore.certificate.chain", "ssl.certificate.location")
    key = _name_of(given, "ssl.keystore.key", "ssl.key.location")
    if key and not chain:
        raise OptionError(
            f"option kafka.{key} gives a private key without its certificate; add kafka.ssl.keystore.certificate.chain"
        )
    text = _optional_secret(values, "ssl.keystore.certificate.chain")
    if text is not None and not key and "PRIVATE KEY" not in text.reveal():
        raise OptionError(
            f"option kafka.{chain} gives a certificate without its private key; add kafka.ssl.keystore.key"
        )
    check_hostname = values["ssl.endpoint.identification.algorithm"] == "https"
    if not check_hostname:
        notes.append(
            f"option kafka.{given['ssl.endpoint.identification.algorithm']} switches host name checks off: whoever has "
            "any certificate of the trusted CA can pose as the broker"
        )
    versions = _versions(values, given, notes)
    suites, versions = read_cipher_suites(values.get("ssl.cipher.suites"), given.get("ssl.cipher.suites"), versions)
    location = _optional(values, "ssl.truststore.location")
    return TlsSettings(
        truststore_location=None if location == "probe" else location,  # librdkafka's word for the system's CAs
        truststore_certificates=_optional(values, "ssl.truststore.certificates"),
        truststore_password=_optional_secret(values, "ssl.truststore.password"),
        keystore_location=_optional(values, "ssl.keystore.location"),
        keystore_password=_optional_secret(values, "ssl.keystore.password"),
        certificate_location=_optional(values, "ssl.certificate.location"),
        certificate_chain=_optional_secret(values, "ssl.keystore.certificate.chain"),
        key_location=_optional(values, "ssl.key.location"),
        key=_optional_secret(values, "ssl.keystore.key"),
        key_password=_optional_secret(values, "ssl.key.password"),
        check_hostname=check_hostname,
        minimum_version=versions[0],
        maximum_version=versions[1],
        cipher_suites=suites,
    )


def _versions(values: Mapping[str, Value], given: Mapping[str, str], notes: list[str]) -> tuple[TlsVersion, TlsVersion]:
    name = given.get("ssl.enabled.protocols", "ssl.enabled.protocols")
    enabled: set[TlsVersion] = set()
    for word in cast("tuple[str, ...]", values["ssl.enabled.protocols"]):
        match word.upper():
            case "TLSV1.2":
                enabled.add("TLSv1.2")
            case "TLSV1.3":
                enabled.add("TLSv1.3")
            case old if old in _TOO_OLD:
                notes.append(f"option kafka.{name}: {word} is too old and left out; TLSv1.2 is the oldest that is used")
            case _:
                raise OptionError(f"option kafka.{name}: {word!r} is not allowed; write TLSv1.2, TLSv1.3 or both")
    if values["ssl.protocol"] == "TLSv1.2" and "TLSv1.2" in enabled:
        enabled = {"TLSv1.2"}
    if not enabled:
        raise OptionError(f"option kafka.{name} names no version that can be used; write TLSv1.2,TLSv1.3")
    return min(enabled), max(enabled)


def _at_most_one(given: Mapping[str, str], *names: str) -> None:
    found = [f"kafka.{given[name]}" for name in names if name in given]
    if len(found) > 1:
        raise OptionError(f"options {' and '.join(found)} exclude each other; give one of them")


def _name_of(given: Mapping[str, str], *names: str) -> str | None:
    return next((given[name] for name in names if name in given), None)


def _optional(values: Mapping[str, Value], name: str) -> str | None:
    return cast("str | None", values.get(name))


def _optional_secret(values: Mapping[str, Value], name: str) -> Secret | None:
    return cast("Secret | None", values.get(name))
