"""What of a soak is done, kept in a file, so that a second call goes on."""

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
    """The queries that were right, by their plans.

    Args:
        file: Where it is kept; what is in it wins.
        seed: Of the run, if it begins here.
        delivery: Of the run.
        outcome: What is made again of an outcome's attributes; ``deeds`` is a counter.

    Raises:
        ValueError: The file is of another run.
    """

    def __init__(self, file: Path, seed: int, delivery: str, outcome: type[Outcome]) -> None:
        self._file = file
        self._made = outcome
        self._kept: dict[str, Any] = {"seed": seed, "delivery": delivery, "done": {}}
        if file.exists():
            self._kept = json.loads(file.read_text())
        if self._kept["delivery"] != delivery:
            raise ValueError(f"{file} is of a run with {self._kept['delivery']}, not {delivery}")

    @property
    def seed(self) -> int:
        """Of the run."""
        seed: int = self._kept["seed"]
        return seed

    def outcome(self, plan: _Plan) -> Outcome | None:
        """How a query went, if it was right."""
        kept = self._kept["done"].get(_key(plan))
        return None if kept is None else self._made(**{**kept, "deeds": Counter(kept["deeds"])})

    def add(self, plan: _Plan, outcome: Outcome) -> None:
        """Keep that a query was right."""
        self._kept["done"][_key(plan)] = dict(vars(outcome))
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._kept, indent=1))
        new.replace(self._file)


def _key(plan: _Plan) -> str:
    return f"{plan.seed} x {len(plan.rounds)}"
