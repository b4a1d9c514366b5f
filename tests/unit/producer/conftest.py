"""Fixtures of the producer's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.producer.producer_cluster import ProducerCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[ProducerCluster]:
    with ProducerCluster() as cluster:
        yield cluster
