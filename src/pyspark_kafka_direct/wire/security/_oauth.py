"""Where OAUTHBEARER tokens come from: Python code of the user's, a token endpoint, a file, or made here for tests."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.wire.security._token import OAuthTokenProvider, Token
from pyspark_kafka_direct.wire.security._token_endpoint import from_url
from pyspark_kafka_direct.wire.security._token_provider import from_provider
from pyspark_kafka_direct.wire.security._token_unsecured import unsecured_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.settings.security import OAuthSettings
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import System

__all__ = ["OAuthTokenProvider", "Token", "token_for"]

# As Java's sasl.login.refresh.window.factor: a new token at 80% of the old one's life.
_USED_UP_AT: Final = 0.8


def token_for(oauth: OAuthSettings, deadline: Deadline, broker: str) -> Token:
    """Give a token for a log-in.

    Args:
        oauth: Where tokens come from.
        deadline: End of the wait for one.
        broker: ``host:port`` the token is for, for errors.

    Raises:
        OptionError: The provider can't be imported, or gives no token.
        AuthenticationError: The endpoint refused, or the provider failed.
        BrokerTimeoutError: The deadline passed.
    """
    return _source(oauth, deadline.system).token(deadline, broker)


# One source per process and settings: it keeps its token until that is used up, so a hundred connections ask an
# endpoint once. The cache is as bounded and as forgettable as the connection pool's.
@lru_cache(maxsize=16)
def _source(oauth: OAuthSettings, system: System) -> _Source:
    if oauth.provider is not None:
        return _Source(from_provider(oauth.provider, oauth.extensions), "The oauthTokenProvider", system)
    if oauth.unsecured is not None:
        claims = oauth.unsecured
        return _Source(
            lambda _: unsecured_token(claims, oauth.extensions, system.wall_time()), "The unsigned token", system
        )
    return _Source(from_url(oauth), "The token endpoint", system)


class _Source:
    """Gives tokens and keeps the last one until it is used up."""

    def __init__(self, fetch: Callable[[Deadline], Token], name: str, system: System) -> None:
        self._fetch = fetch
        self._name = name
        self._system = system
        self._lock = threading.Lock()
        self._kept: Token | None = None
        self._use_until = 0.0

    def token(self, deadline: Deadline, broker: str) -> Token:
        if not self._system.acquire(self._lock, max(deadline.remaining(), 0.001)):
            raise self._too_late(broker)
        try:
            if self._kept is None or self._system.wall_time() >= self._use_until:
                self._kept = self._ask(deadline, broker)
                now = self._system.wall_time()
                lifetime = 0.0 if self._kept.expires_at is None else self._kept.expires_at - now
                self._use_until = now + max(lifetime, 0.0) * _USED_UP_AT
            return self._kept
        finally:
            self._lock.release()

    def _ask(self, deadline: Deadline, broker: str) -> Token:
        # Neither somebody else's code nor a name server knows our deadline: they run in a thread that is left behind if
        # it takes too long.
        answer: list[Token | BaseException] = []

        def ask() -> None:
            try:
                answer.append(self._fetch(deadline))
            except BaseException as error:  # handed over, whatever it is
                answer.append(error)

        self._system.run(ask, "pyspark-kafka-direct-token", deadline.remaining())
        if not answer:
            raise self._too_late(broker)
        if isinstance(answer[0], AuthenticationError) and deadline.expired:
            raise self._too_late(broker) from answer[0]  # it gave up just before we did, for the same reason
        match answer[0]:
            case Token() as token:
                return token
            case OptionError() as error:
                raise error
            case KafkaDirectError() as error:
                raise type(error)(error.message, broker=broker) from error.__cause__
            case Exception() as error:
                # The text of somebody else's exception may hold anything, so only its kind is shown; the cause has it.
                raise AuthenticationError(
                    f"{self._name} failed with {type(error).__name__}; the cause is above.", broker=broker
                ) from error
            case other:
                raise other

    def _too_late(self, broker: str) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._name} gave no token in time; the limit is kafka.socket.connection.setup.timeout.ms.", broker=broker
        )
