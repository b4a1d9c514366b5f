"""Client settings of TLS and SASL (sources: see ``connection_definitions``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark_kafka_direct.config.config_option import (
    MAX_INT32,
    OPTION_OR_PARAMETER,
    ConfigSource,
    SourceKey,
    ValueType,
    connection_option,
    ignored_options,
    rejected_option,
)

_JAVA_ONLY: Final = "it names Java code, which cannot run here"

_TLS_DEFINITIONS: Final = (
    connection_option(
        "security.protocol",
        "`PLAINTEXT`, `SSL` for TLS, `SASL_PLAINTEXT` for a login, or `SASL_SSL` for both.",
        default="PLAINTEXT",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        value_type=ValueType.ENUM,
    ),
    connection_option(
        "ssl.truststore.location",
        "PEM or PKCS12 file with the CA certificates that verify brokers. By default, the CAs of the system.",
        "ssl.ca.location",
    ),
    connection_option("ssl.truststore.certificates", "The CA certificates in PEM format.", "ssl.ca.pem"),
    connection_option("ssl.truststore.password", "Password of a PKCS12 truststore.", secret=True),
    connection_option(
        "ssl.truststore.type",
        "Format of the truststore. Not needed, because it is detected from the file.",
        allowed=("PEM", "PKCS12", "JKS"),
        value_type=ValueType.ENUM,
    ),
    connection_option("ssl.keystore.location", "PEM or PKCS12 file with the client's certificate and private key."),
    connection_option("ssl.keystore.password", "Password of a PKCS12 keystore.", secret=True),
    connection_option(
        "ssl.keystore.type",
        "Format of the keystore. Not needed, because it is detected from the file.",
        allowed=("PEM", "PKCS12", "JKS"),
        value_type=ValueType.ENUM,
    ),
    connection_option(
        "ssl.keystore.certificate.chain",
        "The client's certificate and its issuers in PEM format, without the private key.",
        "ssl.certificate.pem",
        secret=True,
    ),
    connection_option("ssl.keystore.key", "The client's private key in PEM format.", "ssl.key.pem", secret=True),
    connection_option("ssl.key.password", "Password of the private key.", secret=True),
    connection_option(
        "ssl.certificate.location", "PEM file with the client's certificate and its issuers (librdkafka's name)."
    ),
    connection_option("ssl.key.location", "PEM file with the client's private key (librdkafka's name)."),
    connection_option(
        "ssl.endpoint.identification.algorithm",
        "`https` verifies that the certificate of a broker names its host. An empty value or `none` disables this.",
        default="https",
        allowed=("https", "none", ""),
        value_type=ValueType.ENUM,
    ),
    connection_option(
        "ssl.protocol",
        "Newest TLS version: `TLSv1.3`, `TLSv1.2`, or `TLS` for the newest enabled one.",
        default="TLSv1.3",
        allowed=("TLSv1.3", "TLSv1.2", "TLS"),
        value_type=ValueType.ENUM,
    ),
    connection_option(
        "ssl.enabled.protocols", "Enabled TLS versions.", value_type=ValueType.LIST, default="TLSv1.2,TLSv1.3"
    ),
    connection_option(
        "ssl.cipher.suites",
        "Cipher suites to offer, with their IANA (Java) or OpenSSL names, not OpenSSL's cipher strings. By default, "
        "OpenSSL chooses them.",
    ),
    rejected_option(
        "connect",
        "enable.ssl.certificate.verification",
        "certificates are always verified; set the CA in kafka.ssl.truststore.certificates or "
        "kafka.ssl.truststore.location (only if the certificate of a broker does not contain its host name, set "
        "kafka.ssl.endpoint.identification.algorithm to an empty string)",
        accepted_values=("true",),
    ),
    rejected_option(
        "connect",
        "ssl.engine.factory.class",
        "Java classes cannot run here; set certificates and the key with kafka.ssl.truststore.* and "
        "kafka.ssl.keystore.*",
    ),
    rejected_option("connect", "ssl.crl.location", "certificate revocation lists are not supported"),
    rejected_option(
        "connect", "ssl.engine.location", "OpenSSL engines are not supported; set the key as PEM or PKCS12"
    ),
    rejected_option("connect", "ssl.providers", "OpenSSL providers are not supported; set the key as PEM or PKCS12"),
    rejected_option(
        "connect",
        "ssl.ca.certificate.stores",
        "export the CAs to a PEM file and set kafka.ssl.truststore.location",
    ),
    *ignored_options(
        "connect",
        _JAVA_ONLY,
        "ssl.provider",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "ssl.engine.id",
    ),
    *ignored_options("connect", "OpenSSL chooses them", "ssl.curves.list", "ssl.sigalgs.list"),
)

# The token endpoint of OAUTHBEARER has separate TLS settings, with the same names, inside sasl.jaas.config.
_OPTION_PARAMETER_OR_JAAS: Final = (*OPTION_OR_PARAMETER, SourceKey(ConfigSource.JAAS))

TLS_OPTIONS: Final = tuple(
    replace(option, source_keys=_OPTION_PARAMETER_OR_JAAS) if option.name.startswith("ssl.") else option
    for option in _TLS_DEFINITIONS
)

_BROKER_SIDE: Final = "brokers validate tokens, clients do not"

_PROVIDER_ADVICE: Final = (
    "Java classes cannot run here; set the option oauthTokenProvider to module:factory, a Python function that returns "
    "a provider of tokens"
)

MSK_ADVICE: Final = (
    "the Java classes for IAM authentication of Amazon MSK cannot run here. MSK accepts the same credentials with "
    "OAUTHBEARER: set kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider that calls "
    "aws-msk-iam-sasl-signer-python, and remove kafka.sasl.jaas.config and the callback handlers "
    "(docs/security.md has an example)"
)
_GOOGLE_ADVICE: Final = (
    "the Java class of Google Cloud cannot run here; set kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider "
    "that returns Google's tokens, and remove kafka.sasl.jaas.config (docs/security.md has an example)"
)
_VENDOR_ADVICE: Final = (("software.amazon.", MSK_ADVICE), ("com.google.cloud.", _GOOGLE_ADVICE))

# Kafka's own classes, whose function is built in, are accepted, so that settings for Java can be reused. Databricks
# prefixes the names in its relocated client.
_OAUTH_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_KAFKA_CALLBACK_HANDLERS: Final = tuple(
    f"{shaded}{_OAUTH_PACKAGE}.{name}"
    for shaded in ("", "kafkashaded.")
    for name in (
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
        "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    )
)
_KAFKA_JWT_RETRIEVERS: Final = tuple(
    f"{shaded}{_OAUTH_PACKAGE}.{name}"
    for shaded in ("", "kafkashaded.")
    for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
)


def _with_jaas_name(name: str) -> tuple[SourceKey, ...]:
    return (*OPTION_OR_PARAMETER, SourceKey(ConfigSource.JAAS, name))


SASL_OPTIONS: Final = (
    connection_option(
        "sasl.mechanism", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.", "sasl.mechanisms"
    ),
    connection_option("sasl.jaas.config", "Credentials in Java's format: a login module and its options.", secret=True),
    connection_option(
        "sasl.username", "User name for PLAIN and SCRAM (librdkafka's name).", source_keys=_with_jaas_name("username")
    ),
    connection_option(
        "sasl.password",
        "Password for PLAIN and SCRAM (librdkafka's name).",
        verbatim=True,
        secret=True,
        source_keys=_with_jaas_name("password"),
    ),
    connection_option(
        "sasl.oauthbearer.token.endpoint.url",
        "`https:` URL to fetch OAUTHBEARER tokens from, or `http:` on localhost. Others, and files, must be listed in "
        "`PYSPARK_KAFKA_DIRECT_TOKEN_URLS` in the environment of the driver.",
    ),
    connection_option(
        "sasl.oauthbearer.client.credentials.client.id",
        "Client id for the token endpoint.",
        "sasl.oauthbearer.client.id",
        source_keys=_with_jaas_name("clientId"),
    ),
    connection_option(
        "sasl.oauthbearer.client.credentials.client.secret",
        "Client secret for the token endpoint.",
        "sasl.oauthbearer.client.secret",
        secret=True,
        source_keys=_with_jaas_name("clientSecret"),
    ),
    connection_option(
        "sasl.oauthbearer.scope", "Scope to request from the token endpoint.", source_keys=_with_jaas_name("scope")
    ),
    connection_option(
        "sasl.oauthbearer.extensions",
        "SASL extensions to send with the token, as key=value separated by commas (librdkafka's name).",
        value_type=ValueType.LIST,
    ),
    connection_option(
        "sasl.oauthbearer.header.urlencode",
        "Whether to URL-encode the client id and secret in the header of the token request (RFC 6749, 2.3.1).",
        value_type=ValueType.BOOLEAN,
        default="false",
    ),
    connection_option(
        "sasl.login.connect.timeout.ms",
        "Timeout of a connection to the token endpoint, in ms. Together with sasl.login.read.timeout.ms, it limits the "
        "request.",
        value_type=ValueType.INTEGER,
        default="10000",
        low=1,
        high=MAX_INT32,
    ),
    connection_option(
        "sasl.login.read.timeout.ms",
        "Timeout of the token endpoint's response, in ms. It never exceeds the deadline of the connection to the "
        "broker.",
        value_type=ValueType.INTEGER,
        default="10000",
        low=1,
        high=MAX_INT32,
    ),
    rejected_option(
        "connect",
        "sasl.login.callback.handler.class",
        _PROVIDER_ADVICE,
        accepted_values=_KAFKA_CALLBACK_HANDLERS,
        reasons_by_prefix=_VENDOR_ADVICE,
    ),
    rejected_option(
        "connect", "sasl.client.callback.handler.class", _PROVIDER_ADVICE, reasons_by_prefix=_VENDOR_ADVICE
    ),
    rejected_option("connect", "sasl.login.class", _PROVIDER_ADVICE),
    rejected_option(
        "connect", "sasl.oauthbearer.jwt.retriever.class", _PROVIDER_ADVICE, accepted_values=_KAFKA_JWT_RETRIEVERS
    ),
    rejected_option(
        "connect",
        "sasl.oauthbearer.method",
        "remove it; set kafka.sasl.oauthbearer.token.endpoint.url or the option oauthTokenProvider instead",
        accepted_values=("oidc", "default"),
    ),
    rejected_option(
        "connect",
        "sasl.oauthbearer.config",
        "set the claims in kafka.sasl.jaas.config, for example: org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
    ),
    rejected_option(
        "connect",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "set unsecuredLoginStringClaim_sub in kafka.sasl.jaas.config instead",
        accepted_values=("false",),
    ),
    *(
        rejected_option(
            "connect",
            f"sasl.oauthbearer.{name}",
            "signed assertions (the JWT bearer grant) are not supported; set the option oauthTokenProvider to "
            "module:factory, a Python function that returns a provider of tokens",
        )
        for name in (
            "assertion.file",
            "assertion.private.key.file",
            "assertion.private.key.passphrase",
            "assertion.template.file",
        )
    ),
    rejected_option(
        "connect",
        "sasl.oauthbearer.grant.type",
        "only the client_credentials grant is supported; for other grants, set the option oauthTokenProvider",
        accepted_values=("client_credentials",),
    ),
    *ignored_options(
        "connect",
        "it configures signed assertions, which are not supported",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
    ),
    *ignored_options(
        "connect",
        _BROKER_SIDE,
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
    *ignored_options(
        "connect",
        "a token is fetched when a connection needs one, and reused until shortly before it expires",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
    ),
    *ignored_options(
        "connect",
        "Kerberos (GSSAPI) is not supported",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
)
