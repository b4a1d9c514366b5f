"""Retrieves OAUTHBEARER tokens from their source, and caches them.

To add a source: a frozen dataclass in the union ``TokenSource``, its parser in ``options/oauth_parser.py``, a function
that retrieves one token in a module of this package, and a case in ``_retriever``.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, assert_never

from pyspark_kafka_direct.client.http_opener import proxy_of
from pyspark_kafka_direct.client.security.oauth_tokens import (
    OAuthBearerToken,
    OAuthTokenProvider,
    provider_token_retriever,
    unsecured_token,
)
from pyspark_kafka_direct.client.security.token_endpoint import endpoint_token_retriever
from pyspark_kafka_direct.client.security.token_file import file_token_retriever
from pyspark_kafka_direct.client.system import after_fork
from pyspark_kafka_direct.client.unbounded_call import UnboundedCalls
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.security_settings import (
    AwsTokens,
    AzureTokens,
    EndpointTokens,
    FileTokens,
    GoogleTokens,
    ProviderTokens,
    UnsecuredTokens,
)
from pyspark_kafka_direct.options.token_hosts import token_host_problem

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import OAuthSettings, Secret

_log = logging.getLogger("pyspark_kafka_direct.client")

__all__ = ["OAuthBearerToken", "OAuthTokenProvider", "renew_token", "retrieve_token", "token_proxy"]

# As Java's sasl.login.refresh.window.factor: a new token after 80% of the old one's lifetime.
_REFRESH_FRACTION: Final = 0.8

# The pause after a refresh that failed while the current token is valid, as in Java.
_REFRESH_RETRY_SECONDS: Final = 10.0

_ADDRESS: Final = re.compile(r"\[?(.*?)\]?(?::[0-9]+)?")  # host, or host:port

_AWS_SOURCE_NAME: Final = "The source of AWS credentials, such as STS or the metadata of the instance,"


def retrieve_token(oauth: OAuthSettings, deadline: Deadline, broker: str) -> OAuthBearerToken:
    """Return a token to authenticate with ``broker``, which may also be the address of a schema registry."""
    if problem := token_host_problem(oauth.source, _host(broker)):  # brokers advertise other hosts than the options
        raise AuthenticationError(f"No token: {problem}.", broker=broker)
    return _token_cache(oauth, _audience(oauth, broker), deadline.system).token(deadline, broker)


def renew_token(oauth: OAuthSettings, rejected: Secret, deadline: Deadline, broker: str) -> None:
    """Request another token for the next login: an identity provider may have new keys, or corrected claims."""
    _token_cache(oauth, _audience(oauth, broker), deadline.system).renew_next(rejected, deadline)


def token_proxy(oauth: OAuthSettings) -> str | None:
    """Return the proxy of the environment that tokens are requested through, as `proxy_of`."""
    return proxy_of(oauth.source.url) if isinstance(oauth.source, EndpointTokens) else None


def _host(broker: str) -> str:
    match = _ADDRESS.fullmatch(broker)
    return broker if match is None else match[1]


def _audience(oauth: OAuthSettings, broker: str) -> str:
    """Return the host that receives the token, if the source has separate tokens for each host."""
    return _host(broker) if isinstance(oauth.source, AzureTokens) else ""


# One cache per process and settings: a hundred connections request one token. The number of caches is bounded and, as
# the connection pool, they hold nothing that cannot be fetched again.
@lru_cache(maxsize=16)
def _token_cache(oauth: OAuthSettings, audience: str, system: System) -> _TokenCache:
    retrieve, source_name = _retriever(oauth, audience, system)

    def retrieve_with_extensions(deadline: Deadline) -> OAuthBearerToken:
        token = retrieve(deadline)
        value = token.value.reveal()
        if not value.isascii() or not value.isprintable():  # it could add to the message of the login
            raise AuthenticationError(
                f"No token: {source_name} returned a token with other characters than printable ASCII."
            )
        return replace(token, extensions=tuple({**dict(oauth.extensions), **dict(token.extensions)}.items()))

    # A file is read for each login, so that a new token in it is used at once.
    refresh_fraction = 0.0 if isinstance(oauth.source, FileTokens) else _REFRESH_FRACTION
    return _TokenCache(retrieve_with_extensions, source_name, system, refresh_fraction=refresh_fraction)


def _retriever(oauth: OAuthSettings, audience: str, system: System) -> tuple[TokenRetriever, str]:
    """Return the function that retrieves tokens of a source, and the name of the source for errors.

    ``audience`` is the host that receives the token, if the source has separate tokens for each host.
    """
    match oauth.source:
        case ProviderTokens() as source:
            return provider_token_retriever(source), "The oauthTokenProvider"
        case EndpointTokens() as source:
            proxy = token_proxy(oauth)
            name = "The token endpoint" if proxy is None else f"The token endpoint behind the proxy {proxy}"
            return endpoint_token_retriever(source), name
        case FileTokens() as source:
            return file_token_retriever(source), "The token file"
        case UnsecuredTokens() as source:
            return lambda _: unsecured_token(source, system.wall_time()), "The unsigned token"
        case AwsTokens() as source:
            from pyspark_kafka_direct.client.security.aws_tokens import aws_token_retriever

            return aws_token_retriever(source), _AWS_SOURCE_NAME
        case AzureTokens():
            from pyspark_kafka_direct.client.security.azure_tokens import azure_token_retriever

            return azure_token_retriever(audience), "azure-identity"
        case GoogleTokens():
            from pyspark_kafka_direct.client.security.google_tokens import google_token_retriever

            return google_token_retriever(system), "google-auth"
        case unknown:
            assert_never(unknown)


after_fork(_token_cache.cache_clear)


class _TokenCache:
    """Returns the cached token for a fraction of its lifetime, and until it expires if there is no new one."""

    def __init__(self, retrieve: TokenRetriever, source_name: str, system: System, *, refresh_fraction: float) -> None:
        self._retrieve = retrieve
        self._source_name = source_name
        self._system = system
        self._refresh_fraction = refresh_fraction
        self._lock = system.lock()
        self._cached: OAuthBearerToken | None = None
        # Both have to be in the future: a clock may be set back, and monotonic time may stop while a machine sleeps.
        self._refresh_at = 0.0  # seconds since 1970
        self._refresh_at_monotonic = 0.0
        self._retrieved_at = 0.0  # monotonic
        self._is_refresh_failing = False
        self._rejection: AuthenticationError | None = None  # the outcome of the last request
        self._calls: UnboundedCalls[OAuthBearerToken] = UnboundedCalls(system, "pyspark-kafka-direct-token")

    def token(self, deadline: Deadline, broker: str) -> OAuthBearerToken:
        earlier_rejection = self._rejection
        if not self._system.acquire(self._lock, max(self._limit(deadline).remaining(), 0.001)):
            cached = self._cached
            if cached is not None and self._valid_seconds(cached) > 0:
                return cached  # while another thread requests a new one
            raise self._timeout_error(broker)
        try:
            if self._cached is None or self._is_refresh_due():
                if (
                    self._rejection is not None and self._rejection is not earlier_rejection
                ):  # this thread waited for it
                    raise AuthenticationError(self._rejection.message, broker=broker)
                self._cached = self._new_or_valid_token(self._cached, deadline, broker)
            return self._cached
        finally:
            self._lock.release()

    def renew_next(self, rejected: Secret, deadline: Deadline) -> None:
        """Request another token soon, unless another thread has done so since."""
        if not self._system.acquire(self._lock, max(deadline.remaining(), 0.001)):
            return
        try:
            if self._cached is not None and self._cached.value == rejected:
                # Logins that are retried do not request a token each time.
                now = self._system.monotonic()
                self._refresh_at_monotonic = min(
                    self._refresh_at_monotonic, max(now, self._retrieved_at + _REFRESH_RETRY_SECONDS)
                )
        finally:
            self._lock.release()

    def _is_refresh_due(self) -> bool:
        system = self._system
        return system.wall_time() >= self._refresh_at or system.monotonic() >= self._refresh_at_monotonic

    def _refresh_after(self, seconds: float) -> None:
        self._refresh_at = self._system.wall_time() + seconds
        self._refresh_at_monotonic = self._system.monotonic() + seconds

    def _valid_seconds(self, token: OAuthBearerToken | None) -> float:
        """Return how long a token remains valid: 0 without one, or if its expiry is unknown."""
        if token is None or token.expires_at is None:
            return 0.0
        return max(token.expires_at - self._system.wall_time(), 0.0)

    def _limit(self, deadline: Deadline) -> Deadline:
        """Return until when to wait for a new token: with a valid one, half of the time remains for the login."""
        has_valid_token = self._valid_seconds(self._cached) > 0
        return deadline.limited_to(deadline.remaining() / 2) if has_valid_token else deadline

    def _new_or_valid_token(self, cached: OAuthBearerToken | None, deadline: Deadline, broker: str) -> OAuthBearerToken:
        """Return a new token, or the cached one if it is valid and the source fails."""
        try:
            token = self._request(self._limit(deadline), broker)
        except KafkaDirectError as error:
            # A copy, because the error has the stack of this login.
            self._rejection = AuthenticationError(error.message) if isinstance(error, AuthenticationError) else None
            valid_seconds = self._valid_seconds(cached)
            if cached is None or not valid_seconds:
                raise
            if not self._is_refresh_failing:
                _log.warning("No new token, so logins use the current one until it expires: %s", error)
            self._is_refresh_failing = True
            self._refresh_after(min(_REFRESH_RETRY_SECONDS if self._refresh_fraction else 0.0, valid_seconds))
            return cached
        self._is_refresh_failing = False
        self._rejection = None
        self._retrieved_at = self._system.monotonic()
        # A token without an expiry time is requested each time.
        self._refresh_after(self._valid_seconds(token) * self._refresh_fraction)
        return token

    def _request(self, deadline: Deadline, broker: str) -> OAuthBearerToken:
        # User code and name servers have no deadline.
        result = self._calls.call(lambda: self._retrieve(deadline), deadline)
        if isinstance(result, AuthenticationError) and deadline.expired:
            raise self._timeout_error(broker) from result  # the retrieval uses the same deadline
        match result:
            case None:
                raise self._timeout_error(broker)
            case OAuthBearerToken() as token:
                return token
            case OptionError() as error:
                raise error
            case KafkaDirectError() as error:  # a copy for this broker, because several connections may get the error
                raise type(error)(error.message, broker=broker) from error.__cause__
            case Exception() as error:
                # The message of a foreign exception may have secrets, so only its type is shown.
                raise AuthenticationError(
                    f"{self._source_name} failed with {type(error).__name__}. Set PYSPARK_KAFKA_DIRECT_LOG_LEVEL=DEBUG "
                    "in the environment to log its message and stack trace.",
                    broker=broker,
                ) from error
            case other:  # KeyboardInterrupt or SystemExit
                raise other

    def _timeout_error(self, broker: str) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._source_name} returned no token in time; the limit is kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )
