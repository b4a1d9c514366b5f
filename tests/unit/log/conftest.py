"""Fixtures of the tests of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.log.log_cluster import LogCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster() as cluster:
        yield cluster
