"""A point in time after which nobody waits any longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_kafka_direct.wire.system import SYSTEM, System


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock (so that setting the wall clock neither shortens nor lengthens a wait).

    Every wait of this package takes one. It is passed down unchanged, so the time a lower layer used up is gone for
    the layers above too. ``sooner`` narrows it for one step (connect, one request) of a longer operation.

    Attributes:
        at: Seconds on the scale of ``system.monotonic()``.
        setting: What the user can change to have it later; errors name it.
        system: Whose clock it is on; whoever waits until then also sleeps and dials there.
    """

    at: float
    setting: str = "kafka.default.api.timeout.ms"
    system: System = field(default=SYSTEM, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float, setting: str = "kafka.default.api.timeout.ms", system: System = SYSTEM) -> Deadline:
        """Return the deadline ``seconds`` from now."""
        return cls(system.monotonic() + seconds, setting, system)

    def remaining(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self.at - self.system.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.system.monotonic() >= self.at

    def sooner(self, seconds: float) -> Deadline:
        """Return this deadline or ``seconds`` from now, whichever comes first."""
        other = self.system.monotonic() + seconds
        return self if self.at <= other else Deadline(other, self.setting, self.system)
