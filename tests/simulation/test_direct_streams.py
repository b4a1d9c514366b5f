"""Bugs of direct streams that a history of a few seeds must find."""

from __future__ import annotations

import pytest
from tests.simulation.errors import ViolationError
from tests.simulation.planted_direct_streams import BUGS
from tests.simulation.runner import run_seed
from tests.simulation.scenarios import direct_streams


@pytest.mark.parametrize(
    "name",
    [
        "replayed batch planned again",
        "failed generation advances",
        "position from group",
        "shared position",
        "tasks without topic ids",
        "commits planned ranges",
        "lowest offset of calls",
    ],
)
def test_planted_bugs_are_found_soon(name: str) -> None:
    bug = next(each for each in BUGS if each.name == name)
    with bug.planted():
        failures = (run_seed(seed, direct_streams.NAME, "short").failure for seed in range(1, 60))
        assert any(failure is not None and ViolationError.__name__ in failure.kind for failure in failures)
