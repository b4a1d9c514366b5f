"""Each test of the run is in exactly one lane."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.lanes.assignment import COLLECTED, LANES, of_lane

if TYPE_CHECKING:
    import pytest


def test_each_test_is_in_one_lane(request: pytest.FixtureRequest) -> None:
    collected = request.config.stash[COLLECTED]
    runs = Counter(item.nodeid for lane in LANES for item in of_lane(collected, lane))
    assert runs == dict.fromkeys((item.nodeid for item in collected), 1)
