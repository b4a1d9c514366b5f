"""The progress of a soak in a file, so that a second call can resume."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class _Plan(Protocol):
    @property
    def seed(self) -> int: ...

    @property
    def rounds(self) -> Sequence[object]: ...


Outcome = TypeVar("Outcome")


class Progress(Generic[Outcome]):
    """The queries that have passed. An existing file takes precedence over ``seed``."""

    def __init__(self, file: Path, seed: int, delivery: str, outcome: type[Outcome]) -> None:
        self._file = file
        self._outcome_type = outcome
        self._state: dict[str, Any] = {"seed": seed, "delivery": delivery, "done": {}}
        if file.exists():
            self._state = json.loads(file.read_text())
        if self._state["delivery"] != delivery:
            raise ValueError(f"{file} is of a run with {self._state['delivery']}, not {delivery}")

    @property
    def seed(self) -> int:
        seed: int = self._state["seed"]
        return seed

    def outcome(self, plan: _Plan) -> Outcome | None:
        """Return the outcome of a query that has passed."""
        stored = self._state["done"].get(_key(plan))
        return None if stored is None else self._outcome_type(**{**stored, "faults": Counter(stored["faults"])})

    def add(self, plan: _Plan, outcome: Outcome) -> None:
        self._state["done"][_key(plan)] = dict(vars(outcome))
        new_file = self._file.with_suffix(".new")
        new_file.write_text(json.dumps(self._state, indent=1))
        new_file.replace(self._file)


def _key(plan: _Plan) -> str:
    return f"{plan.seed} x {len(plan.rounds)}"
