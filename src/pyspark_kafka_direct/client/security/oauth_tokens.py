"""OAUTHBEARER tokens, and two sources of them: user code (option ``oauthTokenProvider``) and unsigned tokens.

Unsigned tokens are created from claims, as Kafka does without a token endpoint; they are suitable for tests only:

    base64url({"alg":"none"}) "." base64url({"sub":"alice","iat":...,"exp":...}) "."       (RFC 7519, 6)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pyspark_kafka_direct.client.security.jwt import unsigned_jwt
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import Secret, check_extensions
from pyspark_kafka_direct.options.user_factories import load_factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.security_settings import ProviderTokens, UnsecuredTokens

# Larger times are milliseconds, as AWS's signer returns them; as seconds it is the year 5138.
_MAX_SECONDS: Final = 1e11
_BEARER: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, 2.1


class OAuthTokenProvider(Protocol):
    """The object that a factory named by ``oauthTokenProvider`` returns; it may also return a function.

    It may also have a method ``extensions()``, which returns SASL extensions (KIP-342) as a mapping of strings.
    """

    def token(self) -> str | tuple[str, float]:
        """Return a token, or a token and its expiry time (seconds or milliseconds since 1970).

        It is called when a connection authenticates, from any thread. A token with an expiry time is reused until
        shortly before that time. A token without one is requested each time, so the provider may cache it.
        """


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A token, its expiry time, and the SASL extensions sent with it."""

    value: Secret
    expires_at: float | None = None  # seconds since 1970
    extensions: tuple[tuple[str, str], ...] = ()  # of the source; they replace those of the settings


TokenRetriever: TypeAlias = "Callable[[Deadline], OAuthBearerToken]"


def finite_or_none(number: float | str) -> float | None:
    """Return an external time value, or ``None`` if it is NaN, infinite or too large."""
    try:
        value = float(number)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def provider_token_retriever(source: ProviderTokens) -> TokenRetriever:
    """Return a function that requests tokens from the provider ``module:factory``."""
    name = source.name
    # The provider is created with the first token, in the process that requests it: it is not pickled.
    providers: list[Any] = []

    def fetch(_: Deadline) -> OAuthBearerToken:
        if not providers:
            providers.append(_create_provider(name))
        provider = providers[0]
        result = provider.token() if hasattr(provider, "token") else provider()
        provider_extensions = provider.extensions() if hasattr(provider, "extensions") else {}
        pairs = dict(provider_extensions or {}).items()
        return _parse_token(name, result, check_extensions(pairs, f"oauthTokenProvider {name}"))

    return fetch


def unsecured_token(source: UnsecuredTokens, now: float) -> OAuthBearerToken:
    """Create an unsigned token."""
    expires_at = now + source.lifetime_seconds
    content = {name: list(value) if isinstance(value, tuple) else value for name, value in source.claims}
    content |= {"iat": now, "exp": expires_at}
    return OAuthBearerToken(Secret(f"{unsigned_jwt({'alg': 'none'}, content)}."), expires_at)


def _create_provider(name: str) -> Any:
    factory = load_factory("oauthTokenProvider", name, "a token provider", "the driver and on every executor")
    provider = factory()
    if not hasattr(provider, "token") and not callable(provider):
        raise OptionError(
            f"option oauthTokenProvider: {name}() must return a function that returns a token, or an object with a "
            f"method token(), not {type(provider).__name__}"
        )
    return provider


def _parse_token(name: str, result: Any, extensions: tuple[tuple[str, str], ...]) -> OAuthBearerToken:
    match result:
        case str(token):
            expires_at = None
        case (str(token), int() | float() as time):
            expires_at = finite_or_none(time)
            if expires_at is not None and expires_at > _MAX_SECONDS:
                expires_at /= 1000
        case (str(token), None):
            expires_at = None
        case _:
            raise OptionError(
                f"option oauthTokenProvider: {name} returned {type(result).__name__}; it must return a token as a "
                "string, or a pair of a token and its expiry time (seconds or milliseconds since 1970)"
            )
    if _BEARER.fullmatch(token) is None:
        raise OptionError(
            f"option oauthTokenProvider: {name} returned a string that is not a bearer token (RFC 6750: letters, "
            "digits and -._~+/ with = at the end)"
        )
    return OAuthBearerToken(Secret(token), expires_at, extensions)
