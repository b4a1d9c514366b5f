"""Decides when a delegation token is renewed, and when a new one replaces it (KIP-48).

A broker prolongs a token by a period (``delegation.token.expiry.time.ms``, a day by default), but not beyond its
maximum lifetime (``delegation.token.max.lifetime.ms``, a week by default). A new token replaces it after half of that
lifetime. The old one is renewed until its end, so the tasks of a batch may run for half of the lifetime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

_RENEWAL_FRACTION: Final = 0.75  # of a period, as spark.security.credentials.renewalRatio
_REPLACEMENT_FRACTION: Final = 0.5  # of the maximum lifetime


@dataclass(frozen=True, slots=True)
class TokenLifetime:
    """The times of a token, in seconds since 1970 on the driver's clock."""

    created_at: float
    renewed_at: float  # or created
    expires_at: float
    ends_at: float  # no renewal prolongs the token beyond it
    clock_offset: float  # the broker's clock minus the driver's

    @classmethod
    def created(cls, issued_ms: int, expires_ms: int, ends_ms: int, now: float) -> Self:
        """Return the times of a token that the broker has created now; the arguments are times of the broker."""
        offset = issued_ms / 1000 - now
        return cls(now, now, expires_ms / 1000 - offset, ends_ms / 1000 - offset, offset)

    def renewed(self, expires_ms: int, now: float) -> Self:
        """Return the times after a renewal; ``expires_ms`` is a time of the broker."""
        return replace(self, renewed_at=now, expires_at=expires_ms / 1000 - self.clock_offset)

    @property
    def renew_at(self) -> float:
        """The time of the next renewal; infinity if the last one has reached the end of the token."""
        if self.expires_at >= self.ends_at:
            return float("inf")
        return self.renewed_at + (self.expires_at - self.renewed_at) * _RENEWAL_FRACTION

    @property
    def replace_at(self) -> float:
        """The time at which a new token replaces this one."""
        return min(self.expires_at, self.created_at + (self.ends_at - self.created_at) * _REPLACEMENT_FRACTION)
