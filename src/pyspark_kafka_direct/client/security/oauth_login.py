"""Retrieves and caches OAUTHBEARER tokens: from user code, a token endpoint or a file, or unsigned ones for tests."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.http_opener import proxy_of
from pyspark_kafka_direct.client.security.oauth_tokens import (
    OAuthBearerToken,
    OAuthTokenProvider,
    provider_token_retriever,
    unsecured_jwt,
)
from pyspark_kafka_direct.client.security.token_endpoint import url_token_retriever
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import OAuthSettings

__all__ = ["OAuthBearerToken", "OAuthTokenProvider", "retrieve_token"]

# As Java's sasl.login.refresh.window.factor: a new token after 80% of the old one's lifetime.
_REFRESH_FRACTION: Final = 0.8

# A thread that returns no token for so long is assumed to hang, and another one is started.
_ABANDON_AFTER_SECONDS: Final = 60.0


def retrieve_token(oauth: OAuthSettings, deadline: Deadline, broker: str) -> OAuthBearerToken:
    """Return a token to authenticate with ``broker``."""
    return _token_source(oauth, deadline.system).token(deadline, broker)


# One source per process and settings: a hundred connections request one token. The cache is bounded and, as the
# connection pool, holds nothing that cannot be fetched again.
@lru_cache(maxsize=16)
def _token_source(oauth: OAuthSettings, system: System) -> _CachedTokenSource:
    if oauth.provider is not None:
        return _CachedTokenSource(
            provider_token_retriever(oauth.provider, oauth.extensions), "The oauthTokenProvider", system
        )
    if oauth.unsecured is not None:
        claims = oauth.unsecured
        return _CachedTokenSource(
            lambda _: unsecured_jwt(claims, oauth.extensions, system.wall_time()), "The unsigned token", system
        )
    proxy = proxy_of(oauth.token_endpoint_url or "")
    name = "The token endpoint" if proxy is None else f"The token endpoint behind the proxy {proxy}"
    return _CachedTokenSource(url_token_retriever(oauth), name, system)


class _CachedTokenSource:
    """Returns the cached token until 80% of its lifetime have passed."""

    def __init__(self, fetch: Callable[[Deadline], OAuthBearerToken], source_name: str, system: System) -> None:
        self._fetch = fetch
        self._source_name = source_name
        self._system = system
        self._lock = system.lock()
        self._cached: OAuthBearerToken | None = None
        self._refresh_at = 0.0  # seconds since 1970
        self._abandoned_request: _TokenRequest | None = None  # still runs, after its caller's deadline

    def token(self, deadline: Deadline, broker: str) -> OAuthBearerToken:
        if not self._system.acquire(self._lock, max(deadline.remaining(), 0.001)):
            raise self._timeout_error(broker)
        try:
            if self._cached is None or self._system.wall_time() >= self._refresh_at:
                self._cached = self._request(deadline, broker)
                now = self._system.wall_time()
                # A token without an expiry time is requested each time.
                lifetime = 0.0 if self._cached.expires_at is None else self._cached.expires_at - now
                self._refresh_at = now + max(lifetime, 0.0) * _REFRESH_FRACTION
            return self._cached
        finally:
            self._lock.release()

    def _request(self, deadline: Deadline, broker: str) -> OAuthBearerToken:
        result = self._wait_for_result(deadline, broker)
        if isinstance(result, AuthenticationError) and deadline.expired:
            raise self._timeout_error(broker) from result  # the retrieval uses the same deadline
        match result:
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

    def _wait_for_result(self, deadline: Deadline, broker: str) -> OAuthBearerToken | BaseException:
        # User code and name servers have no deadline, so they run in a thread that is abandoned if it takes too long.
        # The next request receives its token, or starts another thread if it failed or is assumed to hang.
        if (abandoned_request := self._abandoned_request) is not None:
            result = abandoned_request.wait(deadline.limited_to(abandoned_request.seconds_until_assumed_to_hang))
            if isinstance(result, OAuthBearerToken):
                self._abandoned_request = None
                return result
            if deadline.expired:
                raise self._timeout_error(broker)
        request = _TokenRequest(self._fetch, deadline, self._system)
        result = request.wait(deadline)
        self._abandoned_request = request if result is None else None
        if result is None:
            raise self._timeout_error(broker)
        return result

    def _timeout_error(self, broker: str) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._source_name} returned no token in time; the limit is kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )


class _TokenRequest:
    """A request for a token in a separate thread, which starts at once."""

    def __init__(self, fetch: Callable[[Deadline], OAuthBearerToken], deadline: Deadline, system: System) -> None:
        self._fetch = fetch
        self._deadline = deadline
        self._system = system
        self._result: OAuthBearerToken | BaseException | None = None
        self._assumed_to_hang_at = system.monotonic() + _ABANDON_AFTER_SECONDS
        self._running_lock = system.lock()  # held while the request is in flight
        self._running_lock.acquire()
        system.start_thread(self._request, "pyspark-kafka-direct-token")

    def wait(self, deadline: Deadline) -> OAuthBearerToken | BaseException | None:
        """Return the token or the exception, or ``None`` after the deadline."""
        if self._system.acquire(self._running_lock, max(deadline.remaining(), 0.001)):
            self._running_lock.release()
        return self._result

    @property
    def seconds_until_assumed_to_hang(self) -> float:
        """Seconds until the request has taken so long that it may never end; negative: it has."""
        return self._assumed_to_hang_at - self._system.monotonic()

    def _request(self) -> None:
        try:
            self._result = self._fetch(self._deadline)
        except BaseException as error:  # raised in the waiting thread
            self._result = error
        finally:
            self._running_lock.release()
