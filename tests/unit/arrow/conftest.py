"""A simulated cluster for slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.arrow.slice_cluster import SliceCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SliceCluster]:
    with SliceCluster(monkeypatch) as cluster:
        yield cluster
