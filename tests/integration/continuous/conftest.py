"""Fixtures of continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.continuous_queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench


@pytest.fixture
def queries(spark: SparkSession, bench: Workbench, tmp_path: Path) -> Iterator[Queries]:
    """Starts continuous queries, which are stopped at the end."""
    started = Queries(spark, bench, tmp_path)
    yield started
    started.close()
