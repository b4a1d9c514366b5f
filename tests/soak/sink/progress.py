"""What of a soak is done, kept in a file, so that a second call goes on."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.soak.sink.run import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.sink.plan import Delivery, Plan


class Progress:
    """The queries that were right, by their plans.

    Args:
        file: Where it is kept; what is in it wins.
        seed: Of the run, if it begins here.
        delivery: Of the run.

    Raises:
        ValueError: The file is of another run.
    """

    def __init__(self, file: Path, seed: int, delivery: Delivery) -> None:
        self._file = file
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

    def outcome(self, plan: Plan) -> Outcome | None:
        """How a query went, if it was right."""
        kept = self._kept["done"].get(_key(plan))
        return None if kept is None else Outcome(**{**kept, "deeds": Counter(kept["deeds"])})

    def add(self, plan: Plan, outcome: Outcome) -> None:
        """Keep that a query was right."""
        self._kept["done"][_key(plan)] = dict(vars(outcome))
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._kept, indent=1))
        new.replace(self._file)


def _key(plan: Plan) -> str:
    return f"{plan.seed} x {len(plan.rounds)}"
