"""A world without tasks: a clock and events, for unit tests of the simulated cluster."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeWorld:
    def __init__(self) -> None:
        self.now = 1000.0
        self.traced: list[tuple[Any, ...]] = []
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def rng(self, name: str) -> random.Random:
        return random.Random(name)

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self.at(self.now + seconds, callback, *args)

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, callback, args))

    def trace(self, kind: str, *facts: Any) -> None:
        self.traced.append((self.now, kind, *facts))

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            time, _, callback, args = heapq.heappop(self._events)
            self.now = max(self.now, time)
            callback(*args)
        self.now = end
