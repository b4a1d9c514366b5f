"""Fixtures of the tests of the log worker."""

from __future__ import annotations

import pytest
from tests.unit.log.fake_cluster import FakeCluster, WorkerHarness


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(2)


@pytest.fixture
def harness(cluster: FakeCluster) -> WorkerHarness:
    """A worker that has read an empty log."""
    harness = WorkerHarness(cluster)
    harness.run_until_done(harness.read_to_end())
    cluster.requests.clear()
    return harness
