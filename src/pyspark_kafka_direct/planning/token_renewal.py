"""Decides when a delegation token is renewed, and when a new one replaces it (KIP-48).

A broker renews a token for a period (``delegation.token.expiry.time.ms``, a day by default), but not beyond its maximum
lifetime (``delegation.token.max.lifetime.ms``, a week by default). The old token stays valid until it expires. So tasks
that have it may run for at least a quarter of the period after it was replaced.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, Self

_DUE_FRACTION: Final = 0.75  # of a period, as spark.security.credentials.renewalRatio


class TokenStep(enum.Enum):
    """What the driver does next."""

    WAIT = "wait"
    RENEW = "renew"
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class TokenLifetime:
    """The times of a token, in seconds since 1970 on the driver's clock."""

    renewed_at: float  # or created
    expires_at: float
    ends_at: float  # the token cannot be renewed beyond it
    clock_offset: float  # the broker's clock minus the driver's

    @classmethod
    def created(cls, issued_ms: int, expires_ms: int, ends_ms: int, now: float) -> Self:
        """Return the times of a token that the broker has created now; the arguments are times of the broker."""
        offset = issued_ms / 1000 - now
        return cls(now, expires_ms / 1000 - offset, ends_ms / 1000 - offset, offset)

    def renewed(self, expires_ms: int, now: float) -> Self:
        """Return the times after a renewal; ``expires_ms`` is a time of the broker."""
        return replace(self, renewed_at=now, expires_at=expires_ms / 1000 - self.clock_offset)

    @property
    def due_at(self) -> float:
        """When the token is renewed or replaced."""
        return self.renewed_at + self._period * _DUE_FRACTION

    def can_be_renewed(self, now: float) -> bool:
        """Return whether a renewal would prolong the token by a whole period."""
        return now + self._period <= self.ends_at

    @property
    def _period(self) -> float:
        return max(self.expires_at - self.renewed_at, 0.0)


def next_step(lifetime: TokenLifetime | None, now: float) -> TokenStep:
    """Return what to do now with a token; ``None`` if there is none yet."""
    if lifetime is None or now >= lifetime.expires_at:
        return TokenStep.CREATE
    if now < lifetime.due_at:
        return TokenStep.WAIT
    return TokenStep.RENEW if lifetime.can_be_renewed(now) else TokenStep.CREATE
