"""What streaming queries are meant to reach against Spark's JVM connector. Reported, never asserted."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.goals import GoalResult
from bench.stream_summary import (
    CATCH_UP,
    LARGE,
    LARGE_WRITTEN,
    LATEST_OFFSET,
    SMALL,
    SMALL_WRITTEN,
    TRIGGER,
    find_stream,
    percentile,
)
from bench.summary import EXACTLY_ONCE, JVM, OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.stream_summary import PlannerAlone, StreamSeries

_LONGEST_SMALL_BATCH = 1.1
_MIN_SPEED = 2.0
_FEW_MS = 5.0
_MIN_EXACTLY_ONCE = 1.5
_MAX_ON_TOP_MS = 60.0


def evaluate_stream_goals(everything: Sequence[StreamSeries], planner: PlannerAlone | None) -> list[GoalResult]:
    """Hold what was measured against the goals; those that were not measured are left out."""
    goal_results = []
    for kind in (SMALL, LARGE, CATCH_UP):
        ours, theirs = find_stream(everything, kind, OURS), find_stream(everything, kind, JVM)
        if ours is None or theirs is None:
            continue
        name = f"stream, {ours.case.label}"
        if kind == SMALL:
            goal_results += _evaluate_small(name, ours.milliseconds(TRIGGER), theirs.milliseconds(TRIGGER))
        else:
            speed = ours.records_per_second / theirs.records_per_second
            wanted = f">= {_MIN_SPEED:g}x"
            goal_results.append(GoalResult(f"{name}: records/s", wanted, f"{speed:.2f}x", speed >= _MIN_SPEED))
    goal_results += _evaluate_written(everything)
    if planner is not None:
        for what, seconds in ((LATEST_OFFSET, planner.latest_offset), ("partitions", planner.plan)):
            took = median(seconds) * 1000
            goal_results.append(
                GoalResult(
                    f"stream, {planner.partitions} partitions: {what}, no Spark",
                    f"a few ms (<= {_FEW_MS:g})",
                    f"{took:.1f} ms",
                    took <= _FEW_MS,
                )
            )
    return goal_results


def _evaluate_written(everything: Sequence[StreamSeries]) -> list[GoalResult]:
    """Hold exactly-once against at-least-once: Spark's where batches are large, ours where they are small."""
    goal_results = []
    small, base = (find_stream(everything, SMALL_WRITTEN, peer) for peer in (EXACTLY_ONCE, OURS))
    if small is not None and base is not None:
        more = median(small.milliseconds(TRIGGER)) - median(base.milliseconds(TRIGGER))
        name = f"stream, {small.case.label}: exactly-once, on top of at-least-once"
        goal_results.append(GoalResult(name, f"<= {_MAX_ON_TOP_MS:g} ms", f"{more:.0f} ms", more <= _MAX_ON_TOP_MS))
    large, base = (find_stream(everything, LARGE_WRITTEN, peer) for peer in (EXACTLY_ONCE, JVM))
    if large is not None and base is not None:
        speed = large.records_per_second / base.records_per_second
        name = f"stream, {large.case.label}: exactly-once, records/s"
        wanted = f">= {_MIN_EXACTLY_ONCE:g}x"
        goal_results.append(GoalResult(name, wanted, f"{speed:.2f}x", speed >= _MIN_EXACTLY_ONCE))
    return goal_results


def _evaluate_small(name: str, ours: Sequence[int], theirs: Sequence[int]) -> list[GoalResult]:
    typical = median(ours) / median(theirs)
    slowest = percentile(ours, 0.99) / percentile(theirs, 0.99)
    wanted = f"<= {_LONGEST_SMALL_BATCH:g}x"
    return [
        GoalResult(f"{name}: median", wanted, f"{typical:.2f}x", typical <= _LONGEST_SMALL_BATCH),
        GoalResult(f"{name}: p99", "reported", f"{slowest:.2f}x", None),
    ]
