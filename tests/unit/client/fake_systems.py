"""Systems that replace the machine in tests."""

from __future__ import annotations

from pyspark_kafka_direct.client.system import RealSystem


class NoSleepSystem(RealSystem):
    """The machine, but sleeps return at once; ``slept`` has their durations."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class FakeTimeSystem(NoSleepSystem):
    """Time advances only by sleeps and by assignments to ``now``; random numbers are fixed."""

    def __init__(self, now: float = 1000.0, random_value: float = 0.5) -> None:
        super().__init__()
        self.now = now
        self.random_value = random_value

    def monotonic(self) -> float:
        return self.now

    def wall_time(self) -> float:
        return self.now

    def random(self) -> float:
        return self.random_value

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.now += seconds
