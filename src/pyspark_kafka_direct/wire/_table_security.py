"""Client settings about TLS and SASL: the second half of the table (see ``_table_network`` for its sources)."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.wire._setting import Kind, Setting, Use, ignored, refused

_JAVA_ONLY: Final = "it names Java code, which does not run here"
_BROKER_SIDE: Final = "brokers validate tokens, a client does not"


def _text(name: str, about: str, *aliases: str, default: str | None = None) -> Setting:
    return Setting(name, Use.APPLIED, about, default=default, aliases=aliases)


def _secret(name: str, about: str, *aliases: str, verbatim: bool = False) -> Setting:
    return Setting(name, Use.APPLIED, about, Kind.SECRET, aliases=aliases, verbatim=verbatim)


TLS: Final = (
    Setting(
        "security.protocol",
        Use.APPLIED,
        "whether to use TLS (SSL), a log-in (SASL), both or none",
        default="PLAINTEXT",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    _text(
        "ssl.truststore.location",
        "file with the CA certificates brokers are checked against: PEM or PKCS12; none means the system's CAs",
        "ssl.ca.location",
    ),
    _text("ssl.truststore.certificates", "the CA certificates themselves, as PEM text", "ssl.ca.pem"),
    _secret("ssl.truststore.password", "password of a PKCS12 truststore"),
    Setting(
        "ssl.truststore.type",
        Use.APPLIED,
        "format of the truststore; found out from the file, so never needed",
        allowed=("PEM", "PKCS12", "JKS"),
    ),
    _text("ssl.keystore.location", "file with this client's certificate and private key: PEM or PKCS12"),
    _secret("ssl.keystore.password", "password of a PKCS12 keystore"),
    Setting(
        "ssl.keystore.type",
        Use.APPLIED,
        "format of the keystore; found out from the file, so never needed",
        allowed=("PEM", "PKCS12", "JKS"),
    ),
    _secret(
        "ssl.keystore.certificate.chain",
        "this client's certificate and its issuers, as PEM text",
        "ssl.certificate.pem",
    ),
    _secret("ssl.keystore.key", "this client's private key, as PEM text", "ssl.key.pem"),
    _secret("ssl.key.password", "password of the private key"),
    _text("ssl.certificate.location", "PEM file with this client's certificate and its issuers (librdkafka's name)"),
    _text("ssl.key.location", "PEM file with this client's private key (librdkafka's name)"),
    Setting(
        "ssl.endpoint.identification.algorithm",
        Use.APPLIED,
        "https checks that the certificate names the broker's host; empty or none switches that off",
        default="https",
        allowed=("https", "none", ""),
    ),
    Setting(
        "ssl.protocol",
        Use.APPLIED,
        "newest TLS version to use",
        default="TLSv1.3",
        allowed=("TLSv1.3", "TLSv1.2", "TLS"),
    ),
    Setting("ssl.enabled.protocols", Use.APPLIED, "TLS versions to use", Kind.LIST, default=("TLSv1.2", "TLSv1.3")),
    Setting(
        "ssl.cipher.suites",
        Use.APPLIED,
        "cipher suites to offer, by their IANA (Java) or OpenSSL names; none means OpenSSL's own choice",
        Kind.TEXT,
    ),
    refused(
        "enable.ssl.certificate.verification",
        "certificates are always verified; give the CA in kafka.ssl.truststore.certificates or "
        "kafka.ssl.truststore.location (and only if the broker's host name is not in its certificate, set "
        "kafka.ssl.endpoint.identification.algorithm to an empty text)",
        harmless=("true",),
    ),
    refused(
        "ssl.engine.factory.class",
        "a Java class cannot make the TLS engine here; give certificates and key with kafka.ssl.truststore.* and "
        "kafka.ssl.keystore.*",
    ),
    refused("ssl.crl.location", "revocation lists are not supported"),
    refused("ssl.engine.location", "OpenSSL engines are not supported; give the key as PEM or PKCS12"),
    refused("ssl.providers", "OpenSSL providers are not supported; give the key as PEM or PKCS12"),
    refused("ssl.ca.certificate.stores", "export the CAs to a PEM file and name it in kafka.ssl.truststore.location"),
    *ignored(
        _JAVA_ONLY,
        "ssl.provider",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "ssl.engine.id",
    ),
    *ignored("OpenSSL's own choice is used", "ssl.curves.list", "ssl.sigalgs.list"),
)

_PROVIDER: Final = (
    "a Java class cannot fetch tokens here; set the option oauthTokenProvider to module:factory, a Python function "
    "that gives the tokens"
)

# Classes of Kafka itself whose work is done here too, so that settings made for Java keep working; Databricks prefixes
# the names in its relocated client.
_OAUTH_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_OWN_HANDLERS: Final = tuple(
    f"{shaded}{_OAUTH_PACKAGE}.{name}"
    for shaded in ("", "kafkashaded.")
    for name in (
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
        "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    )
)
_OWN_RETRIEVERS: Final = tuple(
    f"{shaded}{_OAUTH_PACKAGE}.{name}"
    for shaded in ("", "kafkashaded.")
    for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
)

SASL: Final = (
    _text("sasl.mechanism", "how to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", "sasl.mechanisms"),
    _secret("sasl.jaas.config", "user name and password in Java's form: a log-in module and its options"),
    _text("sasl.username", "user name for PLAIN and SCRAM (librdkafka's name)"),
    _secret("sasl.password", "password for PLAIN and SCRAM (librdkafka's name)", verbatim=True),
    _text("sasl.oauthbearer.token.endpoint.url", "where OAUTHBEARER tokens are fetched from (https:, http:, file:)"),
    _text(
        "sasl.oauthbearer.client.credentials.client.id",
        "client id for the token endpoint",
        "sasl.oauthbearer.client.id",
    ),
    _secret(
        "sasl.oauthbearer.client.credentials.client.secret",
        "client secret for the token endpoint",
        "sasl.oauthbearer.client.secret",
    ),
    _text("sasl.oauthbearer.scope", "scope to ask the token endpoint for"),
    Setting(
        "sasl.oauthbearer.extensions",
        Use.APPLIED,
        "SASL extensions sent with the token, key=value separated by commas (librdkafka's name)",
        Kind.LIST,
    ),
    Setting(
        "sasl.oauthbearer.header.urlencode",
        Use.APPLIED,
        "URL-encode client id and secret in the token request's header (RFC 6749, 2.3.1)",
        Kind.FLAG,
        default=False,
    ),
    Setting(
        "sasl.login.connect.timeout.ms",
        Use.APPLIED,
        "time for a connection to the token endpoint, in ms; with sasl.login.read.timeout.ms it bounds the request",
        Kind.INT,
        10_000,
        low=1,
        high=2**31 - 1,
    ),
    Setting(
        "sasl.login.read.timeout.ms",
        Use.APPLIED,
        "time for the token endpoint's answer, in ms; never past the connection's own deadline",
        Kind.INT,
        10_000,
        low=1,
        high=2**31 - 1,
    ),
    refused("sasl.login.callback.handler.class", _PROVIDER, harmless=_OWN_HANDLERS),
    refused("sasl.client.callback.handler.class", _PROVIDER),
    refused("sasl.login.class", _PROVIDER),
    refused("sasl.oauthbearer.jwt.retriever.class", _PROVIDER, harmless=_OWN_RETRIEVERS),
    refused(
        "sasl.oauthbearer.method",
        "leave it out: kafka.sasl.oauthbearer.token.endpoint.url says where tokens come from, and the option "
        "oauthTokenProvider names Python code that gives them",
        harmless=("oidc", "default"),
    ),
    refused(
        "sasl.oauthbearer.config",
        "write the claims in kafka.sasl.jaas.config, for example: org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
    ),
    refused(
        "enable.sasl.oauthbearer.unsecure.jwt",
        "write unsecuredLoginStringClaim_sub in kafka.sasl.jaas.config instead",
        harmless=("false",),
    ),
    *(
        refused(
            f"sasl.oauthbearer.{name}",
            "tokens by signed assertion (JWT bearer grant) are not fetched here; set the option oauthTokenProvider to "
            "module:factory, a Python function that gives the tokens",
        )
        for name in (
            "assertion.file",
            "assertion.private.key.file",
            "assertion.private.key.passphrase",
            "assertion.template.file",
        )
    ),
    refused(
        "sasl.oauthbearer.grant.type",
        "only the client-credentials grant is known here; for another one set the option oauthTokenProvider",
        harmless=("client_credentials",),
    ),
    *ignored(
        "it is about signed assertions, which are not made here",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
    ),
    *ignored(
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
    *ignored(
        "a token is fetched when a connection needs one and kept until shortly before it expires",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
    ),
    *ignored(
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

SECURITY_SETTINGS: Final = (*TLS, *SASL)
