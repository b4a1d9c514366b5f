"""How to prove who we are and who the broker is: TLS and SASL settings, as frozen, hashable, picklable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark_kafka_direct.settings.secret import Secret

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

NO_SECRET: Final = Secret("")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom to trust, whom to be, and how to encrypt.

    Paths are opened where a connection is made (driver and executors); texts travel with the task.

    Attributes:
        truststore_location: File with CA certificates, PEM or PKCS12; ``None`` with no text: the system's CAs.
        truststore_certificates: CA certificates as PEM text.
        truststore_password: Password of a PKCS12 truststore.
        keystore_location: File with certificate and key, PEM or PKCS12.
        keystore_password: Password of a PKCS12 keystore.
        certificate_location: PEM file with the client's certificate chain.
        certificate_chain: The client's certificate chain as PEM text; it may hold the key too, so it is a secret.
        key_location: PEM file with the client's private key.
        key: The client's private key as PEM text.
        key_password: Password of the private key.
        check_hostname: Whether the broker's certificate must name the host.
        minimum_version: Oldest TLS version, ``TLSv1.2`` or ``TLSv1.3``.
        maximum_version: Newest TLS version.
        cipher_suites: OpenSSL names of the TLS 1.2 cipher suites to offer; empty: OpenSSL's choice.
    """

    truststore_location: str | None = None
    truststore_certificates: str | None = None
    truststore_password: Secret | None = None
    keystore_location: str | None = None
    keystore_password: Secret | None = None
    certificate_location: str | None = None
    certificate_chain: Secret | None = None
    key_location: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
    minimum_version: TlsVersion = "TLSv1.2"
    maximum_version: TlsVersion = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()


SYSTEM_TRUST: Final = TlsSettings()


@dataclass(frozen=True, slots=True)
class UnsecuredClaims:
    """What an unsigned token says (Kafka's ``OAuthBearerUnsecuredLoginCallbackHandler``).

    Attributes:
        claims: Claim name to a text, a number, or several texts.
        lifetime_seconds: How long the token is valid.
    """

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    lifetime_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where OAUTHBEARER tokens come from: exactly one of provider, token endpoint and unsecured claims.

    Attributes:
        provider: ``module:factory``, imported where a connection is made.
        token_endpoint_url: ``https:`` or ``http:`` for the client-credentials grant, ``file:`` for a file with a token.
        client_id: Client id for the endpoint.
        client_secret: Client secret for the endpoint.
        scope: Scope to ask the endpoint for.
        urlencode_header: URL-encode id and secret inside the ``Authorization`` header.
        endpoint_tls: TLS towards the endpoint.
        connect_timeout_ms: Longest wait for a connection to the endpoint.
        read_timeout_ms: Longest wait for the endpoint's answer.
        unsecured: Claims of an unsigned token made here, for tests.
        extensions: SASL extensions (KIP-342) sent with each token.
    """

    provider: str | None = None
    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    urlencode_header: bool = False
    endpoint_tls: TlsSettings = SYSTEM_TRUST
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    unsecured: UnsecuredClaims | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How to log in.

    Attributes:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512`` or ``OAUTHBEARER``.
        username: User name (PLAIN, SCRAM).
        password: Password (PLAIN, SCRAM).
        delegation_token: Whether user name and password are a delegation token's id and HMAC (SCRAM, KIP-48).
        oauth: Where tokens come from (OAUTHBEARER).
    """

    mechanism: str
    username: str = ""
    password: Secret = NO_SECRET
    delegation_token: bool = False
    oauth: OAuthSettings | None = None


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Security protocol with what it needs; ``tls`` and ``sasl`` are ``None`` where the protocol has none."""

    protocol: Protocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


PLAINTEXT: Final = SecuritySettings()
