"""A point in time after which nobody waits any longer."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock (so that setting the wall clock neither shortens nor lengthens a wait).

    Every wait of this package takes one. It is passed down unchanged, so the time a lower layer used up is gone for
    the layers above too, and ``sooner`` narrows it for one step (connect, one request) of a longer operation.

    Attributes:
        at: Seconds on ``time.monotonic()``'s scale.
        setting: What the user can change to have it later; errors name it.
    """

    at: float
    setting: str = "kafka.default.api.timeout.ms"

    @classmethod
    def after(cls, seconds: float, setting: str = "kafka.default.api.timeout.ms") -> Deadline:
        """The deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds, setting)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.at

    def sooner(self, seconds: float) -> Deadline:
        """This deadline or ``seconds`` from now, whichever comes first."""
        other = time.monotonic() + seconds
        return self if self.at <= other else Deadline(other, self.setting)
