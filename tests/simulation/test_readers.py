"""Bugs of readers and planners that a history of a few seeds must find."""

from __future__ import annotations

import pytest
from tests.simulation.errors import ViolationError
from tests.simulation.planted_readers import BUGS
from tests.simulation.runner import run_seed


@pytest.mark.parametrize(
    "name",
    [
        "follower again",
        "markers are gaps",
        "error of a partition",
        "early poll",
        "late poll",
        "errors remain",
        "early start",
        "early time",
        "large tasks",
        "queue after commitSync",
        "planned twice",
    ],
)
def test_planted_bugs_are_found_soon(name: str) -> None:
    bug = next(each for each in BUGS if each.name == f"reader: {name}")
    with bug.planted():
        failures = (run_seed(seed, bug.scenario, "short").failure for seed in range(1, 200))
        assert any(failure is not None and ViolationError.__name__ in failure.kind for failure in failures)
