"""Fixtures of the tests of continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.coordinator_threads import CoordinatorThread
from tests.unit.planning.planner_cluster import cluster as cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def drivers() -> Iterator[Callable[..., CoordinatorThread]]:
    """Start coordinators, each in a thread that ends with the test."""
    started: list[CoordinatorThread] = []

    def start(*args: Any, **keywords: Any) -> CoordinatorThread:
        started.append(CoordinatorThread(*args, **keywords))
        return started[-1]

    yield start
    for driver in started:
        driver.close()
