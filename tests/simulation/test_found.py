"""Histories that have found defects, all of which are fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation.runner import run_seed

if TYPE_CHECKING:
    from tests.simulation.history import Size


@pytest.mark.parametrize(
    ("scenario", "seed", "size"),
    [
        # The backoff before a reconnect left no time to connect, and each such connect prolonged it.
        pytest.param("range_reads", 631, "long", id="backoff-without-time-to-connect"),
        # Without topic ids the higher leader epoch of a deleted topic hid the leader of the recreated one, forever.
        pytest.param("range_reads", 210005, "long", id="epoch-of-a-deleted-topic"),
        # Without topic ids a log waited forever for the partitions that a recreated topic lacks.
        pytest.param("shared_log", 217, "short", id="recreated-with-fewer-partitions-1"),
        pytest.param("shared_log", 351, "short", id="recreated-with-fewer-partitions-2"),
    ],
)
def test_the_history_passes(scenario: str, seed: int, size: Size) -> None:
    outcome = run_seed(seed, scenario, size)
    assert outcome.failure is None, outcome.failure.traceback
