"""Systems that stand in for the machine."""

from __future__ import annotations

from pyspark_kafka_direct.wire.system import RealSystem


class Sleepless(RealSystem):
    """The machine, but nobody sleeps.

    Attributes:
        slept: How long each sleep would have been.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Frozen(Sleepless):
    """Time stands still, but for sleeps and for what the test adds.

    Attributes:
        now: The time of both clocks.
        chance: The number that chance gives.
    """

    def __init__(self, now: float = 1000.0, chance: float = 0.5) -> None:
        super().__init__()
        self.now = now
        self.chance = chance

    def monotonic(self) -> float:
        return self.now

    def wall_time(self) -> float:
        return self.now

    def random(self) -> float:
        return self.chance

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.now += seconds
