"""Parser of the TLS settings of brokers, and of the token endpoint of OAUTHBEARER.

Python's ssl module cannot select among the suites of TLS 1.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.option_messages import misplaced_private_key
from pyspark_kafka_direct.options.option_parser import has_private_key
from pyspark_kafka_direct.options.security_settings import TlsSettings, TlsVersion
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.option_parser import ParsedConfig

# A list of names, because OpenSSL's cipher strings can do more than name suites: ``aNULL`` adds suites without
# certificates, and ``@SECLEVEL=0`` accepts any signature. Suites without authentication, encryption or integrity, and
# with RC4, DES or 3DES, are not listed.
CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": "ECDHE-ECDSA-AES128-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": "ECDHE-ECDSA-AES256-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": "ECDHE-ECDSA-AES128-CCM8",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8": "ECDHE-ECDSA-AES256-CCM8",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_CCM": "DHE-RSA-AES128-CCM",
    "TLS_DHE_RSA_WITH_AES_256_CCM": "DHE-RSA-AES256-CCM",
    "TLS_DHE_RSA_WITH_AES_128_CCM_8": "DHE-RSA-AES128-CCM8",
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": "DHE-RSA-AES256-CCM8",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CCM": "AES128-CCM",
    "TLS_RSA_WITH_AES_256_CCM": "AES256-CCM",
    "TLS_RSA_WITH_AES_128_CCM_8": "AES128-CCM8",
    "TLS_RSA_WITH_AES_256_CCM_8": "AES256-CCM8",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
"""The suites of TLS 1.2: the name of IANA and Java to the name of OpenSSL."""

TLS_13_SUITES: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
"""The suites of TLS 1.3, which have one name."""


_UNSUPPORTED_VERSIONS: Final = ("SSLV2", "SSLV3", "SSLV2HELLO", "TLSV1", "TLSV1.0", "TLSV1.1")
_DEFAULT_TLS_13_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_OPENSSL_NAMES: Final = frozenset(CIPHER_SUITES.values())


def parse_tls(parsed: ParsedConfig, warnings: list[str]) -> TlsSettings:
    """Parse the TLS settings; add warnings about old versions and weakened security."""
    _reject_alternatives(parsed, "ssl.truststore.location", "ssl.truststore.certificates")
    _reject_alternatives(parsed, "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
    _reject_alternatives(parsed, "ssl.keystore.location", "ssl.keystore.key", "ssl.key.location")
    _check_client_certificate(parsed)
    check_hostname = parsed.get_string("ssl.endpoint.identification.algorithm") == "https"
    if not check_hostname:
        warnings.append(
            f"{parsed.name_of('ssl.endpoint.identification.algorithm')} disables host name verification: every "
            "certificate that a trusted CA signed is accepted for every broker"
        )
    enabled_versions = _parse_version_range(parsed, warnings)
    tls_12_suites, (minimum_version, maximum_version) = _parse_cipher_suites(
        parsed.get_string("ssl.cipher.suites"), parsed.name_of("ssl.cipher.suites"), enabled_versions, warnings
    )
    location = parsed.get_string("ssl.truststore.location")
    return TlsSettings(
        truststore_location=None if location == "probe" else location,  # librdkafka's value for the CAs of the system
        truststore_certificates=parsed.get_string("ssl.truststore.certificates"),
        truststore_password=parsed.get_secret("ssl.truststore.password"),
        keystore_location=parsed.get_string("ssl.keystore.location"),
        keystore_password=parsed.get_secret("ssl.keystore.password"),
        certificate_location=parsed.get_string("ssl.certificate.location"),
        certificate_chain=parsed.get_secret("ssl.keystore.certificate.chain"),
        key_location=parsed.get_string("ssl.key.location"),
        key=parsed.get_secret("ssl.keystore.key"),
        key_password=parsed.get_secret("ssl.key.password"),
        check_hostname=check_hostname,
        minimum_version=minimum_version,
        maximum_version=maximum_version,
        cipher_suites=tls_12_suites,
    )


def _check_client_certificate(parsed: ParsedConfig) -> None:
    """Raise an error if a private key has no certificate, or a certificate no key in the right option."""
    certificate_name = _given_name(parsed, "ssl.keystore.certificate.chain", "ssl.certificate.location")
    key_name = _given_name(parsed, "ssl.keystore.key", "ssl.key.location")
    if key_name and not certificate_name:
        raise OptionError(
            f"{key_name} is a private key without its certificate; also set "
            f"{parsed.name_of('ssl.keystore.certificate.chain')}"
        )
    chain = parsed.get_secret("ssl.keystore.certificate.chain")
    if certificate_name is None or chain is None:
        return  # unlike the option, a certificate file may contain the key
    if has_private_key(chain.reveal()):
        raise misplaced_private_key(certificate_name)
    if not key_name:
        raise OptionError(
            f"{certificate_name} is a certificate without its private key; also set "
            f"{parsed.name_of('ssl.keystore.key')}"
        )


def _parse_version_range(parsed: ParsedConfig, warnings: list[str]) -> tuple[TlsVersion, TlsVersion]:
    """Return the lowest and the highest enabled version."""
    name = parsed.name_of("ssl.enabled.protocols")
    enabled: set[TlsVersion] = set()
    for version in parsed.get_list("ssl.enabled.protocols"):
        match version.upper():
            case "TLSV1.2":
                enabled.add("TLSv1.2")
            case "TLSV1.3":
                enabled.add("TLSv1.3")
            case upper if upper in _UNSUPPORTED_VERSIONS:
                warnings.append(f"{name}: {version} is too old and ignored; the oldest supported version is TLSv1.2")
            case _:
                raise invalid_value(name, version, "TLSv1.2, TLSv1.3 or both", candidates=("TLSv1.2", "TLSv1.3"))
    # `ssl.protocol` is the newest version to use. It has no effect if only TLSv1.3 is enabled.
    if parsed.get_string("ssl.protocol") == "TLSv1.2" and "TLSv1.2" in enabled:
        enabled = {"TLSv1.2"}
    if not enabled:
        raise OptionError(f"{name} has no supported version; set it to TLSv1.2,TLSv1.3")
    return min(enabled), max(enabled)  # the names have the order of the versions


def _reject_alternatives(parsed: ParsedConfig, *names: str) -> None:
    """Raise an error if more than one of the options is set."""
    given_names = [parsed.given_names[name] for name in names if name in parsed.given_names]
    if len(given_names) > 1:
        raise OptionError(f"{' and '.join(given_names)} exclude each other; set only one of them")


def _given_name(parsed: ParsedConfig, *names: str) -> str | None:
    """Return the name under which the user set the first of the options that is set."""
    return next((parsed.given_names[name] for name in names if name in parsed.given_names), None)


def _parse_cipher_suites(
    value: str | None, option_name: str, versions: tuple[TlsVersion, TlsVersion], warnings: list[str]
) -> tuple[tuple[str, ...], tuple[TlsVersion, TlsVersion]]:
    """Return the OpenSSL names of the TLS 1.2 suites, and ``versions`` (lowest, highest) limited to those with a suite.

    As in Java, a list without TLS 1.3 suites disables TLS 1.3, and a list of only TLS 1.3 suites disables TLS 1.2.
    TLS 1.3 suites are not returned because Python's ssl module cannot select them.
    """
    suites = [suite for suite in re.split(r"[,:\s]+", value or "") if suite]
    if not suites:
        return (), versions
    tls_12_suites = tuple(_openssl_name(suite, option_name) for suite in suites if suite not in TLS_13_SUITES)
    tls_13_suites = [suite for suite in suites if suite in TLS_13_SUITES]
    minimum, maximum = versions
    if not tls_13_suites:
        maximum = "TLSv1.2"
    if not tls_12_suites:
        minimum = "TLSv1.3"
    unwanted_suites = [suite for suite in _DEFAULT_TLS_13_SUITES if suite not in tls_13_suites]
    if tls_13_suites and unwanted_suites and maximum == "TLSv1.3":
        warnings.append(
            f"{option_name} cannot select among the suites of TLS 1.3, so connections may also use "
            f"{', '.join(unwanted_suites)}; to exclude them, set Ciphersuites in the configuration file of OpenSSL"
        )
    if minimum > maximum:  # only if a single version is enabled
        raise OptionError(
            f"{option_name} has no suite for {versions[0]}, which ssl.protocol and ssl.enabled.protocols enable"
        )
    return tls_12_suites, (minimum, maximum)


def _openssl_name(suite: str, option_name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite that is named in Java's or OpenSSL's form."""
    if suite in _OPENSSL_NAMES:
        return suite
    name = CIPHER_SUITES.get(re.sub("^SSL_", "TLS_", suite))  # the JDK of IBM has names with SSL_
    if name is None:
        raise OptionError(
            f"{option_name}: the cipher suite {suite!r} is not supported; use names such as "
            f"{next(iter(CIPHER_SUITES))} or TLS_AES_256_GCM_SHA384, or remove the option"
        )
    return name
