"""Bugs of readers and planners that a history of a few seeds must find."""

from __future__ import annotations

import pytest
from tests.simulation.planted_readers import BUGS
from tests.simulation.planting import violates_soon


@pytest.mark.parametrize(
    ("name", "found_by"),
    [
        ("follower again", 137),
        ("markers are gaps", 1),
        ("error of a partition", 21),
        ("early poll", 1),
        ("late poll", 1),
        ("errors remain", 1),
        ("early start", 2),
        ("early time", 3),
        ("large tasks", 1),
        ("queue after commitSync", 61),
        ("planned twice", 2),
    ],
)
def test_planted_bugs_are_found_soon(name: str, found_by: int) -> None:
    bug = next(each for each in BUGS if each.name == f"reader: {name}")
    assert violates_soon(bug, found_by, seeds=199)
