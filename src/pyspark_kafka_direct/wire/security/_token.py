"""What OAUTHBEARER sends, and what code that gives tokens looks like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.secret import Secret


class OAuthTokenProvider(Protocol):
    """What the factory named by ``oauthTokenProvider`` may return (a plain function is the other way).

    It may have a method ``extensions()`` too, giving SASL extensions (KIP-342) as a mapping of texts.
    """

    def token(self) -> str | tuple[str, float]:
        """Give a token, or a token and when it expires (seconds or milliseconds since 1970).

        It is called when a connection logs in, from any thread. A token given with its time of expiry is used again
        until shortly before then; one without is asked for each time, so caching is the provider's business.
        """


@dataclass(frozen=True, slots=True)
class Token:
    """A token, when it expires (seconds since 1970, ``None`` if unknown), and the extensions sent with it."""

    value: Secret
    expires_at: float | None = None
    extensions: tuple[tuple[str, str], ...] = ()


def finite(number: float | str) -> float | None:
    """Return a time that somebody else has told, or ``None`` if it is none: NaN, infinite, or beyond all measure."""
    try:
        told = float(number)
    except (ValueError, OverflowError):
        return None
    return told if math.isfinite(told) else None
