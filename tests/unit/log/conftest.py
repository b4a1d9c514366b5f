"""What the tests of a log's work begin with."""

from __future__ import annotations

import pytest
from tests.unit.log.clusters import Bench, FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(2)


@pytest.fixture
def bench(cluster: FakeCluster) -> Bench:
    """One that has read an empty log."""
    bench = Bench(cluster)
    bench.until(bench.ask())
    cluster.questions.clear()
    return bench
