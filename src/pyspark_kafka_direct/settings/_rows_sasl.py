"""Client settings of SASL (see ``_rows_connect`` for their sources)."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.settings._rows import connecting, ignored, refused
from pyspark_kafka_direct.settings.row import BY_NAME, INT32, Kind, Origin, Written

_BROKER_SIDE: Final = "brokers validate tokens, a client does not"

_PROVIDER: Final = (
    "a Java class cannot fetch tokens here; set the option oauthTokenProvider to module:factory, a Python function "
    "that gives the tokens"
)

MSK: Final = (
    "IAM of Amazon MSK is done by Java classes there, which cannot run here. MSK takes the same credentials over "
    "OAUTHBEARER: write kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider that calls "
    "aws-msk-iam-sasl-signer-python, and leave out kafka.sasl.jaas.config and the callback handlers "
    "(docs/security.md has it in full)"
)
_GOOGLE: Final = (
    "Google's Java class cannot run here; write kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider that gives "
    "Google's tokens, and leave out kafka.sasl.jaas.config (docs/security.md says more)"
)
_VENDORS: Final = (("software.amazon.", MSK), ("com.google.cloud.", _GOOGLE))

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


def _inside(name: str) -> tuple[Written, ...]:
    """Also written inside ``sasl.jaas.config``, under Java's name there."""
    return (*BY_NAME, Written(Origin.JAAS, name))


SASL_ROWS: Final = (
    connecting(
        "sasl.mechanism", "how to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", "sasl.mechanisms"
    ),
    connecting(
        "sasl.jaas.config", "user name and password in Java's form: a log-in module and its options", secret=True
    ),
    connecting("sasl.username", "user name for PLAIN and SCRAM (librdkafka's name)", origins=_inside("username")),
    connecting(
        "sasl.password",
        "password for PLAIN and SCRAM (librdkafka's name)",
        verbatim=True,
        secret=True,
        origins=_inside("password"),
    ),
    connecting(
        "sasl.oauthbearer.token.endpoint.url", "where OAUTHBEARER tokens are fetched from (https:, http:, file:)"
    ),
    connecting(
        "sasl.oauthbearer.client.credentials.client.id",
        "client id for the token endpoint",
        "sasl.oauthbearer.client.id",
        origins=_inside("clientId"),
    ),
    connecting(
        "sasl.oauthbearer.client.credentials.client.secret",
        "client secret for the token endpoint",
        "sasl.oauthbearer.client.secret",
        secret=True,
        origins=_inside("clientSecret"),
    ),
    connecting("sasl.oauthbearer.scope", "scope to ask the token endpoint for", origins=_inside("scope")),
    connecting(
        "sasl.oauthbearer.extensions",
        "SASL extensions sent with the token, key=value separated by commas (librdkafka's name)",
        kind=Kind.LIST,
    ),
    connecting(
        "sasl.oauthbearer.header.urlencode",
        "URL-encode client id and secret in the token request's header (RFC 6749, 2.3.1)",
        kind=Kind.FLAG,
        default="false",
    ),
    connecting(
        "sasl.login.connect.timeout.ms",
        "time for a connection to the token endpoint, in ms; with sasl.login.read.timeout.ms it bounds the request",
        kind=Kind.NUMBER,
        default="10000",
        low=1,
        high=INT32,
    ),
    connecting(
        "sasl.login.read.timeout.ms",
        "time for the token endpoint's answer, in ms; never past the connection's own deadline",
        kind=Kind.NUMBER,
        default="10000",
        low=1,
        high=INT32,
    ),
    refused("connect", "sasl.login.callback.handler.class", _PROVIDER, harmless=_OWN_HANDLERS, cures=_VENDORS),
    refused("connect", "sasl.client.callback.handler.class", _PROVIDER, cures=_VENDORS),
    refused("connect", "sasl.login.class", _PROVIDER),
    refused("connect", "sasl.oauthbearer.jwt.retriever.class", _PROVIDER, harmless=_OWN_RETRIEVERS),
    refused(
        "connect",
        "sasl.oauthbearer.method",
        "leave it out: kafka.sasl.oauthbearer.token.endpoint.url says where tokens come from, and the option "
        "oauthTokenProvider names Python code that gives them",
        harmless=("oidc", "default"),
    ),
    refused(
        "connect",
        "sasl.oauthbearer.config",
        "write the claims in kafka.sasl.jaas.config, for example: org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
    ),
    refused(
        "connect",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "write unsecuredLoginStringClaim_sub in kafka.sasl.jaas.config instead",
        harmless=("false",),
    ),
    *(
        refused(
            "connect",
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
        "connect",
        "sasl.oauthbearer.grant.type",
        "only the client-credentials grant is known here; for another one set the option oauthTokenProvider",
        harmless=("client_credentials",),
    ),
    *ignored(
        "connect",
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
    *ignored(
        "connect",
        "a token is fetched when a connection needs one and kept until shortly before it expires",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
    ),
    *ignored(
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
