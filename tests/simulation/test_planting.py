"""The planted bugs themselves: their names, and that they can be planted in today's code."""

from __future__ import annotations

from collections import Counter

from tests.simulation.planting import all_bugs
from tests.simulation.runner import SHARES


def test_names_of_planted_bugs_are_unique() -> None:
    assert not [name for name, count in Counter(bug.name for bug in all_bugs()).items() if count > 1]


def test_each_bug_has_a_scenario_and_replaces_something() -> None:
    for bug in all_bugs():
        assert bug.scenario in SHARES
        before = [vars(patch.owner)[patch.attribute] for patch in bug.patches()]
        with bug.planted():
            planted = [vars(patch.owner)[patch.attribute] for patch in bug.patches()]
        assert all(old is not new for old, new in zip(before, planted, strict=True)), bug.name
        assert before == [vars(patch.owner)[patch.attribute] for patch in bug.patches()], bug.name
