"""Shrinks a failing history: fewer events, then smaller parameters, while the failure stays the same kind.

Chunks of events are removed, from half of them down to single ones, until none can be removed: delta debugging (Zeller,
Hildebrandt, 2002) without its search in subsets. The result depends on the history alone, as the budget is a number of
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.runner import find_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.history import Event, History
    from tests.simulation.runner import Outcome

BUDGET: Final = 500  # runs
MOST_EVENTS: Final = 20
"""A readable story has no more."""
_BISECTIONS = 10


class Shrunk(NamedTuple):
    """The smallest failing history that was found.

    Attributes:
        outcome: Its outcome.
        events_drawn: How many events the original history had.
        runs: How many histories were run.
        reproducible: Whether the original history failed again; if not, ``outcome`` is that of the second run.
        exhausted: Whether the budget ended before every single event was tried.
    """

    outcome: Outcome
    events_drawn: int
    runs: int
    reproducible: bool
    exhausted: bool

    @property
    def is_readable(self) -> bool:
        return len(self.outcome.history.plan.events) <= MOST_EVENTS


class _BudgetSpentError(Exception):
    pass


class _Shrinker:
    def __init__(self, history: History, kind: str, run: Callable[[History], Outcome], budget: int) -> None:
        self._kind = kind
        self._run = run
        self._left = budget
        self.runs = 0
        self.history = history
        self.outcome: Outcome | None = None  # of the smallest history so far

    def attempt(self, history: History) -> bool:
        """Run a history; it becomes the smallest one if it fails in the same way."""
        if self._left == 0:
            raise _BudgetSpentError
        self._left -= 1
        self.runs += 1
        outcome = self._run(history)
        if outcome.failure is None or outcome.failure.kind != self._kind:
            return False
        self.history, self.outcome = history, outcome
        return True

    def shrink_events(self) -> bool:
        """Remove events until no single one can be removed; return whether any was."""
        return _remove_elements(lambda: self.history.plan.events, self._attempt_events)

    def shrink_parameters(self, smallest: Mapping[str, float | tuple[()]]) -> bool:
        """Bring each parameter close to its smallest value; return whether one became smaller."""
        shrunk = False
        for name in sorted(smallest):
            shrunk |= self._shrink_parameter(name, smallest[name])
        return shrunk

    def _shrink_parameter(self, name: str, smallest: float | tuple[()]) -> bool:
        if name not in self.history.plan.parameters:
            return False
        return self._shrink_sequence(name) if isinstance(smallest, tuple) else self._shrink_number(name, smallest)

    def _shrink_sequence(self, name: str) -> bool:
        """Remove elements until no single one can be removed."""

        def values() -> tuple[Any, ...]:
            found: tuple[Any, ...] = self.history.plan.parameters[name]
            return found

        return _remove_elements(values, lambda left: self._attempt_parameter(name, left))

    def _shrink_number(self, name: str, smallest: float) -> bool:
        """Try the smallest value, then search between it and the present one."""
        fails = self.history.plan.parameters[name]
        if fails <= smallest:
            return False
        if self._attempt_parameter(name, smallest):
            return True
        passes, shrunk = smallest, False
        for _ in range(_BISECTIONS):
            middle = _between(passes, fails)
            if middle in (passes, fails):
                break
            if self._attempt_parameter(name, middle):
                fails, shrunk = middle, True
            else:
                passes = middle
        return shrunk

    def _attempt_events(self, events: tuple[Event, ...]) -> bool:
        return self.attempt(self.history.with_plan(self.history.plan.with_events(events)))

    def _attempt_parameter(self, name: str, value: float | tuple[Any, ...]) -> bool:
        return self.attempt(self.history.with_plan(self.history.plan.with_parameter(name, value)))


def shrink(history: History, kind: str, run: Callable[[History], Outcome], budget: int = BUDGET) -> Shrunk:
    """Return the smallest history that fails like the given one.

    Args:
        history: The failing history.
        kind: The kind of its failure.
        run: Runs a history.
        budget: How often.
    """
    drawn = len(history.plan.events)
    first = run(history)
    if first.failure is None or first.failure.kind != kind:
        return Shrunk(first, drawn, 1, reproducible=False, exhausted=False)
    shrinker = _Shrinker(history, kind, run, budget - 1)
    smallest: Mapping[str, float | tuple[()]] = getattr(find_scenario(history.scenario), "SHRINKABLE", {})
    exhausted = False
    try:
        shrinker.shrink_events()
        while shrinker.shrink_parameters(smallest) and shrinker.shrink_events():
            pass
    except _BudgetSpentError:
        exhausted = True
    return Shrunk(shrinker.outcome or first, drawn, shrinker.runs + 1, reproducible=True, exhausted=exhausted)


def _remove_elements(values: Callable[[], tuple[Any, ...]], attempt: Callable[[tuple[Any, ...]], bool]) -> bool:
    """Remove elements of the present values until no single one can be removed; return whether any was."""
    before = len(values())
    if before == 0 or attempt(()):
        return before > 0
    size = max(before // 2, 1)
    while _remove_chunks(size, values, attempt) or size > 1:
        size = max(size // 2, 1)
    return len(values()) < before


def _remove_chunks(
    size: int, values: Callable[[], tuple[Any, ...]], attempt: Callable[[tuple[Any, ...]], bool]
) -> bool:
    """Try to remove each chunk of some consecutive elements; return whether one was removed."""
    before, start = len(values()), 0
    while start < len(values()):
        present = values()
        if not attempt(present[:start] + present[start + size :]):
            start += size
    return len(values()) < before


def _between(low: float, high: float) -> float:
    """Return the value in the middle: an integer if both are."""
    return (low + high) // 2 if isinstance(low, int) and isinstance(high, int) else round((low + high) / 2, 3)
