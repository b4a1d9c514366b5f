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

# After so many seconds a thread that gives no token is taken to hang for ever, and another one is started beside it.
_GIVEN_UP_AFTER: Final = 60.0


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
        self._left_behind: _Asking | None = None

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
        # it takes too long. Its token serves whoever asks next, and no second thread hangs beside it for a while.
        answer: Token | BaseException | None = None
        if (late := self._left_behind) is not None:
            answer = late.wait(deadline)
            if answer is None and not late.is_given_up():
                raise self._too_late(broker)
            self._left_behind = None
        if not isinstance(answer, Token):
            asking = _Asking(self._fetch, deadline, self._system)
            answer = asking.wait(deadline)
            if answer is None:
                self._left_behind = asking
                raise self._too_late(broker)
        if isinstance(answer, AuthenticationError) and deadline.expired:
            raise self._too_late(broker) from answer  # it gave up just before we did, for the same reason
        match answer:
            case Token() as token:
                return token
            case OptionError() as error:
                raise error
            case KafkaDirectError() as error:
                raise type(error)(error.message, broker=broker) from error.__cause__
            case Exception() as error:
                # The text of somebody else's exception may hold anything, so only its kind is shown.
                raise AuthenticationError(
                    f"{self._name} failed with {type(error).__name__}. With PYSPARK_KAFKA_DIRECT_LOG_LEVEL=DEBUG in "
                    "the environment its text and stack trace are logged.",
                    broker=broker,
                ) from error
            case other:
                raise other

    def _too_late(self, broker: str) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._name} gave no token in time; the limit is kafka.socket.connection.setup.timeout.ms.", broker=broker
        )


class _Asking:
    """A call for a token, in a thread of its own."""

    def __init__(self, fetch: Callable[[Deadline], Token], deadline: Deadline, system: System) -> None:
        self._fetch = fetch
        self._deadline = deadline
        self._system = system
        self._answer: Token | BaseException | None = None
        self._until = system.monotonic() + _GIVEN_UP_AFTER
        self._runs = threading.Lock()
        self._runs.acquire()
        system.start(self._ask, "pyspark-kafka-direct-token")

    def wait(self, deadline: Deadline) -> Token | BaseException | None:
        """Return the token, or what was raised; ``None`` where there is nothing in time."""
        if self._system.acquire(self._runs, max(deadline.remaining(), 0.001)):
            self._runs.release()
        return self._answer

    def is_given_up(self) -> bool:
        """Return whether it has taken so long that it may never end."""
        return self._system.monotonic() >= self._until

    def _ask(self) -> None:
        try:
            self._answer = self._fetch(self._deadline)
        except BaseException as error:  # handed over, whatever it is
            self._answer = error
        finally:
            self._runs.release()
