"""A simulated cluster for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.consumer.polling import ConsumerCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[ConsumerCluster]:
    """Two brokers; broker 1 leads the three partitions of ``flights``."""
    with ConsumerCluster() as cluster:
        yield cluster
