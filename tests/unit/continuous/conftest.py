"""Fixtures of the tests of continuous queries."""

from __future__ import annotations

from tests.unit.planning.planner_cluster import cluster as cluster
