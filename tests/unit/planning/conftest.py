"""Simulated clusters for planners."""

from __future__ import annotations

from tests.unit.planning.planner_cluster import cluster as cluster
