"""Typed TLS and SASL settings (frozen, hashable and picklable), and secrets that mask their value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MASK: Final = "********"

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
TokenVendor = Literal["msk", "azure", "gcp"]  # values of oauthTokenProvider


@final
class Secret:
    """A string that ``repr``, ``str`` and formatting mask.

    Secrets compare and hash by value, so that settings with secrets can key a cache. A pickled secret is not encrypted:
    Spark sends settings from the driver to the executors inside tasks. On an untrusted network, enable
    ``spark.network.crypto.enabled`` or ``spark.ssl.*``.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value. Never call it to build a message."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK  # for every format spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (self._value,))


NO_SECRET: Final = Secret("")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificates and keys, TLS versions and cipher suites.

    Files (``*_location``) are opened by each process that connects, on the driver and the executors.
    """

    # Without a truststore, the CAs of the system are trusted. Stores are PEM, PKCS12 or JKS files.
    truststore_location: str | None = None
    truststore_certificates: str | None = None  # in PEM format
    truststore_password: Secret | None = None
    keystore_location: str | None = None
    keystore_password: Secret | None = None
    certificate_location: str | None = None  # a PEM file with the certificate chain of the client
    certificate_chain: Secret | None = None  # in PEM format; a secret because it may contain the private key
    key_location: str | None = None  # a PEM file
    key: Secret | None = None  # in PEM format
    key_password: Secret | None = None
    check_hostname: bool = True
    minimum_version: TlsVersion = "TLSv1.2"
    maximum_version: TlsVersion = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()  # OpenSSL names for TLS 1.2; empty: OpenSSL chooses
    prefix: str = "kafka."  # of the options in errors


DEFAULT_TLS: Final = TlsSettings()


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """Tokens from Python code."""

    name: str  # `module:factory`, imported by each process that connects


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The client-credentials grant of a token endpoint (Kafka's ``ClientCredentialsJwtRetriever``)."""

    client_id: str
    client_secret: Secret
    urlencode_header: bool = False  # of the client id and secret in the header `Authorization`


@dataclass(frozen=True, slots=True)
class AssertionFile:
    """A signed assertion that another program renews in a file (Kafka's ``FileAssertionCreator``)."""

    path: str
    option: str = "kafka.sasl.oauthbearer.assertion.file"  # for errors


@dataclass(frozen=True, slots=True)
class SignedAssertion:
    """An assertion that is signed for each token (Kafka's ``DefaultAssertionCreator``)."""

    algorithm: Literal["RS256", "ES256"] = "RS256"
    key_file: str | None = None  # either a file, or the key in PEM format
    key: Secret | None = None
    key_passphrase: Secret | None = None
    template_file: str | None = None
    claims: tuple[tuple[str, str], ...] = ()  # aud, iss and sub
    lifetime_seconds: int = 300
    not_before_seconds: int = 60  # before the time of the signature
    has_jti: bool = False


Assertion: TypeAlias = AssertionFile | SignedAssertion


@dataclass(frozen=True, slots=True)
class ClientAssertion:
    """The client-credentials grant with an assertion instead of a secret (KIP-1258)."""

    assertion: Assertion
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class JwtBearer:
    """The JWT bearer grant (Kafka's ``JwtBearerJwtRetriever``)."""

    assertion: Assertion


Grant: TypeAlias = ClientCredentials | ClientAssertion | JwtBearer


@dataclass(frozen=True, slots=True)
class EndpointTokens:
    """Tokens from an endpoint over HTTP(S)."""

    url: str
    grant: Grant
    scope: str | None = None
    audience: str | None = None  # of Strimzi's handler
    tls: TlsSettings = DEFAULT_TLS
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    url_option: str = "kafka.sasl.oauthbearer.token.endpoint.url"  # and the next two: for errors
    timeout_options: str = "kafka.sasl.login.connect.timeout.ms and kafka.sasl.login.read.timeout.ms"
    ca_advice: str = 'set its CA as ssl.truststore.location="..." in kafka.sasl.jaas.config'


@dataclass(frozen=True, slots=True)
class FileTokens:
    """Tokens from a file that another program renews (Kafka's ``FileJwtRetriever``)."""

    path: str  # on each host that connects
    url_option: str = "kafka.sasl.oauthbearer.token.endpoint.url"  # for errors


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Unsigned tokens for tests (Kafka's ``OAuthBearerUnsecuredLoginCallbackHandler``)."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    lifetime_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class AwsAccessKey:
    """Keys that are given in the options, instead of those of AWS's default provider chain."""

    id: str
    secret: Secret
    session_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class AwsRole:
    """A role to assume."""

    arn: str
    session_name: str
    external_id: str | None = None
    access_key: AwsAccessKey | None = None  # of the identity that assumes the role; None: default provider chain


@dataclass(frozen=True, slots=True)
class AwsTokens:
    """Signed tokens of Amazon MSK. Without a profile and a role, AWS's default provider chain has the credentials.

    Each process that connects resolves its own credentials, on the driver and the executors.
    """

    region: str  # of the cluster
    profile: str | None = None
    role: AwsRole | None = None
    sts_region: str | None = None  # None: the region of the cluster
    max_retries: int = 3
    log_identity: bool = False
    allowed_hosts: tuple[str, ...] = ()  # beside those of MSK; `*.example.com` allows all hosts of a domain


@dataclass(frozen=True, slots=True)
class AzureTokens:
    """Tokens of Microsoft Entra ID for Azure Event Hubs, each for the host that it is sent to."""


@dataclass(frozen=True, slots=True)
class GoogleTokens:
    """Access tokens of Google Cloud for its Kafka service."""

    allowed_hosts: tuple[str, ...] = ()  # beside those of the service, as in ``AwsTokens``


TokenSource: TypeAlias = (
    ProviderTokens | EndpointTokens | FileTokens | UnsecuredTokens | AwsTokens | AzureTokens | GoogleTokens
)


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The source of bearer tokens, and what is sent with them."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()  # SASL extensions (KIP-342)


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """A Kerberos login. The files are opened by each process that connects, on the driver and the executors."""

    service_name: str = "kafka"  # the first part of the brokers' principals
    principal: str | None = None  # None: that of the ticket cache
    keytab: str | None = None
    ticket_cache: str | None = None  # takes precedence over the keytab; empty: the default cache; None: not used
    renew_window_factor: float = 0.8  # a new login after this part of a ticket's lifetime
    min_relogin_seconds: float = 60.0  # between a failed renewal and the next one


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token that an application obtained (KIP-48)."""

    serial: int  # among the tokens of the application for a cluster, from 1 on
    id: Secret
    hmac: Secret  # in base64
    expires_at: float  # seconds since 1970 on the driver's clock


@dataclass(frozen=True, slots=True)
class TokenState:
    """The newest token that a process has, and why it has no newer one."""

    token: DelegationToken | None = None
    error: str | None = None  # of the last attempt to obtain or to renew a token
    is_final: bool = False  # whether a retry cannot resolve the error
    is_driver: bool = False  # whether the process can wait for a newer token


class DelegationTokens:
    """The newest delegation tokens that the process has received; a driver's process reads them with ``read_by``."""

    def __init__(self) -> None:
        self._received: dict[DelegationTokenLogin, DelegationToken] = {}
        self._readers: dict[str, Callable[[str], TokenState]] = {}  # by application

    def state(self, login: DelegationTokenLogin) -> TokenState:
        """Return the newest token of a cluster, and the last error."""
        read = self._readers.get(login.application)
        return TokenState(self._received.get(login)) if read is None else read(login.cluster)

    def read_by(self, application: str, read: Callable[[str], TokenState]) -> None:
        """Read the tokens of an application by a function, with a cluster's name as the argument, from now on."""
        self._readers[application] = read

    def receive(self, login: DelegationTokenLogin, token: DelegationToken) -> None:
        """Retain a token, unless the process has a newer one."""
        received = self._received.get(login)
        if received is None or (received.serial, received.expires_at) < (token.serial, token.expires_at):
            self._received[login] = token


TOKENS: Final = DelegationTokens()
"""The tokens of this process."""


@dataclass(frozen=True)
class DelegationTokenLogin:
    """A login with the newest delegation token of an application for a cluster.

    The token is not a part of the settings, because it changes while they are in use. Pickled settings contain the
    newest token, and a process that unpickles them retains it. So each batch brings it to the executors.
    """

    application: str  # a random name
    cluster: str  # as in spark.kafka.clusters.<cluster>

    def __reduce__(self) -> tuple[object, ...]:
        return (_unpickle_token_login, (self.application, self.cluster, TOKENS.state(self).token))


def _unpickle_token_login(application: str, cluster: str, token: DelegationToken | None) -> DelegationTokenLogin:
    login = DelegationTokenLogin(application, cluster)
    if token is not None:
        TOKENS.receive(login, token)
    return login


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL mechanism and its credentials."""

    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI
    username: str = ""
    password: Secret = NO_SECRET
    is_delegation_token: bool = False  # whether user name and password are the id and HMAC of one (SCRAM, KIP-48)
    oauth: OAuthSettings | None = None
    kerberos: KerberosSettings | None = None
    token_login: DelegationTokenLogin | None = None  # in place of user name and password


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The security protocol; ``tls`` and ``sasl`` are None if the protocol does not use them."""

    protocol: SecurityProtocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @property
    def token_login(self) -> DelegationTokenLogin | None:
        """The login with a delegation token of the application, if it is one."""
        return None if self.sasl is None else self.sasl.token_login


PLAINTEXT: Final = SecuritySettings()


def check_extensions(pairs: Iterable[tuple[str, str]], source: str) -> tuple[tuple[str, str], ...]:
    """Check SASL extensions according to RFC 7628, section 3.1; errors do not show their values."""
    extensions = dict(pairs)
    for name, value in extensions.items():
        if re.fullmatch(r"[A-Za-z]+", name) is None or name == "auth":
            raise OptionError(
                f"{source}: the SASL extension name {name!r} is invalid; use letters only, but not the name auth"
            )
        if re.fullmatch(r"[\x21-\x7E \t\r\n]+", value) is None:
            raise OptionError(f"{source}: the value of the SASL extension {name} is invalid; use printable ASCII")
    return tuple(extensions.items())
