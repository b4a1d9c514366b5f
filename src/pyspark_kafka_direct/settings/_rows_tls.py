"""Client settings of TLS (see ``_rows_connect`` for their sources)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark_kafka_direct.settings._rows import connecting, ignored, refused
from pyspark_kafka_direct.settings.row import BY_NAME, Kind, Origin, Written

_JAVA_ONLY: Final = "it names Java code, which does not run here"

_ROWS: Final = (
    connecting(
        "security.protocol",
        "whether to use TLS (SSL), a log-in (SASL), both or none",
        default="PLAINTEXT",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        kind=Kind.WORD,
    ),
    connecting(
        "ssl.truststore.location",
        "file with the CA certificates brokers are checked against: PEM or PKCS12; none means the system's CAs",
        "ssl.ca.location",
    ),
    connecting("ssl.truststore.certificates", "the CA certificates themselves, as PEM text", "ssl.ca.pem"),
    connecting("ssl.truststore.password", "password of a PKCS12 truststore", secret=True),
    connecting(
        "ssl.truststore.type",
        "format of the truststore; found out from the file, so never needed",
        allowed=("PEM", "PKCS12", "JKS"),
        kind=Kind.WORD,
    ),
    connecting("ssl.keystore.location", "file with this client's certificate and private key: PEM or PKCS12"),
    connecting("ssl.keystore.password", "password of a PKCS12 keystore", secret=True),
    connecting(
        "ssl.keystore.type",
        "format of the keystore; found out from the file, so never needed",
        allowed=("PEM", "PKCS12", "JKS"),
        kind=Kind.WORD,
    ),
    connecting(
        "ssl.keystore.certificate.chain",
        "this client's certificate and its issuers, as PEM text",
        "ssl.certificate.pem",
        secret=True,
    ),
    connecting("ssl.keystore.key", "this client's private key, as PEM text", "ssl.key.pem", secret=True),
    connecting("ssl.key.password", "password of the private key", secret=True),
    connecting(
        "ssl.certificate.location", "PEM file with this client's certificate and its issuers (librdkafka's name)"
    ),
    connecting("ssl.key.location", "PEM file with this client's private key (librdkafka's name)"),
    connecting(
        "ssl.endpoint.identification.algorithm",
        "https checks that the certificate names the broker's host; empty or none switches that off",
        default="https",
        allowed=("https", "none", ""),
        kind=Kind.WORD,
    ),
    connecting(
        "ssl.protocol",
        "newest TLS version to use",
        default="TLSv1.3",
        allowed=("TLSv1.3", "TLSv1.2", "TLS"),
        kind=Kind.WORD,
    ),
    connecting("ssl.enabled.protocols", "TLS versions to use", kind=Kind.LIST, default="TLSv1.2,TLSv1.3"),
    connecting(
        "ssl.cipher.suites",
        "cipher suites to offer, by their IANA (Java) or OpenSSL names; none means OpenSSL's own choice",
    ),
    refused(
        "connect",
        "enable.ssl.certificate.verification",
        "certificates are always verified; give the CA in kafka.ssl.truststore.certificates or "
        "kafka.ssl.truststore.location (and only if the broker's host name is not in its certificate, set "
        "kafka.ssl.endpoint.identification.algorithm to an empty text)",
        harmless=("true",),
    ),
    refused(
        "connect",
        "ssl.engine.factory.class",
        "a Java class cannot make the TLS engine here; give certificates and key with kafka.ssl.truststore.* and "
        "kafka.ssl.keystore.*",
    ),
    refused("connect", "ssl.crl.location", "revocation lists are not supported"),
    refused("connect", "ssl.engine.location", "OpenSSL engines are not supported; give the key as PEM or PKCS12"),
    refused("connect", "ssl.providers", "OpenSSL providers are not supported; give the key as PEM or PKCS12"),
    refused(
        "connect",
        "ssl.ca.certificate.stores",
        "export the CAs to a PEM file and name it in kafka.ssl.truststore.location",
    ),
    *ignored(
        "connect",
        _JAVA_ONLY,
        "ssl.provider",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "ssl.engine.id",
    ),
    *ignored("connect", "OpenSSL's own choice is used", "ssl.curves.list", "ssl.sigalgs.list"),
)

# OAUTHBEARER's token endpoint has TLS settings of its own, under the same names inside sasl.jaas.config.
_ALSO_INSIDE: Final = (*BY_NAME, Written(Origin.JAAS))

TLS_ROWS: Final = tuple(replace(row, origins=_ALSO_INSIDE) if row.name.startswith("ssl.") else row for row in _ROWS)
