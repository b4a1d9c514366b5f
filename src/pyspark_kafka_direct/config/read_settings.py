"""Typed settings of reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafka_direct.errors import OptionError


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits on micro-batches that the options set; ``None`` is no limit."""

    max_offsets: int | None = None  # maxOffsetsPerTrigger
    min_offsets: int | None = None  # minOffsetsPerTrigger
    max_delay: float = 900.0  # maxTriggerDelay in seconds: how long min_offsets may delay a batch
    max_bytes: int | None = None  # maxBytesPerTrigger

    @property
    def active(self) -> bool:
        """Whether any limit is set."""
        return self.max_offsets is not None or self.min_offsets is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class PIDGains:
    """The settings of the controller."""

    proportional: float = 1.0  # weight of the difference between the last and the measured rate
    integral: float = 0.2  # weight of the records that accumulated while batches waited
    derived: float = 0.0  # weight of the change of the difference
    min_rate: float = 100.0  # records per second

    def __post_init__(self) -> None:
        for name in ("proportional", "integral", "derived"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"the {name} term of backpressure must not be negative, got {getattr(self, name)}")
        if not self.min_rate > 0:
            raise OptionError(f"the minimum rate of backpressure must be above 0, got {self.min_rate}")


@dataclass(frozen=True, slots=True)
class BackpressureOptions:
    """The options of backpressure."""

    gains: PIDGains
    initial_rate: float | None = None  # records per second before the first measured rate; None is no limit
