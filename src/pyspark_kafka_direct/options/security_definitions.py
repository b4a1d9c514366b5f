"""Client settings of TLS and SASL (sources: see ``connection_definitions``)."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from pyspark_kafka_direct.options.config_option import OPTION_OR_PARAMETER, ConfigSource, SourceKey
from pyspark_kafka_direct.options.connection_definitions import connection
from pyspark_kafka_direct.options.value_types import (
    BOOLEAN,
    INT64,
    LIST,
    NUMBER,
    POSITIVE_INT32,
    SECRET,
    STRING,
    Enum,
    Integer,
    Text,
)


def _or_jaas(name: str = "") -> tuple[SourceKey, ...]:
    return (*OPTION_OR_PARAMETER, SourceKey(ConfigSource.JAAS, name))


# The token endpoint of OAUTHBEARER has separate TLS settings, with the same names, inside sasl.jaas.config.
OPTION_PARAMETER_OR_JAAS: Final = _or_jaas()
_security: Final = partial(connection, changes_results=True)
_tls: Final = partial(_security, source_keys=OPTION_PARAMETER_OR_JAAS)
_STORE_TYPE: Final = Enum(("PEM", "PKCS12", "JKS"))

# Databricks prefixes the names in its relocated client.
_RETRIEVER_CLASS: Final = Text(
    pattern=re.compile(
        r"(?:kafkashaded\.)?org\.apache\.kafka\.common\.security\.oauthbearer\."
        "(?:DefaultJwtRetriever|ClientCredentialsJwtRetriever|FileJwtRetriever|JwtBearerJwtRetriever)"
    ),
    expected="a retriever of Kafka, such as org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever (other "
    "Java classes cannot run here; for another source of tokens, set the option oauthTokenProvider)",
)

# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
TLS_OPTIONS: Final = (
    _security("security.protocol", Enum(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), "PLAINTEXT",
        doc="`PLAINTEXT` has neither TLS nor a login. `SSL` is TLS, `SASL_PLAINTEXT` a login, and `SASL_SSL` both."),
    _tls("ssl.truststore.location", aliases=("ssl.ca.location",),
        doc="PEM, PKCS12 or JKS file with the CA certificates that verify brokers. By default, the CAs of the system."),
    _tls("ssl.truststore.certificates", aliases=("ssl.ca.pem",), doc="The CA certificates in PEM format."),
    _tls("ssl.truststore.password", SECRET, doc="Password of a PKCS12 or JKS truststore."),
    _tls("ssl.truststore.type", _STORE_TYPE,
        doc="Format of the truststore. By default, it is detected."),
    _tls("ssl.keystore.location", doc="PEM, PKCS12 or JKS file with the client's certificate and private key."),
    _tls("ssl.keystore.password", SECRET, doc="Password of a PKCS12 or JKS keystore."),
    _tls("ssl.keystore.type", _STORE_TYPE,
        doc="Format of the keystore. By default, it is detected."),
    _tls("ssl.keystore.certificate.chain", SECRET, aliases=("ssl.certificate.pem",),
        doc="The client's certificate and its issuers in PEM format."),
    _tls("ssl.keystore.key", SECRET, aliases=("ssl.key.pem",), doc="The client's private key in PEM format."),
    _tls("ssl.key.password", SECRET,
        doc="Password of the private key. For JKS, the default is the password of the keystore."),
    _tls("ssl.certificate.location", doc="PEM file with the client's certificate and its issuers."),
    _tls("ssl.key.location", doc="PEM file with the client's private key."),
    _tls("ssl.endpoint.identification.algorithm", Enum(("https", "none", "")), "https",
        doc="`https` verifies that the certificate of a broker names its host. An empty value or `none` disables "
            "this."),
    _tls("ssl.protocol", Enum(("TLSv1.3", "TLSv1.2", "TLS", "SSL")), "TLSv1.3",
        doc="Newest TLS version. `TLS` (in Java also `SSL`) is the newest enabled one."),
    _tls("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", doc="Enabled TLS versions."),
    _tls("ssl.cipher.suites",
        doc="Cipher suites to offer, with their IANA (Java) or OpenSSL names. By default, OpenSSL chooses them."),
)

SASL_OPTIONS: Final = (
    _security("sasl.mechanism", aliases=("sasl.mechanisms",),
        doc="`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `GSSAPI` (Kerberos), or `AWS_MSK_IAM`. With "
            "a `Krb5LoginModule` or a `sasl.kerberos.*` setting, the default is `GSSAPI`."),
    _security("sasl.jaas.config", SECRET, doc="Credentials in Java's format: a login module and its options."),
    _security("sasl.login.callback.handler.class",
        doc="Java's name of a source of OAUTHBEARER tokens: one of the classes in [security](security.md#tokens)."),
    _security("sasl.username", source_keys=_or_jaas("username"),
        doc="User name for PLAIN and SCRAM."),
    _security("sasl.password", SECRET, verbatim=True, source_keys=_or_jaas("password"),
        doc="Password for PLAIN and SCRAM."),
    _security("sasl.kerberos.service.name", STRING, "kafka", source_keys=_or_jaas("serviceName"),
        doc="First part of the brokers' Kerberos principals."),
    _security("sasl.kerberos.principal", source_keys=_or_jaas("principal"),
        doc="Kerberos principal that logs in."),
    _security("sasl.kerberos.keytab", source_keys=_or_jaas("keyTab"),
        doc="File with the key of the principal, on each host."),
    connection("sasl.kerberos.ticket.renew.window.factor", NUMBER, "0.8",
        doc="Part of the lifetime of a Kerberos ticket after which the next connection logs in again."),
    connection("sasl.kerberos.min.time.before.relogin", INT64, "60000",
        doc="Time between a failed renewal of a Kerberos ticket and the next one, in ms."),
    _security("sasl.oauthbearer.token.endpoint.url",
        doc="`https:` URL to fetch OAUTHBEARER tokens from, or `http:` on localhost. Other URLs must be listed in "
            "`PYSPARK_KAFKA_DIRECT_TOKEN_URLS`."),
    _security("sasl.oauthbearer.client.credentials.client.id", aliases=("sasl.oauthbearer.client.id",),
        source_keys=_or_jaas("clientId"),
        doc="Client id for the token endpoint."),
    _security("sasl.oauthbearer.client.credentials.client.secret", SECRET,
        aliases=("sasl.oauthbearer.client.secret",), source_keys=_or_jaas("clientSecret"),
        doc="Client secret for the token endpoint."),
    _security("sasl.oauthbearer.scope", source_keys=_or_jaas("scope"),
        doc="Scope to request from the token endpoint."),
    _security("sasl.oauthbearer.jwt.retriever.class", _RETRIEVER_CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        doc="Java's class that gets tokens, with its package: `FileJwtRetriever`, `ClientCredentialsJwtRetriever`, "
            "`JwtBearerJwtRetriever`, or `DefaultJwtRetriever`, which selects one of the first two by the URL."),
    _security("sasl.oauthbearer.grant.type",
        Enum(("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer")),
        doc="The grant of the token endpoint, instead of `sasl.oauthbearer.jwt.retriever.class`."),
    _security("sasl.oauthbearer.assertion.algorithm", Enum(("RS256", "ES256")), "RS256",
        doc="Algorithm of the signature of an [assertion](security.md#tokens-by-a-signed-assertion)."),
    _security("sasl.oauthbearer.assertion.private.key.file",
        doc="PEM file with the private key that signs assertions."),
    _security("sasl.oauthbearer.assertion.private.key.pem", SECRET,
        doc="The private key in PEM format."),
    _security("sasl.oauthbearer.assertion.private.key.passphrase", SECRET, doc="Passphrase of the private key."),
    _security("sasl.oauthbearer.assertion.template.file", aliases=("sasl.oauthbearer.assertion.jwt.template.file",),
        doc="JSON file with a `header` and a `payload` to add to assertions."),
    _security("sasl.oauthbearer.assertion.file",
        doc="File with an assertion that another program signs. The other settings of assertions then have no "
            "effect."),
    _security("sasl.oauthbearer.assertion.claim.aud", doc="Claim `aud` of assertions: the audience that the token "
            "endpoint expects."),
    _security("sasl.oauthbearer.assertion.claim.iss",
        doc="Claim `iss` of assertions. With the client-credentials grant, it replaces the secret by an assertion."),
    _security("sasl.oauthbearer.assertion.claim.sub", doc="Claim `sub` of assertions: for whom to request a token."),
    _security("sasl.oauthbearer.assertion.claim.exp.seconds", Integer(0, 86400), "300",
        doc="Lifetime of an assertion, in seconds (claim `exp`)."),
    _security("sasl.oauthbearer.assertion.claim.nbf.seconds", Integer(0, 3600), "60",
        doc="How long before its signature an assertion is valid, in seconds (claim `nbf`)."),
    _security("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false",
        doc="Whether assertions have a unique id (claim `jti`)."),
    _security("sasl.oauthbearer.extensions", LIST,
        doc="SASL extensions to send with the token, as key=value separated by commas."),
    _security("sasl.oauthbearer.header.urlencode", BOOLEAN, "false",
        doc="Whether to URL-encode the client id and secret in the token request (RFC 6749, 2.3.1)."),
    connection("sasl.login.connect.timeout.ms", POSITIVE_INT32, "10000",
        doc="Timeout of a connection to the token endpoint, in ms."),
    connection("sasl.login.read.timeout.ms", POSITIVE_INT32, "10000",
        doc="Timeout of the token endpoint's response, in ms."),
)
